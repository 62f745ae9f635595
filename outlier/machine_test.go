package outlier_test

import (
	"flag"
	"math"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// drawConfig draws a configuration with small numbers and no zero that means a
// default.
func drawConfig(t *rapid.T) outlier.Config {
	num := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
	dur := func(name string, of ...time.Duration) time.Duration { return rapid.SampledFrom(of).Draw(t, name) }
	base := dur("base", 3, 10, 40)
	return outlier.Config{
		Consecutive:          num("consecutive", -1, 1, 2, 3, 5),
		ConsecutiveGateway:   num("gateway", 0, 0, 2, 3),
		ConsecutiveTransport: num("transport", 0, 0, 1, 2),
		SuccessRate: outlier.SuccessRate{
			On: rapid.Bool().Draw(t, "success rate"), Factor: num("factor", 700, 1900, 2300),
			MinHosts: num("rate hosts", 1, 2, 4), MinRequests: num("rate requests", 1, 2, 4),
			MinFailures: num("failures", 1, 2), Tolerate: num("tolerate", 400, 700, 950), Dead: num("dead", 1, 100, 300),
		},
		FailurePercentage: outlier.FailurePercentage{
			On: rapid.Bool().Draw(t, "percentage"), Inline: rapid.Bool().Draw(t, "inline"),
			Threshold: num("threshold", 34, 50, 100), MinHosts: num("percentage hosts", 1, 2, 3),
			MinRequests: num("percentage requests", 1, 3, 6),
		},
		Latency: outlier.Latency{
			On: rapid.Bool().Draw(t, "latency"), Alpha: num("alpha", 1, 250, 500, 1000), Factor: num("line", 1100, 2000, 3000),
			Window: dur("window", 1, 5, 20), MinSamples: num("samples", 1, 2, 4), MinHosts: num("latency hosts", 1, 2, 3),
			Floor:     dur("floor", 0, 0, 20),
			Baseline:  rapid.SampledFrom([]outlier.Baseline{outlier.BaselineOthers, outlier.BaselineAll, outlier.BaselineMedian}).Draw(t, "baseline"),
			KeepScore: rapid.Bool().Draw(t, "keep"),
		},
		Interval: dur("interval", 5, 16, 100), Base: base, Max: base * dur("max", 1, 2, 5),
		Forgive:           dur("forgive", -1, 7, 50),
		MaxEjectedPercent: num("percent", 20, 50, 67, 100), EjectOne: rapid.Bool().Draw(t, "one"),
		Last:     rapid.SampledFrom([]outlier.LastRule{outlier.KeepLast, outlier.KeepSole, outlier.EjectLast}).Draw(t, "last"),
		Return:   rapid.SampledFrom([]outlier.ReturnMode{outlier.Clean, outlier.Probation, outlier.Ramp}).Draw(t, "return"),
		RampFrom: num("from", 1, 250, 1000), RampStep: dur("step", 1, 6), RampGrowth: num("growth", 1100, 2000),
	}
}

// pair drives a Core and the model side by side. The Core's timeline is off
// ahead of the model's.
type pair struct {
	c     *outlier.Core
	m     *model
	cfg   outlier.Config
	hosts []*outlier.Host
	off   int64
	seed  uint64
}

func newPair(cfg outlier.Config, n int, seed uint64) *pair {
	p := &pair{c: outlier.NewCore(cfg, seed), m: &model{cfg: cfg}, cfg: cfg, seed: seed}
	for i := range n {
		h := &outlier.Host{Index: i}
		p.hosts = append(p.hosts, h)
		p.m.hosts = append(p.m.hosts, &modelHost{h: h})
		p.add(0, i)
	}
	return p
}

func (p *pair) add(now int64, i int) {
	p.c.Add(now+p.off, p.hosts[i], uint64(i))
	p.m.advance(now)
	if h := p.m.hosts[i]; !h.member {
		*h = modelHost{h: h.h, member: true, usable: true}
	}
}

func (p *pair) remove(now int64, i int) {
	p.c.Remove(now+p.off, p.hosts[i])
	p.m.advance(now)
	p.m.hosts[i].member = false
}

func (p *pair) setUsable(now int64, i int, yes bool) {
	p.c.SetUsable(now+p.off, p.hosts[i], yes)
	p.m.advance(now)
	if h := p.m.hosts[i]; h.member {
		p.m.turn(h, yes)
	}
}

func (p *pair) record(now int64, i int, start int64, o outlier.Outcome, latency int64) {
	p.c.Record(now+p.off, p.hosts[i], start+p.off, o, latency)
	p.m.record(now, p.m.hosts[i], start, o, latency)
}

func (p *pair) uneject(now int64, i int) {
	p.c.Uneject(now+p.off, p.hosts[i])
	p.m.advance(now)
	if h := p.m.hosts[i]; h.member && h.out() {
		p.m.restore(p.m.now, h, outlier.CauseForced)
	}
}

// move saves the Core and goes on with another one on another timeline.
func (p *pair) move(t fataler, now, off int64) {
	p.compare(t)
	saved := p.c.AppendState([]byte("head"), now+p.off, p.hosts)
	p.c = outlier.NewCore(p.cfg, p.seed)
	rest, err := p.c.RestoreState(append(saved, "tail"...)[4:], now+off, p.hosts)
	if err != nil || string(rest) != "tail" {
		t.Fatalf("restore: rest %q, error %v", rest, err)
	}
	p.off = off
}

// compare pops the Core's changes and holds everything against the model.
func (p *pair) compare(t fataler) {
	var got []event
	for ch, ok := p.c.Pop(); ok; ch, ok = p.c.Pop() {
		if ch.Kind == outlier.Spared {
			continue
		}
		got = append(got, event{ch.Kind, ch.Rule, ch.Cause, ch.Host.Index, ch.At - p.off, ch.Until - p.off, ch.Count})
	}
	want := p.m.events
	if len(got) != len(want) {
		t.Fatalf("%d changes, want %d\n got %+v\nwant %+v", len(got), len(want), got, want)
	}
	for i := range got {
		if want[i].kind == outlier.Returned {
			got[i].rule, want[i].rule = 0, 0 // the model does not keep it
		}
		if want[i].kind == outlier.Stepped {
			got[i].count = 0
		}
		if got[i] != want[i] {
			t.Fatalf("change %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	p.m.events = p.m.events[:0]
	ejected, usable := 0, 0
	for i, h := range p.hosts {
		x := p.m.hosts[i]
		if !x.member {
			continue
		}
		if h.Ejected() != x.out() {
			t.Fatalf("host %d ejected: %v, want %v", i, h.Ejected(), x.out())
		}
		if x.out() {
			ejected++
		}
		if x.usable {
			usable++
		}
		if h.Ejections() != len(x.periods) {
			t.Fatalf("host %d ejections: %d, want %d", i, h.Ejections(), len(x.periods))
		}
		if got, want := p.c.Count(p.m.now+p.off, h), int(p.m.count(p.m.now, x)); got != want {
			t.Fatalf("host %d count: %d, want %d", i, got, want)
		}
		want := p.m.weight(p.m.now, x)
		if x.out() {
			want = 0
		}
		if got := p.c.Weight(p.m.now+p.off, h); got != want {
			t.Fatalf("host %d weight: %d, want %d", i, got, want)
		}
		if x.out() {
			want = 1000
		}
		if got := h.Ramp(); got != want {
			t.Fatalf("host %d ramp: %d, want %d", i, got, want)
		}
		for _, d := range [][2]int64{{0, 0}, {3, 0}, {9, 2}, {20, 5}, {20, 20}, {40, -7}, {7, math.MaxInt64 / 2}} {
			at, since := p.m.now+d[0], p.m.now+d[1]
			if got, want := p.c.WeightSince(at+p.off, h, since+p.off), p.m.weightSince(at, x, since); got != want {
				t.Fatalf("host %d weight %d later, usable since %d: %d, want %d", i, d[0], d[1], got, want)
			}
		}
		if p.cfg.Latency.On {
			v, ok := h.Score()
			if s := p.m.score(x); (s != nil) != ok || ok && s.Cmp(big.NewInt(v)) != 0 {
				t.Fatalf("host %d score: %v %v, want %v", i, v, ok, s)
			}
		}
	}
	if p.c.EjectedCount() != ejected || p.c.UsableCount() != usable {
		t.Fatalf("ejected %d, usable %d, want %d, %d", p.c.EjectedCount(), p.c.UsableCount(), ejected, usable)
	}
}

type fataler interface{ Fatalf(string, ...any) }

// machine is the property: whatever is done, Core and model agree.
func machine(t *rapid.T) {
	p := newPair(drawConfig(t), rapid.IntRange(1, 6).Draw(t, "hosts"), 7)
	now := int64(0)
	host := func() int { return rapid.IntRange(0, len(p.hosts)-1).Draw(t, "host") }
	outcome := rapid.SampledFrom([]outlier.Outcome{success, success, failure, failure, gateway, transport, transport + 1})
	latency := rapid.SampledFrom([]int64{-1, 0, 5, 5, 6, 9, 30, 100, 1000})
	// Swarm: some runs never do some things, so that others happen in a row.
	skip := rapid.Uint8().Draw(t, "skip")
	unless := func(bit int, f func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			// Not t.Skip: under the fuzzer a run of skipped actions is a failure.
			if skip&(1<<bit) == 0 {
				f(t)
			}
		}
	}
	result := func(t *rapid.T) {
		start := now
		if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
			start -= rapid.Int64Range(0, 60).Draw(t, "age")
		}
		p.record(now, host(), start, outcome.Draw(t, "outcome"), latency.Draw(t, "latency"))
	}
	burst := func(t *rapid.T) {
		i, o, d := host(), outcome.Draw(t, "outcome"), latency.Draw(t, "latency")
		for range rapid.IntRange(1, 7).Draw(t, "times") {
			p.record(now, i, now, o, d)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"result":  result,
		"result2": result,
		"burst":   burst,
		"everyone": func(t *rapid.T) {
			d := latency.Draw(t, "latency")
			for i := range p.hosts {
				p.record(now, i, now, success, d)
			}
		},
		"wait": func(t *rapid.T) {
			next, planned := p.c.NextChange(), false
			if next != math.MaxInt64 {
				next -= p.off
				planned = next < now+1000
			}
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				if planned {
					now = max(now, next)
				}
			case 1:
				if planned {
					now = max(now, next-1)
				}
			case 2:
				now += rapid.Int64Range(0, 20).Draw(t, "short")
			default:
				now += rapid.Int64Range(0, 300).Draw(t, "long")
			}
			if rapid.Bool().Draw(t, "poll") {
				p.c.Poll(now + p.off)
				p.m.advance(now)
			}
		},
		"back": unless(0, func(t *rapid.T) {
			early := now - rapid.Int64Range(1, 50).Draw(t, "by")
			p.record(early, host(), early, outcome.Draw(t, "outcome"), latency.Draw(t, "latency"))
		}),
		"usable":  unless(1, func(t *rapid.T) { p.setUsable(now, host(), rapid.Bool().Draw(t, "yes")) }),
		"remove":  unless(2, func(t *rapid.T) { p.remove(now, host()) }),
		"add":     unless(2, func(t *rapid.T) { p.add(now, host()) }),
		"uneject": unless(3, func(t *rapid.T) { p.uneject(now, host()) }),
		"renumber": unless(4, func(t *rapid.T) {
			p.compare(t) // what is queued has the old numbers
			a, b := p.hosts[host()], p.hosts[host()]
			a.Index, b.Index = b.Index, a.Index
		}),
		"move": unless(5, func(t *rapid.T) { p.move(t, now, rapid.Int64Range(-1e6, 1e6).Draw(t, "off")) }),
		"":     func(t *rapid.T) { p.compare(t) },
	})
}

func TestModel(t *testing.T) {
	enlarge(t, 400, 60)
	checkSeeded(t, 1, machine)
}

// enlarge makes the test's property run longer than rapid's default, unless the
// command line has its own wish.
func enlarge(t *testing.T, checks, steps int) {
	for name, to := range map[string][2]string{
		"rapid.checks": {"100", strconv.Itoa(checks)}, "rapid.steps": {"30", strconv.Itoa(steps)},
	} {
		if f := flag.Lookup(name); f != nil && f.Value.String() == to[0] {
			require.NoError(t, flag.Set(name, to[1]))
			t.Cleanup(func() { _ = flag.Set(name, to[0]) })
		}
	}
}
