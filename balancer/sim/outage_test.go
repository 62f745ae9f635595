package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// What fails at an instant is tried again by Pools that know who has left at that
// instant.
func TestCrashAndRollAtOnce(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Name: "a", Service: fixed(100)}, {Name: "b", Service: fixed(100)}, {Name: "c", Service: fixed(100)}},
		Clients:  []sim.Client{at(0, 0, 0)},
		Script: []sim.Change{
			{Kind: sim.Down, At: 50 * ms, For: 500 * ms, Servers: "a"},
			{Kind: sim.Roll, At: 50 * ms, For: 500 * ms, Servers: "b"},
		},
		Pool: bare(balancer.LeastConn{}),
	}
	s.Pool.Retry, s.Pool.Budget.Off = balancer.Retry{}, true
	for seed := range uint64(20) {
		s.Seed = seed
		stepped(t, s)
		r, all := watch(t, s)
		require.Equal(t, uint64(3), r.OK)
		for _, a := range all {
			require.False(t, a.Server == "b" && a.Sent >= 50*ms, "seed %d: sent to b after it has left", seed)
		}
	}
}

// Where two servers go down at one instant, nothing that fails is tried at the
// other and fails there with the rest: it is refused, as by one that is down.
func TestTwoCrashesAtOnce(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Name: "a", Service: fixed(100)}, {Name: "b", Service: fixed(100)}},
		Clients:  []sim.Client{at(0, 0)},
		Script:   []sim.Change{{Kind: sim.Down, At: 50 * ms, For: 500 * ms}},
		Pool:     bare(balancer.LeastConn{}),
	}
	s.Pool.Retry, s.Pool.Budget.Off = balancer.Retry{Max: 1}, true
	for seed := range uint64(10) {
		s.Seed = seed
		_, all := watch(t, s)
		require.Equal(t, "50mst 50mst 500µst 500µst", took(all))
	}
}

// A crash is told in the order of sending, over all servers; so leaving one request
// out changes no other, whichever slots the others then lie in.
func TestCrashOrder(t *testing.T) {
	def, _ := seedOf(t, 11)
	s := sim.Scenario{
		Seed: def, Duration: 2 * time.Second,
		Servers: []sim.Server{{Count: 10, Workers: -1, Service: sim.Exponential(10 * ms), FastFails: .1, FailTime: fixed(5)}},
		Clients: []sim.Client{{Rate: 3000}, {Users: 20, Think: fixed(3)}},
		Script: []sim.Change{
			{Kind: sim.Down, At: time.Second, For: 100 * ms, First: 3},
			{Kind: sim.Flapping, At: 1200 * ms, For: 300 * ms, Every: 20 * ms, Servers: "s-4"},
		},
		Pool: bare(balancer.Random{}),
	}
	s.Pool.Retry, s.Pool.Budget.Off = balancer.Retry{Max: 1}, true
	_, all := watch(t, s)
	last, lost := time.Duration(0), 0
	for _, a := range all {
		if a.Sent+a.Took == time.Second && a.Outcome == balancer.TransportFailure && a.Took != 500*time.Microsecond {
			require.GreaterOrEqual(t, a.Sent, last)
			last = a.Sent
			lost++
		}
	}
	require.Greater(t, lost, 3)
	for skip := uint64(1); skip < 6000; skip += 397 {
		u := s
		u.Clients = slices.Clone(s.Clients)
		u.Clients[0].Skip = []uint64{skip}
		_, got := watch(t, u)
		same(t, slices.DeleteFunc(slices.Clone(all), func(a sim.Attempt) bool { return a.Client == 0 && a.Request == skip }), got)
	}
}

// Of one instant, the requests come by client and number and then the probes,
// whichever slots they lie in.
func TestCrashOrderOfOneInstant(t *testing.T) {
	s := sim.Scenario{
		Duration: 200 * ms,
		Servers:  []sim.Server{{Service: fixed(10), Workers: -1}},
		Clients:  []sim.Client{at(0, 0, 100, 100, 100), at(0, 0, 0, 100, 100)},
		Script:   []sim.Change{{Kind: sim.Down, At: 105 * ms, For: 10 * ms}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	for i := range s.Clients {
		s.Clients[i].Checks = quick(true)
		s.Clients[i].Checks.Probe.Fall = 1
	}
	var order [][2]uint64
	down := 0
	pools := [2]balancer.Config{s.Pool, s.Pool}
	for i := range pools {
		pools[i].OnEvent = func(ev balancer.Event) {
			if ev.Kind == balancer.UpstreamUnhealthy {
				require.Len(t, order, 5, "probes come after requests")
				require.Equal(t, i, down)
				down++
			}
		}
		s.Clients[i].Pool = &pools[i]
	}
	_, err := sim.Watch(s, func(a sim.Attempt) {
		if a.Begun == 100*ms {
			order = append(order, [2]uint64{uint64(a.Client), a.Request})
		}
	})
	require.NoError(t, err)
	require.Equal(t, [][2]uint64{{0, 3}, {0, 4}, {0, 5}, {1, 4}, {1, 5}}, order)
	require.Equal(t, 2, down)
}

// A server that goes down ends its refusals too; those that come of nobody being
// there have nobody to end them.
func TestDownEndsRefusals(t *testing.T) {
	_, all := watch(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{FastFails: 1, FailTime: fixed(20)}},
		Clients:  []sim.Client{at(0, 12, 25)},
		Script:   []sim.Change{{Kind: sim.Down, At: 10 * ms, For: 5 * ms}, {Kind: sim.Down, At: 20 * ms, For: 5 * ms}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, "10mst 20mst 20msf", took(all))
}

// The books close when the servers have finished, whatever the clients still wait
// for, and say when the last client had its answer.
func TestDrain(t *testing.T) {
	s := sim.Scenario{
		Duration: 50 * ms,
		Servers:  []sim.Server{{Service: fixed(100), Workers: -1}},
		Clients:  []sim.Client{timeout(10, at(0, 10, 20))},
		Pool:     bare(balancer.RoundRobin{}),
	}
	m := stepped(t, s)
	require.Zero(t, m.Taken())
	want := m.Result()
	require.Equal(t, uint64(3), want.Wasted)
	require.Equal(t, uint64(3), want.Timeouts)
	require.Equal(t, 300*ms, want.Servers[0].Busy)
	require.Equal(t, 30*ms, want.Elapsed)
	for _, d := range []time.Duration{21 * ms, time.Second} {
		s.Duration = d
		got := run(t, s)
		require.Equal(t, want.Counts, got.Counts)
		require.Equal(t, want.Servers, got.Servers)
		require.Equal(t, want.Elapsed, got.Elapsed)
	}
	// Those who wait for a worker, too, also behind probes that go on for ever.
	s.Duration = 50 * ms
	s.Servers[0].Workers = 1
	for _, deep := range []bool{false, true} {
		s.Clients[0].Checks = quick(deep)
		m := stepped(t, s)
		require.Equal(t, uint64(3), m.Result().Wasted)
		require.Equal(t, 30*ms, m.Result().Elapsed)
		require.EqualValues(t, 1, m.Result().Servers[0].Probes)
	}
	s.Servers[0].DropExpired = true
	s.Clients[0].Checks = nil
	require.Equal(t, uint64(1), run(t, s).Wasted)
	// What stalls for ever is not waited for.
	s.Clients[0].Checks = quick(true)
	s.Script = []sim.Change{{Kind: sim.Stall, At: 5 * ms}}
	r := run(t, s)
	require.Zero(t, r.Wasted)
	require.Equal(t, 30*ms, r.Elapsed)
}

// A script that goes on after the last request does not, for the result.
func TestElapsed(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Hour,
		Servers:  []sim.Server{{Workers: -1, Service: fixed(1)}},
		Clients:  []sim.Client{at(0)},
		Script:   []sim.Change{{Kind: sim.Brownout, At: 40 * time.Hour}, {Kind: sim.Brownout, At: 30 * time.Minute}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	require.Equal(t, ms, run(t, s).Elapsed)
	s.Clients[0] = timeout(1000, at(0))
	require.Equal(t, ms, run(t, s).Elapsed, "nor does the limit of one that has ended")
	s.Duration = 31 * time.Minute
	require.Equal(t, ms, run(t, s).Elapsed)
	s.Duration = 30 * time.Minute
	require.Equal(t, uint64(3), run(t, s).Events, "an arrival, an answer and a limit, and no change at the end")
	s.Script = append(s.Script, sim.Change{Kind: sim.BlackHole})
	s.Clients[0] = at(0, 5)
	r := run(t, s)
	require.Equal(t, 5*ms, r.Elapsed, "when the last one began, which hangs")
	require.Equal(t, 5*ms, r.Area.Duration())
}

// A worker's time is counted when it has passed: what a crash cuts off, never.
func TestBusy(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: sim.Constant(time.Hour)}},
		Clients:  []sim.Client{at(0, 300)},
		Script:   []sim.Change{{Kind: sim.Down, At: 50 * ms, For: 10 * ms}, {Kind: sim.Down, At: 400 * ms, For: 10 * ms}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	require.Equal(t, 150*ms, run(t, s).Servers[0].Busy)
	s.WarmUp = 100 * ms
	require.Equal(t, 100*ms, run(t, s).Servers[0].Busy)
	// A deep probe is at work when the run ends.
	s = sim.Scenario{
		Duration: 105 * ms,
		Servers:  []sim.Server{{Service: fixed(50), Workers: -1}},
		Clients:  []sim.Client{at(60)},
		Pool:     bare(balancer.RoundRobin{}),
	}
	s.Clients[0].Checks = quick(true)
	r := run(t, s)
	require.Equal(t, 110*ms, r.Elapsed)
	require.Equal(t, 110*ms, r.Servers[0].Busy, "the probe of 0, the request, and 10 ms of the probe of 100 ms")
	s.WarmUp = 10 * ms
	require.Equal(t, 60*ms, run(t, s).Servers[0].Busy, "without the probe of 0")
}

// A request belongs to the warm-up or not, with all its attempts, in every book.
func TestWarmUpIsOfRequests(t *testing.T) {
	s := sim.Scenario{
		Duration: 100 * ms, WarmUp: 20 * ms,
		Servers: []sim.Server{{Service: fixed(40), Workers: -1}},
		Clients: []sim.Client{timeout(30, at(10))},
		Pool:    bare(balancer.RoundRobin{}),
	}
	s.Pool.Retry = balancer.Retry{SameUpstream: 2, Max: 1}
	s.Pool.Budget.Off = true
	r := run(t, s)
	require.Equal(t, sim.Counts{Requests: 1, Failed: 1, Attempts: 2, Retries: 1, Timeouts: 2, Wasted: 2, EndAttempts: 1}, r.Total)
	require.Zero(t, r.Counts)
	require.Equal(t, sim.ServerResult{ID: "s"}, r.Servers[0])

	s.WarmUp = 10 * ms
	r = run(t, s)
	require.Equal(t, r.Total, r.Counts)
	require.Equal(t, sim.ServerResult{ID: "s", Attempts: 2, Failures: 2, Busy: 80 * ms}, r.Servers[0])
}

// Little's law holds for each server too: what it has, added up over time, is the
// time that all attempts have spent there.
func TestLittleByServer(t *testing.T) {
	def, _ := seedOf(t, 1)
	s := mess(def)
	// Servers keep what a client has given up; here nobody does.
	for i := range s.Clients {
		s.Clients[i].Timeout, s.Clients[i].Deadline = 0, 0
	}
	s.Script = slices.DeleteFunc(s.Script, func(c sim.Change) bool { return c.Kind == sim.BlackHole })
	s.Servers[2].Priority = 0
	_, all := watch(t, s)
	want, got := map[string]time.Duration{}, map[string]time.Duration{}
	for _, a := range all {
		want[a.Server] += a.Took
	}
	m, err := sim.NewMachine(s)
	require.NoError(t, err)
	last, load := time.Duration(0), m.Load()
	for m.Step() {
		for id, n := range load {
			got[id] += time.Duration(n) * (m.Now() - last)
		}
		last, load = m.Now(), m.Load()
	}
	require.Len(t, got, 12)
	require.Equal(t, want, got)
}
