package sim_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// A share with a few digits has the rank that it has on paper, although neither it
// nor its product with the count is a float.
func TestRank(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 7, 60, 99, 100, 101, 1000, 12_345, 100_000, 1_000_000} {
		for _, of := range []uint64{1, 2, 4, 10, 100, 1000, 10_000} {
			for part := uint64(0); part <= of; part++ {
				want := max(1, (part*n+of-1)/of)
				if got := sim.RankOf(float64(part)/float64(of), n); got != want {
					t.Fatalf("%d/%d of %d is the rank %d, want %d", part, of, n, got, want)
				}
			}
		}
	}
	// At a count for which a float has not enough places, and beyond both ends.
	require.Equal(t, uint64(math.MaxUint64), sim.RankOf(1, math.MaxUint64))
	require.Equal(t, uint64(1), sim.RankOf(math.NaN(), 10))
	require.Equal(t, uint64(1), sim.RankOf(-1, 10))
	require.Equal(t, uint64(10), sim.RankOf(7, 10))
	require.Equal(t, uint64(1), sim.RankOf(1e-300, 10))
	// A real excess counts.
	require.Equal(t, uint64(8), sim.RankOf(.07+1e-14, 100))
	for _, n := range []uint64{1, 3, 1<<53 - 1, 1<<53 + 1, 1<<53 + 3, 1<<62 + 1, math.MaxUint64} {
		require.LessOrEqual(t, sim.RankOf(math.Nextafter(1, 0), n), n)
		require.Equal(t, uint64(1), sim.RankOf(math.SmallestNonzeroFloat64, n))
	}
}

// One to a hundred: the quantile is the number itself.
func TestQuantileOfPercents(t *testing.T) {
	var h sim.Histogram
	for i := range 100 {
		h.Add(time.Duration(i + 1))
	}
	for i := 1; i <= 100; i++ {
		require.Equal(t, time.Duration(i), h.Quantile(float64(i)/100))
	}
	require.Equal(t, time.Duration(1), h.Quantile(0))
}

// A quantile is never beyond the greatest value or below the least, however wide
// their bucket is.
func TestQuantileWithinBounds(t *testing.T) {
	var h sim.Histogram
	h.Add(1_000_003)
	require.Equal(t, h.Max(), h.Quantile(1))
	require.Equal(t, h.Min(), h.Quantile(0))
	h.Add(1_000_001)
	require.Equal(t, h.Max(), h.Quantile(1))
	require.GreaterOrEqual(t, h.Quantile(0), h.Min())
}

func TestSum(t *testing.T) {
	var s sim.Sum
	require.Equal(t, "0s", s.String())
	s = sim.Add(s, 3, int64(time.Second))
	require.Equal(t, 3*time.Second, s.Duration())
	require.Equal(t, 3.0, s.Seconds())
	require.Equal(t, "3s", s.String())
	require.Equal(t, 1500*ms, sim.Over(s, 2))
	require.Equal(t, time.Duration(1), sim.Over(sim.Sum{Lo: 3}, 2), "rounded down")

	// The carry, and the longest Duration from both sides.
	s = sim.Add(sim.Sum{Lo: math.MaxUint64}, 1, 1)
	require.Equal(t, sim.Sum{Hi: 1}, s)
	require.Equal(t, time.Duration(math.MaxInt64), s.Duration())
	require.Equal(t, "1.84467441e+10s", s.String())
	require.InEpsilon(t, 18446744073.709551616, s.Seconds(), 1e-15)
	require.Equal(t, time.Duration(math.MaxInt64), sim.Sum{Lo: math.MaxInt64}.Duration())
	require.Equal(t, time.Duration(math.MaxInt64), sim.Sum{Lo: math.MaxInt64 + 1}.Duration())
	require.Equal(t, "2562047h47m16.854775807s", sim.Sum{Lo: math.MaxInt64}.String())
	require.True(t, strings.HasSuffix(sim.Sum{Lo: math.MaxInt64 + 1}.String(), "e+09s"))

	// (2^63-1)^2 by hand: 2^126 - 2^64 + 1.
	s = sim.Add(sim.Sum{}, math.MaxInt64, math.MaxInt64)
	require.Equal(t, sim.Sum{Hi: 1<<62 - 1, Lo: 1}, s)
	require.Equal(t, time.Duration(math.MaxInt64), sim.Over(s, math.MaxInt64))
	require.Equal(t, time.Duration(3<<31), sim.Over(sim.Sum{Hi: 3}, 1<<33))
	require.Equal(t, time.Duration(math.MaxInt64), sim.Over(sim.Sum{Hi: 5}, 5))
}

// Sums that a Duration could not hold: fifty thousand requests of a second that
// wait for one worker which takes ten seconds for each.
func TestLongWaits(t *testing.T) {
	rate := 50_000.0
	if raceOn {
		rate = 20_000
	}
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: sim.Constant(10 * time.Second)}},
		Clients:  []sim.Client{{Rate: rate, Even: true}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	n := int64(r.OK)
	require.Equal(t, r.Area, r.Sojourn)
	require.Equal(t, r.Sojourn, r.Latency.Sum())
	// The k-th waits for k services, less the time until it came.
	exact := float64(n) * float64(n+1) / 2 * 10
	require.InDelta(t, exact, r.Sojourn.Seconds(), float64(n))
	require.InDelta(t, float64(n+1)/2*10, r.Latency.Mean().Seconds(), 1)
	require.Equal(t, time.Duration(n)*10*time.Second, r.Servers[0].Busy)
}

// Services of two days one after the other reach the end of time, 292 years on.
func TestEndOfTime(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: sim.Constant(48 * time.Hour)}},
		Clients:  []sim.Client{{Rate: 60_000, Even: true}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, r.Requests, r.OK)
	require.Equal(t, r.Area, r.Sojourn)
	require.Equal(t, time.Duration(math.MaxInt64), r.Elapsed)
	require.Positive(t, r.Latency.Mean())
	require.LessOrEqual(t, r.Latency.Mean(), r.Latency.Max())
}

func TestSpread(t *testing.T) {
	var none sim.Spread
	require.Zero(t, none.Mean())
	require.Equal(t, sim.Spread{Count: 3, First: 1, Last: 6, Sum: 9}, sim.Noted(2, 6, 1))
	require.Equal(t, time.Duration(3), sim.Noted(2, 6, 1).Mean())
	require.Equal(t, sim.Spread{Count: 1, First: 0, Last: 0}, sim.Noted(0))
	require.Equal(t, time.Duration(0), sim.Noted(5, 0, 5).First, "zero is a duration like any other")
	require.Equal(t, time.Duration(math.MaxInt64), sim.Noted(math.MaxInt64, math.MaxInt64).Sum)
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1004: "1µs", 1005: "1.01µs", 10_006: "10µs", 123_456: "123µs", 1_234_567: "1.23ms",
	} {
		require.Equal(t, want, sim.Short(d).String())
	}
}

// The number of draws of 32 bits that a share is, to the nearest.
func TestThreshold(t *testing.T) {
	require.Equal(t, uint64(0), sim.Threshold(0))
	require.Equal(t, uint64(4), sim.Threshold(1e-9))
	require.Equal(t, uint64(1<<31), sim.Threshold(.5))
	require.Equal(t, uint64(1<<32), sim.Threshold(1))
	require.Equal(t, uint64(1<<32-4), sim.Threshold(1-1e-9))
}

// Recovery needs somebody to have been served well.
func TestRecoveryNeedsProof(t *testing.T) {
	col := func(requests, good uint64) sim.Column { return sim.Column{Requests: requests, Good: good} }
	for _, c := range []struct {
		name  string
		cols  []sim.Column
		at    time.Duration
		least float64
		want  time.Duration // negative: never
	}{
		{"nothing after it", []sim.Column{col(9, 9), col(9, 0), {}, {}}, time.Second, .5, -1},
		{"one good one after a gap", []sim.Column{col(9, 9), col(9, 0), {}, col(1, 1)}, time.Second, .5, time.Second},
		{"good throughout", []sim.Column{col(9, 9), col(9, 9)}, 1500 * ms, .5, 0},
		{"good before, nothing after", []sim.Column{col(9, 9), {}, {}}, time.Second, .5, -1},
		{"good until just after", []sim.Column{col(9, 9), {}, {}}, 999 * ms, .5, 0},
		{"the last is bad", []sim.Column{col(9, 9), col(9, 8)}, 0, .9, -1},
		{"just enough", []sim.Column{col(9, 0), col(10, 9)}, 0, .9, time.Second},
		{"at the end", []sim.Column{col(9, 9), col(9, 9)}, 2 * time.Second, .5, -1},
		{"beyond it", []sim.Column{col(9, 9), col(9, 9)}, 50 * time.Second, .5, -1},
		{"no share at all is always reached", []sim.Column{col(9, 0)}, 0, 0, 0},
		{"no columns", nil, 0, .5, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sim.Result{Duration: time.Duration(len(c.cols)) * time.Second, Interval: time.Second, Series: c.cols}
			got, ok := r.Recovery(c.at, c.least)
			require.Equal(t, c.want >= 0, ok)
			require.Equal(t, max(0, c.want), got)
		})
	}

	// The last column may be cut short by Duration.
	r := sim.Result{Duration: 1500 * ms, Interval: time.Second, Series: []sim.Column{col(9, 9), col(9, 9)}}
	for _, at := range []time.Duration{1500 * ms, 1700 * ms} {
		_, ok := r.Recovery(at, .5)
		require.False(t, ok)
	}
	_, ok := r.Recovery(1499*ms, .5)
	require.True(t, ok)

	// Users who hang send nothing, and nothing fails.
	got := run(t, sim.Scenario{
		Duration: 20 * time.Second,
		Servers:  []sim.Server{{Workers: -1}},
		Clients:  []sim.Client{{Users: 5, Think: fixed(90)}},
		Script:   []sim.Change{{Kind: sim.BlackHole, At: 5 * time.Second, For: time.Second}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, uint64(5), got.Hung)
	_, ok = got.Recovery(6*time.Second, .99)
	require.False(t, ok)
}

func TestConstantZero(t *testing.T) {
	require.Equal(t, sim.Constant(1), sim.Constant(0), "the zero Dist is the default of its field")
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: sim.Constant(0)}},
		Clients:  []sim.Client{at(0)},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, time.Duration(1), r.Latency.Max())
}

func TestReadSamplesOverlong(t *testing.T) {
	_, err := sim.ReadSamples(strings.NewReader("1\n2\n" + strings.Repeat("9", 70_000)))
	require.ErrorContains(t, err, "sim: line 3: ")
}

// The summary, line by line; of a large fleet it has the first twenty servers.
func TestString(t *testing.T) {
	var h sim.Histogram
	h.Add(10_006)
	r := sim.Result{
		Counts:  sim.Counts{Requests: 9, OK: 6, Good: 5, Failed: 2, Hung: 1, Attempts: 12, Retries: 3, Timeouts: 4, Wasted: 2},
		Latency: h,
		Servers: []sim.ServerResult{
			{ID: "a", Attempts: 9, Failures: 1, LongestQueue: 7, Ejections: 2, Trips: 3},
			{ID: "b", Attempts: 3, Probes: 5, ProbeFailures: 4},
		},
		Changes: []sim.ChangeResult{
			{Kind: sim.Surge, At: time.Second},
			{
				Kind: sim.Down, At: 2 * time.Second, Servers: 2,
				Ejected: sim.Noted(3*ms, 1_234_567), Unhealthy: sim.Noted(5 * ms), FirstSuccess: sim.Noted(7*ms, 9*ms),
			},
		},
	}
	require.Equal(t, `requests 9  ok 6 (66.667 %)  good 5  failed 2  hung 1
attempts 12 (x1.333)  retries 3  timeouts 4  wasted 2
latency  mean 10µs  p50 10µs  p99 10µs  p99.9 10µs  max 10µs
a        attempts 9 (75.00 %)  failures 1  longest queue 7  ejections 2  trips 3
b        attempts 3 (25.00 %)  failures 0  longest queue 0  ejections 0  trips 0  probes 5, 4 failed
surge at 1s
down at 2s  taken out 2 times, first after 1.23ms  found unhealthy 1 times, first after 5ms  2 of 2 served again, the last after 9ms
`, r.String())

	for n, last := range map[int]string{24: "attempts", 25: "... and 5 more servers"} {
		r := sim.Result{Servers: make([]sim.ServerResult, n)}
		lines := strings.Split(strings.TrimSpace(r.String()), "\n")
		require.Contains(t, lines[len(lines)-1], last)
		require.Len(t, lines, map[int]int{24: 27, 25: 24}[n])
	}
}

// Rates are of the measured part; of nothing they are 0.
func TestRatios(t *testing.T) {
	r := sim.Result{Duration: 3 * time.Second, WarmUp: time.Second, Counts: sim.Counts{Requests: 10, OK: 8, Good: 5, Attempts: 15}}
	require.Equal(t, 2.5, r.Goodput())
	require.Equal(t, 1.5, r.Amplification())
	require.Equal(t, .8, r.OKShare())
	require.Equal(t, .5, r.GoodShare())
	r = sim.Result{Duration: time.Second, WarmUp: time.Second}
	require.Zero(t, r.Goodput())
	require.Zero(t, r.Amplification())
	require.Zero(t, r.OKShare())
	require.Zero(t, r.GoodShare())
}
