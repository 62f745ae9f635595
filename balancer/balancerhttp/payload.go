package balancerhttp

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
)

// payload is the body of one request, as a source of bodies for its attempts.
// An http.RoundTripper owns the body it is given and may go on reading it after
// it has returned, so no attempt ever gets what another one has held - with one
// exception: a stream that nobody has read from yet, which changes hands
// through gates.
type payload struct {
	// own is the caller's body while it has not been handed to an attempt.
	own io.ReadCloser
	// get makes a fresh body, if that is possible.
	get func() (io.ReadCloser, error)
	// stream is a body that exists once, and gate what the latest attempt has of
	// it.
	stream io.ReadCloser
	gate   *gate
	// buffered is the length of a body that was read into memory, else -1.
	buffered int64
}

// open takes over the body of a request.
func (p *payload) open(req *http.Request) {
	p.buffered = -1
	switch {
	case req.Body == nil || req.Body == http.NoBody:
	case req.GetBody != nil:
		p.own, p.get = req.Body, req.GetBody
	default:
		p.own, p.stream = req.Body, req.Body
	}
}

// buffer reads a stream of at most limit bytes into memory. A longer one stays
// a stream, from its first byte on.
func (p *payload) buffer(length, limit int64) error {
	if p.stream == nil || length > limit {
		return nil
	}
	limit = min(limit, math.MaxInt64-1)
	var buf bytes.Buffer
	// The byte beyond tells a body that fits from one that does not. The length is
	// what somebody says, so it reserves no memory.
	n, err := buf.ReadFrom(&io.LimitedReader{R: p.stream, N: limit + 1})
	if err != nil {
		return fmt.Errorf("balancerhttp: reading the request body: %w", err)
	}
	data := buf.Bytes()
	if n > limit {
		p.stream = &prefixed{io.MultiReader(bytes.NewReader(data), p.stream), p.stream}
		p.own = p.stream
		return nil
	}
	p.close()
	p.stream, p.buffered = nil, n
	p.get = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	return nil
}

// prefixed is a stream whose beginning has been read already.
type prefixed struct {
	io.Reader
	io.Closer
}

// next is the body of the next attempt; g is room for its gate.
func (p *payload) next(g *gate) (io.ReadCloser, error) {
	switch {
	case p.stream != nil:
		g.source = p.stream
		p.gate, p.own = g, nil
		return g, nil
	case p.own != nil:
		b := p.own
		p.own = nil
		return b, nil
	case p.get != nil:
		return p.get()
	}
	return nil, nil
}

// again tells whether another attempt can have the whole body. If it can and
// the body is a stream, the latest attempt has lost it.
func (p *payload) again() bool { return p.gate == nil || p.gate.seal() }

// failed tells whether the latest attempt got an error from the caller's stream.
func (p *payload) failed() bool { return p.gate != nil && p.gate.failed() }

// close is called when no further attempt will be made: what no attempt closes
// is closed here.
func (p *payload) close() {
	if p.own != nil {
		_ = p.own.Close()
		p.own = nil
	}
	if p.gate != nil {
		p.gate.last()
		p.gate = nil
	}
}

// gate stands between one attempt and a stream. It notices the first Read: until
// then the stream can be given to another attempt, and a Close is kept back.
type gate struct {
	source io.ReadCloser

	mu     sync.Mutex // guards below
	read   bool       // something may have been read
	sealed bool       // the stream is no longer this attempt's
	closed bool       // by the attempt
	final  bool       // no other attempt will want the stream
	broken bool       // the stream returned an error
}

// Read implements io.Reader.
func (g *gate) Read(p []byte) (int, error) {
	g.mu.Lock()
	if g.sealed || g.closed {
		g.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	g.read = true
	g.mu.Unlock()
	n, err := g.source.Read(p)
	if err != nil && err != io.EOF {
		g.mu.Lock()
		// A stream that is closed under its reader is not the caller's failure.
		g.broken = g.broken || !g.closed
		g.mu.Unlock()
	}
	return n, err
}

// Close implements io.Closer.
func (g *gate) Close() error {
	g.mu.Lock()
	through := !g.closed && !g.sealed && (g.read || g.final)
	g.closed = true
	g.mu.Unlock()
	if !through {
		return nil
	}
	return g.source.Close()
}

// seal takes an untouched stream away from the attempt, and reports whether it
// was untouched.
func (g *gate) seal() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read {
		return false
	}
	g.sealed = true
	return true
}

// last leaves the stream to the attempt that has it, or closes it if none will.
func (g *gate) last() {
	g.mu.Lock()
	g.final = true
	abandoned := g.sealed || g.closed && !g.read
	g.mu.Unlock()
	if abandoned {
		_ = g.source.Close()
	}
}

func (g *gate) failed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}
