package hashring

import "math/bits"

// Jump returns the bucket of key among buckets numbered from 0, by jump
// consistent hash (Lamping, Veach 2014). Growing from n to n+1 buckets moves
// 1/(n+1) of the keys, all of them to bucket n; only the last bucket can be
// taken away. It needs no table, so it fits numbered shards rather than named
// members that come and go: see [Ring], [Maglev] and [Rendezvous] for those.
//
// The published code computes each jump in floating point. This one divides
// integers: the result is the exact one on every architecture, and equal to
// the published code's except where rounding there falls below an integer that
// the exact quotient reaches (about one key in 10^8).
//
// It takes O(log buckets) steps, does not allocate, and returns -1 if buckets
// is less than 1. It is safe for concurrent use.
func Jump(key uint64, buckets int) int {
	if buckets < 1 {
		return -1
	}
	b, next := uint64(0), uint64(0)
	for next < uint64(buckets) {
		b = next
		key = key*2862933555777941757 + 1
		r := key>>33 + 1 // 1..2^31, uniform
		// next = floor((b+1) * 2^31 / r). It exceeds b because r <= 2^31.
		hi, lo := bits.Mul64(b+1, 1<<31)
		if hi >= r {
			break // the quotient needs more than 64 bits
		}
		next, _ = bits.Div64(hi, lo, r)
	}
	return int(b)
}
