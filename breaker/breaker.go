// Package breaker is a circuit breaker: it watches the results of calls to one
// server, stops calling when they go wrong, and finds out with a few trial calls
// when to start again.
//
// The pattern is Michael Nygard's (Release It!, 2007): Closed passes calls and
// counts results; a trip rule opens the breaker, and calls are refused at once;
// after the open period it is half-open and admits trials, one at a time by
// default; enough successes close it, one failure opens it again. What this
// package makes of it:
//
//   - Four trip rules at once: failures in a row, failures in a rolling window,
//     failure rate and slow-call rate with a minimum volume. All exact, in
//     integers. The run of failures does not fade with the window, so a server
//     that gets one call an hour still trips.
//   - A result belongs to the period in which its call was admitted. One that
//     arrives after the breaker has moved on changes nothing, and Done says so.
//   - A trial is a lease. If its caller hangs, panics or forgets it, it is lost
//     after TrialTimeout and the next call is the trial: no breaker is stuck.
//   - A third outcome, Cancel, moves no counter and gives the slot back.
//   - Ready asks without taking a slot.
//   - Time is an argument of every method. There is no timer, no goroutine and
//     no clock inside; every decision is a function of the configuration, the
//     seed and the inputs in their order.
//
// [Breaker] is for concurrent use and takes time.Time. [Core] is the bare state
// machine on int64 nanoseconds, for owners with a lock of their own.
package breaker

import (
	"errors"
	"math"
	"sync"
	"time"
)

// Sentinels for errors.Is on the error of [Breaker.Allow] and [Breaker.Do].
var (
	// ErrRejected matches every rejection.
	ErrRejected = errors.New("breaker: rejected")
	// ErrOpen matches a rejection by an open breaker, forced or not.
	ErrOpen = errors.New("breaker: open")
	// ErrTrialsFull matches a rejection by a half-open breaker whose trial slots
	// are taken.
	ErrTrialsFull = errors.New("breaker: all trials out")
)

// RejectedError is the error of a call that was not admitted. Rejections that say
// the same share one, so that a rejection allocates nothing: it must not be
// modified. It matches [ErrRejected], and [ErrOpen] or [ErrTrialsFull]. The zero
// RejectedError is not a valid one. Safe for concurrent use.
type RejectedError struct {
	// State is Open or HalfOpen.
	State State
	// Reason is why the call was refused.
	Reason Reason
	// Rule is what brought the breaker into this state.
	Rule Rule
	// Since is when the breaker entered this state.
	Since time.Time
	// Until is from when on a call can be admitted: the end of the open period,
	// or with all trial slots taken the end of the oldest lease. It is the zero
	// Time if there is no such time.
	Until time.Time
}

// Error returns for example "breaker: open". The time is left out so that equal
// rejections read the same. Safe for concurrent use.
func (e *RejectedError) Error() string {
	switch e.Reason {
	case TrialsFull:
		return ErrTrialsFull.Error()
	case ForcedOpen:
		return "breaker: forced open"
	}
	return ErrOpen.Error()
}

// Is makes errors.Is match the sentinels. Safe for concurrent use.
func (e *RejectedError) Is(target error) bool {
	switch target {
	case ErrRejected:
		return true
	case ErrOpen:
		return e.State == Open
	case ErrTrialsFull:
		return e.Reason == TrialsFull
	}
	return false
}

// TimeLeft returns the time from now to Until, such as for a Retry-After header;
// 0 if Until has passed, and the largest Duration if it is the zero Time. A clock
// that has stepped back makes it no longer: a now before Since counts as Since.
// Safe for concurrent use.
func (e *RejectedError) TimeLeft(now time.Time) time.Duration {
	if e.Until.IsZero() {
		return math.MaxInt64
	}
	if now.Before(e.Since) {
		now = e.Since
	}
	return max(0, e.Until.Sub(now))
}

// Breaker is a circuit breaker for concurrent use: a [Core] under a lock, with
// times as time.Time. See there for what inputs, reads and changes by time are.
//
// The time line of a Breaker begins at the now of its first input; readings with
// a monotonic clock are compared by it, so a step of the wall clock does no harm.
//
// The zero Breaker is not usable; make one with [New]. It must not be copied.
// Safe for concurrent use.
type Breaker struct {
	mu sync.Mutex // guards all below

	core     Core
	base     time.Time // instant 0 of the core
	started  bool      // base is set
	rejected *RejectedError
	until    int64 // Core.Until when rejected was made
	era      uint32

	observers  []func(time.Time, Change)
	delivering bool
	panics     uint64
}

// New returns a closed breaker. It panics if cfg does not pass [Config.Validate].
// Safe for concurrent use.
func New(cfg Config) *Breaker {
	return &Breaker{core: NewCore(cfg, cfg.Seed)}
}

// Allow asks to make a call at now. Either the call may go ahead, and the Permit
// must be settled with [Permit.Done] or [Permit.Cancel]; or the error is a
// [*RejectedError], and the Permit is the zero Permit. Allocates nothing, but for
// one error per open period, and in half-open one per trial that is the oldest out
// while all slots are taken. Safe for concurrent use.
func (b *Breaker) Allow(now time.Time) (Permit, error) {
	b.mu.Lock()
	t, why := b.core.Allow(b.input(now))
	if why != Admitted {
		err := b.reject(why)
		b.release()
		return Permit{}, err
	}
	b.release()
	return Permit{b: b, t: t}, nil
}

// reject returns the error for a refused call, the last one if it says the same.
// b.mu held.
func (b *Breaker) reject(why Reason) *RejectedError {
	until := b.core.Until()
	// State, reason and rule cannot change within an era while the end stays.
	if e := b.rejected; e != nil && b.until == until && b.era == b.core.era {
		return e
	}
	e := &RejectedError{State: b.core.state, Reason: why, Rule: b.core.why, Since: b.base.Add(time.Duration(b.core.x.since))}
	if until != math.MaxInt64 {
		e.Until = b.base.Add(time.Duration(until))
	}
	b.rejected, b.until, b.era = e, until, b.core.era
	return e
}

// input returns now on the time line of the core, which the first input starts.
// b.mu held.
func (b *Breaker) input(now time.Time) int64 {
	if !b.started {
		b.base, b.started = now, true
	}
	return int64(now.Sub(b.base))
}

// read is input for a read, which must not start the time line.
func (b *Breaker) read(now time.Time) int64 {
	if !b.started {
		return 0
	}
	return int64(now.Sub(b.base))
}

// release unlocks after an input and delivers what it changed. b.mu held.
func (b *Breaker) release() {
	if b.core.Changed() {
		b.mu.Unlock()
		b.deliver()
		return
	}
	b.mu.Unlock()
}

// Poll applies and reports what time alone has changed by now. Safe for
// concurrent use.
func (b *Breaker) Poll(now time.Time) {
	b.mu.Lock()
	b.core.Poll(b.input(now))
	b.release()
}

// Trip opens the breaker for the given time at least, see [Core.Trip]. Safe for
// concurrent use.
func (b *Breaker) Trip(now time.Time, d time.Duration) {
	b.mu.Lock()
	b.core.Trip(b.input(now), int64(d))
	b.release()
}

// Force holds the breaker in Open or Closed until Release, or ends an open period
// with HalfOpen, see [Core.Force]. Safe for concurrent use.
func (b *Breaker) Force(now time.Time, s State) {
	b.mu.Lock()
	b.core.Force(b.input(now), s)
	b.release()
}

// Release ends Force, see [Core.Release]. Safe for concurrent use.
func (b *Breaker) Release(now time.Time) {
	b.mu.Lock()
	b.core.Release(b.input(now))
	b.release()
}

// State returns the state at now. Safe for concurrent use.
func (b *Breaker) State(now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.State(b.read(now))
}

// Ready reports whether Allow would admit a call at now, without taking a slot.
// Safe for concurrent use.
func (b *Breaker) Ready(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Ready(b.read(now))
}

// Flapping reports whether the breaker is flapping at now, see [Core.Flapping].
// Safe for concurrent use.
func (b *Breaker) Flapping(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Flapping(b.read(now))
}

// Forced reports whether Force holds the state. Safe for concurrent use.
func (b *Breaker) Forced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Forced()
}

// Counts returns the numbers that the rules would compare at now. Safe for
// concurrent use.
func (b *Breaker) Counts(now time.Time) Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Counts(b.read(now))
}

// Stats returns the totals so far. Safe for concurrent use.
func (b *Breaker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Stats()
}

// Idle reports whether the breaker may be dropped and made anew later without a
// difference, see [Core.Idle]. Safe for concurrent use.
func (b *Breaker) Idle(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Idle(b.read(now))
}

// NextChange returns when time alone next changes something, for callers that
// want to Poll just then; false if nothing is due. Safe for concurrent use.
func (b *Breaker) NextChange() (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.core.NextChange()
	if n == math.MaxInt64 {
		return time.Time{}, false
	}
	return b.base.Add(time.Duration(n)), true
}

// AppendState appends the state to buf, see [Core.AppendState]. Safe for
// concurrent use.
func (b *Breaker) AppendState(buf []byte, now time.Time) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.AppendState(buf, b.read(now))
}

// RestoreState replaces the state by one that AppendState wrote, see
// [Core.RestoreState]. Permits that this breaker gave out before must be settled
// first, or they may be taken for calls of the restored state. Safe for
// concurrent use.
func (b *Breaker) RestoreState(buf []byte, now time.Time) (rest []byte, err error) {
	b.mu.Lock()
	defer b.release()
	if rest, err = b.core.RestoreState(buf, b.read(now)); err == nil {
		b.input(now)
		b.rejected = nil
	}
	return rest, err
}
