package balancer

import "slices"

// A host that returns from an ejection under outlier.Ramp serves a part of its
// traffic first, and the outlier detector says how large a part, step by step.
// This file has what the policies share to apply it. All of them keep to three
// rules: what the hosts in full service are owed is spread over them as ever, so
// that none of them gets a burst; nothing that a host has on the way to its next
// turn is lost at a step; and where a ramp leaves nobody, it does not count.
//
// A tier without a host on a ramp has the same pickers as if there were no
// ramps. The steps are rare, so each makes the picker of its tier anew, which
// costs the hosts that are not concerned nothing on a request.

// fullRamp is full service: the thousandths of a whole.
const fullRamp = 1000

// follow takes over what the hosts take of their traffic.
func (v *View) follow(ramps []int16) {
	v.ramps, v.full = ramps, bitmap{}
	if ramps == nil {
		return
	}
	v.full = newBitmap(len(ramps))
	for i, r := range ramps {
		v.full.set(i, r == fullRamp)
	}
}

// rampsOf lists what hosts take of their traffic; nil if all take all of it.
func (e *engine) rampsOf(hosts []*host) []int16 {
	if !e.ramps {
		return nil
	}
	var ramps []int16
	for i, h := range hosts {
		r := h.outlier.Ramp()
		if r == fullRamp {
			continue
		}
		if ramps == nil {
			ramps = make([]int16, len(hosts))
			for j := range ramps {
				ramps[j] = fullRamp
			}
		}
		ramps[i] = int16(r)
	}
	return ramps
}

// followRamp notes that the picker over h must be made anew, if it goes by
// another place on the ramp than h has reached. It is not made at once: more
// steps may be due, and a NewPicker that panics must take nothing of the input
// with it. It is made before the picker is used, or at the end of the input.
func (e *engine) followRamp(h *host) {
	if e.ramps && h.index >= 0 && h.tier.view.Ramp(int(h.index)) != h.outlier.Ramp() {
		h.tier.stale, e.stale = true, true
	}
}

// refit makes the pickers of the stale tiers anew. If a NewPicker panics its tier
// has a stand-in, and the other tiers get theirs before the panic goes on.
func (e *engine) refit() {
	at := slices.IndexFunc(e.tiers, func(t *tier) bool { return t.stale })
	if e.stale = at >= 0; !e.stale {
		return
	}
	defer e.refit()
	e.equip(e.tiers[at])
}

// refitLast is refit at the end of a critical section, which ends also if a
// NewPicker panics.
func (e *engine) refitLast() {
	done := false
	defer func() {
		if !done {
			e.mu.Unlock()
		}
	}()
	e.refit()
	done = true
}

// pull is the weight of host i as far as its ramp leaves it, in a Pool that may
// have ramps in thousandths. It has at most 30 bits.
func (v *View) pull(i int) int64 {
	w := int64(v.hosts[i].weight)
	if v.fine {
		w *= int64(v.Ramp(i))
	}
	return w
}

// whole is pull without a ramp.
func (v *View) whole(i int) int64 {
	w := int64(v.hosts[i].weight)
	if v.fine {
		w *= fullRamp
	}
	return w
}

// drawOnRamp draws a usable host with a probability in proportion to its ramp,
// using the draws k to k+rejections. It draws the hosts that drawUsable would,
// and redraws one on a ramp where the point drawn lies in the part of it that it
// does not serve yet: a step moves no draw but from others to the host that has
// stepped. If that fails too often it is an exact draw over the usable hosts, in
// O(usable hosts). The caller guarantees a usable host.
func (v *View) drawOnRamp(c Call, k uint64) int {
	if n := len(v.hosts); v.set.count*rejections >= n {
		for r := range uint64(rejections) {
			x := below(c.Draw(k+r), uint64(n)*fullRamp)
			if i := int(x / fullRamp); v.set.has(i) && x%fullRamp < uint64(v.Ramp(i)) {
				return i
			}
		}
	}
	var sum uint64
	for i, n := -1, v.set.count; n > 0; n-- {
		i = v.set.next(i + 1)
		sum += uint64(v.Ramp(i))
	}
	x := below(c.Draw(k+rejections), sum)
	i := v.set.next(0)
	for x >= uint64(v.Ramp(i)) {
		x -= uint64(v.Ramp(i))
		i = v.set.next(i + 1)
	}
	return i
}

// drawPairOnRamp is drawPair where some hosts are on a ramp. The first is drawn
// in proportion to the ramps. The second is drawn as ever and competes in as many
// cases as its ramp is of the first's, always if it is not smaller; else the
// first comes twice. So every pair comes as often as the smaller ramp of the two
// says, either of them first: the first alone has exact shares, two that are
// equal keep them, however much better a host on a ramp does it gets no more than
// twice its share, and hosts that are as far on their ramps choose between each
// other as they do without one. There are at least two usable hosts.
func (v *View) drawPairOnRamp(c Call) (first, second int) {
	first = v.drawOnRamp(c, 0)
	second = v.drawUsable(c, rejections+1, first)
	if below(c.Draw(2*(rejections+1)), uint64(v.Ramp(first))) >= uint64(v.Ramp(second)) {
		return first, first
	}
	return first, second
}

// keeps tells whether a host with a key of its own serves a request's key already,
// at a place on its ramp. As that grows the keys only become more, so that each
// comes back once.
func keeps(own, key uint64, ramp int) bool {
	return below(mix(key+own*golden), fullRamp) < uint64(ramp)
}

// turns decides which of the turns of a rotation a host on a ramp takes: with
// 250 thousandths exactly every fourth that comes to it. The others pass to the
// next in turn. It serves one pick; the zero value is not usable.
type turns struct {
	v      *View
	left   int   // turns that may pass
	best   int   // who is owed most of those that have let theirs pass
	most   int64 // how much that is
	gained int64 // what these have gained
}

// maxPassed bounds the turns that pass in one pick. It is reached only where as
// many hosts on a ramp stand side by side, and none of them is due.
const maxPassed = 64

// newTurns begins a pick among n hosts.
func newTurns(v *View, n int) turns { return turns{v: v, left: min(n, maxPassed), best: -1} }

// offer gives host i the turn and returns who takes it: i, or -1 if i lets it
// pass. If all have let it pass, or as many as may, it is a host in full service,
// in a rotation of its own, so that the next pick goes on where this one ends;
// or, without one, the host that is owed most of those that have passed. That one
// pays what they have gained, as in the smooth order of nginx, so that hosts
// that are all on ramps have shares in proportion, but at most a turn.
func (t *turns) offer(i int) int {
	ramp := int64(t.v.Ramp(i))
	if ramp == fullRamp {
		return i
	}
	h := t.v.hosts[i]
	owed, offered := h.turn()
	owed += ramp
	if owed >= fullRamp {
		h.setTurn(owed-fullRamp, offered)
		return i
	}
	h.setTurn(owed, offered)
	t.gained += ramp
	if t.best < 0 || owed > t.most {
		t.best, t.most = i, owed
	}
	if t.left--; t.left > 0 {
		return -1
	}
	if i = t.v.nextFull(); i >= 0 {
		return i
	}
	_, offered = t.v.hosts[t.best].turn()
	t.v.hosts[t.best].setTurn(t.most-min(t.gained, fullRamp), offered)
	return t.best
}

// jumped is the word of a tier's shared state where the rotation goes on that
// serves where hosts on a ramp have let too many turns pass.
const jumped = 1

// nextFull gives the next usable host in full service such a turn; -1 if there is
// none. O(n/64).
func (v *View) nextFull() int {
	at := &v.Shared()[jumped]
	i := v.set.nextIn(&v.full, int(min(*at, uint64(v.Len()))))
	if i >= 0 {
		*at = uint64(i + 1)
	}
	return i
}

// turnWord is the word of a host's scratch that tells what a rotation owes it,
// in thousandths of a turn and two's complement of 16 bits, and above that 0 for a
// host that is not on a ramp, 1 for one that has not been offered a turn yet, and
// where it matters 2 more than what was the number of the pick that last did.
const turnWord = 0

// neverOffered is the number of a host that has just come onto a ramp.
const neverOffered = 1

func (h *host) turn() (owed int64, offered uint64) {
	w := h.scratch[turnWord]
	return int64(int16(w)), w >> 16
}

func (h *host) setTurn(owed int64, offered uint64) {
	h.scratch[turnWord] = offered<<16 | uint64(uint16(owed))
}

// beginTurns puts each host that has come onto a ramp somewhere on the way to its
// first turn, so that hosts that return together do not take their turns
// together, and forgets what the others were owed on their last ramp.
func (v *View) beginTurns() {
	if !v.fine {
		return
	}
	for i, h := range v.hosts {
		switch _, offered := h.turn(); {
		case v.Ramp(i) == fullRamp:
			h.scratch[turnWord] = 0
		case offered == 0:
			h.setTurn(int64(below(uint64(i)*golden, fullRamp)), neverOffered)
		}
	}
}
