package hashring

// gamma is 2^64 divided by the golden ratio, the increment of SplitMix64.
const gamma = 0x9e3779b97f4a7c15

// mix is the SplitMix64 finaliser (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// draw hashes (seed, stream, n) to 64 uniform bits.
func draw(seed, stream, n uint64) uint64 {
	return mix(mix(mix(seed+0x9e3779b97f4a7c15)^stream*0xd1342543de82ef95) + n*0x9e3779b97f4a7c15)
}

// Streams of draw. Placement is a contract, so a number once used for one
// purpose is never given to another.
const (
	streamMember = 1 // salts the ids of members
	streamKey    = 2 // salts keys
	streamSip    = 3 // second half of the SipHash key
	streamProbe  = 4 // overflow probes of Bounded
	streamOffset = 5 // first slot of a member's permutation in Maglev
	streamSkip   = 6 // its step
)

// A salt turns a Seed into what is mixed into ids and keys. Seed 0 leaves both
// as they are, so that unseeded placement is the plain published construction.
type salt struct {
	seeded      bool
	member, key uint64
}

func newSalt(seed uint64) salt {
	if seed == 0 {
		return salt{}
	}
	return salt{true, draw(seed, streamMember, 0), draw(seed, streamKey, 0)}
}

// base is the hash of a member's id from which all its positions are derived.
func (s *salt) base(id string) uint64 {
	h := FNV1a(id)
	if s.seeded {
		h = mix(h ^ s.member)
	}
	return h
}

// position is the place of a key. Keys next to each other are torn apart when
// a seed is set: an outsider who knows that two keys are close learns nothing.
func (s *salt) position(key uint64) uint64 {
	if s.seeded {
		key = mix(key ^ s.key)
	}
	return key
}
