package clock

import (
	"sync/atomic"
	"time"
)

// rebaseAfter bounds how far the wall part of a System reading can be from the
// machine's: a base older than this is read anew.
const rebaseAfter = time.Second

// system is real time as a base plus the monotonic time since. Reading only
// the monotonic clock costs about two thirds of reading both, as time.Now does.
type system struct {
	base atomic.Pointer[time.Time]
}

// System returns real time. Now is a reading of the monotonic clock added to a
// base that is renewed once a second: it costs less than [time.Now], carries a
// monotonic reading, so that differences between two readings never suffer
// from a step of the wall clock, and its wall part follows such steps, and a
// suspended machine, within a second. AfterFunc is [time.AfterFunc]: f runs on
// a goroutine of its own.
//
// Each call returns a clock with a base of its own; they all tell the same
// time. Use [IsSystem] to recognise one.
//
// The clock is safe for concurrent use.
func System() Scheduler {
	s := new(system)
	now := time.Now()
	s.base.Store(&now)
	return s
}

// IsSystem reports whether c was returned by [System]. Only then may a reading
// be compared with times that come from elsewhere in the process, such as the
// deadline of a context. It is safe for concurrent use.
func IsSystem(c Clock) bool {
	_, ok := c.(*system)
	return ok
}

// Now returns the current time with a monotonic reading.
func (s *system) Now() time.Time {
	base := s.base.Load()
	since := time.Since(*base)
	// The monotonic part is exact either way, so it does not matter which of
	// several goroutines renews the base last.
	if since >= rebaseAfter {
		now := time.Now()
		s.base.Store(&now)
		return now
	}
	return base.Add(since)
}

// Since returns the time that has passed since t, which this clock has returned.
// It is Now().Sub(t) at the cost of one reading of the monotonic clock.
func (s *system) Since(t time.Time) time.Duration { return time.Since(t) }

// AfterFunc calls f on its own goroutine after d.
func (s *system) AfterFunc(d time.Duration, f func()) Timer {
	return time.AfterFunc(d, orNothing(f))
}

// orNothing returns f, or a function that does nothing in place of nil.
func orNothing(f func()) func() {
	if f == nil {
		return func() {}
	}
	return f
}
