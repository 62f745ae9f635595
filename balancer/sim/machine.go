package sim

import (
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

// zeroClock only stands in for the simulation's clock in validation.
var zeroClock = clock.NewManual(time.Unix(0, 0))

// nobody is the index of no request, attempt or server.
const nobody = ^uint32(0)

// node is a server as the Pools see it.
type node struct {
	id                    string
	weight, tier, maximum int
	index                 int
}

func (n *node) ID() string       { return n.id }
func (n *node) Weight() int      { return n.weight }
func (n *node) Priority() int    { return n.tier }
func (n *node) MaxInflight() int { return n.maximum }

// machine is one run. Requests and attempts live in slabs and refer to each
// other by index, so that a run in its steady state allocates nothing.
type machine struct {
	s     Scenario
	clk   *clock.Manual
	start time.Time
	each  func(Attempt)

	now     int64
	clkAt   int64 // where clk stands
	seq     uint64
	events  heap
	endAt   int64  // Duration
	warm    int64  // WarmUp
	load    uint64 // in q40
	clients []client
	servers []server
	nodes   []*node
	byID    map[string]int

	requests    []request
	freeRequest uint32
	attempts    []attempt
	freeAttempt uint32
	open        int64    // requests under way
	openSince   int64    // when that last changed
	orphans     int      // attempts that a server has and no client waits for
	victims     []uint32 // of the crashes of this instant
	stale       []event  // scratch
	tidyAt      int      // so many events call for expireAt to look for stale ones

	plays          []play
	effects, spare []effect

	out       Result
	interval  int64
	column    int // of Series that now falls into
	columnEnd int64
	tables    *tables
	rec       *recording // nil if nothing is recorded

	checks []check
	quiet  int // events in the queue that belong to checks: no request ends by them
}

// request is one request under way.
type request struct {
	try      balancer.Try[*node]
	id       uint64
	start    int64
	deadline int64 // never, if it has none
	column   int   // of Series
	client   uint32
	user     uint32
	next     uint32 // in the list of free ones
	attempt  uint32 // that is out, or nobody
	attempts uint32
	ok       bool
}

// attempt is one call of a server. It ends for the client and for the server
// at different times, and is free when both have ended.
type attempt struct {
	sent     int64
	key      uint64 // of its draws
	request  uint32 // nobody, once the client has settled it
	server   uint32
	next     uint32 // in one of the server's lists, or that of free ones
	gen      uint32
	place    place
	outcome  balancer.Outcome
	measured bool // it is in the books of what is after the warm-up
	probe    bool // of a check; request is that, or nobody
	shallow  bool // a probe that takes no worker
}

// draw returns 64 uniform bits for one purpose.
func (a *attempt) draw(purpose uint64) uint64 { return mix(a.key + purpose*golden) }

// place is where the server has an attempt.
type place uint8

const (
	placeFree    place = iota
	placeQueue         // waiting for a worker
	placeWorker        // in service: an answer event is on its way
	placeRefused       // an answer event is on its way, no worker is taken
	placeNowhere       // so it is, but the server is down: nobody is there to have it
	placeDoor          // come during a stall and not received yet
	placeHole          // swallowed
)

// newMachine sets a run up to its first event. Pools come last: they ask which
// servers there are.
func newMachine(s Scenario) (*machine, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	m := &machine{
		s: s, start: time.Unix(0, 0).UTC(), endAt: int64(s.Duration), warm: int64(s.WarmUp),
		load: q40, freeRequest: nobody, freeAttempt: nobody, byID: map[string]int{}, tidyAt: minTidy,
		interval: int64(s.interval()), tables: mathTables(),
	}
	m.columnEnd = m.interval
	m.clk = clock.NewManual(m.start)
	m.out.Seed, m.out.Duration, m.out.WarmUp, m.out.Interval = s.Seed, s.Duration, s.WarmUp, s.interval()
	m.out.Series = make([]Column, 1+(m.endAt-1)/m.interval)
	m.addServers()
	m.addScript()
	// What begins at 0 is there before anybody: who is taken out then was never in.
	m.script()
	if err := m.addClients(); err != nil {
		return nil, err
	}
	for i := range m.plays {
		p := &m.plays[i]
		p.ejected = make([]bool, len(m.clients)*len(p.servers))
		if len(m.checks) > 0 {
			p.unhealthy = make([]bool, len(m.clients)*len(p.servers))
		}
	}
	for i := range m.clients {
		m.begin(uint32(i))
	}
	for i := range m.clients {
		m.followRoll(&m.clients[i])
	}
	return m, nil
}

// addServers makes the fleet, in the order of the scenario. That order is only
// how results are listed: draws are keyed by id.
func (m *machine) addServers() {
	for _, g := range m.s.Servers {
		for k := range atLeastOne(g.Count) {
			n := &node{id: g.id(k), weight: g.Weight, tier: g.Priority, maximum: g.MaxInflight, index: len(m.nodes)}
			switch {
			case g.Weight == 0:
				n.weight = 1
			case g.Weight < 0:
				n.weight = 0
			}
			m.byID[n.id] = n.index
			m.nodes = append(m.nodes, n)
			m.servers = append(m.servers, newServer(g, n.id))
		}
	}
	m.out.Servers = make([]ServerResult, len(m.servers))
	for i, n := range m.nodes {
		m.effects = append(m.effects, effect{factor: q16, errors: m.servers[i].errors})
		m.out.Servers[i] = ServerResult{ID: n.id}
	}
}

// addScript resolves the names of the script. Samplers are pointed to by effects,
// so the slice must not grow after this.
func (m *machine) addScript() {
	m.plays = make([]play, len(m.s.Script))
	m.out.Changes = make([]ChangeResult, len(m.s.Script))
	for i, c := range m.s.Script {
		p := &m.plays[i]
		*p = play{Change: c, end: never, result: &m.out.Changes[i]}
		if c.Kind != Surge {
			p.servers = c.match(m.s.Servers)
		}
		p.pending = make([]bool, len(p.servers))
		switch {
		case c.For > 0:
			p.end = int64(c.At + c.For)
		case c.Kind == Flapping:
			p.end = m.endAt
		}
		p.service = newSampler(c.Service, Constant(defaultFailTime))
		p.load = c.loadOf()
		p.result.Kind, p.result.At, p.result.For = c.Kind, c.At, c.For
		p.result.Servers = len(p.servers)
	}
}

// updatePools tells every Pool who its members are. The ids are known to be
// good.
func (m *machine) updatePools() {
	m.sync()
	for i := range m.clients {
		c := &m.clients[i]
		if err := c.pool.Update(c.members(m)...); err != nil {
			panic(err)
		}
		m.followRoll(c)
	}
}

// push schedules an event.
func (m *machine) push(at int64, k kind, a, b uint32) { m.pushSeq(at, m.number(), k, a, b) }

func (m *machine) pushSeq(at int64, seq uint64, k kind, a, b uint32) {
	m.events.push(event{at: at, seq: seq<<kindBits | uint64(k), a: a, b: b})
}

// number is the next of the numbers that order events at one instant.
func (m *machine) number() uint64 {
	m.seq++
	return m.seq
}

// step makes the next event happen. It returns false when the run is over: no
// more requests arrive and none is under way, or none that can still end, and the
// servers have finished with what was given up. Checks go on for as long as
// anything else does, and not beyond the last request.
func (m *machine) step() bool {
	if m.events.len() <= m.quiet && m.over() {
		return false
	}
	e := m.events.pop()
	if e.at >= m.endAt && m.open == 0 {
		if m.orphans == 0 {
			m.events.push(e)
			return false
		}
		if e.kind() == evProbe {
			m.quiet--
			return true
		}
	}
	m.now = e.at
	m.out.Events++
	switch e.kind() {
	case evArrive:
		m.arrive(e.a)
	case evUser:
		m.userSends(e.a, e.b)
	case evAnswer:
		m.answer(e.a)
	case evTimeout:
		m.timeouts(e.a)
	case evExpire:
		if m.waits(limit{attempt: e.a, attemptG: e.b}) {
			m.giveUp(e.a)
		}
	case evRetry:
		m.drive(e.a)
	case evScript:
		m.script()
	case evProbe:
		m.quiet--
		if m.checks[e.a].epoch == e.b {
			m.probe(e.a)
		}
	case evProbeEnd:
		m.quiet--
		if m.checks[e.a].epoch == e.b {
			m.endProbe(e.a)
		}
	}
	return true
}

// series is the column of Series for the present, which must be before
// Duration. It divides once per column, not once per request.
func (m *machine) series() int {
	if m.now >= m.columnEnd {
		m.column = int(m.now / m.interval)
		m.columnEnd = int64(m.column+1) * m.interval
	}
	return m.column
}

// sync moves the Pools' clock to the present. Only what is about to call a Pool
// does it; no timer is armed on the clock, so nothing runs in between.
func (m *machine) sync() {
	if m.rec != nil {
		m.rec.input()
	}
	if m.clkAt != m.now {
		m.clk.Advance(time.Duration(m.now - m.clkAt))
		m.clkAt = m.now
	}
}

// poolEvent notes when a change of the script shows in a client's Pool. The event
// has the time at which it was due, which may be before now.
func (m *machine) poolEvent(client uint32, ev balancer.Event) {
	si, known := m.byID[ev.Upstream]
	if !known {
		return
	}
	r := &m.out.Servers[si]
	switch ev.Kind {
	case balancer.UpstreamEjected:
		r.Ejections++
	case balancer.BreakerOpened:
		r.Trips++
	case balancer.UpstreamUnhealthy:
	default:
		return
	}
	at := int64(ev.At.Sub(m.start))
	for i := range m.plays {
		p := &m.plays[i]
		rank := slices.Index(p.servers, si)
		if rank < 0 {
			continue
		}
		from, to := p.span(rank)
		seen, out := p.ejected, &p.result.Ejected
		if ev.Kind == balancer.UpstreamUnhealthy {
			seen, out = p.unhealthy, &p.result.Unhealthy
		}
		pair := int(client)*len(p.servers) + rank
		if at < from || at >= to || seen[pair] {
			continue
		}
		seen[pair] = true
		out.note(time.Duration(at - from))
	}
}

// countOpen changes the number of requests under way, and adds up what it was
// over time.
func (m *machine) countOpen(by int64) {
	m.out.Area.add(m.open, m.now-m.openSince)
	m.openSince = m.now
	m.open += by
}

// result closes the books. What is still under way then never ends.
func (m *machine) result() Result {
	r := &m.out
	r.Elapsed = time.Duration(m.openSince)
	r.Total.Hung += uint64(m.open)
	for i := range m.requests {
		if q := &m.requests[i]; q.client != nobody && q.start >= m.warm {
			r.Counts.Hung++
		}
	}
	m.bookBusy()
	return *r
}
