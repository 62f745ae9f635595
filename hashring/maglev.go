package hashring

import (
	"cmp"
	"math/bits"
	"strconv"
)

// Limits of MaglevConfig.
const (
	defaultTableSize = 65537
	maxTableSize     = 5000011
)

// A MaglevConfig sets up a [Maglev] table. The zero value is a table of 65537
// slots without a seed.
//
// A MaglevConfig is plain data and safe for concurrent use while nobody writes
// to it.
type MaglevConfig struct {
	// TableSize is the number of slots. It must be a prime, at most 5000011,
	// and not less than the number of members with a positive weight. A member
	// holds its exact share of the slots, rounded to a neighbouring whole
	// number, so 100 slots for each member keep the shares within 1 %.
	// If zero, 65537.
	TableSize int

	// MaxWeight caps the weight of every member.
	// If zero, there is no cap. Negative values are rejected.
	MaxWeight int

	// Seed salts the positions of members and keys; see RingConfig.Seed.
	// If zero, nothing is salted.
	Seed uint64
}

// Validate returns an error that wraps [ErrConfig] and names the first field
// out of range, or nil. It takes O(sqrt(TableSize)) time and is safe for
// concurrent use.
func (c MaglevConfig) Validate() error {
	if n := c.tableSize(); n > maxTableSize || !isPrime(n) {
		return &ConfigError{"MaglevConfig.TableSize", c.TableSize, "0 or a prime up to 5000011"}
	}
	return notNegative("MaglevConfig.MaxWeight", c.MaxWeight)
}

func (c MaglevConfig) tableSize() int { return cmp.Or(c.TableSize, defaultTableSize) }

func isPrime(n int) bool {
	if n < 2 {
		return false
	}
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// A Maglev is a lookup table filled by Maglev hashing (Eisenbud et al., NSDI
// 2016, section 3.4). Each member has a permutation of the slots, from an
// offset and a skip that are hashes of its id; the members take turns, each
// taking the first free slot of its permutation, until none is free. A member
// takes as many turns as its share of the slots says, rounded to a neighbouring
// whole number and at least one, evenly spread over the rounds.
//
// Lookups are the fastest and the shares the most even of the tables here, at
// the price of a few keys that move between members which stay when another
// joins or leaves.
//
// The zero value is a table without members. A Maglev is immutable and safe for
// concurrent use.
type Maglev struct {
	roster
	salt  salt
	slots []int32 // member of each slot; nil if no member has a weight
}

// NewMaglev builds a table, on average in O(m log m) time for m slots. It returns
// an error that wraps [ErrConfig] or [ErrMembers] if cfg or members is invalid;
// no members at all are valid. It keeps neither cfg nor members.
func NewMaglev(cfg MaglevConfig, members []Member) (*Maglev, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ros, err := newRoster(members, cfg.MaxWeight)
	if err != nil {
		return nil, err
	}
	m := &Maglev{roster: ros, salt: newSalt(cfg.Seed)}
	size := cfg.tableSize()
	if len(m.order) > size {
		return nil, &ConfigError{"MaglevConfig.TableSize", cfg.TableSize,
			"a prime of at least the number of members, " + strconv.Itoa(len(m.order))}
	}
	if len(m.order) > 0 {
		m.fill(uint64(size))
	}
	return m, nil
}

// fill hands out the slots.
func (m *Maglev) fill(size uint64) {
	m.slots = make([]int32, size)
	for i := range m.slots {
		m.slots[i] = -1
	}
	type pref struct{ next, skip uint64 }
	prefs := make([]pref, len(m.order))
	for k, member := range m.order {
		base := m.salt.base(m.ids[member])
		prefs[k] = pref{
			next: draw(base, streamOffset, 0) % size,
			// 1..size-1 is prime to size, so the steps visit every slot.
			skip: draw(base, streamSkip, 0)%max(1, size-1) + 1,
		}
	}
	for _, k := range turnOrder(quotas(m.weightsInOrder(), size), size) {
		p := &prefs[k]
		for m.slots[p.next] >= 0 {
			p.next = (p.next + p.skip) % size
		}
		m.slots[p.next] = m.order[k]
	}
}

// Slots returns the number of slots of the table, 0 if no member has a positive
// weight. It is safe for concurrent use.
func (m *Maglev) Slots() int { return len(m.slots) }

// Lookup returns the member that owns key, or -1 if no member has a positive
// weight. The key must be well mixed, as those of [Key] and [KeyUint64] are.
//
// It takes O(1) time, does not allocate, and is safe for concurrent use.
func (m *Maglev) Lookup(key uint64) int {
	if len(m.slots) == 0 {
		return -1
	}
	return int(m.slots[m.slot(key)])
}

// slot scales the position of key to the table.
func (m *Maglev) slot(key uint64) int {
	hi, _ := bits.Mul64(m.salt.position(key), uint64(len(m.slots)))
	return int(hi)
}

// Walk returns the owners of key from its slot onwards, one per slot, for one
// lap. Skipping the slots of some members moves only their keys, each to the
// next slot's owner; it is not what a table built without them would give.
//
// It takes O(1) time, does not allocate, and is safe for concurrent use.
func (m *Maglev) Walk(key uint64) Walk {
	if len(m.slots) == 0 {
		return Walk{}
	}
	return Walk{maglev: m, pos: m.slot(key), left: len(m.slots)}
}

// Owners returns the first n distinct owners of key in the order of
// [Maglev.Walk], fewer if fewer members have a positive weight. It allocates
// the result and is safe for concurrent use.
func (m *Maglev) Owners(key uint64, n int) []int { return owners(m.Walk(key), n, &m.roster) }

// AppendOwners appends the result of [Maglev.Owners] to dst and returns it. It
// does not allocate if dst has room and n is at most 16. It is safe for
// concurrent use.
func (m *Maglev) AppendOwners(dst []int, key uint64, n int) []int {
	return appendOwners(dst, m.Walk(key), n, &m.roster)
}
