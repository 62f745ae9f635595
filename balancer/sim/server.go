package sim

import (
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

const (
	defaultService  = 10 * time.Millisecond
	defaultFailTime = 500 * time.Microsecond
)

// server is one server at work.
type server struct {
	key       uint64 // hash of the id
	workers   int    // negative: any number
	queue     int    // negative: any number
	slowDown  uint64 // per other request in service, in q16
	errors    uint64 // threshold
	fastFails uint64
	dropLate  bool
	service   sampler
	failTime  sampler

	epoch      uint32 // grows with each crash
	busy       int
	waiting    int
	head, tail uint32 // of the queue
	held       uint32 // finished during a stall, latest first
	pending    int    // changes that are over and wait for a first success
}

func newServer(g Server, id string) server {
	s := server{
		workers: g.Workers, queue: g.Queue, dropLate: g.DropExpired,
		slowDown: fixed16(g.SlowDown), errors: threshold(g.Errors), fastFails: threshold(g.FastFails),
		service:  newSampler(g.Service, Constant(defaultService)),
		failTime: newSampler(g.FailTime, Constant(defaultFailTime)),
		head:     nobody, tail: nobody, held: nobody,
	}
	if s.workers == 0 {
		s.workers = 1
	}
	switch {
	case s.queue == 0:
		s.queue = -1
	case s.queue < 0:
		s.queue = 0
	}
	// FNV-1a, mixed.
	s.key = 0xcbf29ce484222325
	for i := 0; i < len(id); i++ {
		s.key = (s.key ^ uint64(id[i])) * 0x100000001b3
	}
	s.key = mix(s.key)
	return s
}

// receive is the arrival of an attempt at its server. The cases are in the order
// in which a real one would meet them: is there anybody, does it read, does it
// fail before it works, is a worker free, is there room to wait.
func (m *machine) receive(ai uint32) {
	a := &m.attempts[ai]
	si := a.server
	s, e := &m.servers[si], &m.effects[si]
	switch {
	case e.down:
		m.refuse(ai, balancer.TransportFailure, s.failTime.sample(a.draw(drawRefusal)))
	case e.hole:
		a.place = placeHole
	case e.sink != nil:
		m.refuse(ai, balancer.Failure, e.sink.sample(a.draw(drawRefusal)))
	case s.fastFails > 0 && hit(a.draw(drawFastFail), s.fastFails):
		m.refuse(ai, balancer.Failure, s.failTime.sample(a.draw(drawRefusal)))
	case !e.stalled && (s.workers < 0 || s.busy < s.workers):
		m.serve(ai)
	case s.queue < 0 || s.waiting < s.queue:
		a.place, a.next = placeQueue, nobody
		if s.tail == nobody {
			s.head = ai
		} else {
			m.attempts[s.tail].next = ai
		}
		s.tail = ai
		s.waiting++
		if r := &m.out.Servers[si]; s.waiting > r.LongestQueue {
			r.LongestQueue = s.waiting
		}
	default:
		m.refuse(ai, balancer.Failure, s.failTime.sample(a.draw(drawRefusal)))
	}
}

// refuse answers without a service. It takes no worker, so a server may refuse any
// number at once.
func (m *machine) refuse(ai uint32, o balancer.Outcome, after int64) {
	a := &m.attempts[ai]
	a.place, a.outcome = placeRefused, o
	if a.probe {
		m.quiet++
	}
	m.push(satAdd(m.now, after), evAnswer, ai, 0)
}

// serve begins the service of an attempt. How long it takes and how it ends is
// settled now: what changes later does not reach what is in service, but for a
// crash and a stall.
func (m *machine) serve(ai uint32) {
	a := &m.attempts[ai]
	si := a.server
	s, e := &m.servers[si], &m.effects[si]
	from := &s.service
	if e.service != nil {
		from = e.service
	}
	d := from.sample(a.draw(drawService))
	if s.slowDown > 0 {
		d = scaled(d, satMul(uint64(s.busy), s.slowDown)+q16)
	}
	if f := e.slow(m.now); f != q16 {
		d = scaled(d, f)
	}
	// Bounded, so that no factor can push the end beyond the range of time.
	d = min(max(1, d), int64(maxTime))
	a.place, a.outcome, a.epoch = placeWorker, balancer.Success, s.epoch
	if e.errors > 0 && hit(a.draw(drawError), e.errors) {
		a.outcome = balancer.Failure
	}
	if a.probe {
		m.quiet++
	}
	s.busy++
	if a.sent >= m.warm {
		m.out.Servers[si].Busy += time.Duration(d)
	}
	m.push(satAdd(m.now, d), evAnswer, ai, 0)
}

// answer is the end of an attempt at its server. The worker takes the next from
// the queue before the client learns of the answer, as it would while the answer
// travels.
func (m *machine) answer(ai uint32) {
	a := &m.attempts[ai]
	si := a.server
	s := &m.servers[si]
	if a.probe {
		m.quiet--
	}
	switch {
	case a.place == placeRefused:
	case a.epoch != s.epoch:
		// The server has crashed since, and the client been told.
		m.release(ai)
		return
	case m.effects[si].stalled:
		a.place, a.next, s.held = placeHeld, s.held, ai
		return
	default:
		s.busy--
		m.work(si)
	}
	m.reply(ai)
}

// work gives the free workers of a server what waits. Whenever a worker becomes
// free it is called, so that no worker idles beside a queue.
func (m *machine) work(si uint32) {
	s := &m.servers[si]
	for s.head != nobody && (s.workers < 0 || s.busy < s.workers) {
		ai := s.head
		s.head = m.attempts[ai].next
		if s.head == nobody {
			s.tail = nobody
		}
		s.waiting--
		if m.attempts[ai].request == nobody && s.dropLate {
			m.release(ai)
			continue
		}
		m.serve(ai)
	}
}

// reply hands the answer to the client, if it still waits, and lets the request go
// on from there. The attempt is given back before that: a retry may reuse it.
func (m *machine) reply(ai uint32) {
	a := &m.attempts[ai]
	if a.probe {
		m.probed(ai, a.outcome)
		m.release(ai)
		return
	}
	if a.request == nobody {
		if a.sent >= m.warm {
			m.out.Counts.Wasted++
		}
		m.out.Total.Wasted++
		m.release(ai)
		return
	}
	ri, o := a.request, a.outcome
	m.settle(ai, o)
	m.release(ai)
	m.drive(ri)
}

// resume is the end of a stall: what was finished meanwhile is answered in the
// order in which it was finished, and then work begins again.
func (m *machine) resume(si int) {
	s := &m.servers[si]
	// The list has the latest first.
	first := nobody
	for ai := s.held; ai != nobody; {
		next := m.attempts[ai].next
		m.attempts[ai].next, first = first, ai
		ai = next
	}
	s.held = nobody
	for ai := first; ai != nobody; {
		next := m.attempts[ai].next
		m.servers[si].busy--
		m.reply(ai)
		ai = next
	}
	m.work(uint32(si))
}

// crash fails all that a server has. Its workers are free at once; the events
// of their answers find another epoch.
func (m *machine) crash(si int) {
	s := &m.servers[si]
	s.epoch++
	s.busy, s.waiting, s.head, s.tail, s.held = 0, 0, nobody, nobody, nobody
	// All that has a worker, waits for one, is held by a stall or was swallowed.
	// Services of an earlier life of the server are over already.
	m.victims = m.victims[:0]
	for i := range m.attempts {
		a := &m.attempts[i]
		if int(a.server) == si && a.place != placeFree && a.place != placeRefused && (a.place != placeWorker || a.epoch == s.epoch-1) {
			m.victims = append(m.victims, uint32(i))
		}
	}
	for _, ai := range m.victims {
		a := &m.attempts[ai]
		ri := a.request
		if a.probe {
			m.probed(ai, balancer.TransportFailure)
			ri = nobody
		}
		if ri != nobody {
			m.settle(ai, balancer.TransportFailure)
		}
		if a.place != placeWorker {
			m.release(ai)
		}
		if ri != nobody {
			m.drive(ri)
		}
	}
}

// newAttempt takes an attempt from the slab, the one given back last, which is
// still in the cache.
func (m *machine) newAttempt() uint32 {
	if ai := m.freeAttempt; ai != nobody {
		m.freeAttempt = m.attempts[ai].next
		return ai
	}
	m.attempts = append(m.attempts, attempt{})
	return uint32(len(m.attempts) - 1)
}

// release gives an attempt back that has ended for both sides. The generation
// makes whatever still names it stale.
func (m *machine) release(ai uint32) {
	a := &m.attempts[ai]
	a.gen++
	a.place, a.request = placeFree, nobody
	if a.probe {
		a.next, m.freeProbe = m.freeProbe, ai
		return
	}
	a.next, m.freeAttempt = m.freeAttempt, ai
}

func satAdd(a, b int64) int64 {
	if a > never-b {
		return never
	}
	return a + b
}

func satMul(a, b uint64) uint64 {
	const limit = 1 << 62
	if b != 0 && a > limit/b {
		return limit
	}
	return a * b
}
