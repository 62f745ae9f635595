package balancerhttp

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

// Config sets up a Transport. The zero value is complete: the Pool's own
// defaults, and retries of requests that may be sent again - GET, HEAD, OPTIONS,
// TRACE, PUT, DELETE, anything with an Idempotency-Key header, and anything that
// was never sent - after a transport failure and after 502, 503 and 504. A
// Config is not modified and may be used for many Transports.
type Config struct {
	// Pool sets up the balancing: policy, breakers, ejection, retry count and
	// back-off, budget. Retry.OnFailure and Classify have no effect here:
	// RetryStatuses and this Config's Classify decide.
	Pool balancer.Config

	// Base sends the attempts. It must keep the contract of http.RoundTripper. If
	// nil, a clone of http.DefaultTransport, with a connection pool of its own that
	// keeps up to 100 idle connections per backend instead of 2.
	Base http.RoundTripper

	// AttemptTimeout bounds each attempt until its response headers are there,
	// in the time of the Pool's clock, which must be a clock.Scheduler. It counts
	// as a TransportFailure. The body may take as long as it takes. If zero, none.
	AttemptTimeout time.Duration

	// MaxBuffer is how many bytes of a request body without GetBody are read into
	// memory, so that the body can be sent again. A longer body is streamed and
	// can be sent once. It is for requests that may be sent again; no other body is
	// read ahead, and none with a GetBody is copied. If zero, none is.
	MaxBuffer int64

	// RetryMethods are the methods whose requests may be sent again though the
	// server may have acted on them. If nil, GET, HEAD, OPTIONS, TRACE, PUT and
	// DELETE. If empty and not nil, none.
	RetryMethods []string

	// RetryStatuses are the response statuses after which a request is sent again,
	// if Classify calls them a failure. If nil, 502, 503 and 504. If empty and not
	// nil, none.
	RetryStatuses []int

	// KeepHost sends the request's own host in the Host header. Otherwise it is
	// the backend's.
	KeepHost bool

	// Key, if not nil, is the affinity key of a request that has none by
	// WithRequest. It must be safe for concurrent use.
	Key func(*http.Request) balancer.Key

	// Classify is the verdict on an attempt: on its response when the headers are
	// there, else on its error. The response is not to be read or changed. It is
	// not asked where the caller's own request body failed, nor where the
	// response's body breaks off. It must be safe for concurrent use. If nil, the
	// function Classify.
	Classify func(*http.Request, *http.Response, error) balancer.Outcome
}

// idlePerHost replaces the default of two idle connections per host, which
// makes a busy client of few hosts dial for most of its requests.
const idlePerHost = 100

// Validate reports the first bad setting, as an error that matches
// [balancer.ErrConfig].
func (c Config) Validate() error {
	if err := c.Pool.Validate(); err != nil {
		return err
	}
	bad := func(field string, value any, want string) error {
		return &balancer.ConfigError{Field: "balancerhttp.Config." + field, Value: fmt.Sprint(value), Want: want}
	}
	_, timers := c.clock().(clock.Scheduler)
	switch {
	case c.AttemptTimeout < 0:
		return bad("AttemptTimeout", c.AttemptTimeout, ">= 0")
	case c.AttemptTimeout > 0 && !timers:
		return bad("Pool.Clock", fmt.Sprintf("%T", c.Pool.Clock), "a clock.Scheduler, since AttemptTimeout waits")
	case c.MaxBuffer < 0:
		return bad("MaxBuffer", c.MaxBuffer, ">= 0")
	case slices.Contains(c.RetryMethods, ""):
		return bad("RetryMethods", fmt.Sprintf("%q", c.RetryMethods), "names of methods")
	}
	for _, s := range c.RetryStatuses {
		if s < 200 || s > 999 {
			return bad("RetryStatuses", s, "200 to 999")
		}
	}
	return nil
}

func (c Config) clock() clock.Clock {
	if c.Pool.Clock == nil {
		return clock.System()
	}
	return c.Pool.Clock
}

func (c Config) base() http.RoundTripper {
	if c.Base != nil {
		return c.Base
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, idlePerHost)
	return t
}

func (c Config) methods() []string {
	if c.RetryMethods == nil {
		return []string{
			http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
			http.MethodPut, http.MethodDelete,
		}
	}
	return slices.Clone(c.RetryMethods)
}

func (c Config) statuses() []int {
	if c.RetryStatuses == nil {
		return []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	}
	return slices.Clone(c.RetryStatuses)
}

func (c Config) classify() func(*http.Request, *http.Response, error) balancer.Outcome {
	if c.Classify == nil {
		return Classify
	}
	return c.Classify
}
