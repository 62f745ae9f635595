package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// A stall stops everything and changes nothing else, worked out by hand: from 15
// to 115 ms, one server, service 10 ms, refusals after 500 µs.
func TestStall(t *testing.T) {
	for _, c := range []struct {
		name   string
		server sim.Server
		client sim.Client
		want   string
	}{
		{"what is in service has its rest ahead", sim.Server{}, at(10), "110mss"},
		{"what ends as it begins ends as it ends", sim.Server{}, at(5), "110mss"},
		{"what waits is served after it", sim.Server{}, at(10, 12), "110mss 118mss"},
		{"what comes is served when it is over", sim.Server{}, at(20), "105mss"},
		{"after what was waiting", sim.Server{}, at(10, 12, 19, 20), "110mss 118mss 121mss 130mss"},
		{"idle workers take what has come", sim.Server{Workers: 4, Queue: -1}, at(20, 30), "105mss 95mss"},
		{"and the rest is refused then", sim.Server{Workers: 1, Queue: -1}, at(20, 30), "85.5msf 105mss"},
		{"or waits", sim.Server{Queue: 1}, at(20, 30, 40), "75.5msf 105mss 105mss"},
		{"a refusal under way has its rest ahead", sim.Server{FastFails: 1, FailTime: fixed(10)}, at(10), "110msf"},
		{"one that begins in it begins after it", sim.Server{FastFails: 1}, at(20), "95.5msf"},
		{"at its end", sim.Server{}, at(115), "10mss"},
		{"at its beginning", sim.Server{}, at(15), "110mss"},
		{"given up", sim.Server{}, timeout(50, at(10, 30, 120)), "50mst 50mst 20mss"},
		{"given up and skipped", sim.Server{DropExpired: true}, timeout(50, at(10, 30, 120)), "50mst 50mst 10mss"},
		{"any number of workers", sim.Server{Workers: -1}, at(6, 10, 20), "110mss 110mss 105mss"},
		{"slower together", sim.Server{Workers: -1, SlowDown: 1}, at(20, 20), "105mss 115mss"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.server.Service = fixed(10)
			s := sim.Scenario{
				Duration: time.Second,
				Servers:  []sim.Server{c.server},
				Clients:  []sim.Client{c.client},
				Script:   []sim.Change{{Kind: sim.Stall, At: 15 * ms, For: 100 * ms}},
				Pool:     bare(balancer.RoundRobin{}),
			}
			stepped(t, s)
			r, all := watch(t, s)
			require.Equal(t, c.want, took(all))
			require.Equal(t, r.Area, r.Sojourn)
		})
	}
}

func timeout(n time.Duration, c sim.Client) sim.Client {
	c.Timeout = n * ms
	return c
}

// stepped runs a scenario, checks everything after every event, and returns the
// machine at its end.
func stepped(t testing.TB, s sim.Scenario) *sim.Machine {
	t.Helper()
	m, err := sim.NewMachine(s)
	require.NoError(t, err)
	for n := 0; m.Step(); n++ {
		require.NoError(t, m.Check(), "after event %d", n)
	}
	require.NoError(t, m.Check())
	return m
}

// A stall takes as much time from every service as it lasts, be it once or twice.
func TestStalls(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(30)}},
		Clients:  []sim.Client{at(0)},
		Script: []sim.Change{
			{Kind: sim.Stall, At: 10 * ms, For: 10 * ms},
			{Kind: sim.Stall, At: 25 * ms, For: 15 * ms},
			{Kind: sim.Stall, At: 35 * ms, For: 20 * ms},
		},
		Pool: bare(balancer.RoundRobin{}),
	}
	r, all := watch(t, s)
	require.Equal(t, "70mss", took(all), "of which it stalls from 10 to 20 and from 25 to 55")
	require.Equal(t, 30*ms, r.Servers[0].Busy, "the time for which it works")

	s.Script = s.Script[:1]
	s.Script[0].For = 0
	r = run(t, s)
	require.Equal(t, uint64(1), r.Hung)
	require.Equal(t, 10*ms, r.Servers[0].Busy, "it never goes on")
	require.Zero(t, r.Elapsed, "nothing has begun or ended since")

	// The same beside a server that goes on.
	s.Servers = append(s.Servers, sim.Server{Name: "other", Service: fixed(30)})
	s.Script[0].Servers = "s"
	s.Clients[0] = at(0, 100)
	s.Pool = bare(balancer.RoundRobin{First: true})
	r = run(t, s)
	require.Equal(t, 130*ms, r.Elapsed)
	require.Equal(t, 10*ms, r.Servers[0].Busy)
}

// Who waits in a stall that never ends hangs, and does not keep checks going.
func TestStalledForEver(t *testing.T) {
	for _, timeoutOf := range []time.Duration{0, 300} {
		s := sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Service: fixed(30)}},
			Clients:  []sim.Client{timeout(timeoutOf, at(0, 1, 2, 50))},
			Script:   []sim.Change{{Kind: sim.Stall, At: 5 * ms}},
			Pool:     bare(balancer.RoundRobin{}),
		}
		s.Clients[0].Checks = quick(true)
		s.Clients[0].Checks.Probe.Fall = 1000
		m, err := sim.NewMachine(s)
		require.NoError(t, err)
		for n := 0; m.Step(); n++ {
			require.NoError(t, m.Check())
			require.Less(t, n, 1000, "no end")
		}
		if timeoutOf == 0 {
			require.Equal(t, uint64(4), m.Result().Hung)
		} else {
			require.Equal(t, uint64(4), m.Result().Timeouts)
			require.Equal(t, 350*ms, m.Result().Elapsed)
		}
	}
}

// What was given up in a stall and finds a black hole after it is gone.
func TestFromAStallIntoABlackHole(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{timeout(20, at(10, 45, 200))},
		Script: []sim.Change{
			{Kind: sim.Stall, At: 5 * ms, For: 45 * ms},
			{Kind: sim.BlackHole, At: 48 * ms, For: 50 * ms},
		},
		Pool: bare(balancer.RoundRobin{}),
	}
	m := stepped(t, s)
	require.Zero(t, m.Taken())
	require.Zero(t, m.Result().Wasted)
	_, all := watch(t, s)
	require.Equal(t, "20mst 20mst 10mss", took(all))

	// And what a black hole has swallowed in a stall, it keeps.
	s.Script[1] = sim.Change{Kind: sim.BlackHole, At: 8 * ms, For: 10 * ms}
	s.Clients[0].Timeout = 100 * ms
	_, all = watch(t, s)
	require.Equal(t, "15mss 100mst 10mss", took(all))
	m = stepped(t, s)
	require.Zero(t, m.Taken())
}

// A retry does not overtake those who have waited for the whole stall, be it at
// the same server or at another one that stalls for as long.
func TestNobodyOvertakesAfterAStall(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(10), Errors: 1}},
		Clients:  []sim.Client{at(0, 20)},
		Script:   []sim.Change{{Kind: sim.Stall, At: 5 * ms, For: 95 * ms}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	s.Pool.Retry = balancer.Retry{OnFailure: true, SameUpstream: 2, Max: 1}
	s.Pool.Budget.Off = true
	stepped(t, s)
	_, all := watch(t, s)
	var order [][2]uint64
	for _, a := range all {
		order = append(order, [2]uint64{a.Request, uint64(a.Attempt)})
	}
	require.Equal(t, [][2]uint64{{1, 0}, {2, 0}, {1, 1}, {2, 1}}, order)

	for seed := range uint64(40) {
		s := sim.Scenario{
			Seed: seed, Duration: time.Second,
			Servers: []sim.Server{{Name: "a", Service: fixed(10), Errors: 1}, {Name: "b", Service: fixed(10)}},
			Clients: []sim.Client{at(0, 0, 20, 20)},
			Script:  []sim.Change{{Kind: sim.Stall, At: 5 * ms, For: 95 * ms}},
			Pool:    s.Pool,
		}
		s.Pool.Policy, s.Pool.Retry = balancer.LeastConn{}, balancer.Retry{OnFailure: true, Max: 1}
		stepped(t, s)
	}
}

// A server that goes down in a stall loses all that it holds, at once; while it is
// down it refuses as ever, and what comes after that in the stall is held again.
func TestDownInAStall(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 1, 50, 105, 120)},
		Script: []sim.Change{
			{Kind: sim.Stall, At: 5 * ms, For: 195 * ms},
			{Kind: sim.Down, At: 100 * ms, For: 10 * ms},
		},
		Pool: bare(balancer.RoundRobin{}),
	}
	m := stepped(t, s)
	require.Zero(t, m.Taken())
	r, all := watch(t, s)
	require.Equal(t, "100mst 99mst 50mst 500µst 90mss", took(all))
	require.Equal(t, 15*ms, r.Servers[0].Busy, "five before the stall, ten after it")

	// Down and out of its stall at one instant: it holds nothing any more.
	s.Script[1].At = 200 * ms
	s.Clients[0] = at(0, 1, 50, 205)
	_, all = watch(t, s)
	require.Equal(t, "200mst 199mst 150mst 500µst", took(all))
	stepped(t, s)
}

// Probes stall as requests do, deep or shallow: the answer to one that was sent
// before the stall, or in it, comes when that is over, unless its time is over
// first. They are sent at 100 ms, 200 ms and so on, and answered after 30 ms.
func TestProbesInAStall(t *testing.T) {
	for _, c := range []struct {
		from, to, limit time.Duration
		want            time.Duration
	}{
		{110, 160, 100, 180},
		{110, 160, 80, 230}, // an answer at the deadline is too late
		{110, 160, 60, 230},
		{100, 160, 100, 190},
		{90, 160, 100, 190},
		{90, 160, 60, 230},
		{90, 199, 100, 230},
		{130, 160, 100, 160}, // it would have been answered as the stall began
		{131, 160, 100, 130},
	} {
		for _, deep := range []bool{false, true} {
			s := sim.Scenario{
				Duration: time.Second,
				Servers:  []sim.Server{{Service: fixed(30), Workers: -1}},
				Clients:  []sim.Client{at(900)},
				Script:   []sim.Change{{Kind: sim.Stall, At: c.from * ms, For: (c.to - c.from) * ms}},
				Pool:     bare(balancer.RoundRobin{}),
			}
			s.Clients[0].Checks = &sim.Checks{Deep: deep, Probe: health.Config{
				Interval: 100 * ms, First: health.AfterInterval, Timeout: c.limit * ms, Rise: 1,
			}}
			if !deep {
				s.Clients[0].Checks.Answer = fixed(30)
			}
			up := time.Duration(0)
			s.Pool.OnEvent = func(ev balancer.Event) {
				if ev.Kind == balancer.UpstreamHealthy && up == 0 {
					up = ev.At.Sub(time.Unix(0, 0))
				}
			}
			stepped(t, s)
			require.Equal(t, c.want*ms, up, "%+v, deep %v", c, deep)
		}
	}
}

// A server that goes down fails the probes that are out at once, deep or shallow,
// also those that a stall holds.
func TestProbesInACrash(t *testing.T) {
	for _, stall := range []bool{false, true} {
		for _, deep := range []bool{false, true} {
			s := sim.Scenario{
				Duration: time.Second,
				Servers:  []sim.Server{{Service: fixed(30), Workers: -1}},
				Clients:  []sim.Client{at(900)},
				Script:   []sim.Change{{Kind: sim.Down, At: 120 * ms, For: 10 * ms}},
				Pool:     bare(balancer.RoundRobin{}),
			}
			if stall {
				s.Script = append(s.Script, sim.Change{Kind: sim.Stall, At: 90 * ms, For: 60 * ms})
			}
			s.Clients[0].Checks = &sim.Checks{Deep: deep, Probe: health.Config{Interval: 100 * ms, Fall: 1, StartHealthy: true}}
			if !deep {
				s.Clients[0].Checks.Answer = fixed(30)
			}
			r, _, got := turns(t, s)
			require.Equal(t, "120ms s down: probe failed, 330ms s up: probe passed", got, "deep %v, stall %v", deep, stall)
			require.EqualValues(t, 1, r.Servers[0].ProbeFailures)
			stepped(t, s)
		}
	}
}
