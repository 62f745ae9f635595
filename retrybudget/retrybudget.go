// Package retrybudget limits retries, so that they help with failures that are
// few and do not multiply the load when everything fails.
//
// A budget is a token bucket. A retry is sent only if it can be paid for:
//
//	b.Request(now)              // a request begins
//	...                         // its first attempt fails
//	b.Failure(now)
//	if b.Withdraw(now) {
//		...                     // one more attempt
//		b.Success(now)
//	}
//
// What fills the bucket decides how it behaves in an outage. Deposits per
// request (Finagle, linkerd, Envoy) keep paying while everything fails and
// multiply the load by a constant. Deposits per success (gRPC, the AWS SDKs)
// stop: the load in an outage is the load without retries, and a server that
// is overloaded can recover. The zero [Config] does the latter and adds a
// small floor, so that a client with little traffic can retry too. All the
// published rules are settings of the one [Config]; [Finagle], [GRPC], [AWS],
// [Envoy], [Ferron] and [Echofront] return them.
//
// The arithmetic is exact: amounts are whole billionths of a token, and the
// part of the drip that is not yet a billionth is carried. Over the life of a
// budget, under any interleaving, and with refunds among the deposits,
//
//	grants x Cost <= Capacity + deposits + PerSecond x elapsed
//
// Without TTL the same holds between any two instants.
//
// Nothing here sleeps, starts a goroutine or reads a clock: the caller says
// what time it is. [Budget] is for use from several goroutines; [Core] is the
// same without the lock, for an owner that has its own.
//
// Sources: Finagle's RetryBudget; gRFC A6 (retry throttling); Brooker,
// "Timeouts, retries, and backoff with jitter"; Bronson et al., "Metastable
// Failures in Distributed Systems", HotOS 2021.
package retrybudget

import (
	"sync"
	"time"
)

// Budget is a retry budget. Share one between all the callers, or pools of
// callers, that are to be limited together; separate ones are independent.
//
// Inputs (Request, End, Success, Failure, Withdraw, Refund, EndRetry) move the
// time of the budget, and an earlier now counts as the latest one. Reads
// change nothing. Every method takes constant time and allocates nothing.
//
// The zero Budget has no configuration and refuses every retry; make one with
// [New]. It must not be copied after first use. A Budget is safe for
// concurrent use.
type Budget struct {
	mu   sync.Mutex // guards below
	base time.Time  // instant 0 of core: the first one seen
	set  bool       // base is set
	core Core
}

// New returns a budget with the configuration cfg. It panics if cfg fails
// [Config.Validate].
func New(cfg Config) *Budget {
	return &Budget{core: NewCore(cfg)}
}

// at converts the time of an input. b.mu is held.
func (b *Budget) at(now time.Time) int64 {
	if !b.set {
		b.base, b.set = now, true
	}
	return int64(now.Sub(b.base)) // saturates
}

// peek converts the time of a read, and returns instant 0. b.mu is held.
func (b *Budget) peek(now time.Time) (int64, time.Time) {
	if !b.set {
		return 0, now
	}
	return int64(now.Sub(b.base)), b.base
}

// Request tells that a top-level request begins: see [Core.Request]. It is
// safe for concurrent use.
func (b *Budget) Request(now time.Time) {
	b.mu.Lock()
	b.core.Request(b.at(now))
	b.mu.Unlock()
}

// End tells that a top-level request has ended: see [Core.End]. It is safe for
// concurrent use.
func (b *Budget) End(now time.Time) {
	b.mu.Lock()
	b.core.End(b.at(now))
	b.mu.Unlock()
}

// Success tells that an attempt succeeded: see [Core.Success]. It is safe for
// concurrent use.
func (b *Budget) Success(now time.Time) {
	b.mu.Lock()
	b.core.Success(b.at(now))
	b.mu.Unlock()
}

// Failure tells that an attempt failed: see [Core.Failure]. It is safe for
// concurrent use.
func (b *Budget) Failure(now time.Time) {
	b.mu.Lock()
	b.core.Failure(b.at(now))
	b.mu.Unlock()
}

// Withdraw asks for one retry, and takes its cost if it returns true: see
// [Core.Withdraw]. With a balance that pays for k retries, any number of
// goroutines that ask at once get exactly k. It is safe for concurrent use.
func (b *Budget) Withdraw(now time.Time) bool {
	b.mu.Lock()
	ok := b.core.Withdraw(b.at(now))
	b.mu.Unlock()
	return ok
}

// Refund takes back a granted retry that was never sent: see [Core.Refund]. It
// is safe for concurrent use.
func (b *Budget) Refund(now time.Time) {
	b.mu.Lock()
	b.core.Refund(b.at(now))
	b.mu.Unlock()
}

// EndRetry tells that a granted retry has ended: see [Core.EndRetry]. It is
// safe for concurrent use.
func (b *Budget) EndRetry(now time.Time, ok bool) {
	b.mu.Lock()
	b.core.EndRetry(b.at(now), ok)
	b.mu.Unlock()
}

// CanWithdraw reports whether Withdraw would return true, and changes nothing.
// It is safe for concurrent use.
func (b *Budget) CanWithdraw(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, _ := b.peek(now)
	return b.core.CanWithdraw(t)
}

// Balance returns the tokens in the bucket, and changes nothing: see
// [Core.Balance]. It is safe for concurrent use.
func (b *Budget) Balance(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, _ := b.peek(now)
	return b.core.Balance(t)
}

// NextGrant returns the earliest time, not before now, at which Withdraw would
// succeed if nothing but time happened until then, and false if it never
// would. It changes nothing. It is safe for concurrent use.
func (b *Budget) NextGrant(now time.Time) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, base := b.peek(now)
	at, ok := b.core.NextGrant(t)
	if !ok {
		return time.Time{}, false
	}
	return base.Add(time.Duration(at)), true
}

// RetryAfter returns what an answer that gives up for lack of budget can say
// in its Retry-After header: see [Core.RetryAfter]. It changes nothing. It is
// safe for concurrent use.
func (b *Budget) RetryAfter(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, _ := b.peek(now)
	return b.core.RetryAfter(t)
}

// Granted returns how many retries have been granted, refunded ones included.
// It is safe for concurrent use.
func (b *Budget) Granted() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Granted()
}

// Refused returns how many retries have been refused. It is safe for
// concurrent use.
func (b *Budget) Refused() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.Refused()
}

// AppendState appends the state of the budget, without its configuration, to
// buf and returns the extended slice: see [Core.AppendState]. It is safe for
// concurrent use.
func (b *Budget) AppendState(buf []byte, now time.Time) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, _ := b.peek(now)
	return b.core.AppendState(buf, t)
}

// RestoreState replaces the state of the budget by one that AppendState wrote
// at the head of buf, with now in the place of the now of the save, and returns
// what follows it. The errors are those of [Core.RestoreState]. It is safe for
// concurrent use.
func (b *Budget) RestoreState(buf []byte, now time.Time) (rest []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rest, err = b.core.RestoreState(buf, 0); err == nil {
		// The restored budget starts a timeline of its own at now.
		b.base, b.set = now, true
	}
	return rest, err
}
