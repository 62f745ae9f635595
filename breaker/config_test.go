package breaker_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	require.NoError(t, breaker.Config{}.Validate())
	require.NoError(t, breaker.Config{
		ConsecutiveFailures: math.MaxInt32, WindowFailures: 65536, FailureRate: 1, SlowRate: 0.000001,
		SlowAfter: math.MaxInt64, FailAfter: math.MaxInt64, MinCalls: math.MaxInt32, Window: math.MaxInt64,
		OpenFor: math.MaxInt64, OpenGrowth: 1000, OpenMax: math.MaxInt64, OpenJitter: 1, ForgetAfter: -1,
		LateFailure: breaker.LateRestart, Trials: 256, Passes: math.MaxInt32, TrialTimeout: -1,
		FlapTransitions: 256, FlapWindow: math.MaxInt64, Seed: math.MaxUint64,
	}.Validate())

	for want, cfg := range map[string]breaker.Config{
		"breaker: Config.ConsecutiveFailures is -1, want 0 to 2147483647":  {ConsecutiveFailures: -1},
		"breaker: Config.WindowFailures is -1, want 0 to 65536":            {WindowFailures: -1},
		"breaker: Config.WindowFailures is 65537, want 0 to 65536":         {WindowFailures: 65537},
		"breaker: Config.MinCalls is -1, want 0 to 2147483647":             {MinCalls: -1},
		"breaker: Config.Trials is -1, want 0 to 256":                      {Trials: -1},
		"breaker: Config.Trials is 257, want 0 to 256":                     {Trials: 257},
		"breaker: Config.Passes is -1, want 0 to 2147483647":               {Passes: -1},
		"breaker: Config.FlapTransitions is -3, want 0 to 256":             {FlapTransitions: -3},
		"breaker: Config.FailureRate is -0.5, want 0 or 1e-06 to 1":        {FailureRate: -0.5},
		"breaker: Config.FailureRate is 1.5, want 0 or 1e-06 to 1":         {FailureRate: 1.5},
		"breaker: Config.FailureRate is 1e-07, want 0 or 1e-06 to 1":       {FailureRate: 1e-7},
		"breaker: Config.FailureRate is NaN, want 0 or 1e-06 to 1":         {FailureRate: math.NaN()},
		"breaker: Config.SlowRate is +Inf, want 0 or 1e-06 to 1":           {SlowRate: math.Inf(1)},
		"breaker: Config.OpenGrowth is 0.5, want 0 or 1 to 1000":           {OpenGrowth: 0.5},
		"breaker: Config.OpenJitter is 2, want 0 or 1e-06 to 1":            {OpenJitter: 2},
		"breaker: Config.SlowAfter is -1ns, want >= 0":                     {SlowAfter: -1},
		"breaker: Config.FailAfter is -1ns, want >= 0":                     {FailAfter: -1},
		"breaker: Config.Window is -1ns, want >= 0":                        {Window: -1},
		"breaker: Config.OpenFor is -1s, want >= 0":                        {OpenFor: -time.Second},
		"breaker: Config.OpenMax is -1ns, want >= 0":                       {OpenMax: -1},
		"breaker: Config.OpenMax is 5s, want >= OpenFor (10s)":             {OpenMax: 5 * time.Second},
		"breaker: Config.OpenMax is 5s, want >= OpenFor (6s)":              {OpenFor: 6 * time.Second, OpenMax: 5 * time.Second},
		"breaker: Config.FlapWindow is -1ns, want >= 0":                    {FlapWindow: -1},
		"breaker: Config.LateFailure is 2, want LateIgnore or LateRestart": {LateFailure: 2},
	} {
		err := cfg.Validate()
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, breaker.ErrConfig)
		var ce *breaker.ConfigError
		require.True(t, errors.As(err, &ce))
		require.PanicsWithError(t, want, func() { breaker.NewCore(cfg, 0) })
	}
}

// Every default that Config documents, by what it does.
func TestDefaults(t *testing.T) {
	x := newScript(t, breaker.Config{})
	x.calls(0, "FFFF")
	x.state(0, breaker.Closed)
	x.call(1000*s, false) // a run has no window
	x.state(1000*s, breaker.Open)
	x.refused(1010*s-1, breaker.Opened)
	x.allow(1010 * s)
	x.refused(1010*s, breaker.TrialsFull)
	x.refused(1040*s-1, breaker.TrialsFull) // 30 s for the trial
	x.call(1040*s, false)
	x.refused(1050*s-1, breaker.Opened) // no growth, no jitter
	x.call(1050*s, true)
	x.state(1050*s, breaker.Closed)

	// One rule set: the run of failures is off.
	x = newScript(t, breaker.Config{WindowFailures: 7})
	x.calls(0, "FFFFF")
	x.call(30*s-1, false)
	x.call(30*s-1, false)
	x.state(30*s-1, breaker.Open) // 30 s of window
	x = newScript(t, breaker.Config{WindowFailures: 7})
	x.calls(0, "FFFFF")
	x.call(30*s, false)
	x.call(30*s, false)
	x.state(30*s, breaker.Closed)

	// 20 calls make a rate.
	x = newScript(t, breaker.Config{FailureRate: 0.5})
	x.calls(0, "FFFFFFFFFFFFFFFFFFF")
	x.state(0, breaker.Closed)
	x.call(0, true)
	x.state(0, breaker.Open)

	// 1 s is not slow yet.
	x = newScript(t, breaker.Config{SlowRate: 1, MinCalls: 1})
	require.True(t, x.c.DoneIn(0, x.allow(0), true, s))
	x.call(100*s, true) // lets the first one leave the window
	x.call(200*s, true)
	x.state(200*s, breaker.Closed)
	require.True(t, x.c.DoneIn(300*s, x.allow(300*s), true, s+1))
	x.state(300*s, breaker.Open)

	// OpenMax is ten times OpenFor, and so is ForgetAfter.
	cfg := breaker.Config{ConsecutiveFailures: 1, OpenFor: time.Second, OpenGrowth: 4}
	x = newScript(t, cfg)
	require.Equal(t, []time.Duration{1e9, 4e9, 10e9, 10e9}, x.reopen(0, 4))
	for _, wait := range []int64{10*s - 1, 10 * s} {
		x = newScript(t, cfg)
		x.reopen(0, 4)
		x.c.Poll(100 * s)
		x.call(100*s, true)
		x.state(100*s, breaker.Closed)
		want := 10 * time.Second
		if wait == 10*s {
			want = time.Second
		}
		require.Equal(t, []time.Duration{want}, x.reopen(100*s+wait, 1))
	}

	// The flap window is 10 s.
	for _, at := range []int64{10*s - 1, 10 * s} {
		x = newScript(t, breaker.Config{FlapTransitions: 2})
		x.c.Force(0, breaker.Open)
		x.c.Force(at, breaker.Closed)
		require.Equal(t, at < 10*s, x.c.Flapping(at))
	}
}

// reopen trips the breaker at `at` and fails the trial of each open period but
// the last; it returns the lengths of the n periods. It needs ConsecutiveFailures
// to be 1.
func (x *script) reopen(at int64, n int) (lengths []time.Duration) {
	x.t.Helper()
	x.changes()
	for range n {
		x.call(at, false)
		for _, ch := range x.changes() {
			if ch.To == breaker.Open && ch.Kind == breaker.Transition {
				lengths = append(lengths, ch.OpenFor)
			}
		}
		at = x.c.Until()
	}
	return lengths
}
