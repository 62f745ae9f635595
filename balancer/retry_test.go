package balancer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

var errDown = balancer.WithOutcome(errors.New("down"), balancer.TransportFailure)

// down returns upstreams that never answer.
func down(ids ...string) (out []scripted) {
	for _, id := range ids {
		out = append(out, balancertest.AlwaysFailing(id, balancertest.ErrConnection))
	}
	return out
}

// free is a configuration whose retries only the retry settings bound.
func free(r balancer.Retry) balancer.Config {
	return balancer.Config{Policy: first, Breaker: noBreaker, Outlier: noEjection, Budget: retrybudget.Config{Off: true}, Retry: r}
}

func TestRetryOrder(t *testing.T) {
	for _, c := range []struct {
		name string
		r    balancer.Retry
		want string
		end  balancer.End
	}{
		{"every upstream once", balancer.Retry{Max: 9}, "abc", balancer.EndNoTarget},
		{"default of two retries", balancer.Retry{}, "abc", balancer.EndAttempts},
		{"one retry", balancer.Retry{Max: 1}, "ab", balancer.EndAttempts},
		{"off", balancer.Retry{Off: true}, "a", balancer.EndAttempts},
		{"the same one first", balancer.Retry{Max: 9, SameUpstream: 1}, "aabbcc", balancer.EndNoTarget},
		{"the same one twice", balancer.Retry{Max: 4, SameUpstream: 2}, "aaabb", balancer.EndAttempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, free(c.r), down("a", "b", "c")...)
			got := b.send()
			hops := ""
			for _, h := range got.Hops {
				hops += h.Upstream
			}
			require.Equal(t, c.want, hops)
			require.Equal(t, c.end, got.End)
			require.Zero(t, b.totals().Inflight)
			require.EqualValues(t, len(c.want)-1, b.totals().Retries)
		})
	}
}

// More upstreams than a Try remembers without allocating.
func TestRetryRemembersAllTried(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	b := newBench(t, free(balancer.Retry{Max: 100}), down(ids...)...)
	got := b.send()
	seen := map[string]bool{}
	for _, h := range got.Hops {
		require.False(t, seen[h.Upstream])
		seen[h.Upstream] = true
	}
	require.Len(t, seen, len(ids))
	require.Equal(t, balancer.EndNoTarget, got.End)
}

// The same upstream is not asked again once its breaker is open.
func TestSameUpstreamNeverAgainstOpenBreaker(t *testing.T) {
	cfg := free(balancer.Retry{Max: 9, SameUpstream: 5})
	cfg.Breaker = breaker.Config{ConsecutiveFailures: 2}
	b := newBench(t, cfg, down("a", "b")...)
	require.Equal(t, "a(connection FAIL) retry->a(connection FAIL) retry->b(connection FAIL) retry->b(connection FAIL)", b.send().String())
}

func TestVerdicts(t *testing.T) {
	attempts := func(cfg balancer.Config, r balancer.Report) int {
		b := newBench(t, cfg, ups("a", "b", "c")...)
		try := b.pool.Start(balancer.Request{})
		n := 0
		for {
			step := try.Next()
			if step.Kind != balancer.StepSend {
				return n
			}
			n++
			try.Done(r)
		}
	}
	for _, c := range []struct {
		o     balancer.Outcome
		v     balancer.Verdict
		on    bool
		wants int
	}{
		{balancer.Success, balancer.RetryDefault, true, 1},
		{balancer.Success, balancer.RetryAllowed, true, 1},
		{balancer.Ignored, balancer.RetryAllowed, true, 1},
		{balancer.Failure, balancer.RetryDefault, false, 1},
		{balancer.Failure, balancer.RetryDefault, true, 3},
		{balancer.Failure, balancer.RetryAllowed, false, 3},
		{balancer.Failure, balancer.RetryForbidden, true, 1},
		{balancer.TransportFailure, balancer.RetryDefault, false, 3},
		{balancer.TransportFailure, balancer.RetryForbidden, true, 1},
	} {
		require.Equal(t, c.wants, attempts(free(balancer.Retry{OnFailure: c.on}), balancer.Report{Outcome: c.o, Retry: c.v}), "%+v", c)
	}
}

// The budget is asked only when there is somewhere to go, and what was paid for
// and not sent is given back.
func TestBudgetIsAskedLast(t *testing.T) {
	cfg := free(balancer.Retry{Backoff: balancer.Backoff{Base: time.Second, JitterPercent: -1}})
	cfg.Budget = retrybudget.Config{PerSuccess: -1, PerSecond: -1}
	b := newBench(t, cfg, down("a")...)
	for range 15 {
		require.Equal(t, balancer.EndNoTarget, b.send().End)
	}
	require.Equal(t, 10.0, b.pool.Snapshot().Tokens)

	b = newBench(t, cfg, down("a", "b")...)
	try := b.pool.Start(balancer.Request{})
	try.Done(balancer.Report{Outcome: balancer.Success}) // before any attempt: nothing
	require.Equal(t, balancer.StepSend, try.Next().Kind)
	require.Equal(t, balancer.StepSend, try.Next().Kind, "repeated while the attempt is out")
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	step := try.Next()
	require.Equal(t, balancer.StepWait, step.Kind)
	require.Equal(t, time.Second, step.Wait)
	require.Equal(t, 9.0, b.pool.Snapshot().Tokens)
	b.clk.Advance(300 * time.Millisecond)
	require.Equal(t, 700*time.Millisecond, try.Next().Wait, "the rest of the wait")
	b.health("b", false)
	b.clk.Advance(700 * time.Millisecond)
	require.Equal(t, balancer.EndNoTarget, try.Next().End, "the target is gone")
	require.Equal(t, 10.0, b.pool.Snapshot().Tokens, "and the token back")
	require.Equal(t, balancer.EndNoTarget, try.Next().End, "the end repeats")

	try = b.pool.Start(balancer.Request{})
	b.health("b", true)
	try.Next()
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	try.Next()
	require.Equal(t, 9.0, b.pool.Snapshot().Tokens)
	try.Stop()
	try.Stop()
	require.Equal(t, 10.0, b.pool.Snapshot().Tokens)
	require.Zero(t, b.totals().Inflight)
}

func TestDeadline(t *testing.T) {
	b := newBench(t, free(balancer.Retry{Backoff: balancer.Backoff{Base: 2 * time.Second, JitterPercent: -1}}), down("a", "b")...)
	epoch := time.Unix(0, 0)

	try := b.pool.Start(balancer.Request{Deadline: epoch.Add(time.Second)})
	require.Equal(t, balancer.StepSend, try.Next().Kind)
	b.clk.Advance(100 * time.Millisecond)
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	require.Equal(t, balancer.EndDeadline, try.Next().End, "the wait would pass the deadline: at once, not after it")
	require.Equal(t, 10.0, b.pool.Snapshot().Tokens)

	try = b.pool.Start(balancer.Request{Deadline: epoch.Add(100 * time.Millisecond)})
	step := try.Next()
	require.Equal(t, balancer.EndDeadline, step.End)
	require.ErrorIs(t, step.Err, balancer.ErrDeadline)

	// A deadline exactly at the end of the wait leaves no time for the attempt.
	for _, d := range []struct {
		left time.Duration
		kind balancer.StepKind
	}{{2 * time.Second, balancer.StepEnd}, {2*time.Second + 1, balancer.StepWait}} {
		try = b.pool.Start(balancer.Request{Deadline: b.clk.Now().Add(d.left)})
		try.Next()
		try.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, d.kind, try.Next().Kind, d.left)
		try.Stop()
	}
}

// Waits double from Base to Max, jitter takes off at most its share, and the cap
// holds with jitter.
func TestBackoff(t *testing.T) {
	waits := func(bo balancer.Backoff, seed uint64) (out []time.Duration) {
		cfg := free(balancer.Retry{Max: 6, Backoff: bo})
		cfg.Seed = seed
		b := newBench(t, cfg, down("a", "b", "c", "d", "e", "f", "g")...)
		try := b.pool.Start(balancer.Request{})
		for {
			switch step := try.Next(); step.Kind {
			case balancer.StepSend:
				try.Done(balancer.Report{Outcome: balancer.TransportFailure})
			case balancer.StepWait:
				out = append(out, step.Wait)
				b.clk.Advance(step.Wait)
			default:
				return out
			}
		}
	}
	ms := time.Millisecond
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms},
		waits(balancer.Backoff{Base: 100 * ms, JitterPercent: -1}, 1))
	require.Equal(t, []time.Duration{100 * ms, 300 * ms, 500 * ms, 500 * ms, 500 * ms, 500 * ms},
		waits(balancer.Backoff{Base: 100 * ms, Max: 500 * ms, Multiplier: 3, JitterPercent: -1}, 1))
	full := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms}
	spread := map[time.Duration]bool{}
	for seed := uint64(1); seed < 50; seed++ {
		for i, w := range waits(balancer.Backoff{Base: 100 * ms, JitterPercent: 25}, seed) {
			require.LessOrEqual(t, w, full[i])
			require.GreaterOrEqual(t, w, full[i]*3/4)
			spread[w] = true
		}
	}
	require.Greater(t, len(spread), 200)
	require.Equal(t, waits(balancer.Backoff{Base: 100 * ms}, 9), waits(balancer.Backoff{Base: 100 * ms}, 9))
}

func TestDo(t *testing.T) {
	ctx := context.Background()
	t.Run("fails over and fills in the result", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a", "b")...)
		var res balancer.Result
		err := b.pool.Do(ctx, balancer.Request{Result: &res}, func(_ context.Context, u scripted) error {
			b.clk.Advance(10 * time.Millisecond)
			if u.ID() == "a" {
				return errDown
			}
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, res.Request)
		require.Equal(t, balancer.EndAnswered, res.End)
		require.Equal(t, []balancer.Attempt{
			{Upstream: "a", Outcome: balancer.TransportFailure, Start: time.Unix(0, 0), Latency: 10 * time.Millisecond, Err: errDown},
			{Upstream: "b", Outcome: balancer.Success, Start: time.Unix(0, 0).Add(10 * time.Millisecond), Latency: 10 * time.Millisecond},
		}, normal(res.Attempts))
	})
	t.Run("returns the last real error", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a", "b")...)
		err := b.pool.Do(ctx, balancer.Request{}, func(_ context.Context, u scripted) error {
			return balancer.WithOutcome(errors.New("down: "+u.ID()), balancer.TransportFailure)
		})
		require.EqualError(t, err, "down: b")
	})
	t.Run("an unknown error is the caller's", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a", "b")...)
		mine := errors.New("mine")
		require.Equal(t, mine, b.pool.Do(ctx, balancer.Request{}, func(context.Context, scripted) error { return mine }))
		require.EqualValues(t, 1, b.totals().Ignored)
	})
	t.Run("no upstream", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a")...)
		b.health("a", false)
		err := b.pool.Do(ctx, balancer.Request{}, func(context.Context, scripted) error { panic("not called") })
		require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		require.ErrorContains(t, err, "1 unhealthy")
	})
	t.Run("a cancelled context sends nothing", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a")...)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		err := b.pool.Do(gone, balancer.Request{}, func(context.Context, scripted) error { panic("not called") })
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, b.totals().Attempts)
	})
	t.Run("waits on the pool's clock, and a cancel ends the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, err := balancer.NewPool(balancer.Config{Policy: first, Retry: balancer.Retry{Backoff: balancer.Backoff{Base: time.Second, JitterPercent: -1}}}, ups("a", "b", "c")...)
			require.NoError(t, err)
			start := time.Now()
			calls := 0
			require.NoError(t, p.Do(ctx, balancer.Request{}, func(context.Context, scripted) error {
				if calls++; calls < 3 {
					return errDown
				}
				return nil
			}))
			require.Equal(t, 3*time.Second, time.Since(start))

			gone, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			start = time.Now()
			err = p.Do(gone, balancer.Request{}, func(context.Context, scripted) error { return errDown })
			require.Equal(t, 10*time.Millisecond, time.Since(start))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "down")
			require.Zero(t, p.Snapshot().Totals.Inflight)

			// The context's deadline is the request's: the wait would reach it.
			limited, cancel2 := context.WithTimeout(ctx, time.Second)
			defer cancel2()
			start = time.Now()
			require.Equal(t, errDown, p.Do(limited, balancer.Request{}, func(context.Context, scripted) error { return errDown }))
			require.Zero(t, time.Since(start))
		})
	})
	t.Run("Goexit settles", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a")...)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = b.pool.Do(ctx, balancer.Request{}, func(context.Context, scripted) error { goexit(); return nil })
		}()
		<-done
		require.Zero(t, b.totals().Inflight)
		require.EqualValues(t, 1, b.totals().Failures)
	})
}

// normal makes attempts comparable: times by instant.
func normal(as []balancer.Attempt) []balancer.Attempt {
	for i := range as {
		as[i].Start = time.Unix(0, as[i].Start.UnixNano())
	}
	return as
}

// A budget over what is in flight needs to know every end: of 10 requests that
// wait for a retry at once it grants 3, however many were served before.
func TestBudgetOverActiveRequests(t *testing.T) {
	cfg := free(balancer.Retry{Max: 1})
	cfg.Budget = retrybudget.Envoy()
	b := newBench(t, cfg, down("a", "b")...)
	for i := range 300 {
		switch i % 3 {
		case 0:
			b.send()
		case 1:
			b.acquire().Release(balancer.Success)
		case 2:
			try := b.pool.Start(balancer.Request{})
			try.Next()
			try.Stop()
		}
	}
	b.health("a", false)
	b.health("b", false)
	for range 100 {
		_, err := b.pool.Acquire(balancer.Request{})
		require.Error(t, err)
		b.send()
	}
	b.health("a", true)
	b.health("b", true)
	tries := make([]balancer.Try[scripted], 10)
	for i := range tries {
		tries[i] = b.pool.Start(balancer.Request{})
		require.Equal(t, balancer.StepSend, tries[i].Next().Kind)
	}
	granted := 0
	for i := range tries {
		tries[i].Done(balancer.Report{Outcome: balancer.TransportFailure})
		if tries[i].Next().Kind == balancer.StepSend {
			granted++
		}
	}
	require.Equal(t, 3, granted)
	for i := range tries {
		tries[i].Done(balancer.Report{Outcome: balancer.Success})
		tries[i].Next()
	}
	require.Zero(t, b.totals().Inflight)
}
