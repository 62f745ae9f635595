package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/ewma"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// again retries twice, at once and on the same server if there is no other,
// with a budget and nothing else.
func again(b retrybudget.Config) balancer.Config {
	c := bare(balancer.Random{})
	c.Retry = balancer.Retry{Max: 2, SameUpstream: 2, OnFailure: true}
	c.Budget = b
	return c
}

// aws is the AWS SDKs' quota where retries follow timeouts.
func aws() retrybudget.Config {
	c := retrybudget.AWS()
	c.Cost, c.RetrySuccess = 10, 9
	return c
}

// E15: one server that serves 1000/s stalls for ten seconds.
func retryStorm(x *lab) []figure {
	const from, to = 10 * time.Second, 20 * time.Second
	total := time.Duration(x.scale(600)) * time.Second
	storm := func(load float64, c balancer.Config) (amplification, recovery float64) {
		attempts := 0.0
		r := mustWatch(sim.Scenario{
			Seed: x.seed, Duration: max(total, 100*time.Second),
			Servers: []sim.Server{{Service: sim.Exponential(ms)}},
			Clients: []sim.Client{{Rate: load, Timeout: time.Second}},
			Script:  []sim.Change{{Kind: sim.Stall, At: from, For: to - from}},
			Pool:    c,
		}, func(a sim.Attempt) {
			if a.Begun >= from && a.Begun < to {
				attempts++
			}
		})
		requests := uint64(0)
		for _, c := range r.Series[from/time.Second : to/time.Second] {
			requests += c.Requests
		}
		recovery = math.Inf(1)
		if d, ok := r.Recovery(to, .99); ok {
			recovery = d.Seconds()
		}
		return attempts / float64(requests), recovery
	}
	none := again(retrybudget.Config{})
	none.Retry = balancer.Retry{Off: true}
	whole := balancer.Config{Retry: balancer.Retry{Max: 2, SameUpstream: 2, OnFailure: true}}
	var out []figure
	var base [2]float64
	for _, v := range []struct {
		name       string
		cfg        balancer.Config
		amp        string
		amps       [2]float64 // at 700 and at 800 requests per second; 0: no goal
		back       [2]string
		backs      [2]float64
		ours, caps bool
		note       string
	}{
		{"no retries", none, "1.00", [2]float64{1, 1}, [2]string{"22", "36"}, [2]float64{22, 36}, false, false, ""},
		{"two retries", again(retrybudget.Config{Off: true}), "3.00", [2]float64{3, 3}, [2]string{"never", "never"}, [2]float64{math.Inf(1), math.Inf(1)}, false, false, ""},
		// A fifth of the requests and the reserve of 100 in ten seconds.
		{"Finagle budget", again(retrybudget.Finagle()), "1.14", [2]float64{1.2 + 100/7e3, 1.2 + 100/8e3}, [2]string{"50-57", "300-311"}, [2]float64{53.5, 305}, false, false,
			"a fifth of the requests and a reserve of 100 are 1.214 and 1.213; deposits by successes alone would be 1.15, but recover in half the time. At 800/s 30/s are left to recover with: 290 s, give or take 25 with the seed"},
		{"gRPC A6 budget", again(retrybudget.GRPC()), "1.00", [2]float64{1, 1}, [2]string{"20-22", "34-38"}, [2]float64{21, 36}, false, false, ""},
		{"AWS budget", again(aws()), "1.00", [2]float64{1, 1}, [2]string{"20-22", "35-38"}, [2]float64{21, 36}, false, false, ""},
		{"our budget", again(retrybudget.Config{}), "", [2]float64{}, [2]string{}, [2]float64{}, true, true, ""},
		{"our default Pool", whole, "", [2]float64{}, [2]string{}, [2]float64{}, true, false, ""},
	} {
		for i, load := range []float64{700, 800} {
			amp, back := storm(load, v.cfg)
			at := number(load) + "/s: "
			f := fig(v.name, at+"attempts per request in the stall", amp).pub(v.amp).why(v.note)
			switch {
			case v.caps:
				f = f.atMost(1.05)
			case v.amps[i] > 0:
				f = f.within(1, v.amps[i])
			}
			out = append(out, f)
			f = fig(v.name, at+"s to recover", back).pub(v.back[i]).why(v.note)
			switch {
			case math.IsInf(v.backs[i], 1):
				f = f.never()
			case v.backs[i] > 0:
				f = f.within(20, v.backs[i])
			}
			out = append(out, f)
			if v.name == "no retries" {
				base[i] = back
			}
			if v.ours {
				// Never over never would be no number.
				over := back / base[i]
				if back == base[i] {
					over = 1
				}
				out = append(out, fig(v.name, at+"recovery over that of no retries", over).atMost(1.2))
			}
		}
	}
	// A budget must not stand in the way of ordinary retries.
	for _, v := range []struct {
		name string
		b    retrybudget.Config
	}{{"Finagle budget", retrybudget.Finagle()}, {"gRPC A6 budget", retrybudget.GRPC()}, {"AWS budget", aws()}, {"our budget", retrybudget.Config{}}} {
		r := must(sim.Scenario{
			Seed: x.seed, Duration: time.Minute,
			Servers: []sim.Server{{Count: 10, Workers: 4, Errors: .01, Service: sim.Exponential(10 * ms)}},
			Clients: []sim.Client{{Rate: 700, Timeout: time.Second}},
			Pool:    again(v.b),
		})
		failed := uint64(0)
		for _, s := range r.Servers {
			failed += s.Failures
		}
		f := fig(v.name, "1 % failing: % of failures retried", 100*float64(r.Retries)/float64(failed))
		if v.name == "our budget" {
			f = f.atLeast(95)
		}
		out = append(out, f)
	}
	return out
}

// E17: everything fails, three attempts.
func amplification(x *lab) []figure {
	amp := func(b retrybudget.Config) float64 {
		return must(sim.Scenario{
			Seed: x.seed, Duration: time.Minute,
			Servers: []sim.Server{{Count: 10, Workers: 4, Errors: 1}},
			Clients: []sim.Client{{Rate: 1000, Timeout: time.Second}},
			Pool:    again(b),
		}).Amplification()
	}
	tenth := retrybudget.Config{PerRequest: .1, PerSuccess: -1, PerSecond: -1, Initial: -1}
	const per = "attempts per request"
	return []figure{
		fig("no budget", per, amp(retrybudget.Config{Off: true})).pub("3.0").within(1, 3),
		fig("a tenth of requests", per, amp(tenth)).pub("1.1").within(1, 1.1),
		fig("Finagle budget", per, amp(retrybudget.Finagle())),
		fig("gRPC A6 budget", per, amp(retrybudget.GRPC())),
		fig("AWS budget", per, amp(aws())),
		fig("our budget", per, amp(retrybudget.Config{})).atMost(1.05),
		fig("no budget", "through 5 layers", layers(5, 200, retrybudget.Config{Off: true})).pub("243").exactly(243),
		fig("our budget", "through 5 layers", layers(5, x.scale(60_000), retrybudget.Config{})).atMost(1.05),
	}
}

// layers is how many calls reach the bottom of a stack of services for each
// request at its top. Every layer calls the next through a Pool of its own, makes
// three attempts, and fails if they do; the bottom always fails. A thousand
// requests per second, n of them.
func layers(depth, n int, b retrybudget.Config) float64 {
	clk := clock.NewManual(time.Unix(0, 0))
	pools := make([]*balancer.Pool[*host], depth)
	for i := range pools {
		cfg := again(b)
		cfg.Clock, cfg.Seed = clk, 1
		p, err := balancer.NewPool(cfg, &host{"next", 1, 0})
		if err != nil {
			panic(err)
		}
		pools[i] = p
	}
	failed, bottom := balancer.WithOutcome(errors.New("out of order"), balancer.Failure), 0
	var call func(layer int) error
	call = func(layer int) error {
		if layer == depth {
			bottom++
			return failed
		}
		return pools[layer].Do(context.Background(), balancer.Request{}, func(context.Context, *host) error { return call(layer + 1) })
	}
	for range n {
		if err := call(0); !errors.Is(err, failed) {
			panic(err)
		}
		clk.Advance(ms)
	}
	return float64(bottom) / float64(n)
}

// E21: how soon a failing server is out, and that a good one stays.
func ejecting(x *lab) []figure {
	var out []figure
	for _, v := range []struct {
		name string
		cfg  outlier.Config
		pub  string
		want float64
	}{
		{"5 in a row (Envoy, Finagle, ours)", outlier.Config{}, "5", 5},
		{"7 in a row (linkerd)", outlier.Config{Consecutive: 7}, "7", 7},
	} {
		c := noRetry(balancer.RoundRobin{})
		c.Outlier = v.cfg
		r := must(sim.Scenario{
			Seed: x.seed, Duration: 20 * time.Second,
			Servers: []sim.Server{{Count: 10, Workers: -1}},
			Clients: []sim.Client{{Rate: 1000, Even: true}},
			Script:  []sim.Change{{Kind: sim.Errors, At: 5 * time.Second, Servers: "s-0"}},
			Pool:    c,
		})
		// The next request begins as the fifth answer comes, and goes elsewhere.
		out = append(out,
			fig(v.name, "failures until it is out", float64(r.Servers[0].Failures)).pub(v.pub).exactly(v.want),
			fig(v.name, "ms until it is out", r.Changes[0].Ejected.First.Seconds()*1000))
	}
	below, failures := successRate()
	const finagleRate = "success rate below 0.8 (Finagle)"
	out = append(out,
		fig(finagleRate, "s of failures, window 30 s", below).pub("about 6; 6.7 exactly").within(1, 30*math.Log(1/.8)),
		fig(finagleRate, "failures below 0.5, window 100", failures).pub("70").exactly(70))
	n := x.scale(1_000_000)
	r := must(sim.Scenario{
		Seed: x.seed, Duration: time.Duration(n) * ms / 10, Interval: time.Minute,
		Servers: []sim.Server{{Count: 10, Workers: -1, Errors: .01}},
		Clients: []sim.Client{{Rate: 10_000}},
		Pool:    noRetry(balancer.RoundRobin{}),
	})
	ejections := 0
	for _, s := range r.Servers {
		ejections += s.Ejections + s.Trips
	}
	out = append(out, fig("1 % failing at random, 1e6 requests", "ejections", float64(ejections)).pub("1e-4").exactly(0))
	for _, v := range []struct {
		name     string
		cap      int
		failing  int
		expected float64
	}{
		{"half of 20 servers fail, cap 10 %", 10, 10, 10},
		// More fail than may be out.
		{"16 of 20 servers fail, our cap", 0, 16, 50},
	} {
		c := noRetry(balancer.RoundRobin{})
		c.Outlier.MaxEjectedPercent = v.cap
		c.Breaker = breaker.Config{Off: true}
		now, most := 0, 0
		c.OnEvent = func(e balancer.Event) {
			switch e.Kind {
			case balancer.UpstreamEjected:
				now++
			case balancer.UpstreamReturned:
				now--
			}
			most = max(most, now)
		}
		must(sim.Scenario{
			Seed: x.seed, Duration: 2 * time.Minute,
			Servers: []sim.Server{{Count: 20, Workers: -1}},
			Clients: []sim.Client{{Rate: 1000}},
			Script:  []sim.Change{{Kind: sim.Errors, At: 5 * time.Second, First: v.failing}},
			Pool:    c,
		})
		f := fig(v.name, "most ejected at once, %", 100*float64(most)/20).exactly(v.expected)
		if v.cap > 0 {
			f = f.pub("<= 10")
		}
		out = append(out, f)
	}
	return out
}

// successRate is Finagle's other rule of failure accrual, a mean of ones and
// zeros that decays over a window: how many seconds a server with a hundred
// requests per second must fail for it to fall below 0.8, and how many failures
// it takes, one in each unit of time, to fall below a half.
func successRate() (seconds, failures float64) {
	const one = 1e9
	until := func(window, gap time.Duration, least int64) int {
		m := ewma.NewCore(ewma.Config{Tau: window})
		now := int64(0)
		for range 1000 {
			now += int64(gap)
			m.Observe(now, one)
		}
		for n := 1; ; n++ {
			now += int64(gap)
			m.Observe(now, 0)
			if v, _ := m.Value(now); v < least {
				return n
			}
		}
	}
	return float64(until(30*time.Second, 10*ms, one*8/10)) / 100, float64(until(100*time.Second, time.Second, one/2))
}

// E22: two of twenty servers fail at once whatever they are sent.
func sinkhole(x *lab) []figure {
	const rate = .7 * 20 * 4 / .010
	n := x.scale(200_000)
	ask := func(c balancer.Config) (failed, p99 float64) {
		r := must(sim.Scenario{
			Seed: x.seed, Duration: time.Duration(float64(n) / rate * float64(time.Second)),
			Servers: []sim.Server{{Count: 20, Workers: 4, Service: sim.Exponential(10 * ms)}},
			Clients: []sim.Client{{Rate: rate}},
			Script:  []sim.Change{{Kind: sim.Sinkhole, First: 2}},
			Pool:    c,
		})
		return 100 - percent(r.OKShare()), r.Latency.Quantile(.99).Seconds() * 1000
	}
	var out []figure
	for _, v := range []struct {
		name string
		cfg  balancer.Config
		pub  string
		goal float64 // at most, or, of a rule of others, within 5 %; 0: none
	}{
		{"round robin", bare(balancer.RoundRobin{}), "10.0", 10},
		{"random", bare(balancer.Random{}), "", 0},
		{"least loaded", bare(balancer.LeastConn{Ties: balancer.TiesRandom}), "52.1", 52.1},
		{"P2C", bare(balancer.TwoRandom{}), "18.8", 18.8},
		{"P2C peak EWMA (Finagle)", finagle(), "19.4", 19.4},
		{"ours, without ejector and breaker", bare(balancer.PeakEWMA{}), "0.52", .6},
		{"ours, no retry", noRetry(nil), "", .05},
		{"our default, failures retried", balancer.Config{Retry: balancer.Retry{OnFailure: true}}, "", .05},
	} {
		failed, p99 := ask(v.cfg)
		f, late := fig(v.name, "% failed", failed).pub(v.pub), fig(v.name, "p99 of the others, ms", p99)
		switch {
		case v.goal >= 1:
			f = f.within(5, v.goal)
		case v.goal > 0:
			f = f.atMost(v.goal)
		}
		if v.pub != "" {
			late = late.pub("46-48").within(5, 47)
		}
		out = append(out, f, late)
	}
	return out
}

// E24: a thousand calls per second wait for a breaker to try again.
func stampede(x *lab) []figure {
	var out []figure
	for _, permits := range []int{1, 10} {
		b := breaker.New(breaker.Config{ConsecutiveFailures: 1, OpenFor: time.Second, Trials: permits, Passes: permits, Seed: x.seed})
		start := time.Unix(0, 0)
		p, err := b.Allow(start)
		if err != nil {
			panic(err)
		}
		p.Done(start, false)
		var admitted []*breaker.Permit
		early := 0
		for tick := range 1500 {
			p, err := b.Allow(start.Add(time.Duration(tick) * ms))
			if err != nil {
				continue
			}
			if tick < 1000 {
				early++
			}
			admitted = append(admitted, &p)
		}
		// One caller gives up: one more may try.
		now := start.Add(1500 * ms)
		admitted[0].Cancel(now)
		more := 0
		for range 100 {
			if _, err := b.Allow(now); err == nil {
				more++
			}
		}
		name := number(float64(permits)) + " permits"
		out = append(out,
			fig(name, "admitted while open", float64(early)).exactly(0),
			fig(name, "admitted when half-open", float64(len(admitted))).exactly(float64(permits)),
			fig(name, "admitted for one cancelled", float64(more)).exactly(1))
	}
	return out
}
