package breaker

import (
	"strconv"
	"time"
)

// State is what a breaker does with calls. The numbers are stable and may be
// exported as a gauge. The zero State is Closed. A State is a plain value, safe
// for concurrent use.
type State uint8

// The three states, in the order of the usual gauge.
const (
	Closed   State = iota // calls pass and their results are counted
	Open                  // no call passes
	HalfOpen              // a few trial calls pass; their results decide
)

// String returns "closed", "open" or "half_open". Safe for concurrent use.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Reason says why a call was refused. The zero Reason is Admitted: it was not.
// A Reason is a plain value, safe for concurrent use.
type Reason uint8

// The reasons that Allow gives.
const (
	Admitted   Reason = iota // the call may go ahead
	Opened                   // the breaker is open and its time has not ended
	TrialsFull               // half-open, and all trial slots are taken
	ForcedOpen               // held open by Force until Release
)

// String returns "admitted", "open", "trials_full" or "forced_open". Safe for
// concurrent use.
func (r Reason) String() string {
	switch r {
	case Admitted:
		return "admitted"
	case Opened:
		return "open"
	case TrialsFull:
		return "trials_full"
	case ForcedOpen:
		return "forced_open"
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// Rule names what decided a change of state. The zero Rule is RuleNone: nothing
// has changed yet. A Rule is a plain value, safe for concurrent use.
type Rule uint8

// The rules. When one result satisfies several trip rules, the first in this
// order is named.
const (
	RuleNone        Rule = iota // no change yet
	RuleConsecutive             // Config.ConsecutiveFailures was reached
	RuleWindow                  // Config.WindowFailures was reached inside Config.Window
	RuleFailureRate             // Config.FailureRate was reached
	RuleSlowRate                // Config.SlowRate was reached
	RuleTrial                   // the trials decided: one failed, or enough passed
	RuleTimer                   // the open time ended
	RuleTrip                    // Trip was called
	RuleForced                  // Force was called
	RuleReleased                // Release was called
)

// String returns the rule in snake case, such as "failure_rate". Safe for
// concurrent use.
func (r Rule) String() string {
	switch r {
	case RuleNone:
		return "none"
	case RuleConsecutive:
		return "consecutive"
	case RuleWindow:
		return "window"
	case RuleFailureRate:
		return "failure_rate"
	case RuleSlowRate:
		return "slow_rate"
	case RuleTrial:
		return "trial"
	case RuleTimer:
		return "timer"
	case RuleTrip:
		return "trip"
	case RuleForced:
		return "forced"
	case RuleReleased:
		return "released"
	}
	return "Rule(" + strconv.Itoa(int(r)) + ")"
}

// Kind says what a [Change] reports. The zero Kind is Transition. A Kind is a
// plain value, safe for concurrent use.
type Kind uint8

// The kinds of change. Only a Transition has From != To.
const (
	Transition     Kind = iota // the state changed
	TrialLost                  // a trial was not settled within Config.TrialTimeout; its slot is free again
	TrialAbandoned             // a trial was cancelled: its slot is free again, nothing is learned
	FlapStarted                // Config.FlapTransitions was reached: transitions are Suppressed from the one just reported
	FlapEnded                  // fewer transitions than that are left in Config.FlapWindow
)

// String returns the kind in snake case, such as "trial_lost". Safe for
// concurrent use.
func (k Kind) String() string {
	switch k {
	case Transition:
		return "transition"
	case TrialLost:
		return "trial_lost"
	case TrialAbandoned:
		return "trial_abandoned"
	case FlapStarted:
		return "flap_started"
	case FlapEnded:
		return "flap_ended"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Counts are the numbers that the rules compare. Only what a configured rule
// needs is counted, the rest stays 0. The zero Counts is a breaker that has seen
// nothing. A plain value, safe for concurrent use.
type Counts struct {
	// Consecutive is the number of failures since the last success.
	Consecutive int
	// WindowFailures is the number of failures younger than Config.Window, at
	// most Config.WindowFailures.
	WindowFailures int
	// Calls, Failures and Slow are the results in the rate window; a call may be
	// both failed and slow.
	Calls, Failures, Slow int
	// Passes is the number of trials that succeeded since half-open began, and
	// Trials the number of trials out and not lost.
	Passes, Trials int
}

// Change is one thing that happened to a breaker. The zero Change is not a valid
// one. A plain value, safe for concurrent use.
type Change struct {
	// At is when it happened, in nanoseconds on the timeline of the [Core]. A
	// change by time alone carries the instant it was due, however late the
	// input that noticed it.
	At int64
	// OpenFor is the length of an open period: the planned one where To is Open
	// (the largest Duration for one without an end), the one that has passed
	// where From is Open. Otherwise 0.
	OpenFor time.Duration
	// Counts are the numbers at that moment, before the change cleared them.
	Counts Counts
	// Kind says what is reported.
	Kind Kind
	// From and To are the states before and after; equal unless Kind is
	// Transition.
	From, To State
	// Rule is what decided a transition; RuleNone for other kinds.
	Rule Rule
	// Suppressed is set on transitions of a flapping breaker, including the one
	// that made it flap: follow the state, but do not log or alert on it.
	Suppressed bool
}

// Stats are totals since the breaker was made. They never go down. The zero
// Stats is nothing yet. A plain value, safe for concurrent use.
type Stats struct {
	// Opened is the number of transitions into Open, by whatever rule.
	Opened uint64
	// HalfOpenAbandoned is the number of trials cancelled, and HalfOpenLost that
	// of trials whose time ran out.
	HalfOpenAbandoned, HalfOpenLost uint64
	// Dropped is the number of changes lost because more than 1024 were waiting
	// for Pop.
	Dropped uint64
}

// maxQueued bounds the changes that wait for Pop, so that an owner who never
// asks for them does not leak.
const maxQueued = 1024

// queue holds the changes not yet popped, oldest at head.
type queue struct {
	buf  []Change
	head int
}

// push appends ch and reports whether the oldest change had to go.
func (q *queue) push(ch Change) (dropped bool) {
	if len(q.buf)-q.head >= maxQueued {
		q.head++
		dropped = true
	}
	// Moving down before growing keeps the buffer at twice the live length.
	if q.head > 0 && len(q.buf) == cap(q.buf) {
		n := copy(q.buf, q.buf[q.head:])
		q.buf, q.head = q.buf[:n], 0
	}
	q.buf = append(q.buf, ch)
	return dropped
}

// pop removes the oldest change.
func (q *queue) pop() (Change, bool) {
	if q.head == len(q.buf) {
		return Change{}, false
	}
	ch := q.buf[q.head]
	q.head++
	if q.head == len(q.buf) {
		q.buf, q.head = q.buf[:0], 0
	}
	return ch, true
}
