package balancer

import (
	"math"
	"time"
)

// Policy makes the pickers of a Pool, one for each tier of priority. It is a
// value that holds settings only: whatever a pick changes lives in the View, so
// that one Policy may serve many Pools and so that a Pool can be saved.
//
// An implementation must be safe for concurrent use by several Pools.
type Policy interface {
	// Name names the policy in snapshots, errors and recordings.
	Name() string

	// NewPicker makes the picker for the hosts of v, once for each change of
	// membership, order or weight, and for each step of a ramp - never for another
	// change of health, or of load. prev is the tier's picker until now, or nil; it
	// may be asked for tables worth keeping, and must not be used for picking again.
	// It is called under the Pool's lock, before the next pick or at the end of the
	// input that brings the change or the step: it must not block or call the Pool.
	// If it panics, the panic is passed on to whoever made the input, which has
	// happened all the same, a pick excepted; until the next change the tier picks in
	// turn. A ramp has several steps and many hosts may be on one, so it should do
	// little.
	NewPicker(v *View, prev Picker) Picker
}

// Picker chooses one of the hosts of its View. The Pool calls it under its lock,
// one call at a time: it need not be safe for concurrent use.
type Picker interface {
	// Pick returns the index of a host for which View.Usable is true, or -1 if
	// there is none. It is called under the Pool's lock: it must not block,
	// allocate, start a goroutine or call the Pool, and it must be a function of
	// the View and the Call alone, or recordings will not replay. It must not panic;
	// if it does, the request is over and the Pool goes on. An answer that
	// is out of range or not usable is counted in Snapshot and replaced by the
	// next usable host.
	Pick(c Call) int
}

// Follower is implemented by a [Picker] that keeps an index over load or
// eligibility, such as a tree. It is called as a Picker is.
type Follower interface {
	// Changed is called under the Pool's lock after host i's in-flight count or
	// its Usable bit has changed. The rules of Pick apply.
	Changed(i int)
}

// Call is what a Picker may know of the request at hand. It is a small value;
// passing it on costs nothing. The zero Call is one without a key at the Pool's
// epoch. Safe for concurrent use.
type Call struct {
	now   int64
	key   uint64
	draw  uint64
	flags uint64 // attempt << 1 | has key
}

// Now is the time of the pick since the Pool's epoch.
func (c Call) Now() time.Duration { return time.Duration(c.now) }

// Key is the request's affinity key and whether it has one.
func (c Call) Key() (key uint64, ok bool) { return c.key, c.flags&1 != 0 }

// Attempt is 0 for a request's first attempt.
func (c Call) Attempt() int { return int(c.flags >> 1) }

// Draw returns 64 uniform random bits that depend on the Pool's seed, the
// request, the attempt and k alone: a request that is left out of a replay
// changes no other request's draws.
func (c Call) Draw(k uint64) uint64 { return mix(c.draw + (k+1)*golden) }

// View is a Picker's window on the hosts of its tier: indices 0 to Len()-1 in
// the order of the latest Update. Reads of one host are O(1); an index outside
// that range panics. It is valid under the Pool's lock only, that is inside
// NewPicker, Pick and Changed, and not safe for concurrent use elsewhere.
type View struct {
	hosts   []*host
	usable  bitmap
	spare   bitmap // ejected, and in every other respect usable
	set     *bitmap
	ramps   []int16 // by host, in thousandths; nil if nobody is on a ramp
	full    bitmap  // the hosts that are on none, where somebody is
	fine    bool    // the Pool may have ramps: weights count in thousandths
	mark    int32
	shared  [2]uint64
	seed    uint64
	penalty int64 // what a failure costs, in nanoseconds
}

// Len is the number of hosts in the tier.
func (v *View) Len() int { return len(v.hosts) }

// ID is the id of host i.
func (v *View) ID(i int) string { return v.hosts[i].id }

// Weight is the weight of host i; 0 means that it is not Usable.
func (v *View) Weight(i int) int { return int(v.hosts[i].weight) }

// Ramp is what host i takes of its traffic, in thousandths: 1000 in full service,
// less while it is on its way back from an ejection (see Config.Outlier). It
// changes only before a NewPicker. How a Picker applies it is its own affair; one
// that does not loses nothing but the gentleness. A host on a ramp that is the
// only usable one must be picked all the same.
func (v *View) Ramp(i int) int {
	if v.ramps == nil {
		return fullRamp
	}
	return int(v.ramps[i])
}

// Inflight is the number of unreleased leases on host i.
func (v *View) Inflight(i int) int { return int(v.hosts[i].inflight) }

// Usable tells whether host i may be picked by the call at hand: healthy, not
// ejected, its breaker ready, below its limit, with a weight, and not tried by
// this request before.
func (v *View) Usable(i int) bool { return v.set.has(i) }

// UsableCount is the number of hosts that are Usable.
func (v *View) UsableCount() int { return v.set.count }

// NextUsable returns the first usable host at or after i, going round past the
// end, or -1 if there is none. O(1) for any practical number of hosts.
func (v *View) NextUsable(i int) int { return v.set.next(i) }

// NthUsable returns the usable host of rank k in index order, or -1. O(Len/64).
func (v *View) NthUsable(k int) int { return v.set.nth(k) }

// Fallback tells whether this pick ignores ejections because nothing else is
// left. Usable then means a host that is ejected and otherwise fit. A Follower
// is not told of this switch: a picker with an index of its own looks at
// Fallback first.
func (v *View) Fallback() bool { return v.set == &v.spare }

// Scratch is two words of state that live with host i: they follow it through
// every Update, are zero when it joins, and are saved and restored. Of the
// policies here WeightedRoundRobin uses the first up to 32 hosts and the second
// above that, and RoundRobin and LeastConn the first, in a Pool that may have
// ramps; a Policy that wraps one of them leaves it that word.
func (v *View) Scratch(i int) *[2]uint64 { return &v.hosts[i].scratch }

// Shared is two words of state of the tier, saved and restored. The same policies
// use both of them.
func (v *View) Shared() *[2]uint64 { return &v.shared }

// Mark remembers host i as the place where a rotation goes on. It follows the
// host through updates; when the host leaves, it moves to the next one that
// stays. A fresh tier's mark is where the Pool's seed puts it.
func (v *View) Mark(i int) { v.mark = int32(i) }

// Marked is the host of the latest Mark.
func (v *View) Marked() int { return int(v.mark) }

// Seed is the Pool's seed, for tables that must be the same in every process
// with that seed.
func (v *View) Seed() uint64 { return v.seed }

// Latency is the decayed peak-sensitive estimate of host i's time to answer, and
// whether it was ever measured.
func (v *View) Latency(i int, c Call) (time.Duration, bool) {
	d, ok := v.hosts[i].latency.Value(c.now)
	return time.Duration(d), ok
}

// FailShare is the decayed share of failures among host i's answers, in
// thousandths.
func (v *View) FailShare(i int, c Call) int {
	share, _ := v.hosts[i].failing.Value(c.now)
	return int(share / (failUnit / 1000))
}

// Oldest is the age of host i's oldest call that has not answered yet, 0 if
// there is none: a lower bound of what its latency is becoming.
func (v *View) Oldest(i int, c Call) time.Duration {
	return time.Duration(v.hosts[i].waiting(c.now))
}

// less reports whether host i carries less load than host j: in-flight calls
// per unit of weight, as far as ramps leave it, compared exactly by cross
// multiplication. A host without weight carries more than any other.
func (v *View) less(i, j int) bool {
	a, b := v.hosts[i], v.hosts[j]
	if a.weight == 0 || b.weight == 0 {
		return b.weight == 0 && a.weight != 0
	}
	if v.ramps != nil {
		// 31 bits of in-flight and 30 of weight.
		return uint64(a.inflight)*uint64(v.pull(j)) < uint64(b.inflight)*uint64(v.pull(i))
	}
	return uint64(a.inflight)*uint64(b.weight) < uint64(b.inflight)*uint64(a.weight)
}

// rejections bounds the redraws of a draw by rejection.
const rejections = 16

// drawUsable draws one usable host uniformly, using the draws k to
// k+rejections. skip, if not negative, is left out: the draw is over the others.
// It draws indices over all hosts and redraws the unusable ones, so that a host
// that goes down moves only the draws that hit it; after too many misses, or if
// fewer than one host in rejections is usable, it draws a rank among the usable
// ones. Both are uniform, so the mixture is. Bounded steps for any draws. The
// caller guarantees a usable host other than skip.
func (v *View) drawUsable(c Call, k uint64, skip int) int {
	n := len(v.hosts)
	if v.set.count*rejections >= n {
		for r := uint64(0); r < rejections; r++ {
			x := c.Draw(k + r)
			var i int
			if skip < 0 {
				i = int(below(x, uint64(n)))
			} else if i = int(below(x, uint64(n-1))); i >= skip {
				i++
			}
			if v.set.has(i) {
				return i
			}
		}
	}
	left := v.set.count
	without := skip >= 0 && v.set.has(skip)
	if without {
		left--
	}
	i := v.set.nth(int(below(c.Draw(k+rejections), uint64(left))))
	if without && i >= skip {
		// Ranks from skip's own on belong to the next member. There is one: the
		// highest rank was not drawn.
		i = v.set.next(i + 1)
	}
	return i
}

// drawPair draws two distinct usable hosts, without replacement (Finagle P2C:
// the second index comes from n-1 and is shifted past the first). With one
// usable host it draws nothing and returns it twice; with none, -1 twice.
func (v *View) drawPair(c Call) (first, second int) {
	switch v.set.count {
	case 0:
		return -1, -1
	case 1:
		i := v.set.next(0)
		return i, i
	}
	if v.ramps != nil {
		return v.drawPairOnRamp(c)
	}
	first = v.drawUsable(c, 0, -1)
	return first, v.drawUsable(c, rejections+1, first)
}

// saturatingMul multiplies two non-negative numbers, stopping at the largest.
func saturatingMul(a, b int64) int64 {
	if a == 0 || b <= math.MaxInt64/a {
		return a * b
	}
	return math.MaxInt64
}
