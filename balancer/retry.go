package balancer

import (
	"cmp"
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
)

// String returns the name of the reason.
func (r End) String() string {
	names := [...]string{"", "answered", "attempts", "no_target", "budget", "deadline", "unavailable"}
	if r == 0 || int(r) >= len(names) {
		return fmt.Sprintf("End(%d)", uint8(r))
	}
	return names[r]
}

// triedInline is how many hosts a Try remembers without allocating.
const triedInline = 4

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
// to go. A Try is for one request and one goroutine at a time.
type Try[U Upstream] struct {
	pool     *Pool[U]
	req      Request
	deadline int64
	lease    Lease[U]
	host     *host
	phase    phase
	end      End
	retries  int
	same     int
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

// Start begins a request. It decides nothing yet: the first Next does.
func (p *Pool[U]) Start(req Request) Try[U] {
	return Try[U]{pool: p, req: req, deadline: p.e.instant(req.Deadline)}
}

// Request is the request's number, 0 before the first Next if the caller gave
// none.
func (t *Try[U]) Request() uint64 { return t.req.ID }

// Retries is how many retries were begun.
func (t *Try[U]) Retries() int { return t.retries }

// Next decides what to do. While an attempt is out it repeats its StepSend, and
// during a wait the rest of its StepWait.
func (t *Try[U]) Next() Step[U] {
	switch t.phase {
	case phaseSent:
		return Step[U]{Kind: StepSend, Lease: t.lease}
	case phaseEnded:
		return Step[U]{Kind: StepEnd, End: t.end}
	}
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	now = e.advance(now)
	if t.phase == phaseStart {
		return t.first(now)
	}
	if t.phase == phaseFailed {
		if end := t.mayRetry(now); end != 0 {
			return t.over(end, nil)
		}
		if wait := e.retry.Backoff.wait(t.retries+1, e.backoffDraw(t.req.ID, t.retries)); wait > 0 {
			if saturatingAdd(now, wait) >= t.deadline {
				e.budget.Refund(now)
				return t.over(EndDeadline, nil)
			}
			t.phase, t.until = phaseWaiting, saturatingAdd(now, wait)
		}
	}
	if t.phase == phaseWaiting && now < t.until {
		return Step[U]{Kind: StepWait, Wait: time.Duration(t.until - now)}
	}
	// What the budget was paid for may be gone by now.
	switch {
	case now >= t.deadline:
		e.budget.Refund(now)
		return t.over(EndDeadline, nil)
	case !t.sameAgain() && !e.hasTarget(t.triedHosts()):
		e.budget.Refund(now)
		return t.over(EndNoTarget, nil)
	}
	return t.again(now)
}

// first makes the first attempt; the lock is held.
func (t *Try[U]) first(now int64) Step[U] {
	e := &t.pool.e
	e.begin(now, &t.req)
	if now >= t.deadline {
		return t.over(EndDeadline, ErrDeadline)
	}
	i, err := e.acquire(now, &t.req, 0, nil)
	if err != nil {
		return t.over(EndUnavailable, err)
	}
	return t.send(i)
}

// again makes a retry, which has been paid for.
func (t *Try[U]) again(now int64) Step[U] {
	e := &t.pool.e
	t.retries++
	e.totals.Retries++
	if t.sameAgain() {
		t.same++
		return t.send(e.hold(now, t.host, t.req.ID, t.retries, false))
	}
	t.same = 0
	i, err := e.acquire(now, &t.req, t.retries, t.triedHosts())
	if err != nil {
		// hasTarget has just said otherwise.
		return t.over(EndNoTarget, nil)
	}
	e.totals.Failovers++
	return t.send(i)
}

func (t *Try[U]) send(i int32) Step[U] {
	h := t.pool.e.slots[i].host
	if h != t.host {
		t.remember(h)
	}
	t.host, t.lease, t.phase = h, t.pool.lease(i), phaseSent
	return Step[U]{Kind: StepSend, Lease: t.lease}
}

// over ends the request; the lock is held.
func (t *Try[U]) over(end End, err error) Step[U] {
	t.phase, t.end = phaseEnded, end
	t.pool.e.budget.End(t.pool.e.now)
	return Step[U]{Kind: StepEnd, End: end, Err: err}
}

// mayRetry decides whether the attempt that failed is followed by another one,
// and pays for it; the lock is held.
func (t *Try[U]) mayRetry(now int64) End {
	e := &t.pool.e
	switch {
	case t.retries >= e.maxRetries:
		return EndAttempts
	case now >= t.deadline:
		return EndDeadline
	case !t.sameAgain() && !e.hasTarget(t.triedHosts()):
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
func (t *Try[U]) sameAgain() bool {
	return t.same < t.pool.e.retry.SameUpstream && t.host != nil && t.host.index >= 0 && t.host.why == 0
}

// Done settles the attempt of the latest StepSend. Without one it does nothing.
func (t *Try[U]) Done(r Report) {
	if t.phase != phaseSent {
		return
	}
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	now = e.advance(now)
	if e.held(t.lease.slot, t.lease.gen) != nil {
		e.settle(now, t.lease.slot, r)
	}
	again := r.Outcome == TransportFailure || r.Outcome == Failure && t.pool.e.retry.OnFailure
	switch {
	case r.Outcome != Failure && r.Outcome != TransportFailure, r.Retry == RetryForbidden:
		again = false
	case r.Retry == RetryAllowed:
		again = true
	}
	if again {
		t.phase = phaseFailed
		return
	}
	t.over(EndAnswered, nil)
}

// Stop ends the request where it is: a lease that is out is released as
// Ignored, and a retry that was paid for and not sent gives its cost back.
func (t *Try[U]) Stop() {
	e := &t.pool.e
	now := e.read()
	e.mu.Lock()
	defer e.unlock()
	now = e.advance(now)
	switch t.phase {
	case phaseSent:
		if e.held(t.lease.slot, t.lease.gen) != nil {
			e.settle(now, t.lease.slot, Report{})
		}
	case phaseWaiting:
		e.budget.Refund(now)
	case phaseStart, phaseEnded:
		t.phase, t.end = phaseEnded, cmp.Or(t.end, EndAnswered)
		return
	}
	t.over(EndAnswered, nil)
}

func (t *Try[U]) remember(h *host) {
	if t.tried < triedInline {
		t.inline[t.tried] = h
	} else {
		if t.more == nil {
			t.more = append(t.more, t.inline[:]...)
		}
		t.more = append(t.more, h)
	}
	t.tried++
}

func (t *Try[U]) triedHosts() []*host {
	if t.more != nil {
		return t.more
	}
	return t.inline[:t.tried]
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
