package breaker_test

import (
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

func TestFailureRateIsExact(t *testing.T) {
	// Rounded to two decimals, 198 of 400 would be one half, and 4 of 1000
	// nothing.
	x := newScript(t, breaker.Config{FailureRate: 0.5, MinCalls: 400})
	for i := range 400 {
		x.call(0, i >= 198)
	}
	x.state(0, breaker.Closed)
	x.calls(0, "FF")
	x.state(0, breaker.Closed) // 200 of 402
	x.calls(0, "FF")
	x.state(0, breaker.Open) // 202 of 404

	x = newScript(t, breaker.Config{FailureRate: 0.001, MinCalls: 1000})
	for i := range 999 {
		x.call(0, i >= 4)
	}
	x.state(0, breaker.Closed)
	x.call(0, true)
	x.state(0, breaker.Open)

	for _, c := range []struct {
		rate float64
		runs string
	}{{1.0 / 3, "SSF"}, {2.0 / 3, "SFF"}, {0.1, "SSSSSSSSSF"}, {0.7, "SSSFFFFFFF"}} {
		x := newScript(t, breaker.Config{FailureRate: c.rate, MinCalls: 3})
		x.calls(0, c.runs)
		x.state(0, breaker.Open)
		x = newScript(t, breaker.Config{FailureRate: c.rate, MinCalls: 3})
		x.calls(0, "S"+c.runs)
		x.state(0, breaker.Closed)
	}
}

// The window moves in tenths, placed by the first result: a result counts for more
// than nine tenths of it.
func TestRateWindow(t *testing.T) {
	for _, c := range []struct {
		first, second int64
		want          breaker.State
	}{
		{5 * s, 15*s - 1, breaker.Open},
		{5 * s, 15 * s, breaker.Closed},
		{6*s - 1, 15*s - 1, breaker.Open},
		{6*s - 1, 15 * s, breaker.Closed}, // same tenth as 5 s
		{6 * s, 16*s - 1, breaker.Open},
		{6 * s, 16 * s, breaker.Closed},
		{5 * s, 5000 * s, breaker.Closed},
	} {
		x := newScript(t, breaker.Config{FailureRate: 1, MinCalls: 2, Window: 10 * time.Second})
		x.call(-5*s, true)
		x.call(c.first, false)
		require.Equal(t, breaker.Counts{Consecutive: 1, Calls: 1, Failures: 1}, x.c.Counts(c.first))
		old := 1
		if c.want == breaker.Closed {
			old = 0
		}
		require.Equal(t, breaker.Counts{Consecutive: 1, Calls: old, Failures: old}, x.c.Counts(c.second))
		x.call(c.second, false)
		x.state(c.second, c.want)
	}
}

func TestSlowRate(t *testing.T) {
	cfg := breaker.Config{SlowRate: 0.5, SlowAfter: time.Second, MinCalls: 4, OpenFor: time.Second}
	x := newScript(t, cfg)
	took := func(at, d int64, ok bool) {
		t.Helper()
		require.True(t, x.c.DoneIn(at, x.allow(at), ok, d))
	}
	took(0, s, true)
	took(0, s, false)
	took(0, s+1, true)
	require.Equal(t, breaker.Counts{Calls: 3, Failures: 1, Slow: 1}, x.c.Counts(0))
	x.state(0, breaker.Closed)
	took(0, s+1, false) // slow and failed is still slow
	x.state(0, breaker.Open)
	ch := x.changes()
	require.Equal(t, breaker.RuleSlowRate, ch[0].Rule)
	require.Equal(t, breaker.Counts{Consecutive: 1, Calls: 4, Failures: 2, Slow: 2}, ch[0].Counts)

	took(s, s+1, true) // a slow trial
	x.state(s, breaker.Open)
	took(2*s, s, true)
	x.state(2*s, breaker.Closed)

	x = newScript(t, breaker.Config{ConsecutiveFailures: 1, FailAfter: time.Second, OpenFor: time.Second})
	took(0, s, true)
	x.state(0, breaker.Closed)
	took(0, -1, true)
	took(0, s+1, true)
	x.state(0, breaker.Open)
	took(s, s+1, true)
	x.state(s, breaker.Open)
}

// When one result breaks several rules, the first in the order of the constants
// is named.
func TestRulePrecedence(t *testing.T) {
	cfg := breaker.Config{
		ConsecutiveFailures: 2, WindowFailures: 2, FailureRate: 1, SlowRate: 1, MinCalls: 2,
		SlowAfter: time.Second,
	}
	for _, c := range []struct {
		off  func()
		want breaker.Rule
	}{
		{func() {}, breaker.RuleConsecutive},
		{func() { cfg.ConsecutiveFailures = 0 }, breaker.RuleWindow},
		{func() { cfg.WindowFailures = 0 }, breaker.RuleFailureRate},
		{func() { cfg.FailureRate = 0 }, breaker.RuleSlowRate},
	} {
		c.off()
		x := newScript(t, cfg)
		for range 2 {
			require.True(t, x.c.DoneIn(0, x.allow(0), false, 2*s))
		}
		require.Equal(t, c.want, x.changes()[0].Rule)
		require.Equal(t, c.want, x.c.Rule())
	}
}

// The run of failures does not fade: one failure every three seconds trips
// although no ten-second window ever holds five.
func TestRunOutlivesTheWindow(t *testing.T) {
	x := newScript(t, breaker.Config{ConsecutiveFailures: 5, FailureRate: 1, MinCalls: 5, Window: 10 * time.Second})
	for i := range int64(4) {
		x.call(i*3*s, false)
		x.state(i*3*s, breaker.Closed)
	}
	x.call(12*s, false)
	x.state(12*s, breaker.Open)
	require.Equal(t, breaker.RuleConsecutive, x.c.Rule())
}

func TestOpenTimeGrows(t *testing.T) {
	sec := func(all ...float64) (d []time.Duration) {
		for _, f := range all {
			d = append(d, time.Duration(f*1e9))
		}
		return d
	}
	cfg := breaker.Config{ConsecutiveFailures: 1, OpenFor: time.Second, OpenGrowth: 2, OpenMax: 10 * time.Second, ForgetAfter: time.Minute}
	x := newScript(t, cfg)
	require.Equal(t, sec(1, 2, 4, 8, 10, 10), x.reopen(0, 6))

	cfg.OpenGrowth = 1.5
	x = newScript(t, cfg)
	require.Equal(t, sec(1, 1.5, 2.25, 3.375, 5.0625), x.reopen(0, 5))

	// Closing does not forget; being closed for ForgetAfter does.
	cfg.OpenGrowth = 2
	for _, c := range []struct {
		closed int64
		want   []time.Duration
	}{{60*s - 1, sec(4, 8)}, {60 * s, sec(1, 2)}} {
		x = newScript(t, cfg)
		require.Equal(t, sec(1, 2), x.reopen(0, 2))
		x.call(3*s, true)
		x.state(3*s, breaker.Closed)
		x.changes()
		require.Equal(t, c.closed == 60*s, x.c.Idle(3*s+c.closed))
		require.Equal(t, c.want, x.reopen(3*s+c.closed, 2))
	}
	cfg.ForgetAfter = -1
	x = newScript(t, cfg)
	require.Equal(t, sec(1), x.reopen(0, 1))
	x.call(s, true)
	require.Equal(t, sec(2), x.reopen(1e6*s, 1))

	// Trip names its own time and is not remembered.
	x = newScript(t, cfg)
	x.c.Trip(0, 7*s)
	require.Equal(t, sec(1, 2), func() []time.Duration {
		x.call(7*s, true)
		return x.reopen(8*s, 2)
	}())

	// A cap that the product would overflow.
	x = newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: math.MaxInt64 / 3, OpenGrowth: 1000, OpenMax: math.MaxInt64 - 1})
	require.Equal(t, []time.Duration{math.MaxInt64 / 3, math.MaxInt64 - 1}, x.reopen(math.MinInt64+1, 2))
}

func TestOpenTimeJitter(t *testing.T) {
	cfg := breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, OpenJitter: 0.2}
	seed, fixed := seedOf(t, 3)
	const n = 2000
	var sum, first time.Duration
	proto := breaker.NewCore(cfg, 0)
	for i := range uint64(n) {
		x := &script{t, proto.Fresh(seed + i)}
		all := x.reopen(0, 2)
		for _, d := range all {
			require.Greater(t, d, 8*time.Second)
			require.LessOrEqual(t, d, 10*time.Second)
			sum += d
		}
		require.NotEqual(t, all[0], all[1])
		require.NotEqual(t, first, all[0])
		first = all[0]

		// The draw depends on the seed and the number of the opening only.
		y := newScript(t, cfg)
		y.c = breaker.NewCore(cfg, seed+i)
		y.c.Poll(77 * s)
		require.Equal(t, all, y.reopen(99*s, 2))
	}
	// Uniform in (8 s, 10 s]: the mean of 4000 draws has a deviation of 9.1 ms.
	band := 30.0
	if !fixed {
		band = 55
	}
	require.InDelta(t, 9000, (sum / (2 * n)).Milliseconds(), band)

	// The whole period may go, but never all of it.
	cfg.OpenJitter, cfg.OpenFor = 1, 3
	for i := range uint64(100) {
		x := &script{t, breaker.NewCore(cfg, i)}
		for _, d := range x.reopen(0, 3) {
			require.Positive(t, d)
		}
	}
}

func TestTrip(t *testing.T) {
	x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, LateFailure: breaker.LateRestart})
	late := x.allow(0)
	x.c.Trip(0, 0)
	x.c.Trip(0, -1)
	x.state(0, breaker.Closed)
	x.c.Trip(0, 5*s)
	require.Equal(t, breaker.RuleTrip, x.c.Rule())
	require.False(t, x.c.Done(s, late, false), "the time that was named stands")
	x.c.Trip(s, 2*s) // ends sooner: no change
	require.EqualValues(t, 5*s, x.c.Until())
	x.c.Trip(4*s, 5*s) // ends later
	x.refused(9*s-1, breaker.Opened)
	tr := x.allow(9 * s)
	x.c.Trip(9*s, 1*s) // from half-open; the trial is of another era now
	require.False(t, x.c.Done(9*s, tr, true))
	x.call(10*s, true)
	x.state(10*s, breaker.Closed)
	require.EqualValues(t, 2, x.c.Stats().Opened)
	x.c.Trip(20*s, math.MaxInt64)
	x.refused(math.MaxInt64, breaker.Opened)
}

func TestForce(t *testing.T) {
	cfg := breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}
	x := newScript(t, cfg)
	tk := x.allow(0)
	x.c.Force(0, breaker.Open)
	require.True(t, x.c.Forced())
	require.False(t, x.c.Done(0, tk, true))
	x.refused(1e9*s, breaker.ForcedOpen)
	x.c.Trip(1e9*s, s)
	require.EqualValues(t, int64(math.MaxInt64), x.c.NextChange())
	x.c.Release(1e9 * s)
	require.False(t, x.c.Forced())
	x.state(1e9*s, breaker.HalfOpen)
	x.call(1e9*s, true)
	x.state(1e9*s, breaker.Closed)

	x = newScript(t, cfg)
	tk = x.allow(0)
	x.c.Force(0, breaker.Closed)
	x.c.Force(0, breaker.Closed)
	x.c.Force(0, 9)
	require.Empty(t, x.changes(), "no transition")
	require.False(t, x.c.Done(0, tk, false), "admitted before")
	require.False(t, x.c.Done(0, x.allow(0), false), "not counted")
	x.state(0, breaker.Closed)
	tk = x.allow(0)
	x.c.Release(0)
	require.False(t, x.c.Done(0, tk, false))
	x.call(0, false)
	x.state(0, breaker.Open)
	x.c.Release(0) // not forced
	x.state(0, breaker.Open)

	x.c.Force(1*s, breaker.HalfOpen) // ends the open period early
	require.False(t, x.c.Forced())
	x.state(1*s, breaker.HalfOpen)
	x.c.Force(1*s, breaker.HalfOpen)
	x.call(1*s, true)
	x.c.Force(1*s, breaker.HalfOpen) // closed by its own rules
	x.state(1*s, breaker.Closed)
	x.c.Force(2*s, breaker.Open)
	x.c.Force(2*s, breaker.Closed)
	x.state(2*s, breaker.Closed)
	x.c.Force(2*s, breaker.HalfOpen)
	x.state(2*s, breaker.HalfOpen)
	var rules []breaker.Rule
	for _, ch := range x.changes() {
		rules = append(rules, ch.Rule)
	}
	require.Equal(t, []breaker.Rule{
		breaker.RuleConsecutive, breaker.RuleForced, breaker.RuleTrial,
		breaker.RuleForced, breaker.RuleForced, breaker.RuleForced,
	}, rules)
}

// Force and Release within a state begin no new stay in it: an open period is as
// long as the breaker was open, and closed is closed for ForgetAfter.
func TestForceWithinAState(t *testing.T) {
	x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second})
	x.call(0, false)
	x.c.Force(5*s, breaker.Open)
	x.c.Release(100 * s)
	require.Equal(t, []breaker.Change{
		{At: 0, From: breaker.Closed, To: breaker.Open, Rule: breaker.RuleConsecutive, OpenFor: 10 * time.Second},
		{At: 100 * s, From: breaker.Open, To: breaker.HalfOpen, Rule: breaker.RuleReleased, OpenFor: 100 * time.Second},
	}, brief(x.changes()))

	for _, c := range []struct{ trip, second int64 }{{63*s - 1, 2}, {63 * s, 1}} {
		x = newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: time.Second, OpenGrowth: 2, ForgetAfter: time.Minute})
		x.reopen(0, 1)
		x.call(3*s, true) // closed from here on
		x.c.Force(50*s, breaker.Closed)
		x.c.Release(55 * s)
		x.changes()
		require.Equal(t, c.second == 1, x.c.Idle(c.trip))
		require.Equal(t, []time.Duration{time.Duration(c.second) * time.Second}, x.reopen(c.trip, 1))
	}
}

// A lost trial is reported with the instant at which it was lost, in its place
// among other changes.
func TestTrialIsALease(t *testing.T) {
	x := newScript(t, breaker.Config{
		ConsecutiveFailures: 1, OpenFor: 10 * time.Second, Trials: 2, Passes: 3, TrialTimeout: 5 * time.Second,
	})
	x.call(0, false)
	a := x.allow(12 * s)
	x.allow(14 * s)
	require.EqualValues(t, 17*s, x.c.NextChange())
	require.False(t, x.c.Ready(17*s-1))
	require.True(t, x.c.Ready(17*s))
	require.False(t, x.c.Done(17*s, a, true), "a result at the deadline is too late")
	require.EqualValues(t, 19*s, x.c.NextChange())
	c := x.allow(18 * s)
	require.True(t, x.c.Done(23*s-1, c, true))
	require.False(t, x.c.Done(23*s-1, c, true))
	require.Equal(t, []breaker.Change{
		{At: 0, From: breaker.Closed, To: breaker.Open, Rule: breaker.RuleConsecutive, OpenFor: 10 * time.Second},
		{At: 10 * s, From: breaker.Open, To: breaker.HalfOpen, Rule: breaker.RuleTimer, OpenFor: 10 * time.Second},
		{At: 17 * s, Kind: breaker.TrialLost, From: breaker.HalfOpen, To: breaker.HalfOpen},
		{At: 19 * s, Kind: breaker.TrialLost, From: breaker.HalfOpen, To: breaker.HalfOpen},
	}, brief(x.changes()))
	require.EqualValues(t, 2, x.c.Stats().HalfOpenLost)
	require.Equal(t, breaker.Counts{Passes: 1}, x.c.Counts(23*s))
}

// An owner that never asks for changes does not collect them for ever.
func TestChangesAreBounded(t *testing.T) {
	x := newScript(t, breaker.Config{})
	for i := range int64(1500) {
		x.c.Force(i, breaker.State(1-i%2))
	}
	require.EqualValues(t, 1500-1024, x.c.Stats().Dropped)
	all := x.changes()
	require.Len(t, all, 1024)
	require.EqualValues(t, 1500-1024, all[0].At)
	require.EqualValues(t, 1499, all[1023].At)
}

func TestIdle(t *testing.T) {
	off := newScript(t, breaker.Config{Off: true})
	require.True(t, off.c.Idle(0))
	x := newScript(t, breaker.Config{ConsecutiveFailures: 2, FailureRate: 1, Window: 10 * time.Second, FlapTransitions: 3, FlapWindow: time.Minute})
	require.True(t, x.c.Idle(0))
	x.call(0, true)
	require.False(t, x.c.Idle(0), "a result in the window")
	require.True(t, x.c.Idle(10*s))
	x.call(20*s, false)
	require.False(t, x.c.Idle(1e6*s), "a run of failures has no window")
	x.call(20*s, false)
	require.False(t, x.c.Idle(1e6*s), "open")
	x.call(30*s, true)
	x.changes()
	require.False(t, x.c.Idle(90*s-1), "transitions in the flap window")
	require.False(t, x.c.Idle(90*s), "the end of flapping is not reported yet")
	x.c.Poll(90 * s)
	x.changes()
	require.True(t, x.c.Idle(90*s))
	x.c.Force(200*s, breaker.Closed)
	require.False(t, x.c.Idle(1e6*s), "forced")
}
