package ewma_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/ewma"
)

var t0 = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

const (
	ms = time.Millisecond
	s  = time.Second
)

// near requires got to be within a millionth of want.
func near(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.InDelta(t, float64(want), float64(got), 1+1e-6*float64(want))
}

// value requires that there is one.
func value(t *testing.T, m *ewma.Meter, now time.Time) time.Duration {
	t.Helper()
	v, ok := m.Value(now)
	require.True(t, ok)
	return v
}

func TestRows(t *testing.T) {
	// Two hosts with unequal latency, load and weight, scored by the sum.
	t.Run("F-LB-07", func(t *testing.T) {
		const penalty = int64(500 * ms)
		a := ewma.SumScore(int64(100*ms), 0, penalty, 1)
		b := ewma.SumScore(int64(50*ms), 1, penalty, 1)
		c := ewma.SumScore(int64(300*ms), 0, penalty, 4)
		require.True(t, a.Less(b))
		require.False(t, b.Less(a))
		require.True(t, c.Less(a))
		require.False(t, c.Less(c), "a tie is not less")
		// The printed scores are 0.10, 0.55 and 0.075.
		for _, same := range [][2]ewma.Score{
			{a, ewma.SumScore(int64(100*ms), 0, 0, 1)},
			{b, ewma.SumScore(int64(550*ms), 0, 0, 1)},
			{c, ewma.SumScore(int64(75*ms), 0, 0, 1)},
		} {
			require.False(t, same[0].Less(same[1]))
			require.False(t, same[1].Less(same[0]))
		}
	})

	t.Run("F-LB-08", func(t *testing.T) {
		cfg := ewma.Config{AlphaMilli: 300, Warmup: 10, Prior: int64(100 * ms)}

		m := ewma.NewMeter(cfg)
		v, ok := m.Value(t0)
		require.False(t, ok)
		require.Equal(t, 100*ms, v)
		for i := 1; i <= 10; i++ {
			m.Observe(t0, time.Duration(i)*100*ms)
		}
		require.Equal(t, 550*ms, value(t, m, t0))
		m.Observe(t0, s)
		require.Equal(t, 685*ms, value(t, m, t0))

		m = ewma.NewMeter(cfg)
		for range 10 {
			m.Observe(t0, 100*ms)
		}
		m.Observe(t0, 500*ms)
		require.Equal(t, 220*ms, value(t, m, t0))

		// Idle for the decay constant of 5 s.
		cfg.IdleTau = 5 * s
		m = ewma.NewMeter(cfg)
		m.Observe(t0, 550*ms)
		near(t, time.Duration(550e6*math.Exp(-1)), value(t, m, t0.Add(5*s)))
		require.InDelta(t, 0.3679, float64(value(t, m, t0.Add(5*s)))/float64(550*ms), 5e-5)

		cfg.IdleTau, cfg.IdleHalfLife = 0, 5*s
		m = ewma.NewMeter(cfg)
		m.Observe(t0, 550*ms)
		require.Equal(t, 275*ms, value(t, m, t0.Add(5*s)))
		require.Equal(t, 137500*time.Microsecond, value(t, m, t0.Add(10*s)))
	})

	t.Run("F-LB-10", func(t *testing.T) {
		m := ewma.NewMeter(ewma.Config{})
		m.Observe(t0, 100*ms)
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -1e-300} {
			m.ObserveSeconds(t0.Add(s), x)
		}
		m.Observe(t0.Add(s), -1)
		require.Equal(t, 1, m.Samples())
		require.True(t, t0.Equal(m.LastAt()))
		last, ok := m.Last()
		require.True(t, ok)
		require.Equal(t, 100*ms, last)

		// A score without a sane weight comes last.
		good, bad := ewma.SumScore(math.MaxInt64, math.MaxInt64, math.MaxInt64, 1), ewma.SumScore(0, 0, 0, -1)
		require.True(t, good.Less(bad))
		require.False(t, bad.Less(good))
		require.True(t, good.Less(ewma.Score{}))
		require.False(t, bad.Less(ewma.Score{}))
	})

	t.Run("F-OB-06", func(t *testing.T) {
		m := ewma.NewMeter(ewma.Config{AlphaMilli: 300, Warmup: 10})
		for range 9 {
			m.Observe(t0, ms)
			require.False(t, m.Warm())
		}
		m.Observe(t0, ms)
		require.True(t, m.Warm())
		require.Equal(t, 10, m.Samples())
	})

	t.Run("E-EW-02", func(t *testing.T) {
		c := ewma.NewCore(ewma.Config{AlphaMilli: 250})
		want := []int64{100000, 75000, 56250, 42187, 41640}
		for i, ms := range []int64{100, 0, 0, 0, 40} {
			c.Observe(0, 1000*ms)
			v, ok := c.Last()
			require.True(t, ok)
			require.Equal(t, want[i], v)
		}
	})

	// The folds; what becomes of the line is the detector's.
	t.Run("E-EW-07", func(t *testing.T) {
		for _, cfg := range []ewma.Config{{AlphaMilli: 250}, {}, {Warmup: 10}} {
			c := ewma.NewCore(cfg)
			now := int64(0)
			fold := func(sample int64) int64 {
				now += int64(s)
				c.Observe(now, sample)
				v, _ := c.Last()
				return v
			}
			require.Equal(t, int64(math.MaxInt64), fold(math.MaxInt64))
			require.Equal(t, int64(math.MaxInt64), fold(math.MaxInt64))
			require.Less(t, fold(0), int64(math.MaxInt64))
			require.Positive(t, fold(0))
		}
	})
}

func TestTraps(t *testing.T) {
	t.Run("A-EW-01", func(t *testing.T) {
		plain, peak := ewma.Config{Tau: 10 * s}, ewma.Config{Tau: 10 * s, Peak: true}
		after := func(cfg ewma.Config, sample time.Duration) time.Duration {
			m := ewma.NewMeter(cfg)
			m.Observe(t0, 100*ms)
			m.Observe(t0.Add(10*s), sample)
			return value(t, m, t0.Add(10*s))
		}
		w := math.Exp(-1)
		near(t, time.Duration(100e6*w+200e6*(1-w)), after(plain, 200*ms))
		require.InDelta(t, 163.2, float64(after(plain, 200*ms))/1e6, 0.05)
		require.Equal(t, 200*ms, after(peak, 200*ms))
		near(t, time.Duration(100e6*w+50e6*(1-w)), after(plain, 50*ms))
		require.InDelta(t, 68.4, float64(after(plain, 50*ms))/1e6, 0.05)
		// 50ms is above the faded 36.8ms, but no peak: jumping to it would
		// give less than averaging does.
		require.Equal(t, after(plain, 50*ms), after(peak, 50*ms))
	})

	t.Run("A-EW-04", func(t *testing.T) {
		for _, cfg := range []ewma.Config{
			{}, {Peak: true}, {AlphaMilli: 250}, {Warmup: 3}, {HalfLife: s}, {Prior: int64(7 * s)},
		} {
			m := ewma.NewMeter(cfg)
			_, ok := m.Value(t0)
			require.False(t, ok)
			m.Observe(t0.Add(s), 100*ms)
			require.Equal(t, 100*ms, value(t, m, t0.Add(s)))
		}
		// Measured zero is a value.
		m := ewma.NewMeter(ewma.Config{Prior: 1})
		m.Observe(t0, 0)
		require.Zero(t, value(t, m, t0))
	})

	// The value's part; the Pool's part is with the policy.
	t.Run("A-PE-03", func(t *testing.T) {
		m := ewma.NewMeter(ewma.Config{Peak: true})
		m.Observe(t0, 200*ms)
		now := t0.Add(10 * time.Minute)
		v := value(t, m, now)
		prev := ewma.Score{}
		for k := range int64(50) {
			b := ewma.ProductScore(int64(v), k, 1)
			require.True(t, ewma.SumScore(0, 0, 0, 1).Less(b), "above zero")
			require.True(t, k == 0 || prev.Less(b), "strictly increasing")
			prev = b
		}
		require.True(t, ewma.ProductScore(int64(10*ms), 0, 1).Less(ewma.ProductScore(int64(v), 1e9, 1)))
		m.Observe(now, 200*ms)
		require.True(t, ewma.ProductScore(int64(10*ms), 0, 1).Less(ewma.ProductScore(int64(value(t, m, now)), 0, 1)))

		// With a floor, load separates idle hosts as strongly as fresh ones.
		m = ewma.NewMeter(ewma.Config{Floor: int64(ms)})
		m.Observe(t0, 200*ms)
		require.Equal(t, ms, value(t, m, now))
		require.Equal(t, ms, value(t, m, now.Add(1000*time.Hour)))
	})

	t.Run("A-CK-04", func(t *testing.T) {
		m := ewma.NewMeter(ewma.Config{})
		m.Observe(t0.Add(10*s), 100*ms)
		m.Observe(t0.Add(9*s), 200*ms)
		v := value(t, m, t0.Add(9*s))
		require.GreaterOrEqual(t, v, 100*ms)
		require.LessOrEqual(t, v, 200*ms)
		require.Equal(t, v, value(t, m, t0.Add(10*s)))
		require.True(t, t0.Add(10*s).Equal(m.LastAt()))

		// Times at both ends of what there is.
		c := ewma.NewCore(ewma.Config{Tau: math.MaxInt64})
		c.Observe(math.MinInt64, 100)
		c.Observe(math.MaxInt64, 0)
		last, _ := c.Last()
		require.EqualValues(t, 13, last, "e^-2 of 100")
		require.Error(t, ewma.Config{Tau: -s}.Validate())
	})
}

func TestZeroValues(t *testing.T) {
	var c ewma.Core
	v, ok := c.Value(5)
	require.False(t, ok)
	require.Zero(t, v)
	require.False(t, c.Warm())
	require.Zero(t, c.Samples())
	require.Zero(t, c.LastAt())
	c.Observe(3, -1)
	require.Zero(t, c.Samples())
	c.Observe(3, 7)
	require.EqualValues(t, 3, c.LastAt())
	require.True(t, c.Warm())
	v, ok = c.Value(3)
	require.True(t, ok)
	require.EqualValues(t, 7, v)

	var m ewma.Meter
	same := ewma.NewMeter(ewma.Config{Tau: 10 * s})
	require.True(t, m.LastAt().IsZero())
	for _, m := range []*ewma.Meter{&m, same} {
		m.Observe(t0, 100*ms)
		m.ObserveSeconds(t0.Add(s), 0.25)
	}
	require.Equal(t, value(t, same, t0.Add(3*s)), value(t, &m, t0.Add(3*s)))
}

func TestFreshSharesConfiguration(t *testing.T) {
	c := ewma.NewCore(ewma.Config{AlphaMilli: 500, Prior: 9})
	c.Observe(1, 100)
	f := c.Fresh()
	v, ok := f.Value(1)
	require.False(t, ok)
	require.EqualValues(t, 9, v)
	f.Observe(1, 0)
	f.Observe(1, 10)
	v, _ = f.Last()
	require.EqualValues(t, 5, v)
	v, _ = c.Last()
	require.EqualValues(t, 100, v, "c is untouched")
}

func TestIdle(t *testing.T) {
	read := func(cfg ewma.Config, idle time.Duration) time.Duration {
		m := ewma.NewMeter(cfg)
		m.Observe(t0, 800*ms)
		return value(t, m, t0.Add(idle))
	}
	e := func(x float64) time.Duration { return time.Duration(800e6 * math.Exp(-x)) }
	near(t, e(1), read(ewma.Config{}, 10*s))
	near(t, e(2), read(ewma.Config{Tau: s}, 2*s))
	require.Equal(t, 200*ms, read(ewma.Config{HalfLife: s}, 2*s))
	require.Equal(t, 800*ms, read(ewma.Config{AlphaMilli: 100}, time.Hour))
	require.Equal(t, 800*ms, read(ewma.Config{IdleTau: -1}, time.Hour))
	require.Equal(t, 400*ms, read(ewma.Config{AlphaMilli: 100, IdleHalfLife: s}, s))
	near(t, e(3), read(ewma.Config{HalfLife: s, IdleTau: 2 * s}, 6*s))
	require.Equal(t, 800*ms, read(ewma.Config{Floor: int64(s)}, time.Hour), "an estimate below the floor stays")
	require.Zero(t, read(ewma.Config{}, time.Hour))
	require.Equal(t, 800*ms, read(ewma.Config{}, -time.Hour))
}

// Reading fades the reading, not the estimate.
func TestReadingStoresNothing(t *testing.T) {
	a, b := ewma.NewMeter(ewma.Config{}), ewma.NewMeter(ewma.Config{})
	for i := range 20 {
		now := t0.Add(time.Duration(i*i) * s)
		a.Observe(now, time.Duration(i%7)*ms)
		b.Observe(now, time.Duration(i%7)*ms)
		a.Value(now.Add(time.Hour))
		a.Last()
		a.Warm()
		a.Value(now.Add(-time.Hour))
		require.Equal(t, b.AppendState(nil, now), a.AppendState(nil, now))
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct {
		cfg  ewma.Config
		want string
	}{
		{ewma.Config{Tau: -1}, "ewma: Config.Tau is -1ns, want >= 0"},
		{ewma.Config{HalfLife: -s}, "ewma: Config.HalfLife is -1s, want >= 0"},
		{ewma.Config{Tau: s, HalfLife: s}, "ewma: Config.HalfLife is 1s, want 0 while Tau is set"},
		{ewma.Config{AlphaMilli: -1}, "ewma: Config.AlphaMilli is -1, want 0 to 1000"},
		{ewma.Config{AlphaMilli: 1001}, "ewma: Config.AlphaMilli is 1001, want 0 to 1000"},
		{ewma.Config{AlphaMilli: 1, Tau: s}, "ewma: Config.AlphaMilli is 1, want 0 while Tau is set"},
		{ewma.Config{AlphaMilli: 1, HalfLife: s}, "ewma: Config.AlphaMilli is 1, want 0 while HalfLife is set"},
		{ewma.Config{Warmup: -1}, "ewma: Config.Warmup is -1, want 0 to 1000000"},
		{ewma.Config{Warmup: 1000001}, "ewma: Config.Warmup is 1000001, want 0 to 1000000"},
		{ewma.Config{IdleHalfLife: -s}, "ewma: Config.IdleHalfLife is -1s, want >= 0"},
		{ewma.Config{IdleHalfLife: s, IdleTau: -s}, "ewma: Config.IdleHalfLife is 1s, want 0 while IdleTau is set"},
		{ewma.Config{Floor: -1}, "ewma: Config.Floor is -1, want >= 0"},
		{ewma.Config{Prior: -1}, "ewma: Config.Prior is -1, want >= 0"},
	} {
		err := tt.cfg.Validate()
		require.EqualError(t, err, tt.want)
		require.ErrorIs(t, err, ewma.ErrConfig)
		var ce *ewma.ConfigError
		require.ErrorAs(t, err, &ce)
		require.PanicsWithError(t, tt.want, func() { ewma.NewCore(tt.cfg) })
		require.PanicsWithError(t, tt.want, func() { ewma.NewMeter(tt.cfg) })
	}
	for _, cfg := range []ewma.Config{
		{}, {Tau: 1}, {Tau: math.MaxInt64}, {HalfLife: 1}, {HalfLife: math.MaxInt64},
		{AlphaMilli: 1000, Warmup: 1000000, IdleTau: -1, Floor: math.MaxInt64, Prior: math.MaxInt64, Peak: true},
		{IdleHalfLife: s},
	} {
		require.NoError(t, cfg.Validate())
	}
}

func TestObserveSeconds(t *testing.T) {
	for _, tt := range []struct {
		seconds float64
		want    time.Duration
	}{
		{0, 0}, {0.1, 100 * ms}, {9223372036.854775807, math.MaxInt64}, {1.5e-9, 2}, {0.4e-9, 0}, {9.3e9, math.MaxInt64},
		{math.MaxFloat64, math.MaxInt64}, {1 << 33, 1 << 33 * s}, {5e-324, 0},
	} {
		var m ewma.Meter
		m.ObserveSeconds(t0, tt.seconds)
		require.Equal(t, tt.want, value(t, &m, t0))
	}
}

// Frequent samples of little weight move the estimate both ways.
func TestFrequentSamples(t *testing.T) {
	c := ewma.NewCore(ewma.Config{Tau: 10 * s})
	c.Observe(0, int64(ms))
	now := int64(0)
	run := func(sample time.Duration) int64 {
		for range 200_000 { // a second's worth: e^-0.1 is left
			now += int64(5 * time.Microsecond)
			c.Observe(now, int64(sample))
		}
		v, _ := c.Last()
		return v
	}
	w := math.Exp(-0.1)
	up := 1e6*w + 2e6*(1-w)
	require.InDelta(t, up, float64(run(2*ms)), 2)
	require.InDelta(t, up*w+1e6*(1-w), float64(run(ms)), 2)
}

// A sample is a peak if it is above the estimate including its fraction.
func TestPeakComparesFractions(t *testing.T) {
	plain := ewma.NewCore(ewma.Config{HalfLife: 10})
	peak := ewma.NewCore(ewma.Config{HalfLife: 10, Peak: true})
	for _, c := range []*ewma.Core{&plain, &peak} {
		c.Observe(0, 11)
		c.Observe(10, 10) // 10.5
		c.Observe(20, 10) // 10.25
	}
	require.Equal(t, []byte{1, 3, 0, 10, 0x80, 0x80, 0x80, 0x80, 0x04}, peak.AppendState(nil, 20))
	require.Equal(t, plain.AppendState(nil, 20), peak.AppendState(nil, 20))
	peak.Observe(20, 11)
	require.Equal(t, []byte{1, 4, 0, 11, 0}, peak.AppendState(nil, 20))
}

func TestScoreArithmetic(t *testing.T) {
	// Arguments out of range count as the nearest sane ones.
	require.Equal(t, ewma.SumScore(0, 0, 0, 1), ewma.SumScore(-1, -2, -3, 1))
	require.Equal(t, ewma.ProductScore(1, 0, 1), ewma.ProductScore(-5, -5, 1))
	// Saturated loads still compare, and are told apart by weight.
	huge := ewma.ProductScore(math.MaxInt64, math.MaxInt64, 1)
	require.False(t, huge.Less(huge))
	require.True(t, ewma.ProductScore(math.MaxInt64, math.MaxInt64, 2).Less(huge))
	require.True(t, ewma.SumScore(math.MaxInt64, 1, math.MaxInt64, 1).Less(huge))
	require.Equal(t, huge, ewma.SumScore(math.MaxInt64, math.MaxInt64, math.MaxInt64, 1))
	require.Equal(t, huge, ewma.SumScore(math.MaxInt64, 3, math.MaxInt64, 1))
	require.Equal(t, huge, ewma.ProductScore(1<<62, 3, 1), "2^64")
	require.NotEqual(t, huge, ewma.ProductScore(1<<62, 2, 1))
	require.Equal(t, huge, ewma.SumScore(1<<34, 1<<31-1, 1<<33, 1), "the sum overflows, the product does not")
	// 2/3 and 4/6 are equal; 2/3 < 5/7.
	require.False(t, ewma.SumScore(2, 0, 0, 3).Less(ewma.SumScore(4, 0, 0, 6)))
	require.True(t, ewma.SumScore(2, 0, 0, 3).Less(ewma.SumScore(5, 0, 0, 7)))
	require.True(t, ewma.ProductScore(7, 1, 2).Less(ewma.ProductScore(8, 0, 1)))
}

func TestAllocations(t *testing.T) {
	c := ewma.NewCore(ewma.Config{Peak: true})
	m := ewma.NewMeter(ewma.Config{Warmup: 10})
	now := t0
	buf := make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(ms)
		c.Observe(now.UnixNano(), 5)
		c.Value(now.UnixNano() + 100)
		m.Observe(now, 5)
		m.ObserveSeconds(now, 0.5)
		m.Value(now.Add(s))
		buf = m.AppendState(buf[:0], now)
		f := c.Fresh()
		f.Observe(1, 1)
		_ = ewma.ProductScore(5, 1, 1).Less(ewma.SumScore(3, 1, 1, 1))
	}))
}
