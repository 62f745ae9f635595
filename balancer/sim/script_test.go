package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// The width of a column may be longer than the run.
func TestLongInterval(t *testing.T) {
	for _, d := range []time.Duration{time.Second, time.Second + 1, 1<<63 - 1} {
		s := served(sim.Client{Rate: 10, Even: true})
		s.Interval = d
		r := run(t, s)
		require.Len(t, r.Series, 1)
		require.Equal(t, r.Requests, r.Series[0].Requests)
		since, ok := r.Recovery(0, .99)
		require.True(t, ok)
		require.Zero(t, since)
	}
}

// With Every set, the servers start cold one after the other, as they come back
// from a Roll.
func TestColdStartsInTurn(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Count: 3, Workers: -1, Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 0, 0, 150, 150, 150, 250, 250, 250, 450, 450, 450)},
		Script:   []sim.Change{{Kind: sim.ColdStart, At: 100 * ms, For: 100 * ms, Every: 100 * ms}},
		Pool:     bare(balancer.RoundRobin{First: true}),
	}
	r, all := watch(t, s)
	slow := map[string][]time.Duration{}
	for _, a := range all {
		if a.Took > 10*ms {
			slow[a.Server] = append(slow[a.Server], a.Begun)
			require.Equal(t, 20*ms, a.Took)
		}
	}
	require.Equal(t, map[string][]time.Duration{"s-0": {150 * ms}, "s-1": {250 * ms}}, slow)
	require.Equal(t, 3, r.Changes[0].FirstSuccess.Count)

	s.Script[0].Every = 0
	_, all = watch(t, s)
	require.Equal(t, "10mss 10mss 10mss 20mss 20mss 20mss 10mss 10mss 10mss 10mss 10mss 10mss", took(all))
}

// A script has no more than a million boundaries of one change.
func TestFastFlapping(t *testing.T) {
	s := served(sim.Client{Rate: 10})
	s.Duration = 2 * time.Second
	for _, c := range []struct {
		every, at, last time.Duration
		good            bool
	}{
		{2, 0, 0, false}, {2, 0, 2 * ms, true}, {2, 0, 2*ms + 2, false},
		{2 * time.Microsecond, 0, 0, true}, {2*time.Microsecond - 1, 0, 0, false},
		{time.Microsecond, time.Second, 0, true}, {2, 3 * time.Second, 0, true},
	} {
		s.Script = []sim.Change{{Kind: sim.Flapping, Every: c.every, At: c.at, For: c.last}}
		err := s.Validate()
		if c.good {
			require.NoError(t, err, "%+v", c)
		} else {
			require.ErrorContains(t, err, "Scenario.Script[0].Every", "%+v", c)
		}
	}
}

// What is many times many is bounded, not only each number.
func TestFleetSizes(t *testing.T) {
	const most = 1 << 20
	for _, c := range []struct {
		servers, more, clients, sees, users int
		field                               string
	}{
		{most, 1, 1, 0, 0, "Scenario.Servers"},
		{1 << 10, 0, 1 << 14, 0, 0, ""}, {1 << 10, 0, 1<<14 + 1, 0, 0, "Scenario.Clients"},
		{1 << 10, 1, 1 << 14, 0, 0, "Scenario.Clients"},
		{1 << 10, 0, most, 16, 0, ""}, {1 << 10, 0, most, 17, 0, "Scenario.Clients"},
		{1, 0, 16, 0, most, ""}, {1, 0, 17, 0, most, "Scenario.Clients"},
		{1, 0, most, 0, most, "Scenario.Clients"},
	} {
		s := served(sim.Client{Count: c.clients, Sees: c.sees, Users: c.users})
		if c.users == 0 {
			s.Clients[0].Rate = 1
		}
		s.Servers[0].Count = c.servers
		if c.more > 0 {
			s.Servers = append(s.Servers, sim.Server{Name: "more", Count: c.more})
		}
		err := s.Validate()
		if c.field == "" {
			require.NoError(t, err, "%+v", c)
			continue
		}
		var ce *sim.ConfigError
		require.ErrorAs(t, err, &ce, "%+v", c)
		require.Equal(t, c.field, ce.Field)
	}
}
