package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// onlyFails is one server that answers every request with a Failure after 10 ms.
func onlyFails(c sim.Client) sim.Scenario {
	s := sim.Scenario{
		Duration: time.Second, Interval: 100 * ms,
		Servers: []sim.Server{{Workers: -1, Service: fixed(10), Errors: 1}},
		Clients: []sim.Client{c},
		Pool:    bare(balancer.RoundRobin{First: true}),
	}
	s.Pool.Retry = balancer.Retry{OnFailure: true, SameUpstream: 9, Max: 1}
	s.Pool.Budget = retrybudget.Config{Off: true}
	return s
}

// Each way for a request to fail has its count, of which all together are Failed.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*sim.Scenario)
		want sim.Counts
	}{
		{"a success", func(s *sim.Scenario) { s.Servers[0].Errors = 0 },
			sim.Counts{Requests: 1, OK: 1, Good: 1, Attempts: 1}},
		{"not retried", func(s *sim.Scenario) { s.Pool.Retry.OnFailure = false },
			sim.Counts{Requests: 1, Failed: 1, Attempts: 1, EndAnswered: 1}},
		{"all retries used up", func(s *sim.Scenario) {},
			sim.Counts{Requests: 1, Failed: 1, Attempts: 2, Retries: 1, EndAttempts: 1}},
		{"no server left", func(s *sim.Scenario) { s.Pool.Retry.SameUpstream = 0 },
			sim.Counts{Requests: 1, Failed: 1, Attempts: 1, EndNoTarget: 1}},
		{"no budget left", func(s *sim.Scenario) {
			s.Pool.Budget = retrybudget.Config{PerRequest: .001, PerSuccess: -1, PerSecond: -1, Initial: -1}
		}, sim.Counts{Requests: 1, Failed: 1, Attempts: 1, EndBudget: 1}},
		{"no time left", func(s *sim.Scenario) {
			s.Clients[0].Deadline = 15 * ms
			s.Pool.Retry.Backoff = balancer.Backoff{Base: 5 * ms, JitterPercent: -1}
		}, sim.Counts{Requests: 1, Failed: 1, Attempts: 1, EndDeadline: 1}},
		{"no server at all", func(s *sim.Scenario) { s.Servers[0].Weight = -1 },
			sim.Counts{Requests: 1, Failed: 1, Unsent: 1, EndUnavailable: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := onlyFails(at(0))
			c.edit(&s)
			r := run(t, s)
			require.Equal(t, c.want, r.Counts)
			require.Equal(t, c.want, r.Total)
		})
	}
}

func endsOf(c sim.Counts) uint64 {
	return c.EndAnswered + c.EndAttempts + c.EndNoTarget + c.EndBudget + c.EndDeadline + c.EndUnavailable
}

// A share is of the attempts: with retries all of them still add up to one.
func TestShares(t *testing.T) {
	s := mess(3)
	s.Duration, s.Script = time.Second, nil
	r := run(t, s)
	require.Positive(t, r.Retries)
	sum := 0.0
	for i := range r.Servers {
		sum += r.Share(i)
	}
	require.InDelta(t, 1, sum, 1e-12)
	require.Zero(t, sim.Result{Servers: make([]sim.ServerResult, 1)}.Share(0))
}

// A column has the requests that arrived in it and the attempts that were sent in
// it: the one at a boundary is the next one's, and so is the retry of one that
// came before it.
func TestColumns(t *testing.T) {
	s := onlyFails(at(0, 95, 100, 200, 295))
	r := run(t, s)
	require.Equal(t, []sim.Column{{Requests: 2, Attempts: 3}, {Requests: 1, Attempts: 3}, {Requests: 2, Attempts: 3}, {Attempts: 1}}, r.Series[:4])
	require.Len(t, r.Series, 10)

	s.Servers[0].Errors = 0
	s.Clients[0].Target = 9 * ms
	r = run(t, s)
	require.Equal(t, sim.Column{Requests: 2, OK: 2, Attempts: 2}, r.Series[0])
}

// What the warm-up leaves out, it leaves out of every book of the measured part:
// one request before its end and one after it, of each fate.
func TestWarmUpBooks(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second, WarmUp: 500 * ms,
		Servers: []sim.Server{{Workers: -1, Service: fixed(10)}},
		Clients: []sim.Client{at(0, 600)},
		Pool:    bare(balancer.RoundRobin{}),
	}
	s.Script = []sim.Change{{Kind: sim.BlackHole}}
	r := run(t, s)
	require.Equal(t, uint64(2), r.Total.Hung)
	require.Equal(t, uint64(1), r.Hung)

	s.Script = nil
	s.Clients[0].Timeout = 8 * ms
	r = run(t, s)
	require.Equal(t, sim.Counts{Requests: 2, Failed: 2, Attempts: 2, Timeouts: 2, Wasted: 2, EndNoTarget: 2}.Wasted, r.Total.Wasted)
	require.Equal(t, uint64(1), r.Wasted)
	require.Equal(t, uint64(1), r.Timeouts)
	require.Equal(t, uint64(1), r.Servers[0].Attempts)
	require.Equal(t, uint64(1), r.Servers[0].Failures)
	require.Equal(t, uint64(1), r.FailLatency.Count())
	require.Equal(t, 10*ms, r.Servers[0].Busy)
}

// An ejection counts for the changes that it falls into, by its breaker too.
func TestTakenOut(t *testing.T) {
	s := sim.Scenario{
		Duration: 10 * time.Second,
		Servers:  []sim.Server{{Count: 5, Workers: -1}},
		Clients:  []sim.Client{{Rate: 500, Even: true}},
		Script: []sim.Change{
			{Kind: sim.Brownout, Factor: 1, For: time.Second, Servers: "s-0"},
			{Kind: sim.Errors, At: 2 * time.Second, For: time.Second, Servers: "s-0"},
			{Kind: sim.Brownout, Factor: 1, At: 2 * time.Second, For: 7 * time.Second, Servers: "s-1"},
			{Kind: sim.Brownout, Factor: 1, At: 4 * time.Second, Servers: "s-0"},
		},
		Pool: balancer.Config{Policy: balancer.RoundRobin{}, Retry: balancer.Retry{Off: true}},
	}
	for name, edit := range map[string]func(*balancer.Config){
		"by ejection": func(c *balancer.Config) {
			c.Breaker = breaker.Config{Off: true}
			c.Outlier = outlier.Config{Base: time.Second}
		},
		"by the breaker": func(c *balancer.Config) { c.Outlier = outlier.Config{Off: true} },
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			edit(&s.Pool)
			r := run(t, s)
			trips, ejections := r.Servers[0].Trips, r.Servers[0].Ejections
			require.Equal(t, name == "by the breaker", trips > 0)
			require.Equal(t, name == "by ejection", ejections > 0)
			var counts []int
			for _, c := range r.Changes {
				counts = append(counts, c.Ejected.Count)
			}
			require.Equal(t, []int{0, 1, 0, 0}, counts)
			require.Less(t, r.Changes[1].Ejected.First, time.Second)
			require.Positive(t, r.Changes[1].Ejected.First)
		})
	}
}

// The first success of a server after a change must be one: while another change
// still makes it fail it has none. Two servers, two times.
func TestFirstSuccess(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Count: 2, Workers: -1, Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 0, 120, 120, 210, 250)},
		Script: []sim.Change{
			{Kind: sim.Errors, For: 100 * ms},
			{Kind: sim.Errors, For: 200 * ms},
		},
		Pool: bare(balancer.RoundRobin{First: true}),
	})
	require.Equal(t, sim.Spread{Count: 2, First: 120 * ms, Last: 160 * ms, Sum: 280 * ms}, r.Changes[0].FirstSuccess)
	require.Equal(t, sim.Spread{Count: 2, First: 20 * ms, Last: 60 * ms, Sum: 80 * ms}, r.Changes[1].FirstSuccess)
	require.Equal(t, 40*ms, r.Changes[1].FirstSuccess.Mean())
}

// Three at once at one worker: two wait.
func TestLongestQueue(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{}},
		Clients:  []sim.Client{at(0, 0, 0, 100, 100)},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, 2, r.Servers[0].LongestQueue)
}

// The books of a hundred small scenarios, to the last request; nothing that has
// ended holds a place.
func TestBooksClose(t *testing.T) {
	def, _ := seedOf(t, 21)
	for seed := def; seed < def+uint64(opsOf(t, 4)); seed++ {
		s := mess(seed)
		s.Duration = 1500 * ms
		m, err := sim.NewMachine(s)
		require.NoError(t, err)
		for m.Step() {
		}
		r := m.Result()
		for _, c := range []sim.Counts{r.Counts, r.Total} {
			require.Equal(t, c.Failed, endsOf(c))
			require.Equal(t, c.Attempts, c.Requests+c.Retries-c.Unsent)
		}
		require.Zero(t, r.Total.Hung)
	}
}

// A crash gives back what it fails: in service, waiting, held by a stall and
// swallowed.
func TestCrashGivesBack(t *testing.T) {
	for _, k := range []sim.Kind{sim.Errors, sim.BlackHole, sim.Stall} {
		t.Run(k.String(), func(t *testing.T) {
			m, err := sim.NewMachine(sim.Scenario{
				Duration: time.Second,
				Servers:  []sim.Server{{Service: fixed(20), Workers: 2}},
				Clients:  []sim.Client{at(0, 1, 2, 3, 20, 21)},
				Script: []sim.Change{
					{Kind: k, At: 2 * ms, For: 300 * ms},
					{Kind: sim.Down, At: 100 * ms, For: 50 * ms},
				},
				Pool: bare(balancer.RoundRobin{}),
			})
			require.NoError(t, err)
			for m.Step() {
			}
			require.Zero(t, m.Taken())
			require.Zero(t, m.Result().Hung)
		})
	}
}
