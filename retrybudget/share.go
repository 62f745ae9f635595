package retrybudget

import (
	"math"
	"math/bits"
)

// share counts the retries and the traffic that they are a share of. The sums
// are those of the slots, kept so that a decision does not walk them. A window
// that never ends uses the first slot alone.
type share struct {
	// The base and the retries are counted in the same slots, so that a retry
	// never outlives the traffic that allowed it by more than the window.
	base    int64 // requests or successes in the window
	retries int64 // grants in the window
	any     bool  // a success has been seen, ever

	start int64 // as in bucket
	head  int
	bases [slots]int64
	taken [slots]int64
}

// advance drops the slots that are a whole window old.
func (h *share) advance(s *settings, now int64) {
	if s.shareSlot == 0 {
		return
	}
	n := (uint64(now) - uint64(h.start)) / uint64(s.shareSlot)
	h.start += int64(n * uint64(s.shareSlot))
	for range min(n, slots) {
		h.head = (h.head + 1) % slots
		h.base -= h.bases[h.head]
		h.retries -= h.taken[h.head]
		h.bases[h.head], h.taken[h.head] = 0, 0
	}
}

// count adds one unit of traffic.
func (h *share) count() {
	h.base++
	h.bases[h.head]++
}

// take counts one retry.
func (h *share) take() {
	h.retries++
	h.taken[h.head]++
}

// giveBack uncounts a retry: the oldest, as in bucket.
func (h *share) giveBack() {
	for i := 1; i <= slots; i++ {
		if k := (h.head + i) % slots; h.taken[k] > 0 {
			h.taken[k]--
			h.retries--
			return
		}
	}
}

// allows reports whether one retry more than retries keeps within the share of
// base.
func (h *share) allows(s *settings, retries, base int64) bool {
	// A client that has never seen a success has no rate to share yet.
	if s.successes && !h.any {
		return true
	}
	// The floor is a maximum with the share, not a sum, as Envoy has it: small
	// traffic is not charged for it, and large traffic gains nothing.
	if retries < s.shareMin {
		return true
	}
	// retries+1 <= (rate*base + burst) / 1e9, where the right side may be
	// rounded down because the left one is whole.
	hi, lo := bits.Mul64(uint64(s.shareRate), uint64(base))
	lo, over := bits.Add64(lo, uint64(s.shareBurst), 0)
	hi += over
	if hi >= unit {
		return true
	}
	whole, _ := bits.Div64(hi, lo, unit)
	return uint64(retries) < whole
}

// next returns the next instant at which the counts change by themselves.
func (h *share) next(s *settings) (int64, bool) {
	if s.shareSlot == 0 || h.base == 0 && h.retries == 0 {
		return math.MaxInt64, false
	}
	return after(h.start, uint64(s.shareSlot))
}
