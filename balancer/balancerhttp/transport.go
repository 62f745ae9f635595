// Package balancerhttp sends HTTP requests to the backends of a Pool. A
// [Transport] is an http.RoundTripper: with it, an http.Client or a
// httputil.ReverseProxy balances, fails over, ejects backends that misbehave and
// keeps to a retry budget, and is otherwise used as ever.
//
//	transport, err := balancerhttp.NewTransport(balancerhttp.Config{},
//		"http://10.0.0.1:8080", "http://10.0.0.2:8080", "http://10.0.0.3:8080")
//	if err != nil {
//		return err
//	}
//	client := &http.Client{Transport: transport}
//	resp, err := client.Get("http://orders/42") // the host is the Pool's choice
//
// # What is sent again
//
// A request is sent to another backend when no answer came, or a 502, 503 or
// 504, and sending it twice does no harm: its method is idempotent, it has an
// Idempotency-Key header, or there was no connection to send it on. Its body
// must be available again: there is none, it has a GetBody, it was buffered
// (Config.MaxBuffer), or nobody has read from it. How often is said by
// Config.Pool.Retry, and Config.Pool.Budget bounds the retries of all requests
// together. When nothing is left to try, the caller gets the last response, its
// body intact, or the last error.
//
// # What is held against a backend
//
// The function [Classify] documents the verdict on a response or an error. The
// time to the response headers is what the latency score measures; it includes
// dialling. The request counts as in flight until the response's body has ended,
// failed or been closed, or the request's context has ended. A body that breaks
// off is a transport failure of the backend, unless the caller's context was
// cancelled. One that the caller closes early is as good as its status.
//
// A response that would have been sent again, had there been another backend,
// attempts or budget left, is the exception: its attempt is over at the
// headers, since the decision to retry takes its verdict into account.
package balancerhttp

import (
	"errors"
	"net/http"
	"slices"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

// Transport is an http.RoundTripper over a Pool of backends. It takes the path
// and the query from a request, and the scheme and the host from the backend.
//
// The zero Transport is not usable: make one with NewTransport. It is safe for
// concurrent use.
type Transport struct {
	pool     *balancer.Pool[*Upstream]
	cfg      Config
	clk      clock.Clock
	system   bool // clk tells the time of context deadlines
	base     http.RoundTripper
	methods  []string
	statuses []int
	classify func(*http.Request, *http.Response, error) balancer.Outcome
}

// NewTransport returns a Transport over the backends with the given URLs, as
// ParseEndpoint reads them. For weights and tiers give none and call Update.
// Errors match [balancer.ErrConfig]. The Transport keeps cfg's Base, Key and
// Classify and calls them concurrently.
func NewTransport(cfg Config, urls ...string) (*Transport, error) {
	if cfg.Pool.Clock == nil {
		// One clock for the Pool and for what is measured here.
		cfg.Pool.Clock = clock.System()
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	endpoints := make([]Endpoint, len(urls))
	for i, s := range urls {
		e, err := ParseEndpoint(s)
		if err != nil {
			return nil, err
		}
		endpoints[i] = e
	}
	ups, err := upstreams(endpoints)
	if err != nil {
		return nil, err
	}
	pool, err := balancer.NewPool(cfg.Pool, ups...)
	if err != nil {
		return nil, err
	}
	return &Transport{
		pool: pool, cfg: cfg, clk: cfg.Pool.Clock, system: clock.IsSystem(cfg.Pool.Clock),
		base: cfg.base(), methods: cfg.methods(), statuses: cfg.statuses(), classify: cfg.classify(),
	}, nil
}

// Pool is the Pool of the Transport, for SetHealth, Snapshot, Poll and what else
// it has.
func (t *Transport) Pool() *balancer.Pool[*Upstream] { return t.pool }

// Update makes the given endpoints the members of the Pool: see
// [balancer.Pool.Update]. Requests in flight to one that is gone go on. On an
// error, which matches [balancer.ErrConfig], nothing changes.
func (t *Transport) Update(endpoints ...Endpoint) error {
	ups, err := upstreams(endpoints)
	if err != nil {
		return err
	}
	return t.pool.Update(ups...)
}

// CloseIdleConnections closes the idle connections of the base RoundTripper, if
// that can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper. The request is not changed; each
// attempt gets a request of its own. Where nothing could be sent, the error
// matches balancer.ErrNoUpstreams, ErrNoneAvailable or ErrDeadline; otherwise it
// is the last attempt's, and if the context ended before a retry, it matches
// both.
//
// The deadline of the request's context bounds retries and their waits if the
// Pool's clock is the system's. Under another clock only the Deadline of
// WithRequest does.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := call{Transport: t, req: req, ctx: req.Context()}
	c.payload.open(req)
	defer c.payload.close()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	for {
		step := c.try.Next()
		switch step.Kind {
		case balancer.StepSend:
			if c.send(step.Lease) {
				return c.resp, c.err
			}
			if err := c.ctx.Err(); err != nil {
				return nil, c.giveUp(err)
			}
		case balancer.StepWait:
			if err := c.sleep(step.Wait); err != nil {
				return nil, c.giveUp(err)
			}
		default:
			if c.result != nil {
				c.result.Request, c.result.End = c.try.Request(), step.End
			}
			if !c.sent {
				return nil, c.refused(step.Err)
			}
			return c.resp, c.err
		}
	}
}

// idempotent tells whether sending req twice is as good as sending it once.
func (t *Transport) idempotent(req *http.Request) bool {
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	if slices.Contains(t.methods, method) {
		return true
	}
	// The two spellings that net/http knows as well.
	_, key := req.Header["Idempotency-Key"]
	_, x := req.Header["X-Idempotency-Key"]
	return key || x
}

// retryStatus tells whether a response with this status may be superseded.
func (t *Transport) retryStatus(s int) bool { return slices.Contains(t.statuses, s) }

var (
	errNoURL      = errors.New("balancerhttp: the request has no URL")
	errOpaque     = errors.New("balancerhttp: the request's URL is opaque")
	errNoResponse = errors.New("balancerhttp: the base RoundTripper returned neither response nor error")
)

// timeoutError is the error of an attempt that AttemptTimeout has ended.
type timeoutError struct{}

// Error implements error.
func (timeoutError) Error() string { return "balancerhttp: no response headers within AttemptTimeout" }

// Timeout makes it a timeout for net.Error and http.Client.
func (timeoutError) Timeout() bool { return true }

// Temporary completes net.Error.
func (timeoutError) Temporary() bool { return true }
