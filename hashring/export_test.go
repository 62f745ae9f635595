package hashring

// What tests outside the package need to see inside.

var (
	Mix        = mix
	Draw       = draw
	PointHash  = pointHash
	NewRingOf  = newRing
	Quotas     = quotas
	TurnOrder  = turnOrder
	ShiftRight = shiftRight
)

// Sip is SipHash-2-4 under a 128-bit key.
func Sip(k0, k1 uint64, b []byte) uint64 { return sipHash(k0, k1, b) }

// Cost returns the logarithm that Rendezvous ranks by.
func Cost() func(h uint64) uint64 { return newLogTable().cost }

// Arcs returns the exact share of the key space that each member owns.
func (r *Ring) Arcs() []float64 {
	arcs := make([]float64, r.Len())
	for i, h := range r.hashes {
		prev := r.hashes[(i+len(r.hashes)-1)%len(r.hashes)]
		arcs[r.owner(i)] += float64(h-prev) / (1 << 64)
	}
	return arcs
}

// SlotOwners returns the member of each slot.
func (m *Maglev) SlotOwners() []int32 { return m.slots }
