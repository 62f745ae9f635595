package breaker

import (
	"math"
	"time"
)

// enter begins an input: it moves time forward and applies what was due.
func (c *Core) enter(now int64) int64 {
	now = max(now, c.latest)
	c.latest = now
	if now >= c.next {
		c.roll(now)
	}
	return now
}

// roll applies everything that was due by now, in order of due time.
func (c *Core) roll(now int64) {
	// The largest int64 stands for never, even when now has arrived there.
	for due := c.next; due <= now && due != math.MaxInt64; due = c.next {
		x := c.x
		switch {
		case c.flap && x.flapDue == due:
			c.flap = false
			c.emit(Change{Kind: FlapEnded, From: c.state, To: c.state, At: due, Counts: c.count(due)})
			c.plan()
		case c.state == Open:
			c.move(HalfOpen, due, RuleTimer)
		default:
			x.trials = append(x.trials[:0], x.trials[1:]...)
			x.stats.HalfOpenLost++
			c.emit(Change{Kind: TrialLost, From: HalfOpen, To: HalfOpen, At: due, Counts: c.count(due)})
			c.plan()
		}
	}
}

// plan sets next: whatever made something due calls it.
func (c *Core) plan() {
	c.next = math.MaxInt64
	x := c.x
	if c.flap {
		c.next = x.flapDue
	}
	switch {
	case c.state == Open:
		c.next = min(c.next, c.until)
	case c.state == HalfOpen && len(x.trials) > 0:
		c.next = min(c.next, x.trials[0].due)
	}
}

// open starts an open period by one of the rules.
func (c *Core) open(now int64, rule Rule) {
	x := c.need()
	if c.state == Closed && sub(now, x.since) >= c.set.forgetAfter && c.set.forgetAfter != math.MaxInt64 {
		x.past = 0
	}
	x.length = c.set.openLength(c.seed, x.stats.Opened, x.past)
	c.until = deadline(now, x.length)
	if x.past < maxPast {
		x.past++
	}
	c.move(Open, now, rule)
}

// move enters a state, or the same one anew: results of calls admitted before no
// longer count, and every counter starts at zero. Kept are the memory of past
// openings, the flap window and the totals; since when it has been in a state that
// it enters anew, too.
func (c *Core) move(to State, at int64, rule Rule) {
	x := c.need()
	ch := Change{From: c.state, To: to, At: at, Rule: rule, Counts: c.count(at)}
	switch {
	case to == Open:
		ch.OpenFor = time.Duration(x.length)
	case c.state == Open:
		ch.OpenFor = time.Duration(sub(at, x.since))
	}
	c.state, c.why = to, rule
	if c.era++; c.era == 0 {
		c.era = 1 // 0 would make the zero Ticket valid
	}
	c.run, x.passes, x.trials = 0, 0, x.trials[:0]
	x.fails.clear()
	x.rates = rates{}
	if ch.From != to {
		x.since = at
		if to == Open {
			x.stats.Opened++
		}
		c.flapped(ch)
	}
	c.plan()
}

// flapped reports a transition and counts it towards flapping.
func (c *Core) flapped(ch Change) {
	x := c.x
	began := false
	if c.set.flapN > 0 {
		if oldest, full := x.flaps.push(ch.At); full && sub(ch.At, oldest) < c.set.flapWindow {
			began = !c.flap
			c.flap, x.flapDue = true, deadline(oldest, c.set.flapWindow)
		}
	}
	ch.Suppressed = c.flap
	c.emit(ch)
	if began {
		c.emit(Change{Kind: FlapStarted, From: ch.To, To: ch.To, At: ch.At, Counts: c.count(ch.At)})
	}
}

// emit queues a change.
func (c *Core) emit(ch Change) {
	if c.x.queue.push(ch) {
		c.x.stats.Dropped++
	}
}

// need returns the extra state, made on first need.
func (c *Core) need() *extra {
	if c.x == nil {
		x := &extra{since: math.MinInt64}
		if n := c.set.windowN; n > 0 {
			x.fails.buf = make([]int64, n)
		}
		if n := c.set.flapN; n > 0 {
			x.flaps.buf = make([]int64, n)
		}
		c.x = x
	}
	return c.x
}
