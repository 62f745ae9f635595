package balancer

// RoundRobin picks the usable hosts in turn, in the order of the latest Update.
// The turn is a host, not a number: a host that is down, tried or gone is
// passed over without giving its share to its neighbour, and no update starts
// the round again. With u usable hosts every run of u picks visits each once.
// Weights other than zero are not looked at. O(1).
//
// A host that is on its way back from an ejection takes as many of its turns as
// its ramp says, spread evenly - with 250 thousandths every fourth - and passes
// on the others. Where 64 of them in a row do, a host in full service takes the
// pick, which costs O(n/64), and the next pick goes on after them.
//
// The zero value starts each Pool at a host that its seed picks, so that many
// clients started at once do not begin at the same one.
type RoundRobin struct {
	// First starts with the first host of the first Update: A, B, C. If false,
	// the seed decides, as it does when an Update replaces all hosts at once.
	First bool

	// IndexCursor counts picks and takes the usable host whose rank is that
	// count modulo their number, as Echofront does. When hosts leave and return
	// the same count falls on other hosts and shares become uneven; it exists to
	// reproduce systems that do this. It starts with the first host. O(n/64).
	IndexCursor bool
}

// Name implements Policy.
func (p RoundRobin) Name() string { return "round_robin" }

// NewPicker implements Policy.
func (p RoundRobin) NewPicker(v *View, prev Picker) Picker {
	v.beginTurns()
	if p.IndexCursor {
		return indexCursor{v}
	}
	if p.First && prev == nil {
		v.Mark(0)
	}
	if v.ramps != nil {
		return roundRobinOnRamp{v}
	}
	return roundRobin{v}
}

type roundRobin struct{ v *View }

func (r roundRobin) Pick(Call) int {
	i := r.v.NextUsable(r.v.Marked())
	if i >= 0 {
		// NextUsable takes an index past the end for 0.
		r.v.Mark(i + 1)
	}
	return i
}

// roundRobinOnRamp is roundRobin where some hosts are on a ramp.
type roundRobinOnRamp struct{ v *View }

func (r roundRobinOnRamp) Pick(Call) int {
	n := r.v.UsableCount()
	if n == 0 {
		return -1
	}
	t := newTurns(r.v, n)
	for {
		i := r.v.NextUsable(r.v.Marked())
		r.v.Mark(i + 1)
		if i = t.offer(i); i >= 0 {
			return i
		}
	}
}

type indexCursor struct{ v *View }

func (r indexCursor) Pick(Call) int {
	n := r.v.UsableCount()
	if n == 0 {
		return -1
	}
	at := &r.v.Shared()[0]
	t := newTurns(r.v, n)
	for {
		i := r.v.NthUsable(int(*at % uint64(n)))
		*at++
		if i = t.offer(i); i >= 0 {
			return i
		}
	}
}
