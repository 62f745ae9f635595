package breaker

import "math"

// Ticket is the admission of one call by a [Core]: it ties the result to the
// period of the breaker in which the call was admitted, and a trial to its slot.
// The zero Ticket is never issued; settling it counts nothing. A plain value of
// 16 bytes, safe for concurrent use.
type Ticket struct {
	id uint64 // era in the high half, number of the trial in the low; 0 in no ticket
	at int64  // when it was admitted
}

// Valid reports whether t came from an Allow that admitted the call. Safe for
// concurrent use.
func (t Ticket) Valid() bool { return t.id != 0 }

// Trial reports whether t holds a slot of a half-open breaker. Safe for
// concurrent use.
func (t Ticket) Trial() bool { return uint32(t.id) != 0 }

// At returns when the call was admitted, on the timeline of the core. Safe for
// concurrent use.
func (t Ticket) At() int64 { return t.at }

func (t Ticket) era() uint32 { return uint32(t.id >> 32) }

// mode says who decides.
type mode uint8

const (
	ruled  mode = iota // the rules do
	forced             // Force did, until Release
	off                // nobody: Config.Off
)

// Core is a circuit breaker as a plain state machine, for owners that have a lock
// and a clock of their own; [Breaker] is the one to use alone. All its methods
// take now, in nanoseconds on any timeline that the owner keeps to.
//
// Methods that may change something (Allow, Done, DoneIn, Cancel, Poll, Trip,
// Force, Release) are inputs: they move the core's time forward, and an earlier
// now counts as the latest one seen. All others are reads: they answer for the
// later of now and the latest input, and leave no trace.
//
// Nothing happens by itself. What time alone changes (the open period ends, a
// trial is lost, flapping ends) is seen by every read at once, and is reported
// by [Core.Pop] after the next input, carrying the instant at which it was due.
//
// Same Config, seed and inputs give the same answers and changes on every
// machine. Methods take constant time, except that Counts, Idle and whatever
// changes the state look at up to WindowFailures entries, and Allow, Done and
// Ready in half-open at up to Trials. Memory is allocated for the first failure,
// the first changes that wait and the first trials, and is kept; nothing else
// allocates.
//
// The zero Core is not usable; make one with [NewCore] or [Core.Fresh]. A Core
// may be moved but not copied after first use. Not safe for concurrent use.
type Core struct {
	set    *settings
	latest int64 // the latest input
	next   int64 // when time alone next changes something, or MaxInt64
	until  int64 // end of the open period, MaxInt64 for none; meaningful in Open
	era    uint32
	run    uint32 // failures in a row
	state  State
	mode   mode
	why    Rule // decided the current state
	flap   bool
	seed   uint64
	x      *extra // nil until the first failure, result for a rate, or change
}

// extra is what a breaker that never fails does not need.
type extra struct {
	fails  ring
	rates  rates
	trials []trial // out and not known to be lost, in order of admission, which is the order of due
	seq    uint32  // number of the last trial
	passes int

	since  int64  // when the current state began
	length int64  // of the current open period as planned
	past   uint32 // openings that the growth of the open period remembers

	flaps   ring
	flapDue int64 // when flapping ends, while Core.flap
	queue   queue
	stats   Stats
}

// trial is a slot taken in half-open.
type trial struct {
	seq uint32
	due int64 // the slot is free again from here on
}

// maxPast bounds the memory of past openings; with any growth that matters the
// cap is reached long before.
const maxPast = 1000

// NewCore returns a closed core. seed keys its jitter draws. It panics if cfg
// does not pass [Config.Validate]. Safe for concurrent use.
func NewCore(cfg Config, seed uint64) Core {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return fresh(cfg.compile(), seed)
}

func fresh(s *settings, seed uint64) Core {
	c := Core{set: s, latest: math.MinInt64, next: math.MaxInt64, era: 1, seed: seed}
	if s.off {
		c.mode = off
	}
	return c
}

// Fresh returns a new closed core with the settings of c, which the two share:
// thousands of cores cost one copy of them. seed keys the jitter draws of the new
// one. Not safe for concurrent use with inputs to c.
func (c *Core) Fresh(seed uint64) Core { return fresh(c.set, seed) }

// Allow asks to make a call now. If the reason is [Admitted], the call may go
// ahead, and its result must be given to Done, DoneIn or Cancel with the Ticket.
// In half-open the Ticket holds one of Config.Trials slots until then, or until
// Config.TrialTimeout has passed. Not safe for concurrent use.
func (c *Core) Allow(now int64) (Ticket, Reason) {
	if now < c.latest {
		now = c.latest
	}
	c.latest = now
	if now >= c.next {
		c.roll(now)
	}
	if c.state == Closed {
		return Ticket{uint64(c.era) << 32, now}, Admitted
	}
	return c.allowTrial(now)
}

func (c *Core) allowTrial(now int64) (Ticket, Reason) {
	if c.state == Open {
		if c.mode == forced {
			return Ticket{}, ForcedOpen
		}
		return Ticket{}, Opened
	}
	x := c.x
	if len(x.trials) >= c.set.trials {
		return Ticket{}, TrialsFull
	}
	if x.seq++; x.seq == 0 {
		x.seq = 1 // 0 marks a ticket that is no trial
	}
	due := deadline(now, c.set.trialTimeout)
	x.trials = append(x.trials, trial{x.seq, due})
	c.next = min(c.next, due)
	return Ticket{uint64(c.era)<<32 | uint64(x.seq), now}, Admitted
}

// Done reports the result of a call: ok, or failed. It reports whether the result
// counted. It did not if the breaker has changed its state since the call was
// admitted, if the Ticket is zero, if its trial is settled already or lost, or
// while the breaker is forced or off. The duration of the call, for SlowAfter and
// FailAfter, is the time since Allow.
//
// A Ticket of a closed breaker counts as often as it is reported; the owner, or
// [Permit], sees to it that that is once. Not safe for concurrent use.
func (c *Core) Done(now int64, t Ticket, ok bool) (counted bool) {
	return c.DoneIn(now, t, ok, sub(max(now, c.latest), t.at))
}

// DoneIn is Done for an owner that has measured the duration of the call in its
// own way, such as until the first byte: took, in nanoseconds. A negative one
// counts as 0. Not safe for concurrent use.
func (c *Core) DoneIn(now int64, t Ticket, ok bool, took int64) (counted bool) {
	if now < c.latest {
		now = c.latest
	}
	c.latest = now
	if now >= c.next {
		c.roll(now)
	}
	if t.era() != c.era || c.mode != ruled {
		return c.late(now, t, ok)
	}
	if c.state == Closed {
		if ok && c.set.simple {
			c.run = 0
			return true
		}
		c.record(now, ok && took <= c.set.failAfter, took > c.set.slowAfter)
		return true
	}
	if !c.settle(t) {
		return false
	}
	c.judge(now, ok && took <= c.set.failAfter && took <= c.set.slowAfter)
	return true
}

// record counts a result of the closed breaker and holds it against the rules.
func (c *Core) record(now int64, ok, slow bool) {
	s := c.set
	rule := RuleNone
	// From the last rule to the first, so that the first one is named.
	if s.rates {
		r := &c.need().rates
		r.add(now, s.slice, !ok, slow)
		if r.sum.calls >= s.minCalls {
			if s.slowRate.den != 0 && s.slowRate.reached(r.sum.slow, r.sum.calls) {
				rule = RuleSlowRate
			}
			if s.failureRate.den != 0 && s.failureRate.reached(r.sum.failed, r.sum.calls) {
				rule = RuleFailureRate
			}
		}
	}
	if ok {
		c.run = 0
	} else {
		if s.windowN > 0 {
			oldest, full := c.need().fails.push(now)
			if full && sub(now, oldest) < s.window {
				rule = RuleWindow
			}
		}
		if c.run < maxCount {
			c.run++
		}
		if s.consecutive > 0 && c.run >= s.consecutive {
			rule = RuleConsecutive
		}
	}
	if rule != RuleNone {
		c.open(now, rule)
	}
}

// late handles a result that came when it can no longer be counted.
func (c *Core) late(now int64, t Ticket, ok bool) bool {
	// Only a call from the closed period just before this opening: trials could
	// be settled twice here, as their table is gone, and older calls say nothing
	// about the server as it is now.
	if ok || !c.set.lateRestart || c.state != Open || c.mode != ruled || c.why == RuleTrip ||
		t.id == 0 || t.Trial() || t.era()+1 != c.era {
		return false
	}
	if end := deadline(now, c.x.length); end > c.until {
		c.until = end
		c.plan()
	}
	return true
}

// settle ends the trial of t, and reports whether there was one.
func (c *Core) settle(t Ticket) bool {
	// A ticket of this era that is no trial cannot exist here: eras do not span
	// states.
	x, seq := c.x, uint32(t.id)
	for i := range x.trials {
		if x.trials[i].seq == seq {
			x.trials = append(x.trials[:i], x.trials[i+1:]...)
			c.plan()
			return true
		}
	}
	return false
}

// judge counts the result of a trial.
func (c *Core) judge(now int64, ok bool) {
	if !ok {
		c.open(now, RuleTrial)
		return
	}
	c.x.passes++
	if c.x.passes >= c.set.passes {
		c.move(Closed, now, RuleTrial)
	}
}

// Cancel settles a call without a result: the caller gave up, or the outcome says
// nothing about the server. A trial gives its slot back; nothing else changes,
// neither counters nor state. Not safe for concurrent use.
func (c *Core) Cancel(now int64, t Ticket) {
	now = c.enter(now)
	if t.era() == c.era && c.state == HalfOpen && c.settle(t) {
		c.x.stats.HalfOpenAbandoned++
		c.emit(Change{Kind: TrialAbandoned, From: HalfOpen, To: HalfOpen, At: now, Counts: c.count(now)})
	}
}

// Poll applies what time alone has changed by now, so that it is reported without
// waiting for a call. Not safe for concurrent use.
func (c *Core) Poll(now int64) { c.enter(now) }

// Trip opens the breaker for the given time at least, whatever its counters say;
// for a server that names the time at which to come back. An open period that
// ends later is left alone, one that ends earlier is extended. It does not make
// later periods grow. A time of 0 or less, a forced breaker and one that is off
// are left alone. Not safe for concurrent use.
func (c *Core) Trip(now, forNanos int64) {
	now = c.enter(now)
	if c.mode != ruled || forNanos <= 0 {
		return
	}
	end := deadline(now, forNanos)
	if c.state != Open {
		x := c.need()
		x.length, c.until = forNanos, end
		c.move(Open, now, RuleTrip)
	} else if end > c.until {
		c.until, c.why = end, RuleTrip
		c.plan()
	}
}

// Force holds the breaker in Open or Closed until Release, whatever happens:
// results are not counted. Force to HalfOpen is not held: it ends an open period,
// forced or not, and lets the next call be a trial; a breaker that is closed by
// its own rules is left alone. An unknown state and a breaker that is off change
// nothing. Not safe for concurrent use.
func (c *Core) Force(now int64, s State) {
	now = c.enter(now)
	if c.mode == off || s > HalfOpen || c.mode == forced && s == c.state {
		return
	}
	if s == HalfOpen {
		if c.mode == forced || c.state == Open {
			c.mode = ruled
			c.move(HalfOpen, now, RuleForced)
		}
		return
	}
	c.mode = forced
	c.until, c.need().length = math.MaxInt64, math.MaxInt64
	c.move(s, now, RuleForced)
}

// Release ends Force. A breaker that was held open goes to half-open, so that a
// trial decides; one that was held closed stays closed with its counters at zero.
// A breaker that is not forced is left alone. Not safe for concurrent use.
func (c *Core) Release(now int64) {
	now = c.enter(now)
	if c.mode != forced {
		return
	}
	c.mode = ruled
	to := Closed
	if c.state == Open {
		to = HalfOpen
	}
	c.move(to, now, RuleReleased)
}

// Pop returns the oldest change that has not been returned yet, and false if
// there is none. Up to 1024 wait; then the oldest are dropped and counted in
// [Stats]. Not safe for concurrent use.
func (c *Core) Pop() (Change, bool) {
	if c.x == nil {
		return Change{}, false
	}
	return c.x.queue.pop()
}

// Changed reports whether Pop has something to return. Not safe for concurrent
// use.
func (c *Core) Changed() bool { return c.x != nil && c.x.queue.head < len(c.x.queue.buf) }
