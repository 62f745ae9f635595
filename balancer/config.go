package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/ewma"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// Config sets up a Pool. The zero value is complete: peak-EWMA balancing over
// two random choices, outlier ejection after five failures in a row, a breaker
// behind it, two retries that go elsewhere, and a budget that stops them in an
// outage. A Config is not modified and may be used for many Pools.
type Config struct {
	// Policy chooses among the selectable upstreams. If nil, PeakEWMA{}.
	Policy Policy

	// Clock tells the time. If nil, clock.System().
	Clock clock.Clock

	// Seed keys every random draw. If 0, it is drawn from the system's entropy
	// at construction, so that a fleet does not start in step; Pool.Seed tells.
	Seed uint64

	// Breaker sets up each upstream's circuit breaker. If no trip rule is set,
	// ten failures in a row trip it: more than it takes to be ejected, so that
	// the detector, which sees all upstreams and has a cap, acts first.
	Breaker breaker.Config

	// Outlier sets up the ejection of upstreams that fail. With a Return of
	// outlier.Ramp one that comes back begins with a part of its traffic, which
	// grows in steps while it is healthy and its circuit is not open. How that is
	// done is for the Policy to say: its weight counts for less, or it takes only so
	// many of its turns, draws or keys, also under IgnoreWeights. Where no other
	// upstream of its tier is selectable it gets all of the traffic. Each step costs
	// one pick, or else one other input, what the Policy's NewPicker costs: O(n) in
	// the tier, under the Pool's lock.
	Outlier outlier.Config

	// Latency sets up the moving average behind View.Latency, in nanoseconds. The
	// zero value is a peak-sensitive average with a time constant of 10 s.
	Latency ewma.Config

	// FailurePenalty is the latency that a failed attempt is worth to PeakEWMA: an
	// upstream costs its latency plus this much times the share of its answers
	// that fail, an average over 10 s. A tenth failing at the default is half a
	// second more, so failing fast never looks fast, while one failure among a
	// thousand answers hardly shows. If zero, 5s. If negative, nothing. At most an
	// hour.
	FailurePenalty time.Duration

	// Retry says what is tried again.
	Retry Retry

	// Budget bounds the retries of all requests together.
	Budget retrybudget.Config

	// WhenNone says what happens when no upstream is selectable.
	WhenNone WhenNone

	// IgnoreWeights makes every upstream weigh 1, whatever its Weight method
	// says.
	IgnoreWeights bool

	// StartUnhealthy keeps a new upstream out until SetHealth calls it healthy.
	// It is for pools with active checks, where unchecked means unknown.
	StartUnhealthy bool

	// Classify turns the error of a call made by Do into an Outcome. It runs
	// outside all locks and must be safe for concurrent use. If nil,
	// ClassifyError.
	Classify func(ctx context.Context, err error) Outcome

	// OnEvent, if not nil, receives every change of state, in order, one at a
	// time and with no lock held, on whichever goroutine finds the queue waiting:
	// an event may arrive after the call that caused it has returned. It may call
	// the Pool. A panic in it is recovered and counted in Snapshot.
	OnEvent func(Event)
}

// WhenNone is what a Pool does when no upstream is selectable.
type WhenNone uint8

const (
	// IgnoreEjections picks among the upstreams that are ejected and otherwise
	// fit, as if none were: too many ejections are worse than none. Breakers,
	// health and limits stay in force. Such a pick is marked in the Lease.
	IgnoreEjections WhenNone = iota
	// FailFast returns ErrNoneAvailable.
	FailFast
)

// String returns the name of the setting.
func (w WhenNone) String() string {
	switch w {
	case IgnoreEjections:
		return "ignore_ejections"
	case FailFast:
		return "fail_fast"
	}
	return fmt.Sprintf("WhenNone(%d)", uint8(w))
}

// Retry says which requests are sent again, how often and where.
type Retry struct {
	// Off switches retries off.
	Off bool

	// Max is the number of retries of one request, its first attempt not counted.
	// If zero, 2.
	Max int

	// SameUpstream is how many of them go to the same upstream before another one
	// is tried. If zero, every retry goes to an upstream that this request has
	// not tried.
	SameUpstream int

	// OnFailure retries after Failure too, not only after TransportFailure. The
	// Verdict of a Report overrides it.
	OnFailure bool

	// Backoff is the wait before a retry. The zero value does not wait: the retry
	// goes elsewhere.
	Backoff Backoff
}

// Backoff is an exponential wait with a cap: the n-th retry waits Base times
// Multiplier^(n-1), at most Max, less a random share of up to JitterPercent.
type Backoff struct {
	// Base is the wait before the first retry. If zero, no retry waits. It needs
	// a Clock that is a clock.Scheduler.
	Base time.Duration
	// Max caps the wait, jitter included. If zero, 10 times Base.
	Max time.Duration
	// Multiplier is the growth from one wait to the next. If zero, 2.
	Multiplier int
	// JitterPercent is the share of the wait that is random, 0 to 100. If zero,
	// 100: anything from nothing to the whole wait ("full jitter"). If negative,
	// none.
	JitterPercent int
}

const (
	defaultRetries    = 2
	defaultPenalty    = 5 * time.Second
	defaultTripAfter  = 10
	maxPenalty        = time.Hour
	maxRetries        = 1 << 16
	defaultBackoffMul = 2
)

// Validate reports the first bad setting as a *ConfigError, which names it.
func (c Config) Validate() error {
	if c.Policy != nil {
		if err := validatePolicy("Config.Policy", c.Policy); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		err  error
	}{
		{"Config.Breaker", c.Breaker.Validate()},
		{"Config.Outlier", c.Outlier.Validate()},
		{"Config.Latency", c.Latency.Validate()},
		{"Config.Budget", c.Budget.Validate()},
	} {
		if part.err != nil {
			return &ConfigError{Field: part.name, Err: part.err}
		}
	}
	bad := func(field string, value any, want string) error {
		return &ConfigError{Field: "Config." + field, Value: fmt.Sprint(value), Want: want}
	}
	b := c.Retry.Backoff
	_, timers := c.clock().(clock.Scheduler)
	switch {
	case c.Retry.Max < 0 || c.Retry.Max > maxRetries:
		return bad("Retry.Max", c.Retry.Max, fmt.Sprintf("0 to %d; set Off for none", maxRetries))
	case c.Retry.SameUpstream < 0:
		return bad("Retry.SameUpstream", c.Retry.SameUpstream, ">= 0")
	case b.Base < 0:
		return bad("Retry.Backoff.Base", b.Base, ">= 0")
	case b.Max < 0 || b.Max > 0 && b.Max < b.Base:
		return bad("Retry.Backoff.Max", b.Max, "0 or at least Base")
	case b.Multiplier < 0:
		return bad("Retry.Backoff.Multiplier", b.Multiplier, ">= 0")
	case b.JitterPercent > 100:
		return bad("Retry.Backoff.JitterPercent", b.JitterPercent, "at most 100")
	case b.Base > 0 && !timers:
		return bad("Clock", fmt.Sprintf("%T", c.Clock), "a clock.Scheduler, since Retry.Backoff waits")
	case c.FailurePenalty > maxPenalty:
		return bad("FailurePenalty", c.FailurePenalty, "at most 1h")
	case c.WhenNone > FailFast:
		return bad("WhenNone", uint8(c.WhenNone), "IgnoreEjections or FailFast")
	}
	return nil
}

// validatePolicy runs a policy's own Validate, if it has one.
func validatePolicy(field string, p Policy) error {
	if v, ok := p.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return &ConfigError{Field: field, Err: err}
		}
	}
	return nil
}

func (c Config) clock() clock.Clock {
	if c.Clock == nil {
		return clock.System()
	}
	return c.Clock
}

func (c Config) policy() Policy {
	if c.Policy == nil {
		return PeakEWMA{}
	}
	return c.Policy
}

func (c Config) breaker() breaker.Config {
	b := c.Breaker
	if b.ConsecutiveFailures == 0 && b.WindowFailures == 0 && b.FailureRate == 0 && b.SlowRate == 0 {
		b.ConsecutiveFailures = defaultTripAfter
	}
	return b
}

func (c Config) latency() ewma.Config {
	if c.Latency == (ewma.Config{}) {
		return ewma.Config{Peak: true}
	}
	return c.Latency
}

func (c Config) penalty() int64 {
	switch {
	case c.FailurePenalty == 0:
		return int64(defaultPenalty)
	case c.FailurePenalty < 0:
		return 0
	}
	return int64(c.FailurePenalty)
}

func (c Config) classify() func(context.Context, error) Outcome {
	if c.Classify == nil {
		return ClassifyError
	}
	return c.Classify
}

func (r Retry) max() int {
	switch {
	case r.Off:
		return 0
	case r.Max == 0:
		return defaultRetries
	}
	return r.Max
}

// wait is the back-off before retry n (the first is 1), as r says, with x as
// its random draw.
func (b Backoff) wait(n int, x uint64) int64 {
	if b.Base <= 0 {
		return 0
	}
	limit, mul := int64(b.Max), int64(b.Multiplier)
	if limit == 0 {
		limit = saturatingMul(int64(b.Base), 10)
	}
	if mul == 0 {
		mul = defaultBackoffMul
	}
	w := int64(b.Base)
	for i := 1; i < n && w < limit && mul > 1; i++ {
		w = saturatingMul(w, mul)
	}
	w = min(w, limit)
	jitter := int64(b.JitterPercent)
	if jitter == 0 {
		jitter = 100
	}
	if jitter < 0 {
		return w
	}
	random := w/100*jitter + w%100*jitter/100
	return w - int64(below(x, uint64(random)+1))
}

// ClassifyError is the verdict of Do on the error of a call. nil is Success. An
// error that WithOutcome marked is what it was marked as. If the caller has
// given up - its context is cancelled - the attempt is Ignored, whatever the
// error says; some transports mention the cancellation only in their text. A
// deadline that passed, and the errors of package net and io that mean that no
// answer came, are TransportFailure. Any other error is Ignored: it may be the
// caller's own, and a guess would eject healthy upstreams.
func ClassifyError(ctx context.Context, err error) Outcome {
	var marked *outcomeError
	var timeout interface{ Timeout() bool }
	var op *net.OpError
	switch {
	case err == nil:
		return Success
	case errors.As(err, &marked):
		return marked.outcome
	case ctx != nil && errors.Is(ctx.Err(), context.Canceled), errors.Is(err, context.Canceled):
		return Ignored
	case errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout(),
		errors.As(err, &op),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return TransportFailure
	}
	return Ignored
}

// WithOutcome marks an error with the outcome that ClassifyError shall give it.
// It returns nil for a nil error. errors.Is and errors.As see through the mark.
func WithOutcome(err error, o Outcome) error {
	if err == nil {
		return nil
	}
	return &outcomeError{err, o}
}

type outcomeError struct {
	error
	outcome Outcome
}

func (e *outcomeError) Unwrap() error { return e.error }
