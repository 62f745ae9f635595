package sim

import (
	"math"
	"math/bits"
	"time"
)

// subBits is the number of binary digits of a value that choose its bucket
// after the leading one.
const subBits = 7

// Histogram counts durations. Below 256 ns it is exact; above, a bucket is at
// most 1/128 of its values wide, so that a quantile is at most 0.8 % above the
// true one and never below. Count, sum, least and greatest are exact.
//
// The zero Histogram is empty and ready to use. Not safe for concurrent use
// while something is added.
type Histogram struct {
	buckets  []uint64
	count    uint64
	sum      Sum
	min, max int64
}

func bucketOf(v int64) int {
	n := bits.Len64(uint64(v))
	if n <= subBits+1 {
		return int(v)
	}
	shift := n - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// upper is the greatest value of a bucket.
func upper(b int) int64 {
	if b < 2<<subBits {
		return int64(b)
	}
	shift := b>>subBits - 1
	return int64(uint64(b-shift<<subBits+1)<<shift - 1)
}

// Add counts one duration. A negative one counts as 0. O(1).
func (h *Histogram) Add(d time.Duration) {
	if h.buckets == nil {
		h.buckets = make([]uint64, bucketOf(1<<62)+1<<subBits)
	}
	v := max(0, int64(d))
	h.buckets[bucketOf(v)]++
	if h.count == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.count++
	h.sum.add(1, v)
}

// Count is the number of durations.
func (h Histogram) Count() uint64 { return h.count }

// Sum is their sum.
func (h Histogram) Sum() Sum { return h.sum }

// Mean is their mean, rounded down to the nanosecond; 0 if there are none.
func (h Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return h.sum.over(h.count)
}

// Min is the shortest, 0 if there are none.
func (h Histogram) Min() time.Duration { return time.Duration(h.min) }

// Max is the longest, 0 if there are none.
func (h Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile is the least duration, up to the width of a bucket, that a share q of
// all durations does not exceed; q is taken into 0 to 1. It is 0 if there are
// none. O(buckets), about 7000.
func (h Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := rankOf(q, h.count)
	seen := uint64(0)
	for b, n := range h.buckets {
		if seen += n; seen >= rank {
			return time.Duration(min(upper(b), h.max))
		}
	}
	return h.Max()
}

// rankOf is the least whole number that is at least q*n, from 1 to n. A q such as
// 0.07 is not the float that stands for it, and 0.07 times 100 comes out above 7:
// what exceeds a whole number by no more than the two roundings is that number.
func rankOf(q float64, n uint64) uint64 {
	switch {
	case !(q > 0):
		return 1
	case q >= 1:
		return n
	}
	product := float64(q * float64(n))
	least := product - float64(product*0x1p-51)
	// Above 0, and below n: q is less than 1 by as much as a rounding at least.
	return uint64(-math.Floor(-least))
}
