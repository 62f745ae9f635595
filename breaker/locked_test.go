package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

func TestPermitCountsOnce(t *testing.T) {
	b := breaker.New(three)
	p, err := b.Allow(sec(0))
	require.NoError(t, err)
	require.True(t, p.Done(sec(0), false))
	for range 5 {
		require.False(t, p.Done(sec(0), false))
		p.Cancel(sec(0))
	}
	require.Equal(t, 1, b.Counts(sec(0)).Consecutive)

	p, err = b.Allow(sec(0))
	require.NoError(t, err)
	p.Cancel(sec(0))
	require.False(t, p.Done(sec(0), true))
	require.Equal(t, 1, b.Counts(sec(0)).Consecutive)

	var zero breaker.Permit
	require.False(t, zero.Done(sec(0), true))
	zero.Cancel(sec(0))
}

// Copies of a trial's ticket, reported at once from many goroutines, count once.
func TestTrialCountsOnceWhateverIsCopied(t *testing.T) {
	for range 50 {
		c := breaker.NewCore(echofront(1, 2, time.Second, 1), 0)
		tk, _ := c.Allow(0)
		c.Done(0, tk, false)
		tk, _ = c.Allow(s)
		var mu sync.Mutex
		var wg sync.WaitGroup
		counted := 0
		for range 4 {
			wg.Go(func() {
				mu.Lock()
				defer mu.Unlock()
				if c.Done(s, tk, true) {
					counted++
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, counted)
		require.Equal(t, breaker.HalfOpen, c.State(s))
	}
}

func TestRejectedError(t *testing.T) {
	b := breaker.New(three)
	fail(t, b, sec(0), 3)
	_, err := b.Allow(sec(1))
	_, again := b.Allow(sec(9))
	require.Same(t, err, again, "one error per open period")
	require.EqualError(t, err, "breaker: open")
	require.ErrorIs(t, err, breaker.ErrRejected)
	require.ErrorIs(t, err, breaker.ErrOpen)
	require.NotErrorIs(t, err, breaker.ErrTrialsFull)
	require.NotErrorIs(t, err, context.Canceled)
	var rej *breaker.RejectedError
	require.ErrorAs(t, fmt.Errorf("host a: %w", err), &rej)
	require.Equal(t, breaker.RejectedError{
		State: breaker.Open, Reason: breaker.Opened, Rule: breaker.RuleConsecutive, Since: sec(0), Until: sec(10),
	}, *rej)
	require.Equal(t, 9*time.Second, rej.TimeLeft(sec(1)))
	require.Zero(t, rej.TimeLeft(sec(11)))

	p, err := b.Allow(sec(10))
	require.NoError(t, err)
	_, err = b.Allow(sec(11))
	_, again = b.Allow(sec(11))
	require.Same(t, err, again)
	require.ErrorAs(t, err, &rej)
	require.EqualError(t, err, "breaker: all trials out")
	require.ErrorIs(t, err, breaker.ErrTrialsFull)
	require.NotErrorIs(t, err, breaker.ErrOpen)
	require.Equal(t, breaker.RejectedError{
		State: breaker.HalfOpen, Reason: breaker.TrialsFull, Rule: breaker.RuleTimer, Since: sec(10), Until: sec(40),
	}, *rej)

	require.True(t, p.Done(sec(12), false))
	_, err = b.Allow(sec(12))
	require.ErrorAs(t, err, &rej)
	require.Equal(t, sec(22), rej.Until)
	b.Trip(sec(12), time.Minute)
	_, err = b.Allow(sec(12))
	require.ErrorAs(t, err, &rej)
	require.Equal(t, sec(72), rej.Until)
	require.Equal(t, breaker.RuleTrip, rej.Rule)

	b.Force(sec(13), breaker.Open)
	_, err = b.Allow(sec(13))
	require.EqualError(t, err, "breaker: forced open")
	require.ErrorIs(t, err, breaker.ErrOpen)
	require.ErrorAs(t, err, &rej)
	require.True(t, rej.Until.IsZero())
	require.True(t, b.Forced())
	b.Release(sec(14))
	pass(t, b, sec(14))
	require.Equal(t, breaker.Closed, b.State(sec(14)))
}

// Where the end moves within one period, the error follows.
func TestRejectedErrorFollowsTheEnd(t *testing.T) {
	until := func(b *breaker.Breaker, now time.Time) time.Time {
		_, err := b.Allow(now)
		var rej *breaker.RejectedError
		require.ErrorAs(t, err, &rej)
		return rej.Until
	}
	b := breaker.New(breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, LateFailure: breaker.LateRestart})
	late, err := b.Allow(sec(0))
	require.NoError(t, err)
	fail(t, b, sec(0), 1)
	require.Equal(t, sec(10), until(b, sec(1)))
	require.True(t, late.Done(sec(2), false))
	require.Equal(t, sec(12), until(b, sec(2)))
	p, err := b.Allow(sec(12))
	require.NoError(t, err)
	require.Equal(t, sec(42), until(b, sec(13)))
	p.Cancel(sec(14))
	_, err = b.Allow(sec(15))
	require.NoError(t, err)
	require.Equal(t, sec(45), until(b, sec(15)))

	// Open for ever, then forced: there is no end in either.
	b.Trip(sec(20), math.MaxInt64)
	_, err = b.Allow(sec(20))
	require.EqualError(t, err, "breaker: open")
	b.Force(sec(20), breaker.Open)
	_, err = b.Allow(sec(20))
	require.EqualError(t, err, "breaker: forced open")
}

func TestNothingAllocates(t *testing.T) {
	flapping := everyRule
	flapping.FlapTransitions = 3
	for name, cfg := range map[string]breaker.Config{"default": {}, "every rule": everyRule, "flap": flapping} {
		b := breaker.New(cfg)
		now := sec(0)
		cycle := func() {
			for range 20 {
				now = now.Add(2 * time.Second)
				for _, ok := range [...]bool{true, false, true} {
					p, _ := b.Allow(now)
					p.Done(now, ok)
				}
				p, _ := b.Allow(now)
				p.Cancel(now)
				b.State(now)
				b.Ready(now)
				b.Counts(now)
			}
		}
		cycle() // first failure, first result
		require.Zero(t, testing.AllocsPerRun(100, cycle), name)
		b.Trip(now, time.Hour)
		_, err := b.Allow(now)
		require.Error(t, err)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := b.Allow(now); !errors.Is(err, breaker.ErrOpen) {
				t.Error("admitted")
			}
		}), name)

		// A bare core does not allocate in its transitions either.
		cfg.ConsecutiveFailures = 1
		c := breaker.NewCore(cfg, 0)
		at := int64(0)
		round := func() {
			tk, _ := c.Allow(at)
			c.Done(at, tk, false)
			at = max(at, c.Until())
			tk, _ = c.Allow(at)
			c.Done(at, tk, true)
			for c.Changed() {
				c.Pop()
			}
		}
		round()
		require.Zero(t, testing.AllocsPerRun(100, round), name)
	}

	clk := &fakeClock{sec(0)}
	b := breaker.New(everyRule)
	ctx, boom := context.Background(), errors.New("boom")
	f := func(context.Context) error { return nil }
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := b.Do(ctx, clk, f); err != nil {
			t.Error(err)
		}
	}))
	b.Trip(sec(0), time.Hour)
	f = func(context.Context) error { return boom }
	require.ErrorIs(t, b.Do(ctx, clk, f), breaker.ErrOpen)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = b.Do(ctx, clk, f) }))
}

func TestObserversSeeEveryChangeInOrder(t *testing.T) {
	b := breaker.New(three)
	var log []string
	note := func(who string) func(time.Time, breaker.Change) {
		return func(at time.Time, ch breaker.Change) {
			log = append(log, fmt.Sprintf("%s %v %v>%v %v", who, at.Sub(sec(0)), ch.From, ch.To, ch.Rule))
		}
	}
	b.Observe(note("a"))
	b.Observe(func(time.Time, breaker.Change) { panic("observer") })
	b.Observe(note("b"))
	fail(t, b, sec(0), 3)
	// Time-driven: due at 10 s, noticed by a Poll at 12 s.
	at, ok := b.NextChange()
	require.True(t, ok)
	require.Equal(t, sec(10), at)
	require.Equal(t, breaker.HalfOpen, b.State(sec(12)))
	require.Len(t, log, 2, "reads report nothing")
	b.Poll(sec(12))
	pass(t, b, sec(13))
	require.Equal(t, []string{
		"a 0s closed>open consecutive", "b 0s closed>open consecutive",
		"a 10s open>half_open timer", "b 10s open>half_open timer",
		"a 13s half_open>closed trial", "b 13s half_open>closed trial",
	}, log)
	require.EqualValues(t, 3, b.ObserverPanics())
	_, ok = b.NextChange()
	require.False(t, ok)
}

// An observer that makes inputs: what it causes comes after what it was told.
func TestObserverMayCallBack(t *testing.T) {
	b := breaker.New(three)
	var log []string
	depth := 0
	b.Observe(func(at time.Time, ch breaker.Change) {
		depth++
		require.Equal(t, 1, depth, "one at a time")
		if ch.To == breaker.Open {
			b.Force(at, breaker.HalfOpen)
			pass(t, b, at)
		}
		log = append(log, ch.To.String())
		depth--
	})
	b.Observe(func(_ time.Time, ch breaker.Change) { log = append(log, ch.To.String()) })
	fail(t, b, sec(0), 3)
	require.Equal(t, []string{"open", "open", "half_open", "half_open", "closed", "closed"}, log)
}

// runtime.Goexit in an observer, as by t.FailNow, must not end delivery for good.
func TestObserverMayEndItsGoroutine(t *testing.T) {
	b := breaker.New(three)
	exits, after := 0, 0
	b.Observe(func(_ time.Time, ch breaker.Change) {
		if exits++; exits == 1 {
			runtime.Goexit()
		}
	})
	b.Observe(func(time.Time, breaker.Change) { after++ })
	var wg sync.WaitGroup
	wg.Go(func() { b.Trip(sec(0), time.Second) })
	wg.Wait()
	require.Equal(t, 0, after)
	b.Poll(sec(1))
	require.Equal(t, 2, exits)
	require.Equal(t, 1, after)
	require.Zero(t, b.ObserverPanics())
}

// Many goroutines: one order of changes, without a gap, whoever delivers.
func TestConcurrentUse(t *testing.T) {
	cfg := breaker.Config{ConsecutiveFailures: 2, OpenFor: 3, Trials: 2, Passes: 2, TrialTimeout: 5}
	b := breaker.New(cfg)
	var changes []breaker.Change
	b.Observe(func(_ time.Time, ch breaker.Change) { changes = append(changes, ch) })
	seed, _ := seedOf(t, 5)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			r := rng(seed + g)
			for i := range opsOf(t, 2000) {
				now := sec(0).Add(time.Duration(i) + time.Duration(r.n(3)))
				p, err := b.Allow(now)
				if err != nil {
					b.State(now)
					continue
				}
				switch r.n(5) {
				case 0:
					p.Cancel(now)
				case 1: // forgotten
				case 2:
					p.Done(now, true)
				default:
					p.Done(now, false)
				}
			}
		})
	}
	wg.Wait()
	b.Poll(sec(1)) // whoever still delivers has returned: this drains the rest
	state, last := breaker.Closed, int64(0)
	for _, ch := range changes {
		require.Equal(t, state, ch.From)
		require.GreaterOrEqual(t, ch.At, last)
		state, last = ch.To, ch.At
	}
	require.Equal(t, state, b.State(sec(1)))
	opened := slices.DeleteFunc(slices.Clone(changes), func(ch breaker.Change) bool {
		return ch.Kind != breaker.Transition || ch.To != breaker.Open
	})
	require.EqualValues(t, len(opened), b.Stats().Opened)
	require.NotEmpty(t, opened)
}

// The reads of a breaker that has seen no input yet.
func TestReadsBeforeTheFirstInput(t *testing.T) {
	b := breaker.New(three)
	require.Equal(t, breaker.Closed, b.State(sec(5)))
	require.True(t, b.Ready(sec(5)))
	require.True(t, b.Idle(sec(5)))
	require.False(t, b.Flapping(sec(5)))
	require.False(t, b.Forced())
	require.Zero(t, b.Counts(sec(5)))
	require.Zero(t, b.Stats())
	fail(t, b, sec(0), 3) // the time line begins here, not at 5 s
	require.False(t, b.Ready(sec(10).Add(-1)))
	require.True(t, b.Ready(sec(10)))
}

func TestDo(t *testing.T) {
	b := breaker.New(breaker.Config{ConsecutiveFailures: 2, OpenFor: time.Second})
	clk := &fakeClock{sec(0)}
	ctx := context.Background()
	do := func(err error) error {
		return b.Do(ctx, clk, func(got context.Context) error {
			require.Equal(t, ctx, got)
			return err
		})
	}
	boom := errors.New("boom")
	require.NoError(t, do(nil))
	require.Same(t, boom, do(boom))
	require.Same(t, boom, do(breaker.Ignore(boom)), "without the mark")
	require.Equal(t, 1, b.Counts(sec(0)).Consecutive)
	wrapped := fmt.Errorf("deep: %w", breaker.Ignore(boom))
	require.Same(t, wrapped, do(wrapped))
	require.Equal(t, 1, b.Counts(sec(0)).Consecutive)
	require.ErrorIs(t, do(fmt.Errorf("inner: %w", &breaker.RejectedError{State: breaker.Open})), breaker.ErrOpen)
	require.Equal(t, 1, b.Counts(sec(0)).Consecutive, "the rejection by another breaker")
	require.Same(t, boom, do(boom))
	called := false
	err := b.Do(ctx, clk, func(context.Context) error { called = true; return nil })
	require.ErrorIs(t, err, breaker.ErrOpen)
	require.False(t, called)

	require.NoError(t, breaker.Ignore(nil))
	require.EqualError(t, breaker.Ignore(boom), "boom")
	require.ErrorIs(t, breaker.Ignore(boom), boom)

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	late, cancelLate := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancelLate()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want breaker.Outcome
	}{
		{ctx, nil, breaker.Success},
		{cancelled, nil, breaker.Success},
		{ctx, boom, breaker.Failure},
		{cancelled, boom, breaker.Neutral},
		{late, boom, breaker.Failure},
		{late, context.DeadlineExceeded, breaker.Failure},
		{ctx, context.DeadlineExceeded, breaker.Failure},
		{ctx, fmt.Errorf("x: %w", context.Canceled), breaker.Neutral},
		{ctx, breaker.Ignore(boom), breaker.Neutral},
		{ctx, breaker.ErrRejected, breaker.Neutral},
	} {
		require.Equal(t, c.want, breaker.Classify(c.ctx, c.err), "%v", c.err)
	}
}

// A slow call is seen by Do through the clock.
func TestDoMeasures(t *testing.T) {
	b := breaker.New(breaker.Config{ConsecutiveFailures: 1, FailAfter: time.Second})
	clk := &fakeClock{sec(0)}
	for _, d := range []time.Duration{time.Second, time.Second + 1} {
		require.NoError(t, b.Do(context.Background(), clk, func(context.Context) error {
			clk.now = clk.now.Add(d)
			return nil
		}))
	}
	require.Equal(t, breaker.Open, b.State(clk.now))
}

func TestStrings(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"closed": breaker.Closed, "open": breaker.Open, "half_open": breaker.HalfOpen, "State(3)": breaker.State(3),
		"admitted": breaker.Admitted, "trials_full": breaker.TrialsFull, "forced_open": breaker.ForcedOpen, "Reason(9)": breaker.Reason(9),
		"none": breaker.RuleNone, "consecutive": breaker.RuleConsecutive, "window": breaker.RuleWindow,
		"failure_rate": breaker.RuleFailureRate, "slow_rate": breaker.RuleSlowRate, "trial": breaker.RuleTrial,
		"timer": breaker.RuleTimer, "trip": breaker.RuleTrip, "forced": breaker.RuleForced, "released": breaker.RuleReleased,
		"Rule(99)": breaker.Rule(99), "transition": breaker.Transition, "trial_lost": breaker.TrialLost,
		"trial_abandoned": breaker.TrialAbandoned, "flap_started": breaker.FlapStarted, "flap_ended": breaker.FlapEnded,
		"Kind(7)": breaker.Kind(7),
	} {
		require.Equal(t, want, got.String())
	}
	require.Equal(t, "open", breaker.Opened.String())
}
