package balancer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Tape records the inputs and decisions of one Pool, in the order in which the
// Pool decided, into a ring of two segments: when one is full, the other is
// begun anew with a checkpoint of the Pool's saved state, so that what is kept
// can be replayed from its beginning. Recording allocates nothing per attempt
// once both segments have been used; a checkpoint holds the Pool up for as long
// as Save does, O(n), once a segment. The zero Tape is not usable: see NewTape.
// Safe for concurrent use.
type Tape struct {
	size int
	e    atomic.Pointer[engine] // of the Pool, once the tape has been attached

	// The Pool's lock guards these.
	cur      *segment
	prev     *segment
	since    uint64 // the number of the latest event before it was attached
	lost     bool   // something was overwritten
	drained  bool   // there are no checkpoints any more
	replaced bool   // the recording was ended by another Attach
	latest   Record // of the input at hand, or of the latest one
	written  bool   // latest is on the tape

	draining sync.Mutex // guards below; taken outside the Pool's lock
	spare    [2]*segment
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

func (t *Tape) segment() *segment { return &segment{entries: make([]entry, 0, t.size)} }

// maxTape is the largest segment: a gigabyte.
const maxTape = 1 << 24

// NewTape returns a tape whose segments hold size records each; at least 16, and
// at most 2^24. A record takes 64 bytes, and one of what is rare, such as an event
// or a second retry, about 300 more. A tape that is drained has two segments more,
// which take turns with the first two.
func NewTape(size int) *Tape { return &Tape{size: min(max(size, 16), maxTape)} }

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
// one before is detached, and knows that it was replaced. A tape is for one Pool.
// Attach(nil) detaches whatever there is.
func (p *Pool[U]) Attach(t *Tape) {
	p.e.mu.Lock()
	defer p.e.unlock()
	if old := p.e.tape; old != nil && old != t {
		old.replaced = true
	}
	p.e.tape = t
	// Events that wait for the hook happened before the checkpoint.
	p.e.taped = len(p.e.queue)
	if t != nil {
		t.e.Store(&p.e)
		t.cur, t.prev, t.since = nil, nil, p.e.seq
		t.lost, t.drained, t.replaced, t.written = false, false, false, true
		t.turn(&p.e)
	}
}

// Since is the number of the latest event before the tape was attached: what is
// numbered up to that is not on it, though a hook may still be told of it. Safe
// for concurrent use.
func (t *Tape) Since() uint64 { since, _, _ := t.state(); return since }

// Lost tells whether records older than what Dump or the next Drain returns were
// overwritten. Safe for concurrent use.
func (t *Tape) Lost() bool { _, lost, _ := t.state(); return lost }

// Replaced tells whether the recording was ended by an Attach of another tape, or
// of none: unlike after a Detach, the Pool's life has gone on without whoever had
// attached this one. Safe for concurrent use.
func (t *Tape) Replaced() bool { _, _, replaced := t.state(); return replaced }

// state is what the three above return, all zero before the first Attach.
func (t *Tape) state() (since uint64, lost, replaced bool) {
	if e := t.e.Load(); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		since, lost, replaced = t.since, t.lost, t.replaced
	}
	return since, lost, replaced
}

// Dump returns what the tape holds: the older segment and the current one, from
// the older one's checkpoint on. Recording goes on: the Pool is held up for no
// longer than it takes to note where the segments end. Copying them, for which
// this goroutine takes some nanoseconds a record, comes after that; they are
// replaced by new ones when their turn comes. A tape that was never attached, or
// that was drained, returns the zero Recording. Safe for concurrent use.
func (t *Tape) Dump() Recording {
	e := t.e.Load()
	if e == nil {
		return Recording{}
	}
	older, newer := t.keep(e)
	if len(older.start) == 0 {
		return Recording{}
	}
	r := older.recording(e)
	r.Records = make([]Record, 0, len(older.entries)+len(newer.entries))
	r.Records = newer.records(older.records(r.Records))
	return r
}

// recording is a Recording of the checkpoint, without records.
func (s *segment) recording(e *engine) Recording {
	return Recording{Start: s.start, At: s.at, Epoch: e.epoch, Members: s.members}
}

// keep returns the segments as they are, and has them left alone.
func (t *Tape) keep(e *engine) (older, newer segment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.drained {
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
func (t *Tape) Start() Recording {
	e := t.e.Load()
	if e == nil {
		return Recording{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case t.drained:
		return Recording{}
	case t.prev != nil:
		return t.prev.recording(e)
	}
	return t.cur.recording(e)
}

// Drain appends to b what was recorded since the tape was attached or last
// drained, and empties the tape, so that a recording of any length can be
// followed in little memory. The Pool is held up for no longer than it takes to
// put empty segments in the place of the full ones. It is for a replay that
// compares as it goes: what is left has no checkpoint, and Dump returns nothing
// until the tape is attached again. It allocates only as b grows, and the first
// times for segments. Safe for concurrent use.
func (t *Tape) Drain(b []Record) []Record {
	e := t.e.Load()
	if e == nil {
		return b
	}
	t.draining.Lock()
	defer t.draining.Unlock()
	if t.spare[0] == nil {
		t.spare[0] = t.segment()
	}
	older, newer := t.swap(e)
	if older != nil {
		b = older.records(b)
		t.reuse(1, older)
	}
	b = newer.records(b)
	t.reuse(0, newer)
	return b
}

// swap takes the full segments and leaves the spare ones. That of prev is wanted
// only once there has been one: the first lap makes it.
func (t *Tape) swap(e *engine) (older, newer *segment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.write()
	t.drained = true
	older, newer = t.prev, t.cur
	t.cur, t.spare[0] = t.spare[0], nil
	if older != nil {
		t.prev, t.spare[1] = t.spare[1], nil
	}
	return older, newer
}

// reuse makes a drained segment the next spare one, unless a Dump still reads it.
func (t *Tape) reuse(i int, s *segment) {
	if !s.kept {
		s.clear()
		t.spare[i] = s
	}
}

// turn begins a segment, with a checkpoint unless the tape has been drained; the
// engine's lock is held and no input is half done.
func (t *Tape) turn(e *engine) {
	s := t.prev
	t.lost = t.lost || s != nil && len(s.entries) > 0
	if s == nil || s.kept {
		s = t.segment()
	}
	t.prev, t.cur = t.cur, s
	s.clear()
	if !t.drained {
		s.start, s.at, s.members = e.save(e.now), e.now, e.members()
	}
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

// Members are the upstreams as the latest Update saw them. Safe for concurrent
// use.
func (p *Pool[U]) Members() []Member {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.e.members()
}

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
	if len(t.cur.entries) >= t.size && !e.stale { // a checkpoint has the pickers made
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
