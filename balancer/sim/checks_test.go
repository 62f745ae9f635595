package sim_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/preset"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// turns runs a scenario and lists when its health bits turned, of which server,
// which way and why.
func turns(t testing.TB, s sim.Scenario) (r sim.Result, all []sim.Attempt, list string) {
	t.Helper()
	var out []string
	s.Pool.OnEvent = func(ev balancer.Event) {
		switch ev.Kind {
		case balancer.UpstreamHealthy:
			out = append(out, fmt.Sprintf("%v %s up: %s", ev.At.Sub(time.Unix(0, 0)), ev.Upstream, ev.Rule))
		case balancer.UpstreamUnhealthy:
			out = append(out, fmt.Sprintf("%v %s down: %s", ev.At.Sub(time.Unix(0, 0)), ev.Upstream, ev.Rule))
		}
	}
	r, all = watch(t, s)
	return r, all, strings.Join(out, ", ")
}

// quick probes every 100 ms for 50 ms, from a start in health; two answers turn
// the verdict.
func quick(deep bool) *sim.Checks {
	return &sim.Checks{Deep: deep, Probe: health.Config{Interval: 100 * ms, Timeout: 50 * ms, Fall: 2, StartHealthy: true}}
}

// checked is a client that sends one request at a time at which nothing happens
// any more, so that the checks are alone.
func checked(c *sim.Checks) sim.Client {
	client := at(900)
	client.Checks = c
	return client
}

// What probes make of each kind of change, worked out by hand: probes at 0, 100,
// ... ms, service 10 ms, the change from 150 ms to 350 ms, so that it meets those
// at 200 and 300.
func TestChecksAndScript(t *testing.T) {
	const back = ", 510ms s up: probe passed"
	for _, c := range []struct {
		name          string
		change        sim.Change
		shallow, deep string
		outs          [2]int // verdicts before the change has ended
	}{
		// Services of 100 ms: the second probe follows the first one on the worker.
		{"brownout", sim.Change{Kind: sim.Brownout}, "", "350ms s down: probe timed_out" + back, [2]int{}},
		{"errors", sim.Change{Kind: sim.Errors}, "", "310ms s down: probe failed" + back, [2]int{0, 1}},
		{"sinkhole", sim.Change{Kind: sim.Sinkhole}, "", "300.5ms s down: probe failed" + back, [2]int{0, 1}},
		{"refusals", sim.Change{Kind: sim.Refusals}, "300.5ms s down: probe failed, 501ms s up: probe passed",
			"300.5ms s down: probe failed" + back, [2]int{1, 1}},
		{"black hole", sim.Change{Kind: sim.BlackHole}, "350ms s down: probe timed_out, 501ms s up: probe passed",
			"350ms s down: probe timed_out" + back, [2]int{}},
		// 40 and 13 ms.
		{"cold start", sim.Change{Kind: sim.ColdStart}, "", "", [2]int{}},
		{"down", sim.Change{Kind: sim.Down}, "300.5ms s down: probe failed, 501ms s up: probe passed",
			"300.5ms s down: probe failed" + back, [2]int{1, 1}},
		// Down from 150 to 210 and from 270 to 330.
		{"flapping", sim.Change{Kind: sim.Flapping, Every: 120 * ms}, "300.5ms s down: probe failed, 501ms s up: probe passed",
			"300.5ms s down: probe failed" + back, [2]int{1, 1}},
		// Down from 150 to 170, 190 to 210 and so on: at 200, not at 300.
		{"flapping fast", sim.Change{Kind: sim.Flapping, Every: 40 * ms, For: 100 * ms}, "", "", [2]int{}},
		{"stall", sim.Change{Kind: sim.Stall}, "350ms s down: probe timed_out, 501ms s up: probe passed",
			"350ms s down: probe timed_out" + back, [2]int{}},
		{"surge", sim.Change{Kind: sim.Surge}, "", "", [2]int{}},
	} {
		for i, deep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deep %v", c.name, deep), func(t *testing.T) {
				change := c.change
				change.At = 150 * ms
				if change.For == 0 {
					change.For = 200 * ms
				}
				r, _, got := turns(t, sim.Scenario{
					Duration: time.Second,
					Servers:  []sim.Server{{Service: fixed(10)}},
					Clients:  []sim.Client{checked(quick(deep))},
					Script:   []sim.Change{change},
					Pool:     bare(balancer.RoundRobin{}),
				})
				want := c.shallow
				if deep {
					want = c.deep
				}
				require.Equal(t, want, got)
				require.Equal(t, c.outs[i], r.Changes[0].Unhealthy.Count)
				require.EqualValues(t, 1, r.OK)
				require.EqualValues(t, 1, r.Attempts)
				require.EqualValues(t, 1, r.Total.Attempts)
				require.Zero(t, r.Total.Wasted+r.Total.Timeouts)
				require.EqualValues(t, 10, r.Servers[0].Probes, "at 0 to 900 ms")
			})
		}
	}
}

// Where the verdict begins, the Pool begins.
func TestChecksStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		checks sim.Checks
		turns  string
		ok     uint64 // of the requests at 0, 50 and 74 ms
	}{
		{"the zero Checks", sim.Checks{}, "1ms s up: probe passed", 2},
		{"healthy", sim.Checks{Probe: health.Config{StartHealthy: true}}, "", 3},
		{"later", sim.Checks{Probe: health.Config{Interval: 70 * ms, First: health.AfterInterval}}, "71ms s up: probe passed", 1},
		{"deep", sim.Checks{Deep: true}, "20ms s up: probe passed", 2},
		{"slow to answer", sim.Checks{Answer: fixed(30)}, "30ms s up: probe passed", 2},
		{"too slow", sim.Checks{Answer: fixed(30), Probe: health.Config{SlowAfter: 30*ms - 1}}, "", 0},
		{"just in time", sim.Checks{Answer: fixed(30), Probe: health.Config{Timeout: 30*ms + 1}}, "30ms s up: probe passed", 2},
		{"just too late", sim.Checks{Answer: fixed(30), Probe: health.Config{Timeout: 30 * ms}}, "", 0},
	} {
		for _, out := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", StartUnhealthy ", out), func(t *testing.T) {
				client := at(0, 50, 74)
				client.Checks = &c.checks
				s := sim.Scenario{
					Duration: 75 * ms,
					Servers:  []sim.Server{{Service: fixed(20)}},
					Clients:  []sim.Client{client},
					Pool:     bare(balancer.RoundRobin{}),
				}
				s.Pool.StartUnhealthy = out
				r, _, got := turns(t, s)
				require.Equal(t, c.turns, got)
				require.Equal(t, c.ok, r.OK)
				require.Equal(t, 3-c.ok, r.Unsent)
			})
		}
	}
}

// A deep probe is work: it waits its turn and is waited for, in the busy time
// and in the queue, and in no other figure.
func TestDeepProbes(t *testing.T) {
	scenario := func(deep bool, times ...int) sim.Scenario {
		s := sim.Scenario{
			Duration: 100 * ms,
			Servers:  []sim.Server{{Service: fixed(10)}},
			Clients:  []sim.Client{at(times...)},
			Pool:     bare(balancer.RoundRobin{}),
		}
		s.Clients[0].Checks = quick(deep)
		return s
	}
	r, all := watch(t, scenario(true, 5, 50))
	require.Equal(t, "15mss 10mss", took(all))
	require.Equal(t, 30*ms, r.Servers[0].Busy)
	require.Equal(t, 1, r.Servers[0].LongestQueue)
	require.EqualValues(t, 2, r.Servers[0].Attempts)
	require.EqualValues(t, 2, r.Total.Attempts)
	require.Equal(t, r.Area, r.Sojourn)
	require.EqualValues(t, 1, r.Servers[0].Probes)
	r, all = watch(t, scenario(false, 5, 50))
	require.Equal(t, "10mss 10mss", took(all))
	require.Equal(t, 20*ms, r.Servers[0].Busy)

	t.Run("behind requests", func(t *testing.T) {
		// Twelve requests ahead of the probe at 100 ms keep it waiting for too long. The
		// one at 200 ms follows it at 225 ms.
		s := scenario(true, append(slices.Repeat([]int{95}, 12), 900)...)
		s.Duration = time.Second
		s.Clients[0].Checks.Probe.Fall = 1
		r, _, got := turns(t, s)
		require.Equal(t, "150ms s down: probe timed_out, 310ms s up: probe passed", got)
		require.Equal(t, 12, r.Servers[0].LongestQueue)
		require.EqualValues(t, 13, r.OK)
		require.Zero(t, r.Wasted)
	})
	t.Run("given up", func(t *testing.T) {
		// The probe at 100 ms waits during a stall and is given up at 150 ms; the server
		// serves it all the same, or skips it. Those at 0, 200 and 300 ms pass.
		for drop, busy := range map[bool]time.Duration{false: 50 * ms, true: 40 * ms} {
			s := scenario(true, 350)
			s.Duration = 355 * ms
			s.Servers[0].DropExpired = drop
			s.Script = []sim.Change{{Kind: sim.Stall, At: 90 * ms, For: 100 * ms}}
			r := run(t, s)
			require.EqualValues(t, 1, r.OK)
			require.EqualValues(t, 4, r.Servers[0].Probes)
			require.EqualValues(t, 1, r.Servers[0].ProbeFailures)
			require.Zero(t, r.Total.Wasted+r.Total.Timeouts)
			require.Equal(t, busy, r.Servers[0].Busy)
		}
	})
	t.Run("down in mid service", func(t *testing.T) {
		s := scenario(true, 600)
		s.Duration = time.Second
		s.Servers[0].Service = fixed(40)
		s.Clients[0].Checks.Probe.Fall = 1
		s.Script = []sim.Change{{Kind: sim.Down, At: 120 * ms, For: 10 * ms}}
		r, _, got := turns(t, s)
		require.Equal(t, "120ms s down: probe failed, 340ms s up: probe passed", got)
		require.Equal(t, sim.Spread{Count: 1}, r.Changes[0].Unhealthy)
	})
	t.Run("the deadline of an earlier one", func(t *testing.T) {
		// The probe of 0 is answered at 60 ms, and its time would be over at 150 ms, when
		// the one of 100 ms is out.
		s := scenario(true, 180)
		s.Duration = time.Second
		s.Servers[0].Service, s.Servers[0].Workers = fixed(60), -1
		s.Clients[0].Checks.Probe.Timeout = 150 * ms
		r := run(t, s)
		require.EqualValues(t, 3, r.Servers[0].Probes)
		require.Zero(t, r.Servers[0].ProbeFailures)
	})
	t.Run("refused", func(t *testing.T) {
		s := scenario(true, 600)
		s.Duration = time.Second
		s.Servers[0].FastFails = 1
		_, _, got := turns(t, s)
		require.Equal(t, "100.5ms s down: probe failed", got)
	})
}

// A server that is out for a deploy is not probed, and is a new one to the checks
// when it is back.
func TestChecksAndRoll(t *testing.T) {
	for _, deep := range []bool{false, true} {
		c := sim.Client{Rate: 100, Even: true, Checks: quick(deep)}
		c.Checks.Probe.StartHealthy = false
		answer := ms
		if deep {
			answer = 40 * ms
		}
		r, all, got := turns(t, sim.Scenario{
			Duration: 1950 * ms,
			Servers:  []sim.Server{{Name: "a", Workers: -1, Service: fixed(40)}, {Name: "b", Workers: -1, Service: fixed(40)}},
			Clients:  []sim.Client{c},
			// The probe at 500 ms is under way, and its answer comes after the leaving.
			Script: []sim.Change{{Kind: sim.Roll, At: 500*ms + ms/2, For: 333 * ms, Servers: "a"}},
			Pool:   bare(balancer.RoundRobin{}),
		})
		back := 500*ms + ms/2 + 333*ms
		require.Equal(t, fmt.Sprintf("%v a up: probe passed, %v b up: probe passed, %v a up: probe passed", answer, answer, back+answer), got)
		// 0 to 500 ms, and every 100 ms from the return on.
		require.EqualValues(t, 6+12, r.Servers[0].Probes)
		require.EqualValues(t, 20, r.Servers[1].Probes)
		require.Zero(t, r.Servers[0].ProbeFailures)
		for _, a := range all {
			if a.Server == "a" {
				require.False(t, a.Sent >= 500*ms+ms/2 && a.Sent < back+answer, a.Sent)
			}
		}
	}
	t.Run("in a black hole", func(t *testing.T) {
		// The probe that was swallowed is nobody's after the leaving.
		c := sim.Client{Rate: 100, Even: true, Checks: quick(true)}
		m, err := sim.NewMachine(sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Count: 2, Workers: -1}},
			Clients:  []sim.Client{c},
			Script: []sim.Change{
				{Kind: sim.BlackHole, At: 390 * ms, For: 20 * ms, Servers: "s-0"},
				{Kind: sim.Roll, At: 420 * ms, For: 100 * ms, Servers: "s-0"},
			},
			Pool: bare(balancer.RoundRobin{}),
		})
		require.NoError(t, err)
		for m.Step() {
			require.NoError(t, m.Check())
		}
		require.Zero(t, m.Result().Servers[0].ProbeFailures)
	})
}

// Each client has checks of its own, of the servers that it sees.
func TestChecksOfManyClients(t *testing.T) {
	seen := map[string]map[int]bool{}
	s := sim.Scenario{
		Seed: 5, Duration: 980 * ms,
		Servers: []sim.Server{{Count: 6, Workers: -1, Service: fixed(10)}},
		Clients: []sim.Client{{Count: 5, Rate: 200, Even: true, Sees: 3, Checks: quick(false)}, {Count: 2, Rate: 50, Even: true, Sees: 3}},
		Script:  []sim.Change{{Kind: sim.Down, At: 300 * ms, For: 400 * ms}},
		Pool:    bare(balancer.RoundRobin{}),
	}
	r, all := watch(t, s)
	for _, a := range all {
		if a.Client < 5 {
			if seen[a.Server] == nil {
				seen[a.Server] = map[int]bool{}
			}
			seen[a.Server][a.Client] = true
		}
		if a.Client < 5 && a.Sent >= 401*ms && a.Sent < 700*ms {
			require.Failf(t, "sent", "%+v", a)
		}
	}
	total := uint64(0)
	for _, v := range r.Servers {
		require.EqualValues(t, 10*len(seen[v.ID]), v.Probes, v.ID)
		require.EqualValues(t, 4*len(seen[v.ID]), v.ProbeFailures, v.ID)
		total += v.Probes
	}
	require.EqualValues(t, 10*5*3, total)
	require.Equal(t, sim.Spread{Count: 15, First: 100*ms + ms/2, Last: 100*ms + ms/2, Sum: 15 * (100*ms + ms/2)}, r.Changes[0].Unhealthy)
	require.Contains(t, r.String(), "down at 300ms  found unhealthy 15 times, first after 101ms")
	require.Contains(t, r.String(), fmt.Sprintf("trips 0  probes %d, %d failed\n", r.Servers[2].Probes, r.Servers[2].ProbeFailures))
	s.Clients[0].Checks = nil
	require.NotContains(t, run(t, s).String(), "probe")
}

// The first way out of each kind counts, for each change and once.
func TestChecksBesideEjections(t *testing.T) {
	c := sim.Client{Rate: 1000, Even: true, Checks: quick(true)}
	c.Checks.Probe.Rise = 1
	s := sim.Scenario{
		Duration: 2 * time.Second,
		Servers:  []sim.Server{{Count: 3, Workers: -1, Service: fixed(10)}},
		Clients:  []sim.Client{c},
		Script: []sim.Change{
			{Kind: sim.Flapping, At: 500 * ms, For: time.Second, Every: 500 * ms, Servers: "s-1"},
			{Kind: sim.Surge, At: 500 * ms, For: time.Second, Factor: 1},
		},
		Pool: bare(balancer.RoundRobin{}),
	}
	s.Pool.Outlier = outlier.Config{Consecutive: 3, Base: 50 * ms}
	r, _, got := turns(t, s)
	require.Equal(t, 2, strings.Count(got, "down"), got)
	require.Equal(t, 1, r.Changes[0].Ejected.Count)
	require.Less(t, r.Changes[0].Ejected.First, 20*ms)
	require.Equal(t, sim.Spread{Count: 1, First: 100*ms + ms/2, Last: 100*ms + ms/2, Sum: 100*ms + ms/2}, r.Changes[0].Unhealthy)
	require.Zero(t, r.Changes[1].Unhealthy)
}

// Spread grids begin within an interval, each at a point of its own.
func TestChecksSpread(t *testing.T) {
	def, _ := seedOf(t, 21)
	first := func(spread bool) (out []time.Duration) {
		s := sim.Scenario{
			Seed: def, Duration: 20 * time.Second,
			Servers: []sim.Server{{Count: 100, Workers: -1}},
			Clients: []sim.Client{at(19_000)},
			Pool:    bare(balancer.RoundRobin{}),
		}
		s.Clients[0].Checks = &sim.Checks{Spread: spread}
		s.Pool.OnEvent = func(ev balancer.Event) {
			if ev.Kind == balancer.UpstreamHealthy {
				out = append(out, ev.At.Sub(time.Unix(0, 0))-ms)
			}
		}
		run(t, s)
		return out
	}
	require.Equal(t, make([]time.Duration, 100), first(false))
	points := first(true)
	require.Len(t, points, 100)
	sum := time.Duration(0)
	for i, p := range points {
		require.True(t, p >= 0 && p < 10*time.Second, p)
		require.False(t, i > 0 && p == points[i-1], p)
		sum += p
	}
	// 100 uniform draws: 5 s, and a standard error of 289 ms.
	require.InDelta(t, 5, (sum / 100).Seconds(), 6*.289)
}

// A probe that a healthy server passes ends its ejection, if the Pool says so.
func TestChecksEndEjections(t *testing.T) {
	for ends, want := range map[bool][]time.Duration{false: nil, true: {501 * ms}} {
		var back []time.Duration
		s := sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Count: 2, Workers: -1, Service: fixed(10)}},
			Clients:  []sim.Client{{Rate: 100, Even: true, Checks: quick(false)}},
			Script:   []sim.Change{{Kind: sim.Sinkhole, At: 410 * ms, For: 50 * ms, Servers: "s-0"}},
			Pool:     bare(balancer.RoundRobin{}),
		}
		s.Pool.Outlier = outlier.Config{Consecutive: 2, ProbeEnds: ends}
		s.Pool.OnEvent = func(ev balancer.Event) {
			if ev.Kind == balancer.UpstreamReturned {
				back = append(back, ev.At.Sub(time.Unix(0, 0)))
			}
		}
		r := run(t, s)
		require.Equal(t, 1, r.Servers[0].Ejections)
		require.Equal(t, want, back)
	}
	t.Run("not by one that fails, nor one that is not enough", func(t *testing.T) {
		back := 0
		c := sim.Client{Rate: 200, Even: true, Checks: quick(true)}
		c.Checks.Probe.Fall = 3
		s := sim.Scenario{
			Duration: 650 * ms,
			Servers:  []sim.Server{{Count: 2, Workers: -1, Service: fixed(10)}},
			Clients:  []sim.Client{c},
			Script:   []sim.Change{{Kind: sim.Sinkhole, At: 410 * ms, Servers: "s-0"}},
			Pool:     bare(balancer.RoundRobin{}),
		}
		s.Pool.Outlier = outlier.Config{Consecutive: 2, ProbeEnds: true}
		s.Pool.OnEvent = func(ev balancer.Event) {
			if ev.Kind == balancer.UpstreamReturned {
				back++
			}
		}
		r := run(t, s)
		require.Equal(t, 1, r.Servers[0].Ejections)
		require.EqualValues(t, 2, r.Servers[0].ProbeFailures)
		require.Zero(t, back)
	})
}

// Probes keep no run alive: not one that has no more requests, nor one whose last
// request will never end.
func TestChecksEndWithTheRun(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Name: "hole"}, {Name: "s", Count: 20, Service: sim.Exponential(30 * ms)}},
		Clients:  []sim.Client{{Times: []time.Duration{500 * ms}, Timeout: 0}},
		Script:   []sim.Change{{Kind: sim.BlackHole, Servers: "hole"}},
		Pool:     bare(balancer.RoundRobin{First: true}),
	}
	for _, deep := range []bool{false, true} {
		// A probe of some server is always under way.
		s.Clients[0].Checks = &sim.Checks{Deep: deep, Probe: health.Config{Interval: 40 * ms, StartHealthy: true, Fall: 1000}, Spread: true}
		r := run(t, s)
		require.EqualValues(t, 1, r.Hung)
		require.Equal(t, 500*ms, r.Elapsed)
		for _, v := range r.Servers {
			require.LessOrEqual(t, v.Probes, uint64(13))
		}
		u := s
		u.Script = nil
		r = run(t, u)
		require.EqualValues(t, 1, r.OK)
		require.Less(t, r.Elapsed, time.Second)
	}

	t.Run("behind a stall", func(t *testing.T) {
		// The request waits for a server that does not work any more, in a queue with
		// probes, and so do probes in front of a server that is too slow for them.
		c := at(500)
		c.Checks = &sim.Checks{Deep: true, Probe: health.Config{Interval: 40 * ms, StartHealthy: true, Fall: 1000}}
		r := run(t, sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Name: "stalled"}, {Name: "slow", Service: fixed(100)}},
			Clients:  []sim.Client{c},
			Script:   []sim.Change{{Kind: sim.Stall, Servers: "stalled"}},
			Pool:     bare(balancer.RoundRobin{First: true}),
		})
		require.EqualValues(t, 1, r.Hung)
		require.Equal(t, 500*ms, r.Elapsed)
	})
	t.Run("behind a probe", func(t *testing.T) {
		// The last request has no event of its own: it waits for a probe's worker.
		c := at(5)
		c.Checks = quick(true)
		r, all := watch(t, sim.Scenario{
			Duration: 10 * ms,
			Servers:  []sim.Server{{Service: fixed(100)}},
			Clients:  []sim.Client{c},
			Pool:     bare(balancer.RoundRobin{}),
		})
		require.Equal(t, "195mss", took(all))
		require.Equal(t, 200*ms, r.Elapsed)
	})
}

// same shows the first attempt that differs.
func same(t testing.TB, want, got []sim.Attempt) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		require.Equal(t, want[i], got[i], "attempt %d", i)
	}
	require.Equal(t, len(want), len(got))
}

// requestsOf is a Result without what the checks have added to it.
func requestsOf(r sim.Result, deep bool) sim.Result {
	r.Events, r.Elapsed = 0, 0
	r.Servers = slices.Clone(r.Servers)
	for i := range r.Servers {
		r.Servers[i].Probes, r.Servers[i].ProbeFailures = 0, 0
		if deep {
			r.Servers[i].Busy = 0
		}
	}
	return r
}

// Checks that find nothing change nothing: shallow ones in any fleet, and deep
// ones where nobody waits for a worker; those show in the busy time.
func TestChecksDisturbNothing(t *testing.T) {
	def, _ := seedOf(t, 31)
	patient := func(deep bool) *sim.Checks {
		return &sim.Checks{Deep: deep, Spread: true, Probe: health.Config{Interval: 7 * ms, Fall: 1 << 30, StartHealthy: true}}
	}
	compare := func(t *testing.T, s sim.Scenario, deep bool) {
		want, wantAll := watch(t, s)
		s.Clients = slices.Clone(s.Clients)
		for i := range s.Clients {
			s.Clients[i].Checks = patient(deep)
		}
		got, all := watch(t, s)
		same(t, wantAll, all)
		require.True(t, reflect.DeepEqual(requestsOf(want, deep), requestsOf(got, deep)))
		failures := uint64(0)
		for _, v := range got.Servers {
			require.Positive(t, v.Probes)
			failures += v.ProbeFailures
		}
		require.Positive(t, failures)
	}
	t.Run("shallow", func(t *testing.T) { compare(t, mess(def), false) })
	t.Run("deep", func(t *testing.T) {
		s := mess(def)
		for i := range s.Servers {
			s.Servers[i].Workers, s.Servers[i].SlowDown = -1, 0
		}
		for i, c := range s.Script {
			if c.Kind == sim.Stall {
				s.Script = slices.Delete(slices.Clone(s.Script), i, i+1)
				break
			}
		}
		compare(t, s, true)
	})
}

// A request that is left out changes no other one, verdicts included.
func TestChecksSkipOne(t *testing.T) {
	def, _ := seedOf(t, 41)
	s := sim.Scenario{
		Seed: def, Duration: 2 * time.Second,
		Servers: []sim.Server{{Count: 6, Workers: -1, Service: sim.Exponential(10 * ms), Errors: .05}},
		Clients: []sim.Client{{Rate: 500, Timeout: 40 * ms, Checks: quick(true)}, {Users: 4, Think: sim.Exponential(5 * ms), Checks: quick(false)}},
		Script: []sim.Change{
			{Kind: sim.Errors, Share: .7, At: 300 * ms, For: time.Second, Servers: "s-1"},
			{Kind: sim.Flapping, At: 500 * ms, For: time.Second, Servers: "s-2", Every: 400 * ms},
		},
		Pool: bare(balancer.Random{}),
	}
	_, all, verdicts := turns(t, s)
	require.NotEmpty(t, verdicts)
	for _, skip := range []uint64{1, 2, 300, 700} {
		var want []sim.Attempt
		for _, a := range all {
			if a.Client != 0 || a.Request != skip {
				want = append(want, a)
			}
		}
		u := s
		u.Clients = slices.Clone(s.Clients)
		u.Clients[0].Skip = []uint64{skip}
		_, got, again := turns(t, u)
		same(t, want, got)
		require.Equal(t, verdicts, again)
	}
}

// What a probe draws depends on the server's id, not on its place in the fleet.
func TestChecksKeyed(t *testing.T) {
	failures := func(ids ...string) map[string]uint64 {
		s := sim.Scenario{
			Seed: 3, Duration: 10 * time.Second, Clients: []sim.Client{at(9990)}, Pool: bare(balancer.RoundRobin{}),
		}
		s.Clients[0].Checks = quick(true)
		for _, id := range ids {
			s.Servers = append(s.Servers, sim.Server{Name: id, Workers: -1, Errors: .4})
		}
		out := map[string]uint64{}
		for _, v := range run(t, s).Servers {
			out[v.ID] = v.ProbeFailures
		}
		return out
	}
	a := failures("a", "b", "c", "d")
	require.Equal(t, a, failures("d", "b", "c", "a"))
	b := failures("c", "x", "a")
	require.Equal(t, a["a"], b["a"])
	require.Equal(t, a["c"], b["c"])
	require.NotEqual(t, a["a"], a["b"])
}

// checkedMess is mess with checks of two kinds.
func checkedMess(seed uint64) sim.Scenario {
	s := mess(seed)
	s.Clients[0].Checks = &sim.Checks{Spread: true, Deep: true, Probe: health.Config{Interval: 90 * ms, Timeout: 60 * ms, Fall: 2}}
	s.Clients[1].Checks = &sim.Checks{Spread: true, Answer: sim.Exponential(2 * ms), Probe: health.Config{Interval: 60 * ms, Timeout: 9 * ms}}
	return s
}

// The books balance and servers, clients, checks and Pools agree with each other
// between any two events.
func TestChecksInAMess(t *testing.T) {
	def, _ := seedOf(t, 51)
	m, err := sim.NewMachine(checkedMess(def))
	require.NoError(t, err)
	for n := 0; m.Step(); n++ {
		if n%3 == 0 {
			require.NoError(t, m.Check(), "after event %d", n)
		}
	}
	require.NoError(t, m.Check())
	r := m.Result()
	for _, c := range []sim.Counts{r.Counts, r.Total} {
		require.Equal(t, c.Requests, c.OK+c.Failed+c.Hung)
		require.Equal(t, c.Attempts, c.Requests+c.Retries-c.Unsent)
	}
	require.Equal(t, r.Area, r.Sojourn)
	require.Zero(t, r.Hung)
	out := 0
	for _, c := range r.Changes {
		out += c.Unhealthy.Count
	}
	require.Positive(t, out)
}

// A run with checks is the same again, and on every architecture.
func TestChecksGolden(t *testing.T) {
	s := checkedMess(1)
	s.Pool = bare(balancer.Random{})
	_, again, verdicts := turns(t, s)
	r, all, other := turns(t, s)
	same(t, again, all)
	require.Equal(t, verdicts, other)
	h := uint64(0xcbf29ce484222325)
	for _, c := range verdicts {
		h = sim.Mix(h ^ uint64(c))
	}
	for _, a := range all {
		h = sim.Mix(h ^ uint64(a.Took))
	}
	for _, v := range r.Servers {
		h = sim.Mix(h ^ v.Probes<<32 ^ v.ProbeFailures)
	}
	require.Equal(t, uint64(0xe2d3f204cc5b1432), h)
}

// Checks whose verdicts stand allocate nothing.
func TestChecksNoAllocations(t *testing.T) {
	s := busy(200_000, balancer.PeakEWMA{})
	s.Clients[0].Checks = &sim.Checks{Spread: true, Probe: health.Config{Interval: 20 * ms, StartHealthy: true}}
	m, err := sim.NewMachine(s)
	require.NoError(t, err)
	for range 60_000 {
		m.Step()
	}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for range 1000 {
			m.Step()
		}
	}))
}

// The rows of the playground that need a server behind the toggle.
func TestRows(t *testing.T) {
	t.Run("E-PG-05", func(t *testing.T) {
		for fall := 1; fall <= 4; fall++ {
			for rise := 1; rise <= 3; rise++ {
				s := sim.Scenario{
					Duration: 6 * time.Second,
					Servers:  []sim.Server{{Name: "A"}, {Name: "B"}, {Name: "C"}, {Name: "D"}},
					Clients: []sim.Client{{Rate: 20, Even: true, Checks: &sim.Checks{
						Deep:  true,
						Probe: health.Config{Interval: 500 * ms, Timeout: 200 * ms, Fall: fall, Rise: rise, StartHealthy: true},
					}}},
					// The toggle of B goes on between two probes and off between two others.
					Script: []sim.Change{{Kind: sim.Sinkhole, At: 1200 * ms, For: 2500 * ms, Servers: "B"}},
					Pool:   preset.EchofrontPlayground(),
				}
				// The health bit alone takes B out.
				s.Pool.Breaker.Off, s.Pool.Outlier.Off = true, true
				for i := range s.Servers {
					s.Servers[i].Workers = 4
				}
				r, all, got := turns(t, s)
				// Probes at 1.5 s, 2 s and so on fail after 500 µs, and from 4 s on pass
				// after 10 ms.
				out := 1500*ms + time.Duration(fall-1)*500*ms + 500*time.Microsecond
				back := 4*time.Second + time.Duration(rise-1)*500*ms + 10*ms
				require.Equal(t, fmt.Sprintf("%v B down: probe failed, %v B up: probe passed", out, back), got)
				before, after := 0, 0
				for _, a := range all {
					if a.Server != "B" {
						require.Equal(t, balancer.Success, a.Outcome)
						continue
					}
					require.False(t, a.Sent >= out && a.Sent < back, "sent at %v", a.Sent)
					if a.Outcome != balancer.Success {
						require.True(t, a.Sent >= 1200*ms && a.Sent < out)
						before++
					} else if a.Sent >= back {
						after++
					}
				}
				require.Positive(t, before)
				require.Positive(t, after)
				require.Equal(t, sim.Spread{Count: 1, First: out - 1200*ms, Last: out - 1200*ms, Sum: out - 1200*ms}, r.Changes[0].Unhealthy)
				require.EqualValues(t, 5, r.Servers[1].ProbeFailures)
			}
		}
	})
}

// That one server is out of the Pools from the beginning changes nothing for the
// others, and the recording begins with a new Pool.
func TestRollAtTheBeginning(t *testing.T) {
	first := map[bool]string{}
	for _, roll := range []bool{false, true} {
		c := at(0, 900)
		c.Checks = &sim.Checks{Deep: true, Probe: health.Config{Interval: 100 * ms, Timeout: 50 * ms, StartHealthy: true}}
		s := sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Name: "a", Service: fixed(10)}, {Name: "b", Service: fixed(10)}},
			Clients:  []sim.Client{c},
			Pool:     bare(balancer.RoundRobin{First: true}),
		}
		if roll {
			s.Script = []sim.Change{{Kind: sim.Roll, For: 500 * ms, Servers: "b"}}
		}
		_, all := watch(t, s)
		first[roll] = all[0].Server + " " + all[0].Took.String()
		var b bytes.Buffer
		_, err := sim.Record(s, 0, &b)
		require.NoError(t, err)
		f, err := incident.Read(&b)
		require.NoError(t, err)
		require.Empty(t, f.Header.State)
		require.Len(t, f.Header.Members, map[bool]int{false: 2, true: 1}[roll])
	}
	require.Equal(t, first[false], first[true])
}

// A probe that passes on the way back to health says nothing to the Pool yet.
func TestChecksSayNothingInBetween(t *testing.T) {
	c := at(0, 2000)
	c.Checks = &sim.Checks{Probe: health.Config{Interval: 100 * ms, Fall: 2, Rise: 3, StartHealthy: true}}
	s := sim.Scenario{
		Duration: 3 * time.Second, Servers: []sim.Server{{Name: "a"}, {Name: "b"}}, Clients: []sim.Client{c},
		Script: []sim.Change{{Kind: sim.Down, At: 450 * ms, For: 500 * ms, Servers: "a"}}, Pool: bare(balancer.RoundRobin{First: true}),
	}
	s.Pool.Outlier = outlier.Config{ProbeEnds: true}
	var b bytes.Buffer
	_, err := sim.Record(s, 0, &b)
	require.NoError(t, err)
	f, err := incident.Read(&b)
	require.NoError(t, err)
	said := map[bool]int{}
	for _, l := range f.Lines {
		if l.Kind == incident.InHealth && l.Upstream == "a" {
			said[l.Healthy]++
			require.True(t, l.Healthy || l.Why == "probe failed", "%v", l)
		}
	}
	require.Equal(t, 1, said[false])
	require.Greater(t, said[true], 10)
}
