package breaker

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// The vectors freeze the draws: a recording made by one release must replay in
// the next.
func TestDrawVectors(t *testing.T) {
	for _, v := range []struct{ x, want uint64 }{
		{0, 0},
		{1, 0x5692161d100b05e5},
		{0xdeadbeef, 0x4e062702ec929eea},
		{math.MaxUint64, 0xb4d055fcf2cbbd7b},
	} {
		require.Equal(t, v.want, mix(v.x), "mix(%#x)", v.x)
	}
	for _, v := range []struct{ seed, stream, n, want uint64 }{
		{0, 0, 0, 0x33fe8bd4f9c57863},
		{0, 1, 0, 0xc8cad0da637712f0},
		{1, 1, 0, 0x11f7a1077d3c7c89},
		{1, 1, 1, 0xa0c5603022666c7f},
		{7, 2, 3, 0x571f12ae61a1e1a6},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, 0xf8b2085b47e6d3af},
	} {
		require.Equal(t, v.want, draw(v.seed, v.stream, v.n), "draw(%d, %d, %d) = %#x", v.seed, v.stream, v.n, draw(v.seed, v.stream, v.n))
	}
}

func TestRatioIsTheFractionMeant(t *testing.T) {
	gcd := func(a, b uint64) uint64 {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	check := func(n, d uint64) {
		g := gcd(n, d)
		require.Equal(t, ratio{n / g, d / g}, ratioOf(float64(n)/float64(d)), "%d/%d", n, d)
	}
	for d := uint64(1); d <= 300; d++ {
		for n := uint64(1); n <= 3*d; n++ {
			check(n, d)
		}
	}
	for _, f := range [][2]uint64{
		{1, 1000}, {1, 1000000}, {999999, 1000000}, {495, 1000}, {999983, 999979}, {123456, 654321},
		{1000, 1}, {999999, 1000}, {314159, 100000},
	} {
		check(f[0], f[1])
	}
	// A number that is no short fraction comes out as one that is very near.
	for _, f := range []float64{math.Pi / 4, math.Sqrt2 / 2, 0.1234567890123, 1e-6 * math.E, 999.0000001} {
		r := ratioOf(f)
		require.InEpsilon(t, f, float64(r.num)/float64(r.den), 1e-9)
		require.LessOrEqual(t, r.den, uint64(1<<31))
	}
}

func TestRatioComparesExactly(t *testing.T) {
	const huge = math.MaxUint64
	for _, c := range []struct {
		r           ratio
		part, total uint64
		want        bool
	}{
		{ratio{1, 2}, 198, 400, false}, // 0.495 is not 0.50
		{ratio{1, 2}, 199, 400, false},
		{ratio{1, 2}, 200, 400, true},
		{ratio{1, 1000}, 4, 1000, true}, // 0.004 is more than 0.001
		{ratio{1, 1000}, 1, 1001, false},
		{ratio{1, 3}, 1, 3, true},
		{ratio{2, 3}, 2, 3, true},
		{ratio{1, 1}, huge - 1, huge, false},
		{ratio{1, 1}, huge, huge, true},
		{ratio{1, 2}, huge / 2, huge, false},
		{ratio{1, 2}, huge/2 + 1, huge, true},
	} {
		require.Equal(t, c.want, c.r.reached(c.part, c.total), "%+v", c)
	}
}

func TestRatioScalesRoundingDown(t *testing.T) {
	for _, r := range []ratio{{1, 1}, {1, 2}, {2, 3}, {3, 2}, {1000, 1}, {999999, 1000}} {
		for _, x := range []int64{0, 1, 2, 3, 1000, 1 << 40, math.MaxInt64 / 2, math.MaxInt64} {
			want := new(big.Int).Mul(big.NewInt(x), new(big.Int).SetUint64(r.num))
			want.Quo(want, new(big.Int).SetUint64(r.den))
			if !want.IsInt64() {
				want.SetInt64(math.MaxInt64)
			}
			require.Equal(t, want.Int64(), r.of(x), "%d * %v", x, r)
		}
	}
	require.EqualValues(t, int64(math.MaxInt64), ratio{math.MaxUint64, 1}.of(math.MaxInt64))
}

func TestSaturatingTime(t *testing.T) {
	edge := []int64{math.MinInt64, math.MinInt64 + 1, -2, -1, 0, 1, 2, math.MaxInt64 - 1, math.MaxInt64}
	clip := func(x *big.Int) int64 {
		switch {
		case x.IsInt64():
			return x.Int64()
		case x.Sign() < 0:
			return math.MinInt64
		}
		return math.MaxInt64
	}
	for _, a := range edge {
		for _, b := range edge {
			require.Equal(t, clip(new(big.Int).Sub(big.NewInt(a), big.NewInt(b))), sub(a, b), "%d - %d", a, b)
			if b < 0 {
				continue
			}
			want := clip(new(big.Int).Add(big.NewInt(a), big.NewInt(b)))
			if b == math.MaxInt64 {
				want = math.MaxInt64 // for ever
			}
			require.Equal(t, want, deadline(a, b), "%d + %d", a, b)
		}
	}
}

// The rate window near the ends of time must neither wrap nor panic.
func TestRatesAtTheEndsOfTime(t *testing.T) {
	for _, width := range []int64{1, 10, math.MaxInt64/10 + 1, math.MaxInt64} {
		var r rates
		for i, now := range []int64{math.MinInt64, -1, 0, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64} {
			require.LessOrEqual(t, r.at(now, width).calls, uint64(i))
			r.add(now, width, true, true)
			sum := r.at(now, width)
			require.Equal(t, r.sum, sum)
			require.Positive(t, sum.calls)
		}
	}
}

func TestQueueDropsTheOldest(t *testing.T) {
	var q queue
	dropped := 0
	for i := range int64(3 * maxQueued) {
		if q.push(Change{At: i}) {
			dropped++
		}
		require.LessOrEqual(t, cap(q.buf), 3*maxQueued)
	}
	require.Equal(t, 2*maxQueued, dropped)
	for i := range int64(maxQueued) {
		ch, ok := q.pop()
		require.True(t, ok)
		require.Equal(t, 2*maxQueued+i, ch.At)
	}
	_, ok := q.pop()
	require.False(t, ok)
}

// At the end of time the last slice never ends, and so loses nothing.
func TestRatesStayAtTheEndOfTime(t *testing.T) {
	var r rates
	for i := range uint64(3 * slices) {
		r.add(math.MaxInt64, 1, true, false)
		require.Equal(t, i+1, r.at(math.MaxInt64, 1).calls)
	}
}

func TestOpenForEverHasNoJitter(t *testing.T) {
	s := Config{OpenFor: math.MaxInt64, OpenJitter: 0.5}.compile()
	require.EqualValues(t, int64(math.MaxInt64), s.openLength(1, 1, 0))
}

// Trials out of order would break the rule that the oldest lease ends first.
func TestRestoreRefusesTrialsOutOfOrder(t *testing.T) {
	for _, bad := range [][]trial{{{1, 20}, {2, 10}}, {{1, 20}, {1, 20}}, {{0, 20}}} {
		c := NewCore(Config{Trials: 2}, 0)
		c.Force(0, Open)
		c.Force(0, HalfOpen)
		saved := c.AppendState(nil, 0)
		_, err := c.RestoreState(saved, 0)
		require.NoError(t, err)
		c.x.trials = bad
		_, err = c.RestoreState(c.AppendState(nil, 0), 0)
		require.ErrorIs(t, err, ErrState)
	}
}

// The numbers of eras and trials skip 0 when they wrap: 0 is the zero Ticket.
func TestNumbersWrap(t *testing.T) {
	c := NewCore(Config{ConsecutiveFailures: 1, OpenFor: 1, Passes: 2}, 0)
	c.era = math.MaxUint32
	tk, _ := c.Allow(0)
	require.True(t, c.Done(0, tk, false))
	require.EqualValues(t, 1, c.era)
	require.False(t, c.Done(0, Ticket{}, false))
	c.Poll(1)
	c.x.seq = math.MaxUint32
	tk, why := c.Allow(1)
	require.Equal(t, Admitted, why)
	require.True(t, tk.Trial())
	require.True(t, c.Done(1, tk, true))
	require.False(t, c.Done(1, tk, true))
}
