package breaker

import "time"

// Permit is the admission of one call by a [Breaker]. It is settled once: the
// first Done or Cancel clears the variable, and later ones count nothing. It must
// not be copied, which go vet reports; a copy of a trial's permit still counts
// once only, as its slot does.
//
// The zero Permit is that of a rejected call; settling it does nothing. A Permit
// is not safe for concurrent use, but different permits of one Breaker are.
type Permit struct {
	_ noCopy
	b *Breaker
	t Ticket
}

// noCopy makes go vet report copies.
type noCopy struct{}

// Lock and Unlock are what go vet's copylocks looks for.
func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Done reports the result of the call, ok or failed, and whether it counted, see
// [Core.Done]. Not safe for concurrent use.
func (p *Permit) Done(now time.Time, ok bool) (counted bool) {
	b := p.b
	if b == nil {
		return false
	}
	p.b = nil
	b.mu.Lock()
	counted = b.core.Done(b.input(now), p.t, ok)
	b.release()
	return counted
}

// Cancel settles the call without a result: nothing is counted, and a trial gives
// its slot back. Not safe for concurrent use.
func (p *Permit) Cancel(now time.Time) {
	b := p.b
	if b == nil {
		return
	}
	p.b = nil
	b.mu.Lock()
	b.core.Cancel(b.input(now), p.t)
	b.release()
}
