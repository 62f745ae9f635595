package sim

import (
	"fmt"
	"slices"
)

// Exported for the tests: fixed-point functions, and a run step by step.

func Mix(x uint64) uint64                    { return mix(x) }
func Draw(seed, stream, n uint64) uint64     { return draw(seed, stream, n) }
func Exponential64(x uint64) uint64          { return mathTables().exponential(x) }
func Log2(x uint64) uint64                   { return mathTables().log2Of(x) }
func ScaleExp2(d uint64, x int64) int64      { return mathTables().scaleExp2(d, x) }
func Sample(d Dist, key uint64) int64        { s := newSampler(d, Dist{}); return s.sample(mix(key)) }
func BucketOf(v int64) int                   { return bucketOf(v) }
func UpperOf(b int) int64                    { return upper(b) }
func (m *Machine) Step() bool                { return m.m.step() }
func (m *Machine) Result() Result            { return m.m.result() }
func NewSampler(d Dist) func(x uint64) int64 { s := newSampler(d, Dist{}); return s.sample }

// Machine is a run that a test looks into.
type Machine struct{ m *machine }

func NewMachine(s Scenario) (*Machine, error) {
	m, err := newMachine(s)
	return &Machine{m}, err
}

// Check verifies what must hold between any two events.
func (m *Machine) Check() error {
	q := m.m
	waiting, serving, latest := make([]int, len(q.servers)), make([]int, len(q.servers)), make([]int64, len(q.servers))
	orphans, answers := 0, 0
	for i, a := range q.attempts {
		switch a.place {
		case placeQueue:
			waiting[a.server]++
		case placeWorker:
			serving[a.server]++
			latest[a.server] = max(latest[a.server], a.sent)
			answers++
		case placeRefused, placeNowhere:
			answers++
		case placeDoor:
			if !q.effects[a.server].stalled {
				return fmt.Errorf("attempt %d stands before server %d, which has not stalled", i, a.server)
			}
		}
		if a.place != placeFree && a.place != placeHole && a.request == nobody && !a.probe {
			orphans++
		}
	}
	if orphans != q.orphans {
		return fmt.Errorf("%d attempts are nobody's, %d are counted", orphans, q.orphans)
	}
	for i := range q.servers {
		s := &q.servers[i]
		switch {
		case s.waiting != waiting[i] || s.busy != serving[i]:
			return fmt.Errorf("server %d counts %d waiting and %d busy, has %d and %d", i, s.waiting, s.busy, waiting[i], serving[i])
		case s.workers >= 0 && s.busy > s.workers:
			return fmt.Errorf("server %d has %d workers and %d busy", i, s.workers, s.busy)
		case s.waiting > 0 && (s.workers < 0 || s.busy < s.workers):
			return fmt.Errorf("server %d has %d waiting beside an idle worker", i, s.waiting)
		case s.queue >= 0 && s.waiting > s.queue:
			return fmt.Errorf("server %d has %d places and %d waiting", i, s.queue, s.waiting)
		case !q.effects[i].stalled && (len(s.frozen) > 0 || s.door != emptyList):
			return fmt.Errorf("server %d has not stalled and holds %d answers", i, len(s.frozen))
		}
		// First come, first served: nobody is served or ahead who came later.
		for _, l := range []list{s.line, s.door} {
			for ai := l.head; ai != nobody; ai = q.attempts[ai].next {
				if sent := q.attempts[ai].sent; sent < latest[i] {
					return fmt.Errorf("server %d: what was sent at %d comes after what was sent at %d", i, sent, latest[i])
				}
				latest[i] = max(latest[i], q.attempts[ai].sent)
			}
		}
		answers -= len(s.frozen)
	}
	probes := 0
	for i := range q.checks {
		k := &q.checks[i]
		if k.attempt != nobody {
			probes++
			if a := &q.attempts[k.attempt]; !a.probe || a.request != uint32(i) || a.server != k.server {
				return fmt.Errorf("check %d waits for an attempt that is not its own: %+v", i, *a)
			}
		}
	}
	quiet := 0
	for _, e := range q.events.all() {
		if e.kind() == evAnswer {
			answers--
		}
		if e.kind() >= evProbe || e.kind() == evAnswer && q.attempts[e.a].probe {
			quiet++
		}
	}
	if answers != 0 {
		return fmt.Errorf("%d attempts are about to end without an event", answers)
	}
	if quiet != q.quiet {
		return fmt.Errorf("%d events of checks are in the queue, %d are counted", quiet, q.quiet)
	}
	inflight := make([]int, len(q.servers))
	open := int64(0)
	for i := range q.attempts {
		a := &q.attempts[i]
		if a.probe && a.request != nobody {
			probes--
		}
		if a.place == placeHole && a.request == nobody {
			return fmt.Errorf("attempt %d is nobody's and never ends", i)
		}
	}
	if probes != 0 {
		return fmt.Errorf("%d probes are out for nobody", -probes)
	}
	for i := range q.requests {
		if r := &q.requests[i]; r.client != nobody {
			open++
			if r.attempt != nobody {
				inflight[q.attempts[r.attempt].server]++
			}
		}
	}
	if open != q.open {
		return fmt.Errorf("%d requests are open, %d are counted", open, q.open)
	}
	pools := make([]int, len(q.servers))
	known := 0
	for i := range q.clients {
		snap := q.clients[i].pool.Snapshot()
		known += int(snap.Totals.Inflight)
		for _, u := range snap.Upstreams {
			pools[q.byID[u.ID]] += u.Inflight
			c := &q.clients[i]
			if c.Checks == nil {
				continue
			}
			// A deadline that has come may still have its event ahead.
			k := &q.checks[c.checks+slices.Index(c.sees, q.byID[u.ID])]
			if !k.on || k.core.NextChange() > q.now && u.Healthy != k.core.Healthy(q.now) {
				return fmt.Errorf("check %d is on: %v, in health: %v, the Pool says %v", c.checks, k.on, k.core.Healthy(q.now), u.Healthy)
			}
		}
	}
	// A server that has left and come back is another one to its Pool.
	rolls := slices.ContainsFunc(q.s.Script, func(c Change) bool { return c.Kind == Roll })
	total := 0
	for i, n := range inflight {
		total += n
		if pools[i] > n || !rolls && pools[i] < n {
			return fmt.Errorf("server %d has %d attempts out, the Pools say %d", i, n, pools[i])
		}
	}
	if total != known {
		return fmt.Errorf("%d attempts are out, the Pools say %d", total, known)
	}
	return nil
}
