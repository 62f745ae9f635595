package main

import (
	"math"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/ewma"
	"github.com/evenkeel-go/evenkeel/outlier"
)

const ms = time.Millisecond

// bare is a Pool that balances and does nothing else.
func bare(p balancer.Policy) balancer.Config {
	return balancer.Config{
		Policy:  p,
		Breaker: breaker.Config{Off: true},
		Outlier: outlier.Config{Off: true},
		Retry:   balancer.Retry{Off: true},
	}
}

// must runs a scenario of this program's own.
func must(s sim.Scenario) sim.Result { return mustWatch(s, nil) }

func mustWatch(s sim.Scenario, each func(sim.Attempt)) sim.Result {
	r, err := sim.Watch(s, each)
	if err != nil {
		panic(err)
	}
	return r
}

func percent(x float64) float64 { return float64(100 * x) }

// finagle is Finagle's peak EWMA as it is: a failure costs what it took.
func finagle() balancer.Config {
	c := bare(balancer.PeakEWMA{})
	c.FailurePenalty = -1
	return c
}

// noRetry is our default but for retries, which would hide what happened.
func noRetry(p balancer.Policy) balancer.Config {
	return balancer.Config{Policy: p, Retry: balancer.Retry{Off: true}}
}

// E1: eleven servers, one of which takes 2 s for half of the run.
func slowServer(x *lab) []figure {
	slow := func(c balancer.Config) sim.Result {
		return must(sim.Scenario{
			Seed: x.seed, Duration: time.Minute,
			Servers: []sim.Server{{Count: 11, Workers: -1, Service: sim.Normal(167*ms, 5*ms)}},
			Clients: []sim.Client{{Rate: 1000, Even: true, Target: time.Second}},
			Script:  []sim.Change{{Kind: sim.Brownout, At: 15 * time.Second, For: 30 * time.Second, Servers: "s-0", Service: sim.Constant(2 * time.Second)}},
			Pool:    c,
		})
	}
	var out []figure
	good := func(name string, c balancer.Config) (figure, sim.Histogram) {
		r := slow(c)
		return fig(name, "% within 1 s", percent(r.GoodShare())), r.Latency
	}
	// What was published of the quantiles, in ms, comes from a run with other
	// latencies: recorded ones, with a longer tail.
	quantiles := func(name string, l sim.Histogram, of map[float64]string) {
		for _, q := range []float64{.95, .97, .99, .999, .9999} {
			if was := of[q]; was != "" {
				out = append(out, fig(name, "p"+number(100*q)+", ms", l.Quantile(q).Seconds()*1000).pub(was).
					why("published of recorded latencies with a longer tail than this normal distribution, and below the 2 s that the slow server takes here"))
			}
		}
	}
	f, l := good("round robin", bare(balancer.RoundRobin{}))
	out = append(out, f.pub("95.455").within(.05, 95.455))
	quantiles("round robin", l, map[float64]string{.95: "205", .97: "1673", .99: "1714"})
	f, _ = good("random", bare(balancer.Random{}))
	out = append(out, f)
	f, l = good("least loaded", bare(balancer.LeastConn{Ties: balancer.TiesRandom}))
	out = append(out, f.pub("99.552").within(.05, 99.552))
	quantiles("least loaded", l, map[float64]string{.99: "205", .999: "1723", .9999: "1825"})
	f, _ = good("P2C", bare(balancer.TwoRandom{}))
	out = append(out, f.pub("99.492").within(.05, 99.492))
	f, l = good("P2C peak EWMA", bare(balancer.PeakEWMA{}))
	out = append(out, f.pub("99.920; 99.929 with age").atLeast(99.92))
	quantiles("P2C peak EWMA", l, map[float64]string{.99: "199", .999: "211", .9999: "1780"})
	f, _ = good("our default", balancer.Config{})
	out = append(out, f.pub("99.97 is the bound").atLeast(99.95))
	f, _ = good("our default, slow ones ejected", balancer.Config{
		Outlier: outlier.Config{Latency: outlier.Latency{On: true}},
	})
	return append(out, f.pub("99.97 is the bound").atLeast(99.95))
}

// E2: Finagle's simulation of a server that starts cold, is slow, fails.
func variants(x *lab) []figure {
	var out []figure
	for _, v := range []struct {
		name     string
		changes  []sim.Change
		from, to time.Duration
	}{
		{"cold start", []sim.Change{
			{Kind: sim.ColdStart, For: 10 * time.Second, Factor: 5, Servers: "s-0"},
			{Kind: sim.Brownout, At: 19 * time.Second, For: 4 * time.Second, Factor: 10, Servers: "s-0"},
		}, 0, 23 * time.Second},
		{"slow middle", []sim.Change{{Kind: sim.Brownout, At: 15 * time.Second, For: 30 * time.Second, Factor: 10, Servers: "s-0"}}, 15 * time.Second, 45 * time.Second},
		{"fails for 15 s", []sim.Change{{Kind: sim.Errors, At: 10 * time.Second, For: 15 * time.Second, Servers: "s-0"}}, 10 * time.Second, 25 * time.Second},
		{"fails for good", []sim.Change{{Kind: sim.Errors, At: 10 * time.Second, Servers: "s-0"}}, 10 * time.Second, 45 * time.Second},
	} {
		for _, p := range []struct {
			name string
			cfg  balancer.Config
		}{
			{"round robin", bare(balancer.RoundRobin{})},
			{"Finagle EWMA", finagle()},
			{"our default, no retry", noRetry(nil)},
		} {
			all, hit := 0, 0
			// By the second after the end: all attempts, and those to the server.
			var after, served [45]int
			r := mustWatch(sim.Scenario{
				Seed: x.seed, Duration: 45 * time.Second,
				Servers: []sim.Server{{Count: 10, Workers: -1, Service: sim.Normal(167*ms, 5*ms)}},
				Clients: []sim.Client{{Rate: 1250, Even: true, Target: 500 * ms}},
				Script:  v.changes, Pool: p.cfg,
			}, func(a sim.Attempt) {
				if a.Sent >= v.from && a.Sent < v.to {
					all++
					if a.Server == "s-0" {
						hit++
					}
				}
				if s := (a.Sent - v.to) / time.Second; a.Sent >= v.to && s < 45 {
					after[s]++
					if a.Server == "s-0" {
						served[s]++
					}
				}
			})
			name := v.name + ": " + p.name
			out = append(out,
				fig(name, "% slow or failed", 100-percent(r.GoodShare())),
				fig(name, "% to the server meanwhile", 100*float64(hit)/float64(all)))
			if v.changes[0].For > 0 && v.to < 45*time.Second {
				back := math.Inf(1)
				if c := r.Changes[len(r.Changes)-1]; c.FirstSuccess.Count > 0 {
					back = c.FirstSuccess.Last.Seconds()
				}
				out = append(out, fig(name, "s until its first success", back))
				// One stray request is no comeback: half of a tenth, over a second, is.
				share := math.Inf(1)
				for i, n := range after {
					if n > 0 && 20*served[i] >= n {
						share = float64(i)
						break
					}
				}
				out = append(out, fig(name, "s until half its fair share", share))
			}
		}
	}
	return out
}

// E3: what Finagle's own tests ask of its balancer. A tick is a millisecond.
func finagleTests(x *lab) []figure {
	cfg := bare(balancer.PeakEWMA{})
	cfg.Latency = ewma.Config{Peak: true, Tau: 150 * ms}
	n := x.scale(100_000)
	odd := func(latency time.Duration) sim.Result {
		return must(sim.Scenario{
			Seed: x.seed, Duration: time.Duration(n) * ms,
			Servers: []sim.Server{
				{Name: "odd", Workers: -1, Service: sim.Constant(latency)},
				{Count: 99, Workers: -1, Service: sim.Constant(5 * ms)},
			},
			Clients: []sim.Client{{Rate: 1000, Even: true}}, Pool: cfg,
		})
	}
	twice, huge := odd(10*ms), odd(time.Hour)
	spread := must(sim.Scenario{
		Seed: x.seed, Duration: 150 * ms,
		Servers: []sim.Server{{Count: 10, Workers: -1, Service: sim.Constant(5 * ms)}},
		Clients: []sim.Client{{Count: 5, Rate: 1000, Even: true}}, Pool: cfg,
	})
	most := uint64(0)
	for _, s := range spread.Servers {
		most = max(most, s.Attempts)
	}
	others := float64(twice.Attempts-twice.Servers[0].Attempts) / 99
	return []figure{
		fig("one server at twice the latency", "its load over the others'", float64(twice.Servers[0].Attempts)/others).pub("about 1/2").within(20, .5),
		fig("one server at an hour", "requests to it", float64(huge.Servers[0].Attempts)).pub("1").exactly(1),
		fig("5 clients, 150 requests, 10 servers", "most on one server", float64(most)).pub("<= 150").always(150),
	}
}

// supermarket is the mean sojourn of two choices among infinitely many servers.
func supermarket(lambda float64) float64 {
	sum, power := 0.0, 1.0
	for range 60 {
		power *= 2
		sum += math.Pow(lambda, power-2)
	}
	return sum
}

// E4: two choices against the supermarket formula.
func twoChoices(x *lab) []figure {
	var out []figure
	for _, c := range []struct {
		load    float64
		name    string
		longest float64
	}{{.5, "load 0.50", 4}, {.7, "load 0.70", 5}, {.8, "load 0.80", 6}, {.9, "load 0.90", 7}, {.95, "load 0.95", 8}} {
		const mean = 10 * ms
		duration := time.Duration(x.scale(2500)) * mean
		r := must(sim.Scenario{
			Seed: x.seed, Duration: duration, WarmUp: duration / 10,
			Servers: []sim.Server{{Count: 200, Service: sim.Exponential(mean)}},
			Clients: []sim.Client{{Rate: c.load * 200 / mean.Seconds()}},
			Pool:    bare(balancer.TwoRandom{}),
		})
		longest := 0
		for _, s := range r.Servers {
			longest = max(longest, s.LongestQueue+1)
		}
		want := supermarket(c.load)
		out = append(out,
			fig(c.name, "mean sojourn / service", r.Latency.Mean().Seconds()/mean.Seconds()).pub(number(want)).within(1.5, want),
			fig(c.name, "longest queue", float64(longest)).pub(number(c.longest)).atMost(c.longest+1))
	}
	return out
}

// withReplacement draws two hosts that may be the same one, as Envoy does.
type withReplacement struct{}

func (withReplacement) Name() string { return "with_replacement" }

func (withReplacement) NewPicker(v *balancer.View, _ balancer.Picker) balancer.Picker {
	return &replacing{v}
}

type replacing struct{ v *balancer.View }

func (p *replacing) Pick(c balancer.Call) int {
	n := uint64(p.v.Len())
	i, j := int(c.Draw(0)>>32*n>>32), int(c.Draw(1)>>32*n>>32)
	if p.v.Inflight(j) < p.v.Inflight(i) {
		i = j
	}
	return p.v.NextUsable(i)
}

// host is an upstream for experiments without a simulation.
type host struct {
	id     string
	weight int
	index  int
}

func (h *host) ID() string  { return h.id }
func (h *host) Weight() int { return h.weight }

func newPool(cfg balancer.Config, seed uint64, hosts ...*host) *balancer.Pool[*host] {
	cfg.Seed, cfg.Clock = seed|1<<63, clock.NewManual(time.Unix(0, 0))
	p, err := balancer.NewPool(cfg, hosts...)
	if err != nil {
		panic(err)
	}
	return p
}

// pick is the index of the host that the next request goes to, and ends it.
func pick(p *balancer.Pool[*host]) int {
	l, err := p.Acquire(balancer.Request{})
	if err != nil {
		panic(err)
	}
	l.Release(balancer.Ignored)
	return l.Upstream().index
}

// E5: two choices among two hosts of which one is loaded.
func twoOfTwo(x *lab) []figure {
	share := func(p balancer.Policy) float64 {
		pool := newPool(bare(p), x.seed, &host{"a", 1, 0}, &host{"b", 1, 1})
		for range 20 {
			if l, err := pool.Acquire(balancer.Request{}); err != nil {
				panic(err)
			} else if l.Upstream().index == 1 {
				defer l.Release(balancer.Ignored)
			}
		}
		// Only b has calls out.
		for _, l := range pool.Leases() {
			if l.Upstream().index == 0 {
				l.Release(balancer.Ignored)
			}
		}
		n, loaded := x.scale(100_000), 0
		for range n {
			loaded += pick(pool)
		}
		return 100 * float64(loaded) / float64(n)
	}
	return []figure{
		fig("two distinct hosts", "% to the loaded one", share(balancer.TwoRandom{})).pub("0").exactly(0),
		fig("with replacement (Envoy)", "% to the loaded one", share(withReplacement{})).pub("25").within(3, 25),
	}
}
