package sim

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Sum is a sum of durations in nanoseconds, Hi*2^64 + Lo of them. A
// time.Duration would end at 292 years, which the waiting of one long queue adds
// up to in a few seconds of load. The zero Sum is 0; equal sums are equal with
// ==. It is plain data and safe for concurrent use while nobody writes to it.
type Sum struct {
	Hi, Lo uint64 // the upper and the lower 64 bits
}

// add adds n times d; neither is negative.
func (s *Sum) add(n, d int64) {
	hi, lo := bits.Mul64(uint64(n), uint64(d))
	var carry uint64
	s.Lo, carry = bits.Add64(s.Lo, lo, 0)
	s.Hi += hi + carry
}

// less is the sum without another, which is part of it.
func (s Sum) less(o Sum) Sum {
	lo, borrow := bits.Sub64(s.Lo, o.Lo, 0)
	return Sum{Hi: s.Hi - o.Hi - borrow, Lo: lo}
}

// over is the sum divided by n, rounded down. n must be positive.
func (s Sum) over(n uint64) time.Duration {
	if s.Hi >= n {
		return math.MaxInt64
	}
	mean, _ := bits.Div64(s.Hi, s.Lo, n)
	return time.Duration(min(mean, math.MaxInt64))
}

// Duration is the sum as a time.Duration, the longest there is if it is longer.
func (s Sum) Duration() time.Duration { return s.over(1) }

// Seconds is the sum in seconds, rounded.
func (s Sum) Seconds() float64 {
	return (float64(float64(s.Hi)*(1<<64)) + float64(s.Lo)) / 1e9
}

// String is the sum as a time.Duration prints, or in seconds if it is longer than
// that can be.
func (s Sum) String() string {
	if s.Hi == 0 && s.Lo <= math.MaxInt64 {
		return s.Duration().String()
	}
	return fmt.Sprintf("%.9gs", s.Seconds())
}
