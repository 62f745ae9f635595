package balancer

import (
	"slices"
	"time"
)

// entry is a Record as a tape keeps it: one cache line for what nearly every
// record is, an attempt that is picked or ends, and a place among the segment's
// wide records for the rest. Writing memory that is not in the cache is most of
// what recording costs.
type entry struct {
	at       int64
	request  uint64
	key      uint64
	deadline int64
	latency  int64
	picked   int32
	latest   int32
	tried    int32 // the only upstream tried
	wide     int32 // place of the whole Record, -1 if it is all here
	kind     RecordKind
	flags    entryFlags
	outcome  Outcome
	verdict  Verdict
	phase    uint8
	step     StepKind
	attempt  uint8
	retries  uint8
}

type entryFlags uint8

const (
	entryOwn entryFlags = 1 << iota
	entryFallback
	entryKey
	entryTried
	entrySettled
	entryOver
)

// narrow tells whether an entry holds all of a record.
func (r *Record) narrow() bool {
	switch r.Kind {
	case RecordEvent, RecordUpdate, RecordHealth:
		return false
	}
	return r.NTried <= 1 && uint32(r.Attempt) < 256 && uint32(r.Retries) < 256 &&
		r.Same == 0 && r.Until == 0 && r.Wait == 0 && r.End == 0
}

// append puts a record at the end of the segment.
func (s *segment) append(r *Record) {
	n := len(s.entries)
	if n < cap(s.entries) {
		s.entries = s.entries[:n+1]
	} else {
		s.entries = append(s.entries, entry{})
	}
	x := &s.entries[n]
	if !r.narrow() {
		x.wide = int32(len(s.wide))
		s.wide = append(s.wide, *r)
		return
	}
	x.at, x.request, x.key, x.deadline, x.latency = r.At, r.Request, r.Key.hash, r.Deadline, int64(r.Latency)
	x.picked, x.latest, x.tried, x.wide = r.Picked, r.Latest, r.Tried[0], -1
	x.kind, x.outcome, x.verdict, x.phase, x.step = r.Kind, r.Outcome, r.Verdict, r.Phase, r.Step
	x.attempt, x.retries = uint8(r.Attempt), uint8(r.Retries)
	x.flags = entryFlags(b2i(r.Own)) | entryFlags(b2i(r.Fallback))<<1 | entryFlags(b2i(r.Key.set))<<2 | entryFlags(r.NTried)<<3 |
		entryFlags(b2i(r.Settled))<<4 | entryFlags(b2i(r.Over))<<5
}

// record is the Record of an entry.
func (s *segment) record(x *entry) Record {
	if x.wide >= 0 {
		return s.wide[x.wide]
	}
	r := Record{
		Kind: x.kind, At: x.at, Request: x.request, Own: x.flags&entryOwn != 0, Attempt: int32(x.attempt),
		Key: Key{hash: x.key, set: x.flags&entryKey != 0}, Deadline: x.deadline,
		Outcome: x.outcome, Latency: time.Duration(x.latency), Verdict: x.verdict,
		Retries: int32(x.retries), Phase: x.phase, Settled: x.flags&entrySettled != 0, Latest: x.latest,
		Picked: x.picked, Fallback: x.flags&entryFallback != 0, Step: x.step,
		Over: x.flags&entryOver != 0,
	}
	if x.flags&entryTried != 0 {
		r.Tried[0], r.NTried = x.tried, 1
	}
	return r
}

// records appends the segment's to b.
func (s *segment) records(b []Record) []Record {
	b = slices.Grow(b, len(s.entries))
	for i := range s.entries {
		b = append(b, s.record(&s.entries[i]))
	}
	return b
}
