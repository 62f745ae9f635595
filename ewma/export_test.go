package ewma

import "time"

// For the tests against arithmetic without limits.
const (
	Log2eQ62 = log2eQ62
	Ln2Q64   = ln2Q64

	HalfLn2SqQ64 = halfLn2SqQ64
)

func Exp2Table() [256]uint64 { return exp2 }

// FoldWeight returns the weight, Q63, that c's estimate keeps after t.
func (c *Core) FoldWeight(t uint64) uint64 { return c.set.fold.weight(t) }

// HalvingWeight and FadingWeight return the weights of the two modes, Q63.
func HalvingWeight(unit time.Duration, t uint64) uint64 {
	d := halving(unit)
	return d.weight(t)
}

func FadingWeight(unit time.Duration, t uint64) uint64 {
	d := fading(unit)
	return d.weight(t)
}
