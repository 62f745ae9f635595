package balancer

import (
	"math/bits"
	"sort"
)

// Random picks each usable host with a probability in proportion to its weight,
// independently of every other pick: it draws a point of the range that the
// weights fill end to end, and redraws while the point belongs to a host that
// is not usable. So a host that goes down moves only the picks that hit it, and
// one that comes back on a ramp takes them back little by little: as much of its
// range does not count as the ramp leaves out. Picks that the redraws below do not
// settle are drawn over what is usable, so any change of that moves them.
//
// Cost: O(1) expected. If little of the weight is usable, after 16 redraws,
// O(log n) with unequal weights and O(n/64) with equal ones; O(usable hosts)
// with unequal weights while ejections are ignored.
//
// The zero value is ready to use. Safe for concurrent use.
type Random struct{}

// Name implements Policy.
func (Random) Name() string { return "random" }

// NewPicker implements Policy. It takes O(n log n) time.
func (Random) NewPicker(v *View, _ Picker) Picker {
	n := v.Len()
	even := v.ramps == nil
	for i := range n {
		even = even && v.Weight(i) == v.Weight(0)
	}
	if even {
		return evenRandom{v}
	}
	r := &random{v: v, ends: make([]uint64, n), guide: make([]int32, n), in: newBitmap(n), sums: make([]uint64, n+1)}
	if v.ramps != nil {
		r.stops = make([]uint64, n)
	}
	var total uint64
	for i := range r.ends {
		if v.ramps != nil {
			r.stops[i] = total + uint64(v.pull(i))
		}
		total += uint64(v.whole(i))
		r.ends[i] = total
		r.Changed(i)
	}
	r.total = total
	// The guide table of Chen and Asau (1974): entry g is the first host whose
	// share ends after g equal slices of the total, so that a search which
	// begins there takes two comparisons on average, whatever the weights.
	for g := range r.guide {
		hi, lo := bits.Mul64(uint64(g), total)
		at, _ := bits.Div64(hi, lo, uint64(n))
		r.guide[g] = int32(sort.Search(n, func(i int) bool { return r.ends[i] > at }))
	}
	return r
}

// evenRandom is Random over hosts of equal weight.
type evenRandom struct{ v *View }

func (r evenRandom) Pick(c Call) int {
	if r.v.UsableCount() == 0 {
		return -1
	}
	return r.v.drawUsable(c, 0, -1)
}

type random struct {
	v     *View
	ends  []uint64 // running sums of the weights
	stops []uint64 // where what a host serves of its range stops; nil for its end
	guide []int32
	total uint64

	// The weights of the usable hosts as a binary indexed tree (Fenwick 1994):
	// sums[j] is the sum over the last j&-j hosts up to and including host j-1.
	sums []uint64
	in   bitmap // the hosts whose weight is in sums
	left uint64 // their sum
}

// Changed implements Follower: it keeps the sums of usable weight. O(log n) for
// a change of eligibility, O(1) for one of load.
func (r *random) Changed(i int) {
	on := r.v.usable.has(i)
	if !r.in.set(i, on) {
		return
	}
	w := uint64(r.v.pull(i))
	if !on {
		w = -w
	}
	r.left += w
	for j := i + 1; j < len(r.sums); j += j & -j {
		r.sums[j] += w
	}
}

// owner is the host whose share of [0, total) contains the point that the draw
// x falls on. The point and the guide's entry grow together with x, so the
// entry never lies past the owner.
func (r *random) owner(x uint64) int {
	at := below(x, r.total)
	i := int(r.guide[below(x, uint64(len(r.guide)))])
	for r.ends[i] <= at {
		i++
	}
	return i
}

func (r *random) Pick(c Call) int {
	v := r.v
	if v.UsableCount() == 0 {
		return -1
	}
	for k := uint64(0); k < rejections; k++ {
		x := c.Draw(k)
		if i := r.owner(x); v.Usable(i) && (r.stops == nil || below(x, r.total) < r.stops[i]) {
			return i
		}
	}
	// Little of the weight is usable: an exact draw over what is.
	if v.Fallback() {
		return r.scan(c.Draw(rejections))
	}
	return r.descend(below(c.Draw(rejections), r.left))
}

// descend returns the usable host whose share of [0, left) contains x.
func (r *random) descend(x uint64) int {
	i := 0
	for step := 1 << (bits.Len(uint(len(r.ends))) - 1); step > 0; step >>= 1 {
		if j := i + step; j < len(r.sums) && r.sums[j] <= x {
			x -= r.sums[j]
			i = j
		}
	}
	return i
}

// scan is descend over hosts that the tree does not hold.
func (r *random) scan(x uint64) int {
	v := r.v
	var sum uint64
	for i, n := -1, v.UsableCount(); n > 0; n-- {
		i = v.NextUsable(i + 1)
		sum += uint64(v.Weight(i))
	}
	x = below(x, sum)
	i := v.NextUsable(0)
	for x >= uint64(v.Weight(i)) {
		x -= uint64(v.Weight(i))
		i = v.NextUsable(i + 1)
	}
	return i
}
