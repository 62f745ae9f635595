package ewma

import (
	"math/bits"
	"time"
)

// Fixed-point constants of the exponential.
const (
	one63 = 1 << 63 // 1 in Q63: the weight of no time at all

	oneQ62   = 1 << 62            // 1 in Q62
	log2eQ62 = 0x5c551d94ae0bf85e // log2(e) in Q62, rounded to nearest
	ln2Q64   = 0xb17217f7d1cf79ac // ln(2) in Q64, rounded to nearest
)

// decay turns an elapsed time into the weight that the past keeps: 2^(-t/unit)
// for a half-life, e^(-t/unit) for a time constant. The zero decay never
// forgets.
//
// The weight is computed in integers, so it is the same on every architecture:
// the whole half-lives are a shift, the next 8 bits index a table, and the rest
// y < 2^-8 is 1 - u + u*u/2 with u = y*ln(2), the start of the series of e^-u.
// What the series leaves out is below u^3/6 < 3.4e-9 and positive, hence so is
// the error, relative to the weight. Weights never increase with time, and in
// half-life mode are exactly 1/2 at one unit, 1/4 at two and so on.
type decay struct {
	unit  uint64 // nanoseconds; 0 for no decay
	recip uint64 // floor((2^127-1) / (unit << shift)), so that no division is left
	rate  uint64 // half-lives in a unit, Q62
	shift uint8  // leading zeros of unit
}

// halving returns the decay with the given half-life, above zero.
func halving(halfLife time.Duration) decay { return newDecay(halfLife, oneQ62) }

// fading returns the decay with the given time constant, above zero.
func fading(tau time.Duration) decay { return newDecay(tau, log2eQ62) }

// newDecay compiles a decay.
func newDecay(unit time.Duration, rate uint64) decay {
	u := uint64(unit)
	shift := bits.LeadingZeros64(u)
	recip, _ := bits.Div64(1<<63-1, 1<<64-1, u<<shift)
	return decay{unit: u, recip: recip, rate: rate, shift: uint8(shift)}
}

// weight returns what is left after t nanoseconds of something that decays, in
// Q63: one63 for t = 0, falling to 0. It is O(1).
func (d *decay) weight(t uint64) uint64 {
	if t == 0 || d.unit == 0 {
		return one63
	}
	// x is the elapsed time in half-lives, in Q62: q units and a rest below one.
	var halvings, x uint64
	if t < d.unit {
		x = d.halfLives(t)
	} else {
		q := t / d.unit
		if q >= 64 {
			return 0 // below the resolution of Q63 in both modes
		}
		hi, lo := bits.Mul64(q, d.rate)
		var carry uint64
		x, carry = bits.Add64(lo, d.halfLives(t%d.unit), 0)
		halvings = (hi + carry) << 2
	}
	halvings += x >> 62

	const cell = 62 - 8
	start := exp2[x>>cell&0xff]
	y := x << (64 - cell) // rest within the cell, Q72: y < 2^-8 fills 64 bits
	u, _ := bits.Mul64(y, ln2Q64)
	uu, _ := bits.Mul64(u, u)          // Q80
	fall := u - uu>>9                  // Q72
	drop, _ := bits.Mul64(start, fall) // Q71
	return (start - drop>>8) >> halvings
}

// halfLives returns r nanoseconds, fewer than a unit, in half-lives, Q62.
func (d *decay) halfLives(r uint64) uint64 {
	part, _ := bits.Mul64(r<<d.shift, d.recip) // r/unit, Q63
	hi, lo := bits.Mul64(part, d.rate)
	return hi<<1 | lo>>63
}
