package retrybudget

import (
	"math"
	"math/bits"
)

// slots is how many parts an expiring ledger and a share window pass in; the
// one that is being filled counts as one of them. Finagle uses the same ten.
const slots = 10

// bucket is the token account. Without TTL only balance and carry are used.
// With TTL, balance is at all times
//
//	reserve + sum(in) - sum(out)
//
// over the slots that have not expired. It never exceeds the capacity. It can
// be negative with TTL alone, when a deposit expires before the withdrawal
// that it paid for.
type bucket struct {
	balance int64  // billionths of a token
	carry   uint64 // drip not yet a billionth, in 1e-9 of one; 0 when full

	start int64        // instant at which the head slot began
	head  int          // index of the slot that is being filled
	in    [slots]int64 // deposits of each slot, oldest at head+1
	out   [slots]int64 // withdrawals of each slot
}

// advance moves the account by dt nanoseconds to now.
func (b *bucket) advance(s *settings, now int64, dt uint64) {
	if s.slot > 0 {
		b.expire(s, now)
		return
	}
	if s.perSecond == 0 || b.balance >= s.capacity {
		return
	}
	// The product has 128 bits and its remainder is carried, so that polling
	// often or seldom yields the same tokens at the same instant.
	hi, lo := bits.Mul64(uint64(s.perSecond), dt)
	lo, over := bits.Add64(lo, b.carry, 0)
	hi += over
	if hi >= second {
		b.balance, b.carry = s.capacity, 0
		return
	}
	gain, rest := bits.Div64(hi, lo, second)
	if gain >= uint64(s.capacity-b.balance) {
		b.balance, b.carry = s.capacity, 0
		return
	}
	b.balance += int64(gain)
	b.carry = rest
}

// expire drops the slots that are a whole TTL old. Each boundary is passed by
// itself, so that the result does not depend on when anybody looked.
func (b *bucket) expire(s *settings, now int64) {
	n := (uint64(now) - uint64(b.start)) / uint64(s.slot)
	b.start += int64(n * uint64(s.slot))
	for range min(n, slots) {
		b.head = (b.head + 1) % slots
		b.balance += b.out[b.head] - b.in[b.head]
		b.in[b.head], b.out[b.head] = 0, 0
		b.trim(s)
	}
}

// trim drops the oldest deposits that withdrawals which are no more have
// lifted above the capacity. The reserve is within the capacity, so there are
// always deposits enough.
func (b *bucket) trim(s *settings) {
	for i := 1; b.balance > s.capacity && i <= slots; i++ {
		k := (b.head + i) % slots
		n := min(b.balance-s.capacity, b.in[k])
		b.in[k] -= n
		b.balance -= n
	}
}

// deposit adds n, as far as there is room.
func (b *bucket) deposit(s *settings, n int64) {
	n = min(n, s.capacity-b.balance)
	b.balance += n
	if s.slot > 0 {
		b.in[b.head] += n
	}
	if b.balance == s.capacity {
		b.carry = 0
	}
}

// take removes n, which the caller has checked.
func (b *bucket) take(s *settings, n int64) {
	b.balance -= n
	if s.slot == 0 {
		return
	}
	in, out := &b.in[b.head], &b.out[b.head]
	*out += n
	// Entries of one slot expire together, so they cancel. Doing so when they
	// are huge keeps ten slots of them below MaxInt64; half of them stay, which
	// is more than any one withdrawal that may yet be given back.
	if m := min(*in, *out); m > 1<<58 {
		*in -= m / 2
		*out -= m / 2
	}
}

// giveBack undoes a withdrawal of n. With TTL the oldest one that still counts
// is undone: which one it was is not known, and in this way no retry that was
// sent is forgotten before its time. One that has expired is back already.
func (b *bucket) giveBack(s *settings, n int64) {
	if s.slot == 0 {
		b.deposit(s, n)
		return
	}
	for i := 1; n > 0 && i <= slots; i++ {
		k := (b.head + i) % slots
		m := min(n, b.out[k])
		b.out[k] -= m
		b.balance += m
		n -= m
	}
	b.trim(s)
}

// covers reports whether a retry can be paid for.
func (b *bucket) covers(s *settings) bool {
	return b.balance >= s.cost && b.balance > s.threshold
}

// next returns the next instant after now, the time of the account, at which
// it may come to cover a retry that it does not cover now.
func (b *bucket) next(s *settings, now int64) (int64, bool) {
	if s.slot > 0 {
		for i := range slots {
			if b.in[i] != 0 || b.out[i] != 0 {
				return after(b.start, uint64(s.slot))
			}
		}
		return 0, false
	}
	if s.perSecond == 0 || b.covers(s) {
		return 0, false
	}
	// The smallest dt with floor((perSecond*dt + carry) / 1e9) >= lack.
	lack := uint64(max(s.cost, s.threshold+1) - b.balance)
	hi, lo := bits.Mul64(lack, second)
	lo, under := bits.Sub64(lo, b.carry, 0)
	hi -= under
	lo, over := bits.Add64(lo, uint64(s.perSecond)-1, 0)
	hi += over
	if hi >= uint64(s.perSecond) {
		return math.MaxInt64, true
	}
	dt, _ := bits.Div64(hi, lo, uint64(s.perSecond))
	if at, ok := after(now, dt); ok {
		return at, true
	}
	return math.MaxInt64, true
}

// after returns t+d, and whether it is on the timeline, the last instant of
// which stands for everything beyond.
func after(t int64, d uint64) (int64, bool) {
	if d >= uint64(math.MaxInt64)-uint64(t) {
		return 0, false
	}
	return int64(uint64(t) + d), true
}
