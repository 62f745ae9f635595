package ewma

import (
	"math"
	"math/bits"
	"time"
)

// Fixed-point constants of the exponential.
const (
	one63 = 1 << 63 // 1 in Q63: the weight of no time at all

	oneQ62   = 1 << 62            // 1 in Q62
	log2eQ62 = 0x5c551d94ae0bf85e // log2(e) in Q62, rounded to nearest
	ln2Q64   = 0xb17217f7d1cf79ac // ln(2) in Q64, rounded to nearest

	halfLn2SqQ64 = 0x3d7f7bff058b1d51 // ln(2)^2/2 in Q64, rounded to nearest
)

// decay turns an elapsed time into the weight that the past keeps: 2^(-t/unit)
// for a half-life, e^(-t/unit) for a time constant.
//
// The weight is computed in integers, so it is the same on every architecture:
// the whole half-lives are a shift, the next 8 bits index a table, and the rest
// y < 2^-8 is 1 - u + u*u/2 with u = y*ln(2), the start of the series of e^-u.
// What the series leaves out is below u^3/6 < 3.4e-9, so the weight is at most
// that part of itself too large; the rounding of intermediate results is a few
// units in the last place of Q63. Weights never increase with time, and in
// half-life mode are exactly 1/2 at one unit, 1/4 at two and so on.
type decay struct {
	unit  uint64 // nanoseconds, above 0
	rate  uint64 // half-lives in a unit, Q62
	step  uint64 // floor(rate * 2^64 / (unit << shift)): saves a division
	shift uint8  // leading zeros of unit
}

// halving returns the decay with the given half-life, above zero.
func halving(halfLife time.Duration) decay { return newDecay(halfLife, oneQ62) }

// fading returns the decay with the given time constant, above zero.
func fading(tau time.Duration) decay { return newDecay(tau, log2eQ62) }

// keeping returns the decay that never takes anything away: no half-life passes
// in the longest time there is.
func keeping() decay { return decay{unit: math.MaxUint64} }

// newDecay compiles a decay.
func newDecay(unit time.Duration, rate uint64) decay {
	u := uint64(unit)
	shift := bits.LeadingZeros64(u)
	step, _ := bits.Div64(rate, 0, u<<shift)
	return decay{unit: u, rate: rate, step: step, shift: uint8(shift)}
}

// weight returns what is left after t nanoseconds of something that decays, in
// Q63: one63 for t = 0, falling to 0. It is O(1).
func (d *decay) weight(t uint64) uint64 {
	// The half-lives that have passed: x in Q62, and fours of them that Q62
	// cannot hold.
	var fours, x uint64
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
		fours = hi + carry
	}
	halvings := fours<<2 + x>>62

	// start * (1 - y*ln2 + y*y*ln2^2/2) as start - start*y * (ln2 - y*ln2^2/2):
	// the two factors do not wait for each other. Per unit of x the first grows
	// by more than the second shrinks, so rounding does not disturb the order.
	const cell = 62 - 8
	start := exp2[x>>cell&0xff]
	y := x << (64 - cell)                   // rest within the cell, Q72: y < 2^-8 fills 64 bits
	share, _ := bits.Mul64(start, y)        // Q71
	curve, _ := bits.Mul64(y, halfLn2SqQ64) // Q72
	drop, _ := bits.Mul64(share, ln2Q64-curve>>8)
	return (start - drop>>8) >> halvings
}

// halfLives returns r nanoseconds, fewer than a unit, in half-lives, Q62.
func (d *decay) halfLives(r uint64) uint64 {
	x, _ := bits.Mul64(r<<(d.shift&63), d.step)
	return x
}
