package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

// fakeClock is a clock that stands still. Its times carry no monotonic reading.
type fakeClock struct{ now time.Time }

func (c *fakeClock) Now() time.Time { return c.now }

// sec returns the instant n seconds after an arbitrary start.
func sec(n float64) time.Time {
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n * float64(time.Second)))
}

// three is the breaker of most traps: three failures in a row, ten seconds, one
// trial, one pass.
var three = breaker.Config{ConsecutiveFailures: 3, OpenFor: 10 * time.Second}

func fail(t testing.TB, b *breaker.Breaker, now time.Time, n int) {
	t.Helper()
	for range n {
		p, err := b.Allow(now)
		require.NoError(t, err)
		require.True(t, p.Done(now, false))
	}
}

func pass(t testing.TB, b *breaker.Breaker, now time.Time) {
	t.Helper()
	p, err := b.Allow(now)
	require.NoError(t, err)
	require.True(t, p.Done(now, true))
}

func TestTraps(t *testing.T) {
	t.Run("A-BR-01", func(t *testing.T) {
		b := breaker.New(three)
		fail(t, b, sec(0), 3)
		p, err := b.Allow(sec(10))
		require.NoError(t, err)
		p.Cancel(sec(10))
		require.Equal(t, breaker.HalfOpen, b.State(sec(10)))
		pass(t, b, sec(10))
		require.Equal(t, breaker.Closed, b.State(sec(10)))
	})

	t.Run("A-BR-02", func(t *testing.T) {
		b := breaker.New(three)
		fail(t, b, sec(0), 3)
		permits := make([]breaker.Permit, 50)
		var granted, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range permits {
			wg.Go(func() {
				var err error
				permits[i], err = b.Allow(sec(10))
				switch {
				case err == nil:
					granted.Add(1)
				case errors.Is(err, breaker.ErrTrialsFull) && errors.Is(err, breaker.ErrRejected):
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, granted.Load())
		require.EqualValues(t, 49, refused.Load())
		counted := 0
		for i := range permits {
			if permits[i].Done(sec(10), true) {
				counted++
			}
		}
		require.Equal(t, 1, counted)
		for range 50 {
			pass(t, b, sec(10))
		}
	})

	t.Run("A-BR-03", func(t *testing.T) {
		b := breaker.New(three)
		clk := &fakeClock{sec(0)}
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		text := errors.New("request aborted")
		abort := func(context.Context) error { return text }
		for range 20 {
			require.Same(t, text, b.Do(cancelled, clk, abort))
			require.ErrorIs(t, b.Do(context.Background(), clk, func(context.Context) error {
				return fmt.Errorf("get: %w", context.Canceled)
			}), context.Canceled)
		}
		require.Equal(t, breaker.Closed, b.State(sec(0)))
		require.Zero(t, b.Counts(sec(0)))
		for range 3 {
			require.ErrorIs(t, b.Do(context.Background(), clk, func(context.Context) error {
				return context.DeadlineExceeded
			}), context.DeadlineExceeded)
		}
		require.Equal(t, breaker.Open, b.State(sec(0)))
		clk.now = sec(10)
		require.Same(t, text, b.Do(cancelled, clk, abort))
		require.Equal(t, breaker.HalfOpen, b.State(sec(10)))
		require.True(t, b.Ready(sec(10)))
	})

	t.Run("A-BR-04", func(t *testing.T) {
		for _, ok := range []bool{true, false} {
			b := breaker.New(three)
			x, err := b.Allow(sec(0))
			require.NoError(t, err)
			fail(t, b, sec(1), 3)
			p, err := b.Allow(sec(11))
			require.NoError(t, err)
			require.False(t, x.Done(sec(11.5), ok))
			require.Equal(t, breaker.HalfOpen, b.State(sec(11.5)))
			require.False(t, b.Ready(sec(11.5)), "the slot is still taken")
			require.True(t, p.Done(sec(11), false)) // counts as 11.5: time does not go back
			require.Equal(t, breaker.Open, b.State(sec(21.5).Add(-1)))
			require.Equal(t, breaker.HalfOpen, b.State(sec(21.5)))
		}
		// With P's failure at 11 as printed.
		b := breaker.New(three)
		fail(t, b, sec(1), 3)
		fail(t, b, sec(11), 1)
		require.Equal(t, breaker.Open, b.State(sec(21).Add(-1)))
		require.Equal(t, breaker.HalfOpen, b.State(sec(21)))
	})

	t.Run("A-BR-05", func(t *testing.T) {
		b := breaker.New(three)
		x, err := b.Allow(sec(0))
		require.NoError(t, err)
		y, err := b.Allow(sec(0))
		require.NoError(t, err)
		fail(t, b, sec(0), 3)
		require.False(t, x.Done(sec(4), false))
		require.False(t, y.Done(sec(9.9), false))
		require.False(t, b.Ready(sec(10).Add(-1)))
		pass(t, b, sec(10))
	})

	t.Run("A-BR-06", func(t *testing.T) {
		cfg := breaker.Config{FailureRate: 0.5, MinCalls: 10, OpenFor: 10 * time.Second}
		b := breaker.New(cfg)
		fail(t, b, sec(0), 10)
		require.Equal(t, breaker.Open, b.State(sec(0)))
		fail(t, b, sec(10), 1)
		require.Equal(t, breaker.Open, b.State(sec(20).Add(-1)))
		pass(t, b, sec(20))
		require.Equal(t, breaker.Closed, b.State(sec(20)))

		cfg.Trials, cfg.Passes = 3, 3
		b = breaker.New(cfg)
		fail(t, b, sec(0), 10)
		for range 3 {
			require.Equal(t, breaker.HalfOpen, b.State(sec(10)))
			pass(t, b, sec(10))
		}
		require.Equal(t, breaker.Closed, b.State(sec(10)))
	})

	t.Run("A-BR-07", func(t *testing.T) {
		b := breaker.New(three)
		fail(t, b, sec(0), 3)
		for range 100 {
			require.Equal(t, breaker.HalfOpen, b.State(sec(10)))
			require.True(t, b.Ready(sec(10)))
			require.Zero(t, b.Counts(sec(10)))
			b.Stats()
			b.NextChange()
		}
		require.False(t, b.Ready(sec(9)), "the reads moved no time")
		_, err := b.Allow(sec(10))
		require.NoError(t, err)
	})

	t.Run("A-BR-08", func(t *testing.T) {
		b := breaker.New(three)
		clk := &fakeClock{sec(0)}
		fail(t, b, sec(0), 3)
		clk.now = sec(10)
		boom := errors.New("boom")
		require.PanicsWithValue(t, boom, func() {
			_ = b.Do(context.Background(), clk, func(context.Context) error { panic(boom) })
		})
		require.Zero(t, b.Counts(sec(10)).Trials)
		require.Equal(t, breaker.Open, b.State(sec(20).Add(-1)))
		clk.now = sec(20)
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = b.Do(context.Background(), clk, func(context.Context) error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		require.Zero(t, b.Counts(sec(20)).Trials)
		require.Equal(t, breaker.Open, b.State(sec(30).Add(-1)))
		clk.now = sec(30)
		require.NoError(t, b.Do(context.Background(), clk, func(context.Context) error { return nil }))
		require.Equal(t, breaker.Closed, b.State(sec(30)))

		// A permit that is never settled is lost in time.
		fail(t, b, sec(30), 3)
		_, err := b.Allow(sec(40)) // forgotten
		require.NoError(t, err)
		require.False(t, b.Ready(sec(70).Add(-1)))
		pass(t, b, sec(70))
		require.Equal(t, breaker.Closed, b.State(sec(70)))
		require.EqualValues(t, 1, b.Stats().HalfOpenLost)
	})

	t.Run("A-BR-09", func(t *testing.T) {
		cfg := three
		cfg.Trials, cfg.Passes = 2, 5
		b := breaker.New(cfg)
		fail(t, b, sec(0), 3)
		p1, err := b.Allow(sec(10))
		require.NoError(t, err)
		p2, err := b.Allow(sec(10))
		require.NoError(t, err)
		require.True(t, p1.Done(sec(10), false))
		for range 2 {
			_, err = b.Allow(sec(20))
			require.NoError(t, err)
		}
		require.False(t, b.Ready(sec(20)))
		require.False(t, p2.Done(sec(20), true))
		require.Equal(t, breaker.Counts{Trials: 2}, b.Counts(sec(20)))
		_, err = b.Allow(sec(20))
		require.ErrorIs(t, err, breaker.ErrTrialsFull)
	})

	t.Run("A-BR-10", func(t *testing.T) {
		b := breaker.New(three)
		clk := &fakeClock{sec(0)}
		status := func(code int) error {
			return b.Do(context.Background(), clk, func(context.Context) error {
				err := fmt.Errorf("status %d", code)
				switch {
				case code < 400:
					return nil
				case code < 500:
					return breaker.Ignore(err)
				}
				return err
			})
		}
		for _, code := range []int{500, 500, 400, 500} {
			require.EqualError(t, status(code), fmt.Sprintf("status %d", code))
		}
		require.Equal(t, breaker.Open, b.State(sec(0)))
		clk.now = sec(10)
		require.Error(t, status(400))
		require.Equal(t, breaker.HalfOpen, b.State(sec(10)))
		require.NoError(t, status(200))
		require.Equal(t, breaker.Closed, b.State(sec(10)))
	})

	t.Run("A-BR-11", func(t *testing.T) {
		b := breaker.New(three)
		var got []breaker.Change
		b.Observe(func(at time.Time, ch breaker.Change) {
			b.State(at)
			b.Counts(at)
			b.Stats()
			p, err := b.Allow(at)
			if err == nil {
				p.Cancel(at)
			}
			got = append(got, ch)
		})
		permits := make([]breaker.Permit, 8)
		for i := range permits {
			var err error
			permits[i], err = b.Allow(sec(0))
			require.NoError(t, err)
		}
		var wg sync.WaitGroup
		for i := range permits {
			wg.Go(func() { permits[i].Done(sec(0), false) })
		}
		wg.Wait()
		require.Len(t, got, 1)
		require.Equal(t, breaker.Closed, got[0].From)
		require.Equal(t, breaker.Open, got[0].To)
	})

	t.Run("A-BR-12", func(t *testing.T) {
		before := runtime.NumGoroutine()
		for range 1000 {
			b := breaker.New(three)
			fail(t, b, sec(0), 3)
			pass(t, b, sec(10))
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before)
	})

	t.Run("A-BR-13", func(t *testing.T) {
		b := breaker.New(three)
		fail(t, b, sec(100), 3)
		for range 3 {
			_, err := b.Allow(sec(40))
			var rej *breaker.RejectedError
			require.ErrorAs(t, err, &rej)
			require.Equal(t, sec(110), rej.Until)
			require.Equal(t, 10*time.Second, rej.TimeLeft(sec(40)), "no longer than it was open for")
			require.Equal(t, 9*time.Second, rej.TimeLeft(sec(101)))
			require.Equal(t, breaker.Open, b.State(sec(40)))
		}
		require.False(t, b.Ready(sec(110).Add(-1)))
		_, err := b.Allow(sec(110))
		require.NoError(t, err)

		// Readings with a monotonic part.
		b = breaker.New(three)
		t0 := time.Now()
		fail(t, b, t0, 3)
		require.False(t, b.Ready(t0.Add(10*time.Second-1)))
		require.True(t, b.Ready(t0.Add(10*time.Second)))
	})

	t.Run("A-BR-14", func(t *testing.T) {
		b := breaker.New(three)
		x, err := b.Allow(sec(0))
		require.NoError(t, err)
		fail(t, b, sec(0), 3)
		p, err := b.Allow(sec(10))
		require.NoError(t, err)
		x.Cancel(sec(10))
		require.Equal(t, breaker.HalfOpen, b.State(sec(10)))
		require.Equal(t, 1, b.Counts(sec(10)).Trials)
		require.True(t, p.Done(sec(10), true))
		require.Equal(t, breaker.Closed, b.State(sec(10)))
	})

	t.Run("A-BR-15", func(t *testing.T) {
		cfg := breaker.Config{WindowFailures: 3, Window: 5 * time.Second, OpenFor: 30 * time.Second}
		keys := map[string]*breaker.Breaker{"k": breaker.New(cfg), "quiet": breaker.New(cfg), "some": breaker.New(cfg)}
		fail(t, keys["k"], sec(0), 3)
		pass(t, keys["quiet"], sec(0))
		fail(t, keys["some"], sec(6), 1)
		pass(t, keys["some"], sec(6))
		sweep := func(now time.Time) {
			for k, b := range keys {
				if b.Idle(now) {
					delete(keys, k)
				}
			}
		}
		sweep(sec(10))
		require.Len(t, keys, 2, "the window of `some` holds a failure until 11 s")
		require.False(t, keys["k"].Ready(sec(10)))
		sweep(sec(11))
		require.Len(t, keys, 1)
		pass(t, keys["k"], sec(30)) // the trial
		sweep(sec(30))
		require.Empty(t, keys)
	})

	t.Run("A-CK-04", func(t *testing.T) {
		b := breaker.New(breaker.Config{ConsecutiveFailures: 1, OpenFor: math.MaxInt64})
		fail(t, b, sec(0), 1)
		require.False(t, b.Ready(sec(1e9)))
		_, err := b.Allow(sec(1e9))
		var rej *breaker.RejectedError
		require.ErrorAs(t, err, &rej)
		require.True(t, rej.Until.IsZero())
		require.EqualValues(t, int64(math.MaxInt64), rej.TimeLeft(sec(1e9)))
		_, due := b.NextChange()
		require.False(t, due)

		for _, start := range []int64{math.MinInt64, -5, 0, math.MaxInt64 - 5} {
			x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: math.MaxInt64})
			x.call(start, false)
			x.refused(start, breaker.Opened)
			x.refused(math.MaxInt64, breaker.Opened)
			x.state(math.MaxInt64, breaker.Open)
		}
		for _, d := range []time.Duration{10, math.MaxInt64 - 1} {
			x := newScript(t, breaker.Config{
				ConsecutiveFailures: 1, OpenFor: d, TrialTimeout: math.MaxInt64, WindowFailures: 2,
				Window: math.MaxInt64, FailureRate: 1, FlapTransitions: 2, FlapWindow: math.MaxInt64,
			})
			x.call(math.MaxInt64-5, false)
			x.refused(math.MaxInt64, breaker.Opened)
		}

		// A lease without an end holds its slot at the end of time, too.
		x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 10, TrialTimeout: -1})
		x.call(0, false)
		x.allow(10)
		require.False(t, x.c.Ready(math.MaxInt64))
		require.Equal(t, breaker.Counts{Trials: 1}, x.c.Counts(math.MaxInt64))
		x.refused(math.MaxInt64, breaker.TrialsFull)

		// Time that goes back is no time: the run, the window and the wait stand.
		x = newScript(t, breaker.Config{ConsecutiveFailures: 2, OpenFor: 10 * time.Second})
		x.call(10*s, false)
		x.call(9*s, false)
		x.refused(0, breaker.Opened)
		x.refused(20*s-1, breaker.Opened)
		x.allow(20 * s)

		require.EqualError(t, breaker.Config{OpenFor: -time.Second}.Validate(),
			"breaker: Config.OpenFor is -1s, want >= 0")
		require.Panics(t, func() { breaker.New(breaker.Config{OpenFor: -time.Second}) })
	})
}
