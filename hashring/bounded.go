package hashring

import (
	"cmp"
	"math"
	"math/bits"
)

// Limits of BoundedConfig, and the number of keyed probes before the scan.
const (
	defaultFactor = 125
	minFactor     = 100
	maxFactor     = 1000000
	probes        = 32
)

// A BoundedConfig sets up a [Bounded]. The zero value allows each member 125 %
// of its share.
//
// A BoundedConfig is plain data and safe for concurrent use while nobody writes
// to it.
type BoundedConfig struct {
	// Factor is the load allowed to a member, in percent of its share of the
	// load at that moment. 100 spreads the load evenly and keeps few keys in
	// place when it is high; 120 to 200 are usual.
	// If zero, 125. Values from 1 to 99, negative values and values above
	// 1000000 are rejected.
	Factor int
}

// Validate returns an error that wraps [ErrConfig] and names the first field
// out of range, or nil. It is safe for concurrent use.
func (c BoundedConfig) Validate() error {
	if f := c.factor(); f < minFactor || f > maxFactor {
		return &ConfigError{"BoundedConfig.Factor", c.Factor, "0 or 100..1000000"}
	}
	return nil
}

func (c BoundedConfig) factor() int { return cmp.Or(c.Factor, defaultFactor) }

// A Bounded puts a bound on the load of the members of another table
// (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam
// 2018). A member of weight w takes a further unit of load while it has less
// than
//
//	ceil(c * (total+1) * w/W)
//
// where c is the factor, total is the load of all members now, and W the sum of
// their weights. A key whose owner is full goes to the owner of another key
// drawn from it, and so on, rather than to the next on the ring, so that one
// full member does not fill its neighbour (random jumps: Chen, Coleman,
// Shrivastava 2019). The limits add up to more than total, so some member
// always has room.
//
// A Bounded holds no loads: the caller counts them, in any unit, and passes
// them in. It is immutable and safe for concurrent use. The zero value is not
// usable.
type Bounded struct {
	table  Table
	factor uint64
	order  []int32  // members with a positive weight, in the order of ids
	share  []uint64 // by member: weight, scaled so that the sum fits 62 bits
	total  uint64
}

// NewBounded puts a bound on table, in O(n log n) time for n members. It returns
// an error that wraps [ErrConfig] if cfg is invalid, and one that wraps
// [ErrMembers] if a table from elsewhere has members that this package would
// not accept. It panics if table is nil.
func NewBounded(cfg BoundedConfig, table Table) (*Bounded, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	members := make([]Member, table.Len())
	for i := range members {
		members[i] = Member{table.ID(i), table.Weight(i)}
	}
	ros, err := newRoster(members, 0)
	if err != nil {
		return nil, err
	}
	b := &Bounded{
		table:  table,
		factor: uint64(cfg.factor()),
		order:  ros.order,
		share:  make([]uint64, len(members)),
	}
	for k, w := range ros.weightsInOrder() {
		b.share[b.order[k]] = w
		b.total += w
	}
	return b, nil
}

// Limit returns the load below which a member takes one more unit, while the
// members it shares with have a load of total, its own included. A negative
// total counts as 0. A member of weight 0 has limit 0. Limits saturate at the
// largest int.
//
// usable is the sum of the weights of the members that can take load, so that
// those left take over the shares of those that cannot; 0 or less stands for
// all members. It does not allocate and is safe for concurrent use.
func (b *Bounded) Limit(member, total, usable int) int {
	w := uint64(b.table.Weight(member))
	all := uint64(max(usable, 0))
	if all == 0 {
		w, all = b.share[member], b.total
	}
	if w == 0 {
		return 0
	}
	// ceil(factor * (total+1) * w / (100 * all)), in 128 bits and saturating.
	hi, load := bits.Mul64(uint64(max(total, 0))+1, b.factor)
	if hi != 0 {
		return math.MaxInt
	}
	hi, lo := bits.Mul64(load, w)
	// Divide by 100 and by all in turn: floor of floor is the floor, and
	// ceil(x) is floor of x minus the least step, plus one.
	lo, borrow := bits.Sub64(lo, 1, 0)
	hi -= borrow
	hi, lo = div128(hi, lo, 100)
	hi, lo = div128(hi, lo, all)
	if hi != 0 || lo >= math.MaxInt {
		return math.MaxInt
	}
	return int(lo) + 1
}

// div128 returns (hi, lo) / d, rounded down.
func div128(hi, lo, d uint64) (qhi, qlo uint64) {
	qhi, rem := hi/d, hi%d
	qlo, _ = bits.Div64(rem, lo, d)
	return qhi, qlo
}

// Fits reports whether a member with a load of load takes one more unit; total
// and usable are those of [Bounded.Limit]. It does not allocate and is safe for
// concurrent use.
func (b *Bounded) Fits(member, load, total, usable int) bool {
	return load < b.Limit(member, total, usable)
}

// Pick returns the member that takes one more unit of load under key, or -1 if
// no member has a positive weight. loads is the load of each member by index;
// missing and negative ones count as 0.
//
// It takes the first member of [Bounded.Walk] that fits. There always is one,
// unless the loads are so near the largest int that limits saturate; then it
// returns the member with the least load for its weight, ties by id.
//
// It takes O(n) time for n members, because it adds up the loads; a caller who
// keeps the sum can use Walk and [Bounded.Fits]. It does not allocate and is
// safe for concurrent use while nobody writes to loads.
func (b *Bounded) Pick(key uint64, loads []int) int {
	total := 0
	for _, m := range b.order {
		total = saturatingAdd(total, loadOf(loads, int(m)))
	}
	w := b.Walk(key)
	for m, ok := w.Next(); ok; m, ok = w.Next() {
		if b.Fits(m, loadOf(loads, m), total, 0) {
			return m
		}
	}
	return b.leastLoaded(loads)
}

// leastLoaded returns the member with the least load/weight.
func (b *Bounded) leastLoaded(loads []int) int {
	best := -1
	for _, m := range b.order {
		if best < 0 {
			best = int(m)
			continue
		}
		hi, lo := bits.Mul64(uint64(loadOf(loads, int(m))), b.share[best])
		bestHi, bestLo := bits.Mul64(uint64(loadOf(loads, best)), b.share[m])
		if hi < bestHi || hi == bestHi && lo < bestLo {
			best = int(m)
		}
	}
	return best
}

func loadOf(loads []int, m int) int {
	if m >= len(loads) {
		return 0
	}
	return max(0, loads[m])
}

func saturatingAdd(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// Walk returns the members to offer key to, in order: its owner; then the
// owners of up to 32 keys drawn from it, which are random members in proportion
// to their shares; then, for the rare key that finds all those full, each
// member in the order of ids from a place drawn from the key.
//
// It takes the time of one Lookup in the table and does not allocate; each step
// but those of the last part takes a Lookup too. It is safe for concurrent use.
func (b *Bounded) Walk(key uint64) BoundedWalk { return BoundedWalk{bounded: b, key: key} }

// A BoundedWalk yields candidates for one key, every member of positive weight
// at least once and some more often, and ends after 33 steps and one for each
// member.
//
// The zero value has ended. A BoundedWalk is not safe for concurrent use; a
// copy walks on by itself.
type BoundedWalk struct {
	bounded *Bounded
	key     uint64
	step    int
}

// Next returns the next candidate, or -1 and false after the last one. It does
// not allocate. It is not safe for concurrent use.
func (w *BoundedWalk) Next() (member int, ok bool) {
	if w.bounded == nil || w.step > probes+len(w.bounded.order) || len(w.bounded.order) == 0 {
		return -1, false
	}
	b, step := w.bounded, w.step
	w.step++
	switch {
	case step == 0:
		return b.table.Lookup(w.key), true
	case step <= probes:
		return b.table.Lookup(draw(w.key, streamProbe, uint64(step))), true
	}
	n := uint64(len(b.order))
	start, _ := bits.Mul64(draw(w.key, streamProbe, 0), n)
	return int(b.order[(start+uint64(step-probes-1))%n]), true
}
