package balancer

import (
	"math"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// Lease is the right to send one attempt to one upstream. It holds the
// upstream's in-flight slot and, if its breaker is half-open, the trial, until
// it is released: on every way out, a panic included. A Lease is a value that
// names a slot and the slot's generation: of all its copies and all its calls,
// the first Release or Settle takes effect and the others do nothing. The zero
// Lease holds nothing. Safe for concurrent use.
type Lease[U Upstream] struct {
	pool     *Pool[U]
	upstream U
	request  uint64
	slot     int32
	gen      uint32
	attempt  int32
	fallback bool
}

// Upstream is what was picked.
func (l Lease[U]) Upstream() U { return l.upstream }

// Request is the request's number: the caller's, or the Pool's.
func (l Lease[U]) Request() uint64 { return l.request }

// Attempt is 0 for the request's first attempt.
func (l Lease[U]) Attempt() int { return int(l.attempt) }

// Fallback tells that the upstream is ejected and was picked because nothing
// else was left (IgnoreEjections).
func (l Lease[U]) Fallback() bool { return l.fallback }

// Valid tells whether the lease names a pick at all. It stays true after the
// release.
func (l Lease[U]) Valid() bool { return l.pool != nil }

// Answered marks that the first byte of the answer is there: what the latency
// score measures ends here, and the call no longer counts as one that waits.
// The lease goes on until it is released. Further calls do nothing.
func (l Lease[U]) Answered() {
	if l.pool == nil {
		return
	}
	e := &l.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	if s := e.held(l.slot, l.gen); s != nil && s.answered == unanswered {
		now = e.advance(now)
		// The record may begin with a checkpoint, which must not have the answer.
		if rec := e.open(RecordAnswered, s.request); rec != nil {
			rec.Attempt = s.attempt
		}
		s.answered = now
		e.unqueue(l.slot)
	}
}

// Release ends the attempt with its outcome. It reports whether it was this
// call that ended it.
func (l Lease[U]) Release(o Outcome) bool { return l.Settle(Report{Outcome: o}) }

// Settle is Release with a full account.
func (l Lease[U]) Settle(r Report) bool {
	if l.pool == nil {
		return false
	}
	e := &l.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	s := e.held(l.slot, l.gen)
	if s == nil {
		return false
	}
	now = e.advance(now)
	if rec := e.open(RecordSettle, s.request); rec != nil {
		rec.Attempt = s.attempt
		rec.report(r)
	}
	e.settle(now, l.slot, r)
	return true
}

// lease makes the caller's value for a slot. The lock is held.
func (p *Pool[U]) lease(i int32) Lease[U] {
	s := &p.e.slots[i]
	l := Lease[U]{pool: p, request: s.request, slot: i, gen: s.gen, attempt: s.attempt, fallback: s.fallback}
	if s.host.index >= 0 {
		l.upstream = p.ups[s.host.pos]
	}
	return l
}

// Leases returns the leases that are not released, in no particular order. It is
// for a recorder, and for a restored Pool, whose calls in flight have no other
// handle. The value of an upstream that has left the Pool is the zero U.
func (p *Pool[U]) Leases() []Lease[U] {
	p.e.mu.Lock()
	defer p.e.unlock()
	var out []Lease[U]
	for i := range p.e.slots {
		if p.e.slots[i].host != nil {
			out = append(out, p.lease(int32(i)))
		}
	}
	return out
}

// unanswered is the time of an answer that has not come. Times before the
// Pool's epoch are negative after a restore, so it is beyond all of them.
const unanswered = math.MinInt64

// slot is the Pool's side of a lease. Slots that are free have no host and are
// chained by next; slots whose call has not been answered are chained per host,
// oldest first.
type slot struct {
	host       *host
	ticket     breaker.Ticket
	start      int64
	answered   int64 // when Answered was called, unanswered before
	request    uint64
	gen        uint32
	next, prev int32
	attempt    int32
	fallback   bool
	sole       bool // the request has no other attempts: it ends with this one
}

// held returns the slot that a lease names, nil if it has been released.
func (e *engine) held(i int32, gen uint32) *slot {
	if uint(i) >= uint(len(e.slots)) {
		return nil
	}
	if s := &e.slots[i]; s.host != nil && s.gen == gen {
		return s
	}
	return nil
}

// begin gives a request its number and tells the budget that there is one.
func (e *engine) begin(now int64, req *Request) {
	if req.ID == 0 {
		e.requests++
		req.ID = e.requests
	}
	if rec := e.pending(); rec != nil {
		rec.Request = req.ID
	}
	e.totals.Requests++
	e.budget.Request(now)
}

// acquireSole is a request of one attempt.
func (e *engine) acquireSole(now int64, req *Request) (int32, error) {
	rec := e.open(RecordAcquire, 0)
	if rec != nil {
		rec.Own, rec.Key = req.ID == 0, req.Key
	}
	e.begin(now, req)
	i, err := e.acquire(now, req, 0, nil)
	if err != nil {
		e.budget.End(now)
	} else {
		e.slots[i].sole = true
	}
	if rec != nil && err == nil {
		rec.picked(&e.slots[i])
	}
	return i, err
}

// acquire picks a host for one attempt and leases it. tried is left out.
func (e *engine) acquire(now int64, req *Request, attempt int, tried []*host) (int32, error) {
	h, fallback := e.pick(now, req, attempt, tried)
	if h == nil {
		e.totals.Refused++
		return nobody, e.unavailable()
	}
	return e.hold(now, h, req.ID, attempt, fallback), nil
}

// pick chooses a host: from the first tier with a selectable one, else, if
// ejections may be ignored, from the first with an ejected one.
func (e *engine) pick(now int64, req *Request, attempt int, tried []*host) (h *host, fallback bool) {
	if e.selectable == 0 {
		if e.whenNone != IgnoreEjections || e.onlyFull > 0 {
			return nil, false
		}
		fallback = true
	}
	e.picking = pickRetry
	if attempt == 0 {
		e.picking = pickFirst
	}
	if e.stale {
		e.refit() // before the masks, which no NewPicker sees
	}
	for _, h := range tried {
		e.mask(h)
	}
	c := Call{
		now:   now,
		key:   req.Key.hash,
		draw:  mix(e.pickSalt+req.ID*golden) + uint64(attempt)*0xd1342543de82ef95,
		flags: uint64(attempt) << 1,
	}
	if req.Key.set {
		c.flags |= 1
	}
	for _, t := range e.tiers {
		v := &t.view
		v.set = &v.usable
		if fallback {
			v.set = &v.spare
		}
		if v.set.count > 0 {
			i := t.picker.Pick(c)
			if uint(i) >= uint(len(v.hosts)) || !v.set.has(i) {
				e.totals.BadPicks++
				i = v.set.next(0)
			}
			h = v.hosts[i]
		}
		v.set = &v.usable
		if h != nil {
			break
		}
	}
	e.unmask()
	e.picking = pickNone
	return h, fallback
}

// What is under way while a Picker may be running.
const (
	pickNone uint8 = iota
	pickFirst
	pickRetry
)

// abandon cleans up after a Picker that has panicked: the hosts that its request
// had tried are selectable again, and the request is over, or has back what it
// paid for the retry.
func (e *engine) abandon() {
	for _, t := range e.tiers {
		t.view.set = &t.view.usable
	}
	e.unmask()
	if e.picking == pickFirst {
		e.budget.End(e.now)
	} else {
		e.budget.Refund(e.now)
	}
	e.picking = pickNone
}

// mask takes a host that this request has tried out of its tier for one pick.
func (e *engine) mask(h *host) {
	if h.index < 0 || h.why&^outEjected != 0 {
		return
	}
	e.masked = append(e.masked, h)
	v := &h.tier.view
	v.spare.set(int(h.index), false)
	h.tier.setUsable(int(h.index), false)
}

// unmask undoes every mask.
func (e *engine) unmask() {
	for i, h := range e.masked {
		e.masked[i] = nil
		if h.index >= 0 {
			h.tier.view.spare.set(int(h.index), h.why == outEjected)
			h.tier.setUsable(int(h.index), h.why == 0)
		}
	}
	e.masked = e.masked[:0]
}

// hold takes a slot on a host that was picked.
func (e *engine) hold(now int64, h *host, request uint64, attempt int, fallback bool) int32 {
	i := e.free
	if i == nobody {
		i = int32(len(e.slots))
		e.slots = append(e.slots, slot{})
	} else {
		e.free = e.slots[i].next
	}
	s := &e.slots[i]
	s.host, s.start, s.answered = h, now, unanswered
	s.request, s.attempt, s.fallback, s.sole = request, int32(attempt), fallback, false
	s.gen++
	s.ticket, _ = h.breaker.Allow(now)
	e.enqueue(i)
	h.inflight++
	e.totals.Attempts++
	e.totals.Inflight++
	e.touched(h, now)
	return i
}

// enqueue puts a slot at the end of its host's list of calls that wait for an
// answer.
func (e *engine) enqueue(i int32) {
	s := &e.slots[i]
	h := s.host
	s.next, s.prev = nobody, h.newest
	if h.newest == nobody {
		h.oldest, h.oldestSince = i, s.start
	} else {
		e.slots[h.newest].next = i
	}
	h.newest = i
}

// unqueue takes a slot off its host's list of calls that wait for an answer.
func (e *engine) unqueue(i int32) {
	s := &e.slots[i]
	h := s.host
	if s.prev == nobody {
		h.oldest = s.next
	} else {
		e.slots[s.prev].next = s.next
	}
	if s.next == nobody {
		h.newest = s.prev
	} else {
		e.slots[s.next].prev = s.prev
	}
	h.oldestSince = never
	if h.oldest != nobody {
		h.oldestSince = e.slots[h.oldest].start
	}
}

// touched follows up on a change of h's in-flight count or breaker.
func (e *engine) touched(h *host, now int64) {
	if h.index < 0 {
		return
	}
	if h.breaker.Changed() {
		e.drainBreaker(h)
	}
	if h.limit > 0 || h.why != 0 || !h.breaker.Ready(now) || h.breaker.NextChange() != h.due {
		e.judge(h, now)
	}
	h.tier.changed(int(h.index))
}

// settle ends the attempt in slot i.
func (e *engine) settle(now int64, i int32, r Report) {
	s := &e.slots[i]
	h, start := s.host, s.start
	latency := r.Latency.Nanoseconds()
	switch {
	case r.Latency < 0:
		latency = -1
	case r.Latency > 0:
	case s.answered != unanswered:
		latency = saturatingSub(s.answered, start)
	default:
		latency = saturatingSub(now, start)
	}
	if s.answered == unanswered {
		e.unqueue(i)
	}
	s.host = nil
	s.next, e.free = e.free, i
	h.inflight--
	e.totals.Inflight--

	ok := r.Outcome == Success
	switch r.Outcome {
	case Success, Failure, TransportFailure:
		h.served++
		h.breaker.DoneIn(now, s.ticket, ok, latency) // one that is not known counts as 0
		e.score(h, now, latency, ok)
		if ok {
			e.totals.Successes++
			e.budget.Success(now)
		} else {
			h.failures++
			e.totals.Failures++
			e.budget.Failure(now)
		}
		if h.index >= 0 {
			e.record(h, now, start, latency, r.Outcome)
		}
	default:
		e.totals.Ignored++
		h.breaker.Cancel(now, s.ticket)
	}
	if s.attempt > 0 {
		e.budget.EndRetry(now, ok)
	}
	if s.sole {
		e.budget.End(now)
	}
	e.touched(h, now)
}

// score folds the attempt into the averages. A failure never lowers the latency
// that is read: it counts if it took longer.
func (e *engine) score(h *host, now, latency int64, ok bool) {
	if ok {
		if h.failing.Observe(now, 0); h.failed {
			h.noteFailing()
		}
		h.latency.Observe(now, latency) // one that is not known is ignored
		return
	}
	h.failing.Observe(now, failUnit)
	h.noteFailing()
	if current, _ := h.latency.Value(now); latency > current {
		h.latency.Observe(now, latency)
	}
}

// record tells the outlier detector.
func (e *engine) record(h *host, now, start, latency int64, o Outcome) {
	verdict := outlier.Success
	switch o {
	case Failure:
		verdict, latency = outlier.Failure, -1
	case TransportFailure:
		verdict, latency = outlier.TransportFailure, -1
	}
	e.outliers.Record(now, &h.outlier, start, verdict, latency)
	if e.outliers.Changed() {
		e.drainOutlier()
		e.judge(h, now)
		e.reschedule() // an ejection ends a ramp, whose next step may have been due
	}
	if at := e.outliers.NextChange(); at < e.due {
		e.due = at
	}
}

// since is for snapshots: how long ago, never negative.
func since(now, then int64) time.Duration {
	return time.Duration(max(0, saturatingSub(now, then)))
}
