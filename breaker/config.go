package breaker

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Defaults of Config.
const (
	defaultConsecutive  = 5
	defaultWindow       = 30 * time.Second
	defaultMinCalls     = 20
	defaultSlowAfter    = time.Second
	defaultOpenFor      = 10 * time.Second
	defaultTrialTimeout = 30 * time.Second
	defaultFlapWindow   = 10 * time.Second
)

// Limits of Config: what is held in memory per breaker must stay small.
const (
	maxCount       = math.MaxInt32
	maxWindowCount = 1 << 16
	maxTrials      = 256
	maxFlap        = 256
	minRate        = 1e-6
	maxGrowth      = 1000
)

// LateFailure says what a failure does that arrives while the breaker is open,
// from a call that was admitted before it opened. The zero LateFailure is
// LateIgnore. A plain value, safe for concurrent use.
type LateFailure uint8

// What a late failure does.
const (
	// LateIgnore: nothing. The end of an open period is fixed when it begins.
	LateIgnore LateFailure = iota
	// LateRestart: the open period starts anew, with the same length. Only calls
	// admitted while closed, just before this opening by a rule, can do that.
	LateRestart
)

// Config describes a breaker. It is plain data: it can be copied, compared and
// written to a recording. The zero Config is valid: five failures in a row open
// the breaker for ten seconds, then one trial decides.
//
// The four trip rules (ConsecutiveFailures, WindowFailures, FailureRate,
// SlowRate) work together: each result is held against all that are set, and
// any one of them opens the breaker. If none is set, ConsecutiveFailures is 5;
// if at least one is set, the others are off.
//
// A Config may be shared; New and NewCore keep a copy of what they need.
type Config struct {
	// ConsecutiveFailures opens the breaker after that many failures in a row,
	// however far apart. A success ends the run, a neutral result does not.
	// If zero, 5 when no trip rule is set, else off. At most 2^31-1.
	ConsecutiveFailures int

	// WindowFailures opens the breaker when that many failures are younger than
	// Window; a failure exactly Window old no longer counts. Successes make no
	// difference. Exact: the times of the last WindowFailures failures are kept.
	// If zero, off. At most 65536.
	WindowFailures int

	// FailureRate opens the breaker when at least this share of the results in
	// the window failed, and the window holds at least MinCalls results. The
	// share is exact: the float64 is read as the fraction that was meant, by its
	// continued fraction, so that 0.1 is one in ten and 2.0/3 two in three.
	// If zero, off. Otherwise from 0.000001 to 1.
	FailureRate float64

	// SlowRate is the same for calls that took longer than SlowAfter, whether
	// they succeeded or failed. While it is set, a slow trial counts as failed.
	// If zero, off. Otherwise from 0.000001 to 1.
	SlowRate float64

	// SlowAfter is the duration above which a call is slow for SlowRate; one
	// that took exactly this long is not.
	// If zero, 1s.
	SlowAfter time.Duration

	// FailAfter turns a success that took longer than this into a failure, for
	// every rule and for trials; one that took exactly this long stays a success.
	// If zero, off.
	FailAfter time.Duration

	// MinCalls is the number of results that the window must hold before the
	// rates are looked at. It has no say in half-open.
	// If zero, 20. At most 2^31-1.
	MinCalls int

	// Window is how far WindowFailures, FailureRate and SlowRate look back. For
	// the two rates it is kept in ten slices, so that a result counts for more
	// than nine tenths of it and no more than the whole.
	// If zero, 30s.
	Window time.Duration

	// OpenFor is the length of the first open period.
	// If zero, 10s. The largest Duration means for ever.
	OpenFor time.Duration

	// OpenGrowth multiplies the open period with each opening that is
	// remembered, rounding down to the nanosecond: a failed trial, or a trip
	// less than ForgetAfter after the breaker closed. It is read as a fraction
	// in the same way as FailureRate.
	// If zero, 1: the period does not grow. Otherwise from 1 to 1000.
	OpenGrowth float64

	// OpenMax caps the grown period; OpenJitter is taken off after that.
	// If zero, ten times OpenFor. Otherwise at least OpenFor.
	OpenMax time.Duration

	// OpenJitter shortens each open period by a random share between nothing and
	// this much, so that a fleet does not come back in step. The draw is keyed by
	// the seed and the number of the opening.
	// If zero, none: periods are exact. Otherwise from 0.000001 to 1.
	OpenJitter float64

	// ForgetAfter is how long the breaker must have been closed for a trip to
	// start again at OpenFor.
	// If zero, OpenMax. If negative, never.
	ForgetAfter time.Duration

	// LateFailure says what failures do that arrive while the breaker is open.
	// If zero, LateIgnore.
	LateFailure LateFailure

	// Trials is how many trials may be out at once in half-open.
	// If zero, 1. At most 256.
	Trials int

	// Passes is how many trials must succeed to close; a failed one opens again
	// and the count restarts.
	// If zero, 1. At most 2^31-1.
	Passes int

	// TrialTimeout is how long a trial may stay out. One that is not settled
	// before has lost its slot to the next call, and its result no longer counts.
	// If zero, 30s. If negative, never.
	TrialTimeout time.Duration

	// FlapTransitions is the number of transitions younger than FlapWindow from
	// which the breaker counts as flapping: its transitions are still reported
	// but marked Suppressed, until fewer are left.
	// If zero, off. At most 256.
	FlapTransitions int

	// FlapWindow is how far FlapTransitions looks back.
	// If zero, 10s.
	FlapWindow time.Duration

	// Seed keys the jitter draws of a [Breaker]. 0 is a seed like any other: give
	// instances that should not move in step seeds of their own. [NewCore] and
	// [Core.Fresh] take theirs as an argument and ignore this field.
	Seed uint64

	// Off makes a breaker that admits everything, counts nothing, never changes,
	// and ignores Trip and Force. The other fields must still be valid.
	Off bool
}

// ErrConfig is what errors.Is finds in every error of [Config.Validate].
var ErrConfig = errors.New("breaker: invalid config")

// ConfigError says which field of a [Config] is out of range. It matches
// [ErrConfig]. Safe for concurrent use.
type ConfigError struct {
	// Field is the name of the field, without the "Config." in front.
	Field string
	// Value is the value it has, formatted.
	Value string
	// Want is the range it should be in, such as ">= 0".
	Want string
}

// Error returns for example "breaker: Config.OpenFor is -1s, want >= 0". Safe
// for concurrent use.
func (e *ConfigError) Error() string {
	return "breaker: Config." + e.Field + " is " + e.Value + ", want " + e.Want
}

// Unwrap returns [ErrConfig]. Safe for concurrent use.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// Validate returns nil, or a [*ConfigError] for one field that is out of range;
// which one, where there are several, is unspecified. Safe for concurrent use.
func (c Config) Validate() error {
	for _, f := range [...]struct {
		name     string
		val, max int
	}{
		{"ConsecutiveFailures", c.ConsecutiveFailures, maxCount},
		{"WindowFailures", c.WindowFailures, maxWindowCount},
		{"MinCalls", c.MinCalls, maxCount},
		{"Trials", c.Trials, maxTrials},
		{"Passes", c.Passes, maxCount},
		{"FlapTransitions", c.FlapTransitions, maxFlap},
	} {
		if f.val < 0 || f.val > f.max {
			return &ConfigError{f.name, fmt.Sprint(f.val), fmt.Sprintf("0 to %d", f.max)}
		}
	}
	for _, f := range [...]struct {
		name     string
		val      float64
		min, max float64
	}{
		{"FailureRate", c.FailureRate, minRate, 1},
		{"SlowRate", c.SlowRate, minRate, 1},
		{"OpenGrowth", c.OpenGrowth, 1, maxGrowth},
		{"OpenJitter", c.OpenJitter, minRate, 1},
	} {
		// Written so that NaN, for which every comparison is false, is refused.
		if f.val != 0 && !(f.val >= f.min && f.val <= f.max) {
			return &ConfigError{f.name, fmt.Sprint(f.val), fmt.Sprintf("0 or %v to %v", f.min, f.max)}
		}
	}
	for _, f := range [...]struct {
		name string
		val  time.Duration
	}{
		{"SlowAfter", c.SlowAfter},
		{"FailAfter", c.FailAfter},
		{"Window", c.Window},
		{"OpenFor", c.OpenFor},
		{"OpenMax", c.OpenMax},
		{"FlapWindow", c.FlapWindow},
	} {
		if f.val < 0 {
			return &ConfigError{f.name, f.val.String(), ">= 0"}
		}
	}
	if base := or(c.OpenFor, defaultOpenFor); c.OpenMax != 0 && c.OpenMax < base {
		return &ConfigError{"OpenMax", c.OpenMax.String(), ">= OpenFor (" + base.String() + ")"}
	}
	if c.LateFailure > LateRestart {
		return &ConfigError{"LateFailure", fmt.Sprint(c.LateFailure), "LateIgnore or LateRestart"}
	}
	return nil
}

// settings is a Config with every default filled in, in the form in which the
// core uses it. It never changes after compile and is shared by all cores that
// Fresh makes.
type settings struct {
	failAfter    int64 // MaxInt64 where off
	slowAfter    int64 // MaxInt64 where off
	consecutive  uint32
	rates        bool // FailureRate or SlowRate is on
	simple       bool // a success can do nothing but end the run of failures
	lateRestart  bool
	off          bool
	windowN      int
	window       int64
	slice        int64 // length of one slice of the rate window
	minCalls     uint64
	failureRate  ratio
	slowRate     ratio
	openFor      int64
	growth       ratio
	openMax      int64
	jitter       ratio
	forgetAfter  int64
	trials       int
	passes       int
	trialTimeout int64
	flapN        int
	flapWindow   int64
}

// or returns v, or def where v is zero.
func or[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// forever returns d in nanoseconds, and the largest where it is negative.
func forever(d time.Duration) int64 {
	if d < 0 {
		return math.MaxInt64
	}
	return int64(d)
}

// compile fills in the defaults of a valid Config.
func (c Config) compile() *settings {
	n := c.ConsecutiveFailures
	if n == 0 && c.WindowFailures == 0 && c.FailureRate == 0 && c.SlowRate == 0 {
		n = defaultConsecutive
	}
	s := &settings{
		failAfter:    math.MaxInt64,
		slowAfter:    math.MaxInt64,
		consecutive:  uint32(n),
		rates:        c.FailureRate != 0 || c.SlowRate != 0,
		lateRestart:  c.LateFailure == LateRestart,
		off:          c.Off,
		windowN:      c.WindowFailures,
		window:       int64(or(c.Window, defaultWindow)),
		minCalls:     uint64(or(c.MinCalls, defaultMinCalls)),
		failureRate:  ratioOf(c.FailureRate),
		slowRate:     ratioOf(c.SlowRate),
		openFor:      int64(or(c.OpenFor, defaultOpenFor)),
		growth:       ratioOf(c.OpenGrowth),
		jitter:       ratioOf(c.OpenJitter),
		trials:       or(c.Trials, 1),
		passes:       or(c.Passes, 1),
		trialTimeout: forever(or(c.TrialTimeout, defaultTrialTimeout)),
		flapN:        c.FlapTransitions,
		flapWindow:   int64(or(c.FlapWindow, defaultFlapWindow)),
	}
	if c.SlowRate != 0 {
		s.slowAfter = int64(or(c.SlowAfter, defaultSlowAfter))
	}
	if c.FailAfter != 0 {
		s.failAfter = int64(c.FailAfter)
	}
	if c.OpenGrowth == 0 {
		s.growth = ratio{1, 1}
	}
	// Rounding up makes ten slices cover the whole window.
	s.slice = s.window/slices + (s.window%slices+slices-1)/slices
	if s.openMax = int64(c.OpenMax); s.openMax == 0 {
		s.openMax = math.MaxInt64
		if s.openFor <= math.MaxInt64/10 {
			s.openMax = 10 * s.openFor
		}
	}
	if s.forgetAfter = forever(c.ForgetAfter); s.forgetAfter == 0 {
		s.forgetAfter = s.openMax
	}
	s.simple = !s.rates && s.failAfter == math.MaxInt64
	return s
}
