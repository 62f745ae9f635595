package balancer

// WeightedRoundRobin gives every host exactly its weight of each cycle of as
// many picks as the weights add up to, as evenly spread as that allows. Up to
// 32 hosts it is nginx's smooth weighted round robin (its order too: weights
// 5, 1, 1 give A A B A C A A): each usable host gains its weight in credit, the
// one with the most credit is picked and pays the sum. Above that it is a
// calendar wheel, see below. The credit, or the place on the wheel, belongs to
// the host: it survives updates and times out of rotation, and a host that
// leaves and joins again starts fresh.
//
// Cost: O(hosts) up to 32 hosts, above that O(1) expected for any weights. If
// hosts with most of the weight are down, up to O(usable hosts).
type WeightedRoundRobin struct{}

// Name implements Policy.
func (WeightedRoundRobin) Name() string { return "weighted_round_robin" }

// smoothMax is the number of hosts up to which scanning all credits is cheaper
// than the wheel.
const smoothMax = 32

// NewPicker implements Policy.
func (WeightedRoundRobin) NewPicker(v *View, _ Picker) Picker {
	if v.Len() <= smoothMax {
		return smooth{v}
	}
	return newWheel(v)
}

type smooth struct{ v *View }

func (s smooth) Pick(Call) int { return smoothPick(s.v) }

// smoothPick is one step of nginx's algorithm over the usable hosts. Of equal
// credits the lowest index wins.
func smoothPick(v *View) int {
	best, total := -1, int64(0)
	var most int64
	at := -1
	for n := v.UsableCount(); n > 0; n-- {
		at = v.NextUsable(at + 1)
		credit := &v.Scratch(at)[0]
		w := int64(v.Weight(at))
		c := int64(*credit) + w
		*credit = uint64(c)
		total += w
		if best < 0 || c > most {
			best, most = at, c
		}
	}
	if best >= 0 {
		v.Scratch(best)[0] -= uint64(total)
	}
	return best
}

// wheel is weighted round robin by a calendar queue (Brown 1988). One lap is
// 2^32 units long and one cycle of picks. A host of weight w has w points on
// it, floor((k*2^32 + phase) / w) for k = 0..w-1: evenly spaced, and so exactly
// w per lap by construction. The wheel visits all points in order. Phases of
// hosts that join one after the other are multiples of the golden ratio, which
// keeps equal weights apart.
//
// A host's only state is its phase, so a host that is down owes nothing and is
// owed nothing: it is dropped when its point comes up, and on its return its
// next point is simply the next one on the lap. When a weight changes, the
// share of the way to the next point that the host has covered is kept.
//
// Buckets are as wide as the mean distance between picks. Each host stands in
// the bucket of its next point, so a bucket holds one host on average.
type wheel struct {
	v     *View
	head  []int32  // bucket -> first host, -1 none
	next  []int32  // host -> next host in its bucket
	due   []uint64 // host -> its next point, laps included
	in    []bool   // host is in a bucket
	width uint64
	mask  uint64
	at    uint64 // the bucket reached, laps included
}

const lap = uint64(1) << 32

// emptyRun is how many empty buckets in a row the wheel passes before it looks
// for the next point among all usable hosts.
const emptyRun = 64

// Words of a host's scratch and of the tier's shared state that the wheel uses.
// Its place is (position, tie): every point before position is done, and of
// the hosts with a point at position those with an index below tie.
const (
	wheelHost = 1 // (weight + 1) << 32 | phase; 0 for a host that has none yet
	wheelPos  = 0 // position, laps included
	wheelTie  = 1 // tie << 32 | hosts that ever joined
)

func newWheel(v *View) *wheel {
	n := v.Len()
	size := uint64(1)
	for size < uint64(n) {
		size <<= 1
	}
	w := &wheel{
		v:    v,
		head: make([]int32, size),
		next: make([]int32, n),
		due:  make([]uint64, n),
		in:   make([]bool, n),
		mask: size - 1,
	}
	for b := range w.head {
		w.head[b] = -1
	}
	var total uint64
	for i := range n {
		total += uint64(v.Weight(i))
	}
	w.width = max(1, lap/max(1, total))
	shared := v.Shared()
	w.at = shared[wheelPos] / w.width
	for i := range n {
		w.enrol(i)
		if v.set.has(i) {
			w.insert(i)
		}
	}
	return w
}

// enrol gives a host its phase, and a new one when its weight has changed.
func (w *wheel) enrol(i int) {
	own, shared := &w.v.Scratch(i)[wheelHost], w.v.Shared()
	weight := uint64(w.v.Weight(i))
	switch old := *own >> 32; {
	case weight == 0:
		*own = 0
		return
	case old == 0:
		joined := shared[wheelTie] & (lap - 1)
		shared[wheelTie]++
		*own = (weight+1)<<32 | joined*golden>>32
	case old-1 != weight:
		// d units of the way are left at the old weight; d*old/weight at the new.
		// A lap has 32 bits and a weight 20, so the product fits.
		pos := shared[wheelPos]
		d := w.point(i, old-1, uint32(*own)) - pos
		due := pos + d*(old-1)/weight
		*own = (weight+1)<<32 | due%lap*weight%lap
	}
}

// point is host i's first point that is not done yet.
func (w *wheel) point(i int, weight uint64, phase uint32) uint64 {
	from := w.v.Shared()[wheelPos]
	if uint64(i) < w.v.Shared()[wheelTie]>>32 {
		from++
	}
	begun, q := from/lap*lap, from%lap*weight
	// The smallest k with k*2^32 + phase >= q.
	k := uint64(0)
	if q > uint64(phase) {
		k = (q - uint64(phase) + lap - 1) / lap
	}
	if k >= weight {
		begun, k = begun+lap, 0
	}
	return begun + (k*lap+uint64(phase))/weight
}

func (w *wheel) insert(i int) {
	own := w.v.Scratch(i)[wheelHost]
	w.due[i] = w.point(i, own>>32-1, uint32(own))
	b := w.due[i] / w.width & w.mask
	w.next[i], w.head[b] = w.head[b], int32(i)
	w.in[i] = true
}

// Changed implements Follower: a host that has become usable gets its place
// back. One that no longer is leaves when its point comes up.
func (w *wheel) Changed(i int) {
	if !w.in[i] && w.v.Usable(i) {
		w.insert(i)
	}
}

func (w *wheel) Pick(Call) int {
	v := w.v
	if v.UsableCount() == 0 {
		return -1
	}
	if v.Fallback() {
		// The hosts in the buckets are the ordinary ones.
		return smoothPick(v)
	}
	for empty := 0; empty < emptyRun; empty++ {
		if i := w.turn(); i >= 0 {
			return i
		}
		w.at++
	}
	best := -1
	for n, i := v.UsableCount(), -1; n > 0; n-- {
		i = v.NextUsable(i + 1)
		if best < 0 || w.due[i] < w.due[best] {
			best = i
		}
	}
	w.at = w.due[best] / w.width
	return w.turn()
}

// turn takes the first due host out of the bucket reached and puts it back at
// its next point; -1 if none is due in this bucket on this lap.
func (w *wheel) turn() int {
	v, b := w.v, w.at&w.mask
	best := int32(-1)
	link := &w.head[b]
	for *link >= 0 {
		i := *link
		switch {
		case !v.Usable(int(i)):
			*link, w.in[i] = w.next[i], false
			continue
		case w.due[i]/w.width == w.at && (best < 0 || w.due[i] < w.due[best] || w.due[i] == w.due[best] && i < best):
			best = i
		}
		link = &w.next[i]
	}
	if best < 0 {
		return -1
	}
	link = &w.head[b]
	for *link != best {
		link = &w.next[*link]
	}
	*link = w.next[best]
	shared := v.Shared()
	shared[wheelPos] = w.due[best]
	shared[wheelTie] = uint64(best+1)<<32 | shared[wheelTie]&(lap-1)
	w.insert(int(best))
	return int(best)
}
