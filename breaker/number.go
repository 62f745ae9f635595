package breaker

import (
	"math"
	"math/bits"
)

// deadline returns now+d, where the largest int64 stands for never and is also
// what a sum too large becomes. d must not be negative.
func deadline(now, d int64) int64 {
	if d == math.MaxInt64 || now > math.MaxInt64-d {
		return math.MaxInt64
	}
	return now + d
}

// sub returns a-b, saturated. Elapsed times are compared with durations, and a
// difference that wrapped would make an old instant young.
func sub(a, b int64) int64 {
	d := a - b
	if (a < b) != (d < 0) {
		if a < b {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return d
}

// ratio is an exact fraction num/den; both fit in 31 bits, except that num may
// be up to maxGrowth times larger. The zero ratio is a rule that is off.
type ratio struct{ num, den uint64 }

// ratioOf returns the last convergent of the continued fraction of f with a
// denominator up to 2^31. Every n/d with d up to a million comes back as itself,
// reduced. The float64 nearest to it is so near, within 2^-54 for n < d, that by
// Legendre's theorem n/d is a convergent, and the next one has a denominator of
// about 2^54/d, which is too large. f must be valid for a Config.
func ratioOf(f float64) ratio {
	if f == 0 {
		return ratio{}
	}
	whole := uint64(f)
	// f minus its whole part is exact; scaling by a power of two is exact too,
	// but for bits below 2^-62, which cannot matter for the fractions above.
	const one = 1 << 62
	a, b := uint64(float64((f-float64(whole))*one)), uint64(one)
	// Convergents h/k of a/b by Euclid's algorithm, the whole part being the
	// first.
	h0, k0, h, k := uint64(1), uint64(0), whole, uint64(1)
	for a != 0 {
		q := b / a
		a, b = b%a, a
		if q > 1<<31 || q*k+k0 > 1<<31 {
			break
		}
		h0, h = h, q*h+h0
		k0, k = k, q*k+k0
	}
	return ratio{h, k}
}

// reached reports whether part/total >= r, exactly.
func (r ratio) reached(part, total uint64) bool {
	ahi, alo := bits.Mul64(part, r.den)
	bhi, blo := bits.Mul64(total, r.num)
	return ahi > bhi || ahi == bhi && alo >= blo
}

// of returns x*r rounded down, saturated. x must not be negative.
func (r ratio) of(x int64) int64 {
	hi, lo := bits.Mul64(uint64(x), r.num)
	if hi >= r.den {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, r.den)
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// streamOpen is the stream of the jitter draws.
const streamOpen = 1

// openLength returns the length of the open period number n (for the draw), of
// which `past` earlier ones are remembered.
func (s *settings) openLength(seed, n uint64, past uint32) int64 {
	d := min(s.openFor, s.openMax)
	if s.growth.num != s.growth.den {
		for ; past > 0 && d < s.openMax; past-- {
			d = min(s.growth.of(d), s.openMax)
		}
	}
	// Jitter makes it shorter, so that OpenMax stays a bound and a fleet that
	// has reached it is still spread. "For ever" stays for ever.
	if s.jitter.num == 0 || d == math.MaxInt64 {
		return d
	}
	cut, _ := bits.Mul64(draw(seed, streamOpen, n), uint64(s.jitter.of(d)))
	return d - int64(cut) // cut < d: never empty
}

// mix is the SplitMix64 finaliser (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// draw hashes (seed, stream, n) to 64 uniform bits.
func draw(seed, stream, n uint64) uint64 {
	return mix(mix(mix(seed+0x9e3779b97f4a7c15)^stream*0xd1342543de82ef95) + n*0x9e3779b97f4a7c15)
}
