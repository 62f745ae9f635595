package health

import (
	"math"
	"sync"
	"time"
)

// Checker is a [Core] with a lock and time.Time: the verdict on one host and the
// schedule of its probes, for a prober of one's own. Every method takes the
// present as its first argument; an earlier instant counts as the latest one
// seen, and the methods that read never change what happens next. Every method
// is O(1) and allocates nothing.
//
// Whoever drives it sleeps until [Checker.Next], calls [Checker.Poll], and starts
// a probe if [Checker.Begin] says so. The zero Checker is not ready to use; see
// [NewChecker]. It is safe for concurrent use.
type Checker struct {
	base time.Time

	mu   sync.Mutex // guards below
	core Core
}

// NewChecker returns the state of a host seen for the first time at now. It
// panics with the error of [Config.Validate] where that returns one.
func NewChecker(cfg Config, now time.Time) *Checker {
	return &Checker{base: now, core: NewCore(cfg, 0)}
}

// Begin starts a probe if one is due, as [Core.Begin] does, and tells whether it
// did. [Checker.Time] turns the deadline of the probe into a time.Time.
func (c *Checker) Begin(now time.Time) (p Probe, begun bool, change Change, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Begin(c.at(now))
}

// Record ends a probe with its answer, as [Core.Record] does.
func (c *Checker) Record(now time.Time, p Probe, ok bool) (change Change, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Record(c.at(now), p, ok)
}

// Cancel ends a probe that says nothing about the host, as [Core.Cancel] does.
func (c *Checker) Cancel(now time.Time, p Probe) (change Change, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Cancel(c.at(now), p)
}

// Poll fails the probe in flight if its deadline has come, as [Core.Poll] does.
func (c *Checker) Poll(now time.Time) (change Change, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Poll(c.at(now))
}

// State returns the verdict at now.
func (c *Checker) State(now time.Time) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.State(c.at(now))
}

// Healthy tells whether the host is in at now.
func (c *Checker) Healthy(now time.Time) bool { return c.State(now) == Healthy }

// Counts returns how many probes ended in each way until now.
func (c *Checker) Counts(now time.Time) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Counts(c.at(now))
}

// Next returns the next instant at which there is something to do: the deadline
// of the probe in flight, or else the time of the next one. It returns false if
// there is none within the timeline.
func (c *Checker) Next() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := min(c.core.NextChange(), c.core.NextProbe())
	return c.Time(next), next != math.MaxInt64
}

// Time returns an instant of a [Change] or a [Probe] of this Checker as a
// time.Time, or the zero Time for one that never comes.
func (c *Checker) Time(at int64) time.Time {
	if at == math.MaxInt64 {
		return time.Time{}
	}
	return c.base.Add(time.Duration(at))
}

// at places an instant on the timeline of the core, which starts at the
// construction. Sub keeps the monotonic reading and saturates.
func (c *Checker) at(now time.Time) int64 { return int64(now.Sub(c.base)) }
