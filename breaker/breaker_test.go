package breaker_test

import (
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

var ferron = breaker.Config{WindowFailures: 5, Window: 30 * time.Second, OpenFor: 30 * time.Second}

// echofront is threshold/passes/cooldown as in the rows.
func echofront(fail, pass int, cooldown time.Duration, trials int) breaker.Config {
	return breaker.Config{ConsecutiveFailures: fail, Passes: pass, OpenFor: cooldown, Trials: trials}
}

func TestRows(t *testing.T) {
	t.Run("E-BR-01", func(t *testing.T) {
		x := newScript(t, echofront(3, 2, time.Second, 1))
		x.calls(0, "FFSFF")
		x.state(0, breaker.Closed)
		x.call(0, false)
		x.state(0, breaker.Open)

		x = newScript(t, echofront(5, 2, 5000*time.Millisecond, 1))
		x.calls(0, "FFFF")
		x.state(0, breaker.Closed)
		x.call(0, false)
		x.state(4999*ms, breaker.Open)
		x.state(5000*ms, breaker.HalfOpen)
		x.call(5000*ms, true)
		x.state(5000*ms, breaker.HalfOpen)
		x.call(5000*ms, true)
		x.state(5000*ms, breaker.Closed)
	})

	t.Run("E-BR-02", func(t *testing.T) {
		seed, _ := seedOf(t, 2)
		r := rng(seed)
		x := newScript(t, echofront(3, 2, time.Second, 1))
		now, opens := int64(0), 0
		for range opsOf(t, 3000) {
			switch r.n(3) {
			case 0:
				now += int64(r.n(600)) * ms
			default:
				if tk, why := x.c.Allow(now); why == breaker.Admitted {
					x.c.Done(now, tk, r.n(2) == 0)
				}
			}
			if x.c.State(now) == breaker.Open {
				opens++
				require.False(t, x.c.Ready(now))
				x.refused(now, breaker.Opened)
				require.NotEqual(t, breaker.HalfOpen, x.c.State(now))
			}
		}
		require.NotZero(t, opens)
	})

	t.Run("E-BR-03", func(t *testing.T) {
		for _, c := range []struct{ trials, capacity int }{{0, 1}, {1, 1}, {2, 2}} {
			x := newScript(t, echofront(1, 9, time.Second, c.trials))
			x.call(0, false)
			x.state(999*ms, breaker.Open)
			x.refused(999*ms, breaker.Opened)
			x.state(1000*ms, breaker.HalfOpen)
			var out []breaker.Ticket
			for range c.capacity {
				require.True(t, x.c.Ready(1000*ms))
				out = append(out, x.allow(1000*ms))
			}
			require.False(t, x.c.Ready(1000*ms))
			x.refused(1000*ms, breaker.TrialsFull)
			require.True(t, x.c.Done(1000*ms, out[0], true))
			x.allow(1000 * ms)
			x.refused(1000*ms, breaker.TrialsFull)
		}
	})

	t.Run("E-BR-04", func(t *testing.T) {
		x := newScript(t, echofront(1, 2, time.Second, 1))
		x.call(0, false)
		x.calls(1000*ms, "SS")
		x.state(1000*ms, breaker.Closed)

		x = newScript(t, echofront(1, 2, time.Second, 1))
		x.call(0, false)
		x.calls(1500*ms, "SF")
		x.state(1500*ms, breaker.Open)
		x.state(2499*ms, breaker.Open)
		x.state(2500*ms, breaker.HalfOpen)
		require.EqualValues(t, 2, x.c.Stats().Opened)
	})

	t.Run("E-BR-05", func(t *testing.T) {
		x := newScript(t, echofront(1, 1, time.Second, 1))
		a, b := x.allow(0), x.allow(0)
		x.call(0, false)
		before := x.c.AppendState(nil, 0)
		require.False(t, x.c.Done(0, a, false))
		require.False(t, x.c.Done(0, b, true))
		require.Equal(t, before, x.c.AppendState(nil, 0))
		x.state(999*ms, breaker.Open)
		x.state(1000*ms, breaker.HalfOpen)
	})

	// The independent model of this row is a handful of lines: what the breaker
	// did is recomputed from the log of results since it last closed.
	t.Run("E-BR-06", func(t *testing.T) {
		seed, _ := seedOf(t, 6)
		r := rng(seed)
		x := newScript(t, echofront(3, 2, time.Second, 1))
		var now, openedAt int64
		log := "" // results since closed, or since half-open began, or "open"
		state := breaker.Closed
		for range opsOf(t, 3000) {
			if op := r.n(3); op == 2 {
				now += int64(r.n(600)) * ms
			} else if x.c.Ready(now) {
				x.call(now, op == 0)
				if state == breaker.Open {
					state, log = breaker.HalfOpen, ""
				}
				log += string("SF"[op])
			}
			ends := func(suffix string) bool {
				return len(log) >= len(suffix) && log[len(log)-len(suffix):] == suffix
			}
			switch {
			case state == breaker.Closed && ends("FFF"), state == breaker.HalfOpen && ends("F"):
				state, log, openedAt = breaker.Open, "", now
			case state == breaker.HalfOpen && ends("SS"):
				state, log = breaker.Closed, ""
			}
			want := state
			if state == breaker.Open && now >= openedAt+1000*ms {
				want = breaker.HalfOpen
			}
			require.Equal(t, want, x.c.State(now))
			require.Equal(t, want != breaker.Open, x.c.Ready(now))
		}
		require.Greater(t, x.c.Stats().Opened, uint64(20))
	})

	t.Run("F-CB-01", func(t *testing.T) {
		x := newScript(t, breaker.Config{})
		for i := range int64(4) {
			x.call(i*7*s, false)
			x.state(i*7*s, breaker.Closed)
		}
		x.call(28*s, false)
		x.state(28*s, breaker.Open)

		x = newScript(t, breaker.Config{Off: true})
		for i := range int64(1000) {
			tk := x.allow(i)
			require.False(t, x.c.Done(i, tk, false))
			require.True(t, x.c.Ready(i))
		}
		x.c.Trip(1000, s)
		x.c.Force(1000, breaker.Open)
		x.state(1000, breaker.Closed)
		require.False(t, x.c.Changed())
		require.Zero(t, x.c.Counts(1000))
		require.EqualValues(t, int64(math.MaxInt64), x.c.NextChange())
	})

	t.Run("F-CB-02", func(t *testing.T) {
		x := newScript(t, ferron)
		for _, at := range []int64{0, 7, 14, 21} {
			x.call(at*s, false)
			x.state(at*s, breaker.Closed)
		}
		x.call(28*s, false)
		x.state(28*s, breaker.Open)

		x = newScript(t, ferron)
		for _, at := range []int64{0, 8, 16, 24, 32} {
			x.call(at*s, false)
			x.state(at*s, breaker.Closed)
		}
		x.call(33*s, false)
		x.state(33*s, breaker.Open)
		ch := x.changes()
		require.Len(t, ch, 1)
		require.Equal(t, breaker.RuleWindow, ch[0].Rule)
		require.Equal(t, breaker.Counts{Consecutive: 6, WindowFailures: 5}, ch[0].Counts)
	})

	t.Run("F-CB-03", func(t *testing.T) {
		for _, c := range []struct {
			last int64
			want breaker.State
		}{{30000 * ms, breaker.Closed}, {29999 * ms, breaker.Open}} {
			x := newScript(t, ferron)
			for _, at := range []int64{0, 10, 20, 25} {
				x.call(at*s, false)
			}
			x.call(c.last, false)
			x.state(c.last, c.want)
		}
	})

	t.Run("F-CB-04", func(t *testing.T) {
		x := newScript(t, ferron)
		for i, r := range "FSFSFSFS" {
			x.call(int64(i)*s, r == 'S')
			x.state(int64(i)*s, breaker.Closed)
		}
		x.call(9*s, false)
		x.state(9*s, breaker.Open)
	})

	opened := func(t *testing.T, passes int) *script { // at 28 s
		cfg := ferron
		cfg.Passes = passes
		x := newScript(t, cfg)
		for _, at := range []int64{0, 7, 14, 21, 28} {
			x.call(at*s, false)
		}
		return x
	}

	t.Run("F-CB-05", func(t *testing.T) {
		x := opened(t, 1)
		x.refused(57999*ms, breaker.Opened)
		require.EqualValues(t, 58*s, x.c.NextChange())
		x.allow(58 * s)
	})

	t.Run("F-CB-06", func(t *testing.T) {
		x := opened(t, 2)
		one := x.allow(58 * s)
		x.refused(58*s, breaker.TrialsFull)
		require.EqualValues(t, 88*s, x.c.Until())
		require.True(t, x.c.Done(59*s, one, true))
		x.state(59*s, breaker.HalfOpen)
		x.allow(59 * s)
	})

	t.Run("F-CB-07", func(t *testing.T) {
		x := opened(t, 1)
		x.call(58*s, true)
		x.state(58*s, breaker.Closed)

		x = opened(t, 3)
		x.calls(58*s, "SS")
		x.state(58*s, breaker.HalfOpen)
		require.Equal(t, breaker.Counts{Passes: 2}, x.c.Counts(58*s))
		x.call(58*s, true)
		x.state(58*s, breaker.Closed)
	})

	t.Run("F-CB-08", func(t *testing.T) {
		x := opened(t, 3)
		x.calls(60*s, "SSF")
		x.state(60*s, breaker.Open)
		x.refused(90*s-1, breaker.Opened)
		x.calls(90*s, "SS")
		x.state(90*s, breaker.HalfOpen)
		x.call(90*s, true)
		x.state(90*s, breaker.Closed)
	})

	t.Run("F-CB-11", func(t *testing.T) {
		x := newScript(t, breaker.Config{WindowFailures: 5, FailAfter: 500 * time.Millisecond})
		slow := func(took int64) {
			tk := x.allow(0)
			require.True(t, x.c.DoneIn(0, tk, true, took))
		}
		slow(500 * ms)
		require.Zero(t, x.c.Counts(0).WindowFailures)
		slow(501 * ms)
		require.Equal(t, 1, x.c.Counts(0).WindowFailures)
		for range 3 {
			slow(501 * ms)
		}
		x.state(0, breaker.Closed)
		// Without a duration of the caller's, the time since Allow counts.
		a, b := x.allow(0), x.allow(0)
		require.True(t, x.c.Done(500*ms, a, true))
		x.state(500*ms, breaker.Closed)
		require.True(t, x.c.Done(501*ms, b, true))
		x.state(501*ms, breaker.Open)
	})

	// flapping at 0, 4 and 4.1 s: opened, half-open, opened again.
	flapping := func(t *testing.T) *script {
		x := newScript(t, breaker.Config{
			ConsecutiveFailures: 1, OpenFor: 4 * time.Second,
			FlapTransitions: 3, FlapWindow: 10 * time.Second,
		})
		x.call(0, false)
		x.c.Poll(4 * s)
		x.call(4100*ms, false)
		return x
	}
	const openFor = 4 * time.Second
	transition := func(at int64, from, to breaker.State, rule breaker.Rule, suppressed bool) breaker.Change {
		ch := breaker.Change{At: at, From: from, To: to, Rule: rule, Suppressed: suppressed}
		if from == breaker.Open || to == breaker.Open {
			ch.OpenFor = openFor
		}
		return ch
	}

	t.Run("F-CB-15", func(t *testing.T) {
		x := flapping(t)
		require.True(t, x.c.Flapping(4100*ms))
		require.Equal(t, []breaker.Change{
			transition(0, breaker.Closed, breaker.Open, breaker.RuleConsecutive, false),
			transition(4*s, breaker.Open, breaker.HalfOpen, breaker.RuleTimer, false),
			transition(4100*ms, breaker.HalfOpen, breaker.Open, breaker.RuleTrial, true),
			{Kind: breaker.FlapStarted, At: 4100 * ms, From: breaker.Open, To: breaker.Open},
		}, brief(x.changes()))
		// The next ones move the state but are marked, and there is no second
		// start. (8.1 s: the open period that began at 4.1 s has ended.)
		x.call(8100*ms, true)
		x.state(8100*ms, breaker.Closed)
		require.Equal(t, []breaker.Change{
			transition(8100*ms, breaker.Open, breaker.HalfOpen, breaker.RuleTimer, true),
			transition(8100*ms, breaker.HalfOpen, breaker.Closed, breaker.RuleTrial, true),
		}, brief(x.changes()))
	})

	t.Run("F-CB-16", func(t *testing.T) {
		// As in the row: transitions at 0, 4, 4.1 and 8 s, then one at 19 s. The
		// third youngest of those is 10 s old at 14 s: that is when it ends.
		x := flapping(t)
		x.c.Force(8*s, breaker.HalfOpen)
		x.changes()
		require.True(t, x.c.Flapping(14*s-1))
		require.False(t, x.c.Flapping(14*s))
		require.EqualValues(t, 14*s, x.c.NextChange())
		x.call(19*s, false)
		require.Equal(t, []breaker.Change{
			{Kind: breaker.FlapEnded, At: 14 * s, From: breaker.HalfOpen, To: breaker.HalfOpen},
			transition(19*s, breaker.HalfOpen, breaker.Open, breaker.RuleTrial, false),
		}, brief(x.changes()))

		// And on Poll, without a transition.
		x = flapping(t)
		x.c.Force(8*s, breaker.HalfOpen)
		x.changes()
		x.c.Poll(14*s - 1)
		require.Empty(t, x.changes())
		x.c.Poll(14 * s)
		require.Equal(t, []breaker.Change{
			{Kind: breaker.FlapEnded, At: 14 * s, From: breaker.HalfOpen, To: breaker.HalfOpen},
		}, brief(x.changes()))
	})

	t.Run("F-CB-17", func(t *testing.T) {
		for threshold, want := range map[int]bool{0: false, 1: true} {
			x := newScript(t, breaker.Config{FlapTransitions: threshold})
			for i := range int64(100) {
				x.c.Force(i*10*ms, breaker.State(1-i%2))
				require.Equal(t, want, x.c.Flapping(i*10*ms))
			}
			all := x.changes()
			for _, ch := range all {
				require.Equal(t, want, ch.Suppressed || ch.Kind == breaker.FlapStarted)
			}
			require.Equal(t, breaker.Transition, all[len(all)-1].Kind)
		}
	})

	t.Run("F-CB-21", func(t *testing.T) {
		for late, end := range map[breaker.LateFailure]int64{breaker.LateIgnore: 30, breaker.LateRestart: 40} {
			x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 30 * time.Second, LateFailure: late})
			a, b := x.allow(0), x.allow(0)
			x.call(0, false)
			require.False(t, x.c.Done(5*s, b, true), "a late success never matters")
			require.Equal(t, late == breaker.LateRestart, x.c.Done(10*s, a, false))
			x.refused(end*s-1, breaker.Opened)
			require.EqualValues(t, end*s, x.c.NextChange())
			x.allow(end * s)
		}
	})

	t.Run("F-CB-22", func(t *testing.T) {
		x := opened(t, 1)
		x.changes()
		tk := x.allow(58 * s)
		x.c.Cancel(59*s, tk)
		x.state(59*s, breaker.HalfOpen)
		require.True(t, x.c.Ready(59*s))
		require.EqualValues(t, 1, x.c.Stats().HalfOpenAbandoned)
		require.Zero(t, x.c.Counts(59*s), "neither pass nor failure")
		all := x.changes()
		require.Len(t, all, 2)
		require.Equal(t, breaker.Change{
			Kind: breaker.TrialAbandoned, At: 59 * s, From: breaker.HalfOpen, To: breaker.HalfOpen,
		}, all[1])
		x.c.Cancel(59*s, tk)
		require.EqualValues(t, 1, x.c.Stats().HalfOpenAbandoned)
	})

	t.Run("F-OB-12", func(t *testing.T) {
		for i, want := range []string{"closed", "open", "half_open"} {
			require.Equal(t, want, breaker.State(i).String())
		}
		require.EqualValues(t, 0, breaker.Closed)
		require.EqualValues(t, 1, breaker.Open)
		require.EqualValues(t, 2, breaker.HalfOpen)
	})

	t.Run("F-OB-13", func(t *testing.T) {
		x := newScript(t, echofront(1, 1, time.Second, 1))
		x.call(0, false)
		x.call(1*s, false)
		x.call(2*s, true)
		x.state(2*s, breaker.Closed)
		require.EqualValues(t, 2, x.c.Stats().Opened)
	})

	t.Run("F-OB-14", func(t *testing.T) {
		x := flapping(t)
		require.True(t, x.c.Flapping(4100*ms))
		require.True(t, x.c.Flapping(9999*ms))
		require.False(t, x.c.Flapping(10*s), "read without an input")
		x.c.Poll(8100 * ms) // half-open at 8.1 s: now 4, 4.1, 8.1 s
		require.True(t, x.c.Flapping(14*s-1))
		require.False(t, x.c.Flapping(14*s))
	})
}
