package balancer

import (
	"fmt"
	"slices"
	"time"
)

// EventKind says what has changed.
type EventKind uint8

const (
	// UpstreamJoined: an id is new in the Pool.
	UpstreamJoined EventKind = iota + 1
	// UpstreamLeft: an id is no longer in the Pool.
	UpstreamLeft
	// UpstreamHealthy and UpstreamUnhealthy: SetHealth turned the health bit.
	UpstreamHealthy
	UpstreamUnhealthy
	// UpstreamEjected: the outlier detector took the upstream out, until Until.
	UpstreamEjected
	// UpstreamReturned: the ejection is over; Rule is what ended it early, if
	// anything did.
	UpstreamReturned
	// EjectionWithheld: the detector would have ejected, and the cap, shadow mode
	// or an enforcement percentage kept the upstream in.
	EjectionWithheld
	// BreakerOpened: the breaker tripped, or a trial failed; open until Until.
	BreakerOpened
	// BreakerHalfOpen: the open time is over, trials are admitted.
	BreakerHalfOpen
	// BreakerClosed: the trials succeeded, or it was closed by hand.
	BreakerClosed
	// BreakerFlapping and BreakerSteady: flap detection began or ended.
	BreakerFlapping
	BreakerSteady
	// TrialLost: a half-open trial ended without a verdict.
	TrialLost
)

// String returns the name of the kind, as recordings have it.
func (k EventKind) String() string {
	names := [...]string{"", "joined", "left", "healthy", "unhealthy", "ejected", "returned", "ejection_withheld",
		"opened", "half_open", "closed", "flapping", "steady", "trial_lost"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("EventKind(%d)", uint8(k))
	}
	return names[k]
}

// Event is one change of an upstream's state, as a flat value. Events are
// numbered in the order in which the Pool decided them.
type Event struct {
	Seq      uint64    // 1 for the Pool's first event, then without gaps
	At       time.Time // when it happened; a change made by time alone has its due time
	Kind     EventKind // what happened
	Upstream string    // the id
	Until    time.Time // for UpstreamEjected and BreakerOpened: when it ends; else zero
	Rule     string    // which rule or detector decided, or the reason given to SetHealth
	Count    int       // how much of what the rule counts there was, where it counts
}

// String is the event as one line.
func (e Event) String() string {
	s := fmt.Sprintf("%d %s %s", e.Seq, e.Kind, e.Upstream)
	if e.Rule != "" {
		s += " (" + e.Rule + ")"
	}
	if !e.Until.IsZero() {
		s += " for " + e.Until.Sub(e.At).String()
	}
	return s
}

// emit queues an event; the engine's lock is held.
func (e *engine) emit(kind EventKind, h *host, at, until int64, rule string, count int) {
	e.seq++
	if e.hook == nil && e.tape == nil {
		return
	}
	// On which timeline a state ends beyond all time must not matter.
	if until != 0 && saturatingSub(until, at) >= forever {
		until = never
	}
	ev := Event{Seq: e.seq, At: e.time(at), Kind: kind, Upstream: h.id, Rule: rule, Count: count}
	if until != 0 {
		ev.Until = e.time(until)
	}
	e.queue = append(e.queue, queued{ev, h.pos, at, until})
}

// forever is a span that no Pool lives through: 146 years.
const forever = 1 << 62

// queued is an event with the position of its upstream, by which changes that
// fall on one instant are ordered.
type queued struct {
	Event
	pos       int32
	at, until int64
}

// unlock ends a critical section and delivers what it queued, unless another
// goroutine is delivering: that one then takes it along.
func (e *engine) unlock() {
	if e.picking != pickNone {
		e.abandon()
	}
	if e.stale {
		e.refitLast()
	}
	if len(e.queue) == 0 {
		e.mu.Unlock()
		return
	}
	e.flush()
	if e.hook == nil {
		e.queue, e.taped = e.queue[:0], 0
	}
	mine := len(e.queue) > 0 && !e.delivering
	if mine {
		e.delivering = true
	}
	e.mu.Unlock()
	if mine {
		e.deliver()
	}
}

// deliver hands queued events to the hook, in order, with no lock held, until
// none is left.
func (e *engine) deliver() {
	var batch []queued
	next, done := 0, false
	defer func() {
		if done {
			return
		}
		// The hook ended this goroutine: the rest waits for the next input.
		e.mu.Lock()
		e.queue = append(slices.Clone(batch[next:]), e.queue...)
		e.taped = len(e.queue)
		e.delivering = false
		e.mu.Unlock()
	}()
	for {
		e.mu.Lock()
		if len(e.queue) == 0 {
			e.delivering, done = false, true
			e.mu.Unlock()
			return
		}
		batch, e.queue, e.taped = e.queue, batch[:0], 0
		e.mu.Unlock()
		for next = 0; next < len(batch); {
			next++
			e.call(batch[next-1].Event)
		}
	}
}

// call runs the hook on one event. A panic is the hook's own; it is counted and
// the other events are delivered all the same.
func (e *engine) call(ev Event) {
	defer func() {
		if recover() != nil {
			e.mu.Lock()
			e.totals.HookPanics++
			e.mu.Unlock()
		}
	}()
	e.hook(ev)
}
