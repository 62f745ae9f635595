package sim

import (
	"math"
	"math/bits"
	"sync"
)

// golden is the odd 64-bit integer nearest to 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// Streams separate the draws of one seed by purpose.
const (
	streamClient uint64 = iota + 1
	streamPool
	streamArrival
	streamRequest
	streamThink
	streamSubset
	streamProbe
	streamBegin
)

// Purposes of the draws of one attempt.
const (
	drawService uint64 = iota + 1
	drawError
	drawFastFail
	drawRefusal
	drawRefused
	drawSink
)

// mix is the SplitMix64 finaliser (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// draw hashes (seed, stream, n) to 64 uniform bits. It is keyed rather than
// sequential: leaving out one n changes no other draw.
func draw(seed, stream, n uint64) uint64 {
	return mix(mix(mix(seed+0x9e3779b97f4a7c15)^stream*0xd1342543de82ef95) + n*0x9e3779b97f4a7c15)
}

// saltOf is the part of draw that does not depend on n:
// draw(seed, stream, n) = mix(saltOf(seed, stream) + n*golden).
func saltOf(seed, stream uint64) uint64 {
	return mix(mix(seed+golden) ^ stream*0xd1342543de82ef95)
}

// below maps 64 uniform bits to [0, n).
func below(x, n uint64) uint64 {
	hi, _ := bits.Mul64(x, n)
	return hi
}

// Fixed point: q32 has 32 binary places, q16 has 16.
const (
	q16 = 1 << 16
	q32 = 1 << 32

	ln2 = 2977044472 // in q32
	// perP99 is 1/2.3263478740 in q32: the 99th percentile of the normal
	// distribution is that many standard deviations above its mean.
	perP99 = 1846227447
)

// tables has log2(1+i/1024) and 2^(i/1024) in q32, read with linear
// interpolation: within 2e-7. They are computed from integer products and
// square roots alone, which every architecture rounds alike; package math's own
// logarithm and exponential differ between them.
type tables struct {
	log2, exp2 [1025]uint64
}

var mathTables = sync.OnceValue(func() *tables {
	t := &tables{}
	for i := range t.log2 {
		t.log2[i] = log2Bits(uint64(1024+i) << 52)
	}
	// root[k] is 2^(2^-k), and 2^(i/1024) the product over the bits of i.
	var root [11]float64
	root[0] = 2
	for k := 1; k < len(root); k++ {
		root[k] = math.Sqrt(root[k-1])
	}
	for i := range t.exp2 {
		v := 1.0
		for k := 0; k <= 10; k++ {
			if i>>(10-k)&1 == 1 {
				v = float64(v * root[k])
			}
		}
		t.exp2[i] = uint64(math.Floor(float64(v*q32) + 0.5))
	}
	return t
})

// log2Bits is log2 of a number in [1, 2] with 62 binary places, as q32: the
// next bit of the logarithm is whether the square reaches 2.
func log2Bits(y uint64) uint64 {
	if y == 1<<63 {
		return q32
	}
	var out uint64
	for range 34 {
		hi, lo := bits.Mul64(y, y)
		y = hi<<2 | lo>>62
		out <<= 1
		if y >= 1<<63 {
			out |= 1
			y >>= 1
		}
	}
	return (out + 2) >> 2
}

// log2 is log2(x) in q32, for x > 0.
func (t *tables) log2Of(x uint64) uint64 {
	n := bits.Len64(x) - 1
	m := x << (63 - n)
	i, part := m>>53&1023, m>>21&(q32-1)
	return uint64(n)<<32 + t.log2[i] + (t.log2[i+1]-t.log2[i])*part>>32
}

// scaleExp2 is d * 2^x for x in q32, saturating.
func (t *tables) scaleExp2(d uint64, x int64) int64 {
	part := uint64(x) & (q32 - 1)
	i := part >> 22
	f := t.exp2[i] + (t.exp2[i+1]-t.exp2[i])*(part&(1<<22-1))>>22
	return shiftSat(d, f, 32-(x>>32))
}

// shiftSat is d*f / 2^by, saturating at the largest int64.
func shiftSat(d, f uint64, by int64) int64 {
	hi, lo := bits.Mul64(d, f)
	switch {
	case by >= 128:
		return 0
	case by >= 64:
		lo, hi, by = hi, 0, by-64
	case by < 0:
		if hi != 0 || lo != 0 {
			return math.MaxInt64
		}
		return 0
	}
	if hi>>by != 0 {
		return math.MaxInt64
	}
	lo = lo>>by | hi<<(64-by)
	return int64(min(lo, math.MaxInt64))
}

// exponential maps 64 uniform bits to an exponential variate with mean 1, in
// q32: minus the natural logarithm of a number in (0, 1].
func (t *tables) exponential(x uint64) uint64 {
	n := 64<<32 - t.log2Of(x|1)
	hi, lo := bits.Mul64(n, ln2)
	return hi<<32 | lo>>32
}

// normal makes a standard normal variate, in q32, of the draws that key yields
// (Marsaglia's polar method).
func (t *tables) normal(key uint64) int64 {
	for {
		key += golden
		u := unit(mix(key))
		key += golden
		v := unit(mix(key))
		s := float64(u*u) + float64(v*v)
		if s >= 1 || s == 0 {
			continue
		}
		const places = 1 << 53
		log := int64(t.log2Of(uint64(math.Floor(float64(s*places)))|1)) - 53<<32
		// ln s as a float: log2 in q32 times ln 2.
		ln := float64(float64(log) * (float64(ln2) / q32 / q32))
		z := float64(u * math.Sqrt(-2*ln/s))
		return int64(math.Floor(float64(z * q32)))
	}
}

// unit maps 64 uniform bits to [-1, 1).
func unit(x uint64) float64 { return float64(int64(x)>>11) / (1 << 52) }

// scaled is d times a factor in q16, saturating.
func scaled(d int64, factor uint64) int64 {
	if factor == q16 {
		return d
	}
	return shiftSat(uint64(d), factor, 16)
}

// fixed16 is a factor as q16.
func fixed16(f float64) uint64 { return uint64(math.Floor(float64(f*q16) + 0.5)) }

// threshold maps a share of 0 to 1 to the number below which that share of all
// draws of 32 bits lies.
func threshold(share float64) uint64 { return uint64(math.Floor(float64(share*q32) + 0.5)) }

// hit tells whether a draw falls below a threshold.
func hit(x, limit uint64) bool { return x>>32 < limit }
