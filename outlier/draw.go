package outlier

import (
	"math"
	"math/bits"
)

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

// Streams of draws. Each is keyed by the host's key as part of the seed and
// numbered by the host's verdicts.
const (
	streamJitter  = 1
	streamEnforce = 16 // plus the rule
)

// below turns 64 uniform bits into a number in [0, n).
func below(x, n uint64) uint64 {
	hi, _ := bits.Mul64(x, n)
	return hi
}

// addSat returns a + b, b >= 0, or the latest time where that overflows.
func addSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

// subSat returns a - b for a >= b, or MaxInt64 where that overflows.
func subSat(a, b int64) int64 {
	if d := a - b; d >= 0 {
		return d
	}
	return math.MaxInt64
}

// mulSat returns a * b for a, b >= 0, or MaxInt64 where that overflows.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// mulDiv returns a * b / d rounded down, for a, b >= 0 and d > 0, or MaxInt64
// where that overflows.
func mulDiv(a, b, d int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		return int64(min(lo/uint64(d), math.MaxInt64))
	}
	if hi >= uint64(d) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(d))
	return int64(min(q, math.MaxInt64))
}

// wide is an unsigned 128-bit sum of non-negative int64 values.
type wide struct{ hi, lo uint64 }

// add returns w + v.
func (w wide) add(v uint64) wide {
	lo, carry := bits.Add64(w.lo, v, 0)
	return wide{w.hi + carry, lo}
}

// sub returns w - v, v being part of the sum.
func (w wide) sub(v uint64) wide {
	lo, borrow := bits.Sub64(w.lo, v, 0)
	return wide{w.hi - borrow, lo}
}

// addProduct returns w + a x b.
func (w wide) addProduct(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(w.lo, lo, 0)
	return wide{w.hi + hi + carry, lo}
}

// mean returns w / n for a sum of n > 0 values below 2^63, so that hi < n.
func (w wide) mean(n uint64) int64 {
	if w.hi == 0 { // the usual case, and the faster division
		return int64(w.lo / n)
	}
	q, _ := bits.Div64(w.hi, w.lo, n)
	return int64(q)
}

// isqrt returns the square root of x, rounded down, one bit at a time.
func isqrt(x uint64) uint64 {
	var root uint64
	for bit := uint64(1) << 62; bit != 0; bit >>= 2 {
		if x >= root+bit {
			x -= root + bit
			root = root>>1 + bit
		} else {
			root >>= 1
		}
	}
	return root
}
