package balancer

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/clock"
)

// Result is what happened to one request, for a caller that wants to log it or
// put it into a trace.
type Result struct {
	Request  uint64    // the request's number
	Attempts []Attempt // in the order sent
	End      End       // why there were no more
}

// Attempt is one attempt of a Result.
type Attempt struct {
	Upstream string        // id
	Outcome  Outcome       // the verdict
	Start    time.Time     // when it was sent, on the Pool's clock
	Latency  time.Duration // until the call returned
	Err      error         // what the call returned
	Fallback bool          // the upstream was ejected and nothing else was left
}

// Do runs call with an upstream, and again with others as Config.Retry, the
// budget and the deadline allow, until an attempt needs no retry. It returns
// what the last attempt returned - or, if there was no attempt, why: errors
// that match ErrNoUpstreams, ErrNoneAvailable or ErrDeadline. If ctx ends during
// a wait, the error matches both ctx's and the last attempt's.
//
// The attempt is settled on every way out of call; a panic counts as a Failure
// and goes on. The deadline of ctx counts as the request's own if the Pool's
// clock is the system's; under another clock only Request.Deadline does.
func (p *Pool[U]) Do(ctx context.Context, req Request, call func(context.Context, U) error) error {
	if d, ok := ctx.Deadline(); ok && clock.IsSystem(p.e.clk) && (req.Deadline.IsZero() || d.Before(req.Deadline)) {
		req.Deadline = d
	}
	try := p.Start(req)
	defer try.Stop() // does nothing but after a panic, or the end of the goroutine
	res := req.Result
	if res != nil {
		*res = Result{Attempts: res.Attempts[:0]}
	}
	var last error
	tried := false
	for {
		if err := ctx.Err(); err != nil && try.course.phase != phaseEnded {
			return p.giveUp(&try, res, err, last)
		}
		step := try.Next()
		switch step.Kind {
		case StepSend:
			tried = true
			last = p.attempt(ctx, &try, step.Lease, call, res)
		case StepWait:
			if err := sleep(ctx, p.e.clk, step.Wait); err != nil {
				return p.giveUp(&try, res, err, last)
			}
		default:
			if res != nil {
				res.Request, res.End = try.Request(), step.End
			}
			if !tried {
				return step.Err
			}
			return last
		}
	}
}

// attempt makes one call and settles it, also when the call panics or ends its
// goroutine.
func (p *Pool[U]) attempt(ctx context.Context, try *Try[U], l Lease[U], call func(context.Context, U) error, res *Result) (err error) {
	outcome := Failure
	var start int64
	if res != nil {
		start = p.e.slotStart(l.slot, l.gen)
	}
	defer func() {
		if res != nil {
			res.Attempts = append(res.Attempts, Attempt{
				Upstream: l.upstream.ID(), Outcome: outcome, Start: p.e.time(start),
				Latency: since(p.e.read(), start), Err: err, Fallback: l.fallback,
			})
			res.Request = l.request
		}
		try.Done(Report{Outcome: outcome})
	}()
	err = call(ctx, l.upstream)
	outcome = p.e.cfg.classify()(ctx, err)
	return err
}

// slotStart is when a lease that is held was acquired.
func (e *engine) slotStart(i int32, gen uint32) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.held(i, gen); s != nil {
		return s.start
	}
	return e.now
}

// giveUp stops the request and joins the end of the caller's context with the
// last attempt's error, so that errors.Is finds both.
func (p *Pool[U]) giveUp(try *Try[U], res *Result, ctxErr, last error) error {
	try.Stop()
	if res != nil {
		res.Request, res.End = try.Request(), EndStopped
	}
	if last == nil {
		return ctxErr
	}
	return fmt.Errorf("balancer: %w; last attempt: %w", ctxErr, last)
}

// sleep waits on the Pool's clock, which Validate has found to have timers.
func sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	fired := make(chan struct{})
	timer := clk.(clock.Scheduler).AfterFunc(d, func() { close(fired) })
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-fired:
		return nil
	}
}
