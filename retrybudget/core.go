package retrybudget

import (
	"math"
	"time"
)

// Core is a retry budget without a lock: a plain state machine whose owner
// serialises the calls. Its instants are nanoseconds on any timeline that the
// owner chooses. Inputs (Request, End, Success, Failure, Withdraw, Refund,
// EndRetry) move its time, and an earlier instant counts as the latest one.
// The first input starts the drip and the windows. Reads (CanWithdraw,
// Balance, NextGrant, RetryAfter, Granted, Refused) change nothing.
//
// Every method takes constant time and allocates nothing; [Core.NextGrant] is
// the slowest, with some hundred steps.
//
// A copy of a Core is an independent budget in the same state. The zero Core
// has no configuration and refuses every retry; make one with [NewCore]. A
// Core is not safe for concurrent use; [Budget] is.
type Core struct {
	set *settings

	seen   bool  // an input has set latest
	latest int64 // the latest instant of an input

	bucket   bucket
	share    share
	active   int64 // requests begun and not ended
	retrying int64 // retries granted and neither refunded nor ended

	granted uint64
	refused uint64
}

// NewCore returns a budget with the configuration cfg, of which it keeps no
// reference. It panics if cfg fails [Config.Validate].
func NewCore(cfg Config) Core {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := Core{set: cfg.compile()}
	if c.set.bucket {
		c.bucket.balance = c.set.reserve
		c.bucket.deposit(c.set, c.set.initial)
	}
	return c
}

// advance moves the time of the budget to now. It reports false when there is
// nothing to account for.
func (c *Core) advance(now int64) bool {
	if c.set == nil || c.set.off {
		return false
	}
	if !c.seen {
		c.seen = true
		c.latest, c.bucket.start, c.share.start = now, now, now
		return true
	}
	if now > c.latest {
		dt := uint64(now) - uint64(c.latest)
		c.latest = now
		c.bucket.advance(c.set, now, dt)
		c.share.advance(c.set, now)
	}
	return true
}

// deposit adds n billionths of a token, if there is a bucket.
func (c *Core) deposit(n int64) {
	if n > 0 && c.set.bucket {
		c.bucket.deposit(c.set, n)
	}
}

// Request tells that a top-level request begins: once per request, not once
// per attempt. It deposits Config.PerRequest and counts in the bases
// [Requests] and [Active].
func (c *Core) Request(now int64) {
	if !c.advance(now) {
		return
	}
	c.active++
	if c.set.requests {
		c.share.count()
	}
	c.deposit(c.set.perRequest)
}

// End tells that a top-level request has ended, whatever its result. Only the
// base [Active] needs it. Without a request that has begun it does nothing.
func (c *Core) End(now int64) {
	if c.advance(now) && c.active > 0 {
		c.active--
	}
}

// Success tells that an attempt, the first or a retry, succeeded. It deposits
// Config.PerSuccess and counts in the base [Successes].
func (c *Core) Success(now int64) {
	if !c.advance(now) {
		return
	}
	if c.set.successes {
		c.share.any = true
		c.share.count()
	}
	c.deposit(c.set.perSuccess)
}

// Failure tells that an attempt, the first or a retry, failed. It takes
// Config.PerFailure, as far as there is any. An attempt whose result says
// nothing about the backend, such as one that the caller cancelled, is
// neither a success nor a failure.
func (c *Core) Failure(now int64) {
	if !c.advance(now) || !c.set.bucket {
		return
	}
	if n := min(c.set.perFailure, c.bucket.balance); n > 0 {
		c.bucket.take(c.set, n)
	}
}

// Withdraw asks for one retry. If it returns true the retry may be sent, its
// cost is taken, and it counts in the share.
func (c *Core) Withdraw(now int64) bool {
	if !c.advance(now) {
		if c.set == nil {
			c.refused++
			return false
		}
		c.granted++
		return true
	}
	if !c.allows() {
		c.refused++
		return false
	}
	c.granted++
	c.retrying++
	if c.set.bucket {
		c.bucket.take(c.set, c.set.cost)
	}
	if c.set.share && !c.set.inFlight {
		c.share.take()
	}
	return true
}

// allows reports whether a retry would be granted at c.latest.
func (c *Core) allows() bool {
	s := c.set
	if s.bucket && !c.bucket.covers(s) {
		return false
	}
	if !s.share {
		return true
	}
	if s.inFlight {
		return c.share.allows(s, c.retrying, c.active)
	}
	return c.share.allows(s, c.share.retries, c.share.base)
}

// Refund takes back a granted retry that was never sent: its cost returns and
// it counts no more. With TTL, and in a share window, the oldest withdrawal
// that still counts is the one taken back, so that no retry that was sent is
// forgotten early. Without a granted retry that is neither refunded nor ended
// it does nothing.
func (c *Core) Refund(now int64) {
	if !c.advance(now) || c.retrying == 0 {
		return
	}
	c.retrying--
	if c.set.bucket {
		c.bucket.giveBack(c.set, c.set.cost)
	}
	if c.set.share && !c.set.inFlight {
		c.share.giveBack()
	}
}

// EndRetry tells that a granted retry was sent and has ended; it is called in
// addition to Success or Failure, if either applies. It deposits
// Config.RetrySuccess if ok, and ends the retry for the base [Active]; other
// budgets do not need it. Without a granted retry that is neither refunded nor
// ended it does nothing.
func (c *Core) EndRetry(now int64, ok bool) {
	if !c.advance(now) || c.retrying == 0 {
		return
	}
	c.retrying--
	if ok {
		c.deposit(c.set.retrySuccess)
	}
}

// CanWithdraw reports whether Withdraw would return true, and changes nothing.
func (c *Core) CanWithdraw(now int64) bool {
	if c.set == nil || c.set.off {
		return c.set != nil
	}
	if c.seen && now <= c.latest {
		return c.allows()
	}
	then := *c
	then.advance(now)
	return then.allows()
}

// Balance returns the tokens in the bucket, from 0 to Config.Capacity, and
// changes nothing. It is 0 when there is no bucket; when the budget is off it
// is what the bucket would start with.
func (c *Core) Balance(now int64) float64 {
	then := *c
	then.advance(now)
	return tokens(max(then.bucket.balance, 0))
}

// NextGrant returns the earliest instant, not before now and the latest input,
// at which Withdraw would succeed if nothing but time happened until then. It
// returns false if it never would. Before the first input, now stands in for
// it. A drip that comes past the end of the timeline is reported as MaxInt64;
// an entry that would expire past it never does.
func (c *Core) NextGrant(now int64) (int64, bool) {
	if c.set == nil || c.set.off {
		return now, c.set != nil
	}
	then := *c
	then.advance(now)
	// Between the instants of next nothing changes. There is one for each slot
	// of each ring, and one for the drip.
	for range 2*slots + 2 {
		if then.allows() {
			return then.latest, true
		}
		at, ok := then.next()
		if !ok || at == math.MaxInt64 {
			return at, ok
		}
		then.advance(at)
	}
	return 0, false
}

// next returns the next instant after c.latest at which a refusal may end.
func (c *Core) next() (int64, bool) {
	at, ok := c.share.next(c.set)
	if c.set.bucket {
		if t, found := c.bucket.next(c.set, c.latest); found && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

const (
	minRetryAfter     = time.Second
	maxRetryAfter     = time.Hour
	unknownRetryAfter = 5 * time.Second
)

// RetryAfter returns what an answer that gives up for lack of budget can say
// in its Retry-After header: the time until [Core.NextGrant], rounded up to
// whole seconds and kept within one second and one hour, or five seconds if
// time alone grants nothing.
func (c *Core) RetryAfter(now int64) time.Duration {
	at, ok := c.NextGrant(now)
	if !ok {
		return unknownRetryAfter
	}
	now = max(now, c.started(now))
	wait := uint64(at) - uint64(now)
	if wait >= uint64(maxRetryAfter) {
		return maxRetryAfter
	}
	d := (time.Duration(wait) + time.Second - 1).Truncate(time.Second)
	return max(d, minRetryAfter)
}

// started returns the latest instant of an input, or now before the first.
func (c *Core) started(now int64) int64 {
	if c.seen {
		return c.latest
	}
	return now
}

// Granted returns how many retries have been granted, refunded ones included.
func (c *Core) Granted() uint64 { return c.granted }

// Refused returns how many retries have been refused.
func (c *Core) Refused() uint64 { return c.refused }
