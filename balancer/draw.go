package balancer

import "math/bits"

// golden is the odd 64-bit integer nearest to 2^64 divided by the golden ratio;
// its multiples are as far apart as 64 bits allow (Knuth 6.4).
const golden = 0x9e3779b97f4a7c15

// Streams separate the draws of one seed by purpose, so that adding a draw for
// one purpose leaves the others as they were.
const (
	streamPick uint64 = iota + 1
	streamStart
	streamBackoff
	streamBreaker
	streamOutlier
)

// mix is the SplitMix64 finaliser (Steele, Lea and Flood, OOPSLA 2014): a
// bijection of 64 bits in which every input bit reaches every output bit.
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

// salt is the part of draw that does not depend on n:
// draw(seed, stream, n) = mix(salt(seed, stream) + n*golden).
func salt(seed, stream uint64) uint64 {
	return mix(mix(seed+golden) ^ stream*0xd1342543de82ef95)
}

// below maps 64 uniform bits to [0, n). The bias is below n/2^64.
func below(x, n uint64) uint64 {
	hi, _ := bits.Mul64(x, n)
	return hi
}

// hashID maps an upstream's id to the key of its own draws (FNV-1a, mixed).
func hashID(id string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := 0; i < len(id); i++ {
		h = (h ^ uint64(id[i])) * 0x100000001b3
	}
	return mix(h)
}
