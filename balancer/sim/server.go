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

	busy    int
	waiting int
	line    list // those who wait for a worker
	pending int  // changes that are over and wait for a first success

	// Of a stall.
	stalledAt int64
	frozen    []event // the ends of what it had under way, in their order
	door      list    // what has come since

	// Workers' time for the measured requests: of the services that have begun,
	// and what of those was never done.
	booked, undone Sum
}

// list is a list of attempts, first in, first out. Both ends are nobody if it is
// empty.
type list struct{ head, tail uint32 }

var emptyList = list{head: nobody, tail: nobody}

func (m *machine) enqueue(l *list, ai uint32) {
	m.attempts[ai].next = nobody
	if l.tail == nobody {
		l.head = ai
	} else {
		m.attempts[l.tail].next = ai
	}
	l.tail = ai
}

// dequeue takes the first of a list that is not empty.
func (m *machine) dequeue(l *list) uint32 {
	ai := l.head
	l.head = m.attempts[ai].next
	if l.head == nobody {
		l.tail = nobody
	}
	return ai
}

func newServer(g Server, id string) server {
	s := server{
		workers: g.Workers, queue: g.Queue, dropLate: g.DropExpired,
		slowDown: fixed16(g.SlowDown), errors: threshold(g.Errors), fastFails: threshold(g.FastFails),
		service:  newSampler(g.Service, Constant(defaultService)),
		failTime: newSampler(g.FailTime, Constant(defaultFailTime)),
		line:     emptyList, door: emptyList,
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
		// Nobody is there, so it is not the server that answers.
		m.refuse(ai, balancer.TransportFailure, s.failTime.sample(a.draw(drawRefusal)))
		a.place = placeNowhere
	case e.hole:
		a.place = placeHole
	case e.stalled:
		a.place = placeDoor
		m.enqueue(&s.door, ai)
	case e.refusal != nil && hit(a.draw(drawRefused), e.refusals):
		m.refuse(ai, balancer.TransportFailure, e.refusal.sample(a.draw(drawRefusal)))
	case a.shallow:
		c := &m.clients[m.checks[a.request].client]
		m.refuse(ai, balancer.Success, c.answer.sample(a.draw(drawService)))
	case e.sink != nil && hit(a.draw(drawSink), e.sinks):
		m.refuse(ai, balancer.Failure, e.sink.sample(a.draw(drawRefusal)))
	case s.fastFails > 0 && hit(a.draw(drawFastFail), s.fastFails):
		m.refuse(ai, balancer.Failure, s.failTime.sample(a.draw(drawRefusal)))
	case s.workers < 0 || s.busy < s.workers:
		m.serve(ai)
	case s.queue < 0 || s.waiting < s.queue:
		a.place = placeQueue
		m.enqueue(&s.line, ai)
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
	m.answerAt(satAdd(m.now, after), ai)
}

// answerAt schedules the end of an attempt at its server.
func (m *machine) answerAt(at int64, ai uint32) {
	if m.attempts[ai].probe {
		m.quiet++
	}
	m.push(at, evAnswer, ai, 0)
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
	a.place, a.outcome = placeWorker, balancer.Success
	if e.errors > 0 && hit(a.draw(drawError), e.errors) {
		a.outcome = balancer.Failure
	}
	s.busy++
	if a.measured {
		s.booked.add(1, d)
	}
	m.answerAt(satAdd(m.now, d), ai)
}

// answer is the end of an attempt at its server. The worker takes the next from
// the queue before the client learns of the answer, as it would while the answer
// travels.
func (m *machine) answer(ai uint32) {
	a := &m.attempts[ai]
	if a.probe {
		m.quiet--
	}
	if a.place == placeWorker {
		m.servers[a.server].busy--
		m.work(a.server)
	}
	m.reply(ai)
}

// work gives the free workers of a server what waits. Whenever a worker becomes
// free it is called, so that no worker idles beside a queue.
func (m *machine) work(si uint32) {
	s := &m.servers[si]
	for s.line.head != nobody && (s.workers < 0 || s.busy < s.workers) {
		ai := m.dequeue(&s.line)
		s.waiting--
		if m.attempts[ai].request == nobody && s.dropLate {
			m.discard(ai)
			continue
		}
		m.serve(ai)
	}
}

// reply hands the answer to the client, if it still waits, and lets the request go
// on from there. The attempt is given back before that: a retry may reuse it.
func (m *machine) reply(ai uint32) {
	a := &m.attempts[ai]
	o := a.outcome
	switch {
	case a.probe:
		m.probed(ai, o)
		m.release(ai)
	case a.request == nobody:
		if a.measured {
			m.out.Counts.Wasted++
		}
		m.out.Total.Wasted++
		m.discard(ai)
	default:
		ri := a.request
		m.settle(ai, o)
		m.release(ai)
		m.drive(ri)
	}
}

// discard gives back an attempt that no client waits for.
func (m *machine) discard(ai uint32) {
	if !m.attempts[ai].probe {
		m.orphans--
	}
	m.release(ai)
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
	a.place, a.request, a.probe, a.shallow = placeFree, nobody, false, false
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
