package clock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Manual is a clock that moves only when it is told to: by Advance, AdvanceTo
// and Step, which run what falls due on the way, and by Set, which steps the
// clock and runs nothing.
//
// Due functions run on the goroutine that moves the clock, one at a time,
// ordered by due time and then by arming, and each of them sees Now equal to
// its own due time. A function may do anything to the clock, including
// arming timers, which run in the same movement if they fall due in it, and
// moving the clock further. No goroutine is started and nothing sleeps.
//
// One movement is under way at a time. Advance and AdvanceTo, called while
// another is under way - by a function that it runs, or on another goroutine -
// extend it and return at once: the goroutine that began it goes all the way.
// However calls of Advance overlap, the clock ends up having moved by their
// sum. A function that panics, or ends its goroutine as testing.T.FailNow
// does, ends the movement at its due time; what was due later stays pending.
// A function that arms itself again without any delay keeps the clock from
// moving on for ever.
//
// Times are kept in nanoseconds in the range of int64 around the Unix epoch,
// from 1677-09-21 to 2262-04-11 UTC; a time outside is taken as the nearest one
// inside. The clock stops at the end of that range, and a timer due after it
// stays pending.
//
// Arming, resetting and stopping a timer and running it cost O(log n) with n
// timers pending; Now takes no lock.
//
// The zero Manual is ready to use and stands at the Unix epoch, 1970-01-01
// 00:00:00 UTC. A Manual must not be copied after first use.
//
// A Manual is safe for concurrent use.
type Manual struct {
	loc *time.Location // of the times returned; nil is UTC

	// wall is base+elapsed. It is written with mu held and read without.
	wall atomic.Int64

	mu      sync.Mutex // guards below
	base    int64      // Unix nanoseconds at the start or at the last Set
	elapsed uint64     // nanoseconds moved since base; base+elapsed fits int64
	target  uint64     // where the movement under way ends, on the same line
	moving  bool
	armed   uint64 // timers armed so far; orders those due together
	timers  queue
}

// NewManual returns a clock that stands at start. Its times are in start's
// location. If start is the zero time, the clock stands at the Unix epoch, as
// the zero Manual does. The clock is safe for concurrent use.
func NewManual(start time.Time) *Manual {
	m := new(Manual)
	if start.IsZero() {
		return m
	}
	m.loc = start.Location()
	m.base = unixNano(start)
	m.wall.Store(m.base)
	return m
}

// Now returns the time at which the clock stands. It has no monotonic reading.
// It is safe for concurrent use.
func (m *Manual) Now() time.Time {
	return m.at(m.wall.Load())
}

// AfterFunc arms a timer that runs f when the clock has been moved by d. If d
// is zero or negative, f is due at the present time and runs at the next
// movement, of any length; if one is under way, in that. A nil f does nothing.
// It costs O(log n) and is safe for concurrent use.
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	t := &manualTimer{m: m, f: orNothing(f)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arm(t, d)
	return t
}

// Advance moves the clock forward by d and runs what falls due, as the type
// describes. If d is zero or negative, the clock does not move, and only what
// is due at the present time runs. It is safe for concurrent use.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	from := m.elapsed
	if m.moving {
		from = m.target
	}
	m.moveTo(addSat(from, uint64(max(d, 0))))
}

// AdvanceTo moves the clock forward to t and runs what falls due, as the type
// describes. If t is not after the present time, the clock does not move, and
// only what is due at the present time runs. It is safe for concurrent use.
func (m *Manual) AdvanceTo(t time.Time) {
	m.mu.Lock()
	to := m.elapsed
	if ns := unixNano(t); ns > m.base {
		to = max(to, sub(ns, m.base))
	}
	if m.moving {
		to = max(to, m.target)
	}
	m.moveTo(to)
}

// Step moves the clock to the next due time and runs everything that is due
// then. It reports whether there was something to run, so that
//
//	for m.Step() {
//	}
//
// runs until nothing is left. While another movement is under way it does
// nothing and returns false. It is safe for concurrent use.
func (m *Manual) Step() bool {
	m.mu.Lock()
	when, ok := m.nextDue()
	if !ok || m.moving {
		m.mu.Unlock()
		return false
	}
	m.moveTo(when)
	return true
}

// Set steps the clock to t, forwards or backwards, as an administrator or a
// time server does to a wall clock. It runs nothing, and pending timers keep
// the time that they have left, as timers on a real machine do; so does a
// movement under way. It costs O(n) with n timers pending and is safe for
// concurrent use.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rebase(unixNano(t))
	m.target = min(m.target, m.limit())
}

// Next returns the due time of the next pending timer. It reports false if
// there is none that the clock can reach. It is safe for concurrent use.
func (m *Manual) Next() (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	when, ok := m.nextDue()
	if !ok {
		return time.Time{}, false
	}
	return m.at(m.wallAt(when)), true
}

// Pending returns how many timers are armed and have neither run nor been
// stopped. It is safe for concurrent use.
func (m *Manual) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.timers)
}

// moveTo takes m.mu, held, and releases it. It moves the clock to the point
// given on the line of elapsed, or hands that to the movement under way.
func (m *Manual) moveTo(to uint64) {
	m.target = min(to, m.limit())
	if m.moving {
		m.mu.Unlock()
		return
	}
	m.moving = true
	// Deferred because a function may panic or end the goroutine.
	defer func() {
		m.moving = false
		m.mu.Unlock()
	}()
	for len(m.timers) > 0 && m.timers[0].when <= m.target {
		e := m.timers.remove(0)
		m.stand(e.when)
		m.run(e.t.f)
	}
	m.stand(m.target)
}

// run calls f without the lock. m.mu is held before and after, also when f
// does not return.
func (m *Manual) run(f func()) {
	m.mu.Unlock()
	defer m.mu.Lock()
	f()
}

// stand puts the clock at a point of the line. m.mu is held.
func (m *Manual) stand(elapsed uint64) {
	m.elapsed = elapsed
	m.wall.Store(m.wallAt(elapsed))
}

// arm queues t, which is not queued, to run after d. m.mu is held.
func (m *Manual) arm(t *manualTimer, d time.Duration) {
	after := uint64(max(d, 0))
	if after > math.MaxUint64-m.elapsed {
		// Possible after more than 292 years. A due time must not saturate:
		// it is exact, or a timer due after the end of time would run at it.
		m.rebase(m.wallAt(m.elapsed))
	}
	m.armed++
	m.timers.push(entry{when: m.elapsed + after, seq: m.armed, t: t})
}

// rebase makes the present point the start of the line and wall its reading.
// Every point moves by the same amount, so the queue's order stays as it is.
// m.mu is held.
func (m *Manual) rebase(wall int64) {
	for i := range m.timers {
		m.timers[i].when -= m.elapsed
	}
	m.target -= min(m.target, m.elapsed) // it lags behind when nothing moves
	m.elapsed = 0
	m.base = wall
	m.wall.Store(wall)
}

// nextDue returns the earliest due time that the clock can reach. m.mu is held.
func (m *Manual) nextDue() (uint64, bool) {
	if len(m.timers) == 0 || m.timers[0].when > m.limit() {
		return 0, false
	}
	return m.timers[0].when, true
}

// limit is the last point of the line that is a time. m.mu is held.
func (m *Manual) limit() uint64 { return sub(math.MaxInt64, m.base) }

// wallAt returns the Unix nanoseconds of a point not after limit: the sum is
// in range although elapsed alone may exceed int64. m.mu is held.
func (m *Manual) wallAt(elapsed uint64) int64 { return int64(uint64(m.base) + elapsed) }

// at returns Unix nanoseconds as a time in the clock's location.
func (m *Manual) at(ns int64) time.Time {
	t := time.Unix(0, ns)
	if m.loc == nil {
		return t.UTC()
	}
	return t.In(m.loc)
}

// manualTimer is one timer of a Manual.
type manualTimer struct {
	m *Manual
	f func()

	pos int // 1 + index in m.timers, 0 if not pending; guarded by m.mu
}

// Stop takes the timer out of the queue.
func (t *manualTimer) Stop() bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return t.disarm()
}

// Reset queues the timer anew, behind those due at the same time already.
func (t *manualTimer) Reset(d time.Duration) bool {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	was := t.disarm()
	t.m.arm(t, d)
	return was
}

// disarm reports whether the timer was pending; it no longer is. m.mu is held.
func (t *manualTimer) disarm() bool {
	if t.pos == 0 {
		return false
	}
	t.m.timers.remove(t.pos - 1)
	return true
}

// unixNano is t.UnixNano, but saturates outside the range of int64.
func unixNano(t time.Time) int64 {
	if t.Before(time.Unix(0, math.MinInt64)) {
		return math.MinInt64
	}
	if t.After(time.Unix(0, math.MaxInt64)) {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// sub returns a-b for a >= b, which needs 64 bits without a sign.
func sub(a, b int64) uint64 { return uint64(a) - uint64(b) }

// addSat returns a+b, or the greatest value if that does not fit.
func addSat(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
