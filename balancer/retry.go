package balancer

import (
	"errors"
	"fmt"
	"time"
)

// ErrDeadline means that the request's deadline had passed before its first
// attempt.
var ErrDeadline = errors.New("balancer: the request's deadline has passed")

// StepKind says what a Try wants done next.
type StepKind uint8

const (
	// StepSend: send one attempt under Step.Lease, then call Done.
	StepSend StepKind = iota + 1
	// StepWait: let Step.Wait pass, then call Next.
	StepWait
	// StepEnd: the request is over, for the reason Step.End. The answer is that of
	// the latest attempt, or Step.Err if there was none.
	StepEnd
)

// Step is one decision of a Try.
type Step[U Upstream] struct {
	Kind  StepKind      // which of the fields below counts
	Lease Lease[U]      // for StepSend
	Wait  time.Duration // for StepWait, and positive
	End   End           // for StepEnd
	Err   error         // for StepEnd without an attempt: why there was none
}

// End is the reason why a request is over.
type End uint8

const (
	// EndAnswered: the latest attempt succeeded, or its outcome may not be tried
	// again: ignored, or forbidden by Config.Retry or the Report.
	EndAnswered End = iota + 1
	// EndAttempts: all retries that Retry.Max allows are used up.
	EndAttempts
	// EndNoTarget: no upstream is left that this request has not tried. Nothing
	// was taken from the budget.
	EndNoTarget
	// EndBudget: the retry budget refused.
	EndBudget
	// EndDeadline: the deadline has passed, or the wait would reach it.
	EndDeadline
	// EndUnavailable: nothing could be picked for the first attempt.
	EndUnavailable
	// EndStopped: the driver gave up and called Stop.
	EndStopped
)

// String returns the name of the reason.
func (r End) String() string {
	names := [...]string{"", "answered", "attempts", "no_target", "budget", "deadline", "unavailable", "stopped"}
	if r == 0 || int(r) >= len(names) {
		return fmt.Sprintf("End(%d)", uint8(r))
	}
	return names[r]
}

// Try is the retry machine of one request: what it has tried, what it may still
// spend, and how long it may take. It decides and never acts: a driver - Do, an
// http.RoundTripper, a simulator - does what Next says.
//
//	try := pool.Start(req)
//	for {
//		step := try.Next()
//		switch step.Kind {
//		case balancer.StepSend:
//			try.Done(balancer.Report{Outcome: send(step.Lease.Upstream())})
//		case balancer.StepWait:
//			sleep(step.Wait)
//		case balancer.StepEnd:
//			return
//		}
//	}
//
// A retry goes to an upstream that the request has not tried, or first to the
// same one if Retry.SameUpstream says so, and never to one whose breaker would
// refuse it. The budget is asked before any wait, and only if there is somewhere
// to go. A driver that gives up calls Stop. A Try is for one request and one
// goroutine at a time.
type Try[U Upstream] struct {
	pool   *Pool[U]
	course course
	lease  Lease[U]
}

// Start begins a request. It decides nothing yet: the first Next does.
func (p *Pool[U]) Start(req Request) Try[U] {
	return Try[U]{pool: p, course: course{req: req, deadline: p.e.instant(req.Deadline)}}
}

// Request is the request's number, 0 before the first Next if the caller gave
// none.
func (t *Try[U]) Request() uint64 { return t.course.req.ID }

// Retries is how many retries were begun.
func (t *Try[U]) Retries() int { return t.course.retries }

// Next decides what to do. While an attempt is out it repeats its StepSend, and
// during a wait the rest of its StepWait.
func (t *Try[U]) Next() Step[U] {
	switch t.course.phase {
	case phaseSent:
		return Step[U]{Kind: StepSend, Lease: t.lease}
	case phaseEnded:
		return Step[U]{Kind: StepEnd, End: t.course.end}
	}
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	kind, wait, err := e.next(e.advance(now), &t.course)
	switch kind {
	case StepSend:
		t.lease = t.pool.lease(t.course.slot)
		return Step[U]{Kind: StepSend, Lease: t.lease}
	case StepWait:
		return Step[U]{Kind: StepWait, Wait: time.Duration(wait)}
	}
	return Step[U]{Kind: StepEnd, End: t.course.end, Err: err}
}

// Done settles the attempt of the latest StepSend. Without one it does nothing.
func (t *Try[U]) Done(r Report) {
	if t.course.phase != phaseSent {
		return
	}
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	e.done(e.advance(now), &t.course, r)
}

// Stop ends the request where it is: a lease that is out is released as
// Ignored, and a retry that was paid for and not sent gives its cost back.
func (t *Try[U]) Stop() {
	if t.course.phase == phaseStart {
		t.course.phase, t.course.end = phaseEnded, EndStopped
	}
	if t.course.phase == phaseEnded {
		return
	}
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	e.stop(e.advance(now), &t.course)
}

// triedInline is how many hosts a course remembers without allocating.
const triedInline = 4

// course is how far one request has come.
type course struct {
	req      Request
	deadline int64
	host     *host // of the latest attempt
	slot     int32 // its lease
	gen      uint32
	phase    phase
	end      End
	retries  int
	same     int   // retries in a row on the same upstream
	until    int64 // end of the wait
	inline   [triedInline]*host
	more     []*host
	tried    int
}

type phase uint8

const (
	phaseStart   phase = iota // no attempt yet
	phaseSent                 // a lease is out
	phaseFailed               // the attempt failed in a way that may be retried
	phaseWaiting              // the budget has been paid and a wait is on
	phaseEnded
)

// next decides what a course that has no attempt out does at now; the lock is
// held. For StepSend the lease is in the course, for StepEnd the reason.
func (e *engine) next(now int64, c *course) (kind StepKind, wait int64, err error) {
	rec := e.open(RecordNext, c.req.ID)
	if rec != nil {
		rec.from(e, c)
		rec.Own = c.req.ID == 0
	}
	switch {
	case c.phase == phaseStart:
		kind, err = e.first(now, c)
	default:
		kind, wait = e.again(now, c)
	}
	if rec != nil {
		if rec.Step, rec.Wait = kind, wait; kind == StepEnd {
			rec.End = c.end
		}
		if kind == StepSend {
			rec.picked(&e.slots[c.slot])
		}
	}
	return kind, wait, err
}

// first makes the first attempt.
func (e *engine) first(now int64, c *course) (StepKind, error) {
	e.begin(now, &c.req)
	if now >= c.deadline {
		return e.over(now, c, EndDeadline), ErrDeadline
	}
	i, err := e.acquire(now, &c.req, 0, nil)
	if err != nil {
		return e.over(now, c, EndUnavailable), err
	}
	return e.send(c, i), nil
}

// again decides on a retry, and makes it if there is nothing to wait for.
func (e *engine) again(now int64, c *course) (StepKind, int64) {
	if c.phase == phaseFailed {
		if end := e.mayRetry(now, c); end != 0 {
			return e.over(now, c, end), 0
		}
		if wait := e.retry.Backoff.wait(c.retries+1, e.backoffDraw(c.req.ID, c.retries)); wait > 0 {
			if saturatingAdd(now, wait) >= c.deadline {
				e.budget.Refund(now)
				return e.over(now, c, EndDeadline), 0
			}
			c.phase, c.until = phaseWaiting, saturatingAdd(now, wait)
		}
	}
	if c.phase == phaseWaiting && now < c.until {
		return StepWait, c.until - now
	}
	// What the budget was paid for may be gone by now.
	switch {
	case now >= c.deadline:
		e.budget.Refund(now)
		return e.over(now, c, EndDeadline), 0
	case !e.sameAgain(c) && !e.hasTarget(c.triedHosts()):
		e.budget.Refund(now)
		return e.over(now, c, EndNoTarget), 0
	}
	c.retries++
	e.totals.Retries++
	if e.sameAgain(c) {
		c.same++
		return e.send(c, e.hold(now, c.host, c.req.ID, c.retries, false)), 0
	}
	c.same = 0
	c.phase = phaseFailed // if a Picker panics, nothing has been paid
	i, err := e.acquire(now, &c.req, c.retries, c.triedHosts())
	if err != nil {
		// hasTarget has just said otherwise.
		return e.over(now, c, EndNoTarget), 0
	}
	e.totals.Failovers++
	return e.send(c, i), 0
}

func (e *engine) send(c *course, i int32) StepKind {
	s := &e.slots[i]
	if s.host != c.host {
		c.remember(s.host)
	}
	c.host, c.slot, c.gen, c.phase = s.host, i, s.gen, phaseSent
	return StepSend
}

// over ends the request.
func (e *engine) over(now int64, c *course, end End) StepKind {
	c.phase, c.end = phaseEnded, end
	e.budget.End(now)
	return StepEnd
}

// mayRetry decides whether the attempt that failed is followed by another one,
// and pays for it.
func (e *engine) mayRetry(now int64, c *course) End {
	switch {
	case c.retries >= e.maxRetries:
		return EndAttempts
	case now >= c.deadline:
		return EndDeadline
	case !e.sameAgain(c) && !e.hasTarget(c.triedHosts()):
		return EndNoTarget
	case !e.budget.Withdraw(now):
		e.totals.Denied++
		return EndBudget
	}
	e.totals.Granted++
	return 0
}

// sameAgain tells whether the next retry goes to the same upstream: there is
// one left for it, and it is selectable.
func (e *engine) sameAgain(c *course) bool {
	return c.same < e.retry.SameUpstream && c.host != nil && c.host.index >= 0 && c.host.why == 0
}

// done settles the attempt that is out; the lock is held. One that the driver
// has released itself is taken as it reports it here.
func (e *engine) done(now int64, c *course, r Report) {
	rec := e.open(RecordDone, c.req.ID)
	if rec != nil {
		rec.from(e, c)
		rec.report(r)
	}
	if e.held(c.slot, c.gen) != nil {
		e.settle(now, c.slot, r)
	}
	again := r.Outcome == TransportFailure || r.Outcome == Failure && e.retry.OnFailure
	switch {
	case r.Outcome != Failure && r.Outcome != TransportFailure, r.Retry == RetryForbidden:
		again = false
	case r.Retry == RetryAllowed:
		again = true
	}
	if again {
		c.phase = phaseFailed
		return
	}
	if rec != nil {
		rec.Over = true
	}
	e.over(now, c, EndAnswered)
}

// stop ends a course that has begun; the lock is held.
func (e *engine) stop(now int64, c *course) {
	if rec := e.open(RecordStop, c.req.ID); rec != nil {
		rec.from(e, c)
	}
	switch c.phase {
	case phaseSent:
		if e.held(c.slot, c.gen) != nil {
			e.settle(now, c.slot, Report{})
		}
	case phaseWaiting:
		e.budget.Refund(now)
	}
	e.over(now, c, EndStopped)
}

func (c *course) remember(h *host) {
	if c.tried < triedInline {
		c.inline[c.tried] = h
	} else {
		if c.more == nil {
			c.more = append(c.more, c.inline[:]...)
		}
		c.more = append(c.more, h)
	}
	c.tried++
}

func (c *course) triedHosts() []*host {
	if c.more != nil {
		return c.more
	}
	return c.inline[:c.tried]
}

// hasTarget tells whether a pick that leaves out tried would find a host.
func (e *engine) hasTarget(tried []*host) bool {
	want, n := reasons(0), e.selectable
	if n == 0 {
		if e.whenNone != IgnoreEjections || e.onlyFull > 0 {
			return false
		}
		want = outEjected
		for _, t := range e.tiers {
			n += t.view.spare.count
		}
	}
	for _, h := range tried {
		if h.index >= 0 && h.why == want {
			n--
		}
	}
	return n > 0
}

func (e *engine) backoffDraw(request uint64, retry int) uint64 {
	return mix(draw(e.seed, streamBackoff, request) + uint64(retry)*golden)
}
