package balancer

// TwoRandom draws two distinct usable hosts and picks the one with fewer
// in-flight calls per unit of weight; of equals, the first drawn. This is the
// power of two choices (Mitzenmacher 2001), drawn without replacement, so that
// the most loaded host of a tier is never picked while loads differ. O(1).
//
// A host on its way back from an ejection is drawn as often, and has as much of
// its weight, as its ramp says. A pick may then take O(usable hosts) if hardly
// anyone else is usable.
//
// The zero value is ready to use. Safe for concurrent use.
type TwoRandom struct{}

// Name implements Policy.
func (TwoRandom) Name() string { return "two_random" }

// NewPicker implements Policy.
func (TwoRandom) NewPicker(v *View, _ Picker) Picker { return twoRandom{v} }

type twoRandom struct{ v *View }

func (t twoRandom) Pick(c Call) int {
	a, b := t.v.drawPair(c)
	if a != b && t.v.less(b, a) {
		return b
	}
	return a
}
