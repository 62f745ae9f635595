package balancer

import (
	"fmt"
	"slices"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// Hash sends requests with one key to one host: the first usable owner on a
// weighted consistent-hash ring (Karger et al. 1997, see package hashring). A
// host that is out moves its own keys only, each to the next owner on the ring,
// exactly as if the ring had been built without it, and its return moves them
// back; so does a host that this request has tried.
//
// The keys of a host that is on its way back from an ejection come back as its
// ramp grows, each of them once: which ones have is a matter of the key and the
// host, the same in every process. The others stay where they are.
//
// Cost: O(1) expected while a constant share of the weight is usable: with a
// share of s, about 1/s steps on the ring. Ramps count into the share, but after
// 1024 steps to hosts that are usable and do not serve the key yet, one in full
// service does, by a hash of the key, or without one the first of them.
//
// The zero value is ready to use. Safe for concurrent use.
type Hash struct {
	// Ring sets up the ring. If zero, it has 160 points per unit of weight and no
	// seed: it is the same in every process, whatever the Pool's seed.
	Ring hashring.RingConfig

	// Keyless picks for requests without a key. If nil, RoundRobin{}.
	Keyless Policy
}

// Name implements Policy.
func (Hash) Name() string { return "hash" }

// Validate reports a bad setting, of the ring or of Keyless, as a *ConfigError.
func (p Hash) Validate() error {
	if err := p.Ring.Validate(); err != nil {
		return &ConfigError{Field: "Hash.Ring", Err: err}
	}
	if p.Keyless != nil {
		return validatePolicy("Hash.Keyless", p.Keyless)
	}
	return nil
}

// NewPicker implements Policy. The ring of prev is kept if no member and no
// weight has changed; else it is built in time linear in its points.
func (p Hash) NewPicker(v *View, prev Picker) Picker {
	members := make([]hashring.Member, v.Len())
	for i := range members {
		members[i] = hashring.Member{ID: v.ID(i), Weight: v.Weight(i)}
	}
	h := &hash{v: v, members: members}
	old, _ := prev.(*hash)
	if old != nil && slices.Equal(old.members, members) {
		h.ring = old.ring
	} else if ring, err := hashring.NewRing(p.Ring, members); err == nil {
		h.ring = ring
	} else {
		// Ids and weights were checked by Update and the settings by Validate.
		panic(fmt.Sprintf("balancer: ring of checked members: %v", err))
	}
	keyless := p.Keyless
	if keyless == nil {
		keyless = RoundRobin{}
	}
	var prevKeyless Picker
	if old != nil {
		prevKeyless = old.keyless
	}
	if v.ramps != nil {
		h.own = make([]uint64, v.Len())
		for i := range h.own {
			h.own[i] = v.hosts[i].key()
		}
	}
	h.keyless = keyless.NewPicker(v, prevKeyless)
	h.follower, _ = h.keyless.(Follower)
	return h
}

type hash struct {
	v        *View
	members  []hashring.Member
	ring     *hashring.Ring
	own      []uint64 // the hosts' own keys, while somebody is on a ramp
	keyless  Picker
	follower Follower
}

// Changed implements Follower for the keyless picker.
func (h *hash) Changed(i int) {
	if h.follower != nil {
		h.follower.Changed(i)
	}
}

func (h *hash) Pick(c Call) int {
	key, ok := c.Key()
	if !ok {
		return h.keyless.Pick(c)
	}
	if h.v.UsableCount() == 0 {
		return -1
	}
	// At most one lap: the walk ends by itself.
	walk := h.ring.Walk(key)
	first := -1 // of those that do not serve the key yet
	for passed := 0; passed < maxWalked; {
		i, ok := walk.Next()
		switch {
		case !ok && first >= 0:
			return first
		case !ok:
			return h.v.NextUsable(0)
		case !h.v.Usable(i):
			continue
		case h.v.ramps == nil || keeps(h.own[i], key, h.v.Ramp(i)):
			return i
		case first < 0:
			first = i
		}
		passed++
	}
	if i := h.v.set.nextIn(&h.v.full, int(below(mix(key), uint64(h.v.Len())))); i >= 0 {
		return i
	}
	return first
}

// maxWalked bounds the steps of a walk to hosts that do not serve the key yet.
const maxWalked = 1024
