package clock

import (
	"sync"
	"time"
)

// Adapt makes a Scheduler of any clock that has Now and AfterFunc, whatever
// type its timers have:
//
//	s := clock.Adapt(bb.NewMock()) // bb is github.com/benbjohnson/clock
//
// T is inferred. A timer of type T needs only Stop. If it has no
// Reset(time.Duration) bool, Reset stops it and arms a new one in its place.
// If c is a Scheduler already, Adapt returns c itself.
//
// When and where a function runs is up to c. In particular the mocks of other
// modules start a goroutine per due function, which makes the order of what
// happens in them a matter of scheduling; only [Manual] promises an order.
//
// The result is as safe for concurrent use as c is.
func Adapt[T interface{ Stop() bool }](c interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) T
}) Scheduler {
	if s, ok := any(c).(Scheduler); ok {
		return s
	}
	return &adapted[T]{c: c}
}

// adapted is a foreign clock whose AfterFunc returns a T.
type adapted[T interface{ Stop() bool }] struct {
	c interface {
		Now() time.Time
		AfterFunc(d time.Duration, f func()) T
	}
}

// Now returns the time of the adapted clock.
func (a *adapted[T]) Now() time.Time { return a.c.Now() }

// AfterFunc arms a timer of the adapted clock.
func (a *adapted[T]) AfterFunc(d time.Duration, f func()) Timer {
	f = orNothing(f)
	t := a.c.AfterFunc(d, f)
	if whole, ok := any(t).(Timer); ok {
		return whole
	}
	return &rearmed[T]{arm: func(d time.Duration) T { return a.c.AfterFunc(d, f) }, t: t}
}

// rearmed is a timer without a usable Reset: each Reset arms a new one.
type rearmed[T interface{ Stop() bool }] struct {
	arm func(d time.Duration) T

	mu sync.Mutex // guards below
	t  T
}

// Stop stops the timer armed last.
func (r *rearmed[T]) Stop() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.t.Stop()
}

// Reset replaces the timer armed last. The lock is held over both steps, so
// that two concurrent Resets cannot leave two timers armed.
func (r *rearmed[T]) Reset(d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.t.Stop()
	r.t = r.arm(d)
	return was
}
