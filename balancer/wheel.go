package balancer

import (
	"math"
	"math/bits"
)

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
// the mean distance between picks, so a pick looks at one or two of them and at
// as many hosts. What the picks are does not depend on the buckets, nor on when
// they were laid out.
type wheel struct {
	v    *View
	none *smooth // picks while ejections are ignored
	head []int32 // bucket -> first host, nobody if none
	on   []place // by host

	base  uint64 // start of the present lap
	at    uint64 // the bucket reached, counted from the start of lap 0
	shift uint   // a bucket is 2^shift wide
	mask  uint64

	looked int // buckets and hosts that the pick at hand has looked at
	wasted int // those of unusually long picks since the buckets were laid out
}

// place is a host's place on the wheel: half a cache line.
type place struct {
	due    uint64 // its next point, counted from the start of lap 0
	key    uint64 // hash of its id
	phase  uint32
	weight uint32
	next   int32 // host in the same bucket
	in     bool  // a bucket
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

	// maxPull is the largest weight on the wheel, which counts in parts of a weight
	// while somebody is on a ramp. If all weights together come to more
	// than a lap, points share positions: shares stay exact, and the order is less
	// even by a pick.
	maxPull = MaxWeight * fullRamp
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
	// At least four buckets a host: with fewer of them, more hosts are met whose
	// turn is only on a later round of the wheel.
	size := uint64(4) << bits.Len(uint(n-1))
	w := &wheel{
		v:    v,
		none: newSmooth(v),
		head: make([]int32, size),
		on:   make([]place, n),
		mask: size - 1,
	}
	// No parts but the weights' own where nobody is on a ramp, and else the largest
	// that make whole numbers of all: with few points on a lap buckets have one host.
	unit, part := int64(1), int64(fullRamp)
	if v.ramps != nil {
		unit = 0
		for i, h := range v.hosts {
			unit, part = gcd(unit, int64(h.weight)), gcd(part, int64(v.ramps[i]))
		}
		unit = max(1, unit)
	}
	var total uint64
	for i, h := range v.hosts {
		weight := uint64(int64(h.weight) / unit * (int64(v.Ramp(i)) / part))
		w.enrol(i, weight)
		total += weight
	}
	w.layout(total)
	return w
}

// spin moves a fresh wheel on by as many points, drawn by x, as brings it to a
// random place of the cycle, and reports whether there is a cycle. A random
// position would not do: a host is met first as often as the gap before its
// points is wide, and gaps differ. The buckets must be laid out again.
func (w *wheel) spin(x uint64) bool {
	total := uint64(0)
	for i := range w.on {
		total += uint64(w.on[i].weight)
	}
	if total == 0 {
		return false
	}
	n := below(x, total)
	if n == 0 {
		return false
	}
	// The smallest position by which n points are done.
	lo, hi := uint64(0), lap-1
	for lo < hi {
		if mid := (lo + hi) / 2; w.points(mid) >= n {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	shared := w.v.Shared()
	shared[wheelPos] = shared[wheelPos]&^(lap-1) | lo
	shared[wheelLast] = math.MaxUint64
	return true
}

// points counts the points of a lap up to a position, that one included.
func (w *wheel) points(pos uint64) (n uint64) {
	for i := range w.on {
		on := &w.on[i]
		// k*2^32 + phase < (pos+1)*weight, which has 62 bits.
		if edge := (pos + 1) * uint64(on.weight); edge > uint64(on.phase) {
			n += (edge - uint64(on.phase) + lap - 1) / lap
		}
	}
	return n
}

// enrol gives a host its phase, and a new one when its weight has changed.
func (w *wheel) enrol(i int, weight uint64) {
	h, pos, on := w.v.hosts[i], &w.v.Shared()[wheelPos], &w.on[i]
	own := &h.scratch[wheelPlace]
	on.key = h.key()
	// What is kept is (weight + 1) << 32 | phase, and 0 for a host without a place.
	switch old := *own>>32 - 1; {
	case weight == 0:
		*own = 0
	case *own>>32 < 2 || old > maxPull:
		*own = (weight+1)<<32 | *pos>>32*golden>>32
		*pos += lap
	case old != weight && w.v.fine:
		// The way to the next point, (k*lap + phase)/old - from, is a number of parts
		// of old, below a lap of them. It stays that number, of parts of the new
		// weight. So steps at one position come to the same one by one or at once, and
		// if all weights grow alike the order of the hosts stays as it is.
		*own = (weight+1)<<32 | (*own+w.from(i)*(weight-old))%lap
	case old != weight:
		// ahead units of the way are left at the old weight and ahead*old/weight
		// at the new. ahead*old is below a lap, since a point before the next one
		// is done, hence at the new weight too the point before the next one is.
		from := w.from(i)
		ahead := point(from, old, *own%lap) - from
		due := from + ahead*old/weight
		*own = (weight+1)<<32 | due%lap*weight%lap
	}
	on.weight, on.phase = uint32(weight), uint32(*own)
}

// from is the first position of which host i's turn, if it has one there, is
// not done.
func (w *wheel) from(i int) uint64 {
	shared := w.v.Shared()
	pos := w.base + shared[wheelPos]%lap
	if w.on[i].key <= shared[wheelLast] {
		pos++
	}
	return pos
}

// point is the first point at or after from of a host.
func point(from, weight, phase uint64) uint64 {
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
	for i := range w.on {
		if w.on[i].in = false; w.v.usable.has(i) {
			w.insert(i, w.from(i))
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
	for i := range w.on {
		if w.v.usable.has(i) {
			total += uint64(w.on[i].weight)
		}
	}
	if w.wasted = 0; bucketShift(total) != w.shift || w.base >= farLap {
		w.layout(total)
	}
}

// insert puts host i into the bucket of its first point at or after from.
func (w *wheel) insert(i int, from uint64) {
	on := &w.on[i]
	on.due = point(from, uint64(on.weight), uint64(on.phase))
	head := &w.head[on.due>>w.shift&w.mask]
	on.next, *head, on.in = *head, int32(i), true
}

// remove takes host i out of its bucket.
func (w *wheel) remove(i int) {
	link := &w.head[w.on[i].due>>w.shift&w.mask]
	for *link != int32(i) {
		link = &w.on[*link].next
	}
	*link, w.on[i].in = w.on[i].next, false
}

// Changed implements Follower: a host that has become usable gets its place
// back. One that no longer is leaves when its point comes up, unless the wheel
// jumps over it; then it is put right on its return.
func (w *wheel) Changed(i int) {
	if !w.v.usable.has(i) {
		return
	}
	if w.on[i].in {
		if w.on[i].due >= w.from(i) {
			return
		}
		w.remove(i)
	}
	w.insert(i, w.from(i))
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
			w.at = w.on[w.soonest()].due >> w.shift
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
		if best < 0 || w.on[i].before(&w.on[best]) {
			best = i
		}
	}
	w.looked += w.v.UsableCount()
	return best
}

// before tells whether a's turn is before b's.
func (a *place) before(b *place) bool {
	return a.due < b.due || a.due == b.due && a.key < b.key
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
		on := &w.on[i]
		if !v.set.has(int(i)) {
			*link, on.in = on.next, false
			continue
		}
		if on.due>>w.shift == w.at && (best == nobody || on.before(&w.on[best])) {
			best, chosen = i, link
		}
		link = &on.next
	}
	if best == nobody {
		return -1
	}
	on := &w.on[best]
	*chosen = on.next
	due, shared := on.due, v.Shared()
	w.base = due &^ (lap - 1)
	shared[wheelPos] = shared[wheelPos]&^(lap-1) | due%lap
	shared[wheelLast] = on.key
	w.insert(int(best), due+1)
	if w.base >= farLap {
		w.refit()
	}
	return int(best)
}
