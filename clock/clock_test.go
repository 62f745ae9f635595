package clock_test

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/clock"
)

// *time.Timer is a Timer.
var _ clock.Timer = (*time.Timer)(nil)

var (
	t0     = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	epoch  = time.Unix(0, 0).UTC()
	latest = time.Unix(0, math.MaxInt64).UTC()
	first  = time.Unix(0, math.MinInt64).UTC()
)

const s = time.Second

func TestRows(t *testing.T) {
	t.Run("E-CL-02", func(t *testing.T) {
		var m clock.Manual
		m.Set(time.Unix(0, 42))
		require.Equal(t, time.Unix(0, 42).UTC(), m.Now())
		m.Advance(math.MaxInt64)
		require.Equal(t, latest, m.Now())
		m.Advance(s)
		require.Equal(t, latest, m.Now())

		// The adapters of the row are TestAdapt; production is TestSystem.
		require.True(t, clock.IsSystem(clock.System()))
		require.False(t, clock.IsSystem(&m))
		require.False(t, clock.IsSystem(nil))
	})
}

func TestTraps(t *testing.T) {
	t.Run("A-CK-01", func(t *testing.T) {
		m := clock.NewManual(t0)
		ran := 0
		long := m.AfterFunc(20*s, func() { t.Error("the stopped timer ran") })
		var again clock.Timer
		again = m.AfterFunc(10*s, func() {
			ran++
			require.Equal(t, t0.Add(time.Duration(ran)*10*s), m.Now())
			if ran == 1 {
				require.True(t, long.Stop())
			}
			require.False(t, again.Reset(10*s))
			m.AfterFunc(100*s, nil).Stop()
			_, ok := m.Next()
			require.True(t, ok)
			require.Equal(t, 1, m.Pending())
		})
		m.Advance(15 * s)
		m.Advance(15 * s)
		require.Equal(t, 3, ran)
		require.Equal(t, t0.Add(30*s), m.Now())
	})

	t.Run("A-CK-02", func(t *testing.T) {
		m := clock.NewManual(t0)
		var armed, stopped, fired atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 1000 {
					m.Advance(s)
				}
			})
			wg.Go(func() {
				count := func() { fired.Add(1) }
				var timers []clock.Timer
				for i := range 1000 {
					switch {
					case i%3 == 0 || len(timers) == 0:
						timers = append(timers, m.AfterFunc(time.Duration(i%7)*s, count))
						armed.Add(1)
					case i%3 == 1:
						if timers[i%len(timers)].Reset(time.Duration(i%5) * s) {
							stopped.Add(1)
						}
						armed.Add(1)
					default:
						if timers[i%len(timers)].Stop() {
							stopped.Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, t0.Add(8000*s), m.Now(), "overlapping advances add up")
		m.Advance(10 * s)
		require.Zero(t, m.Pending())
		require.Equal(t, armed.Load()-stopped.Load(), fired.Load())
	})

	t.Run("A-CK-03", func(t *testing.T) {
		m := clock.NewManual(t0)
		var seen []time.Duration
		look := func() { seen = append(seen, m.Now().Sub(t0)) }
		m.AfterFunc(3*s, func() { look(); m.AfterFunc(2*s, look) })
		m.AfterFunc(7*s, look)
		m.Advance(10 * s)
		require.Equal(t, []time.Duration{3 * s, 5 * s, 7 * s}, seen)
		require.Equal(t, t0.Add(10*s), m.Now())
	})

	t.Run("A-CK-04", func(t *testing.T) {
		m := clock.NewManual(t0)
		m.AfterFunc(math.MaxInt64, func() { t.Error("a maximal delay wrapped") })
		ran := 0
		m.AfterFunc(math.MinInt64, func() { ran++ })
		m.Advance(math.MinInt64)
		require.Equal(t, t0, m.Now(), "negative is no progress")
		require.Equal(t, 1, ran)
		m.Advance(math.MaxInt64)
		m.Advance(math.MaxInt64)
		require.Equal(t, latest, m.Now())
		require.Equal(t, 1, m.Pending(), "due after the end of time")
		_, ok := m.Next()
		require.False(t, ok)
		require.False(t, m.Step())
	})
}

func TestManualZero(t *testing.T) {
	var m clock.Manual
	require.Equal(t, epoch, m.Now())
	ran := false
	m.AfterFunc(s, func() { ran = true })
	m.Advance(s)
	require.True(t, ran)
	require.Equal(t, epoch, clock.NewManual(time.Time{}).Now())
}

func TestManualStartIsClamped(t *testing.T) {
	require.Equal(t, first, clock.NewManual(time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)).Now())
	require.Equal(t, latest, clock.NewManual(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)).Now())

	// The whole range is longer than a Duration.
	m := clock.NewManual(first)
	var at []time.Time
	m.AfterFunc(math.MaxInt64, func() {
		at = append(at, m.Now())
		m.AfterFunc(math.MaxInt64, func() { at = append(at, m.Now()) })
	})
	m.AdvanceTo(latest)
	require.Equal(t, []time.Time{time.Unix(0, -1).UTC(), latest.Add(-1)}, at)
	require.Equal(t, latest, m.Now())
}

func TestManualKeepsLocation(t *testing.T) {
	zone := time.FixedZone("UTC+5", 5*3600)
	m := clock.NewManual(t0.In(zone))
	m.AfterFunc(s, nil)
	next, ok := m.Next()
	require.True(t, ok)
	require.Equal(t, t0.Add(s).In(zone), next)
	m.Set(epoch)
	require.Equal(t, epoch.In(zone), m.Now())
}

// Functions due together run in the order of arming, and Reset arms anew.
func TestManualTies(t *testing.T) {
	m := clock.NewManual(t0)
	var order []string
	add := func(name string) func() { return func() { order = append(order, name) } }
	a := m.AfterFunc(s, add("a"))
	m.AfterFunc(s, add("b"))
	m.AfterFunc(s, func() {
		add("c")()
		m.AfterFunc(0, add("armed in c"))
	})
	m.AfterFunc(s, add("d"))
	require.True(t, a.Reset(s))
	m.Advance(s - 1)
	require.Empty(t, order)
	m.Advance(1)
	require.Equal(t, []string{"b", "c", "d", "a", "armed in c"}, order)
}

func TestManualStopAndReset(t *testing.T) {
	m := clock.NewManual(t0)
	ran := 0
	tm := m.AfterFunc(s, func() { ran++ })
	require.True(t, tm.Stop())
	require.False(t, tm.Stop())
	m.Advance(2 * s)
	require.Zero(t, ran)
	require.False(t, tm.Reset(s))
	require.True(t, tm.Reset(2*s))
	m.Advance(s)
	require.Zero(t, ran)
	m.Advance(s)
	require.Equal(t, 1, ran)
	require.False(t, tm.Stop(), "it has run")
	require.False(t, tm.Reset(0))
	m.Advance(0)
	require.Equal(t, 2, ran, "Advance(0) runs what is due")
}

func TestManualStep(t *testing.T) {
	m := clock.NewManual(t0)
	require.False(t, m.Step())
	var at []time.Duration
	look := func() { at = append(at, m.Now().Sub(t0)) }
	m.AfterFunc(5*s, look)
	m.AfterFunc(5*s, look)
	m.AfterFunc(2*s, func() {
		look()
		require.False(t, m.Step(), "a movement is under way")
	})
	require.True(t, m.Step())
	require.Equal(t, []time.Duration{2 * s}, at)
	require.True(t, m.Step())
	require.Equal(t, []time.Duration{2 * s, 5 * s, 5 * s}, at)
	require.False(t, m.Step())
	require.Equal(t, t0.Add(5*s), m.Now())
}

func TestManualAdvanceTo(t *testing.T) {
	m := clock.NewManual(t0)
	ran := 0
	m.AfterFunc(s, func() { ran++ })
	m.AdvanceTo(t0.Add(-s))
	require.Equal(t, t0, m.Now())
	m.AdvanceTo(t0.Add(s))
	require.Equal(t, 1, ran)
	m.AdvanceTo(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	require.Equal(t, latest, m.Now())
}

// A function that moves the clock extends the movement that runs it.
func TestManualNestedMovement(t *testing.T) {
	m := clock.NewManual(t0)
	var at []time.Duration
	look := func() { at = append(at, m.Now().Sub(t0)) }
	m.AfterFunc(1*s, func() {
		m.Advance(5 * s)
		m.Advance(-5 * s)
		look()
	})
	m.AfterFunc(2*s, func() {
		m.AdvanceTo(t0.Add(16 * s))
		m.AdvanceTo(t0.Add(3 * s))
		look()
	})
	m.AfterFunc(15*s, look)
	m.AfterFunc(17*s, func() { t.Error("not reached") })
	m.Advance(10 * s)
	require.Equal(t, []time.Duration{1 * s, 2 * s, 15 * s}, at)
	require.Equal(t, t0.Add(16*s), m.Now())
}

// Set changes what the clock reads, not how long timers have left.
func TestManualSet(t *testing.T) {
	for _, to := range []time.Time{t0.Add(-time.Hour), t0.Add(time.Hour), epoch, first} {
		m := clock.NewManual(t0)
		ran := 0
		m.AfterFunc(10*s, func() {
			ran++
			require.Equal(t, to.Add(6*s), m.Now())
		})
		m.Advance(4 * s)
		m.Set(to)
		require.Zero(t, ran)
		require.Equal(t, to, m.Now())
		next, ok := m.Next()
		require.True(t, ok)
		require.Equal(t, to.Add(6*s), next)
		m.Advance(6*s - 1)
		require.Zero(t, ran)
		m.Advance(1)
		require.Equal(t, 1, ran)
	}
}

// A step of the clock in the middle of a movement leaves the movement its rest.
func TestManualSetInMovement(t *testing.T) {
	m := clock.NewManual(t0)
	ran := false
	m.AfterFunc(4*s, func() { m.Set(epoch) })
	m.AfterFunc(9*s, func() { ran = true })
	m.Advance(10 * s)
	require.True(t, ran)
	require.Equal(t, epoch.Add(6*s), m.Now())

	m.AfterFunc(s, func() { m.Set(latest.Add(-s)) })
	m.AfterFunc(4*s, func() { t.Error("after the end of time") })
	m.Advance(10 * s)
	require.Equal(t, latest, m.Now())
	require.Equal(t, 1, m.Pending())
}

func TestManualPanicEndsMovement(t *testing.T) {
	m := clock.NewManual(t0)
	ran := false
	m.AfterFunc(2*s, func() {
		m.Advance(20 * s)
		panic("boom")
	})
	m.AfterFunc(3*s, func() { ran = true })
	require.PanicsWithValue(t, "boom", func() { m.Advance(10 * s) })
	require.Equal(t, t0.Add(2*s), m.Now())
	require.Equal(t, 1, m.Pending())
	m.Advance(s)
	require.True(t, ran)
	require.Equal(t, t0.Add(3*s), m.Now())
}

func TestManualGoexitEndsMovement(t *testing.T) {
	m := clock.NewManual(t0)
	m.AfterFunc(2*s, runtime.Goexit) // as testing.T.FailNow does
	var wg sync.WaitGroup
	wg.Go(func() { m.Advance(10 * s) })
	wg.Wait()
	require.Equal(t, t0.Add(2*s), m.Now())
	m.Advance(s)
	require.Equal(t, t0.Add(3*s), m.Now())
}

func TestNilFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := clock.NewManual(t0)
		m.AfterFunc(0, nil)
		m.Advance(0)
		clock.System().AfterFunc(0, nil)
		clock.Adapt(foreign[*time.Timer]{arm: time.AfterFunc}).AfterFunc(0, nil)
		synctest.Wait()
	})
}

// Under synctest, real time is simulated, and System follows it.
func TestSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		// Not part of the interfaces: an owner that only measures may ask for it.
		since, ok := c.(interface{ Since(time.Time) time.Duration })
		require.True(t, ok)
		start := time.Now()
		for _, d := range []time.Duration{0, 1, s - 1, s, 3 * s, time.Hour, 1} {
			time.Sleep(d)
			require.True(t, time.Now().Equal(c.Now()))
			require.Equal(t, time.Since(start), c.Now().Sub(start))
			require.Equal(t, time.Since(start), since.Since(start))
		}
		var at time.Time
		c.AfterFunc(5*s, func() { at = c.Now() })
		stopped := c.AfterFunc(5*s, func() { t.Error("stopped timer ran") })
		require.True(t, stopped.Stop())
		from := c.Now()
		time.Sleep(6 * s)
		synctest.Wait()
		require.Equal(t, 5*s, at.Sub(from))
	})
}

// The readings of System are monotonic and lie between those of package time.
func TestSystemBetweenReadings(t *testing.T) {
	c := clock.System()
	last := c.Now()
	for range 1000 {
		before := time.Now()
		now := c.Now()
		after := time.Now()
		require.GreaterOrEqual(t, now.Sub(before), time.Duration(0))
		require.GreaterOrEqual(t, after.Sub(now), time.Duration(0))
		require.GreaterOrEqual(t, now.Sub(last), time.Duration(0))
		require.Contains(t, now.String(), " m=", "has a monotonic reading")
		last = now
	}
}

func TestAllocations(t *testing.T) {
	var c clock.Clock = clock.System()
	var m clock.Manual
	tm := m.AfterFunc(s, nil)
	var sink time.Time
	require.Zero(t, testing.AllocsPerRun(100, func() { sink = c.Now() }))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.Advance(s)
		sink = m.Now()
		tm.Reset(s)
		m.Step()
	}))
	_ = sink
}
