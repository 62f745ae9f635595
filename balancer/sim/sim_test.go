package sim_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
)

const ms = time.Millisecond

// bare is a Pool that only balances.
func bare(p balancer.Policy) balancer.Config {
	return balancer.Config{
		Policy:  p,
		Breaker: breaker.Config{Off: true},
		Outlier: outlier.Config{Off: true},
		Retry:   balancer.Retry{Off: true},
	}
}

func run(t testing.TB, s sim.Scenario) sim.Result {
	t.Helper()
	r, err := sim.Run(s)
	require.NoError(t, err)
	return r
}

// watch returns the attempts of a run, too.
func watch(t testing.TB, s sim.Scenario) (sim.Result, []sim.Attempt) {
	t.Helper()
	var all []sim.Attempt
	r, err := sim.Watch(s, func(a sim.Attempt) { all = append(all, a) })
	require.NoError(t, err)
	return r, all
}

// at sends one request at each of the given milliseconds.
func at(times ...int) sim.Client {
	c := sim.Client{}
	for _, x := range times {
		c.Times = append(c.Times, time.Duration(x)*ms)
	}
	return c
}

func fixed(n time.Duration) sim.Dist { return sim.Constant(n * ms) }

// took lists how long each attempt took, in milliseconds, and its outcome's
// initial, in the order of settling.
func took(all []sim.Attempt) string {
	var out []string
	for _, a := range all {
		out = append(out, a.Took.String()+a.Outcome.String()[:1])
	}
	return strings.Join(out, " ")
}

// A server with one worker answers in order; the figures are worked out by hand.
func TestQueue(t *testing.T) {
	one := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 0, 5)},
		Pool:     bare(balancer.RoundRobin{}),
	}
	for _, c := range []struct {
		name string
		edit func(*sim.Scenario)
		want string
	}{
		{"one worker", func(*sim.Scenario) {}, "10mss 20mss 25mss"},
		{"two workers", func(s *sim.Scenario) { s.Servers[0].Workers = 2 }, "10mss 10mss 15mss"},
		{"any number", func(s *sim.Scenario) { s.Servers[0].Workers = -1 }, "10mss 10mss 10mss"},
		{"a place for one", func(s *sim.Scenario) { s.Servers[0].Queue = 1 }, "500µsf 10mss 20mss"},
		{"no place", func(s *sim.Scenario) { s.Servers[0].Queue = -1 }, "500µsf 500µsf 10mss"},
		{"slower together", func(s *sim.Scenario) { s.Servers[0].Workers, s.Servers[0].SlowDown = -1, .5 }, "10mss 15mss 20mss"},
		{"given up", func(s *sim.Scenario) { s.Clients[0].Timeout = 12 * ms }, "10mss 12mst 12mst"},
		{"the dead are skipped", func(s *sim.Scenario) {
			s.Clients[0] = at(0, 0, 5)
			s.Clients[0].Timeout = 8 * ms
			s.Servers[0].DropExpired = true
		}, "8mst 8mst 8mst"},
		{"deadline", func(s *sim.Scenario) { s.Clients[0].Deadline = 15 * ms }, "10mss 15mst 15mst"},
		{"a failing server", func(s *sim.Scenario) { s.Servers[0].Errors = 1 }, "10msf 20msf 25msf"},
		{"refusals", func(s *sim.Scenario) { s.Servers[0].FastFails, s.Servers[0].FailTime = 1, fixed(2) }, "2msf 2msf 2msf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := one
			s.Servers = append([]sim.Server{}, one.Servers...)
			s.Clients = append([]sim.Client{}, one.Clients...)
			c.edit(&s)
			r, all := watch(t, s)
			// The order of a refusal and an answer is by time, not by arrival.
			require.Equal(t, c.want, took(all))
			require.Zero(t, r.Hung)
			require.Equal(t, r.Area, r.Sojourn)
		})
	}
}

// A worker goes on with what its client has given up on.
func TestWastedWork(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 0, 50)},
		Pool:     bare(balancer.RoundRobin{}),
	}
	s.Clients[0].Timeout = 8 * ms
	r := run(t, s)
	require.Equal(t, uint64(3), r.Timeouts)
	require.Equal(t, uint64(3), r.Wasted)
	require.Equal(t, 30*ms, r.Servers[0].Busy)

	s.Servers[0].DropExpired = true
	require.Equal(t, 20*ms, run(t, s).Servers[0].Busy, "the second one was never served")
}

// What the script does, worked out by hand: requests at 0, 100, ... ms, service
// 10 ms, the change from 150 ms to 350 ms, so that it meets those at 200 and 300.
func TestScript(t *testing.T) {
	for _, c := range []struct {
		name   string
		change sim.Change
		want   string
	}{
		{"brownout", sim.Change{Kind: sim.Brownout, Factor: 3}, "10mss 10mss 30mss 30mss 10mss"},
		{"brownout by default", sim.Change{Kind: sim.Brownout}, "10mss 10mss 100mss 100mss 10mss"},
		{"brownout to a time", sim.Change{Kind: sim.Brownout, Service: fixed(20)}, "10mss 10mss 20mss 20mss 10mss"},
		{"errors", sim.Change{Kind: sim.Errors}, "10mss 10mss 10msf 10msf 10mss"},
		{"sinkhole", sim.Change{Kind: sim.Sinkhole}, "10mss 10mss 500µsf 500µsf 10mss"},
		{"sinkhole of a time", sim.Change{Kind: sim.Sinkhole, Service: fixed(3)}, "10mss 10mss 3msf 3msf 10mss"},
		{"refusals", sim.Change{Kind: sim.Refusals}, "10mss 10mss 500µst 500µst 10mss"},
		{"refusals of a time", sim.Change{Kind: sim.Refusals, Service: fixed(3)}, "10mss 10mss 3mst 3mst 10mss"},
		{"black hole", sim.Change{Kind: sim.BlackHole}, "10mss 10mss 10mss 250mst 250mst"},
		{"down", sim.Change{Kind: sim.Down}, "10mss 10mss 500µst 500µst 10mss"},
		// 200 ms over 50 and 150 ms are 4 and 1.333.
		{"cold start", sim.Change{Kind: sim.ColdStart}, "10mss 10mss 40mss 13.333282ms 10mss"},
		{"cold start, bounded", sim.Change{Kind: sim.ColdStart, Factor: 2}, "10mss 10mss 20mss 13.333282ms 10mss"},
		// Down from 150 to 200 and from 250 to 300: it is up again at 200 and 300.
		{"flapping", sim.Change{Kind: sim.Flapping, Every: 100 * ms}, "10mss 10mss 10mss 10mss 10mss"},
		// Down from 150 to 210, from 270 to 330.
		{"flapping wide", sim.Change{Kind: sim.Flapping, Every: 120 * ms}, "10mss 10mss 500µst 500µst 10mss"},
		// The one at 200 waits until 350 and is served then, the one at 300 after it.
		{"stall", sim.Change{Kind: sim.Stall}, "10mss 10mss 160mss 70mss 10mss"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change.At, c.change.For = 150*ms, 200*ms
			client := at(0, 100, 200, 300, 400)
			client.Timeout = 250 * ms
			_, all := watch(t, sim.Scenario{
				Duration: time.Second,
				Servers:  []sim.Server{{Service: fixed(10)}},
				Clients:  []sim.Client{client},
				Script:   []sim.Change{c.change},
				Pool:     bare(balancer.RoundRobin{}),
			})
			got := took(all)
			if strings.HasPrefix(c.name, "cold") {
				got = strings.Replace(got, "13.333282mss", "13.333282ms", 1)
			}
			require.Equal(t, c.want, got)
		})
	}

	t.Run("down in mid service", func(t *testing.T) {
		_, all := watch(t, sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Service: fixed(100)}},
			Clients:  []sim.Client{at(0, 10, 90)},
			Script:   []sim.Change{{Kind: sim.Down, At: 50 * ms, For: 30 * ms}},
			Pool:     bare(balancer.RoundRobin{}),
		})
		require.Equal(t, "50mst 40mst 100mss", took(all), "one in service, one in the queue, one after")
	})
	t.Run("stall in mid service", func(t *testing.T) {
		_, all := watch(t, sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Service: fixed(100)}},
			Clients:  []sim.Client{at(0, 10)},
			Script:   []sim.Change{{Kind: sim.Stall, At: 50 * ms, For: 80 * ms}},
			Pool:     bare(balancer.RoundRobin{}),
		})
		require.Equal(t, "180mss 270mss", took(all), "half of the first was done")
	})
	t.Run("a zone is lost", func(t *testing.T) {
		r := run(t, sim.Scenario{
			Duration: 20 * time.Second,
			Servers:  []sim.Server{{Name: "a", Count: 4, Zone: "east", Workers: 8}, {Name: "b", Count: 4, Zone: "west", Workers: 8}},
			Clients:  []sim.Client{{Rate: 1000, Even: true, Timeout: time.Second}},
			Script:   []sim.Change{{Kind: sim.Down, At: 3 * time.Second, For: 3 * time.Second, Servers: "zone:west"}},
			Pool:     balancer.Config{Policy: balancer.RoundRobin{}, Outlier: outlier.Config{Base: 2 * time.Second}},
		})
		require.Equal(t, 4, r.Changes[0].Ejected.Count)
		require.Equal(t, 4, r.Changes[0].FirstSuccess.Count)
		require.Less(t, r.Failed, uint64(40), "a request that meets a lost server is tried elsewhere, twice")
		require.Greater(t, r.Retries, uint64(15))
	})
	t.Run("deploy", func(t *testing.T) {
		s := sim.Scenario{
			Duration: 5 * time.Second,
			Servers:  []sim.Server{{Count: 3, Workers: 8}},
			Clients:  []sim.Client{{Rate: 900, Even: true}},
			Script:   []sim.Change{{Kind: sim.Roll, At: time.Second, For: time.Second, Every: time.Second}},
			Pool:     balancer.Config{Policy: balancer.RoundRobin{}},
		}
		r, all := watch(t, s)
		require.Equal(t, r.Requests, r.OK)
		for _, a := range all {
			i := int(a.Server[2] - '0')
			out := a.Sent >= time.Duration(1+i)*time.Second && a.Sent < time.Duration(2+i)*time.Second
			require.False(t, out, "%s was sent %v", a.Server, a.Sent)
		}
		for _, v := range r.Servers {
			// A third of two seconds, half of two more.
			require.InDelta(t, 900*2/3+900*2/2, float64(v.Attempts), 6)
		}
	})
	t.Run("surge", func(t *testing.T) {
		r := run(t, sim.Scenario{
			Duration: 3 * time.Second,
			Servers:  []sim.Server{{Workers: -1}},
			Clients:  []sim.Client{{Rate: 100, Even: true}},
			Script:   []sim.Change{{Kind: sim.Surge, At: time.Second, For: time.Second, Factor: 3}},
			Pool:     bare(balancer.RoundRobin{}),
		})
		require.InDelta(t, 100, float64(r.Series[0].Requests), 1)
		require.InDelta(t, 300, float64(r.Series[1].Requests), 3)
		require.InDelta(t, 100, float64(r.Series[2].Requests), 1)
	})
}

// A black hole and a client without a limit: the run ends all the same, and says
// what hung.
func TestHung(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{}},
		Clients:  []sim.Client{at(0, 600)},
		Script:   []sim.Change{{Kind: sim.BlackHole, At: 500 * ms}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	require.Equal(t, uint64(1), r.OK)
	require.Equal(t, uint64(1), r.Hung)
	require.Equal(t, uint64(1), r.Total.Hung)
}

func TestRetries(t *testing.T) {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Name: "bad", Errors: 1, Service: fixed(10)}, {Name: "good", Service: fixed(10)}},
		Clients:  []sim.Client{at(0, 100)},
		Pool: balancer.Config{
			Seed:   1,
			Policy: balancer.RoundRobin{First: true},
			Retry: balancer.Retry{OnFailure: true, Backoff: balancer.Backoff{
				Base: 5 * ms, JitterPercent: -1,
			}},
		},
	}
	r, all := watch(t, s)
	require.Equal(t, uint64(2), r.OK)
	require.Equal(t, r.Requests+r.Retries, r.Attempts)
	var sent []time.Duration
	for _, a := range all {
		if a.Attempt == 1 {
			sent = append(sent, a.Sent)
			require.Equal(t, "good", a.Server)
		}
	}
	require.NotEmpty(t, sent)
	require.Equal(t, 15*ms, sent[0], "10 ms of service and 5 ms of back-off")
}

func TestClosedLoop(t *testing.T) {
	s := sim.Scenario{
		Duration: 10 * time.Second,
		Servers:  []sim.Server{{Workers: -1, Service: fixed(10)}},
		Clients:  []sim.Client{{Users: 5, Think: fixed(90)}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	r := run(t, s)
	require.Equal(t, uint64(500), r.Requests, "five users, a request every 100 ms each")

	// Users who cannot send at all do not stop the clock.
	s.Clients[0].Think = sim.Dist{}
	s.Servers[0].Weight = -1
	r = run(t, s)
	require.Equal(t, r.Requests, r.Unsent)
	require.Equal(t, uint64(5*10000), r.Requests)
}

func TestPartialView(t *testing.T) {
	s := sim.Scenario{
		Seed:     3,
		Duration: time.Second,
		Servers:  []sim.Server{{Count: 20, Workers: -1, Service: fixed(10)}},
		Clients:  []sim.Client{{Count: 30, Rate: 200, Sees: 4}},
		Pool:     bare(balancer.RoundRobin{}),
	}
	_, all := watch(t, s)
	seen := map[int]map[string]bool{}
	union := map[string]bool{}
	for _, a := range all {
		if seen[a.Client] == nil {
			seen[a.Client] = map[string]bool{}
		}
		seen[a.Client][a.Server] = true
		union[a.Server] = true
	}
	require.Len(t, seen, 30)
	for c, ids := range seen {
		require.Len(t, ids, 4, "client %d", c)
	}
	require.Len(t, union, 20)
}

func TestKeys(t *testing.T) {
	_, all := watch(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Count: 20, Workers: -1, Service: fixed(10)}},
		Clients:  []sim.Client{{Rate: 1000, Keys: 3}},
		Pool:     bare(balancer.Hash{}),
	})
	ids := map[string]bool{}
	for _, a := range all {
		ids[a.Server] = true
	}
	require.LessOrEqual(t, len(ids), 3)
}

// mess is a scenario with something of everything.
func mess(seed uint64) sim.Scenario {
	return sim.Scenario{
		Seed:     seed,
		Duration: 4 * time.Second,
		WarmUp:   500 * ms,
		Servers: []sim.Server{
			{Name: "a", Count: 6, Zone: "x", Workers: 2, Service: sim.Exponential(10 * ms), Errors: .01, Queue: 20},
			{Name: "b", Count: 4, Zone: "y", Workers: 4, Service: sim.LogNormal(8*ms, 60*ms), FastFails: .01, SlowDown: .1, MaxInflight: 9},
			{Name: "c", Count: 2, Workers: -1, Service: sim.Normal(12*ms, 4*ms), DropExpired: true, Priority: 1},
		},
		Clients: []sim.Client{
			{Count: 3, Rate: 250, Timeout: 80 * ms, Sees: 9},
			{Users: 10, Think: sim.Uniform(0, 60*ms), Deadline: 200 * ms, Keys: 50},
			{Rate: 100, Even: true, Timeout: 300 * ms, Target: 50 * ms},
		},
		Script: []sim.Change{
			{Kind: sim.Sinkhole, At: 600 * ms, For: 500 * ms, Servers: "a-0"},
			{Kind: sim.Brownout, At: 800 * ms, For: 900 * ms, Servers: "b", First: 2},
			{Kind: sim.BlackHole, At: time.Second, For: 300 * ms, Servers: "a-1"},
			{Kind: sim.Down, At: 1200 * ms, For: 400 * ms, Servers: "zone:y"},
			{Kind: sim.Flapping, At: 1500 * ms, For: 1500 * ms, Servers: "a-2", Every: 300 * ms},
			{Kind: sim.Roll, At: 2 * time.Second, For: 200 * ms, Every: 250 * ms, Servers: "a"},
			{Kind: sim.Stall, At: 2500 * ms, For: 200 * ms, Servers: "b-3"},
			{Kind: sim.ColdStart, At: 2700 * ms, For: 500 * ms, Servers: "b-3", Factor: 5},
			{Kind: sim.Errors, At: 3 * time.Second, Share: .3, Servers: "a-5"},
			{Kind: sim.Surge, At: 3 * time.Second, For: 500 * ms, Factor: 2},
		},
		Pool: balancer.Config{Retry: balancer.Retry{OnFailure: true, Backoff: balancer.Backoff{Base: 2 * ms}}},
	}
}

// The books balance, exactly, whatever happens.
func TestAccounting(t *testing.T) {
	def, _ := seedOf(t, 1)
	for seed := def; seed < def+uint64(opsOf(t, 3)); seed++ {
		r, all := watch(t, mess(seed))
		for _, c := range []sim.Counts{r.Counts, r.Total} {
			require.Equal(t, c.Requests, c.OK+c.Failed+c.Hung)
			require.Equal(t, c.Attempts, c.Requests+c.Retries-c.Unsent)
			require.LessOrEqual(t, c.Good, c.OK)
			require.LessOrEqual(t, c.Timeouts, c.Attempts)
			require.Positive(t, c.Timeouts)
			require.Positive(t, c.Failed)
		}
		require.Zero(t, r.Total.Hung)
		require.Len(t, all, int(r.Total.Attempts))
		require.Equal(t, r.Area, r.Sojourn, "Little's law")
		require.Equal(t, r.OK, r.Latency.Count())
		require.Equal(t, r.Failed, r.FailLatency.Count())
		var attempts, settled, requests, ok, good uint64
		for _, v := range r.Servers {
			attempts += v.Attempts
			settled += v.Successes + v.Failures
		}
		require.Equal(t, r.Attempts, attempts)
		require.Equal(t, r.Attempts, settled)
		for _, c := range r.Series {
			requests, ok, good = requests+c.Requests, ok+c.OK, good+c.Good
		}
		require.Equal(t, r.Total.Requests, requests)
		require.Equal(t, r.Total.OK, ok)
		require.Equal(t, r.Total.Good, good)
	}
}

// Between any two events no worker idles beside a queue, and servers, clients
// and Pools agree on what is in flight.
func TestWorkConservation(t *testing.T) {
	def, _ := seedOf(t, 5)
	for i, every := range []int{1, 7, 17, 17} {
		s := mess(def + uint64(i))
		if every == 1 {
			s.Duration = time.Second
		}
		m, err := sim.NewMachine(s)
		require.NoError(t, err)
		for n := 0; m.Step(); n++ {
			if n%every == 0 {
				require.NoError(t, m.Check(), "after event %d", n)
			}
		}
		require.NoError(t, m.Check())
	}
}

func TestSameAgain(t *testing.T) {
	a, as := watch(t, mess(9))
	b, bs := watch(t, mess(9))
	require.Equal(t, as, bs)
	require.True(t, reflect.DeepEqual(a, b))
	require.Equal(t, a.String(), b.String())
	c := run(t, mess(10))
	require.NotEqual(t, a.Events, c.Events)
}

// A run is the same on every architecture. The Pool only draws and retries here,
// so that the figure does not follow its defaults.
func TestGolden(t *testing.T) {
	s := mess(1)
	s.Pool = bare(balancer.Random{})
	s.Pool.Retry = balancer.Retry{OnFailure: true}
	s.Pool.Budget.Off = true
	r, all := watch(t, s)
	h := uint64(0xcbf29ce484222325)
	for _, a := range all {
		for _, x := range []uint64{uint64(a.Client), a.Request, uint64(a.Attempt), uint64(a.Sent), uint64(a.Took), uint64(a.Outcome)} {
			h = sim.Mix(h ^ x)
		}
	}
	require.Equal(t, uint64(0xa8191725407a2a59), h)
	require.Equal(t, uint64(0x2ce2), r.Events)
}

// Leaving out one request changes no other request's draws: with a server that
// nobody has to wait for, nothing else changes at all.
func TestSkipOne(t *testing.T) {
	def, _ := seedOf(t, 11)
	s := sim.Scenario{
		Seed:     def,
		Duration: 2 * time.Second,
		Servers:  []sim.Server{{Count: 10, Workers: -1, Service: sim.Exponential(10 * ms), Errors: .05}},
		Clients:  []sim.Client{{Rate: 1000, Timeout: 40 * ms}, {Users: 4, Think: sim.Exponential(5 * ms)}},
		Pool:     bare(balancer.Random{}),
	}
	s.Pool.Retry = balancer.Retry{OnFailure: true}
	s.Pool.Budget.Off = true
	_, all := watch(t, s)
	for _, skip := range []uint64{1, 2, 700, 1500} {
		var want []sim.Attempt
		for _, a := range all {
			if a.Client != 0 || a.Request != skip {
				want = append(want, a)
			}
		}
		u := s
		u.Clients = append([]sim.Client{}, s.Clients...)
		u.Clients[0].Skip = []uint64{skip}
		r, got := watch(t, u)
		require.Equal(t, want, got)
		require.Equal(t, r.Area, r.Sojourn)
	}
}

// A run that goes on for longer begins in the same way: nothing looks ahead.
func TestPrefix(t *testing.T) {
	until := func(d time.Duration) (out []sim.Attempt) {
		s := mess(6)
		s.Duration = d
		_, all := watch(t, s)
		for _, a := range all {
			if a.Sent+a.Took < 2*time.Second {
				out = append(out, a)
			}
		}
		return out
	}
	short := until(2 * time.Second)
	require.NotEmpty(t, short)
	require.Equal(t, short, until(4*time.Second))
}

// Two configurations see the same arrivals, and the same service times where both
// pick the same server.
func TestPaired(t *testing.T) {
	s := sim.Scenario{
		Seed: 4, Duration: time.Second,
		Servers: []sim.Server{{Workers: -1, Service: sim.Exponential(10 * ms)}},
		Clients: []sim.Client{{Rate: 500}},
		Pool:    bare(balancer.Random{}),
	}
	_, a := watch(t, s)
	s.Pool = balancer.Config{}
	_, b := watch(t, s)
	require.Equal(t, a, b)
}

// Instants that fall together: a request at Duration does not happen, a success
// that takes exactly Target is good, an attempt sent at the end of a change counts
// for the recovery from it, and a request at the end of the warm-up is measured.
func TestEdges(t *testing.T) {
	c := at(0, 10, 20, 30)
	c.Target = 10 * ms
	r := run(t, sim.Scenario{
		Duration: 30 * ms, WarmUp: 10 * ms,
		Servers: []sim.Server{{Workers: -1, Service: fixed(10)}},
		Clients: []sim.Client{c},
		Script:  []sim.Change{{Kind: sim.Errors, For: 20 * ms}},
		Pool:    bare(balancer.RoundRobin{}),
	})
	require.Equal(t, uint64(3), r.Total.Requests)
	require.Equal(t, uint64(2), r.Requests)
	require.Equal(t, uint64(1), r.Good)
	require.Equal(t, uint64(1), r.Failed)
	require.Equal(t, 1, r.Changes[0].FirstSuccess.Count)
	require.Equal(t, 10*ms, r.Changes[0].FirstSuccess.Last)
}

func TestWarmUp(t *testing.T) {
	s := sim.Scenario{
		Duration: 2 * time.Second, WarmUp: time.Second,
		Servers: []sim.Server{{Service: fixed(1)}},
		Clients: []sim.Client{{Rate: 100, Even: true}},
		Pool:    bare(balancer.RoundRobin{}),
	}
	r := run(t, s)
	require.InDelta(t, 100, float64(r.Requests), 1)
	require.InDelta(t, 200, float64(r.Total.Requests), 1)
	require.InDelta(t, 100, r.Goodput(), 1)
	require.Equal(t, r.Requests, r.Servers[0].Attempts)
}

func TestRecovery(t *testing.T) {
	r := sim.Result{Duration: 5 * time.Second, Interval: time.Second, Series: []sim.Column{
		{Requests: 10, Good: 10}, {Requests: 10, Good: 0}, {Requests: 10, Good: 5}, {Requests: 10, Good: 10}, {},
	}}
	d, ok := r.Recovery(time.Second, .99)
	require.True(t, ok)
	require.Equal(t, 2*time.Second, d)
	d, _ = r.Recovery(time.Second, .5)
	require.Equal(t, time.Second, d)
	d, _ = r.Recovery(4*time.Second, .99)
	require.Zero(t, d, "long ago")
	r.Series = r.Series[:3]
	_, ok = r.Recovery(0, .99)
	require.False(t, ok)
}

func TestValidate(t *testing.T) {
	ok := func() sim.Scenario {
		return sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Name: "x"}, {Name: "y", Count: 2}},
			Clients:  []sim.Client{{Rate: 1}},
			Script:   []sim.Change{{Kind: sim.Down}},
		}
	}
	require.NoError(t, ok().Validate())
	for field, edit := range map[string]func(*sim.Scenario){
		"Scenario.Duration":                   func(s *sim.Scenario) { s.Duration = 0 },
		"Scenario.WarmUp":                     func(s *sim.Scenario) { s.WarmUp = 2 * time.Second },
		"Scenario.Interval":                   func(s *sim.Scenario) { s.Interval = 1 },
		"Scenario.Servers":                    func(s *sim.Scenario) { s.Servers = nil },
		"Scenario.Clients":                    func(s *sim.Scenario) { s.Clients = nil },
		"Scenario.Pool.Clock":                 func(s *sim.Scenario) { s.Pool.Clock = clock.System() },
		"Scenario.Pool":                       func(s *sim.Scenario) { s.Pool.Retry.Max = -1 },
		"Scenario.Servers[0].Count":           func(s *sim.Scenario) { s.Servers[0].Count = -1 },
		"Scenario.Servers[0].Priority":        func(s *sim.Scenario) { s.Servers[0].Priority = -1 },
		"Scenario.Servers[0].Weight":          func(s *sim.Scenario) { s.Servers[0].Weight = 1 << 21 },
		"Scenario.Servers[0].MaxInflight":     func(s *sim.Scenario) { s.Servers[0].MaxInflight = -1 },
		"Scenario.Servers[0].SlowDown":        func(s *sim.Scenario) { s.Servers[0].SlowDown = math.NaN() },
		"Scenario.Servers[0].Errors":          func(s *sim.Scenario) { s.Servers[0].Errors = 1.1 },
		"Scenario.Servers[0].FastFails":       func(s *sim.Scenario) { s.Servers[0].FastFails = -.1 },
		"Scenario.Servers[1].Name":            func(s *sim.Scenario) { s.Servers[0].Name = "y-1" },
		"Scenario.Servers[0].Service.Mean":    func(s *sim.Scenario) { s.Servers[0].Service = sim.LogNormal(0, 1) },
		"Scenario.Servers[0].Service.Spread":  func(s *sim.Scenario) { s.Servers[0].Service = sim.Dist{Shape: sim.ShapeUniform, Spread: 1} },
		"Scenario.Servers[0].Service.Samples": func(s *sim.Scenario) { s.Servers[0].Service = sim.Recorded(nil) },
		"Scenario.Servers[0].Service.Shape":   func(s *sim.Scenario) { s.Servers[0].Service.Shape = 99 },
		"Scenario.Servers[0].FailTime.Samples[1]": func(s *sim.Scenario) {
			s.Servers[0].FailTime = sim.Recorded([]time.Duration{1, -1})
		},
		"Scenario.Clients[0]":          func(s *sim.Scenario) { s.Clients[0].Users = 2 },
		"Scenario.Clients[0].Count":    func(s *sim.Scenario) { s.Clients[0].Count = -1 },
		"Scenario.Clients[0].Rate":     func(s *sim.Scenario) { s.Clients[0].Rate = math.Inf(1) },
		"Scenario.Clients[0].Users":    func(s *sim.Scenario) { s.Clients[0].Users = -1 },
		"Scenario.Clients[0].Timeout":  func(s *sim.Scenario) { s.Clients[0].Timeout = -1 },
		"Scenario.Clients[0].Deadline": func(s *sim.Scenario) { s.Clients[0].Deadline = -1 },
		"Scenario.Clients[0].Target":   func(s *sim.Scenario) { s.Clients[0].Target = -1 },
		"Scenario.Clients[0].Sees":     func(s *sim.Scenario) { s.Clients[0].Sees = 4 },
		"Scenario.Clients[0].Keys":     func(s *sim.Scenario) { s.Clients[0].Keys = -1 },
		"Scenario.Clients[0].Times[1]": func(s *sim.Scenario) { s.Clients[0] = at(2, 1) },
		"Scenario.Clients[0].Pool": func(s *sim.Scenario) {
			s.Clients[0].Pool = &balancer.Config{FailurePenalty: 2 * time.Hour}
		},
		"Scenario.Clients[0].Checks.Probe": func(s *sim.Scenario) {
			s.Clients[0].Checks = &sim.Checks{Probe: health.Config{Rise: -1}}
		},
		"Scenario.Clients[0].Checks.Probe.Interval": func(s *sim.Scenario) {
			s.Clients[0].Checks = &sim.Checks{Probe: health.Config{Interval: 48*time.Hour + 1}}
		},
		"Scenario.Clients[0].Checks.Probe.Timeout": func(s *sim.Scenario) {
			s.Clients[0].Checks = &sim.Checks{Probe: health.Config{Timeout: 48*time.Hour + 1}}
		},
		"Scenario.Clients[0].Checks.Probe.SlowAfter": func(s *sim.Scenario) {
			s.Clients[0].Checks = &sim.Checks{Probe: health.Config{SlowAfter: 48*time.Hour + 1}}
		},
		"Scenario.Clients[0].Checks.Answer.Mean": func(s *sim.Scenario) {
			s.Clients[0].Checks = &sim.Checks{Answer: sim.Constant(-1)}
		},
		"Scenario.Clients[0].Checks.Answer": func(s *sim.Scenario) {
			s.Clients[0].Checks = &sim.Checks{Deep: true, Answer: sim.Constant(1)}
		},
		"Scenario.Clients[0].Think.Mean": func(s *sim.Scenario) { s.Clients[0].Think.Mean = -1 },
		"Scenario.Script[0].Kind":        func(s *sim.Scenario) { s.Script[0].Kind = 0 },
		"Scenario.Script[0].At":          func(s *sim.Scenario) { s.Script[0].At = -1 },
		"Scenario.Script[0].For":         func(s *sim.Scenario) { s.Script[0].Kind = sim.Roll },
		"Scenario.Script[0].Factor":      func(s *sim.Scenario) { s.Script[0].Factor = -1 },
		"Scenario.Script[0].Share":       func(s *sim.Scenario) { s.Script[0].Share = 2 },
		"Scenario.Script[0].Every":       func(s *sim.Scenario) { s.Script[0].Every = 1 },
		"Scenario.Script[0].First":       func(s *sim.Scenario) { s.Script[0].First = -1 },
		"Scenario.Script[0].Servers":     func(s *sim.Scenario) { s.Script[0].Servers = "zone:x" },
		"Scenario.Script[0].Service.Mean": func(s *sim.Scenario) {
			s.Script[0].Service.Mean = 49 * time.Hour
		},
	} {
		s := ok()
		edit(&s)
		_, err := sim.Run(s)
		require.ErrorIs(t, err, sim.ErrConfig, field)
		var ce *sim.ConfigError
		require.True(t, errors.As(err, &ce))
		require.Equal(t, field, ce.Field, err)
		require.Contains(t, err.Error(), "sim: "+field)
	}
	s := ok()
	s.Pool.Retry.Max = -1
	require.ErrorIs(t, s.Validate(), balancer.ErrConfig, "the cause can be seen")
	s = ok()
	s.Clients[0].Checks = &sim.Checks{Probe: health.Config{Fall: -1}}
	require.ErrorIs(t, s.Validate(), health.ErrConfig, "the cause can be seen")
}

// A run in its steady state allocates nothing.
func TestNoAllocations(t *testing.T) {
	m, err := sim.NewMachine(busy(200_000, balancer.PeakEWMA{}))
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
