package outlier

import (
	"cmp"
	"math"
	"slices"
)

// Poll is an input without content: it makes the changes that have fallen due by
// now.
func (c *Core) Poll(now int64) { c.advance(now) }

// NextChange returns when the next change by time alone falls due: the end of an
// ejection, a step of a ramp, or a sweep with something to judge; MaxInt64 if
// nothing is planned.
func (c *Core) NextChange() int64 { return c.next }

// advance moves the latest time to now, makes what has fallen due, and returns
// the time that the input counts as coming at.
func (c *Core) advance(now int64) int64 {
	if now > c.latest || !c.started {
		if !c.started {
			c.started = true
			c.origin = now
		}
		c.latest = now
	}
	if c.latest >= c.next {
		c.settle(c.latest)
	}
	return c.latest
}

// settle makes the changes due by now in the order of their times.
func (c *Core) settle(now int64) {
	for {
		switch {
		case len(c.plan) > 0 && c.plan[0].at <= now && !(c.dirty && c.sweepAt < c.plan[0].at):
			c.expire(c.plan[0].at)
		case c.dirty && c.sweepAt <= now:
			c.sweep(c.sweepAt)
		default:
			c.replan()
			return
		}
	}
}

// planned tells whether NextChange is a time and not the absence of one.
func (c *Core) planned() bool { return c.dirty || len(c.plan) > 0 }

// replan recomputes when the next change falls due.
func (c *Core) replan() {
	c.next = math.MaxInt64
	if c.dirty {
		c.next = c.sweepAt
	}
	if len(c.plan) > 0 {
		c.next = min(c.next, c.plan[0].at)
	}
}

// expire makes the changes planned for exactly at, by Index.
func (c *Core) expire(at int64) {
	c.tied = c.tied[:0]
	for len(c.plan) > 0 && c.plan[0].at == at {
		h := c.plan[0].h
		c.plan.drop(h)
		c.tied = append(c.tied, h)
	}
	slices.SortFunc(c.tied, byIndex)
	for _, h := range c.tied {
		if h.flags&out != 0 {
			c.restore(at, h, 0)
		} else {
			c.step(at, h)
		}
	}
	clear(c.tied)
}

// byIndex orders hosts by the owner's number, and by key where that is not
// unique.
func byIndex(a, b *Host) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.key, b.key))
}
