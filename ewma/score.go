package ewma

import (
	"math"
	"math/bits"
)

// Score is what a balancer compares to choose the better of two hosts: a load
// divided by a weight, kept as a fraction so that the comparison is exact. The
// zero Score, and any other without a weight, comes after all that have one. A
// Score is a value and safe for concurrent use.
type Score struct {
	load   uint64
	weight uint64
}

// ProductScore returns value * (inflight + 1) / weight, the load of Finagle's
// PeakEwma: the time until a new call would be answered if the calls in flight
// were served one after another. A value below 1 counts as 1, so that the score
// of a host that was idle for long still grows with every call in flight and
// the host does not absorb everything. A negative inflight counts as 0, and
// weight <= 0 as no weight. The load saturates at 2^64-1. It is safe for
// concurrent use.
func ProductScore(value, inflight, weight int64) Score {
	calls := uint64(max(inflight, 0)) + 1
	hi, lo := bits.Mul64(uint64(max(value, 1)), calls)
	if hi > 0 {
		lo = math.MaxUint64
	}
	return Score{load: lo, weight: uint64(max(weight, 0))}
}

// SumScore returns (value + inflight*penalty) / weight: every call in flight
// counts as so much more latency. Negative arguments count as 0, and weight <=
// 0 as no weight. The load saturates at 2^64-1. It is safe for concurrent use.
func SumScore(value, inflight, penalty, weight int64) Score {
	hi, lo := bits.Mul64(uint64(max(inflight, 0)), uint64(max(penalty, 0)))
	lo, carry := bits.Add64(lo, uint64(max(value, 0)), 0)
	if hi+carry > 0 {
		lo = math.MaxUint64
	}
	return Score{load: lo, weight: uint64(max(weight, 0))}
}

// Less reports whether s is the better, lower, score. Scores that are equal as
// fractions are not less either way. It is safe for concurrent use.
func (s Score) Less(o Score) bool {
	if s.weight == 0 || o.weight == 0 {
		return s.weight > 0
	}
	hi, lo := bits.Mul64(s.load, o.weight)
	hi2, lo2 := bits.Mul64(o.load, s.weight)
	return hi < hi2 || hi == hi2 && lo < lo2
}
