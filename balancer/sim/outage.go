package sim

import (
	"cmp"
	"slices"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// ends tells whether an event is the end of something that the server has under
// way. A refusal by nobody is not.
func (m *machine) ends(e event, si int) bool {
	if e.kind() != evAnswer {
		return false
	}
	a := &m.attempts[e.a]
	return int(a.server) == si && a.place != placeNowhere
}

// takeEnds takes from the queue what the server has under way.
func (m *machine) takeEnds(out []event, si int) []event {
	out = m.events.take(out, func(e event) bool { return m.ends(e, si) })
	for _, e := range out {
		if m.attempts[e.a].probe {
			m.quiet--
		}
	}
	return out
}

// freeze is the beginning of a stall: nothing of what the server has under way
// ends until it is over.
func (m *machine) freeze(si int) {
	s := &m.servers[si]
	s.stalledAt = m.now
	s.frozen = m.takeEnds(s.frozen[:0], si)
}

// thaw is the end of a stall. What was under way goes on from where it stood, and
// then what has come meanwhile is received, in the order in which it came. No
// worker becomes free by that, so nobody overtakes those who wait for one.
func (m *machine) thaw(si int) {
	s := &m.servers[si]
	for _, e := range s.frozen {
		m.answerAt(satAdd(e.at, m.now-s.stalledAt), e.a)
	}
	s.frozen = s.frozen[:0]
	for s.door.head != nobody {
		ai := m.dequeue(&s.door)
		a := &m.attempts[ai]
		if a.request == nobody && (s.dropLate || a.shallow || m.effects[si].hole) {
			m.discard(ai)
			continue
		}
		m.receive(ai)
	}
}

// crash ends all that a server has: what is at work and what it refuses, what
// waits, what a stall holds and what was swallowed. Those who still wait for an
// answer are added to the victims, whom fail tells.
func (m *machine) crash(si int) {
	s := &m.servers[si]
	since := m.now
	cut := m.takeEnds(m.stale[:0], si)
	if len(s.frozen) > 0 {
		cut, since = append(cut, s.frozen...), s.stalledAt
	}
	for _, e := range cut {
		s.undone.add(1, m.rest(e, since))
	}
	m.stale = cut
	s.busy, s.waiting, s.line, s.door, s.frozen = 0, 0, emptyList, emptyList, s.frozen[:0]
	for i := range m.attempts {
		a := &m.attempts[i]
		switch {
		case int(a.server) != si || a.place == placeFree || a.place == placeNowhere:
		case a.request == nobody:
			m.discard(uint32(i))
		default:
			m.victims = append(m.victims, uint32(i))
		}
	}
}

// rest is how much of a service that was booked is still to be done at an
// instant, if the event is the end of one.
func (m *machine) rest(e event, at int64) int64 {
	if e.kind() != evAnswer {
		return 0
	}
	if a := &m.attempts[e.a]; a.place != placeWorker || !a.measured {
		return 0
	}
	return e.at - at
}

// fail tells the victims of all crashes of this instant, in the order in which
// they were sent; of one instant first the requests by client and number, and
// then the probes. Where they lie in the slab must not matter: that depends on
// every request there has been.
func (m *machine) fail() {
	slices.SortFunc(m.victims, func(x, y uint32) int {
		a, b := &m.attempts[x], &m.attempts[y]
		switch {
		case a.sent != b.sent:
			return cmp.Compare(a.sent, b.sent)
		case a.probe != b.probe && b.probe:
			return -1
		case a.probe != b.probe:
			return 1
		case a.probe:
			return cmp.Compare(a.request, b.request)
		}
		p, q := &m.requests[a.request], &m.requests[b.request]
		return cmp.Or(cmp.Compare(p.client, q.client), cmp.Compare(p.id, q.id))
	})
	for _, ai := range m.victims {
		m.attempts[ai].outcome = balancer.TransportFailure
		m.reply(ai)
	}
	m.victims = m.victims[:0]
}

// bookBusy says in the result how long each server's workers have worked up to
// now for the measured requests, without the time for which it stalled.
func (m *machine) bookBusy() {
	undone := make([]Sum, len(m.servers))
	for i := range m.servers {
		s := &m.servers[i]
		undone[i] = s.undone
		for _, e := range s.frozen {
			undone[i].add(1, m.rest(e, s.stalledAt))
		}
	}
	for _, e := range m.events.all() {
		if rest := m.rest(e, m.now); rest > 0 {
			undone[m.attempts[e.a].server].add(1, rest)
		}
	}
	for i := range m.servers {
		m.out.Servers[i].Busy = m.servers[i].booked.less(undone[i]).Duration()
	}
}
