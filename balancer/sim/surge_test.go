package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// served is a server that takes any number of requests, a millisecond each.
func served(c sim.Client) sim.Scenario {
	return sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Workers: -1, Service: fixed(1)}},
		Clients:  []sim.Client{c},
		Pool:     bare(balancer.RoundRobin{}),
	}
}

// An even load has the rate that a Surge asks for, from its first instant to its
// last, whatever the factor.
func TestSurgeFactor(t *testing.T) {
	for _, factor := range []float64{0, math.SmallestNonzeroFloat64, 1e-9, 1e-3, .3, 1, 3, 7.7, 1000, 10_000, 40_000, 65_537, 1e6} {
		t.Run(fmt.Sprint(factor), func(t *testing.T) {
			rate := .02
			if factor == 0 {
				rate = 1000
			}
			s := served(sim.Client{Rate: rate, Even: true})
			s.Duration = 2 * time.Second
			s.Script = []sim.Change{{Kind: sim.Surge, Factor: factor, At: 500 * ms, For: time.Second}}
			m, err := sim.NewMachine(s)
			require.NoError(t, err)
			for n := 0; m.Step(); n++ {
				require.Less(t, n, 100_000, "no end")
			}
			if factor == 0 {
				factor = 10 // the default
			}
			require.InDelta(t, rate*factor+rate, float64(m.Result().Requests), 1)
		})
	}
}

// A load is even in the measure of time that runs as fast as the load: the number
// of arrivals up to any instant is what has passed of that, up to one.
func TestSurgeIsExact(t *testing.T) {
	for _, c := range []struct {
		rate     float64
		factor   float64
		from, to time.Duration
	}{
		{100, .001, time.Second, 2 * time.Second},
		{100, .001, time.Second, 20 * time.Second},
		{1, 100, 10 * time.Second, 10*time.Second + 900*ms},
		{1, 1e-9, 500 * ms, 25 * time.Second},
		{7, 3, 3*time.Second + 1, 4 * time.Second},
		{.01, 300, 29 * time.Second, 30 * time.Second},
		{1, 20, 0, 5 * time.Second},
		{20, .01, 0, 5 * time.Second},
	} {
		s := served(sim.Client{Rate: c.rate, Even: true, Count: 3})
		s.Duration = 30 * time.Second
		s.Script = []sim.Change{{Kind: sim.Surge, Factor: c.factor, At: c.from, For: c.to - c.from}}
		_, all := watch(t, s)
		passed := func(now time.Duration) float64 {
			in := min(max(now-c.from, 0), c.to-c.from).Seconds()
			return c.rate * (now.Seconds() + in*(c.factor-1))
		}
		var seen [3]float64
		for _, a := range all {
			seen[a.Client]++
			// The first comes at a random point of the first gap.
			require.InDelta(t, passed(a.Begun)+.5, seen[a.Client], .5+1e-6, "%+v: client %d at %v", c, a.Client, a.Begun)
		}
		for _, n := range seen {
			require.InDelta(t, passed(s.Duration), n, 1, "%+v", c)
		}
	}
}

// What a Surge of a Poisson load leaves untouched is the draws: with the time of
// each arrival in that measure the surge is gone.
func TestSurgeOfPoisson(t *testing.T) {
	s := served(sim.Client{Rate: 50, Count: 4})
	s.Duration = 20 * time.Second
	_, want := watch(t, s)
	s.Script = []sim.Change{
		{Kind: sim.Surge, Factor: .01, At: 2 * time.Second, For: 5 * time.Second},
		{Kind: sim.Surge, Factor: 4, At: 6 * time.Second, For: 3 * time.Second},
	}
	_, got := watch(t, s)
	measure := func(now time.Duration) (out time.Duration) {
		for _, p := range []struct {
			from, to time.Duration
			factor   float64
		}{{0, 2, 1}, {2, 6, .01}, {6, 9, 4}, {9, 20, 1}} {
			from, to := p.from*time.Second, p.to*time.Second
			out += time.Duration(p.factor * float64(min(max(now-from, 0), to-from)))
		}
		return out
	}
	byClient := func(all []sim.Attempt, of func(time.Duration) time.Duration) (out [4][]time.Duration) {
		for _, a := range all {
			out[a.Client] = append(out[a.Client], of(a.Begun))
		}
		return out
	}
	plain, surged := byClient(want, func(d time.Duration) time.Duration { return d }), byClient(got, measure)
	for c := range plain {
		require.Greater(t, len(surged[c]), 800)
		require.Greater(t, len(surged[c]), len(plain[c]))
		for i := range plain[c] {
			// A lull of 0.01 rounds by a hundredth of a nanosecond's worth.
			require.InDelta(t, float64(plain[c][i]), float64(surged[c][i]), 100, "client %d, arrival %d", c, i)
		}
	}
}

// A load of more than one request a nanosecond still goes on.
func TestSurgeBeyondTheClock(t *testing.T) {
	s := served(sim.Client{Rate: 1e9, Even: true})
	s.Duration = 3
	s.Interval = 1
	s.Script = []sim.Change{{Kind: sim.Surge, Factor: 1000}}
	require.InDelta(t, 3000, float64(run(t, s).Requests), 60)
	s.Clients[0].Even = false
	require.InDelta(t, 3000, float64(run(t, s).Requests), 6*55+60)
}

// A surge that changes while the last requests end brings no others.
func TestSurgeAfterTheEnd(t *testing.T) {
	s := served(sim.Client{Rate: .001, Even: true})
	s.Duration = time.Hour
	s.Servers = []sim.Server{{Service: sim.Constant(47 * time.Hour)}}
	want := run(t, s)
	// Beyond 78 hours there is no room for the binary places of an arrival.
	for from, to := range map[time.Duration]time.Duration{1: 2, 2: 49, 40: 78, 47: 90} {
		from, to = from*time.Hour, to*time.Hour+30*time.Minute
		s.Script = []sim.Change{{Kind: sim.Surge, At: from, For: to - from, Factor: 1e6}}
		r := run(t, s)
		require.Equal(t, want.Counts, r.Counts)
		require.Equal(t, want.Elapsed, r.Elapsed)
	}
}

// At the lowest rate, the next arrival may be years away, which is beyond the end
// and not before the last one.
func TestLowestRate(t *testing.T) {
	requests := 0
	for seed := range uint64(300) {
		s := served(sim.Client{Rate: 1e-5})
		s.Seed, s.Duration, s.Interval = seed, 48*time.Hour, time.Hour
		last := time.Duration(-1)
		_, err := sim.Watch(s, func(a sim.Attempt) {
			require.GreaterOrEqual(t, a.Begun, last, "seed %d", seed)
			last = a.Begun
			requests++
		})
		require.NoError(t, err)
	}
	// 300 runs of 1.728 requests each, which is a Poisson number.
	require.InDelta(t, 300*1.728, float64(requests), 6*math.Sqrt(300*1.728))
}
