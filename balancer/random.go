package balancer

import (
	"math/bits"
	"sort"
)

// Random picks each usable host with a probability in proportion to its weight,
// independently of every other pick. O(1) expected while at least a quarter of
// the weight is usable; below that, O(usable hosts).
type Random struct{}

// Name implements Policy.
func (Random) Name() string { return "random" }

// NewPicker implements Policy.
func (Random) NewPicker(v *View, _ Picker) Picker {
	r := &random{v: v, ends: make([]uint64, v.Len())}
	for i := range r.ends {
		r.total += uint64(v.Weight(i))
		r.ends[i] = r.total
	}
	// All weights equal, zero included, need no table.
	r.even = true
	for i := range r.ends {
		r.even = r.even && v.Weight(i) == v.Weight(0)
	}
	if r.even {
		return r
	}
	// The guide table of Chen and Asau (1974): entry g is the first host whose
	// share ends after g equal slices of the total, so that a search which
	// begins there takes two comparisons on average, whatever the weights.
	r.guide = make([]int32, v.Len())
	for g := range r.guide {
		hi, lo := bits.Mul64(uint64(g), r.total)
		at, _ := bits.Div64(hi, lo, uint64(len(r.guide)))
		r.guide[g] = int32(sort.Search(len(r.ends), func(i int) bool { return r.ends[i] > at }))
	}
	return r
}

type random struct {
	v     *View
	ends  []uint64 // running sums of the weights
	guide []int32
	total uint64
	even  bool
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
	if r.even {
		return v.drawUsable(c, 0, -1)
	}
	for k := uint64(0); k < rejections; k++ {
		if i := r.owner(c.Draw(k)); v.Usable(i) {
			return i
		}
	}
	// Little of the weight is usable: an exact draw over what is.
	var sum uint64
	first := v.NextUsable(0)
	for i, n := first, v.UsableCount(); n > 0; i, n = v.NextUsable(i+1), n-1 {
		sum += uint64(v.Weight(i))
	}
	if sum == 0 {
		return first
	}
	x := below(c.Draw(rejections), sum)
	for i := first; ; i = v.NextUsable(i + 1) {
		w := uint64(v.Weight(i))
		if x < w {
			return i
		}
		x -= w
	}
}
