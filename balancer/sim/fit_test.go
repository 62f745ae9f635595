package sim_test

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// badDay is a fleet without queues in which one server is slow for a while,
// another fails most of its requests, and a third is away.
func badDay(pool balancer.Config) sim.Scenario {
	return sim.Scenario{
		Seed: 5, Duration: time.Minute,
		Servers: []sim.Server{{Name: "s", Count: 5, Workers: -1, Service: sim.LogNormal(10*ms, 60*ms)}},
		Clients: []sim.Client{{Rate: 400}},
		Script: []sim.Change{
			{Kind: sim.Brownout, At: 10 * time.Second, For: 10 * time.Second, Servers: "s-1", Factor: 8},
			{Kind: sim.Sinkhole, At: 25 * time.Second, For: 10 * time.Second, Servers: "s-2", Share: .6},
			{Kind: sim.Refusals, At: 30 * time.Second, For: 10 * time.Second, Servers: "s-3", Share: .3, Service: sim.Constant(50 * ms)},
			{Kind: sim.Roll, At: 45 * time.Second, For: 5 * time.Second, Servers: "s-4"},
		},
		Pool: pool,
	}
}

func fitOf(t *testing.T, s sim.Scenario) sim.Scenario {
	t.Helper()
	var b bytes.Buffer
	_, err := sim.Record(s, 0, &b)
	require.NoError(t, err)
	r, err := incident.NewReader(&b)
	require.NoError(t, err)
	fit, err := sim.Fit(r, sim.FitConfig{})
	require.NoError(t, err)
	return fit
}

// What was recorded under one configuration says what another one would have
// done: the fitted scenario gives the figures of the one that was recorded, under
// the configuration of the recording and under others.
func TestFitForetells(t *testing.T) {
	off := balancer.Config{Policy: balancer.RoundRobin{}, Breaker: breaker.Config{Off: true}, Outlier: outlier.Config{Off: true}, Retry: balancer.Retry{Off: true}}
	fit := fitOf(t, badDay(off))
	for name, pool := range map[string]balancer.Config{
		"as recorded": off,
		"random":      {Policy: balancer.Random{}, Breaker: off.Breaker, Outlier: off.Outlier, Retry: off.Retry},
		"with retries": {Policy: balancer.RoundRobin{}, Breaker: off.Breaker, Outlier: off.Outlier,
			Retry: balancer.Retry{OnFailure: true}},
		"our default": {},
	} {
		real := badDay(pool)
		fit.Pool = pool
		want, err := sim.Run(real)
		require.NoError(t, err)
		got, err := sim.Run(fit)
		require.NoError(t, err)
		require.Equal(t, want.Requests, got.Requests, name)
		near := func(what string, want, got, off float64) {
			t.Helper()
			t.Logf("%s, %s: %.4f, foretold %.4f", name, what, want, got)
			require.LessOrEqual(t, math.Abs(want-got), off, "%s, %s: %v, foretold %v", name, what, want, got)
		}
		near("failed", 1-want.OKShare(), 1-got.OKShare(), .01)
		near("amplification", want.Amplification(), got.Amplification(), .01)
		for i := range want.Servers {
			near(want.Servers[i].ID, want.Share(i), got.Share(i), .05)
		}
		for _, q := range []float64{.5, .9, .99} {
			w, g := want.Latency.Quantile(q), got.Latency.Quantile(q)
			near("latency", 1, float64(g)/float64(w), .2)
		}
	}
}

// The script of the fit is that of the recording.
func TestFitScript(t *testing.T) {
	fit := fitOf(t, badDay(balancer.Config{Policy: balancer.RoundRobin{}, Breaker: breaker.Config{Off: true}, Outlier: outlier.Config{Off: true}, Retry: balancer.Retry{Off: true}}))
	require.Equal(t, 1, len(fit.Clients))
	share := map[string]float64{}
	windows := map[string]int{}
	slow := 0
	for _, c := range fit.Script {
		id := c.Kind.String() + " " + c.Servers
		windows[id]++
		share[id] += c.Share
		switch c.Kind {
		case sim.Brownout:
			slow++
		case sim.Roll:
			require.Equal(t, "s-4", c.Servers)
			require.Equal(t, 45*time.Second, c.At)
			require.Equal(t, 5*time.Second, c.For)
		}
	}
	require.Equal(t, 1, windows["roll s-4"])
	require.InDelta(t, 10, windows["brownout s-1"], 1)
	require.LessOrEqual(t, slow, 20, "chance makes a few more")
	require.InDelta(t, 10, windows["sinkhole s-2"], 1)
	require.InDelta(t, .6, share["sinkhole s-2"]/float64(windows["sinkhole s-2"]), .05)
	require.InDelta(t, 10, windows["refusals s-3"], 1)
	require.InDelta(t, .3, share["refusals s-3"]/float64(windows["refusals s-3"]), .05)
	// It can be kept in a file.
	var b bytes.Buffer
	require.NoError(t, fit.Write(&b))
	again, err := sim.Read(&b)
	require.NoError(t, err)
	require.Equal(t, fit, again)
}

// By hand: what counts as the latency, what is left out, what goes on.
func TestFitByHand(t *testing.T) {
	file := func(lines ...string) *incident.Reader {
		head := `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","config":{"Policy":{"name":"round_robin","First":true}},"members":[{"b":"a","weight":3,"tier":1,"limit":9},{"b":"z","weight":0}]}`
		r, err := incident.NewReader(strings.NewReader(head + "\n" + strings.Join(lines, "\n") + "\n" + `{"end":true}` + "\n"))
		require.NoError(t, err)
		return r
	}
	s, err := sim.Fit(file(
		`{"t":"0","in":"request","r":1,"key":"u"}`, `{"t":"0","ev":"pick","r":1,"b":"a"}`,
		`{"t":"0.1","in":"acquire","r":2,"hash":"00000000000000ff"}`, `{"t":"0.1","ev":"pick","r":2,"b":"a"}`,
		`{"t":"0.2","in":"answered","r":2}`, `{"t":"0.5","in":"settle","r":2,"out":"success"}`, // took 0.1
		`{"t":"0.6","in":"done","r":1,"out":"success","lat":"0.25"}`, // took 0.25
		`{"t":"0.7","in":"request","r":3,"key":"u"}`, `{"t":"0.7","ev":"pick","r":3,"b":"a"}`,
		`{"t":"0.8","in":"done","r":3,"out":"transport_failure"}`, `{"t":"0.8","in":"next","r":3}`, `{"t":"0.8","ev":"retry","r":3,"try":1,"b":"a"}`,
		`{"t":"1.2","in":"done","r":3,"out":"success"}`, // took 0.4
		`{"t":"2","in":"acquire","r":4}`, `{"t":"2","ev":"pick","r":4,"b":"a"}`,
		`{"t":"2.1","in":"settle","r":4,"out":"ignored"}`,
		`{"t":"3","in":"settle","r":9,"out":"failure"}`,
		`{"t":"5","in":"acquire","r":5}`, `{"t":"5","ev":"pick","r":5,"b":"a"}`, `{"t":"5.5","in":"settle","r":5,"out":"failure"}`,
		`{"t":"9","in":"time"}`,
	), sim.FitConfig{MinAttempts: 1})
	require.NoError(t, err)
	second := time.Second
	require.Equal(t, 9*second+1, s.Duration)
	require.Equal(t, uint64(7), s.Seed)
	require.Equal(t, balancer.RoundRobin{First: true}, s.Pool.Policy)
	require.Equal(t, []sim.Client{{Times: []time.Duration{0, 100 * ms, 700 * ms, 2 * second, 5 * second}, Keys: 2}}, s.Clients)
	require.Equal(t, sim.Server{Name: "a", Weight: 3, Priority: 1, MaxInflight: 9, Workers: -1, Service: sim.Recorded([]time.Duration{100 * ms, 250 * ms, 400 * ms})}, s.Servers[0])
	require.Equal(t, -1, s.Servers[1].Weight)
	require.Equal(t, s.Servers[0].Service, s.Servers[1].Service, "what nobody has seen is like the others")
	require.Equal(t, []sim.Change{
		{Kind: sim.Refusals, At: 0, For: second, Servers: "a", Share: .25, Service: sim.Recorded([]time.Duration{100 * ms})},
		// Nobody asked it again, so it is taken to go on.
		{Kind: sim.Sinkhole, At: 5 * second, For: 4*second + 1, Servers: "a", Service: sim.Recorded([]time.Duration{500 * ms})},
	}, s.Script)

	// Failures of both kinds in one window, and most of them: they go on.
	lines := []string{}
	for i, out := range []string{"transport_failure", "failure", "failure", "success", "failure", "failure"} {
		r := strconv.Itoa(i + 1)
		lines = append(lines, `{"t":"0","in":"acquire","r":`+r+`}`, `{"t":"0","ev":"pick","r":`+r+`,"b":"a"}`,
			`{"t":"0","in":"settle","r":`+r+`,"out":"`+out+`","lat":"0.001"}`)
	}
	s, err = sim.Fit(file(append(lines, `{"t":"3","in":"time"}`)...), sim.FitConfig{MinAttempts: 1})
	require.NoError(t, err)
	one := sim.Recorded([]time.Duration{ms})
	four := sim.Recorded([]time.Duration{ms, ms, ms, ms})
	require.Equal(t, []sim.Change{
		{Kind: sim.Refusals, For: second, Servers: "a", Share: 1. / 6, Service: one},
		{Kind: sim.Sinkhole, For: 3*second + 1, Servers: "a", Share: .8, Service: four},
	}, s.Script)

	// A lease that was settled by itself is not settled again by its Done.
	s, err = sim.Fit(file(
		`{"t":"0","in":"request","r":1}`, `{"t":"0","ev":"pick","r":1,"b":"a"}`,
		`{"t":"0.1","in":"settle","r":1,"out":"success"}`, `{"t":"0.3","in":"done","r":1,"out":"failure"}`,
	), sim.FitConfig{MinAttempts: 1})
	require.NoError(t, err)
	require.Equal(t, sim.Recorded([]time.Duration{100 * ms}), s.Servers[0].Service)
	require.Empty(t, s.Script)

	// Who leaves or is unhealthy is away, to the end if need be; who comes back
	// after leaving is healthy.
	s, err = sim.Fit(file(append(lines[:3:3],
		`{"t":"1","in":"health","b":"a","up":false}`, `{"t":"2","in":"health","b":"a","up":true}`,
		`{"t":"3","in":"health","b":"a","up":false}`, `{"t":"3.5","in":"update","members":[{"b":"z"}]}`,
		`{"t":"4","in":"update","members":[{"b":"a"},{"b":"z"}]}`,
		`{"t":"6","in":"health","b":"a","up":true}`, `{"t":"7","in":"update","members":[{"b":"a"}]}`,
		`{"t":"8","in":"time"}`)...), sim.FitConfig{Window: time.Minute})
	require.NoError(t, err)
	away := s.Script[:0:0]
	for _, c := range s.Script {
		if c.Kind == sim.Roll {
			away = append(away, c)
		}
	}
	require.Equal(t, []sim.Change{
		{Kind: sim.Roll, At: second, For: second, Servers: "a"},
		{Kind: sim.Roll, At: 3 * second, For: second, Servers: "a"},
		{Kind: sim.Roll, At: 7 * second, For: second + 1, Servers: "z"},
	}, away)

	// Who joins is out until somebody says otherwise, if the Pool had it so.
	sick, err := incident.NewReader(strings.NewReader(`{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","config":{"StartUnhealthy":true},"members":[{"b":"a"},{"b":"z"}]}
{"t":"1","in":"health","b":"a","up":true}
{"t":"1","in":"acquire","r":1}
{"t":"1","ev":"pick","r":1,"b":"a"}
{"t":"2","in":"settle","r":1,"out":"success"}
{"end":true}
`))
	require.NoError(t, err)
	s, err = sim.Fit(sick, sim.FitConfig{})
	require.NoError(t, err)
	require.False(t, s.Pool.StartUnhealthy)
	require.Equal(t, []sim.Change{
		{Kind: sim.Roll, For: second, Servers: "a"}, {Kind: sim.Roll, For: 2*second + 1, Servers: "z"},
	}, s.Script)

	_, err = sim.Fit(file(`{"t":"1","in":"time"}`), sim.FitConfig{})
	require.ErrorIs(t, err, sim.ErrFit)
	_, err = sim.Fit(file(`{"t":"1","in":"acquire","r":1}`), sim.FitConfig{})
	require.ErrorIs(t, err, sim.ErrFit, "no events")
	for _, c := range []sim.FitConfig{{Window: -1}, {Samples: -1}, {MinAttempts: -1}} {
		_, err = sim.Fit(file(), c)
		require.ErrorIs(t, err, sim.ErrConfig)
	}
	_, err = incident.NewReader(strings.NewReader(""))
	require.Error(t, err)
	_, err = sim.Fit(file(`{"t":"1","in":"nothing"}`), sim.FitConfig{})
	require.ErrorIs(t, err, incident.ErrSyntax)
}

// A share of a sinkhole's requests fails at once, and the others are served; of
// refusals likewise. Both draw for themselves.
func TestChangeShares(t *testing.T) {
	for _, kind := range []sim.Kind{sim.Sinkhole, sim.Refusals} {
		outcomes := map[balancer.Outcome]int{}
		r, err := sim.Watch(sim.Scenario{
			Seed: 3, Duration: 100 * time.Second,
			Servers: []sim.Server{{Workers: -1, Service: fixed(10)}},
			Clients: []sim.Client{{Rate: 100, Even: true}},
			Script: []sim.Change{
				{Kind: kind, Share: .25, Service: fixed(1)},
				{Kind: sim.Errors, Share: .5},
			},
			Pool: bare(nil),
		}, func(a sim.Attempt) { outcomes[a.Outcome]++ })
		require.NoError(t, err)
		require.InDelta(t, .375, r.OKShare(), .02, kind)
		if kind == sim.Refusals {
			require.InDelta(t, 2500, outcomes[balancer.TransportFailure], 130)
			require.InDelta(t, 3750, outcomes[balancer.Failure], 150)
		} else {
			require.InDelta(t, 6250, outcomes[balancer.Failure], 150)
		}
	}
}
