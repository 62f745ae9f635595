// Package hashring places 64-bit keys on members so that a key keeps its member
// while the set of members changes around it: sticky sessions, sharded caches,
// partitioned work.
//
// Placement is a function of the members' ids and weights, the configuration
// and the key. It is the same in every process, for every order of the members,
// on every architecture and in every release of the package; fixed vectors in
// its tests pin it. Nothing is random and nothing is measured. Tables are
// immutable: build a new one when the members change, and walk past members
// that are only unavailable.
//
//	ring, err := hashring.NewRing(hashring.RingConfig{}, members)
//	...
//	owner := ring.Lookup(hashring.Key("session-42")) // an index into members
//
// # Keys
//
// A key must be well mixed, because the tables look at its high bits first.
// [Key] and [KeyBytes] make one from text, [KeyUint64] from a number, and
// [SeededKey] from text that an untrusted client chooses. For requests without
// a key, pass KeyUint64 of a counter rather than one fixed key.
//
// # Which table
//
// [Ring] is the usual choice: only the keys of a member that comes or goes
// move, and skipping a member gives what a ring without it would. [Maglev] has
// the fastest lookup and the most even shares, but a change moves a few keys
// between the members that stay, and the keys of a skipped member all go to its
// neighbours in the table. [Rendezvous] has exact shares at any weights and,
// like the ring, moves no key in vain, and it spreads the keys of a lost member
// over all others, but it looks at all members for every key: it suits a few
// dozen. [Jump] needs no table, but only numbered buckets. [Bounded] limits the
// load of members over any of the three.
//
// Shares of members of equal weight, as largest and smallest over the mean,
// with default configurations and ids "host-0", "host-1", and so on. Rendezvous
// has no deviation of its own: what remains is that of the keys drawn.
//
//	members      Ring           Maglev
//	     10   1.137  0.891   1.000  1.000
//	    100   1.190  0.805   1.001  0.999
//	   1000   1.271  0.785   1.007  0.992
//
// Keys that move when one of n members goes, in per cent of all. The share of
// the member itself, 100/n on average, has to.
//
//	n           Ring, Rendezvous      Maglev
//	  10   its own and no others   its own + 0.17
//	 100   its own and no others   its own + 0.60
//	1000   its own and no others   its own + 0.56
//
// When k of 1000 members go at once, a Maglev table of 65537 slots changes in
// 0.67, 2.3, 3.4, 4.7 and 8.3 % of its slots for k = 1, 5, 10, 20 and 50 (mean
// of four seeds), of which k/10 % is what has to move.
//
// Bounded loads, 10000 units on 100 members, a ring of 100 points each: the
// heaviest member has at most c times the mean, always, and the share of keys
// not at their owner is, for units that arrive one by one and for a bound known
// from the start:
//
//	c      one by one   known
//	1.25       3.0 %    0.2 %
//	1.10      10.2 %    1.4 %
//	1.05      17.3 %    3.0 %
//
// The first column is larger because a bound on a small total is tight: with
// the first units a limit is one or two.
package hashring

import (
	"cmp"
	"math/bits"
	"slices"
)

// A Member is one owner of keys. The zero value is rejected: it has no id.
//
// A Member is plain data and safe for concurrent use while nobody writes to it.
type Member struct {
	// ID is the member's name. Placement depends on it and on nothing else
	// that the caller's list implies: not on the order, not on the length.
	// It must not be empty and must be unique in a list. Two ids of the same
	// FNV-1a hash, which no one meets by accident, share their places on a
	// Ring and in a Rendezvous, and the earlier one owns the keys.
	ID string

	// Weight is the member's share relative to the others.
	// If zero, the member owns no keys and is never returned, but keeps its
	// index. If negative, the list is rejected.
	Weight int
}

// A Table maps keys to members, which it names by their index in the list it
// was built from. [Ring], [Maglev] and [Rendezvous] are tables.
//
// Implementations are immutable and safe for concurrent use.
type Table interface {
	// Len returns the number of members, those of weight 0 included.
	Len() int
	// ID returns the id of a member.
	ID(member int) string
	// Weight returns the weight of a member after any cap on weights.
	Weight(member int) int
	// Lookup returns the member that owns key, or -1 if no member has a
	// positive weight.
	Lookup(key uint64) int
	// Walk returns the owners of key in order of preference, the one that
	// Lookup returns first.
	Walk(key uint64) Walk
}

// A Walk yields the owners of one key in order of preference. Skipping the
// members that are unavailable gives, for [Ring] and [Rendezvous], exactly the
// owner that a table built without them would give; for [Maglev], the owner of
// the next slot.
//
// A Walk is a value: it needs no allocation, and a copy walks on by itself. It
// visits each position of its table at most once and then ends, whatever the
// caller skips; a member that holds several positions is yielded several times.
//
// The zero value has ended. A Walk is not safe for concurrent use.
type Walk struct {
	// One of the three is set.
	ring    *Ring
	maglev  *Maglev
	ranking *Rendezvous

	pos  int    // next position in the ring or table
	left int    // positions not yet visited
	key  uint64 // salted key of the ranking
	last int    // slot of the ranking yielded last, -1 before the first
}

// Next returns the next owner, or -1 and false after the last one.
//
// It takes O(1) time on a [Ring] or a [Maglev], O(n) on a [Rendezvous] of n
// members, and does not allocate. It is not safe for concurrent use.
func (w *Walk) Next() (member int, ok bool) {
	if w.left == 0 {
		return -1, false
	}
	w.left--
	switch {
	case w.ring != nil:
		// The guard behind the last point stands for the first one.
		if w.pos >= len(w.ring.hashes) {
			w.pos = 0
		}
		member = w.ring.owner(w.pos)
		w.pos++
	case w.maglev != nil:
		if w.pos == len(w.maglev.slots) {
			w.pos = 0
		}
		member = int(w.maglev.slots[w.pos])
		w.pos++
	default:
		w.last = w.ranking.next(w.key, w.last)
		member = int(w.ranking.slots[w.last].member)
	}
	return member, true
}

// owners returns the first n distinct owners of a walk.
func owners(w Walk, n int, r *roster) []int {
	if n = min(n, len(r.order)); n <= 0 {
		return nil
	}
	return appendOwners(make([]int, 0, n), w, n, r)
}

// appendOwners appends the first n distinct owners of a walk to dst.
func appendOwners(dst []int, w Walk, n int, r *roster) []int {
	from := len(dst)
	n = min(n, len(r.order))
	if n <= 0 {
		return dst
	}
	// A few are compared with each other; for many, a bitmap says who was
	// seen.
	var seen []uint64
	if n > 16 {
		seen = make([]uint64, (len(r.ids)+63)/64)
	}
	for len(dst)-from < n {
		m, ok := w.Next()
		if !ok {
			break
		}
		if seen != nil {
			if word, bit := m/64, uint64(1)<<(m%64); seen[word]&bit == 0 {
				seen[word] |= bit
				dst = append(dst, m)
			}
		} else if !slices.Contains(dst[from:], m) {
			dst = append(dst, m)
		}
	}
	return dst
}

// roster is the list of members that every table keeps, and the identity by
// which ties fall: the order of ids, not the caller's.
type roster struct {
	ids     []string
	weights []int   // after the cap
	order   []int32 // members with a positive weight, in the order of ids
}

// newRoster copies and checks members. maxWeight 0 is no cap.
func newRoster(members []Member, maxWeight int) (roster, error) {
	r := roster{
		ids:     make([]string, len(members)),
		weights: make([]int, len(members)),
		order:   make([]int32, 0, len(members)),
	}
	seen := make(map[string]struct{}, len(members))
	for i, m := range members {
		_, dup := seen[m.ID]
		switch {
		case m.ID == "":
			return roster{}, &MemberError{Index: i, Member: m, Reason: "empty id"}
		case dup:
			return roster{}, &MemberError{Index: i, Member: m, Reason: "duplicate id"}
		case m.Weight < 0:
			return roster{}, &MemberError{Index: i, Member: m, Reason: "negative weight"}
		}
		seen[m.ID] = struct{}{}
		r.ids[i], r.weights[i] = m.ID, m.Weight
		if maxWeight > 0 {
			r.weights[i] = min(m.Weight, maxWeight)
		}
		if m.Weight > 0 {
			r.order = append(r.order, int32(i))
		}
	}
	slices.SortFunc(r.order, func(a, b int32) int { return cmp.Compare(r.ids[a], r.ids[b]) })
	return r, nil
}

// Len returns the number of members in the list the table was built from,
// those of weight 0 included. It is safe for concurrent use.
func (r *roster) Len() int { return len(r.ids) }

// ID returns the id of a member. It panics if member is not an index of the
// list the table was built from. It is safe for concurrent use.
func (r *roster) ID(member int) string { return r.ids[member] }

// Weight returns the weight of a member after the cap on weights. It panics if
// member is not an index of the list the table was built from. It is safe for
// concurrent use.
func (r *roster) Weight(member int) int { return r.weights[member] }

// weightsInOrder returns the positive weights in r.order, divided by a power of
// two where their sum would not fit 62 bits; none becomes zero.
func (r *roster) weightsInOrder() []uint64 {
	ws := make([]uint64, len(r.order))
	var top uint64
	for k, m := range r.order {
		ws[k] = uint64(r.weights[m])
		top = max(top, ws[k])
	}
	if excess := bits.Len64(top) + bits.Len(uint(len(ws))) - 62; excess > 0 {
		for k := range ws {
			ws[k] = max(1, ws[k]>>excess)
		}
	}
	return ws
}
