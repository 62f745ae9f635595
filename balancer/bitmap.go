package balancer

import "math/bits"

// bitmap is a set of small integers in two levels: a bit per member and, above
// it, a bit per word that is not empty. A flip costs two writes at most and
// finding the next member skips 4096 absent ones at a time, so that neither
// grows with the number of upstreams in any way that a pick can feel. Not safe
// for concurrent use.
type bitmap struct {
	words []uint64
	sums  []uint64
	n     int // members that the set can hold
	count int // members that it holds
}

func newBitmap(n int) bitmap {
	w := (n + 63) / 64
	return bitmap{words: make([]uint64, w), sums: make([]uint64, (w+63)/64), n: n}
}

func (b *bitmap) has(i int) bool { return b.words[i>>6]>>(i&63)&1 != 0 }

// set adds or removes i and tells whether that changed the set.
func (b *bitmap) set(i int, on bool) bool {
	w, m := i>>6, uint64(1)<<(i&63)
	if (b.words[w]&m != 0) == on {
		return false
	}
	if on {
		b.words[w] |= m
		b.sums[w>>6] |= 1 << (w & 63)
		b.count++
		return true
	}
	b.words[w] &^= m
	if b.words[w] == 0 {
		b.sums[w>>6] &^= 1 << (w & 63)
	}
	b.count--
	return true
}

// next returns the smallest member that is at least i, going round past the
// end, or -1 if the set is empty. An i outside [0, n) counts as 0.
func (b *bitmap) next(i int) int {
	if b.count == 0 {
		return -1
	}
	if uint(i) >= uint(b.n) {
		i = 0
	}
	w := i >> 6
	if rest := b.words[w] >> (i & 63) << (i & 63); rest != 0 {
		return w<<6 + bits.TrailingZeros64(rest)
	}
	// Words after w in its group of 64, then whole groups, then round to w itself.
	s := w >> 6
	if rest := b.sums[s] >> (w & 63) >> 1 << 1 << (w & 63); rest != 0 {
		w = s<<6 + bits.TrailingZeros64(rest)
		return w<<6 + bits.TrailingZeros64(b.words[w])
	}
	for range b.sums {
		if s++; s == len(b.sums) {
			s = 0
		}
		if b.sums[s] != 0 {
			break
		}
	}
	w = s<<6 + bits.TrailingZeros64(b.sums[s])
	return w<<6 + bits.TrailingZeros64(b.words[w])
}

// nextIn is next among the members that o, a set over the same range, has too.
// O(n/64).
func (b *bitmap) nextIn(o *bitmap, i int) int {
	if uint(i) >= uint(b.n) {
		i = 0
	}
	w, mask := i>>6, ^uint64(0)<<(i&63)
	for range len(b.words) + 1 { // the first word comes twice
		if both := b.words[w] & o.words[w] & mask; both != 0 {
			return w<<6 + bits.TrailingZeros64(both)
		}
		if w++; w == len(b.words) {
			w = 0
		}
		mask = ^uint64(0)
	}
	return -1
}

// nth returns the member of rank k (0 is the smallest), or -1 if the set holds
// k members or fewer. O(n/64).
func (b *bitmap) nth(k int) int {
	if uint(k) >= uint(b.count) {
		return -1
	}
	for s, sum := range b.sums {
		for ; sum != 0; sum &= sum - 1 {
			w := s<<6 + bits.TrailingZeros64(sum)
			word := b.words[w]
			c := bits.OnesCount64(word)
			if k >= c {
				k -= c
				continue
			}
			for ; k > 0; k-- {
				word &= word - 1
			}
			return w<<6 + bits.TrailingZeros64(word)
		}
	}
	return -1
}
