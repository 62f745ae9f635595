package retrybudget

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrState is wrapped by every error of [Core.RestoreState].
var ErrState = errors.New("retrybudget: invalid saved state")

// stateVersion is the first byte of the encoding.
const stateVersion = 1

// flags of the encoding.
const (
	flagSeen    = 1 << iota // an input has been seen
	flagExpire              // the bucket's ring follows
	flagShare               // the share's counts follow
	flagWindow              // they are a ring
	flagSuccess             // a success has been seen
	flagsKnown  = 1<<iota - 1
)

// flags returns the flags that the state, or with any state the
// configuration, gives rise to.
func (c *Core) flags() uint64 {
	var f uint64
	if c.seen {
		f |= flagSeen
	}
	if s := c.set; s != nil {
		if s.bucket && s.slot > 0 {
			f |= flagExpire
		}
		if s.share && !s.inFlight {
			f |= flagShare
			if s.shareSlot > 0 {
				f |= flagWindow
			}
		}
	}
	if c.share.any {
		f |= flagSuccess
	}
	return f
}

// AppendState appends the state of the budget, without its configuration, to b
// and returns the extended slice. The encoding is, with varints as in
// encoding/binary (u: unsigned, s: signed) and amounts in billionths of a
// token:
//
//	byte  version, 1
//	u     flags: 1 an input was seen, 2 deposits expire, 4 there are share
//	      counts, 8 they are of a window, 16 a success was seen
//	u     age of the latest input at now, in nanoseconds; 0 if none was seen
//	s     balance
//	u     part of the drip not yet a billionth, in billionths of it
//	u     requests begun and not ended
//	u     retries granted and neither refunded nor ended
//	u     retries granted, ever
//	u     retries refused, ever
//	      if deposits expire: u age of the newest slot at the latest input,
//	      then ten pairs u deposits, u withdrawals, oldest slot first
//	      if there are share counts: for a window u age of the newest slot at
//	      the latest input and ten pairs u base, u retries, oldest slot first;
//	      otherwise one pair
//
// A now before the latest input counts as the latest input. State is not safe
// to append while another goroutine uses the Core.
func (c *Core) AppendState(b []byte, now int64) []byte {
	b = append(b, stateVersion)
	b = binary.AppendUvarint(b, c.flags())
	var age uint64
	if c.seen && now > c.latest {
		age = uint64(now) - uint64(c.latest)
	}
	b = binary.AppendUvarint(b, age)
	b = binary.AppendVarint(b, c.bucket.balance)
	b = binary.AppendUvarint(b, c.bucket.carry)
	b = binary.AppendUvarint(b, uint64(c.active))
	b = binary.AppendUvarint(b, uint64(c.retrying))
	b = binary.AppendUvarint(b, c.granted)
	b = binary.AppendUvarint(b, c.refused)
	f := c.flags()
	if f&flagExpire != 0 {
		b = appendRing(b, uint64(c.latest)-uint64(c.bucket.start), c.bucket.head, &c.bucket.in, &c.bucket.out)
	}
	switch {
	case f&flagWindow != 0:
		b = appendRing(b, uint64(c.latest)-uint64(c.share.start), c.share.head, &c.share.bases, &c.share.taken)
	case f&flagShare != 0:
		b = binary.AppendUvarint(b, uint64(c.share.base))
		b = binary.AppendUvarint(b, uint64(c.share.retries))
	}
	return b
}

// appendRing appends two parallel rings, oldest slot first.
func appendRing(b []byte, age uint64, head int, x, y *[slots]int64) []byte {
	b = binary.AppendUvarint(b, age)
	for i := 1; i <= slots; i++ {
		k := (head + i) % slots
		b = binary.AppendUvarint(b, uint64(x[k]))
		b = binary.AppendUvarint(b, uint64(y[k]))
	}
	return b
}

// reader decodes the state; the first fault sticks.
type reader struct {
	b   []byte
	err error
}

// fail records a fault.
func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrState, what)
	}
}

// uint reads an unsigned varint up to limit.
func (r *reader) uint(what string, limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("truncated at " + what)
		return 0
	}
	r.b = r.b[n:]
	if v > limit {
		r.fail(what + " out of range")
		return 0
	}
	return v
}

// int reads a signed varint.
func (r *reader) int(what string) int64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("truncated at " + what)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// maxSum bounds every count and every sum of a ring: two of them, and a
// reserve, add up without overflow.
const maxSum = 1 << 62

// ring reads two parallel rings into x and y, the newest slot last, and
// returns the age of that and the sums.
func (r *reader) ring(what string, slot int64, x, y *[slots]int64) (age uint64, sx, sy int64) {
	age = r.uint(what+" age", uint64(slot)-1)
	for i := range slots {
		x[i] = int64(r.uint(what, uint64(maxSum-sx)))
		y[i] = int64(r.uint(what, uint64(maxSum-sy)))
		sx += x[i]
		sy += y[i]
	}
	return age, sx, sy
}

// RestoreState replaces the state of the budget by one that
// [Core.AppendState] wrote at the head of b, and returns what follows it. The
// budget then behaves as the saved one would, with now in the place of the now
// of the save. The configuration is not part of the state and should be equal.
// An error wraps [ErrState] and leaves the budget unchanged: the state is
// truncated, of an unknown version, or impossible under the configuration. It
// is not safe while another goroutine uses the Core.
func (c *Core) RestoreState(b []byte, now int64) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrState)
	}
	if b[0] != stateVersion {
		return nil, fmt.Errorf("%w: unknown version %d", ErrState, b[0])
	}
	r := &reader{b: b[1:]}
	n := Core{set: c.set}
	want := n.flags()
	f := r.uint("flags", flagsKnown)
	if r.err == nil && f&^(flagSeen|flagSuccess) != want {
		r.fail("configurations differ")
	}
	n.seen = f&flagSeen != 0
	n.share.any = f&flagSuccess != 0
	if n.share.any && (n.set == nil || !n.set.successes) {
		r.fail("configurations differ")
	}
	age := r.uint("age", uint64(now)+1<<63) // no earlier than MinInt64
	n.latest = int64(uint64(now) - age)
	n.bucket.balance = r.int("balance")
	n.bucket.carry = r.uint("carry", second-1)
	n.active = int64(r.uint("requests", maxSum))
	n.retrying = int64(r.uint("retries", maxSum))
	n.granted = r.uint("granted", ^uint64(0))
	n.refused = r.uint("refused", ^uint64(0))
	if want&flagExpire != 0 {
		n.restoreBucket(r)
	} else if s := c.set; r.err == nil {
		if full := s != nil && s.bucket; !full && n.bucket != (bucket{}) ||
			full && (n.bucket.balance < 0 || n.bucket.balance > s.capacity || n.bucket.balance == s.capacity && n.bucket.carry != 0) {
			r.fail("balance out of range")
		}
	}
	switch {
	case want&flagWindow != 0:
		var a uint64
		a, n.share.base, n.share.retries = r.ring("share", c.set.shareSlot, &n.share.bases, &n.share.taken)
		n.share.start, n.share.head = n.startOf(r, a), slots-1
	case want&flagShare != 0:
		n.share.base = int64(r.uint("share", maxSum))
		n.share.retries = int64(r.uint("share", maxSum))
		n.share.bases[0], n.share.taken[0] = n.share.base, n.share.retries
	}
	if r.err != nil {
		return nil, r.err
	}
	*c = n
	return r.b, nil
}

// restoreBucket reads the ring of the bucket, and checks the balance, which it
// determines.
func (c *Core) restoreBucket(r *reader) {
	s := c.set
	age, in, out := r.ring("slots", s.slot, &c.bucket.in, &c.bucket.out)
	c.bucket.start, c.bucket.head = c.startOf(r, age), slots-1
	if r.err == nil && (c.bucket.balance != s.reserve+in-out || c.bucket.balance > s.capacity || c.bucket.carry != 0) {
		r.fail("balance out of range")
	}
}

// startOf returns the instant that was age before the latest input.
func (c *Core) startOf(r *reader, age uint64) int64 {
	if age > uint64(c.latest)+1<<63 || !c.seen && age != 0 {
		r.fail("slot age out of range")
		return 0
	}
	return c.latest - int64(age)
}
