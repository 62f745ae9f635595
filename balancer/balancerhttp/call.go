package balancerhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

const (
	// drainBytes and drainTime bound what is read of a response that is not handed
	// to the caller, so that its connection can be used again. A longer or slower
	// one costs a connection.
	drainBytes = 64 << 10
	drainTime  = 50 * time.Millisecond
)

// call is one RoundTrip.
type call struct {
	*Transport
	req        *http.Request
	ctx        context.Context
	try        balancer.Try[*Upstream]
	payload    payload
	repeatable bool
	ctxBound   bool // the deadline is that of ctx
	result     *balancer.Result

	// The latest attempt that has ended; resp xor err.
	sent bool
	resp *http.Response
	err  error
}

// attempt is what one attempt needs on the heap, in one piece: the base may go on
// using the request, and the caller the response, after RoundTrip has returned.
type attempt struct {
	req  http.Request
	url  url.URL
	gate gate
	body body
	// values holds the header's values, where they are few enough.
	values [6]string
}

// prepare does what comes before the first pick.
func (c *call) prepare() error {
	switch {
	case c.req.URL == nil:
		return errNoURL
	case c.req.URL.Opaque != "":
		return errOpaque
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	}
	// Whatever fails here, the caller's code included, fails before the Pool has
	// heard of the request.
	r := requestOf(c.ctx)
	if c.result = r.Result; c.result != nil {
		*c.result = balancer.Result{Attempts: c.result.Attempts[:0]}
	}
	if c.cfg.Key != nil && r.Key == (balancer.Key{}) {
		r.Key = c.cfg.Key(c.req)
	}
	if c.system {
		if d, ok := c.ctx.Deadline(); ok && (r.Deadline.IsZero() || d.Before(r.Deadline)) {
			r.Deadline, c.ctxBound = d, true
		}
	}
	c.repeatable = c.idempotent(c.req)
	if c.repeatable && c.cfg.MaxBuffer > 0 && !c.cfg.Pool.Retry.Off {
		if err := c.payload.buffer(c.req.ContentLength, c.cfg.MaxBuffer); err != nil {
			return err
		}
	}
	c.try = c.pool.Start(r)
	return nil
}

// send makes one attempt. It reports whether the request is over with it.
func (c *call) send(lease balancer.Lease[*Upstream]) (over bool) {
	a := new(attempt)
	var b io.ReadCloser
	var timer clock.Timer
	var r balancer.Report // Ignored, as long as the server has no part in it
	returned := false
	// The lease must come back on every way out.
	defer func() {
		if returned {
			return
		}
		// A panic, of GetBody, the base or Classify, or the end of the goroutine.
		c.try.Done(r)
		if timer != nil {
			timer.Stop()
		}
		if a.body.cancel != nil {
			a.body.cancel()
		}
		if b != nil {
			_ = b.Close()
		}
		c.discard()
	}()

	var err error
	if b, err = c.payload.next(&a.gate); err != nil {
		// The request cannot be made again after all. What is known is the answer.
		returned = true
		c.try.Stop()
		c.note(balancer.EndAnswered)
		return true
	}
	// Only now is it certain that the last response is not the answer.
	c.discard()
	c.build(a, lease.Upstream(), b)
	if c.cfg.AttemptTimeout > 0 {
		timer = c.limit(a)
	}
	start := c.start()
	r = final(balancer.Failure)
	c.sent = true
	c.resp, c.err = c.base.RoundTrip(&a.req)
	c.check(a, timer)
	r.Outcome = c.verdict()
	if c.mayRepeat(r.Outcome) && c.payload.again() {
		r.Retry = balancer.RetryAllowed
	}
	returned = true
	c.record(lease, r.Outcome, start)
	switch {
	case c.err != nil:
		c.try.Done(r)
		if a.body.cancel != nil {
			a.body.cancel()
		}
	case r.Retry == balancer.RetryAllowed:
		c.try.Done(r)
		if a.body.cancel != nil {
			// If this turns out to be the answer, reading it needs the context.
			a.body.source, c.resp.Body = c.resp.Body, &a.body
		}
	default:
		c.answer(a, lease, r)
	}
	if r.Retry != balancer.RetryAllowed {
		c.note(balancer.EndAnswered)
		return true
	}
	return false
}

// build makes the attempt's request.
func (c *call) build(a *attempt, u *Upstream, b io.ReadCloser) {
	a.req = *c.req // a request has no lock, and its context comes along
	u.join(&a.url, c.req.URL)
	a.req.URL = &a.url
	a.req.RequestURI = ""
	a.req.Header = a.header(c.req.Header)
	switch {
	case !c.cfg.KeepHost:
		a.req.Host = ""
	case a.req.Host == "":
		a.req.Host = c.req.URL.Host
	}
	if b != nil {
		a.req.Body, a.req.GetBody = b, c.payload.get
	}
	// A length that the caller gave stays, for the base to hold the body to. With
	// trailers the body must be sent in chunks, though its length is known by now.
	if n := c.payload.buffered; n >= 0 && a.req.ContentLength <= 0 && len(a.req.Trailer) == 0 {
		a.req.ContentLength = n
		if n == 0 {
			a.req.Body, a.req.GetBody = http.NoBody, nil
		}
	}
	a.body.ctx = c.ctx
}

// header copies a header, so that a base which sets something in it changes
// neither the caller's nor the next attempt's. It is http.Header.Clone with room
// at hand for the values.
func (a *attempt) header(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	n := 0
	for _, vs := range h {
		n += len(vs)
	}
	room := a.values[:0]
	if n > len(a.values) {
		room = make([]string, 0, n)
	}
	out := make(http.Header, len(h))
	for k, vs := range h {
		if vs == nil {
			out[k] = nil
			continue
		}
		from := len(room)
		room = append(room, vs...)
		out[k] = room[from:len(room):len(room)]
	}
	return out
}

// limit gives the attempt a context that AttemptTimeout ends.
func (c *call) limit(a *attempt) clock.Timer {
	// Not a context with a deadline: the timeout runs on the Pool's clock, and ends
	// with the headers while the context lives on for the body.
	ctx, cancel := context.WithCancelCause(c.ctx)
	a.req = *a.req.WithContext(ctx)
	a.body.cancel = func() { cancel(nil) }
	return c.clk.(clock.Scheduler).AfterFunc(c.cfg.AttemptTimeout, func() { cancel(timeoutError{}) })
}

// check brings what the base has returned into form: a response with a body or
// an error, never both. It ends the attempt's timeout, or has it decide.
func (c *call) check(a *attempt, timer clock.Timer) {
	late := timer != nil && !timer.Stop() && c.ctx.Err() == nil
	switch {
	case late:
		// A response that comes with the timeout has a context that has ended.
		c.discard()
		c.err = timeoutError{}
	case c.err != nil:
		err := c.err
		c.discard()
		c.err = err
	case c.resp == nil:
		c.err = errNoResponse
	case c.resp.Body == nil:
		c.resp.Body = http.NoBody
	}
}

// verdict classifies the latest attempt.
func (c *call) verdict() balancer.Outcome {
	if c.err != nil && c.payload.failed() {
		// The caller's body broke off, whatever the base makes of it.
		return balancer.Ignored
	}
	return c.classify(c.req, c.resp, c.err)
}

// mayRepeat tells whether the request, its body aside, should be sent again.
func (c *call) mayRepeat(o balancer.Outcome) bool {
	// An outcome that is Ignored - the caller is gone, or the fault is its own -
	// would meet the same end elsewhere.
	if c.err != nil {
		return o == balancer.TransportFailure && (c.repeatable || neverSent(c.err))
	}
	bad := o == balancer.Failure || o == balancer.TransportFailure
	return bad && c.repeatable && c.retryStatus(c.resp.StatusCode)
}

// answer makes the latest response the one that the caller gets. From here on
// its body ends the attempt.
func (c *call) answer(a *attempt, lease balancer.Lease[*Upstream], r balancer.Report) {
	b := &a.body
	if c.resp.Body == http.NoBody {
		c.try.Done(r)
		if b.cancel != nil {
			b.cancel()
		}
		return
	}
	// The Try moves along, so that the request is under way as long as its body.
	lease.Answered()
	b.source, b.try, b.outcome = c.resp.Body, c.try, r.Outcome
	if c.resp.StatusCode == http.StatusSwitchingProtocols {
		c.resp.Body = b.connection()
	} else {
		c.resp.Body = b
	}
	if !b.upgrade {
		b.watch()
	}
}

// discard gives up the response of an attempt that has been superseded. It is
// read to its end if that is near, so that the connection can be used again.
func (c *call) discard() {
	resp := c.resp
	c.resp, c.err = nil, nil
	if resp == nil || resp.Body == nil {
		return
	}
	// Without timers a body that stalls would stall the retry.
	if s, ok := c.clk.(clock.Scheduler); ok && resp.ContentLength <= drainBytes && resp.StatusCode != http.StatusSwitchingProtocols {
		timer := s.AfterFunc(drainTime, func() { _ = resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, drainBytes)
		timer.Stop()
	}
	_ = resp.Body.Close()
}

// sleep waits on the Pool's clock, which the Pool has found to have timers.
func (c *call) sleep(d time.Duration) error {
	fired := make(chan struct{})
	timer := c.clk.(clock.Scheduler).AfterFunc(d, func() { close(fired) })
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
		return c.ctx.Err()
	case <-fired:
		return nil
	}
}

// giveUp is the error of a request whose context has ended between two
// attempts. errors.Is finds the context's error in it, and the last attempt's.
func (c *call) giveUp(ctxErr error) error {
	c.try.Stop()
	c.note(balancer.EndAnswered)
	resp, last := c.resp, c.err
	c.discard()
	switch {
	case resp != nil:
		return fmt.Errorf("balancerhttp: %w; last attempt: %s", ctxErr, resp.Status)
	case errors.Is(last, ctxErr):
		return last
	}
	return fmt.Errorf("balancerhttp: %w; last attempt: %w", ctxErr, last)
}

// refused is the error of a request that was never sent.
func (c *call) refused(err error) error {
	if c.ctxBound && errors.Is(err, balancer.ErrDeadline) {
		return fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return err
}

// start is when an attempt is sent, if anybody wants to know.
func (c *call) start() (now time.Time) {
	if c.result != nil {
		now = c.clk.Now()
	}
	return now
}

// record adds the latest attempt to the caller's Result.
func (c *call) record(lease balancer.Lease[*Upstream], o balancer.Outcome, start time.Time) {
	if c.result == nil {
		return
	}
	c.result.Request = lease.Request()
	c.result.Attempts = append(c.result.Attempts, balancer.Attempt{
		Upstream: lease.Upstream().ID(), Outcome: o, Start: start,
		Latency: c.clk.Now().Sub(start), Err: c.err, Fallback: lease.Fallback(),
	})
}

// note writes why there are no more attempts into the caller's Result.
func (c *call) note(end balancer.End) {
	if c.result != nil {
		c.result.End = end
	}
}
