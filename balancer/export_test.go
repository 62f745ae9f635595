package balancer

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/evenkeel-go/evenkeel/breaker"
)

// Check reports the first disagreement between what the Pool keeps for speed -
// bits, counts, heaps, lists - and what it follows from. Time must not have
// moved since the latest input.
func (p *Pool[U]) Check() error {
	e := &p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	var counts [outReasons]int
	selectable, onlyFull, heaped := 0, 0, 0
	if len(p.ups) != len(e.hosts) || len(e.byID) != len(e.hosts) {
		return fmt.Errorf("%d values, %d hosts, %d ids", len(p.ups), len(e.hosts), len(e.byID))
	}
	inflight := map[*host]int32{}
	waiting := map[*host][]int32{}
	out := uint64(0)
	for i := range e.slots {
		if s := &e.slots[i]; s.host != nil {
			inflight[s.host]++
			out++
			if s.answered == unanswered {
				waiting[s.host] = append(waiting[s.host], int32(i))
			}
		}
	}
	if out != e.totals.Inflight {
		return fmt.Errorf("%d leases out, counted %d", out, e.totals.Inflight)
	}
	free := uint64(0)
	for i := e.free; i != nobody; i = e.slots[i].next {
		if free++; free > uint64(len(e.slots)) || e.slots[i].host != nil {
			return fmt.Errorf("free slots: %d is not", i)
		}
	}
	if free+out != uint64(len(e.slots)) {
		return fmt.Errorf("%d slots, %d free and %d used", len(e.slots), free, out)
	}
	for i, h := range e.hosts {
		var why reasons
		if !h.healthy {
			why |= outUnhealthy
		}
		if h.outlier.Ejected() {
			why |= outEjected
		}
		switch {
		case h.breaker.Ready(e.now):
		case h.breaker.State(e.now) == breaker.HalfOpen:
			why |= outTrialing
		default:
			why |= outOpen
		}
		if h.limit > 0 && h.inflight >= h.limit {
			why |= outFull
		}
		if h.weight == 0 {
			why |= outNoTraffic
		}
		if why != h.why {
			return fmt.Errorf("%s is out for %v, and the Pool believes for %v", h.id, why.names(), h.why.names())
		}
		for bit := range outReasons {
			counts[bit] += int(why >> bit & 1)
		}
		selectable += b2i(why == 0)
		onlyFull += b2i(why == outFull)
		v := &h.tier.view
		if v.hosts[h.index] != h || h.tier.priority != int(h.priority) || int(h.pos) != i || h.outlier.Index != i || e.byID[h.id] != h {
			return fmt.Errorf("%s is not where it should be", h.id)
		}
		if v.usable.has(int(h.index)) != (why == 0) || v.spare.has(int(h.index)) != (why == outEjected) || v.set != &v.usable {
			return fmt.Errorf("%s: usable %v, spare %v, with %v", h.id, v.usable.has(int(h.index)), v.spare.has(int(h.index)), why.names())
		}
		if countable := why&(outUnhealthy|outNoTraffic|outOpen) == 0; countable != h.countable {
			return fmt.Errorf("%s: the detector believes that it can serve: %v", h.id, h.countable)
		}
		if ramp := h.outlier.Ramp(); e.ramps && v.Ramp(int(h.index)) != ramp {
			return fmt.Errorf("%s is at %d of its ramp, and its picker goes by %d", h.id, ramp, v.Ramp(int(h.index)))
		}
		if at := h.breaker.NextChange(); at != h.due || (at == never) != (h.heapAt < 0) {
			return fmt.Errorf("%s: due at %d, not %d", h.id, h.due, at)
		}
		if h.heapAt >= 0 {
			heaped++
			if e.changes[h.heapAt] != h || h.heapAt > 0 && e.changes.before(h, e.changes[(h.heapAt-1)/2]) {
				return fmt.Errorf("%s: out of order in the heap", h.id)
			}
		}
		if h.inflight != inflight[h] {
			return fmt.Errorf("%s: in flight %d, counted %d", h.id, inflight[h], h.inflight)
		}
		prev, since, n := nobody, int64(never), 0
		for i := h.oldest; i != nobody; prev, i = i, e.slots[i].next {
			s := &e.slots[i]
			if s.host != h || s.prev != prev || s.answered != unanswered || prev != nobody && s.start < e.slots[prev].start {
				return fmt.Errorf("%s: slot %d in its list", h.id, i)
			}
			if n++; n == 1 {
				since = s.start
			}
		}
		if n != len(waiting[h]) || h.newest != prev || h.oldestSince != since {
			return fmt.Errorf("%s: %d calls wait, %d in its list, since %d", h.id, len(waiting[h]), n, h.oldestSince)
		}
	}
	serving := 0
	for _, h := range e.hosts {
		serving += b2i(h.countable)
	}
	switch {
	case counts != e.counts || selectable != e.selectable || onlyFull != e.onlyFull:
		return fmt.Errorf("counts %v %d %d, kept %v %d %d", counts, selectable, onlyFull, e.counts, e.selectable, e.onlyFull)
	case heaped != len(e.changes):
		return fmt.Errorf("%d breakers are due, %d in the heap", heaped, len(e.changes))
	case e.due != min(e.changes.next(), e.outliers.NextChange()):
		return fmt.Errorf("due at %d, not %d or %d", e.due, e.changes.next(), e.outliers.NextChange())
	case e.stale:
		return fmt.Errorf("a picker is out of date")
	case len(e.masked) != 0 || e.picking != pickNone:
		return fmt.Errorf("a pick is under way")
	case e.outliers.Len() != len(e.hosts) || e.outliers.UsableCount() != serving:
		return fmt.Errorf("the detector knows %d, of which %d can serve, not %d and %d", e.outliers.Len(), e.outliers.UsableCount(), len(e.hosts), serving)
	}
	for i, t := range e.tiers {
		if i > 0 && e.tiers[i-1].priority >= t.priority || t.view.Len() == 0 {
			return fmt.Errorf("tiers out of order")
		}
		if t.stale || t.view.ramps != nil && !slices.ContainsFunc(t.view.ramps, func(r int16) bool { return r < fullRamp }) {
			return fmt.Errorf("tier %d is taken to be on a ramp", t.priority)
		}
		if uint(t.view.mark) > uint(t.view.Len()) {
			return fmt.Errorf("mark %d of %d", t.view.mark, t.view.Len())
		}
	}
	return nil
}

// EntrySize is what an ordinary record takes on a tape.
const EntrySize = unsafe.Sizeof(entry{})

// InlineTried is how many upstreams tried a Record holds in itself.
const InlineTried = inlineTried

// Segment is a stretch of tape.
type Segment struct{ s segment }

// Put puts a record on the tape and reads it back.
func (s *Segment) Put(r Record) Record {
	s.s.append(&r)
	return s.s.record(&s.s.entries[len(s.s.entries)-1])
}

// Clear empties it, and returns how many of the large records are left.
func (s *Segment) Clear() int {
	s.s.clear()
	return len(s.s.wide) + len(s.s.entries)
}

// Narrow tells whether a record takes a line only.
func (s *Segment) Narrow(r Record) bool { return r.narrow() }
