package balancer

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// RecordKind says what a Record is about.
type RecordKind uint8

const (
	// RecordEvent is a change of state that the Pool decided: an output.
	RecordEvent RecordKind = iota + 1
	// RecordUpdate is an Update: an input, with the members in Record.Members.
	RecordUpdate
	// RecordHealth is a SetHealth.
	RecordHealth
	// RecordPoll is an input that only moved time: Poll, or Save.
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

// Tape records the inputs and decisions of one Pool, in the order in which the
// Pool decided, into a ring of two segments: when one is full, the other is
// begun anew with a checkpoint of the Pool's saved state, so that what is kept
// can be replayed from its beginning. Recording allocates nothing per attempt
// once both segments have been used; a checkpoint holds the Pool up for as long
// as Save does, O(n), once a segment. The zero Tape is not usable: see NewTape.
// Safe for concurrent use.
type Tape struct {
	size int

	mu      sync.Mutex // guards below; taken inside the Pool's lock, never around it
	e       *engine    // of the Pool
	cur     *segment
	prev    *segment
	since   uint64 // the number of the latest event before it was attached
	lost    bool   // something was overwritten
	drained bool   // the checkpoints do not fit what is left

	// latest is the record of the input at hand or the latest one, if written says
	// that it is not on the tape yet. The Pool's lock guards both.
	latest  Record
	written bool
}

// segment is one half of the ring.
type segment struct {
	start   []byte // checkpoint
	at      int64
	members []Member
	entries []entry
	wide    []Record
	kept    bool // a Dump is reading the records: they must not be overwritten
}

// NewTape returns a tape whose segments hold size records each; at least 16. A
// record takes 64 bytes, and one of what is rare, such as an event or a second
// retry, about 300 more.
func NewTape(size int) *Tape { return &Tape{size: max(size, 16)} }

// Recording is a stretch of a Pool's life: a state, and all that happened after
// it.
type Recording struct {
	Start   []byte    // the state that RestorePool takes
	At      int64     // when that was, in nanoseconds since the Pool's epoch
	Epoch   time.Time // the Pool's epoch
	Members []Member  // the upstreams at the start
	Records []Record  // inputs with their decisions, and events, in order
}

// Attach starts recording the Pool on a tape, beginning with a checkpoint of
// its present state, calls in flight included. A Pool has one tape at most: the
// one before is detached. A tape is for one Pool. Attach(nil) detaches.
func (p *Pool[U]) Attach(t *Tape) {
	p.e.mu.Lock()
	defer p.e.unlock()
	p.e.tape = t
	// Events that wait for the hook happened before the checkpoint.
	p.e.taped = len(p.e.queue)
	if t != nil {
		t.mu.Lock()
		t.e, t.cur, t.prev, t.lost, t.drained, t.written = &p.e, nil, nil, false, false, true
		t.since = p.e.seq
		t.mu.Unlock()
		t.turn(&p.e)
	}
}

// Since is the number of the latest event before the tape was attached: what is
// numbered up to that is not on it, though a hook may still be told of it. Safe
// for concurrent use.
func (t *Tape) Since() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Dump returns what the tape holds: the older segment and the current one, from
// the older one's checkpoint on. Recording goes on: the Pool is held up for no
// longer than it takes to note where the segments end. Copying them, for which
// this goroutine takes some nanoseconds a record, comes after that; they are
// replaced by new ones when their turn comes. A tape that was never attached, or
// that was drained, returns the zero Recording. Safe for concurrent use.
func (t *Tape) Dump(p interface{ Epoch() time.Time }) Recording {
	older, newer := t.keep()
	if len(older.start) == 0 {
		return Recording{}
	}
	records := make([]Record, 0, len(older.entries)+len(newer.entries))
	records = newer.records(older.records(records))
	return Recording{Start: older.start, At: older.at, Epoch: p.Epoch(), Members: older.members, Records: records}
}

// keep returns the segments as they are, and has them left alone. What is on the
// tape belongs to the Pool's lock, so keep takes that too.
func (t *Tape) keep() (older, newer segment) {
	t.mu.Lock()
	e := t.e
	t.mu.Unlock()
	if e == nil {
		return older, newer
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drained || t.e != e {
		return older, newer
	}
	t.write()
	t.cur.kept = true
	if t.prev == nil {
		return *t.cur, newer
	}
	t.prev.kept = true
	return *t.prev, *t.cur
}

// Start is the state at which the tape begins, as a Recording without records:
// what Drain returns follows it, if nothing was lost before the first time. Of a
// tape that was never attached, or drained since, it is the zero Recording.
// Safe for concurrent use.
func (t *Tape) Start(p interface{ Epoch() time.Time }) Recording {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.cur
	if t.prev != nil {
		s = t.prev
	}
	if s == nil || t.drained {
		return Recording{}
	}
	return Recording{Start: s.start, At: s.at, Epoch: p.Epoch(), Members: s.members}
}

// Drain appends to b what was recorded since the tape was attached or last
// drained, and empties the tape, so that a recording of any length can be
// followed in little memory. It is for a replay that compares as it goes: what
// is left has no checkpoint, and Dump returns nothing until the tape is attached
// again. It allocates only as b grows. Safe for concurrent use.
func (t *Tape) Drain(b []Record) []Record {
	t.mu.Lock()
	e := t.e
	t.mu.Unlock()
	if e == nil {
		return b
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write()
	t.drained = true
	if t.prev != nil {
		b = t.prev.records(b)
	}
	b = t.cur.records(b)
	for _, s := range []**segment{&t.prev, &t.cur} {
		switch {
		case *s == nil:
		case (*s).kept:
			*s = &segment{entries: make([]entry, 0, t.size)}
		default:
			(*s).clear()
		}
	}
	return b
}

// Lost tells whether records older than what Dump returns were overwritten.
func (t *Tape) Lost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// turn begins a segment with a checkpoint; the engine's lock is held and no
// input is half done.
func (t *Tape) turn(e *engine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.prev
	t.lost = t.lost || s != nil && len(s.entries) > 0
	if s == nil || s.kept {
		s = &segment{entries: make([]entry, 0, t.size)}
	}
	t.prev, t.cur = t.cur, s
	s.clear()
	s.start, s.at, s.members = e.save(e.now), e.now, e.members()
}

// clear empties a segment, but for its checkpoint.
func (s *segment) clear() { s.entries, s.wide = s.entries[:0], s.wide[:0] }

// write puts the latest record on the tape; the Pool's lock is held.
func (t *Tape) write() {
	if !t.written {
		t.cur.append(&t.latest)
		t.written = true
	}
}

// Epoch is the instant from which the Pool's records count.
func (p *Pool[U]) Epoch() time.Time { return p.e.epoch }

// Config is what the Pool was made with, its clock and its seed filled in: with
// it a recording of the Pool can be replayed. Safe for concurrent use.
func (p *Pool[U]) Config() Config { return p.e.cfg }

// flush puts the events that are queued and not yet on the tape there.
func (e *engine) flush() {
	t := e.tape
	if t == nil || e.taped == len(e.queue) {
		return
	}
	t.write()
	for ; e.taped < len(e.queue); e.taped++ {
		q := &e.queue[e.taped]
		t.cur.append(&Record{
			Kind: RecordEvent, At: q.at, Until: q.until, Upstream: q.Upstream, Note: q.Rule,
			Seq: q.Seq, Event: q.Kind, Count: q.Count, Picked: -1, Latest: -1,
		})
	}
}

func (e *engine) members() []Member {
	out := make([]Member, len(e.hosts))
	for i, h := range e.hosts {
		out[i] = Member{Name: h.id, Share: int(h.weight), Tier: int(h.priority), Limit: int(h.limit)}
	}
	return out
}

// open starts the record of an input, which the caller completes before the
// lock is given back; nil if nothing is recorded. Events that were due before
// the input come first.
func (e *engine) open(kind RecordKind, request uint64) *Record {
	if e.tape == nil {
		return nil
	}
	t := e.tape
	// The Pool's lock is enough: whoever reads the tape holds it.
	t.write()
	e.flush()
	if len(t.cur.entries) >= t.size {
		t.turn(e)
	}
	r := &t.latest
	*r = Record{}
	r.Kind, r.At, r.Request, r.Picked, r.Latest = kind, e.now, request, -1, -1
	t.written = false
	return r
}

// pending is the record that open has returned and that is not complete, nil if
// nothing is recorded.
func (e *engine) pending() *Record {
	if e.tape == nil || e.tape.written {
		return nil
	}
	return &e.tape.latest
}

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
