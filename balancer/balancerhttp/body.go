package balancerhttp

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// body is the body of a response that goes to the caller. The attempt, and with
// it the request, is not over until the first of: end of the body, read error,
// Close, end of the request's context.
type body struct {
	source  io.ReadCloser
	try     balancer.Try[*Upstream] // zero if the attempt is over already
	outcome balancer.Outcome        // the verdict on the status
	ctx     context.Context         // the request's
	unwatch func() bool             // undoes the watch on ctx; nil if there is none
	cancel  func()                  // ends the attempt's own context; nil if it has none
	upgrade bool                    // a connection: its end is its Close alone

	reading atomic.Bool
	done    atomic.Bool
}

// watch makes the end of the request's context an end of the body. A caller
// that drops a response without closing it has at least this.
func (b *body) watch() {
	if b.ctx.Done() != nil {
		b.unwatch = context.AfterFunc(b.ctx, b.abandoned)
	}
}

// abandoned is the end of the request's context. It may run before watch has
// returned, so it leaves b.unwatch alone.
func (b *body) abandoned() {
	o := b.outcome
	switch {
	case errors.Is(b.ctx.Err(), context.Canceled):
		o = balancer.Ignored
	case b.reading.Load():
		// The deadline passed while the caller was waiting for the server. Where it
		// passed and nobody was, the server has done nothing wrong.
		o = balancer.TransportFailure
	}
	b.settle(o)
}

// settle ends the attempt, once.
func (b *body) settle(o balancer.Outcome) bool {
	if !b.done.CompareAndSwap(false, true) {
		return false
	}
	b.try.Done(final(o))
	return true
}

// final is the report on an attempt that nothing follows.
func final(o balancer.Outcome) balancer.Report {
	return balancer.Report{Outcome: o, Retry: balancer.RetryForbidden}
}

// end settles, and lets go of what was there for the caller's reading.
func (b *body) end(o balancer.Outcome) {
	if b.settle(o) && b.unwatch != nil {
		b.unwatch()
	}
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Store(true)
	n, err := b.source.Read(p)
	if err != nil && !b.upgrade {
		switch {
		case err == io.EOF:
			b.end(b.outcome)
		case errors.Is(b.ctx.Err(), context.Canceled):
			b.end(balancer.Ignored)
		default:
			b.end(balancer.TransportFailure)
		}
		if b.cancel != nil {
			b.cancel()
		}
	}
	// Not before the verdict: see abandoned.
	b.reading.Store(false)
	return n, err
}

// Close implements io.Closer. It settles first, so that the error which a
// blocked Read gets from the Close is nobody's failure.
func (b *body) Close() error {
	b.end(b.outcome)
	err := b.source.Close()
	if b.cancel != nil {
		b.cancel()
	}
	return err
}

// upgraded is the body after 101 Switching Protocols: a connection.
type upgraded struct {
	*body
	io.Writer
}

// halfCloser is an upgraded that can close its sending side alone.
type halfCloser struct {
	upgraded
	half interface{ CloseWrite() error }
}

// CloseWrite closes the sending side.
func (h halfCloser) CloseWrite() error { return h.half.CloseWrite() }

// connection makes b a body that can be written to, if what it wraps can be.
func (b *body) connection() io.ReadCloser {
	w, ok := b.source.(io.Writer)
	if !ok {
		return b
	}
	b.upgrade = true
	u := upgraded{b, w}
	if h, ok := b.source.(interface{ CloseWrite() error }); ok {
		return halfCloser{u, h}
	}
	return u
}
