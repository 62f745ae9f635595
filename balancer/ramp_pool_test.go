package balancer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// What NextChange announces happens then, by the next input, whichever that is,
// and a Snapshot sees it before.
func TestRampIsDue(t *testing.T) {
	inputs := map[string]func(*rig){
		"poll":    func(r *rig) { r.pool.Poll() },
		"acquire": func(r *rig) { r.next() },
		"save":    func(r *rig) { r.pool.Save() },
		"health":  func(r *rig) { r.set("A", true) },
		"update":  func(r *rig) { r.update(peersOf(1, 1, 1)...) },
	}
	for name, input := range inputs {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ramped(balancer.WeightedRoundRobin{}), peersOf(1, 1, 1)...)
			r.eject("B")
			start := r.clk.Now()
			for i, ramp := range []int{250, 500, 1000} {
				due, ok := r.pool.NextChange()
				require.True(t, ok)
				require.Equal(t, start.Add(time.Duration(i+1)*time.Second), due)
				r.clk.Set(due)
				require.Equal(t, ramp, r.ramp("B"))
				input(r)
				require.NoError(t, r.pool.Check())
				require.Equal(t, ramp, r.ramp("B"))
			}
			_, ok := r.pool.NextChange()
			require.False(t, ok)
		})
	}
}

// An ejection ends the ramp at once, an end by a good check begins one, an
// update of everything else leaves it alone, and a name that comes back has none.
func TestRampAndOtherChanges(t *testing.T) {
	cfg := ramped(balancer.RoundRobin{First: true})
	cfg.Outlier.ProbeEnds = true
	r := newRig(t, cfg, peersOf(1, 1, 1)...)
	r.returned("C")
	require.Equal(t, 250, r.ramp("C"))
	r.update(peer{id: "D", weight: 1}, peer{id: "C", weight: 7, tier: 1}, peer{id: "A", weight: 1})
	require.Equal(t, 250, r.ramp("C"))
	r.update(peersOf(1, 1, 1)...)
	require.Equal(t, 250, r.ramp("C"))
	require.Equal(t, map[string]int{"A": 40, "B": 40, "C": 10}, tally(r.picks(90)))

	r.eject("C")
	require.NoError(t, r.pool.Check())
	require.Zero(t, r.ramp("C"))
	require.Equal(t, map[string]int{"A": 4, "B": 4}, tally(r.picks(8)))
	r.set("C", true)
	require.NoError(t, r.pool.Check())
	require.Equal(t, 250, r.ramp("C"))
	require.Equal(t, map[string]int{"A": 40, "B": 40, "C": 10}, tally(r.picks(90)))

	r.update(peersOf(1, 1)...)
	r.update(peersOf(1, 1, 1)...)
	require.Equal(t, 1000, r.ramp("C"))
	require.Equal(t, map[string]int{"A": 3, "B": 3, "C": 3}, tally(r.picks(9)))
	require.NoError(t, r.pool.Check())
}

// While ejections are ignored there are no ramps.
func TestRampAndFallback(t *testing.T) {
	for _, p := range builtin() {
		cfg := ramped(p)
		cfg.Outlier.Last = outlier.EjectLast
		r := newRig(t, cfg, peersOf(1, 1)...)
		r.returned("A") // on a ramp
		r.set("A", false)
		r.eject("B")
		s := r.pool.Snapshot()
		require.True(t, s.Fallback)
		require.Equal(t, []float64{0, 1}, []float64{s.Upstreams[0].Expected, s.Upstreams[1].Expected})
		for range 20 {
			l := r.hold()
			require.True(t, l.Fallback())
			require.Equal(t, "B", l.Upstream().id)
			l.Release(balancer.Ignored)
		}
	}
}

// Without another host in its tier a host on a ramp gets all of the traffic, also
// if there is another tier; and each tier has its own expected shares.
func TestRampAndTiers(t *testing.T) {
	r := newRig(t, ramped(balancer.RoundRobin{First: true}),
		peer{id: "A", weight: 1}, peer{id: "B", weight: 1, tier: 1}, peer{id: "C", weight: 3, tier: 1})
	r.returned("A")
	require.Equal(t, "AAAA", r.line(4))
	var expected []float64
	for _, u := range r.pool.Snapshot().Upstreams {
		expected = append(expected, u.Expected)
	}
	require.Equal(t, []float64{1, 0.25, 0.75}, expected)
	for _, p := range r.pool.Snapshot().Distribution() {
		require.Equal(t, float64(b2i(p.ID == "A")), p.Share)
	}
	require.Empty(t, balancer.Snapshot{}.Distribution())
}

// A limit that is reached is not a host that is out.
func TestExpectedAtTheLimit(t *testing.T) {
	r := newRig(t, ramped(balancer.RoundRobin{First: true}), peer{id: "A", weight: 1, max: 1}, peer{id: "B", weight: 1})
	l := r.hold()
	require.Equal(t, "A", l.Upstream().id)
	for _, u := range r.pool.Snapshot().Upstreams {
		require.Equal(t, 0.5, u.Expected)
	}
}

// In shadow mode nobody is out, so nobody returns.
func TestRampInShadow(t *testing.T) {
	cfg := ramped(balancer.RoundRobin{First: true})
	cfg.Outlier.Shadow = true
	r := newRig(t, cfg, peersOf(1, 1)...)
	r.eject("A")
	require.Equal(t, 1000, r.ramp("A"))
	r.clk.Advance(time.Second)
	require.Equal(t, "BABA", r.line(4))
	require.Equal(t, 1000, r.ramp("A"))
}

// A Policy of the user's sees ramps in its View, and a NewPicker for each step.
func TestRampInACustomPolicy(t *testing.T) {
	p := &watcher{}
	r := newRig(t, ramped(p), peersOf(3, 1, 1)...)
	r.returned("A")
	for range 3 {
		r.next()
		r.clk.Advance(time.Second)
	}
	r.next()
	require.Equal(t, []string{"[1000 1000 1000] first", "[250 1000 1000]", "[500 1000 1000]", "[1000 1000 1000]"}, p.made)
	// Steps that nobody looks at in between are one.
	r.returned("B")
	r.clk.Advance(time.Hour)
	r.pool.Poll()
	require.Equal(t, []string{"[1000 250 1000]", "[1000 1000 1000]"}, p.made[4:])
}

// watcher notes what its pickers are made for.
type watcher struct {
	made  []string
	panic bool
}

func (*watcher) Name() string { return "watcher" }

func (w *watcher) NewPicker(v *balancer.View, prev balancer.Picker) balancer.Picker {
	var ramps []int
	for i := range v.Len() {
		ramps = append(ramps, v.Ramp(i))
	}
	s := fmt.Sprint(ramps)
	if prev == nil {
		s += " first"
	}
	w.made = append(w.made, s)
	if w.panic && strings.Contains(s, "500") {
		panic("at 500")
	}
	return watching{balancer.RoundRobin{}.NewPicker(v, prev), v}
}

type watching struct {
	balancer.Picker
	v *balancer.View
}

func (w watching) Pick(c balancer.Call) int {
	if w.v.Weight(0) != 3 {
		panic("a ramp is not a weight")
	}
	return w.Picker.Pick(c)
}

// A NewPicker that panics at a step panics once, in the input that brings the
// step, and takes nothing of that input with it.
func TestRampPanics(t *testing.T) {
	for name, c := range map[string]struct {
		input func(*rig, balancer.Lease[peer], *balancer.Try[peer])
		check func(*testing.T, balancer.Snapshot)
	}{
		"poll":    {input: func(r *rig, _ balancer.Lease[peer], _ *balancer.Try[peer]) { r.pool.Poll() }},
		"acquire": {input: func(r *rig, _ balancer.Lease[peer], _ *balancer.Try[peer]) { r.hold() }},
		"save":    {input: func(r *rig, _ balancer.Lease[peer], _ *balancer.Try[peer]) { r.pool.Save() }},
		"next": {input: func(r *rig, _ balancer.Lease[peer], _ *balancer.Try[peer]) {
			try := r.pool.Start(balancer.Request{})
			try.Next()
		}},
		"release": {
			input: func(_ *rig, l balancer.Lease[peer], _ *balancer.Try[peer]) { l.Release(balancer.Success) },
			check: func(t *testing.T, s balancer.Snapshot) {
				require.EqualValues(t, 1, s.Totals.Inflight)
				require.EqualValues(t, 1, s.Totals.Successes)
			},
		},
		"answered": {
			input: func(_ *rig, l balancer.Lease[peer], _ *balancer.Try[peer]) { l.Answered() },
			check: func(t *testing.T, s balancer.Snapshot) { require.Zero(t, s.Upstreams[1].Oldest) },
		},
		"health": {
			input: func(r *rig, _ balancer.Lease[peer], _ *balancer.Try[peer]) { r.set("C", false) },
			check: func(t *testing.T, s balancer.Snapshot) { require.False(t, s.Upstreams[2].Healthy) },
		},
		"update": {
			input: func(r *rig, _ balancer.Lease[peer], _ *balancer.Try[peer]) { r.update(peersOf(3, 1)...) },
			check: func(t *testing.T, s balancer.Snapshot) { require.Len(t, s.Upstreams, 2) },
		},
		"done": {
			input: func(_ *rig, _ balancer.Lease[peer], try *balancer.Try[peer]) {
				try.Done(balancer.Report{Outcome: balancer.Success})
			},
			check: func(t *testing.T, s balancer.Snapshot) {
				require.EqualValues(t, 1, s.Totals.Inflight)
				require.EqualValues(t, 1, s.Totals.Successes)
			},
		},
		"stop": {
			input: func(_ *rig, _ balancer.Lease[peer], try *balancer.Try[peer]) { try.Stop() },
			check: func(t *testing.T, s balancer.Snapshot) {
				require.EqualValues(t, 1, s.Totals.Inflight)
				require.EqualValues(t, 1, s.Totals.Ignored)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &watcher{panic: true}
			r := newRig(t, ramped(p), peersOf(3, 1, 1)...)
			r.returned("A")
			l := r.load("B", 1)[0]
			try := r.pool.Start(balancer.Request{})
			require.Equal(t, balancer.StepSend, try.Next().Kind)
			r.clk.Advance(time.Second)
			require.PanicsWithValue(t, "at 500", func() { c.input(r, l, &try) })
			require.NoError(t, r.pool.Check())
			if c.check != nil {
				c.check(t, r.pool.Snapshot())
			}
			n, all := r.pool.Selectable(), len(r.pool.Snapshot().Upstreams)
			require.Len(t, tally(r.picks(9)), n)
			r.clk.Advance(time.Second)
			require.Len(t, tally(r.picks(9)), n)
			require.Equal(t, "[1000 1000 1000]"[:5*all]+"] first", p.made[len(p.made)-1])
			l.Release(balancer.Ignored)
			try.Stop()
			require.NoError(t, r.pool.Check())
			require.Zero(t, r.pool.Snapshot().Totals.Inflight)
		})
	}
	// At the end of a section: a good check ends the ejection.
	p := &watcher{panic: true}
	cfg := ramped(p)
	cfg.Outlier.ProbeEnds, cfg.Outlier.RampFrom = true, 500
	r := newRig(t, cfg, peersOf(3, 1, 1)...)
	r.eject("A")
	require.PanicsWithValue(t, "at 500", func() { r.set("A", true) })
	require.NoError(t, r.pool.Check())
	require.Len(t, tally(r.picks(9)), 3)
}

// A request ends also where the panic comes with the end of an attempt of Do, or
// with the pick of a retry: the budget knows of none that goes on.
func TestRampPanicsEndRequests(t *testing.T) {
	p := &watcher{}
	cfg := ramped(p)
	cfg.Budget = retrybudget.Envoy()
	r := newRig(t, cfg, peersOf(3, 1, 1)...)
	for range 40 {
		for name, input := range map[string]func(){
			"Do": func() {
				_ = r.pool.Do(context.Background(), balancer.Request{}, func(context.Context, peer) error {
					r.clk.Advance(time.Second)
					return balancer.WithOutcome(balancer.ErrNoUpstreams, balancer.TransportFailure)
				})
			},
			"Try": func() {
				try := r.pool.Start(balancer.Request{})
				defer try.Stop()
				try.Next()
				try.Done(balancer.Report{Outcome: balancer.TransportFailure})
				r.clk.Advance(time.Second)
				try.Next()
			},
		} {
			p.panic = false
			r.clk.Advance(time.Minute)
			r.pool.Poll()
			r.returned("A")
			require.Equal(t, 250, r.ramp("A"))
			p.panic = true
			require.PanicsWithValue(t, "at 500", input, name)
			require.NoError(t, r.pool.Check())
			require.Zero(t, r.pool.Snapshot().Totals.Inflight)
		}
	}
	p.panic = false
	r.clk.Advance(time.Minute)
	r.pool.Poll()
	require.Equal(t, 3, grants(t, r.pool, 10))
}

// One tier's panic is not another's: it has a stand-in until the next step, and
// the tiers behind it have the pickers that they should.
func TestRampPanicsOfOneTier(t *testing.T) {
	two := []peer{{id: "A", weight: 1}, {id: "B", weight: 1}, {id: "C", weight: 1, tier: 1}, {id: "D", weight: 1, tier: 1}}
	for name, input := range map[string]func(*rig){
		"update": func(r *rig) { r.update(two...) },
		"step":   func(r *rig) { r.clk.Advance(time.Second); r.pool.Poll() },
		"pick":   func(r *rig) { r.clk.Advance(time.Second); r.next() },
	} {
		t.Run(name, func(t *testing.T) {
			p := &bomb{}
			r := newRig(t, ramped(p), two...)
			r.returned("A", "C")
			p.in = 1
			require.PanicsWithValue(t, "boom", func() { input(r) })
			require.Equal(t, -1, p.in, "the other tier's was made")
			require.NoError(t, r.pool.Check())
			ramp := r.ramp("C")
			require.Equal(t, map[string]int{"A": 10, "B": 10}, tally(r.picks(20)), "the stand-in")
			r.set("A", false)
			r.set("B", false)
			require.InDelta(t, 100*ramp/(1000+ramp), tally(r.picks(100))["C"], 1)
			require.Equal(t, -1, p.in)
			r.set("A", true)
			r.set("B", true)
			r.clk.Advance(time.Second)
			ramp = r.ramp("A")
			require.InDelta(t, 100*ramp/(1000+ramp), tally(r.picks(100))["A"], 1)
		})
	}
}

// bomb is RoundRobin whose in-th NewPicker from now on panics.
type bomb struct{ in int }

func (*bomb) Name() string { return "bomb" }
func (b *bomb) NewPicker(v *balancer.View, prev balancer.Picker) balancer.Picker {
	if b.in--; b.in == 0 {
		panic("boom")
	}
	return balancer.RoundRobin{}.NewPicker(v, prev)
}

// A Pool in the middle of a ramp saves and restores, and its recording replays.
func TestRampReplays(t *testing.T) {
	for _, p := range twinPolicies() {
		cfg := ramped(p)
		cfg.Seed, cfg.Outlier.RampGrowth = 11, 1300
		clk := clock.NewManual(time.Unix(0, 0))
		cfg.Clock = clk
		var members []balancer.Member
		for i := range 5 {
			members = append(members, balancer.Member{Name: fmt.Sprint("m", i), Share: 1 + i%2})
		}
		pool, err := balancer.NewPool(cfg, members...)
		require.NoError(t, err)
		tape := balancer.NewTape(64)
		onRamp := 0
		for i := range uint64(1200) {
			if i == 100 {
				pool.Attach(tape)
			}
			clk.Advance(time.Duration(mixed(i) % 1e8))
			l, err := pool.Acquire(balancer.Request{Key: balancer.HashKey(mixed(i % 50))})
			require.NoError(t, err)
			clk.Advance(time.Millisecond)
			outcome := balancer.Success
			if mixed(i)>>20%40 == 0 {
				outcome = balancer.Failure
			}
			l.Release(outcome)
			for _, u := range pool.Snapshot().Upstreams {
				onRamp += b2i(u.Ramp > 0 && u.Ramp < 1000)
			}
			if i%111 == 110 {
				rec := tape.Dump()
				equalRecords(t, rec.Records, replay(t, cfg, rec))
			}
		}
		require.Greater(t, onRamp, 100)
	}
}

// A pick on a ramp allocates nothing.
func TestRampAllocations(t *testing.T) {
	for _, p := range builtin() {
		r := newRig(t, ramped(p), crowd(40, 1, 2)...)
		r.returned("h00001")
		key := balancer.HashKey(7)
		f := func() {
			l, _ := r.pool.Acquire(balancer.Request{Key: key})
			l.Release(balancer.Success)
			l, _ = r.pool.Acquire(balancer.Request{})
			l.Release(balancer.Success)
		}
		f()
		require.Zero(t, testing.AllocsPerRun(100, f), "%+v", p)
		require.Equal(t, 250, r.ramp("h00001"))
	}
}

// Nothing of a ramp is left when it is over: the next one begins as it did.
func TestRampLeavesNothing(t *testing.T) {
	for _, p := range []balancer.Policy{first, balancer.LeastConn{Ties: balancer.TiesIndex}} {
		cfg := ramped(p)
		cfg.Outlier.Max = time.Second
		r := newRig(t, cfg, peersOf(1, 1, 1)...)
		var lines []string
		for range 3 {
			r.returned("A")
			lines = append(lines, r.line(26)) // leaves A on the way to a turn
			r.clk.Advance(2 * time.Second)
			r.pool.Poll()
			require.Equal(t, 1000, r.ramp("A"))
		}
		require.Equal(t, lines[0], lines[1])
		require.Equal(t, lines[0], lines[2])
	}
}
