package balancer

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// RecordKind says what a Record is about.
type RecordKind uint8

const (
	// RecordEvent is a change of state that the Pool decided: an output.
	RecordEvent RecordKind = iota + 1
	// RecordUpdate is an Update: an input, with the members in Record.Members.
	RecordUpdate
	// RecordHealth is a SetHealth of a member.
	RecordHealth
	// RecordPoll is an input that only moved time: Poll, Save, or a SetHealth of
	// none.
	RecordPoll
	// RecordAcquire is an Acquire, with what it picked.
	RecordAcquire
	// RecordNext is a Next of a Try that decided something, with what it decided.
	RecordNext
	// RecordDone is a Done of a Try.
	RecordDone
	// RecordStop is a Stop of a Try.
	RecordStop
	// RecordAnswered is an Answered of a lease.
	RecordAnswered
	// RecordSettle is a Settle or Release of a lease.
	RecordSettle
)

// String returns the name of the kind.
func (k RecordKind) String() string {
	names := [...]string{"", "event", "update", "health", "poll", "acquire", "next", "done", "stop", "answered", "settle"}
	if k == 0 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// inlineTried is how many of the hosts that a request has tried a Record holds
// in itself.
const inlineTried = 8

// Record is one input of a Pool with what the Pool decided on it, or one event.
// It is plain data: recorded from one Pool, the inputs drive another one to the
// same decisions. Which fields count depends on Kind; the others are zero, but
// for positions, which are -1.
type Record struct {
	Kind RecordKind // what it is about
	At   int64      // when, in nanoseconds since the Pool's epoch, as the Pool counted

	// What came in.
	Request  uint64        // number of the request
	Own      bool          // the number was the Pool's own, the caller gave none
	Attempt  int32         // 0 for the request's first; of Next, the one picked
	Key      Key           // of Acquire and Next
	Deadline int64         // of Next, Done and Stop, since the epoch; the largest for none
	Outcome  Outcome       // of Done and Settle
	Latency  time.Duration // of Done and Settle, as reported
	Verdict  Verdict       // of Done
	Upstream string        // id, of Health and Event
	Healthy  bool          // of Health
	Note     string        // reason of Health; rule of Event
	Members  []Member      // of Update

	// How far the request had come before a Next, Done or Stop: what a replay that
	// starts in its middle cannot know otherwise.
	Retries int32              // begun so far
	Phase   uint8              // 0 not begun, 1 attempt out, 2 attempt failed, 3 waiting
	Settled bool               // of phase 1: the lease was released by itself before
	Same    int32              // retries in a row on the same upstream
	Until   int64              // end of the wait, 0 for none; of Event, when the state ends, likewise
	Tried   [inlineTried]int32 // positions of the first upstreams tried, -1 for one that has left
	More    []int32            // those of the others
	NTried  int32              // how many in Tried and More
	Latest  int32              // position of the upstream of the latest attempt

	// What came out.
	Picked   int32     // position of the upstream picked
	Fallback bool      // it was picked ignoring ejections
	Step     StepKind  // of Next
	Wait     int64     // of a StepWait, in nanoseconds
	Over     bool      // of Done: the request is over
	End      End       // of a StepEnd
	Seq      uint64    // of Event: its number
	Event    EventKind // of Event
	Count    int       // of Event
}

// Shift moves all times of the record by d nanoseconds, as from the timeline of
// the recorded Pool to that of one restored from the recording's start, whose
// epoch is that start.
func (r Record) Shift(d int64) Record {
	r.At = shift(r.At, d)
	if r.Until != 0 && r.Until != never {
		r.Until = shift(r.Until, d)
	}
	// A Record without a request has no deadline at all.
	if r.Deadline != never && (r.Kind == RecordNext || r.Kind == RecordDone || r.Kind == RecordStop) {
		r.Deadline = shift(r.Deadline, d)
	}
	return r
}

// shift moves a time that comes to one that comes, as far as times go.
func shift(at, d int64) int64 {
	switch to := at + d; {
	case d > 0 && (to < at || to == never):
		return never - 1
	case d < 0 && to > at:
		return math.MinInt64
	default:
		return to
	}
}

// Member is an upstream as an Update saw it.
type Member struct {
	Name  string // id
	Share int    // weight
	Tier  int    // priority
	Limit int    // max inflight; 0 for none
}

// ID implements Upstream, so that a Pool of Members can be driven by a
// recording.
func (m Member) ID() string { return m.Name }

// Weight is the member's weight.
func (m Member) Weight() int { return m.Share }

// Priority is the member's tier.
func (m Member) Priority() int { return m.Tier }

// MaxInflight is the member's limit.
func (m Member) MaxInflight() int { return m.Limit }

// from notes how far a course has come.
func (r *Record) from(e *engine, c *course) {
	r.Key, r.Deadline = c.req.Key, c.deadline
	r.Attempt, r.Retries = int32(c.retries), int32(c.retries)
	r.Phase, r.Same, r.Until = uint8(c.phase), int32(c.same), c.until
	r.NTried = int32(c.tried)
	for i, h := range c.triedHosts() {
		if i < inlineTried {
			r.Tried[i] = h.position()
		} else {
			r.More = append(r.More, h.position())
		}
	}
	r.Settled = c.phase == phaseSent && e.held(c.slot, c.gen) == nil
	if c.host != nil {
		r.Latest = c.host.position()
	}
}

// position is a host's place among the members, -1 once it has left.
func (h *host) position() int32 {
	if h.index < 0 {
		return -1
	}
	return h.pos
}

// picked notes the host of a slot.
func (r *Record) picked(s *slot) {
	r.Picked, r.Fallback, r.Attempt = s.host.pos, s.fallback, s.attempt
}

// report notes what was reported of an attempt.
func (r *Record) report(rep Report) {
	r.Outcome, r.Latency, r.Verdict = rep.Outcome, rep.Latency, rep.Retry
}

// Resume returns the Try that a Next, Done or Stop was recorded of, as it was
// just before, for a replay that starts in the middle of the request. The Pool
// must be the one restored from the recording's start, with all that was
// recorded since replayed into it. It fails with ErrState if the record names
// what the Pool does not have.
func (p *Pool[U]) Resume(r Record) (Try[U], error) {
	p.e.mu.Lock()
	defer p.e.unlock()
	t := Try[U]{pool: p, course: course{
		req: Request{ID: r.Request, Key: r.Key}, deadline: r.Deadline,
		phase: phase(r.Phase), retries: int(r.Retries), same: int(r.Same), until: r.Until,
	}}
	c := &t.course
	if n := int(r.NTried); n < 0 || n != min(n, inlineTried)+len(r.More) || c.phase >= phaseEnded {
		return Try[U]{}, fmt.Errorf("%w: request %d has phase %d and had tried %d upstreams, of which %d are told apart",
			ErrState, r.Request, r.Phase, n, min(n, inlineTried)+len(r.More))
	}
	at := func(pos int32) (*host, error) {
		switch {
		case pos == -1:
			return &host{index: -1}, nil
		case pos < -1 || int(pos) >= len(p.e.hosts):
			return nil, fmt.Errorf("%w: no upstream at position %d", ErrState, pos)
		}
		return p.e.hosts[pos], nil
	}
	for _, pos := range slices.Concat(r.Tried[:min(r.NTried, inlineTried)], r.More) {
		h, err := at(pos)
		if err != nil {
			return Try[U]{}, err
		}
		c.remember(h)
	}
	if c.phase != phaseStart {
		h, err := at(r.Latest)
		if err != nil {
			return Try[U]{}, err
		}
		c.host = h
	}
	if c.phase == phaseSent {
		c.slot = nobody
		for i := range p.e.slots {
			if s := &p.e.slots[i]; s.host != nil && s.request == r.Request && s.attempt == r.Retries {
				c.slot, c.gen = int32(i), s.gen
				t.lease = p.lease(c.slot)
			}
		}
		if c.slot == nobody && !r.Settled {
			return Try[U]{}, fmt.Errorf("%w: request %d has no attempt %d out", ErrState, r.Request, r.Retries)
		}
	}
	return t, nil
}
