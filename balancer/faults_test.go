package balancer_test

import (
	"context"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// grants is how many of n requests may retry at once. With Envoy's budget - 20 %
// of the active requests, at least 3 - it tells how many more the budget believes
// to be active.
func grants[U balancer.Upstream](t *testing.T, pool *balancer.Pool[U], n int) (granted int) {
	t.Helper()
	tries := make([]balancer.Try[U], n)
	for i := range tries {
		tries[i] = pool.Start(balancer.Request{})
		require.Equal(t, balancer.StepSend, tries[i].Next().Kind)
	}
	for i := range tries {
		tries[i].Done(balancer.Report{Outcome: balancer.TransportFailure})
		if tries[i].Next().Kind == balancer.StepSend {
			granted++
		}
	}
	for i := range tries {
		tries[i].Stop()
	}
	return granted
}

// A call that panics or ends its goroutine ends the request for the budget too,
// even where its failure might have been retried.
func TestPanicEndsTheRequest(t *testing.T) {
	cfg := free(balancer.Retry{Max: 1, OnFailure: true})
	cfg.Budget = retrybudget.Envoy()
	b := newBench(t, cfg, ups("a", "b")...)
	for range 100 {
		require.Panics(t, func() {
			_ = b.pool.Do(context.Background(), balancer.Request{}, func(context.Context, scripted) error { panic("boom") })
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = b.pool.Do(context.Background(), balancer.Request{}, func(context.Context, scripted) error { goexit(); return nil })
		}()
		<-done
	}
	require.Equal(t, 3, grants(t, b.pool, 10))
}

// faulty is a policy that panics when told to, and otherwise takes the first.
type faulty struct{ pick, build *bool }

func (faulty) Name() string { return "faulty" }
func (f faulty) NewPicker(v *balancer.View, _ balancer.Picker) balancer.Picker {
	if *f.build {
		panic("NewPicker")
	}
	return faultyPicker{f, v}
}

type faultyPicker struct {
	faulty
	v *balancer.View
}

func (f faultyPicker) Pick(balancer.Call) int {
	if *f.pick {
		panic("Pick")
	}
	return f.v.NextUsable(0)
}

// A Picker that panics passes its panic on and leaves the Pool as it was: the
// lock free, the hosts that the request had tried selectable, the request ended.
func TestPickerPanics(t *testing.T) {
	pick, build := false, false
	cfg := free(balancer.Retry{Max: 1})
	cfg.Policy = faulty{&pick, &build}
	cfg.Budget = retrybudget.Envoy()
	cfg.Outlier = outlier.Config{Consecutive: 1, MaxEjectedPercent: 100, Last: outlier.EjectLast}
	b := newBench(t, cfg, ups("a", "b")...)
	pick = true
	for range 100 {
		require.PanicsWithValue(t, "Pick", func() { _, _ = b.pool.Acquire(balancer.Request{}) })
		try := b.pool.Start(balancer.Request{})
		require.PanicsWithValue(t, "Pick", func() { try.Next() })
		try.Stop()
	}
	pick = false
	require.Zero(t, b.totals().Inflight)
	b.clk.Advance(time.Hour)

	// With a host masked, all of them ejected.
	try := b.pool.Start(balancer.Request{})
	require.Equal(t, "a", try.Next().Lease.Upstream().ID())
	b.fail(2, balancer.TransportFailure)
	require.True(t, b.pool.Snapshot().Fallback)
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	pick = true
	require.PanicsWithValue(t, "Pick", func() { try.Next() })
	pick = false
	try.Stop()
	try = b.pool.Start(balancer.Request{})
	require.Equal(t, "a", try.Next().Lease.Upstream().ID())
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	require.Equal(t, "b", try.Next().Lease.Upstream().ID(), "the mask of the request that panicked is gone")
	try.Stop()
	b.clk.Advance(time.Hour)
	b.pool.Poll()
	require.Equal(t, 3, grants(t, b.pool, 10))

	// A NewPicker that panics leaves a Pool that works, in turn.
	build = true
	require.PanicsWithValue(t, "NewPicker", func() { _ = b.pool.Update(ups("b", "c", "d")...) })
	build = false
	b.clk.Advance(time.Hour)
	seen := map[string]bool{}
	for range 3 {
		seen[b.acquire().Upstream().ID()] = true
	}
	require.Equal(t, map[string]bool{"b": true, "c": true, "d": true}, seen)
	require.NoError(t, b.pool.Update(ups("x")...))
	require.Equal(t, "x", b.acquire().Upstream().ID())
	require.EqualValues(t, 4, b.totals().Inflight)
}

// A latency that is not known scores nobody: it is neither slow nor fast.
func TestUnknownLatencyIsNotSlow(t *testing.T) {
	cfg := free(balancer.Retry{})
	cfg.Breaker = breaker.Config{SlowRate: 0.5, SlowAfter: time.Second, MinCalls: 4}
	b := newBench(t, cfg, ups("a")...)
	held := make([]balancer.Lease[scripted], 20)
	for i := range held {
		held[i] = b.acquire()
	}
	b.clk.Advance(time.Minute)
	for _, l := range held {
		l.Settle(balancer.Report{Outcome: balancer.Success, Latency: -1})
	}
	require.Equal(t, breaker.Closed, b.status(0).Breaker)
	require.False(t, b.status(0).Measured)
}

// What is scored ends with the first byte of the answer, unless the Report says
// how long it took; the call no longer waits, and is in flight until its end.
func TestAnsweredEndsTheLatency(t *testing.T) {
	cfg := free(balancer.Retry{})
	cfg.Breaker = breaker.Config{SlowRate: 0.5, SlowAfter: time.Second, MinCalls: 2}
	for _, c := range []struct {
		report balancer.Report
		want   time.Duration
		slow   bool
	}{
		{balancer.Report{Outcome: balancer.Success}, 30 * time.Millisecond, false},
		{balancer.Report{Outcome: balancer.Success, Latency: 7 * time.Millisecond}, 7 * time.Millisecond, false},
		{balancer.Report{Outcome: balancer.Success, Latency: 2 * time.Second}, 2 * time.Second, true},
	} {
		b := newBench(t, cfg, ups("a")...)
		l, m := b.acquire(), b.acquire()
		b.clk.Advance(30 * time.Millisecond)
		l.Answered()
		m.Answered()
		require.Zero(t, b.status(0).Oldest)
		require.Equal(t, 2, b.status(0).Inflight)
		b.clk.Advance(time.Minute)
		l.Answered() // only the first counts
		l.Settle(c.report)
		require.Equal(t, c.want, b.status(0).Latency)
		m.Settle(c.report)
		require.Equal(t, c.slow, b.status(0).Breaker == breaker.Open)
	}
}

// Returns is when the upstream comes back, also if something else happens to it
// before, and also if more than time keeps it out.
func TestReturns(t *testing.T) {
	cfg := free(balancer.Retry{Off: true})
	cfg.WhenNone = balancer.FailFast
	cfg.Breaker = breaker.Config{ConsecutiveFailures: 1, OpenFor: 20 * time.Second, FlapTransitions: 2, FlapWindow: 15 * time.Second}
	b := newBench(t, cfg, ups("a", "b")...)
	b.health("b", false)
	b.fail(1, balancer.Failure)
	b.at(20 * time.Second)
	b.fail(1, balancer.Failure) // flapping from here to 35 s, open until 40 s
	require.Equal(t, []string{"0 b unhealthy", "0 a opened", "20000 a half_open", "20000 a opened", "20000 a flapping"}, b.kinds())
	require.Equal(t, time.Unix(40, 0), b.status(0).Returns)
	next, ok := b.pool.NextChange()
	require.True(t, ok)
	require.Equal(t, time.Unix(35, 0), next, "the end of flapping, which is not the return")
	b.health("a", false)
	require.Equal(t, time.Unix(40, 0), b.status(0).Returns, "the part of it that time ends")
	require.Zero(t, b.status(1).Returns)
	b.at(40 * time.Second)
	require.Zero(t, b.status(0).Returns)
	require.Equal(t, []string{"unhealthy"}, b.status(0).Why)
	b.health("a", true)
	l := b.acquire()
	require.Equal(t, []string{"on_trial"}, b.status(0).Why)
	due := b.status(0).Returns
	b.clk.AdvanceTo(due.Add(-1))
	require.False(t, b.status(0).Selectable)
	b.clk.AdvanceTo(due)
	require.True(t, b.status(0).Selectable, "the trial is lost")
	l.Release(balancer.Success)
}

// skewed is a clock of the user's own over another that can do more: what that
// can do on its own account says nothing about this one.
type skewed struct {
	systemLike
	at *time.Time
}

func (s skewed) Now() time.Time { return *s.at }

type systemLike struct{}

func (systemLike) Since(time.Time) time.Duration { return time.Hour }

// The Pool asks a clock for nothing but Now.
func TestClockIsAskedForNow(t *testing.T) {
	at := time.Unix(100, 0)
	p, err := balancer.NewPool(balancer.Config{Clock: skewed{at: &at}}, ups("a")...)
	require.NoError(t, err)
	require.Equal(t, time.Unix(100, 0), p.Snapshot().At)
	at = time.Unix(101, 0)
	require.Equal(t, time.Unix(101, 0), p.Snapshot().At)
}

// The Result of a request whose caller gave up says so.
func TestResultOfOneGivenUp(t *testing.T) {
	b := newBench(t, free(balancer.Retry{OnFailure: true}), ups("a", "b")...)
	ctx, cancel := context.WithCancel(context.Background())
	var res balancer.Result
	err := b.pool.Do(ctx, balancer.Request{Result: &res}, func(context.Context, scripted) error {
		cancel()
		return errDown
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errDown)
	require.Equal(t, "stopped", res.End.String())
	require.EqualValues(t, 1, res.Request)
	require.Len(t, res.Attempts, 1)
	err = b.pool.Do(ctx, balancer.Request{Result: &res}, func(context.Context, scripted) error { panic("not called") })
	require.Equal(t, context.Canceled, err)
	require.Equal(t, balancer.Result{End: balancer.EndStopped, Attempts: res.Attempts[:0]}, res)
}

// What falls due at one instant is told in the order of the members, whoever
// tells it: the first one's breaker before the second one's detector.
func TestOrderAtOneInstant(t *testing.T) {
	for _, ids := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}} {
		cfg := free(balancer.Retry{Off: true})
		cfg.Breaker = breaker.Config{SlowRate: 0.5, SlowAfter: time.Second, MinCalls: 1, OpenFor: 10 * time.Second}
		cfg.Outlier = outlier.Config{Consecutive: 1, Base: 10 * time.Second}
		b := newBench(t, cfg, ups("a", "b", "c")...)
		a, e := b.acquire(), b.acquire()
		e.Release(balancer.TransportFailure)
		a.Settle(balancer.Report{Outcome: balancer.Success, Latency: time.Minute})
		require.NoError(t, b.pool.Update(ups(ids...)...))
		b.at(time.Minute)
		b.pool.Poll()
		got := b.kinds()
		want := []string{"10000 a half_open", "10000 b returned"}
		if ids[0] == "c" {
			want = []string{want[1], want[0]}
		}
		require.Equal(t, want, got[len(got)-2:])
	}
}
