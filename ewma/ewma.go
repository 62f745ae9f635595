// Package ewma keeps exponentially weighted moving averages of what is measured
// at irregular moments, such as the latency of a host.
//
// For an average by time, the n-th sample s at time t turns the estimate v,
// left by the sample at time u, into
//
//	v*w + s*(1-w)   with   w = e^(-(t-u)/tau)
//
// so what counts is how long ago something was measured, not how often: at ten
// requests a second and at ten thousand the average covers the same time. It is
// the filter of Unix load averages; the peak variant, in which a sample above
// the estimate replaces it at once, is that of Finagle's PeakEwma balancer
// (finagle-core, com.twitter.finagle.loadbalancer.p2c). An average by number,
// with a fixed weight per sample, is there for those who want it.
//
// An average that has seen nothing is not an average of zero: readings say
// whether there was a sample, and the first sample becomes the estimate instead
// of being blended with a zero that nobody measured.
//
// All arithmetic is on integers, and the exponential comes from a table. A
// sequence of samples therefore gives the same values on every architecture and
// with every compiler, which floating point does not.
//
// [Core] is the plain state machine, for owners that have a lock of their own;
// [Meter] is the same behind a mutex, with times and durations.
package ewma

import (
	"math"
	"math/bits"
)

// maxSamples is where the count of samples stops, so that it fits any int.
const maxSamples = math.MaxInt32

// Core is one average. Times are nanoseconds on any timeline that the owner
// chooses; samples are in any unit that the owner chooses, often nanoseconds,
// and the estimate is kept in 2^-32 of it.
//
// Samples move the Core's time forward: one with an earlier time counts as
// taken at the time of the sample before. Two samples at one time leave w = 1,
// so the second has no weight, unless it is a peak.
//
// A Core is a small value. Copying it copies the average, and the two go their
// own ways. All methods are O(1) and allocate nothing, except for what
// AppendState needs to grow its argument.
//
// The zero Core is ready to use and behaves as NewCore(Config{}); its first
// sample allocates the settings.
//
// A Core is not safe for concurrent use.
type Core struct {
	set *settings // nil in a zero Core before its first sample

	last int64 // time of the last sample
	est  int64 // estimate in whole units, never negative

	// n counts samples, up to maxSamples. While n < warmup the estimate is
	// the mean est + rest/n; after that it is est + rest/2^32.
	n    uint32
	rest uint32
}

// NewCore returns an average that has seen nothing. It panics if cfg does not
// pass [Config.Validate]. The result is not safe for concurrent use.
func NewCore(cfg Config) Core {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return Core{set: cfg.compile()}
}

// Fresh returns an average with the same configuration as c that has seen
// nothing. It shares c's compiled settings, so many cores cost one compilation.
// It is not safe for use concurrent with Observe.
func (c *Core) Fresh() Core { return Core{set: c.set} }

// Observe adds a sample taken at now. A negative sample is ignored: neither the
// estimate nor the count nor the time changes. The arithmetic saturates nowhere
// because the result is never outside the range of the samples. Observe is not
// safe for concurrent use.
func (c *Core) Observe(now, sample int64) {
	if sample < 0 {
		return
	}
	if c.set == nil {
		c.set = Config{}.compile()
	}
	if c.n == 0 {
		c.n, c.last, c.est, c.rest = 1, now, sample, 0
		return
	}
	var elapsed uint64
	if now > c.last {
		elapsed = uint64(now) - uint64(c.last)
		c.last = now
	}
	switch {
	case c.n < c.set.warmup:
		c.mean(sample)
	case c.set.peak && sample > c.est:
		c.est, c.rest = sample, 0
	case c.set.alpha > 0:
		c.est = foldMilli(c.est, sample, c.set.alpha)
	case sample != c.est || c.rest != 0:
		// A sample that is the estimate leaves it as it is, whatever the weights.
		c.blend(sample, c.set.fold.weight(elapsed))
	}
	if c.n < maxSamples {
		c.n++
	}
	if c.n == c.set.warmup {
		c.leaveWarmup()
	}
}

// Value returns the average as it reads at now: the estimate, faded for the
// time since the last sample as [Config] says. It stores nothing, so reading
// never changes what happens next; a now before the last sample reads as at it.
// Before the first sample it returns the configured prior and false. It is safe
// for use concurrent with other reads.
func (c *Core) Value(now int64) (v int64, ok bool) {
	if c.n == 0 {
		if c.set == nil {
			return 0, false
		}
		return c.set.prior, false
	}
	if now <= c.last {
		return c.est, true
	}
	w := c.set.idle.weight(uint64(now) - uint64(c.last))
	hi, lo := bits.Mul64(uint64(c.est), w)
	v = int64(hi<<1 | lo>>63)
	return max(v, min(c.set.floor, c.est)), true
}

// Last returns the estimate as the last sample left it, not faded. Before the
// first sample it returns the configured prior and false. It is safe for use
// concurrent with other reads.
func (c *Core) Last() (v int64, ok bool) { return c.Value(c.last) }

// Samples returns the number of samples that counted, up to [math.MaxInt32],
// where it stays. It is safe for use concurrent with other reads.
func (c *Core) Samples() int { return int(c.n) }

// Warm reports whether there were as many samples as the warm-up takes, and at
// least one. It is safe for use concurrent with other reads.
func (c *Core) Warm() bool {
	return c.n > 0 && c.n >= c.set.warmup
}

// LastAt returns the time of the last sample, or 0 if there was none. It is
// safe for use concurrent with other reads.
func (c *Core) LastAt() int64 { return c.last }

// mean adds a sample to the arithmetic mean of n, exactly: est is the quotient
// and rest the remainder of the sum.
func (c *Core) mean(sample int64) {
	n := uint64(c.n)
	hi, lo := bits.Mul64(uint64(c.est), n)
	lo, carry := bits.Add64(lo, uint64(c.rest), 0)
	hi += carry
	lo, carry = bits.Add64(lo, uint64(sample), 0)
	hi += carry
	// The sum is below (n+1)*2^63, so the quotient fits.
	quo, rem := bits.Div64(hi, lo, n+1)
	c.est, c.rest = int64(quo), uint32(rem)
}

// leaveWarmup turns the remainder of the mean into a binary fraction, or, by
// number, drops it: that estimate is a whole number of units.
func (c *Core) leaveWarmup() {
	if c.set.alpha > 0 {
		c.rest = 0
		return
	}
	c.rest = uint32(uint64(c.rest) << 32 / uint64(c.n))
}

// foldMilli returns v + (s-v)*alpha/1000, rounded down. Rounding one exact
// value in one direction keeps the result between v and s and makes it monotone
// in both.
func foldMilli(v, s int64, alpha uint64) int64 {
	hi, lo := bits.Mul64(uint64(v), 1000-alpha)
	h2, l2 := bits.Mul64(uint64(s), alpha)
	lo, carry := bits.Add64(lo, l2, 0)
	hi += h2 + carry
	if hi == 0 {
		return int64(lo / 1000)
	}
	quo, _ := bits.Div64(hi, lo, 1000)
	return int64(quo)
}

// blend leaves w, Q63, of the estimate v and fills the rest with the sample s:
// v*w + s*(1-w), rounded down to 2^-32 of a unit. As in foldMilli, that keeps
// the result between v and s and monotone in both. The fraction matters: without
// it a sample of little weight could lower the estimate but not raise it, and
// frequent samples would drag it down.
func (c *Core) blend(sample int64, w uint64) {
	// In Q63. The weights add up to one, so the sum fits as its terms do.
	hi, lo := bits.Mul64(uint64(c.est), w)
	h2, l2 := bits.Mul64(uint64(sample), one63-w)
	lo, carry := bits.Add64(lo, l2, 0)
	hi += h2 + carry
	whole, below := hi<<1|lo>>63, lo&(one63-1)

	// What is below a unit, and what the fraction leaves, in Q95.
	hi, lo = bits.Mul64(uint64(c.rest), w)
	lo, carry = bits.Add64(lo, below<<32, 0)
	hi += below>>32 + carry
	part := hi<<1 | lo>>63 // Q32, below 2

	c.est, c.rest = int64(whole+part>>32), uint32(part)
}
