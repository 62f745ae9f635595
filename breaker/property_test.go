package breaker_test

import (
	"bytes"
	"flag"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawConfig draws settings with small durations, so that instants coincide.
func drawConfig(t *rapid.T) breaker.Config {
	rate := func(name string) float64 {
		return float64(rapid.SampledFrom([]int{0, 0, 1, 4, 6, 8, 12}).Draw(t, name)) / 12
	}
	d := func(lo, hi int, name string) time.Duration {
		return time.Duration(rapid.IntRange(lo, hi).Draw(t, name))
	}
	cfg := breaker.Config{
		ConsecutiveFailures: rapid.IntRange(0, 4).Draw(t, "consecutive"),
		WindowFailures:      rapid.IntRange(0, 4).Draw(t, "windowFailures"),
		FailureRate:         rate("failureRate"),
		SlowRate:            rate("slowRate"),
		SlowAfter:           d(1, 30, "slowAfter"),
		FailAfter:           rapid.SampledFrom([]time.Duration{0, 0, 20}).Draw(t, "failAfter"),
		MinCalls:            rapid.IntRange(1, 6).Draw(t, "minCalls"),
		Window:              d(1, 100, "window"),
		OpenFor:             d(1, 50, "openFor"),
		OpenGrowth:          float64(rapid.IntRange(4, 12).Draw(t, "growth4")) / 4,
		OpenJitter:          rapid.SampledFrom([]float64{0, 0, 0.25, 1}).Draw(t, "jitter"),
		ForgetAfter:         rapid.SampledFrom([]time.Duration{-1, 1, 40, 200}).Draw(t, "forgetAfter"),
		LateFailure:         breaker.LateFailure(rapid.IntRange(0, 1).Draw(t, "lateFailure")),
		Trials:              rapid.IntRange(1, 3).Draw(t, "trials"),
		Passes:              rapid.IntRange(1, 3).Draw(t, "passes"),
		TrialTimeout:        rapid.SampledFrom([]time.Duration{-1, 5, 30}).Draw(t, "trialTimeout"),
		FlapTransitions:     rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "flapTransitions"),
		FlapWindow:          d(1, 100, "flapWindow"),
	}
	cfg.OpenMax = cfg.OpenFor + d(0, 300, "openMaxOver")
	if cfg.ConsecutiveFailures == 0 && cfg.WindowFailures == 0 && cfg.FailureRate == 0 && cfg.SlowRate == 0 {
		cfg.ConsecutiveFailures = 3
	}
	return cfg
}

// propModel holds a Core against the model.
func propModel(t *rapid.T) {
	cfg := drawConfig(t)
	seed := rapid.Uint64().Draw(t, "seed")
	start := rapid.SampledFrom([]int64{0, -1000, 1 << 40}).Draw(t, "start")
	core := breaker.NewCore(cfg, seed)
	m := &model{cfg: cfg, now: math.MinInt64, since: math.MinInt64 / 2}
	now := start
	type pair struct {
		c breaker.Ticket
		m mticket
	}
	var held, settled []pair

	check := func() {
		var got []breaker.Change
		for ch, ok := core.Pop(); ok; ch, ok = core.Pop() {
			got = append(got, ch)
		}
		if !slices.Equal(got, m.changes) {
			t.Fatalf("changes\n got %+v\nwant %+v", got, m.changes)
		}
		m.changes = nil
		if got := core.Stats(); got != m.stats {
			t.Fatalf("stats %+v, want %+v", got, m.stats)
		}
	}
	// drawn peeks at the length that the core drew for the opening just made; 0
	// if it made none, which no bound allows.
	drawn := func() int64 {
		var all []breaker.Change
		c2 := clone(t, &core, cfg, seed)
		for ch, ok := c2.Pop(); ok; ch, ok = c2.Pop() {
			all = append(all, ch)
		}
		for _, ch := range slices.Backward(all) {
			if ch.Kind == breaker.Transition && ch.To == breaker.Open {
				return int64(ch.OpenFor)
			}
		}
		return 0
	}
	done := func(t *rapid.T, p pair) {
		ok := rapid.IntRange(0, 2).Draw(t, "ok") == 0
		var took int64
		var got bool
		if rapid.Bool().Draw(t, "measured") {
			took = int64(rapid.SampledFrom([]time.Duration{-1, 0, cfg.SlowAfter, cfg.SlowAfter + 1, 20, 21}).Draw(t, "took"))
			got = core.DoneIn(now, p.c, ok, took)
		} else {
			took = max(now, m.now) - p.m.at
			got = core.Done(now, p.c, ok)
		}
		want, err := m.done(now, p.m, ok, took, drawn)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("at %d: counted %v, want %v", now, got, want)
		}
		check()
	}
	// Some runs leave out some operations, so that others come in long rows. They
	// do nothing instead of t.Skip: fuzzed bytes can choose them for ever, which
	// rapid takes for a failure.
	skip := rapid.Uint8().Draw(t, "skip")
	unless := func(bit int, f func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			if skip>>bit&1 == 0 {
				f(t)
			}
		}
	}
	call := func(t *rapid.T) {
		tk, why := core.Allow(now)
		mt, want := m.allow(now)
		if why != want || tk.Valid() != (want == breaker.Admitted) || tk.Trial() != (mt.trial != nil) {
			t.Fatalf("allow at %d: %v %v, want %v", now, tk, why, want)
		}
		if tk.Valid() {
			held = append(held, pair{tk, mt})
		}
		check()
	}
	settle := func(t *rapid.T) {
		if len(held) == 0 {
			return
		}
		i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
		p := held[i]
		held = slices.Delete(held, i, i+1)
		settled = append(settled, p)
		done(t, p)
	}
	advance := func(t *rapid.T) {
		step := int64(rapid.IntRange(0, 40).Draw(t, "step"))
		at, _ := m.due()
		switch rapid.IntRange(0, 5).Draw(t, "to") {
		case 0:
			if at != never {
				now = max(now, at)
			}
		case 1:
			if at != never {
				now = max(now, at-1)
			}
		case 2:
			now += int64(cfg.Window) - step%3
		case 3:
			now -= step % 10 // a reading that goes back
		default:
			now += step
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"allow":  call,
		"allow2": call,
		"done":   settle,
		"done2":  settle,
		"burst": unless(0, func(t *rapid.T) {
			for range rapid.IntRange(1, 6).Draw(t, "n") {
				call(t)
				if len(held) > 0 {
					p := held[len(held)-1]
					held = held[:len(held)-1]
					settled = append(settled, p)
					done(t, p)
				}
			}
		}),
		"again": unless(1, func(t *rapid.T) {
			// A trial counts once; another ticket counts each time.
			if len(settled) == 0 {
				return
			}
			done(t, rapid.SampledFrom(settled).Draw(t, "p"))
		}),
		"zero": func(t *rapid.T) {
			core.Cancel(now, breaker.Ticket{})
			m.input(now)
			if core.Done(now, breaker.Ticket{}, false) {
				t.Fatal("the zero ticket counted")
			}
			check()
		},
		"cancel": unless(2, func(t *rapid.T) {
			if len(held) == 0 {
				return
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			core.Cancel(now, held[i].c)
			m.cancel(now, held[i].m)
			settled = append(settled, held[i])
			held = slices.Delete(held, i, i+1)
			check()
		}),
		"poll": unless(3, func(t *rapid.T) {
			core.Poll(now)
			m.input(now)
			check()
		}),
		"trip": unless(4, func(t *rapid.T) {
			d := int64(rapid.IntRange(-1, 60).Draw(t, "for"))
			core.Trip(now, d)
			m.trip(now, d)
			check()
		}),
		"force": unless(5, func(t *rapid.T) {
			to := breaker.State(rapid.IntRange(0, 2).Draw(t, "to"))
			core.Force(now, to)
			m.force(now, to)
			check()
		}),
		"release": unless(6, func(t *rapid.T) {
			core.Release(now)
			m.release(now)
			check()
		}),
		"restore": unless(7, func(t *rapid.T) {
			core = clone(t, &core, cfg, seed)
		}),
		"advance":  advance,
		"advance2": advance,
		"": func(t *rapid.T) {
			before := core.AppendState(nil, now)
			for _, ahead := range []int64{0, 1, 13} {
				m.compare(t, &core, now+ahead)
			}
			if !bytes.Equal(before, core.AppendState(nil, now)) {
				t.Fatal("a read changed something")
			}
		},
	})
}

// compare holds all reads at now against the model, which is rolled forward on a
// copy for that.
func (m *model) compare(t *rapid.T, core *breaker.Core, now int64) {
	if at, _ := m.due(); core.NextChange() != at {
		t.Fatalf("next change %d, want %d", core.NextChange(), at)
	}
	if core.Forced() != m.forced || core.Rule() != m.rule {
		t.Fatalf("forced %v by %v, want %v by %v", core.Forced(), core.Rule(), m.forced, m.rule)
	}
	future := *m
	future.trials = nil
	for _, tr := range m.trials {
		c := *tr
		future.trials = append(future.trials, &c)
	}
	flapping := m.flap && max(now, m.now) < m.flapEnd()
	future.input(now)
	if got := core.State(now); got != future.state {
		t.Fatalf("state at %d is %v, want %v", now, got, future.state)
	}
	counts := future.counts(future.now)
	ready := future.state == breaker.Closed || future.state == breaker.HalfOpen && counts.Trials < m.cfg.Trials
	if got := core.Ready(now); got != ready {
		t.Fatalf("ready at %d is %v, want %v", now, got, ready)
	}
	if got := core.Counts(now); got != counts {
		t.Fatalf("counts at %d are %+v, want %+v", now, got, counts)
	}
	if got := core.Flapping(now); got != flapping {
		t.Fatalf("flapping at %d is %v, want %v", now, got, flapping)
	}
	if until := core.Until(); ready {
		if until > max(now, m.now) {
			t.Fatalf("ready at %d, but until %d", now, until)
		}
	} else if until <= max(now, m.now) {
		t.Fatalf("not ready at %d, but until %d", now, until)
	}
	idle := future.state == breaker.Closed && !m.forced && counts == breaker.Counts{} &&
		(m.cfg.FlapTransitions == 0 || future.recent(future.now) == 0) &&
		len(future.changes) == 0 && !future.remembers()
	if got := core.Idle(now); got != idle {
		t.Fatalf("idle at %d is %v, want %v", now, got, idle)
	}
}

// remembers reports whether a trip now would be longer for the past ones.
func (m *model) remembers() bool {
	return m.cfg.OpenGrowth != 1 && len(m.trips) > 0 &&
		(m.cfg.ForgetAfter < 0 || m.now-m.since < int64(m.cfg.ForgetAfter))
}

// clone returns a core restored from the saved state of c.
func clone(t *rapid.T, c *breaker.Core, cfg breaker.Config, seed uint64) breaker.Core {
	const at = 777
	saved := c.AppendState([]byte("head"), at)
	n := breaker.NewCore(cfg, seed)
	rest, err := n.RestoreState(append(saved[4:], "tail"...), at)
	if err != nil || string(rest) != "tail" {
		t.Fatalf("restore: %q, %v", rest, err)
	}
	if again := n.AppendState([]byte("head"), at); !bytes.Equal(again, saved) {
		t.Fatalf("saved again:\n got %x\nwant %x", again, saved)
	}
	return n
}

func TestModel(t *testing.T) {
	deepen(t, 1500)
	checkSeeded(t, 1, propModel)
}

// deepen raises the number of cases of the rapid tests from the default, which
// these cheap ones exhaust in milliseconds. An explicit flag wins.
func deepen(t *testing.T, checks int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	old := f.Value.String()
	if old != f.DefValue {
		return
	}
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(opsOf(t, checks))))
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", old)) })
}
