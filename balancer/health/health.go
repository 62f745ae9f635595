// Package health turns the answers of active probes into a verdict: in or out.
//
// It is the state between a prober, which does the talking, and a pool, which
// wants to know where to send traffic. It decides three things and opens no
// connection: when the next probe is due, whether a probe was answered in time,
// and whether enough answers in a row now say the opposite of the verdict.
//
// The rule is the rise and fall of HAProxy and the healthy and unhealthy
// thresholds of Envoy: a healthy host goes out after Fall failed probes in a
// row, an unhealthy one comes back after Rise passed ones in a row, and one
// answer of the other kind starts the count again. A host that was never probed
// is out, and its first answer decides alone, as in Envoy; [Config.StartHealthy]
// lets it in at once.
//
// Probes start on a grid of whole intervals. There is at most one at a time, it
// fails at its deadline whatever comes later, and a grid point that passes
// while it is out, or while nobody looks, is skipped and not made up for.
//
// [Core] is the plain state machine on nanoseconds, for an owner with a lock
// and a timeline of its own. [Checker] is the same with a lock and time.Time.
// [StatusSet] says which HTTP answers pass.
package health

import (
	"errors"
	"fmt"
	"time"
)

// ErrConfig is wrapped by every error of [Config.Validate].
var ErrConfig = errors.New("health: invalid configuration")

// ErrState is wrapped by every error of RestoreState.
var ErrState = errors.New("health: invalid saved state")

// ErrStatusSet is wrapped by every error of [ParseStatusSet].
var ErrStatusSet = errors.New("health: invalid status set")

// ConfigError names the field that is out of range. It wraps [ErrConfig].
type ConfigError struct {
	Field string // Field is the name in Config.
	Value any    // Value is what it holds.
	Want  string // Want is the allowed range.
}

// Error returns one line with the field, its value and the allowed range.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("health: Config.%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap returns [ErrConfig].
func (e *ConfigError) Unwrap() error { return ErrConfig }

// FirstProbe says when the first probe of a host is due.
type FirstProbe uint8

const (
	// Immediate makes the first probe due at construction.
	Immediate FirstProbe = iota
	// AfterInterval makes the first probe due one interval after construction.
	AfterInterval
)

// String returns immediate or after_interval.
func (f FirstProbe) String() string {
	switch f {
	case Immediate:
		return "immediate"
	case AfterInterval:
		return "after_interval"
	}
	return fmt.Sprintf("FirstProbe(%d)", uint8(f))
}

// Config is how one host is probed and judged. The zero Config is ready to use:
// a probe every 10 s, at once for the first time, that has 3 s to answer; out
// until the first pass, then out after 3 failures and in after 2 passes. It is
// plain data and is not changed by anything in this package.
type Config struct {
	// Interval is the time from one grid point to the next. If zero, 10 s.
	Interval time.Duration
	// Timeout is how long a probe may take. An answer at the deadline itself is
	// too late. It may exceed Interval: grid points that pass meanwhile are
	// skipped. If zero, 3 s, or Interval where that is shorter.
	Timeout time.Duration
	// SlowAfter is the longest time a passing answer may take; an answer that
	// takes longer fails, one that takes exactly this long passes. If zero, only
	// Timeout limits it.
	SlowAfter time.Duration
	// Fall is how many probes in a row must fail before a healthy host is
	// unhealthy. If zero, 3.
	Fall int
	// Rise is how many probes in a row must pass before an unhealthy host is
	// healthy. If zero, 2. It does not apply to the very first answer.
	Rise int
	// StartHealthy makes a host healthy before its first answer, so that it
	// takes Fall failures to put it out. If false, the state is Unknown, which
	// is out, and the first answer decides.
	StartHealthy bool
	// First says when the first probe is due. If zero, [Immediate].
	First FirstProbe
}

// Validate returns nil, or a [*ConfigError] for the first field out of range.
// Negative values are never in range.
func (c Config) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Interval", c.Interval}, {"Timeout", c.Timeout}, {"SlowAfter", c.SlowAfter}} {
		if d.value < 0 {
			return &ConfigError{d.name, d.value, ">= 0"}
		}
	}
	if c.Fall < 0 {
		return &ConfigError{"Fall", c.Fall, ">= 0"}
	}
	if c.Rise < 0 {
		return &ConfigError{"Rise", c.Rise, ">= 0"}
	}
	if c.First > AfterInterval {
		return &ConfigError{"First", uint8(c.First), "Immediate or AfterInterval"}
	}
	return nil
}

func (c Config) interval() time.Duration {
	if c.Interval == 0 {
		return 10 * time.Second
	}
	return c.Interval
}

func (c Config) timeout() time.Duration {
	if c.Timeout == 0 {
		return min(3*time.Second, c.interval())
	}
	return c.Timeout
}

func (c Config) fall() int {
	if c.Fall == 0 {
		return 3
	}
	return c.Fall
}

func (c Config) rise() int {
	if c.Rise == 0 {
		return 2
	}
	return c.Rise
}

// State is the verdict on a host.
type State uint8

const (
	// Unknown is the state before the first answer. The host is out.
	Unknown State = iota
	// Healthy is in.
	Healthy
	// Unhealthy is out.
	Unhealthy
)

// String returns unknown, healthy or unhealthy.
func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Healthy:
		return "healthy"
	case Unhealthy:
		return "unhealthy"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Result is how one probe ended.
type Result uint8

const (
	// Passed is a good answer in time.
	Passed Result = iota
	// Failed is a bad answer, an error, or a panic of the prober.
	Failed
	// Slow is a good answer that took longer than Config.SlowAfter.
	Slow
	// TimedOut is no answer before the deadline.
	TimedOut
)

// String returns passed, failed, slow or timed_out.
func (r Result) String() string {
	switch r {
	case Passed:
		return "passed"
	case Failed:
		return "failed"
	case Slow:
		return "slow"
	case TimedOut:
		return "timed_out"
	}
	return fmt.Sprintf("Result(%d)", uint8(r))
}

// Change is one change of the verdict. A first failure, from Unknown to
// Unhealthy, is a change although the host was out before: who reports losses
// looks for From equal to Healthy.
type Change struct {
	// From is the verdict until At.
	From State
	// To is the verdict from At on.
	To State
	// At is when the deciding probe ended, in nanoseconds on the owner's
	// timeline; for one that timed out, its deadline.
	At int64
	// Last is how the deciding probe ended.
	Last Result
	// Run is how many probes in a row said so, the deciding one included.
	Run int
}
