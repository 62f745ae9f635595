package balancer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// stateVersion is the first byte of a saved Pool.
const stateVersion = 1

// Save encodes the Pool's state: everything that decides what happens next,
// calls in flight included. Restored with RestorePool under the same Config and
// seed, the Pool goes on as this one would. Times are relative to the save, so
// the state may move to another process and another day. Save is an input: time
// moves to now first.
//
// The encoding is a version byte (1) and then varints of encoding/binary, unless
// said otherwise: seed (8 bytes, little endian); requests numbered; events
// numbered; the fields of Totals but Inflight in order; the upstreams in order,
// each as id, health bit, note, whether the detector was told that it can serve,
// two words of scratch, age, served, failures, trips, latency state, failure share
// state and breaker state; outlier state; retry budget state; the tiers as priority, mark and two
// shared words; the leases, in the order of their bytes, as upstream (or their
// number for one that has left), request, attempt, fallback bit, whether it is
// its request's only one, age, age of the answer + 1 (0 for none) and breaker
// ticket. Strings have their length in front, and there is a number in front of
// what there are several of. Events that are queued for OnEvent are not part of
// it. Pools that go on alike save the same bytes. O(n log n).
func (p *Pool[U]) Save() []byte {
	now := p.e.read()
	p.e.mu.Lock()
	defer p.e.unlock()
	now = p.e.advance(now)
	p.e.open(RecordPoll, 0)
	if p.e.stale {
		p.e.refit() // it may move what the hosts are owed
	}
	return p.e.save(now)
}

// RestorePool returns a Pool over the given upstreams that goes on where the
// saved one was. The upstreams must have the ids of the saved ones, in the same
// order; their values, weights, priorities and limits are the new ones'. A tier
// whose priority is not among the saved ones starts fresh. Seed 0
// in cfg means the saved seed; any other must equal it. The calls in flight at
// the save are returned by Leases. Errors match ErrConfig or ErrState.
func RestorePool[U Upstream](cfg Config, saved []byte, ups ...U) (*Pool[U], error) {
	if len(saved) < 9 || saved[0] != stateVersion {
		return nil, fmt.Errorf("%w: no state of version %d", ErrState, stateVersion)
	}
	seed := binary.LittleEndian.Uint64(saved[1:])
	if cfg.Seed != 0 && cfg.Seed != seed {
		return nil, &ConfigError{Field: "Config.Seed", Value: fmt.Sprint(cfg.Seed), Want: fmt.Sprintf("0 or the saved %d", seed)}
	}
	if cfg.Seed = seed; seed == 0 {
		return nil, fmt.Errorf("%w: seed 0", ErrState)
	}
	hook := cfg.OnEvent
	cfg.OnEvent = nil // the members do not join anew
	p, err := NewPool(cfg, ups...)
	if err != nil {
		return nil, err
	}
	if err := p.e.restore(saved[9:]); err != nil {
		return nil, err
	}
	p.e.hook, p.e.cfg.OnEvent = hook, hook
	return p, nil
}

// fields lists what is saved of the totals, in order.
func (t *Totals) fields() []*uint64 {
	return []*uint64{&t.Requests, &t.Attempts, &t.Successes, &t.Failures, &t.Ignored, &t.Refused, &t.Retries, &t.Failovers,
		&t.Granted, &t.Denied, &t.Ejections, &t.Trips, &t.BadPicks, &t.HookPanics}
}

func (e *engine) outlierHosts() []*outlier.Host {
	out := make([]*outlier.Host, len(e.hosts))
	for i, h := range e.hosts {
		out[i] = &h.outlier
	}
	return out
}

func (e *engine) save(now int64) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{stateVersion}, e.seed)
	u := func(v uint64) { b = binary.AppendUvarint(b, v) }
	str := func(s string) { u(uint64(len(s))); b = append(b, s...) }
	bit := func(v bool) { u(uint64(b2i(v))) }
	u(e.requests)
	u(e.seq)
	for _, f := range e.totals.fields() {
		u(*f)
	}
	u(uint64(len(e.hosts)))
	for _, h := range e.hosts {
		str(h.id)
		bit(h.healthy)
		str(h.noted())
		bit(h.countable)
		u(h.scratch[0])
		u(h.scratch[1])
		u(uint64(saturatingSub(now, h.joined)))
		u(h.served)
		u(h.failures)
		u(h.trips)
		b = h.latency.AppendState(b, now)
		b = h.failing.AppendState(b, now)
		b = h.breaker.AppendState(b, now)
	}
	b = e.outliers.AppendState(b, now, e.outlierHosts())
	b = e.budget.AppendState(b, now)
	u(uint64(len(e.tiers)))
	for _, t := range e.tiers {
		b = binary.AppendVarint(b, int64(t.priority))
		u(uint64(t.view.mark))
		u(t.view.shared[0])
		u(t.view.shared[1])
	}
	return e.saveLeases(b, now)
}

// saveLeases appends the leases. Slots and generations stay behind: which slot a
// lease has is an accident, and must not make equal Pools differ.
func (e *engine) saveLeases(b []byte, now int64) []byte {
	b = binary.AppendUvarint(b, e.totals.Inflight)
	all := make([][]byte, 0, e.totals.Inflight)
	for i := range e.slots {
		s := &e.slots[i]
		if s.host == nil {
			continue
		}
		one := make([]byte, 0, 64)
		u := func(v uint64) { one = binary.AppendUvarint(one, v) }
		if s.host.index < 0 {
			u(uint64(len(e.hosts)))
		} else {
			u(uint64(s.host.pos))
		}
		u(s.request)
		u(uint64(s.attempt))
		u(uint64(b2i(s.fallback)))
		u(uint64(b2i(s.sole)))
		u(uint64(saturatingSub(now, s.start)))
		if s.answered == unanswered {
			u(0)
		} else {
			u(uint64(min(saturatingSub(now, s.answered), math.MaxInt64-1)) + 1)
		}
		all = append(all, s.ticket.AppendState(one, now))
	}
	slices.SortFunc(all, bytes.Compare)
	for _, one := range all {
		b = append(b, one...)
	}
	return b
}

// decoder reads a saved state. The first mistake sticks.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s, with %d bytes left", ErrState, what, len(d.b))
	}
	d.b = nil
}

// u reads a number of at most limit.
func (d *decoder) u(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit {
		d.fail(what)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) i(what string) int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(what)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) str(what string) string {
	n := d.u(what, uint64(len(d.b)))
	if n > uint64(len(d.b)) {
		d.fail(what)
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// age reads how long before the save something was, as a time on a timeline
// that has the save at 0.
func (d *decoder) age(what string) int64 { return -int64(d.u(what, math.MaxInt64)) }

// part hands the rest to the RestoreState of a part.
func (d *decoder) part(what string, restore func([]byte, int64) ([]byte, error)) {
	if d.err != nil {
		return
	}
	rest, err := restore(d.b, 0)
	if err != nil {
		d.err = fmt.Errorf("%w: %s: %w", ErrState, what, err)
		d.b = nil
		return
	}
	d.b = rest
}

// restore fills a fresh engine, whose time is 0, with a saved state. On an
// error the engine is of no use.
func (e *engine) restore(saved []byte) error {
	d := &decoder{b: saved}
	const any = math.MaxUint64
	e.requests = d.u("requests", any)
	e.seq = d.u("events", any)
	e.totals = Totals{}
	for _, f := range e.totals.fields() {
		*f = d.u("totals", any)
	}
	if n := d.u("number of upstreams", any); d.err == nil && n != uint64(len(e.hosts)) {
		return fmt.Errorf("%w: it has %d upstreams, and %d were given", ErrState, n, len(e.hosts))
	}
	for _, h := range e.hosts {
		if id := d.str("upstream id"); d.err == nil && id != h.id {
			return fmt.Errorf("%w: upstream %q where %q was given", ErrState, id, h.id)
		}
		h.healthy = d.u("health", 1) == 1
		if note := d.str("note"); note != "" {
			h.note = &note
		}
		h.countable = d.u("can serve", 1) == 1
		h.scratch[0], h.scratch[1] = d.u("scratch", any), d.u("scratch", any)
		h.joined = d.age("age")
		h.served, h.failures, h.trips = d.u("served", any), d.u("failures", any), d.u("trips", any)
		d.part("latency", h.latency.RestoreState)
		d.part("failing", h.failing.RestoreState)
		h.noteFailing()
		d.part("breaker", h.breaker.RestoreState)
	}
	d.part("outlier", func(b []byte, now int64) ([]byte, error) {
		return e.outliers.RestoreState(b, now, e.outlierHosts())
	})
	d.part("budget", e.budget.RestoreState)
	e.restoreTiers(d)
	e.restoreLeases(d)
	if d.err == nil && len(d.b) > 0 {
		d.fail("something after the end")
	}
	serving := 0
	for _, h := range e.hosts {
		serving += b2i(h.countable)
	}
	if e.outliers.Len() != len(e.hosts) || e.outliers.UsableCount() != serving {
		d.fail("upstreams that the detector does not know")
	}
	if d.err != nil {
		return d.err
	}
	// The pickers were built over fresh state.
	for _, t := range e.tiers {
		t.stale = true
	}
	e.refit()
	for _, h := range e.hosts {
		e.judge(h, 0)
	}
	e.reschedule()
	return nil
}

func (e *engine) restoreTiers(d *decoder) {
	n := d.u("number of tiers", math.MaxInt32)
	for range n {
		p, mark := d.i("priority"), d.u("mark", math.MaxInt32)
		shared := [2]uint64{d.u("shared", math.MaxUint64), d.u("shared", math.MaxUint64)}
		if d.err != nil {
			return
		}
		for _, t := range e.tiers {
			if int64(t.priority) == p {
				// A rotation that has passed the last host stands at the end.
				t.view.mark = int32(min(mark, uint64(t.view.Len())))
				t.view.shared = shared
			}
		}
	}
}

func (e *engine) restoreLeases(d *decoder) {
	const any = math.MaxUint64
	e.slots, e.free = nil, nobody
	gone := &host{id: "gone", index: -1, heapAt: -1, due: never, oldest: nobody, newest: nobody, oldestSince: never}
	gone.breaker = e.protoBreaker.Fresh(0)
	gone.forgetLatency(e)
	var waiting []int32
	for n := d.u("number of leases", uint64(len(d.b))); n > 0 && d.err == nil; n-- {
		s := slot{host: gone, gen: 1, answered: unanswered, next: nobody, prev: nobody}
		if pos := d.u("lease upstream", uint64(len(e.hosts))); pos < uint64(len(e.hosts)) {
			s.host = e.hosts[pos]
		}
		s.request = d.u("lease request", any)
		s.attempt = int32(d.u("attempt", math.MaxInt32))
		s.fallback, s.sole = d.u("fallback", 1) == 1, d.u("sole", 1) == 1
		s.start = d.age("lease age")
		if age := d.u("answer age", math.MaxInt64); age > 0 {
			s.answered = 1 - int64(age)
		} else {
			waiting = append(waiting, int32(len(e.slots)))
		}
		d.part("ticket", s.ticket.RestoreState)
		e.slots = append(e.slots, s)
		s.host.inflight++
		e.totals.Inflight++
	}
	slices.SortStableFunc(waiting, func(a, b int32) int {
		return cmp.Compare(e.slots[a].start, e.slots[b].start)
	})
	for _, i := range waiting {
		e.enqueue(i)
	}
}
