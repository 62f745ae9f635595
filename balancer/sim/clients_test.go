package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// A client waits for the shorter of its two limits.
func TestTimeoutAndDeadline(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 0, 5)},
		Pool:     bare(balancer.RoundRobin{}),
	}
	for _, c := range []struct{ timeout, deadline time.Duration }{{12 * ms, 50 * ms}, {50 * ms, 12 * ms}, {12 * ms, 12 * ms}, {12 * ms, 0}, {0, 12 * ms}} {
		s.Clients[0].Timeout, s.Clients[0].Deadline = c.timeout, c.deadline
		_, all := watch(t, s)
		require.Equal(t, "10mss 12mst 12mst", took(all), "timeout %v, deadline %v", c.timeout, c.deadline)
	}
}

// A client with a Pool of its own does not follow the scenario's.
func TestPoolOfItsOwn(t *testing.T) {
	s := onlyFails(at(0, 100))
	again := s.Pool
	s.Pool = bare(balancer.RoundRobin{})
	s.Clients = append(s.Clients, at(0, 100))
	s.Clients[1].Pool = &again
	_, all := watch(t, s)
	sent := [2]int{}
	for _, a := range all {
		sent[a.Client]++
	}
	require.Equal(t, [2]int{2, 4}, sent)
}

// MaxInflight is of one client at one server.
func TestMaxInflight(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Workers: -1, MaxInflight: 1}},
		Clients:  []sim.Client{at(0, 0, 0, 100), at(0)},
		Pool:     bare(balancer.RoundRobin{}),
	}
	r := run(t, s)
	require.Equal(t, uint64(3), r.OK)
	require.Equal(t, uint64(2), r.Unsent)
	require.Equal(t, uint64(2), r.EndUnavailable)
}

// A user's request that would begin at Duration does not; one that could not be
// sent is followed by a pause of a millisecond, however short Think is.
func TestUsersAtTheEdges(t *testing.T) {
	s := sim.Scenario{
		Duration: 100 * ms,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{{Users: 1}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	require.Equal(t, uint64(10), run(t, s).Requests)

	s.Servers[0].Weight = -1
	for _, think := range []sim.Dist{{}, sim.Constant(time.Microsecond), fixed(1)} {
		s.Clients[0].Think = think
		r := run(t, s)
		require.Equal(t, r.Requests, r.Unsent)
		require.Equal(t, uint64(100), r.Requests, "%v", think)
	}
	s.Clients[0].Think = fixed(2)
	require.Equal(t, uint64(50), run(t, s).Requests)
}

// A run ends with its last request, also where that is just at Duration and the
// script would go on for days.
func TestLastEndAtDuration(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: 20 * ms,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 10)},
		Script:   []sim.Change{{Kind: sim.Brownout, Factor: 1, At: 30 * time.Hour}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, 20*ms, r.Elapsed)
	require.Equal(t, uint64(4), r.Events, "two arrivals, two answers")
	require.Equal(t, uint64(2), r.OK)
}

// Changes at their edges, worked out by hand.
func TestChangesAtTheEdges(t *testing.T) {
	one := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Workers: -1, Service: fixed(10)}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	t.Run("a flapping ends at Duration", func(t *testing.T) {
		s := one
		// Down from 500 to 700; the next time would be at 900.
		s.Duration = 850 * ms
		s.Servers = []sim.Server{{Workers: -1, Service: fixed(500)}}
		s.Clients = []sim.Client{at(600, 750)}
		s.Script = []sim.Change{{Kind: sim.Flapping, At: 500 * ms, Every: 400 * ms}}
		_, all := watch(t, s)
		require.Equal(t, "500µst 500mss", took(all))
	})
	t.Run("its period is ten seconds by default", func(t *testing.T) {
		s := one
		s.Duration = 30 * time.Second
		s.Clients = []sim.Client{at(4900, 5100, 9900, 10_100)}
		s.Script = []sim.Change{{Kind: sim.Flapping}}
		_, all := watch(t, s)
		require.Equal(t, "500µst 10mss 10mss 500µst", took(all))
	})
	t.Run("the last of two surges counts", func(t *testing.T) {
		s := one
		s.Clients = []sim.Client{{Rate: 1000, Even: true}}
		s.Script = []sim.Change{{Kind: sim.Surge, Factor: 2}, {Kind: sim.Surge, Factor: 3}}
		require.InDelta(t, 3000, float64(run(t, s).Requests), 1)
	})
	t.Run("a cold start and a brownout multiply", func(t *testing.T) {
		s := one
		s.Clients = []sim.Client{at(100)}
		s.Script = []sim.Change{{Kind: sim.Brownout, Factor: 2}, {Kind: sim.ColdStart, For: 300 * ms}}
		_, all := watch(t, s)
		require.Equal(t, "60mss", took(all))
	})
	t.Run("a service is never longer than two days", func(t *testing.T) {
		s := one
		s.Servers = []sim.Server{{Workers: -1, Service: sim.Constant(10 * time.Hour)}}
		s.Clients = []sim.Client{at(0)}
		s.Script = []sim.Change{{Kind: sim.Brownout, Factor: 1e6}}
		require.Equal(t, 48*time.Hour, run(t, s).Elapsed)
		s.Script[0].Factor = 4.8
		require.InDelta(t, float64(48*time.Hour), float64(run(t, s).Elapsed), float64(time.Second))
	})
	t.Run("after a stall the order is that of the work", func(t *testing.T) {
		s := one
		s.Servers = []sim.Server{{Workers: 3, Service: fixed(10), SlowDown: .5}}
		s.Clients = []sim.Client{at(0, 1, 2)}
		s.Script = []sim.Change{{Kind: sim.Stall, At: 5 * ms, For: 50 * ms}}
		_, all := watch(t, s)
		var sent []time.Duration
		for _, a := range all {
			sent = append(sent, a.Sent)
		}
		require.Equal(t, []time.Duration{0, ms, 2 * ms}, sent)
	})
}
