package hashring

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// Limits of RingConfig.
const (
	defaultVirtualNodes = 160
	maxVirtualNodes     = 1 << 16
	defaultMaxPoints    = 1 << 21
	limitMaxPoints      = 1 << 26
)

// A RingConfig sets up a [Ring]. The zero value is a ring of 160 points per
// unit of weight without a seed.
//
// A RingConfig is plain data and safe for concurrent use while nobody writes
// to it.
type RingConfig struct {
	// VirtualNodes is the number of points on the ring per unit of weight.
	// More points even out the shares and cost memory: the standard deviation
	// of a share is about 1/sqrt(points) of it.
	// If zero, 160. Negative values and values above 65536 are rejected.
	VirtualNodes int

	// MaxWeight caps the weight of every member, so that a weight of 1000
	// counts as MaxWeight.
	// If zero, there is no cap. Negative values are rejected.
	MaxWeight int

	// MaxPoints caps the number of points of the whole ring. Where the members
	// ask for more, every member's number is halved, as often as needed and
	// never below one, so the shares stay what the weights say, a little
	// coarser. Halving is by design rare: the number of points doubles between
	// one halving and the next, and at any other change of the members only
	// the keys of the changed ones move. A ring of more members than MaxPoints
	// has one point each.
	// If zero, 2097152 (38 MB). Negative values and values above
	// 67108864 are rejected.
	MaxPoints int

	// Seed salts the positions of members and keys. Rings with different seeds
	// place independently of each other, and a client who does not know the
	// seed cannot tell which keys are neighbours. Use it together with
	// [SeededKey] where clients choose keys.
	// If zero, nothing is salted: the positions are the published ones.
	Seed uint64
}

// Validate returns an error that wraps [ErrConfig] and names the first field
// out of range, or nil. It is safe for concurrent use.
func (c RingConfig) Validate() error {
	if c.VirtualNodes < 0 || c.VirtualNodes > maxVirtualNodes {
		return &ConfigError{"RingConfig.VirtualNodes", c.VirtualNodes, "0..65536"}
	}
	if err := notNegative("RingConfig.MaxWeight", c.MaxWeight); err != nil {
		return err
	}
	if c.MaxPoints < 0 || c.MaxPoints > limitMaxPoints {
		return &ConfigError{"RingConfig.MaxPoints", c.MaxPoints, "0..67108864"}
	}
	return nil
}

func (c RingConfig) virtualNodes() int { return cmp.Or(c.VirtualNodes, defaultVirtualNodes) }
func (c RingConfig) maxPoints() int    { return cmp.Or(c.MaxPoints, defaultMaxPoints) }

// A Ring is a consistent-hash ring with virtual nodes (Karger et al. 1997).
// Member id has points mix(FNV1a(id) + mix(i)) for i = 0, 1, ..., where mix is
// the SplitMix64 finaliser; a key belongs to the first point at or after it,
// going round. Two points in one place are both kept, in the order of the ids.
// With a Seed, the hashes of ids and the keys are first mixed with it.
//
// A change of one member's points leaves all others where they are, so a member
// that joins takes over only the keys it now owns, and one that leaves gives
// away only its own. The one exception is documented at RingConfig.MaxPoints.
//
// The zero value is a ring without members. A Ring is immutable and safe for
// concurrent use.
type Ring struct {
	roster
	salt salt

	// points has one word for each point, in the order of hash, then id: the
	// high bits of its hash and, in the ownerBits low ones, its member. Copies
	// of the first point follow at the end of the hash space, so that what
	// comes after the last point is found without a test for the end.
	points []uint64

	// hashes has the whole hash of each point. Only a key that agrees with a
	// point in all its high bits comes here, one lookup in thousands at most:
	// half the memory stays out of the cache.
	hashes []uint64

	// index[b] is the first point whose high bits are at least b, for each
	// value of the 64-shift high bits and one beyond. With one or two points
	// per bucket, a lookup is a load here and another there.
	index []uint32
	shift uint
}

const (
	ownerBits = 32
	ownerMask = 1<<ownerBits - 1
	guards    = 3 // copies of the first point
)

// point is a position on the ring under construction. Points are packed only
// once they are sorted, because the order is that of whole hashes.
type point struct {
	hash  uint64
	owner int32
}

func (p point) packed() uint64 { return p.hash&^ownerMask | uint64(p.owner) }

// NewRing builds a ring, on average in time linear in its points. It returns an
// error that wraps [ErrConfig] or [ErrMembers] if cfg or members is invalid; no
// members at all are valid. It keeps neither cfg nor members.
func NewRing(cfg RingConfig, members []Member) (*Ring, error) {
	return newRing(cfg, members, pointHash)
}

// pointHash is the place of a member's i-th point.
func pointHash(base, i uint64) uint64 { return mix(base + mix(i)) }

// newRing is NewRing with the hash of points as a parameter, for tests with
// hashes that collide.
func newRing(cfg RingConfig, members []Member, hash func(base, i uint64) uint64) (*Ring, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ros, err := newRoster(members, cfg.MaxWeight)
	if err != nil {
		return nil, err
	}
	r := &Ring{roster: ros, salt: newSalt(cfg.Seed)}
	counts, total := r.counts(cfg.virtualNodes(), cfg.maxPoints())
	// Points are generated in the order of ids and sorted stably by hash: that
	// is what makes ties fall by identity, whatever the caller's order.
	pts := make([]point, 0, total)
	for k, m := range r.order {
		base := r.salt.base(r.ids[m])
		for i := range counts[k] {
			pts = append(pts, point{hash(base, uint64(i)), m})
		}
	}
	r.fill(pts)
	return r, nil
}

// counts returns the number of points of each member in r.order, and their sum.
func (r *Ring) counts(virtualNodes, limit int) (counts []int, total int) {
	counts = make([]int, len(r.order))
	for halvings := uint(0); ; halvings++ {
		total = 0
		minimal := true
		for k, m := range r.order {
			hi, lo := bits.Mul64(uint64(r.weights[m]), uint64(virtualNodes))
			n := shiftRight(hi, lo, halvings)
			n = max(1, min(n, uint64(limit)+1))
			counts[k] = int(n)
			// Both are at most 2^26+1, and the sum is dropped once it is over
			// the limit, so it cannot overflow.
			total = min(total, limit+1) + counts[k]
			minimal = minimal && n == 1
		}
		if total <= limit || minimal {
			return counts, sum(counts)
		}
	}
}

func sum(counts []int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// shiftRight returns (hi, lo) >> n, saturated to 64 bits.
func shiftRight(hi, lo uint64, n uint) uint64 {
	if n >= 64 {
		return hi >> (n - 64)
	}
	if hi>>n != 0 {
		return 1<<64 - 1
	}
	return lo>>n | hi<<(64-n)
}

// fill sorts pts and lays them out for lookups.
func (r *Ring) fill(pts []point) {
	if len(pts) == 0 {
		return
	}
	// At least two buckets, so that shift stays below 64.
	width := max(1, bits.Len(uint(len(pts)-1))-1)
	r.shift = uint(64 - width)
	r.index = make([]uint32, 1<<width+1)

	// Counting sort by bucket, then insertion sort within each: hashes are
	// uniform, so a bucket holds one point on average and this is linear.
	for _, p := range pts {
		r.index[p.hash>>r.shift+1]++
	}
	for b := 1; b < len(r.index); b++ {
		r.index[b] += r.index[b-1]
	}
	// Filling in moves the start of every bucket up to its end.
	sorted := make([]point, len(pts))
	for _, p := range pts {
		b := p.hash >> r.shift
		sorted[r.index[b]] = p
		r.index[b]++
	}
	// So index[b] is now the start of bucket b+1.
	copy(r.index[1:], r.index)
	r.index[0] = 0
	for b := range len(r.index) - 1 {
		sortPoints(sorted[r.index[b]:r.index[b+1]])
	}
	r.hashes = make([]uint64, len(sorted))
	r.points = make([]uint64, len(sorted), len(sorted)+guards)
	for i, p := range sorted {
		r.hashes[i], r.points[i] = p.hash, p.packed()
	}
	end := point{1<<64 - 1, sorted[0].owner}
	for range guards {
		r.points = append(r.points, end.packed())
	}
}

// sortPoints sorts by hash and keeps equal ones in order.
func sortPoints(pts []point) {
	if len(pts) > 24 {
		// Only ids chosen for the purpose crowd a bucket like this.
		slices.SortStableFunc(pts, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
		return
	}
	for i := 1; i < len(pts); i++ {
		for j := i; j > 0 && pts[j-1].hash > pts[j].hash; j-- {
			pts[j-1], pts[j] = pts[j], pts[j-1]
		}
	}
}

// Points returns the number of points on the ring. It is safe for concurrent
// use.
func (r *Ring) Points() int { return len(r.hashes) }

// Lookup returns the member that owns key, or -1 if no member has a positive
// weight. The key must be well mixed, as those of [Key] and [KeyUint64] are.
//
// It takes O(1) time on average, does not allocate, and is safe for concurrent
// use.
func (r *Ring) Lookup(key uint64) int {
	if len(r.hashes) == 0 {
		return -1
	}
	return r.owner(r.search(key))
}

// owner returns the member at a point or guard.
func (r *Ring) owner(i int) int { return int(r.points[i] & ownerMask) }

// search returns the first point at or after key, possibly a guard. The ring
// has points.
func (r *Ring) search(key uint64) int {
	key = r.salt.position(key)
	high := key &^ ownerMask
	i := int(r.index[key>>(r.shift&63)])
	// The points before i are below key. Whether a point is below can be told
	// from the packed words: an owner in the low bits does not reach high.
	// How many of the next two are below is a coin toss that no processor
	// predicts, so they are counted by the borrow of a subtraction; rarely
	// the third is below as well.
	p := r.points[i : i+3]
	_, below0 := bits.Sub64(p[0], high, 0)
	_, below1 := bits.Sub64(p[1], high, 0)
	past := p[2] < high
	i += int(below0 + below1)
	if past {
		i = r.searchOn(key, i+1)
	}
	if r.points[i]^high <= ownerMask {
		// Equal as far as packed: the whole hashes decide, in this bucket.
		i += firstAtLeast(r.hashes[i:r.index[key>>r.shift+1]], key)
	}
	return i
}

// searchOn continues a search behind the first points of a bucket.
func (r *Ring) searchOn(key uint64, i int) int {
	high := key &^ ownerMask
	for end := i + 8; i < end; i++ {
		if r.points[i] >= high {
			return i
		}
	}
	// Only ids chosen for the purpose crowd a bucket like this.
	return i + firstAtLeast(r.points[i:r.index[key>>r.shift+1]], high)
}

// firstAtLeast returns the index of the first of the sorted words that is not
// below x, or len(words).
func firstAtLeast(words []uint64, x uint64) int {
	return sort.Search(len(words), func(i int) bool { return words[i] >= x })
}

// Walk returns the owners of key in ring order, one per point, for one lap.
// Skipping the points of some members gives the same owner as a ring built
// without them.
//
// It takes O(1) time on average, does not allocate, and is safe for concurrent
// use.
func (r *Ring) Walk(key uint64) Walk {
	if len(r.hashes) == 0 {
		return Walk{}
	}
	return Walk{ring: r, pos: r.search(key), left: len(r.hashes)}
}

// Owners returns the first n distinct owners of key in the order of
// [Ring.Walk], fewer if fewer members have a positive weight.
//
// It takes O(n log n) steps of the walk on average while n is well below the
// number of members, and allocates the result. It is safe for concurrent use.
func (r *Ring) Owners(key uint64, n int) []int { return owners(r.Walk(key), n, &r.roster) }

// AppendOwners appends the result of [Ring.Owners] to dst and returns it. It
// does not allocate if dst has room and n is at most 16. It is safe for
// concurrent use.
func (r *Ring) AppendOwners(dst []int, key uint64, n int) []int {
	return appendOwners(dst, r.Walk(key), n, &r.roster)
}
