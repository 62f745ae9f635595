package balancer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"pgregory.net/rapid"
)

// step is one drawn thing to do. What the numbers mean depends on the Pool it is
// done to alone, so that equal Pools do equal things.
type step struct{ what, x, y int }

var steps = rapid.Custom(func(t *rapid.T) step {
	return step{rapid.IntRange(0, 13).Draw(t, "what"), rapid.IntRange(0, 1<<16-1).Draw(t, "x"), rapid.IntRange(0, 1<<16-1).Draw(t, "y")}
})

// twin is a Pool with what a caller of it holds.
type twin struct {
	t      *rapid.T
	pool   *balancer.Pool[balancer.Member]
	clk    *clock.Manual
	epoch  time.Time
	held   []balancer.Lease[balancer.Member]
	tries  []*balancer.Try[balancer.Member]
	told   []string // events
	rename func(string) string
	read   bool // reads between any two steps
}

func newTwin(t *rapid.T, cfg balancer.Config, epoch time.Time, members []balancer.Member) *twin {
	w := &twin{t: t, clk: clock.NewManual(epoch), epoch: epoch, rename: func(id string) string { return id }}
	var err error
	if w.pool, err = balancer.NewPool(w.config(cfg), members...); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *twin) config(cfg balancer.Config) balancer.Config {
	cfg.Clock = w.clk
	cfg.OnEvent = func(e balancer.Event) {
		until := "-"
		if !e.Until.IsZero() {
			until = e.Until.Sub(e.At).String()
		}
		w.told = append(w.told, fmt.Sprint(e.Seq, " ", e.At.Sub(w.epoch).Nanoseconds(), " ", e.Kind, " ", w.rename(e.Upstream), " ", until, " ", e.Rule, " ", e.Count))
	}
	return cfg
}

// restoredTwin saves w and restores it on another timeline, on which now is then.
func restoredTwin(t *rapid.T, w *twin, cfg balancer.Config, then time.Time) *twin {
	for _, try := range w.tries {
		try.Stop()
	}
	w.tries = nil
	saved := w.pool.Save()
	s := w.pool.Snapshot()
	var members []balancer.Member
	for _, u := range s.Upstreams {
		members = append(members, balancer.Member{Name: u.ID, Share: u.Weight, Tier: u.Priority, Limit: limitOf(u.ID, u.Weight)})
	}
	q := &twin{t: t, clk: clock.NewManual(then), epoch: then.Add(-w.clk.Now().Sub(w.epoch)), rename: w.rename}
	var err error
	if q.pool, err = balancer.RestorePool(q.config(cfg), saved, members...); err != nil {
		t.Fatalf("restore: %v", err)
	}
	if again := q.pool.Save(); string(again) != string(saved) {
		t.Fatalf("a restored pool saves\n%x\nand not\n%x", again, saved)
	}
	for _, l := range w.held {
		for _, m := range q.pool.Leases() {
			if m.Request() == l.Request() && m.Attempt() == l.Attempt() {
				q.held = append(q.held, m)
			}
		}
	}
	if len(q.held) != len(w.held) || len(q.pool.Leases()) != len(w.held) {
		t.Fatalf("%d leases restored, want %d", len(q.pool.Leases()), len(w.held))
	}
	w.told = nil
	return q
}

// limitOf is the limit of a member, which follows from the rest of it, since a
// Snapshot does not tell.
func limitOf(id string, weight int) int { return []int{0, 0, 2, 5}[(len(id)+weight)%4] }

func drawTwinMembers(n, x int) (out []balancer.Member) {
	for i := range n {
		h := int(mixed(uint64(x)<<8+uint64(i)) >> 33)
		m := balancer.Member{Name: fmt.Sprint("m", (i+x)%(n+2)), Share: h % 5, Tier: h / 5 % 7 / 6}
		m.Limit = limitOf(m.Name, m.Share)
		out = append(out, m)
	}
	return out
}

func (w *twin) members(set []balancer.Member) []balancer.Member {
	out := slices.Clone(set)
	for i := range out {
		out[i].Name = w.rename(out[i].Name)
	}
	return out
}

// do does one step and says what came of it.
func (w *twin) do(s step, n int) string {
	if w.read {
		w.look()
		defer w.look()
	}
	report := balancer.Report{Outcome: balancer.Outcome(s.y % 4), Retry: balancer.Verdict(s.y / 4 % 3)}
	if s.y%5 == 0 {
		report.Latency = time.Duration(s.y) * time.Microsecond
	}
	switch s.what {
	case 0, 1, 2:
		l, err := w.pool.Acquire(balancer.Request{Key: balancer.HashKey(mixed(uint64(s.x % 8)))})
		if err != nil {
			return err.Error()
		}
		w.held = append(w.held, l)
		return w.lease(l)
	case 3, 4, 5:
		if len(w.held) == 0 {
			return ""
		}
		i := s.x % len(w.held)
		defer func() { w.held = slices.Delete(w.held, i, i+1) }()
		return fmt.Sprint(w.held[i].Settle(report))
	case 6:
		if len(w.held) > 0 {
			w.held[s.x%len(w.held)].Answered()
		}
	case 7:
		try := w.pool.Start(balancer.Request{Deadline: w.clk.Now().Add(time.Duration(s.y) * time.Microsecond)})
		w.tries = append(w.tries, &try)
		return w.next(&try)
	case 8:
		if len(w.tries) > 0 {
			try := w.tries[s.x%len(w.tries)]
			report.Outcome = balancer.TransportFailure
			try.Done(report)
			return w.next(try)
		}
	case 9:
		if len(w.tries) > 0 {
			try := w.tries[s.x%len(w.tries)]
			try.Done(report)
			if s.y%7 == 0 {
				try.Stop()
			}
		}
	case 10:
		if s.x%3 == 0 {
			if err := w.pool.Update(w.members(drawTwinMembers(n, s.y%64))...); err != nil {
				w.t.Fatal(err)
			}
		}
	case 11:
		return fmt.Sprint(w.pool.SetHealth(w.rename(fmt.Sprint("m", s.x%(n+2))), s.y%3 > 0, "drawn") == nil)
	case 12:
		w.pool.Poll()
	case 13:
		d := time.Duration(s.x%4000) * time.Microsecond
		if due, ok := w.pool.NextChange(); ok && s.y%3 > 0 {
			d = due.Sub(w.clk.Now()) - time.Duration(s.y/3%2)
		}
		if d > 0 {
			w.clk.Set(w.clk.Now().Add(d))
		}
	}
	return ""
}

// lease names where a pick went by position, which renaming keeps.
func (w *twin) lease(l balancer.Lease[balancer.Member]) string {
	for i, u := range w.pool.Snapshot().Upstreams {
		if u.ID == l.Upstream().Name {
			return fmt.Sprint(l.Request(), ".", l.Attempt(), " on ", i, l.Fallback())
		}
	}
	return "on one that left"
}

func (w *twin) next(try *balancer.Try[balancer.Member]) string {
	s := try.Next()
	out := fmt.Sprint(s.Kind, s.Wait, s.End, s.Err)
	if s.Kind == balancer.StepSend {
		out += w.lease(s.Lease)
	}
	return out
}

// look reads all there is to read.
func (w *twin) look() {
	w.pool.Snapshot()
	w.pool.NextChange()
	w.pool.Seed()
	w.pool.Leases()
	w.pool.Epoch()
	for _, try := range w.tries {
		try.Exclusions()
		try.Request()
		try.Retries()
	}
}

// same does the steps to both and fails where they part.
func same(a, b *twin, ss []step, n int) {
	for i, s := range ss {
		x, y := a.do(s, n), b.do(s, n)
		if x != y {
			a.t.Fatalf("step %d %+v: %q and %q", i, s, x, y)
		}
		if x, y := strings.Join(a.told, "\n"), strings.Join(b.told, "\n"); x != y {
			a.t.Fatalf("step %d %+v: events\n%s\nand\n%s", i, s, x, y)
		}
	}
}

// twinPolicies are all the built-in policies and their main variants.
func twinPolicies() []balancer.Policy {
	return []balancer.Policy{
		balancer.RoundRobin{}, first, balancer.RoundRobin{IndexCursor: true}, balancer.WeightedRoundRobin{}, balancer.Random{},
		balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{},
	}
}

// twinConfig draws a configuration in which everything that can be drawn at
// random in the course of a run is.
func twinConfig(t *rapid.T, p balancer.Policy) balancer.Config {
	cfg := balancer.Config{
		Policy: p, Seed: rapid.Uint64Range(1, 1<<64-1).Draw(t, "seed"),
		WhenNone: balancer.WhenNone(rapid.IntRange(0, 1).Draw(t, "when none")),
		Breaker: breaker.Config{ConsecutiveFailures: 3, FailureRate: 0.6, MinCalls: 4, Window: 20 * time.Millisecond, OpenFor: 2 * time.Millisecond,
			OpenGrowth: 2, OpenJitter: 0.5, OpenMax: 20 * time.Millisecond, Trials: 2, Passes: 2, TrialTimeout: 4 * time.Millisecond,
			FlapTransitions: 3, FlapWindow: 30 * time.Millisecond, WindowFailures: 5, SlowRate: 0.9, SlowAfter: 30 * time.Millisecond},
		Outlier: outlier.Config{Consecutive: 2, Base: 3 * time.Millisecond, Max: 20 * time.Millisecond, Jitter: 2 * time.Millisecond, Enforce: 80,
			Interval: 5 * time.Millisecond, SuccessRate: outlier.SuccessRate{On: true, MinHosts: 2, MinRequests: 2, MinFailures: 1}},
		Retry: balancer.Retry{Max: 3, OnFailure: true, SameUpstream: 1, Backoff: balancer.Backoff{Base: time.Millisecond}},
	}
	if rapid.Bool().Draw(t, "ramp") {
		cfg.Outlier.Return = outlier.Ramp
		cfg.Outlier.RampFrom, cfg.Outlier.RampStep, cfg.Outlier.RampGrowth = rapid.IntRange(1, 900).Draw(t, "ramp from"), 2*time.Millisecond, 1700
	}
	if rapid.Bool().Draw(t, "budget") {
		cfg.Budget = retrybudget.Finagle()
	}
	if rapid.Bool().Draw(t, "no breaker") { // so that ejections show
		cfg.Breaker = noBreaker
	}
	return cfg
}

// twinSize draws a number of members: few, or enough for every table of the
// policies.
func twinSize(t *rapid.T) int {
	if rapid.IntRange(0, 3).Draw(t, "many") == 0 {
		return rapid.IntRange(33, 70).Draw(t, "members")
	}
	return rapid.IntRange(1, 6).Draw(t, "members")
}

// A Pool that was saved and restored - in the middle of its life, with calls in
// flight, on another day - goes on exactly as the one that was not.
func TestRestoredPoolGoesOn(t *testing.T) {
	for i, p := range twinPolicies() {
		t.Run(fmt.Sprint(i, p.Name()), func(t *testing.T) {
			setFlag(t, "rapid.checks", "25")
			checkSeeded(t, 0x7717, restoreProperty(p))
		})
	}
}

func restoreProperty(p balancer.Policy) func(*rapid.T) {
	return func(t *rapid.T) {
		cfg, n := twinConfig(t, p), twinSize(t)
		a := newTwin(t, cfg, time.Unix(0, 0), drawTwinMembers(n, 0))
		for _, s := range rapid.SliceOfN(steps, 0, 60).Draw(t, "before") {
			a.do(s, n)
		}
		b := restoredTwin(t, a, cfg, time.Unix(1e6, 12345))
		same(a, b, rapid.SliceOfN(steps, 30, 80).Draw(t, "after"), n)
		if x, y := a.pool.Save(), b.pool.Save(); string(x) != string(y) {
			t.Fatalf("saved\n%x\nand\n%x", x, y)
		}
		restoredTwin(t, b, cfg, time.Unix(77, 0)) // which saves what it was restored from
	}
}

// Reads change nothing that happens later.
func TestReadsChangeNothing(t *testing.T) {
	checkSeeded(t, 0x4ead, func(t *rapid.T) {
		cfg, n := twinConfig(t, rapid.SampledFrom(twinPolicies()).Draw(t, "policy")), twinSize(t)
		a := newTwin(t, cfg, time.Unix(0, 0), drawTwinMembers(n, 0))
		b := newTwin(t, cfg, time.Unix(0, 0), drawTwinMembers(n, 0))
		b.read = true
		same(a, b, rapid.SliceOfN(steps, 20, 80).Draw(t, "steps"), n)
		if string(a.pool.Save()) != string(b.pool.Save()) {
			t.Fatalf("the states differ")
		}
	})
}

// On another day everything is the same, and later steps do not change what came
// of earlier ones.
func TestTimeShiftAndPrefix(t *testing.T) {
	checkSeeded(t, 0x7155, func(t *rapid.T) {
		cfg, n := twinConfig(t, rapid.SampledFrom(twinPolicies()).Draw(t, "policy")), twinSize(t)
		a := newTwin(t, cfg, time.Unix(0, 0), drawTwinMembers(n, 0))
		b := newTwin(t, cfg, time.Unix(-1e9, 999), drawTwinMembers(n, 0))
		ss := rapid.SliceOfN(steps, 20, 80).Draw(t, "steps")
		cut := rapid.IntRange(0, len(ss)).Draw(t, "cut")
		same(a, b, ss[:cut], n)
		early := slices.Clone(a.told)
		for _, s := range ss[cut:] {
			a.do(s, n)
		}
		if !slices.Equal(a.told[:len(early)], early) {
			t.Fatalf("what was told has changed")
		}
		c := newTwin(t, cfg, time.Unix(0, 0), drawTwinMembers(n, 0))
		for _, s := range ss {
			c.do(s, n)
		}
		if !slices.Equal(a.told, c.told) || string(a.pool.Save()) != string(c.pool.Save()) {
			t.Fatalf("a second run differs")
		}
	})
}

// Where the order of the members decides and not their ids, other ids make the
// same picks.
func TestOtherIDs(t *testing.T) {
	policies := []balancer.Policy{first, balancer.RoundRobin{}, balancer.RoundRobin{IndexCursor: true}, balancer.WeightedRoundRobin{},
		balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.Random{}, balancer.TwoRandom{}, balancer.PeakEWMA{}}
	checkSeeded(t, 0x4a3e, func(t *rapid.T) {
		cfg, n := twinConfig(t, rapid.SampledFrom(policies).Draw(t, "policy")), rapid.IntRange(1, 12).Draw(t, "members")
		// Jitter and enforcement are drawn by id.
		cfg.Breaker.OpenJitter, cfg.Outlier.Jitter, cfg.Outlier.Enforce = 0, 0, 0
		a := newTwin(t, cfg, time.Unix(0, 0), drawTwinMembers(n, 0))
		b := newTwin(t, cfg, time.Unix(0, 0), nil)
		_ = b.pool.Update()
		b.rename = func(id string) string {
			if strings.HasPrefix(id, "m") {
				return "other-" + id[1:]
			}
			return "m" + strings.TrimPrefix(id, "other-")
		}
		if err := b.pool.Update(b.members(drawTwinMembers(n, 0))...); err != nil {
			t.Fatal(err)
		}
		same(a, b, rapid.SliceOfN(steps, 20, 80).Draw(t, "steps"), n)
	})
}
