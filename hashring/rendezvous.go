package hashring

import (
	"cmp"
	"math/bits"
	"slices"
)

// A RendezvousConfig sets up a [Rendezvous]. The zero value has no cap on
// weights and no seed.
//
// A RendezvousConfig is plain data and safe for concurrent use while nobody
// writes to it.
type RendezvousConfig struct {
	// MaxWeight caps the weight of every member.
	// If zero, there is no cap. Negative values are rejected.
	MaxWeight int

	// Seed salts the hashes of members and keys; see RingConfig.Seed.
	// If zero, nothing is salted.
	Seed uint64
}

// Validate returns an error that wraps [ErrConfig] and names the first field
// out of range, or nil. It is safe for concurrent use.
func (c RendezvousConfig) Validate() error {
	return notNegative("RendezvousConfig.MaxWeight", c.MaxWeight)
}

// A Rendezvous ranks all members anew for every key (highest random weight:
// Thaler, Ravishankar 1998): each pair of key and member has a hash h, uniform
// in (0, 1], and the member with the least -ln(h)/weight owns the key. Member i
// then owns exactly weight_i / sum(weights) of the keys in expectation, and the
// next in rank are spread over all others in the same way: when a member goes,
// its keys go to everyone, not to a neighbour.
//
// The logarithm is computed in fixed point from integers only, and fractions
// are compared by cross-multiplication, so the ranking is a total order and the
// same on every architecture. Ties fall by id.
//
// The zero value has no members. A Rendezvous is immutable and safe for
// concurrent use.
type Rendezvous struct {
	roster
	salt    salt
	slots   []rankSlot // in the order of weight, then id
	classes []rankClass
	log     *logTable
}

// rankSlot is one member in a ranking.
type rankSlot struct {
	base   uint64
	member int32
	rank   int32 // place in the order of ids
}

// rankClass is a run of slots of one weight. Within it the larger hash wins, so
// one logarithm per class is enough.
type rankClass struct {
	weight   uint64
	from, to int
}

// rankScore is the standing of a slot for one key: lower cost/weight first,
// then higher hash, then lower rank.
type rankScore struct {
	hash, cost, weight uint64
	rank               int32
}

// NewRendezvous prepares members for ranking, in O(n log n) time. It returns an
// error that wraps [ErrConfig] or [ErrMembers] if cfg or members is invalid; no
// members at all are valid. It keeps neither cfg nor members.
func NewRendezvous(cfg RendezvousConfig, members []Member) (*Rendezvous, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ros, err := newRoster(members, cfg.MaxWeight)
	if err != nil {
		return nil, err
	}
	r := &Rendezvous{roster: ros, salt: newSalt(cfg.Seed), log: newLogTable()}
	for rank, m := range r.order {
		r.slots = append(r.slots, rankSlot{mix(r.salt.base(r.ids[m])), m, int32(rank)})
	}
	slices.SortStableFunc(r.slots, func(a, b rankSlot) int {
		return cmp.Compare(r.weights[a.member], r.weights[b.member])
	})
	for i, s := range r.slots {
		w := uint64(r.weights[s.member])
		if n := len(r.classes); n == 0 || r.classes[n-1].weight != w {
			r.classes = append(r.classes, rankClass{weight: w, from: i})
		}
		r.classes[len(r.classes)-1].to = i + 1
	}
	return r, nil
}

// Lookup returns the member that owns key, or -1 if no member has a positive
// weight.
//
// It takes O(n) time for n members, does not allocate, and is safe for
// concurrent use.
func (r *Rendezvous) Lookup(key uint64) int {
	if len(r.slots) == 0 {
		return -1
	}
	return int(r.slots[r.next(r.salt.position(key), -1)].member)
}

// next returns the slot ranked first for a salted key, or first after the slot
// last if that is not negative. There is one.
func (r *Rendezvous) next(key uint64, last int) int {
	var after rankScore
	if last >= 0 {
		after = r.score(key, last)
	}
	best := -1
	var bestScore rankScore
	for c := range r.classes {
		i := r.champion(key, &r.classes[c], last, &after)
		if i < 0 {
			continue
		}
		if len(r.classes) == 1 {
			return i
		}
		if s := r.score(key, i); best < 0 || s.before(&bestScore) {
			best, bestScore = i, s
		}
	}
	return best
}

// champion returns the slot of a class ranked first, or first after the slot
// last, or -1 if there is none.
func (r *Rendezvous) champion(key uint64, c *rankClass, last int, after *rankScore) int {
	best, top := -1, uint64(0)
	for i := c.from; i < c.to; i++ {
		h := mix(key ^ r.slots[i].base)
		// Slots of a class are in the order of ids, so an equal hash later on
		// loses the tie.
		if best >= 0 && h <= top {
			continue
		}
		if last >= 0 {
			s := rankScore{h, 0, c.weight, r.slots[i].rank}
			if c.weight == after.weight {
				// Of one weight: the hash decides and no logarithm is due.
				s.cost = after.cost
			} else {
				s.cost = r.log.cost(h)
			}
			if !after.before(&s) {
				continue
			}
		}
		best, top = i, h
	}
	return best
}

func (r *Rendezvous) score(key uint64, slot int) rankScore {
	s := &r.slots[slot]
	h := mix(key ^ s.base)
	return rankScore{h, r.log.cost(h), uint64(r.weights[s.member]), s.rank}
}

// before reports whether a ranks before b.
func (a *rankScore) before(b *rankScore) bool {
	// a.cost/a.weight < b.cost/b.weight
	ahi, alo := bits.Mul64(a.cost, b.weight)
	bhi, blo := bits.Mul64(b.cost, a.weight)
	switch {
	case ahi != bhi:
		return ahi < bhi
	case alo != blo:
		return alo < blo
	case a.hash != b.hash:
		return a.hash > b.hash
	}
	return a.rank < b.rank
}

// Walk returns the members in the order of their rank for key, each once.
// Skipping some of them gives the same owner as a ranking without them.
//
// It takes O(1) time, and each step of the walk O(n) for n members. It does not
// allocate and is safe for concurrent use.
func (r *Rendezvous) Walk(key uint64) Walk {
	return Walk{ranking: r, key: r.salt.position(key), last: -1, left: len(r.slots)}
}

// Owners returns the n members ranked first for key, fewer if fewer have a
// positive weight. It takes O(n) time per owner, allocates the result, and is
// safe for concurrent use.
func (r *Rendezvous) Owners(key uint64, n int) []int { return owners(r.Walk(key), n, &r.roster) }

// AppendOwners appends the result of [Rendezvous.Owners] to dst and returns it.
// It does not allocate if dst has room and n is at most 16. It is safe for
// concurrent use.
func (r *Rendezvous) AppendOwners(dst []int, key uint64, n int) []int {
	return appendOwners(dst, r.Walk(key), n, &r.roster)
}
