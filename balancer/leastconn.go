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
// A host on its way back from an ejection has as much of its weight as its ramp
// says. Idle it is the least loaded all the same, so beside hosts in full service
// it also takes only so many of the picks that would be its own: as many as its
// ramp is of a host's turn in a round over them, or of a draw over all; with
// TiesIndex as its ramp is of the whole. The others go to the next least loaded.
// Where nobody is in full service load decides, and between equals the ramps.
// O(log n) for each host that lets a pick pass, and O(n) where more than 64 do.
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
	v.beginTurns()
	t := &leastConn{v: v, ties: p.Ties, size: size, nodes: make([]match, 2*size), loads: make([]load, v.Len())}
	for i := range size {
		t.nodes[size+i] = match{nobody, 0}
		if i < v.Len() {
			t.loads[i].weight = int32(v.pull(i))
			t.leaf(i)
		}
	}
	for at := size - 1; at >= 1; at-- {
		t.nodes[at] = t.play(at)
	}
	return t
}

// leastConn is the tournament: node 1 is the root, node at has children 2*at
// and 2*at+1, host i is leaf size+i.
type leastConn struct {
	v     *View
	ties  Ties
	size  int
	nodes []match
	loads []load // by host: one array instead of a cache line for each

	// Where somebody is on a ramp: how many usable hosts are not, and who has let
	// the pick at hand pass.
	full   int
	passed [maxPassed]int32
}

// match is the leftmost of the least loaded usable hosts below a node, nobody if
// there is none, and how many are equal to it.
type match struct{ win, equal int32 }

// load is what a host carries and what it can: its weight, as far as its ramp
// leaves it.
type load struct{ inflight, weight int32 }

// less tells whether a is less loaded than b: View.less for hosts with a weight,
// as usable ones have.
func (a load) less(b load) bool {
	return uint64(a.inflight)*uint64(b.weight) < uint64(b.inflight)*uint64(a.weight)
}

// leaf looks at host i anew.
func (t *leastConn) leaf(i int) {
	t.loads[i].inflight = t.v.hosts[i].inflight
	at, usable := t.size+i, t.v.usable.has(i)
	if t.v.ramps != nil && t.v.full.has(i) {
		t.full += b2i(usable) - b2i(t.nodes[at].win >= 0)
	}
	t.nodes[at] = match{nobody, 0}
	if usable {
		t.nodes[at] = match{int32(i), 1}
	}
}

// play decides the match at a node.
func (t *leastConn) play(at int) match {
	l, r := t.nodes[2*at], t.nodes[2*at+1]
	switch {
	case r.win < 0:
		return l
	case l.win < 0:
		return r
	case t.loads[l.win].less(t.loads[r.win]):
		return l
	case t.loads[r.win].less(t.loads[l.win]):
		return r
	}
	return match{l.win, l.equal + r.equal}
}

// Changed implements Follower.
func (t *leastConn) Changed(i int) {
	t.leaf(i)
	t.replay(i)
}

// replay decides the matches above host i's leaf.
func (t *leastConn) replay(i int) {
	for at := (t.size + i) / 2; at >= 1; at /= 2 {
		m := t.play(at)
		if m == t.nodes[at] && m.win != int32(i) {
			return // nothing that the nodes above look at has changed
		}
		t.nodes[at] = m
	}
}

func (t *leastConn) Pick(c Call) int {
	if t.v.Fallback() {
		return t.scan(c, t.v.Marked(), false)
	}
	root := t.nodes[1]
	if t.v.ramps != nil && t.full > 0 {
		return t.onRamp(c)
	}
	if root.win < 0 || root.equal == 1 {
		return int(root.win)
	}
	if t.v.ramps != nil {
		return t.among(c, int(root.equal))
	}
	switch t.ties {
	case TiesIndex:
		return int(root.win)
	case TiesRandom:
		return t.rank(int(below(c.Draw(0), uint64(root.equal))))
	}
	i := t.from(t.v.Marked())
	t.v.Mark(i + 1)
	return i
}

// onRamp is the pick where some hosts are on a ramp and others are not. One that is
// on a ramp and lets the pick pass is taken off the tree for the rest of it.
func (t *leastConn) onRamp(c Call) int {
	v, n, taken, tied := t.v, 0, -1, false
	at := 0
	if t.ties == TiesRotate {
		at = v.Marked()
	}
	v.Shared()[lcPicks]++
	if t.ties == TiesRandom {
		// The draw of a host over all: it settles the pick if the host is among the
		// least loaded, and a host on a ramp has no other way to be picked.
		if i := v.drawOnRamp(c, 0); t.best(t.size+i) > 0 {
			return i
		}
	}
	for taken < 0 && n < maxPassed {
		equal := t.nodes[1].equal
		i := int(t.nodes[1].win)
		switch {
		case equal == 1:
		case t.ties == TiesRotate:
			tied, i = true, t.from(at)
			at = i + 1
		case t.ties == TiesRandom:
			i = t.rank(int(below(c.Draw(rejections+1+uint64(n)), uint64(equal))))
		}
		if v.Ramp(i) == fullRamp || t.ties != TiesRandom && t.takes(i) {
			taken = i
			break
		}
		t.passed[n] = int32(i)
		n++
		t.nodes[t.size+i] = match{nobody, 0}
		t.replay(i)
	}
	for _, i := range t.passed[:n] {
		t.Changed(int(i))
	}
	switch {
	case taken < 0:
		// The rotation goes on with those that have not been asked.
		jump := &v.Shared()[jumped]
		taken = t.scan(c, int(min(*jump, uint64(v.Len()))), true)
		*jump = uint64(taken + 1)
		if t.ties == TiesRotate {
			v.Mark(at)
		}
	case tied:
		v.Mark(taken + 1)
	}
	return taken
}

// lcPicks is the word of a tier's shared state that counts the picks of onRamp.
const lcPicks = 0

// takes offers host i, which is on a ramp and the least loaded, the pick and tells
// whether it takes it. However often it is that, it is not offered a turn before
// as many picks have passed since the last one as hosts are in full service: an
// idle host beside busy ones would have as many turns as there are picks.
func (t *leastConn) takes(i int) bool {
	h, picks := t.v.hosts[i], t.v.Shared()[lcPicks]
	owed, offered := h.turn()
	if t.ties == TiesRotate && offered != neverOffered && (picks+2-offered)<<16>>16 < uint64(t.full) {
		return false
	}
	owed += int64(t.v.Ramp(i))
	taken := owed >= fullRamp
	if taken {
		owed -= fullRamp
	}
	h.setTurn(owed, picks+2)
	return taken
}

// among is the pick among a number of equals of which all are on a ramp.
func (t *leastConn) among(c Call, equal int) int {
	v := t.v
	if t.ties == TiesRandom {
		for k := range uint64(rejections) {
			x := below(c.Draw(k), uint64(equal)*fullRamp)
			if i := t.rank(int(x / fullRamp)); x%fullRamp < uint64(v.Ramp(i)) {
				return i
			}
		}
		// Their ramps have only begun: an exact draw, in O(equals * log n).
		var sum uint64
		for k := range equal {
			sum += uint64(v.Ramp(t.rank(k)))
		}
		x, k := below(c.Draw(rejections), sum), 0
		for x >= uint64(v.Ramp(t.rank(k))) {
			x -= uint64(v.Ramp(t.rank(k)))
			k++
		}
		return t.rank(k)
	}
	at := 0
	if t.ties == TiesRotate {
		at = v.Marked()
	}
	taken := -1
	for s := newTurns(v, equal); taken < 0; {
		i := t.from(at)
		at = i + 1
		taken = s.offer(i)
	}
	if t.ties == TiesRotate {
		v.Mark(at)
	}
	return taken
}

// best tells how many hosts below a node are equal to the root's.
func (t *leastConn) best(at int) int {
	m := t.nodes[at]
	if m.win < 0 || t.loads[t.nodes[1].win].less(t.loads[m.win]) {
		return 0
	}
	return int(m.equal)
}

// rank returns the k-th host from the left that is equal to the root's.
func (t *leastConn) rank(k int) int {
	at := 1
	for at < t.size {
		at *= 2
		if n := t.best(at); k >= n {
			k -= n
			at++
		}
	}
	return at - t.size
}

// from returns the first host at or after start, going round, that is equal to
// the root's, by counting the equals to the left of start.
func (t *leastConn) from(start int) int {
	if start >= t.v.Len() {
		start = 0
	}
	if t.best(t.size+start) > 0 {
		return start
	}
	left := 0
	for at := t.size + start; at > 1; at /= 2 {
		if at&1 == 1 {
			left += t.best(at - 1)
		}
	}
	if left == int(t.nodes[1].equal) {
		left = 0
	}
	return t.rank(left)
}

// scan is the pick of the least loaded without the tree, ties from start on: while
// ejections are ignored, since the tree holds the ordinary hosts only, or among
// those in full service. There must be one of these. O(n).
func (t *leastConn) scan(c Call, start int, full bool) int {
	v := t.v
	best, ties := -1, 0
	if t.ties != TiesRotate {
		start = 0
	}
	for n, i := v.UsableCount(), start-1; n > 0; n-- {
		i = v.NextUsable(i + 1)
		switch {
		case full && v.Ramp(i) != fullRamp:
		case best < 0 || v.less(i, best):
			best, ties = i, 1
		case !v.less(best, i):
			// The ties-th equal replaces the choice with probability 1/ties.
			if ties++; t.ties == TiesRandom && below(c.Draw(uint64(i)), uint64(ties)) == 0 {
				best = i
			}
		}
	}
	if t.ties == TiesRotate && best >= 0 && !full {
		v.Mark(best + 1)
	}
	return best
}
