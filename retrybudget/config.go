package retrybudget

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// ErrConfig is wrapped by every error of [Config.Validate].
var ErrConfig = errors.New("retrybudget: invalid configuration")

// ConfigError names the field that [Config.Validate] rejects. errors.Is
// matches it with [ErrConfig]. It is immutable and safe for concurrent use.
type ConfigError struct {
	Field string // the field, such as "Share.Rate"
	Value any    // its value
	Want  string // the values that are allowed
}

// Error describes the field, its value and what is allowed.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("retrybudget: Config.%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap returns [ErrConfig].
func (e *ConfigError) Unwrap() error { return ErrConfig }

// Base is the traffic that [Share.Rate] is a share of.
type Base uint8

const (
	// Requests counts the top-level requests that began in the window.
	Requests Base = iota
	// Successes counts the attempts that succeeded in the window, retries
	// included. Until the first success ever, the share refuses nothing.
	Successes
	// Active counts the top-level requests that have begun and not ended, those
	// that wait in a back-off included, and compares them with the retries that
	// are granted and not ended: the concurrency budget of Envoy. It needs
	// [Core.End] and [Core.EndRetry], and ignores Share.Window.
	Active
)

// Share caps retries as a share of the traffic. With n retries counted
// already, one more is granted only if
//
//	n + 1 <= max(Min, Rate*base + Burst)
//
// in exact arithmetic. The zero Share (Rate, Burst and Min all zero) caps
// nothing. A Share is plain data: copy it freely.
type Share struct {
	// Rate is the number of retries that each unit of the base allows, 0 to
	// 1000. If zero, the base allows none.
	Rate float64
	// Of is the base. If zero, [Requests].
	Of Base
	// Burst is the number of retries allowed before the rate applies, on top of
	// Rate*base, 0 to 1e8. If zero, none.
	Burst float64
	// Min is the number of retries in a window (at once for [Active]) that the
	// share never refuses, 0 to 1e8: a floor, not an addition. For a floor of f
	// per second, set f times the Window in seconds. If zero, none.
	Min float64
	// Window is how long a unit of the base and a retry count. It slides in
	// tenths, so an entry counts for between nine tenths and the whole of it.
	// If zero, 10s. If negative, for the life of the budget.
	Window time.Duration
}

// Config describes a budget. Amounts are in tokens and are rounded once, to a
// billionth of a token; from there on every sum is exact.
//
// The zero Config is the recommended budget: a retry costs one token, each
// success deposits a tenth, a token drips in every ten seconds, and the bucket
// holds ten and starts full. In a total outage nothing succeeds, so all that
// is left is the ten tokens and one retry per ten seconds: at 700 requests per
// second an outage of ten seconds sees at most 1.002 attempts per request.
// When one request in a hundred fails at random, each failure finds ten tokens
// deposited for it, so practically all are retried, at any request rate; only
// above one failure in ten do the deposits not pay for all.
//
// A Config is plain data: copy it, compare it with ==, print it. Two Configs
// that are equal make budgets that behave the same.
type Config struct {
	// Off grants every retry and limits nothing.
	Off bool

	// Capacity is the most tokens the bucket holds, up to 1e8. If zero, 10. If
	// negative, there is no bucket and Share alone decides.
	Capacity float64
	// Initial is the number of tokens at the start, up to 1e8; more than
	// Capacity counts as Capacity. If zero, the bucket starts full (with TTL:
	// with the floor's reserve alone). If negative, it starts empty (with TTL:
	// the same as zero). With TTL a positive Initial is a deposit that expires.
	Initial float64
	// Cost is the number of tokens that a retry takes, up to Capacity. If zero,
	// 1. If negative, none: use it with PerFailure, where failures pay.
	Cost float64
	// Threshold is a balance that must be exceeded for a retry to be granted,
	// at least 0 and below Capacity. If zero, the balance must be positive and
	// cover Cost.
	Threshold float64

	// PerRequest is deposited by each top-level request, 0 to 1e8. If zero,
	// none.
	PerRequest float64
	// PerSuccess is deposited by each attempt that succeeds, up to 1e8. If
	// zero, 0.1. If negative, none.
	PerSuccess float64
	// RetrySuccess is deposited, on top of PerSuccess, when a granted retry
	// succeeds, 0 to 1e8. It needs [Core.EndRetry]. If zero, none.
	RetrySuccess float64
	// PerFailure is taken by each attempt that fails, as far as there is any, 0
	// to 1e8. If zero, none.
	PerFailure float64
	// PerSecond is the floor: tokens that time alone provides per second, up to
	// 1e8. Without TTL they drip into the bucket. With TTL they are a reserve of
	// PerSecond x TTL, and what is taken from it is back one TTL later; a
	// Capacity below the reserve counts as the reserve. If zero, 0.1. If
	// negative, none.
	PerSecond float64
	// TTL is how long a deposit and a withdrawal count. It passes in tenths, so
	// an entry counts for between nine tenths and the whole of it. When
	// withdrawals that expire lift the balance above Capacity, the oldest
	// deposits lapse. If zero, entries never expire. It must not be negative.
	TTL time.Duration

	// Share caps retries as a share of the traffic, in addition to the bucket.
	// If zero, there is no such cap.
	Share Share
}

const (
	// unit is one token in the integer arithmetic.
	unit = 1e9
	// maxTokens bounds every amount. Ten slots of a ring sum to less than
	// MaxInt64 under it (see bucket.take).
	maxTokens = 1e8
	maxRate   = 1000
	second    = uint64(time.Second)

	defaultCapacity   = 10
	defaultCost       = 1
	defaultPerSuccess = 0.1
	defaultPerSecond  = 0.1
	defaultWindow     = 10 * time.Second
)

// Validate returns nil, or a [*ConfigError] (which wraps [ErrConfig]) for the
// first field that is out of range.
func (c Config) Validate() error {
	for _, f := range [...]struct {
		name     string
		value    float64
		negative bool // has a meaning
		limit    float64
	}{
		{"Capacity", c.Capacity, true, maxTokens},
		{"Initial", c.Initial, true, maxTokens},
		{"Cost", c.Cost, true, maxTokens},
		{"Threshold", c.Threshold, false, maxTokens},
		{"PerRequest", c.PerRequest, false, maxTokens},
		{"PerSuccess", c.PerSuccess, true, maxTokens},
		{"RetrySuccess", c.RetrySuccess, false, maxTokens},
		{"PerFailure", c.PerFailure, false, maxTokens},
		{"PerSecond", c.PerSecond, true, maxTokens},
		{"Share.Rate", c.Share.Rate, false, maxRate},
		{"Share.Burst", c.Share.Burst, false, maxTokens},
		{"Share.Min", c.Share.Min, false, maxTokens},
	} {
		switch v := f.value; {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return &ConfigError{f.name, v, "a finite number"}
		case v < 0 && !f.negative:
			return &ConfigError{f.name, v, fmt.Sprintf(">= 0 and <= %g", f.limit)}
		case v > f.limit:
			return &ConfigError{f.name, v, fmt.Sprintf("<= %g", f.limit)}
		case v > 0 && units(v) == 0:
			return &ConfigError{f.name, v, "0 or >= 1e-9"}
		}
	}
	if c.TTL < 0 {
		return &ConfigError{"TTL", c.TTL, ">= 0"}
	}
	if c.Share.Of > Active {
		return &ConfigError{"Share.Of", c.Share.Of, "Requests, Successes or Active"}
	}
	if c.Off {
		return nil
	}
	if c.Capacity < 0 {
		if !c.Share.on() {
			return &ConfigError{"Capacity", c.Capacity, ">= 0 when there is no Share (Off grants every retry)"}
		}
		return nil
	}
	// A retry that no balance can pay for would be refused for ever, silently.
	s := c.compile()
	if s.cost > s.capacity {
		return &ConfigError{"Cost", c.Cost, fmt.Sprintf("<= Capacity, which is %g", tokens(s.capacity))}
	}
	if s.threshold >= s.capacity {
		return &ConfigError{"Threshold", c.Threshold, fmt.Sprintf("< Capacity, which is %g", tokens(s.capacity))}
	}
	return nil
}

// on reports whether the share caps anything.
func (s Share) on() bool { return s.Rate > 0 || s.Burst > 0 || s.Min > 0 }

// settings is a Config in integers, with its defaults filled in. It is
// immutable, and shared by all copies of a Core.
type settings struct {
	off    bool
	bucket bool

	capacity     int64 // amounts: billionths of a token
	initial      int64 // deposited at the start, as far as there is room
	reserve      int64 // with TTL: the floor
	cost         int64
	threshold    int64
	perRequest   int64
	perSuccess   int64
	retrySuccess int64
	perFailure   int64
	perSecond    int64 // drip; with TTL, reserve stands in
	slot         int64 // nanoseconds; 0 without TTL

	share      bool
	inFlight   bool  // the share is of Active: nothing is counted in a window
	requests   bool  // requests are the base
	successes  bool  // successes are
	shareRate  int64 // billionths of a retry
	shareBurst int64
	shareMin   int64 // whole retries
	shareSlot  int64 // nanoseconds; 0 when the window never ends
}

// compile rounds the configuration, once, into integers. c is valid, but for
// the two cross-field rules.
func (c Config) compile() *settings {
	s := &settings{
		off:          c.Off,
		bucket:       c.Capacity >= 0,
		capacity:     units(orDefault(c.Capacity, defaultCapacity)),
		cost:         units(orDefault(c.Cost, defaultCost)),
		threshold:    units(c.Threshold),
		perRequest:   units(c.PerRequest),
		perSuccess:   units(orDefault(c.PerSuccess, defaultPerSuccess)),
		retrySuccess: units(c.RetrySuccess),
		perFailure:   units(c.PerFailure),
		perSecond:    units(orDefault(c.PerSecond, defaultPerSecond)),
		share:        c.Share.on(),
		shareRate:    units(c.Share.Rate),
		shareBurst:   units(c.Share.Burst),
		shareMin:     units(c.Share.Min) / unit,
	}
	if c.TTL > 0 {
		s.slot = slotOf(c.TTL)
		hi, lo := bits.Mul64(uint64(s.perSecond), uint64(c.TTL))
		s.reserve = units(maxTokens)
		if hi < second {
			q, _ := bits.Div64(hi, lo, second)
			s.reserve = int64(min(q, uint64(s.reserve)))
		}
		s.capacity = max(s.capacity, s.reserve)
		s.initial = units(c.Initial)
	} else {
		s.initial = units(orDefault(c.Initial, maxTokens))
	}
	if s.share {
		s.inFlight = c.Share.Of == Active
		s.requests = c.Share.Of == Requests
		s.successes = c.Share.Of == Successes
		if w := c.Share.Window; w >= 0 && !s.inFlight {
			s.shareSlot = slotOf(cmp.Or(w, defaultWindow))
		}
	}
	return s
}

// orDefault applies the rule of most fields: zero is the default, and negative
// is none.
func orDefault(v, def float64) float64 {
	switch {
	case v == 0:
		return def
	case v < 0:
		return 0
	}
	return v
}

// units rounds tokens to billionths; negative counts as none.
func units(tokens float64) int64 {
	return int64(math.Round(float64(max(tokens, 0) * unit)))
}

// tokens is the inverse of units, for people to read.
func tokens(units int64) float64 { return float64(units) / unit }

// slotOf returns a tenth of d, rounded up so that it is never zero.
func slotOf(d time.Duration) int64 { return int64(d-1)/slots + 1 }
