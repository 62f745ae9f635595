package breaker

import "math"

// State returns the state at now. Not safe for concurrent use with inputs.
func (c *Core) State(now int64) State {
	if c.state == Open && c.expired(max(now, c.latest)) {
		return HalfOpen
	}
	return c.state
}

// expired reports whether the open period has ended.
func (c *Core) expired(now int64) bool { return now >= c.until && c.until != math.MaxInt64 }

// Ready reports whether Allow would admit a call at now. It takes no slot and
// starts no trial, so a balancer can ask all its hosts and then use one. Not safe
// for concurrent use with inputs.
func (c *Core) Ready(now int64) bool {
	switch c.state {
	case Closed:
		return true
	case Open:
		return c.expired(max(now, c.latest))
	}
	return c.out(max(now, c.latest)) < c.set.trials
}

// out returns the number of trials that hold a slot at now in half-open.
func (c *Core) out(now int64) int {
	n := len(c.x.trials)
	for i := 0; i < n; i++ {
		// Leases end in the order of the table.
		if t := c.x.trials[i]; t.due > now || t.due == math.MaxInt64 {
			return n - i
		}
	}
	return 0
}

// NextChange returns the instant at which time alone next changes something: the
// open period ends, the oldest trial is lost, or flapping ends. It may lie in the
// past, when no input has come since. It is the largest int64 if only inputs can
// change anything. Not safe for concurrent use with inputs.
func (c *Core) NextChange() int64 { return c.next }

// Until returns from when on Allow will admit a call if nothing else happens. If
// the latest input left the breaker open, that is the end of the open period; with
// all trial slots taken, the end of the oldest lease; the largest int64 if there
// is no such end. If nothing stands in the way, it is the smallest int64. Not safe
// for concurrent use with inputs.
func (c *Core) Until() int64 {
	switch {
	case c.state == Open:
		return c.until
	case c.state == HalfOpen && len(c.x.trials) >= c.set.trials:
		return c.x.trials[0].due
	}
	return math.MinInt64
}

// Rule returns what decided the state that the latest input left. Not safe for
// concurrent use with inputs.
func (c *Core) Rule() Rule { return c.why }

// Forced reports whether Force holds the state until Release. Not safe for
// concurrent use with inputs.
func (c *Core) Forced() bool { return c.mode == forced }

// Flapping reports whether at least Config.FlapTransitions transitions are
// younger than Config.FlapWindow at now. A transition that no input has applied
// yet is not seen. Not safe for concurrent use with inputs.
func (c *Core) Flapping(now int64) bool {
	now = max(now, c.latest)
	return c.flap && (now < c.x.flapDue || c.x.flapDue == math.MaxInt64)
}

// Counts returns the numbers that the rules would compare at now. They are zero
// while nothing is counted: in Open, and in half-open before the first trial. Not
// safe for concurrent use with inputs.
func (c *Core) Counts(now int64) Counts {
	return c.count(max(now, c.latest))
}

// count is Counts for the state that the latest input left.
func (c *Core) count(now int64) Counts {
	n := Counts{Consecutive: int(c.run)}
	if x := c.x; x != nil {
		n.WindowFailures = x.fails.younger(now, c.set.window)
		if c.set.rates {
			sum := x.rates.at(now, c.set.slice)
			n.Calls, n.Failures, n.Slow = int(sum.calls), int(sum.failed), int(sum.slow)
		}
		n.Passes = x.passes
		if c.state == HalfOpen {
			n.Trials = c.out(now)
		}
	}
	return n
}

// Stats returns the totals so far. Not safe for concurrent use with inputs.
func (c *Core) Stats() Stats {
	if c.x == nil {
		return Stats{}
	}
	return c.x.stats
}

// Idle reports whether the core remembers nothing at now that could make a
// difference: it is closed by its own rules, has no run of failures, no result or
// transition inside a window, no past opening that lengthens the next one, and
// no change that waits for Pop or for the next input. An owner of many breakers
// may drop such a one, once no call that it admitted is out, and use a Fresh one
// when the key returns; only the totals and the place in the sequence of jitter
// draws are lost. An open breaker is never idle. Not safe for concurrent use with
// inputs.
func (c *Core) Idle(now int64) bool {
	now = max(now, c.latest)
	if c.mode == off {
		return true
	}
	if c.mode == forced || c.state != Closed || c.run > 0 || c.flap {
		return false
	}
	x := c.x
	if x == nil {
		return true
	}
	grows := c.set.growth.num != c.set.growth.den && x.past > 0
	if grows && (sub(now, x.since) < c.set.forgetAfter || c.set.forgetAfter == math.MaxInt64) {
		return false
	}
	return !c.Changed() && c.count(now) == Counts{} &&
		x.flaps.younger(now, c.set.flapWindow) == 0
}
