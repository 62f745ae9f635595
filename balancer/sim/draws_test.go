package sim_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// A client's draws are by its place in its group: how many there are of another
// group is nothing to it. Pools with a seed do not all draw the same.
func TestClientsDrawApart(t *testing.T) {
	s := sim.Scenario{
		Seed: 1, Duration: time.Second,
		Servers: []sim.Server{{Count: 10, Workers: -1, Service: sim.Exponential(10 * ms)}},
		Clients: []sim.Client{{Count: 2, Rate: 50}, {Count: 3, Rate: 30}, {Users: 3, Think: sim.Exponential(20 * ms), Sees: 4}},
		Pool:    bare(balancer.Random{}),
	}
	of := func(s sim.Scenario, client int) (out []sim.Attempt) {
		_, all := watch(t, s)
		for _, a := range all {
			if a.Client == client {
				a.Client = 0
				out = append(out, a)
			}
		}
		require.NotEmpty(t, out)
		return out
	}
	for _, seed := range []uint64{0, 7} {
		s.Pool.Seed = seed
		more := s
		more.Clients = slices.Clone(s.Clients)
		more.Clients[0].Count++
		for client := range 6 {
			moved := client
			if client >= 2 {
				moved++
			}
			require.True(t, reflect.DeepEqual(of(s, client), of(more, moved)), "client %d, seed %d", client, seed)
		}
	}

	s.Clients = []sim.Client{{Count: 100, Times: []time.Duration{0}}}
	s.Pool.Seed = 1
	_, all := watch(t, s)
	first := map[string]int{}
	for _, a := range all {
		first[a.Server]++
	}
	require.Len(t, first, 10, "a hundred first requests, ten servers")
	// The first client's seed is the one that is set, of each Config.
	other := s.Pool
	s.Clients = []sim.Client{
		{Count: 2, Times: make([]time.Duration, 30), Pool: &other},
		{Count: 2, Times: make([]time.Duration, 30)},
	}
	picks := [4][30]string{}
	_, all = watch(t, s)
	for _, a := range all {
		picks[a.Client][a.Request-1] = a.Server
	}
	require.NotEqual(t, picks[0], picks[1])
	require.NotEqual(t, picks[2], picks[3])
	require.NotEqual(t, picks[1], picks[3])
	var members []member
	for i := range 10 {
		members = append(members, member(fmt.Sprintf("s-%d", i)))
	}
	pool, err := balancer.NewPool(s.Pool, members...)
	require.NoError(t, err)
	for i := range 30 {
		try := pool.Start(balancer.Request{ID: uint64(i + 1)})
		id := try.Next().Lease.Upstream().ID()
		require.Equal(t, id, picks[0][i])
		require.Equal(t, id, picks[2][i])
	}
}

type member string

func (m member) ID() string { return string(m) }

// The instant at which a user begins has nothing to do with how long its first
// pause would be.
func TestUsersBeginAnywhere(t *testing.T) {
	s := served(sim.Client{Users: 4000, Think: sim.Normal(100*ms, 30*ms)})
	s.Duration = 2 * time.Second
	_, all := watch(t, s)
	sum, n, seen := 0.0, 0, map[uint64]bool{}
	for _, a := range all {
		if user := a.Request >> 32; !seen[user] {
			seen[user] = true
			sum += a.Begun.Seconds()
			n++
		}
	}
	require.Equal(t, 4000, n)
	// Uniform below a normal pause: the mean is 50 ms, the variance
	// E[p²]/3 - 50² = (100²+30²)/3 - 50² ms².
	require.InDelta(t, .050, sum/4000, 6*.0337/63)
}

// The memory of a run is for what is under way, not for what was within a timeout
// or a deadline.
func TestLimitsAreForgotten(t *testing.T) {
	for _, edit := range []func(*sim.Client){
		func(c *sim.Client) { c.Timeout = time.Hour },
		func(c *sim.Client) { c.Deadline = time.Hour },
		func(c *sim.Client) { c.Timeout, c.Deadline = time.Hour, 2*time.Hour },
	} {
		s := served(sim.Client{Rate: 10_000, Even: true})
		edit(&s.Clients[0])
		s.Duration = 10 * time.Second
		s.Script = []sim.Change{{Kind: sim.BlackHole, At: 5 * time.Second, For: 5 * ms}}
		m, err := sim.NewMachine(s)
		require.NoError(t, err)
		for m.Step() {
			require.Less(t, m.Waits(), 2000)
		}
		r := m.Result()
		require.Equal(t, uint64(50), r.Timeouts, "those who wait are not forgotten")
		require.Equal(t, uint64(100_000-50), r.OK)
	}
}
