package balancer

import "fmt"

// Ties says which of several equally loaded hosts LeastConn picks.
type Ties uint8

const (
	// TiesRotate goes round among the equals, from the seeded start on: with all
	// idle, sequential requests spread as evenly as round robin's.
	TiesRotate Ties = iota
	// TiesRandom draws one of the equals uniformly.
	TiesRandom
	// TiesIndex takes the first one. At low load it always picks the same hosts.
	TiesIndex
)

// String returns the name of the setting.
func (t Ties) String() string {
	switch t {
	case TiesRotate:
		return "rotate"
	case TiesRandom:
		return "random"
	case TiesIndex:
		return "index"
	}
	return fmt.Sprintf("Ties(%d)", uint8(t))
}

// LeastConn picks a host with the fewest in-flight calls per unit of weight,
// compared exactly. It keeps the hosts in a tournament tree: O(log n) for a
// pick and for each change of a host's load, O(n) for a pick while ejections
// are ignored.
//
// The zero value is ready to use. Safe for concurrent use.
type LeastConn struct {
	// Ties is which of several equals is picked. If zero, TiesRotate.
	Ties Ties
}

// Name implements Policy.
func (LeastConn) Name() string { return "least_conn" }

// Validate reports a setting that has no meaning as a *ConfigError.
func (p LeastConn) Validate() error {
	if p.Ties > TiesIndex {
		return &ConfigError{Field: "LeastConn.Ties", Value: p.Ties.String(), Want: "TiesRotate, TiesRandom or TiesIndex"}
	}
	return nil
}

// NewPicker implements Policy. It takes O(n) time.
func (p LeastConn) NewPicker(v *View, _ Picker) Picker {
	size := 1
	for size < v.Len() {
		size <<= 1
	}
	t := &leastConn{v: v, ties: p.Ties, size: size, win: make([]int32, 2*size), equal: make([]int32, 2*size)}
	for i := range size {
		t.leaf(i)
	}
	for at := size - 1; at >= 1; at-- {
		t.play(at)
	}
	return t
}

// leastConn is the tournament: node 1 is the root, node at has children 2*at
// and 2*at+1, host i is leaf size+i. A node holds the leftmost of its least
// loaded usable hosts, -1 for none, and how many are equal to it.
type leastConn struct {
	v     *View
	ties  Ties
	size  int
	win   []int32
	equal []int32
}

func (t *leastConn) leaf(i int) {
	at := t.size + i
	t.win[at], t.equal[at] = -1, 0
	if i < t.v.Len() && t.v.usable.has(i) {
		t.win[at], t.equal[at] = int32(i), 1
	}
}

// play decides the match at a node anew.
func (t *leastConn) play(at int) {
	l, r := t.win[2*at], t.win[2*at+1]
	switch {
	case r < 0 || l >= 0 && t.v.less(int(l), int(r)):
		t.win[at], t.equal[at] = l, t.equal[2*at]
	case l < 0 || t.v.less(int(r), int(l)):
		t.win[at], t.equal[at] = r, t.equal[2*at+1]
	default:
		t.win[at], t.equal[at] = l, t.equal[2*at]+t.equal[2*at+1]
	}
}

// Changed implements Follower.
func (t *leastConn) Changed(i int) {
	t.leaf(i)
	for at := (t.size + i) / 2; at >= 1; at /= 2 {
		win, equal := t.win[at], t.equal[at]
		t.play(at)
		if t.win[at] == win && t.equal[at] == equal && win != int32(i) {
			return // nothing that the nodes above look at has changed
		}
	}
}

func (t *leastConn) Pick(c Call) int {
	if t.v.Fallback() {
		return t.scan(c)
	}
	best := t.win[1]
	if best < 0 || t.equal[1] == 1 {
		return int(best)
	}
	switch t.ties {
	case TiesIndex:
		return int(best)
	case TiesRandom:
		return t.rank(int(below(c.Draw(0), uint64(t.equal[1]))))
	}
	i := t.from(t.v.Marked(), int(best))
	t.v.Mark(i + 1)
	return i
}

// rank returns the k-th host from the left that is equal to the root's.
func (t *leastConn) rank(k int) int {
	best, at := int(t.win[1]), 1
	for at < t.size {
		at *= 2
		// A child whose winner is more loaded than the root's holds no equal.
		n := int(t.equal[at])
		if t.win[at] < 0 || t.v.less(best, int(t.win[at])) {
			n = 0
		}
		if k >= n {
			k -= n
			at++
		}
	}
	return at - t.size
}

// from returns the first host at or after start, going round, that is equal to
// best, by counting the equals to the left of start.
func (t *leastConn) from(start, best int) int {
	if start >= t.v.Len() {
		start = 0
	}
	left := 0
	for at := t.size + start; at > 1; at /= 2 {
		if at&1 == 1 && t.win[at-1] >= 0 && !t.v.less(best, int(t.win[at-1])) {
			left += int(t.equal[at-1])
		}
	}
	if left == int(t.equal[1]) {
		left = 0
	}
	return t.rank(left)
}

// scan is the pick while ejections are ignored: the tree holds the ordinary
// hosts only. O(n).
func (t *leastConn) scan(c Call) int {
	v := t.v
	best, ties := -1, 0
	start := 0
	if t.ties == TiesRotate {
		start = v.Marked()
	}
	for n, i := v.UsableCount(), start-1; n > 0; n-- {
		i = v.NextUsable(i + 1)
		switch {
		case best < 0 || v.less(i, best):
			best, ties = i, 1
		case !v.less(best, i):
			// The ties-th equal replaces the choice with probability 1/ties.
			if ties++; t.ties == TiesRandom && below(c.Draw(uint64(i)), uint64(ties)) == 0 {
				best = i
			}
		}
	}
	if t.ties == TiesRotate && best >= 0 {
		v.Mark(best + 1)
	}
	return best
}
