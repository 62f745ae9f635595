package balancer

import "math/bits"

// wheel is weighted round robin by a calendar queue (Brown 1988). One lap is
// 2^32 units long and one cycle of picks. A host of weight w has w points on
// it, floor((k*2^32 + phase) / w) for k = 0..w-1: evenly spaced, and exactly w
// per lap by construction. The wheel visits all points in order, those at one
// position in the order of the hashes of the ids. The phases of hosts that join
// one after the other are multiples of the golden ratio, which keeps equal
// weights apart.
//
// A host's only state is its weight and phase, so a host that is down owes
// nothing and is owed nothing: its points pass, and on its return its next turn
// is at the next of them. When its weight changes it gets the phase that keeps
// the share of the way to its next point that it has covered.
//
// Each host stands in the bucket of its next point. Buckets are about as wide as
// the mean distance between picks, so a bucket holds one host on average. What
// the picks are does not depend on the buckets, nor on when they were laid out.
type wheel struct {
	v    *View
	none *smooth  // picks while ejections are ignored
	head []int32  // bucket -> first host, nobody if none
	next []int32  // host -> next host in its bucket
	due  []uint64 // host -> its next point, counted from the start of lap 0
	in   []bool   // host is in a bucket

	base  uint64 // start of the present lap
	at    uint64 // the bucket reached, counted from the start of lap 0
	shift uint   // a bucket is 2^shift wide
	mask  uint64

	looked int // buckets and hosts that the pick at hand has looked at
	wasted int // those of unusually long picks since the buckets were laid out
}

const (
	lap = uint64(1) << 32

	// farLap is where laps are counted from 0 again, long before they overflow.
	farLap = uint64(1) << 62

	// emptyRun is how many empty buckets in a row, and one more for every usable
	// host, the wheel passes before it looks for the next point among the usable
	// hosts: as much as it saves by not looking at once.
	emptyRun = 64

	// longPick is what a pick may look at before it counts as wasteful, and
	// wasteful picks may look at wasteLimit times the hosts before the buckets
	// are fitted to the weight that is usable now. So that, which is linear, is
	// paid for by picks that were.
	longPick   = 16
	wasteLimit = 8
)

// The tier's shared state as the wheel uses it. Every point of this lap before
// the position is done, and of the hosts with a point at the position those
// whose id's hash is not above the one picked last.
const (
	wheelPos  = 0 // hosts that ever joined << 32 | position
	wheelLast = 1
)

func newWheel(v *View) *wheel {
	n := v.Len()
	size := uint64(1) << bits.Len(uint(n-1))
	w := &wheel{
		v:    v,
		none: newSmooth(v),
		head: make([]int32, size),
		next: make([]int32, n),
		due:  make([]uint64, n),
		in:   make([]bool, n),
		mask: size - 1,
	}
	var total uint64
	for i := range n {
		w.enrol(i)
		total += uint64(v.Weight(i))
	}
	w.layout(total)
	return w
}

// enrol gives a host its phase, and a new one when its weight has changed.
func (w *wheel) enrol(i int) {
	place, pos := &w.v.Scratch(i)[wheelPlace], &w.v.Shared()[wheelPos]
	weight := uint64(w.v.Weight(i))
	// The place is (weight + 1) << 32 | phase, and 0 for a host that has none.
	switch old := *place>>32 - 1; {
	case weight == 0:
		*place = 0
	case *place>>32 < 2 || old > MaxWeight:
		*place = (weight+1)<<32 | *pos>>32*golden>>32
		*pos += lap
	case old != weight:
		// ahead units of the way are left at the old weight and ahead*old/weight
		// at the new. ahead*old is below a lap, since a point before the next one
		// is done, hence at the new weight too the point before the next one is.
		from := w.from(i)
		ahead := w.point(i, old, *place%lap) - from
		due := from + ahead*old/weight
		*place = (weight+1)<<32 | due%lap*weight%lap
	}
}

// from is the first position of which host i's turn, if it has one there, is
// not done.
func (w *wheel) from(i int) uint64 {
	shared := w.v.Shared()
	pos := w.base + shared[wheelPos]%lap
	if w.v.hosts[i].key <= shared[wheelLast] {
		pos++
	}
	return pos
}

// point is host i's first point that is not done.
func (w *wheel) point(i int, weight, phase uint64) uint64 {
	from := w.from(i)
	begun := from &^ (lap - 1)
	// The smallest k with k*2^32 + phase >= (position in the lap) * weight. It is
	// at most weight, which is the first point of the next lap.
	k := uint64(0)
	if q := from % lap * weight; q > phase {
		k = (q - phase + lap - 1) / lap
	}
	return begun + (k*lap+phase)/weight
}

// layout puts all usable hosts into buckets that fit the given total of weights.
func (w *wheel) layout(total uint64) {
	w.base, w.wasted, w.shift = 0, 0, bucketShift(total)
	w.at = w.v.Shared()[wheelPos] % lap >> w.shift
	for b := range w.head {
		w.head[b] = nobody
	}
	for i := range w.in {
		if w.in[i] = false; w.v.usable.has(i) {
			w.insert(i)
		}
	}
}

// bucketShift makes buckets as wide as the mean distance of points of the given
// total of weights, rounded down to a power of two.
func bucketShift(total uint64) uint {
	return uint(bits.Len64(max(1, lap/max(1, total)))) - 1
}

// refit makes the buckets fit the weight that is usable now.
func (w *wheel) refit() {
	var total uint64
	for i := range w.in {
		if w.v.usable.has(i) {
			total += uint64(w.v.Weight(i))
		}
	}
	if w.wasted = 0; bucketShift(total) != w.shift || w.base >= farLap {
		w.layout(total)
	}
}

func (w *wheel) insert(i int) {
	place := w.v.hosts[i].scratch[wheelPlace]
	w.due[i] = w.point(i, place>>32-1, place%lap)
	b := w.due[i] >> w.shift & w.mask
	w.next[i], w.head[b] = w.head[b], int32(i)
	w.in[i] = true
}

// remove takes host i out of its bucket.
func (w *wheel) remove(i int) {
	link := &w.head[w.due[i]>>w.shift&w.mask]
	for *link != int32(i) {
		link = &w.next[*link]
	}
	*link, w.in[i] = w.next[i], false
}

// Changed implements Follower: a host that has become usable gets its place
// back. One that no longer is leaves when its point comes up, unless the wheel
// jumps over it; then it is put right on its return.
func (w *wheel) Changed(i int) {
	if !w.v.usable.has(i) {
		return
	}
	if w.in[i] {
		if w.due[i] >= w.from(i) {
			return
		}
		w.remove(i)
	}
	w.insert(i)
}

func (w *wheel) Pick(c Call) int {
	v := w.v
	if v.UsableCount() == 0 {
		return -1
	}
	if v.Fallback() {
		// The hosts in the buckets are the ordinary ones.
		return w.none.Pick(c)
	}
	w.looked = 0
	i := w.turn()
	for empty := 1; i < 0; empty++ {
		if w.at++; empty == emptyRun+v.UsableCount() {
			w.at = w.due[w.soonest()] >> w.shift
		}
		i = w.turn()
	}
	if w.looked > longPick {
		if w.wasted += w.looked; w.wasted > wasteLimit*v.Len() {
			w.refit()
		}
	}
	return i
}

// soonest is the usable host whose next point comes first.
func (w *wheel) soonest() int {
	best := -1
	for n, i := w.v.UsableCount(), -1; n > 0; n-- {
		i = w.v.NextUsable(i + 1)
		if best < 0 || w.before(int32(i), int32(best)) {
			best = i
		}
	}
	w.looked += w.v.UsableCount()
	return best
}

// before tells whether host i's turn is before host j's.
func (w *wheel) before(i, j int32) bool {
	a, b := w.due[i], w.due[j]
	return a < b || a == b && w.v.hosts[i].key < w.v.hosts[j].key
}

// turn takes the first due host out of the bucket reached and puts it back at
// its next point; -1 if none is due in this bucket on this lap.
func (w *wheel) turn() int {
	v := w.v
	first := &w.head[w.at&w.mask]
	w.looked++
	best, chosen := nobody, first
	for link := first; *link != nobody; w.looked++ {
		i := *link
		if !v.set.has(int(i)) {
			*link, w.in[i] = w.next[i], false
			continue
		}
		if w.due[i]>>w.shift == w.at && (best == nobody || w.before(i, best)) {
			best, chosen = i, link
		}
		link = &w.next[i]
	}
	if best == nobody {
		return -1
	}
	*chosen = w.next[best]
	due, shared := w.due[best], v.Shared()
	w.base = due &^ (lap - 1)
	shared[wheelPos] = shared[wheelPos]&^(lap-1) | due%lap
	shared[wheelLast] = v.hosts[best].key
	w.insert(int(best))
	if w.base >= farLap {
		w.refit()
	}
	return int(best)
}
