package balancer

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// Request is what a Pool needs to know of one request. The zero value is an
// ordinary request: no affinity, no deadline, a number of the Pool's own.
type Request struct {
	// ID keys the request's random draws. If zero, it is the next number of the
	// Pool's counter. A number is in use from the Acquire, or the first Next, to the
	// request's end: the release, or a Next, Done or Stop that ends it. In between,
	// also while it waits or has failed, no other request may have its number, or a
	// recording of the two does not replay. Give all requests of a Pool numbers, or
	// none: the counter does not know the others.
	ID uint64

	// Key is the affinity key that Hash policies look at. The zero Key is no key.
	Key Key

	// Deadline, on the Pool's clock, is when the whole request must be over: no
	// attempt starts at or after it and no wait reaches it. Acquire does not look
	// at it. If zero, none.
	Deadline time.Time

	// Result, if not nil, is filled in by Do with what happened.
	Result *Result
}

// Key is an affinity key: requests with equal keys go to one host while it is
// usable. The zero Key is the absence of a key, which is not the same as the
// key of an empty string.
type Key struct {
	hash uint64
	set  bool
}

// StringKey is the key of a string, hashed by hashring.Key.
func StringKey(s string) Key { return Key{hash: hashring.Key(s), set: true} }

// HashKey is the key with the given hash. It should be well mixed: see
// hashring.KeyUint64 for small integers.
func HashKey(h uint64) Key { return Key{hash: h, set: true} }

// Hash is the key's hash, and whether it is a key at all.
func (k Key) Hash() (hash uint64, ok bool) { return k.hash, k.set }

// Outcome is the verdict on one attempt.
type Outcome uint8

const (
	// Ignored is no verdict: the caller gave up, the request was never sent, the
	// answer was the client's fault, or nobody can tell. It moves no counter,
	// ends no streak, and gives every slot back. It is the zero value.
	Ignored Outcome = iota
	// Success is a good answer.
	Success
	// Failure is a bad answer: the server was reached and failed.
	Failure
	// TransportFailure is no answer: refused, reset, timed out.
	TransportFailure
)

// String returns the name of the outcome.
func (o Outcome) String() string {
	switch o {
	case Ignored:
		return "ignored"
	case Success:
		return "success"
	case Failure:
		return "failure"
	case TransportFailure:
		return "transport_failure"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Verdict says whether an attempt's request may be sent again.
type Verdict uint8

const (
	// RetryDefault leaves it to Config.Retry: transport failures, and failures
	// too if Retry.OnFailure is set.
	RetryDefault Verdict = iota
	// RetryAllowed says that sending again is safe.
	RetryAllowed
	// RetryForbidden says that it is not.
	RetryForbidden
)

// Report is the full account of one attempt, for [Lease.Settle] and [Try.Done].
type Report struct {
	// Outcome is the verdict. Values that are not defined count as Ignored.
	Outcome Outcome

	// Latency is how long the upstream took to answer, where the caller measured
	// it better than the Pool can, for instance without dialling. If zero, the
	// time from Acquire to Answered, or to the release. If negative, unknown: it
	// scores nobody.
	Latency time.Duration

	// Retry overrides whether the request may be sent again. It matters to a Try
	// only.
	Retry Verdict
}
