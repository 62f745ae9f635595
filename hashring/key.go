package hashring

import "math/bits"

// FNV1a returns the 64-bit FNV-1a hash of s (Fowler, Noll, Vo): start
// from the offset basis 14695981039346656037 and, for each byte, xor it in and
// multiply by the prime 1099511628211.
//
// The raw value is not a good key: the last bytes of s hardly reach its high
// bits, so strings that differ in a short suffix land side by side. Use [Key].
//
// It takes time linear in len(s), does not allocate, and is safe for
// concurrent use.
func FNV1a(s string) uint64 { return fnv1a(s) }

// Key returns the 64-bit key of a string: [FNV1a] with the SplitMix64
// finaliser over it (Steele, Lea, Flood 2014), which spreads every input bit
// over all output bits. The value is the same in every process, on every
// architecture and in every release.
//
// Key is no defence against a client who chooses s to overload one member,
// because colliding strings are easy to construct; see [SeededKey]. The key of
// the empty string is a key like any other. A request that has no key at all
// should not come here: it would always meet the same member.
//
// It takes time linear in len(s), does not allocate, and is safe for
// concurrent use.
func Key(s string) uint64 { return mix(fnv1a(s)) }

// KeyBytes is [Key] for a byte slice: KeyBytes([]byte(s)) equals Key(s).
//
// It takes time linear in len(b), does not allocate, does not keep b, and is
// safe for concurrent use.
func KeyBytes(b []byte) uint64 { return mix(fnv1a(b)) }

// KeyUint64 returns the key of a number, such as a user id or a counter. The
// tables of this package place keys by their high bits, so small or sequential
// numbers used as keys unmixed would all meet the same member.
//
// It does not allocate and is safe for concurrent use.
func KeyUint64(n uint64) uint64 { return mix(n + gamma) }

// SeededKey returns the key of a string that an untrusted client chooses. It is
// SipHash-2-4 (Aumasson, Bernstein 2012) under a key derived from seed, so a
// client who does not know seed cannot find strings that meet one member more
// often than chance. All processes that must agree use the same seed; changing
// it moves every key. Seed 0 is a seed like any other.
//
// It takes time linear in len(s), does not allocate, and is safe for
// concurrent use.
func SeededKey(seed uint64, s string) uint64 {
	return sipHash(seed, draw(seed, streamSip, 0), s)
}

// SeededKeyBytes is [SeededKey] for a byte slice.
//
// It takes time linear in len(b), does not allocate, does not keep b, and is
// safe for concurrent use.
func SeededKeyBytes(seed uint64, b []byte) uint64 {
	return sipHash(seed, draw(seed, streamSip, 0), b)
}

func fnv1a[T string | []byte](s T) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return h
}

// sipHash is SipHash-2-4 with the 128-bit key (k0, k1) and a 64-bit result.
func sipHash[T string | []byte](k0, k1 uint64, s T) uint64 {
	// The initial state is the key under the ASCII of
	// "somepseudorandomlygeneratedbytes".
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	i := 0
	for ; i+8 <= len(s); i += 8 {
		m := word(s[i:], 8)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	// The last word carries the remaining bytes and, on top, the length mod
	// 256, so that trailing zero bytes count.
	m := word(s[i:], len(s)-i) | uint64(len(s))<<56
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= m
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

// word reads n <= 8 bytes of s, little-endian.
func word[T string | []byte](s T, n int) uint64 {
	var m uint64
	for j := range n {
		m |= uint64(s[j]) << (8 * j)
	}
	return m
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
