package incident

// maxBegun is how many requests a roster holds before it forgets any.
const maxBegun = 1 << 16

// roster is the set of the requests that have begun and have not ended: those
// under way, and those that were left in their middle, of which no end is ever
// heard. So that the latter do not fill the memory of a long recording, it has
// two halves: when the younger one is full, the older is forgotten. What comes
// after all of a request that was forgotten says again how far it has come.
type roster struct {
	young, old map[uint64]struct{}
	forgotten  func(request uint64) // called for each, if not nil
}

func newRoster() roster {
	return roster{young: map[uint64]struct{}{}, old: map[uint64]struct{}{}}
}

func (s *roster) has(request uint64) bool {
	if _, ok := s.young[request]; ok {
		return true
	}
	_, ok := s.old[request]
	return ok
}

func (s *roster) add(request uint64) {
	// A number that was left may be given again: it is the latest one's now.
	delete(s.old, request)
	if len(s.young) == maxBegun {
		if s.forgotten != nil {
			for r := range s.old {
				s.forgotten(r)
			}
		}
		clear(s.old)
		s.young, s.old = s.old, s.young
	}
	s.young[request] = struct{}{}
}

func (s *roster) drop(request uint64) {
	delete(s.young, request)
	delete(s.old, request)
}
