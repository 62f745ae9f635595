package sim_test

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// fit keeps what means something for the kind of a Change, the rest of which is
// refused.
func fit(c sim.Change) sim.Change {
	k := c.Kind
	if k == sim.Surge {
		c.Servers, c.First = "", 0
	}
	if k != sim.Brownout && k != sim.Sinkhole && k != sim.Refusals {
		c.Service = sim.Dist{}
	}
	constant := c.Service.Mean == 0 && c.Service.Shape == sim.ShapeConstant
	if k != sim.ColdStart && k != sim.Surge && (k != sim.Brownout || !constant) {
		c.Factor = 0
	}
	if k != sim.Errors && k != sim.Sinkhole && k != sim.Refusals {
		c.Share = 0
	}
	if k != sim.Flapping && k != sim.Roll && k != sim.ColdStart {
		c.Every = 0
	}
	return c
}

// fleet draws a small scenario of anything.
func fleet(t *rapid.T) sim.Scenario {
	dist := rapid.SampledFrom([]sim.Dist{
		{}, sim.Constant(0), sim.Constant(7 * ms), sim.Exponential(5 * ms), sim.Uniform(0, 20*ms),
		sim.Normal(5*ms, 5*ms), sim.LogNormal(3*ms, 80*ms), sim.Recorded([]time.Duration{1, ms, 50 * ms}),
	})
	millis := func(most int, name string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * ms
	}
	s := sim.Scenario{Seed: rapid.Uint64().Draw(t, "seed"), Duration: time.Second, WarmUp: millis(300, "warm")}
	for i := range rapid.IntRange(1, 3).Draw(t, "groups") {
		s.Servers = append(s.Servers, sim.Server{
			Name: string(rune('a' + i)), Zone: "z", Count: rapid.IntRange(1, 3).Draw(t, "count"),
			Weight: rapid.IntRange(-1, 3).Draw(t, "weight"), Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
			MaxInflight: rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, "limit"),
			Workers:     rapid.IntRange(-1, 3).Draw(t, "workers"), Queue: rapid.IntRange(-1, 3).Draw(t, "queue"),
			Service: dist.Draw(t, "service"), FailTime: dist.Draw(t, "failtime"),
			SlowDown: rapid.SampledFrom([]float64{0, .2, 1e6}).Draw(t, "slowdown"), DropExpired: rapid.Bool().Draw(t, "drop"),
			Errors: rapid.SampledFrom([]float64{0, .1, 1}).Draw(t, "errors"), FastFails: rapid.SampledFrom([]float64{0, .1, 1}).Draw(t, "fast"),
		})
	}
	for range rapid.IntRange(1, 2).Draw(t, "clients") {
		c := sim.Client{
			Timeout: millis(60, "timeout"), Deadline: millis(100, "deadline"), Target: millis(20, "target"),
			Sees: rapid.IntRange(0, len(s.Servers)).Draw(t, "sees"), Keys: rapid.IntRange(0, 3).Draw(t, "keys"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "loop") {
		case 0:
			c.Rate, c.Even = rapid.SampledFrom([]float64{10, 200, 900}).Draw(t, "rate"), rapid.Bool().Draw(t, "even")
		case 1:
			for x := millis(300, "first"); x < 1100*ms; x += millis(200, "gap") + ms {
				c.Times = append(c.Times, x)
			}
		default:
			c.Users, c.Think = rapid.IntRange(1, 4).Draw(t, "users"), dist.Draw(t, "think")
			if c.Think.Mean < ms && len(c.Think.Samples) == 0 {
				c.Think = sim.Constant(ms)
			}
		}
		s.Clients = append(s.Clients, c)
	}
	for range rapid.IntRange(0, 5).Draw(t, "changes") {
		s.Script = append(s.Script, fit(sim.Change{
			Kind: sim.Kind(rapid.IntRange(int(sim.Brownout), int(sim.Surge)).Draw(t, "kind")),
			At:   millis(900, "at"), For: millis(600, "for") + ms, Servers: rapid.SampledFrom([]string{"", "a", "zone:z"}).Draw(t, "which"),
			First: rapid.IntRange(0, 2).Draw(t, "first"), Factor: rapid.SampledFrom([]float64{0, .5, 3}).Draw(t, "factor"),
			Share: rapid.SampledFrom([]float64{0, .5}).Draw(t, "share"), Service: dist.Draw(t, "to"), Every: millis(300, "every") + ms,
		}))
	}
	s.Pool = balancer.Config{
		Policy: rapid.SampledFrom([]balancer.Policy{
			nil, balancer.RoundRobin{}, balancer.Random{}, balancer.LeastConn{}, balancer.TwoRandom{}, balancer.WeightedRoundRobin{}, balancer.Hash{},
		}).Draw(t, "policy"),
		Retry: balancer.Retry{
			Off: rapid.Bool().Draw(t, "noretry"), Max: rapid.IntRange(0, 4).Draw(t, "max"), OnFailure: rapid.Bool().Draw(t, "onfailure"),
			SameUpstream: rapid.IntRange(0, 1).Draw(t, "same"), Backoff: balancer.Backoff{Base: millis(10, "base")},
		},
		WhenNone: balancer.WhenNone(rapid.IntRange(0, 1).Draw(t, "whennone")),
	}
	s.Pool.Budget.Off = rapid.Bool().Draw(t, "nobudget")
	s.Pool.Breaker.Off = rapid.Bool().Draw(t, "nobreaker")
	s.Pool.Outlier.Off = rapid.Bool().Draw(t, "nooutlier")
	for i := range s.Clients {
		if rapid.Bool().Draw(t, "checked") {
			s.Clients[i].Checks = &sim.Checks{
				Probe: health.Config{
					Interval: millis(200, "interval") + 5*ms, Timeout: millis(150, "probe timeout"), SlowAfter: millis(30, "slow"),
					Fall: rapid.IntRange(0, 3).Draw(t, "fall"), Rise: rapid.IntRange(0, 3).Draw(t, "rise"),
					StartHealthy: rapid.Bool().Draw(t, "start"), First: health.FirstProbe(rapid.IntRange(0, 1).Draw(t, "first probe")),
				},
				Spread: rapid.Bool().Draw(t, "spread"), Deep: rapid.Bool().Draw(t, "deep"),
			}
			if !s.Clients[i].Checks.Deep {
				s.Clients[i].Checks.Answer = dist.Draw(t, "answer")
			}
		}
	}
	if s.Clients[0].Checks != nil || s.Clients[len(s.Clients)-1].Checks != nil {
		// A service of days is a day of probes where a request waits for it.
		for i := range s.Servers {
			s.Servers[i].SlowDown = min(s.Servers[i].SlowDown, 1)
		}
	}
	s.Pool.Outlier.ProbeEnds = rapid.Bool().Draw(t, "ends")
	return s
}

// holds is what every run keeps: conservation between any two events, exact
// books at the end, and the same again.
func holds(t *rapid.T) {
	s := fleet(t)
	m, err := sim.NewMachine(s)
	if err != nil {
		t.Fatal(err)
	}
	every := rapid.IntRange(1, 40).Draw(t, "look")
	for n := 0; m.Step(); n++ {
		if n > 200_000 {
			t.Fatalf("no end")
		}
		if n%every == 0 {
			if err := m.Check(); err != nil {
				t.Fatalf("after event %d: %v", n, err)
			}
		}
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	r := m.Result()
	for _, c := range []sim.Counts{r.Counts, r.Total} {
		if c.Requests != c.OK+c.Failed+c.Hung || c.Attempts != c.Requests+c.Retries-c.Unsent {
			t.Fatalf("the books do not balance: %+v", c)
		}
	}
	if r.Total.Hung == 0 && r.Area != r.Sojourn {
		t.Fatalf("Little's law: %v is not %v", r.Area, r.Sojourn)
	}
	again, err := sim.Run(s)
	if err != nil || again.String() != r.String() || again.Events != r.Events || again.Area != r.Area {
		t.Fatalf("another run is another: %v\n%v\n%v", err, r, again)
	}
}

func TestModel(t *testing.T) { checkSeeded(t, 1, holds) }

func FuzzSimModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(holds)) }

// FuzzSimOps decodes a scenario from bytes: each takes a decision.
func FuzzSimOps(f *testing.F) {
	f.Add([]byte("any bytes make a scenario"))
	f.Add(bytes.Repeat([]byte{255, 7, 1, 19, 33}, 20))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Fuzz(func(t *testing.T, b []byte) {
		next := func(n int) int {
			if len(b) == 0 {
				return 0
			}
			x := int(b[0]) % n
			b = b[1:]
			return x
		}
		s := sim.Scenario{
			Seed: uint64(next(256)), Duration: 300 * ms,
			Servers: []sim.Server{
				{Name: "a", Count: 1 + next(4), Workers: next(4) - 1, Queue: next(5) - 1, Service: sim.Exponential(time.Duration(next(20)) * ms), Errors: float64(next(3)) / 2},
				{Name: "b", Count: 1 + next(2), MaxInflight: next(3), DropExpired: next(2) == 1},
			},
			Clients: []sim.Client{
				{Rate: float64(1 + 100*next(8)), Timeout: time.Duration(next(50)) * ms, Even: next(2) == 1},
				{Users: 1 + next(3), Think: sim.Constant(time.Duration(1+next(30)) * ms), Deadline: time.Duration(next(90)) * ms},
			},
			Pool: balancer.Config{Retry: balancer.Retry{OnFailure: next(2) == 1, Max: next(4), Backoff: balancer.Backoff{Base: time.Duration(next(4)) * ms}}},
		}
		for len(b) > 0 && len(s.Script) < 20 {
			s.Script = append(s.Script, fit(sim.Change{
				Kind: sim.Kind(1 + next(int(sim.Surge))), At: time.Duration(next(256)) * ms, For: time.Duration(1+next(200)) * ms,
				Servers: []string{"", "a", "b"}[next(3)], First: next(3), Every: time.Duration(1+next(60)) * ms, Factor: float64(next(5)),
			}))
		}
		for i := range s.Clients {
			if next(2) == 1 {
				s.Clients[i].Checks = &sim.Checks{Deep: next(2) == 1, Spread: next(2) == 1, Probe: health.Config{
					Interval: time.Duration(5+next(90)) * ms, Timeout: time.Duration(next(120)) * ms,
					Fall: next(4), Rise: next(4), StartHealthy: next(2) == 1,
				}}
			}
		}
		m, err := sim.NewMachine(s)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; m.Step(); n++ {
			if err := m.Check(); err != nil || n > 100_000 {
				t.Fatalf("after event %d: %v", n, err)
			}
		}
		r := m.Result()
		if c := r.Total; c.Requests != c.OK+c.Failed+c.Hung || c.Attempts != c.Requests+c.Retries-c.Unsent ||
			c.Hung == 0 && r.Area != r.Sojourn {
			t.Fatalf("%+v", r)
		}
	})
}
