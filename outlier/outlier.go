// Package outlier finds the hosts of a pool that do worse than they should and
// takes them out of service for a while: passive health checking, as Envoy and
// gRFC A50 call outlier detection.
//
// A host is judged by the results of the calls it served:
//
//   - failures in a row, of any kind, of gateway and transport failures only, or
//     of transport failures only;
//   - its success rate against the mean and standard deviation of all hosts, with
//     an absolute companion for the cases where that statistic is blind;
//   - its share of failures against a fixed limit;
//   - its smoothed latency against the other hosts' for a sustained time.
//
// An outlier is ejected for base x count, count being how often it was ejected
// lately, unless that would leave too few hosts: the cap is tested as it would
// be after the ejection and counts only members that can serve. The end of an
// ejection is a function of the clock. The evidence that led to it is gone when
// the host returns, and the results of calls that began earlier count neither
// for nor against it.
//
// Every decision is an integer computation over (configuration, seed, ordered
// inputs): no clock is read, no goroutine runs, and what is drawn is a hash of
// the seed, the host's key and the number of the verdict, so that one host's
// draws do not depend on what happens to the others.
//
// Most programs want [Detector], which is safe for concurrent use and takes
// time.Time. [Core] is the same machine without a lock, for owners that have
// their own order of events.
//
// Sources: Envoy, "Outlier detection"; gRFC A50, "Outlier Detection"; gRFC A91
// for what is reported about verdicts that were not enforced.
package outlier

import "math"

// An Outcome is the result of one call as far as it speaks for or against the
// host. Results that do not - the caller gave up, the request was never sent,
// the fault was the client's - are not recorded at all; any other value of
// Outcome is ignored likewise. The zero value is Success. It is a plain value,
// safe to share.
type Outcome uint8

const (
	// Success: the host answered well.
	Success Outcome = iota
	// Failure: the host answered badly.
	Failure
	// GatewayFailure: the host answered that something behind it failed (502,
	// 503, 504).
	GatewayFailure
	// TransportFailure: the host did not answer.
	TransportFailure
)

// A Core is the detector as a plain state machine on int64 nanoseconds of a
// timeline that the owner chooses. Inputs move its latest time; an input with an
// earlier now counts as coming at the latest. Each input first makes the changes
// that have fallen due, ordered by (time, Index), a sweep after the returns of
// its instant; they have their due time as their time. Reads use the later of
// now and the latest time, and change nothing.
//
// What happened waits in a queue for [Core.Pop], which the owner empties after
// each input. Recording a result costs O(1), a change of one host O(log n), a
// sweep O(n) (O(n log n) after renumbering).
//
// The zero Core is not usable; see [NewCore]. A Core is not safe for concurrent
// use.
type Core struct {
	set  settings
	seed uint64

	next    int64 // earliest planned change; MaxInt64: none
	latest  int64
	origin  int64 // first input: where the grid of intervals starts
	sweepAt int64 // end of the running interval, if dirty
	started bool
	dirty   bool // something was counted in the running interval

	hosts   []*Host
	plan    agenda
	queue   changes
	last    Summary
	scratch []finding
	tied    []*Host

	usable    int // members that can serve
	outUsable int // of these, out (in shadow mode as if)
	ejected   int // members whose Ejected is true

	sum    wide // scores in the baseline
	warm   int  // hosts in the baseline
	median median
}

// NewCore returns a Core without hosts. It panics if cfg fails Validate. The
// seed keys every draw: jitter and enforcement.
func NewCore(cfg Config, seed uint64) *Core {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return &Core{set: cfg.compile(), seed: seed, next: math.MaxInt64}
}

// Add makes h a member that can serve, with no history. key is the host's stable
// hash: it keys the draws, so it should be the same in every run and differ
// between hosts. Adding a member again changes nothing. A record that was removed
// may be added, but then results of calls from before count as those of the new
// member: an owner that still has such calls out uses a new record.
func (c *Core) Add(now int64, h *Host, key uint64) {
	c.advance(now)
	if h.flags&member != 0 {
		return
	}
	*h = Host{
		Index:  h.Index,
		owner:  h.owner,
		key:    key,
		flags:  member | usable,
		since:  math.MinInt64,
		weight: 1000,
		pos:    -1,
		slot:   int32(len(c.hosts)),
	}
	c.hosts = append(c.hosts, h)
	c.usable++
}

// Remove forgets h and all its state; an ejected one leaves the count of ejected
// hosts. No change is reported, later results of h are ignored, and h may be
// added again. Removing a host that is no member changes nothing. It costs
// O(log n).
func (c *Core) Remove(now int64, h *Host) {
	c.advance(now)
	if h.flags&member == 0 {
		return
	}
	c.plan.drop(h)
	c.replan()
	c.count(h, -1)
	h.flags &^= member
	c.rebase(h)
	last := len(c.hosts) - 1
	c.hosts[h.slot] = c.hosts[last]
	c.hosts[h.slot].slot = h.slot
	c.hosts[last] = nil
	c.hosts = c.hosts[:last]
	h.flags, h.pos = 0, -1
}

// SetUsable says whether h can serve apart from ejection: false for a member
// that is drained, disabled or down by active checks. Such members count neither
// for the caps nor for any baseline, and are not ejected: their results are
// counted, and the next failure after they can serve again may eject. An ejection
// that runs goes on. A ramp stands still, and its next step is due one RampStep
// after the member can serve again. A member starts usable. It costs O(log n) at
// most.
func (c *Core) SetUsable(now int64, h *Host, can bool) {
	now = c.advance(now)
	if h.flags&member == 0 || can == (h.flags&usable != 0) {
		return
	}
	c.count(h, -1)
	h.flags ^= usable
	c.count(h, 1)
	c.rebase(h)
	if h.flags&ramping != 0 {
		c.climb(now, h)
		c.replan()
	}
}

// count adds sign x h to the tallies of members.
func (c *Core) count(h *Host, sign int) {
	if h.flags&usable != 0 {
		c.usable += sign
		if h.flags&out != 0 {
			c.outUsable += sign
		}
	}
	if h.Ejected() {
		c.ejected += sign
	}
}

// Record takes the result of a call to h that began at start and ended at now.
// latency is the part of it that speaks for the host, in nanoseconds, or
// negative if it was not measured; only that of a Success is used. Nothing is
// counted while h is out, nor if the call began before h last returned: a late
// result neither extends an ejection, nor ends one, nor leads to the next. Record
// allocates nothing, except to grow the queue of changes.
func (c *Core) Record(now int64, h *Host, start int64, o Outcome, latency int64) {
	now = c.advance(now)
	if h.flags&(member|out) != member || start < h.since || c.set.off {
		return
	}
	switch o {
	case Success:
		h.streak, h.gateway, h.transport = 0, 0, 0
		h.flags &^= probation
		h.spared &^= streakRules
		if c.set.rates {
			c.tally(now, &h.good)
		}
		if latency >= 0 && c.set.lt.On {
			c.observe(now, h, latency)
		}
	case Failure, GatewayFailure, TransportFailure:
		c.fail(now, h, o)
	}
}

// streakRules are the bits of Host.spared that a success clears.
const streakRules = 1<<RuleConsecutive | 1<<RuleGateway | 1<<RuleTransport | 1<<RuleProbation

// fail counts a failure and asks the rules that judge at once, the narrowest
// evidence last.
func (c *Core) fail(now int64, h *Host, o Outcome) {
	if c.set.rates {
		c.tally(now, &h.bad)
	}
	bump(&h.streak)
	if o >= GatewayFailure {
		bump(&h.gateway)
	} else {
		h.gateway = 0
		h.spared &^= 1 << RuleGateway
	}
	if o == TransportFailure {
		bump(&h.transport)
	} else {
		h.transport = 0
		h.spared &^= 1 << RuleTransport
	}

	s := &c.set
	switch {
	case h.flags&probation != 0 && c.counts(o):
		c.verdict(now, h, RuleProbation, 1, 1)
	case h.streak >= s.consecutive:
		c.verdict(now, h, RuleConsecutive, int64(h.streak), int64(s.consecutive))
	case h.gateway >= s.gateway:
		c.verdict(now, h, RuleGateway, int64(h.gateway), int64(s.gateway))
	case h.transport >= s.transport:
		c.verdict(now, h, RuleTransport, int64(h.transport), int64(s.transport))
	case s.fp.On && s.fp.Inline && s.tooManyFailures(h):
		c.verdict(now, h, RuleFailurePercentage, int64(h.bad), int64(h.bad)+int64(h.good))
	}
	if h.flags&(probation|out) == probation && !c.counts(o) {
		h.flags &^= probation // an answer, as far as the rules in force care
	}
}

// counts tells whether some consecutive rule counts failures of kind o; where
// none is on, all kinds count.
func (c *Core) counts(o Outcome) bool {
	s := &c.set
	return !s.streaks || s.consecutive != never ||
		s.gateway != never && o >= GatewayFailure ||
		s.transport != never && o == TransportFailure
}

// bump adds one to a counter that stops below never.
func bump(n *uint32) {
	if *n < never-1 {
		*n++
	}
}

// tally counts one result of the running interval, starting one if need be.
func (c *Core) tally(now int64, n *uint32) {
	bump(n)
	if !c.dirty {
		c.dirty = true
		c.sweepAt = c.gridAfter(now)
		c.next = min(c.next, c.sweepAt)
	}
}

// gridAfter returns the first end of an interval after now.
func (c *Core) gridAfter(now int64) int64 {
	// now >= origin, so the difference fits in 64 bits unsigned.
	rest := (uint64(now) - uint64(c.origin)) % uint64(c.set.interval)
	return addSat(now, c.set.interval-int64(rest))
}

// Changed tells whether [Core.Pop] has something to return.
func (c *Core) Changed() bool { return c.queue.head < len(c.queue.list) }

// Pop removes and returns the oldest change not yet popped.
func (c *Core) Pop() (Change, bool) { return c.queue.pop() }

// EjectedCount returns how many members were out at the latest input, usable or
// not; none in shadow mode.
func (c *Core) EjectedCount() int { return c.ejected }

// UsableCount returns how many members can serve apart from ejection, ejected
// ones included.
func (c *Core) UsableCount() int { return c.usable }

// Len returns the number of members.
func (c *Core) Len() int { return len(c.hosts) }

// EjectedAt tells whether h is out at now, or at the latest input if that is
// later. It is a pure read: it sees the end of an ejection, but not what a sweep
// that no input has made yet would find.
func (c *Core) EjectedAt(now int64, h *Host) bool {
	return h.Ejected() && max(now, c.latest) < h.until
}
