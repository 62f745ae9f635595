package sim

import (
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/hashring"
)

// client is one client at work.
type client struct {
	*Client
	pool     *balancer.Pool[*node]
	index    uint32
	place    uint64 // group<<32 | number in the group
	salt     uint64
	arrivals uint64 // what does not depend on n of draw(salt, streamArrival, n)
	sees     []int  // servers, by index
	skip     map[uint64]bool
	think    sampler

	checks    int // the first of the machine's that are this client's, one for each of sees
	answer    sampler
	probeEnds bool // a probe that passes may end an ejection

	sent   uint64   // open-loop arrivals so far
	gap    uint64   // mean time between them at a load of 1, in q16 nanoseconds
	from   uint64   // since when the next one is awaited, in q16
	left   uint64   // the time from then to it at a load of 1, in q16
	nextAt uint64   // when it comes at the load that is, in q16
	users  []uint64 // requests of each user so far

	limits limits // of attempts that are out, oldest first
	armed  bool   // an evTimeout is in the queue
}

// addClients makes the clients with a Pool each, all on the one clock.
func (m *machine) addClients() error {
	seeded := false // a client has the seed of Scenario.Pool
	for gi := range m.s.Clients {
		g := &m.s.Clients[gi]
		for k := range atLeastOne(g.Count) {
			c := newClient(m, gi, k)
			cfg, first := m.s.Pool, !seeded
			if g.Pool != nil {
				cfg, first = *g.Pool, k == 0
			} else {
				seeded = true
			}
			cfg.Clock = m.clk
			switch {
			case cfg.Seed == 0:
				cfg.Seed = draw(m.s.Seed, streamPool, c.place) | 1
			case !first:
				cfg.Seed = draw(cfg.Seed, streamPool, c.place) | 1
			}
			if c.Checks != nil {
				cfg.StartUnhealthy = !c.Checks.Probe.StartHealthy
				c.probeEnds = cfg.Outlier.ProbeEnds
			}
			hook, index := cfg.OnEvent, c.index
			cfg.OnEvent = func(ev balancer.Event) {
				m.poolEvent(index, ev)
				if m.rec != nil && m.rec.client == index {
					// One input may bring any number of events.
					m.rec.input()
				}
				if hook != nil {
					hook(ev)
				}
			}
			pool, err := balancer.NewPool(cfg, c.members(m)...)
			if err != nil {
				return &ConfigError{Field: "Scenario.Pool", Err: err}
			}
			c.pool = pool
			m.addChecks(&c)
			m.clients = append(m.clients, c)
		}
	}
	return nil
}

// members are the servers that the client sees and the script has not taken
// out.
func (c *client) members(m *machine) []*node {
	var out []*node
	for _, si := range c.sees {
		if len(m.effects) == 0 || !m.effects[si].out {
			out = append(out, m.nodes[si])
		}
	}
	return out
}

// newClient makes client k of group gi. Its salt depends on the seed and those two
// alone, so that a change of one group, be it of how many they are, leaves the
// others' draws as they were. The caller adds the Pool.
func newClient(m *machine, gi, k int) client {
	g, place := &m.s.Clients[gi], uint64(gi)<<32|uint64(k)
	c := client{Client: g, index: uint32(len(m.clients)), place: place, salt: draw(m.s.Seed, streamClient, place)}
	c.arrivals = saltOf(c.salt, streamArrival)
	c.sees = make([]int, len(m.nodes))
	for i := range c.sees {
		c.sees[i] = i
	}
	if g.Sees > 0 && g.Sees < len(c.sees) {
		// The servers whose hash comes first, in the fleet's order.
		rank := func(i int) uint64 { return mix(draw(c.salt, streamSubset, 0) ^ m.servers[i].key) }
		slices.SortFunc(c.sees, func(a, b int) int {
			if ra, rb := rank(a), rank(b); ra < rb || ra == rb && a < b {
				return -1
			}
			return 1
		})
		c.sees = c.sees[:g.Sees]
		slices.Sort(c.sees)
	}
	if len(g.Skip) > 0 {
		c.skip = make(map[uint64]bool, len(g.Skip))
		for _, id := range g.Skip {
			c.skip[id] = true
		}
	}
	c.think = newSampler(g.Think, Dist{})
	if g.Rate > 0 {
		c.gap = fixed16(float64(1e9) / g.Rate)
	}
	if g.Users > 0 {
		c.users = make([]uint64, g.Users)
	}
	return c
}

// request begins a request, unless it is to be skipped. A user whose request is
// skipped goes on to think.
func (m *machine) request(ci, user uint32, id uint64) {
	c := &m.clients[ci]
	if c.skip != nil && c.skip[id] {
		if c.Users > 0 {
			m.userThinks(c, user, id, int64(time.Millisecond))
		}
		return
	}
	var ri uint32
	if ri = m.freeRequest; ri != nobody {
		m.freeRequest = m.requests[ri].next
	} else {
		m.requests = append(m.requests, request{})
		ri = uint32(len(m.requests) - 1)
	}
	req := balancer.Request{ID: id}
	if c.Keys > 0 {
		x := draw(c.salt, streamRequest, id)
		req.Key = balancer.HashKey(hashring.KeyUint64(below(x, uint64(c.Keys))))
	}
	r := &m.requests[ri]
	r.id, r.start, r.client, r.user, r.attempt, r.attempts, r.ok, r.deadline = id, m.now, ci, user, nobody, 0, false, never
	if c.Deadline > 0 {
		r.deadline = satAdd(m.now, int64(c.Deadline))
		req.Deadline = m.start.Add(time.Duration(r.deadline))
	}
	r.try = c.pool.Start(req)
	m.countOpen(1)
	m.out.Total.Requests++
	if m.now >= m.warm {
		m.out.Counts.Requests++
	}
	r.column = m.series()
	m.out.Series[r.column].Requests++
	m.drive(ri)
}

// drive does what a request's retry machine wants next. It is called whenever the
// request has no attempt out: at its beginning, after an attempt was settled, and
// after a wait.
func (m *machine) drive(ri uint32) {
	m.sync()
	r := &m.requests[ri]
	step := r.try.Next()
	switch step.Kind {
	case balancer.StepSend:
		m.send(ri, step.Lease.Upstream().index)
	case balancer.StepWait:
		m.push(satAdd(m.now, int64(step.Wait)), evRetry, ri, 0)
	case balancer.StepEnd:
		m.finish(ri, step.End)
	}
}

// send is the beginning of an attempt. Its draws are keyed by client, request,
// attempt and server: another server, or another attempt, draws anew, and nothing
// else that happens has a say.
func (m *machine) send(ri uint32, si int) {
	ai := m.newAttempt()
	a, r := &m.attempts[ai], &m.requests[ri]
	c := &m.clients[r.client]
	measured := r.start >= m.warm
	a.sent, a.request, a.server, a.measured = m.now, ri, uint32(si), measured
	a.key = mix(mix(c.salt+r.id*golden) + uint64(r.attempts)*0xd1342543de82ef95 ^ m.servers[si].key)
	r.attempt = ai
	r.attempts++

	m.out.Total.Attempts++
	if r.attempts > 1 {
		m.out.Total.Retries++
	}
	if measured {
		m.out.Counts.Attempts++
		if r.attempts > 1 {
			m.out.Counts.Retries++
		}
		m.out.Servers[si].Attempts++
	}
	if m.now < m.endAt {
		m.out.Series[m.series()].Attempts++
	}

	// A request's deadline may cut an attempt short, and such limits are in no
	// order, so they are events of their own. The others go through the ring.
	end := satAdd(m.now, int64(c.Timeout))
	switch {
	case r.deadline != never && (c.Timeout == 0 || r.deadline < end):
		m.expireAt(r.deadline, ai)
	case c.Timeout > 0:
		m.limit(c, end, ai)
	}
	m.receive(ai)
}

// giveUp ends an attempt for its client, which waits no longer. The server does
// not learn of it, and keeps its part of the attempt until it has finished; but
// for a black hole, which never does.
func (m *machine) giveUp(ai uint32) {
	a := &m.attempts[ai]
	ri := a.request
	m.out.Total.Timeouts++
	if a.measured {
		m.out.Counts.Timeouts++
	}
	m.settle(ai, balancer.TransportFailure)
	if a.place == placeHole {
		m.release(ai)
	} else {
		m.orphans++
	}
	m.drive(ri)
}

// settle ends an attempt for its client and tells the Pool.
func (m *machine) settle(ai uint32, o balancer.Outcome) {
	a := &m.attempts[ai]
	ri := a.request
	r := &m.requests[ri]
	m.sync()
	r.try.Done(balancer.Report{Outcome: o})
	r.ok = o == balancer.Success
	a.request, r.attempt = nobody, nobody
	if a.measured {
		sr := &m.out.Servers[a.server]
		if r.ok {
			sr.Successes++
		} else {
			sr.Failures++
		}
	}
	if r.ok && m.servers[a.server].pending > 0 {
		m.recovered(a)
	}
	if m.each != nil {
		m.each(Attempt{
			Client: int(r.client), Request: r.id, Attempt: int(r.attempts) - 1, Server: m.nodes[a.server].id,
			Begun: time.Duration(r.start), Sent: time.Duration(a.sent), Took: time.Duration(m.now - a.sent), Outcome: o,
		})
	}
}

// recovered notes the first success of a server after the end of a change.
func (m *machine) recovered(a *attempt) {
	for i := range m.plays {
		p := &m.plays[i]
		rank := slices.Index(p.servers, int(a.server))
		if rank < 0 || !p.pending[rank] {
			continue
		}
		if _, to := p.span(rank); a.sent >= to {
			p.pending[rank] = false
			m.servers[a.server].pending--
			p.result.FirstSuccess.note(time.Duration(m.now - to))
		}
	}
}

// finish is the end of a request. It belongs to the part of the run in which it
// arrived, not to that in which it ended: a run that counted by the end would
// leave out the slow ones.
func (m *machine) finish(ri uint32, end balancer.End) {
	r := &m.requests[ri]
	c := &m.clients[r.client]
	took := time.Duration(m.now - r.start)
	good := r.ok && (c.Target == 0 || took <= c.Target)
	m.countOpen(-1)
	m.out.Sojourn.add(1, int64(took))
	m.out.Total.end(r.ok, good, r.attempts, end)
	if r.start >= m.warm {
		m.out.Counts.end(r.ok, good, r.attempts, end)
		if r.ok {
			m.out.Latency.Add(took)
		} else {
			m.out.FailLatency.Add(took)
		}
	}
	col := &m.out.Series[r.column]
	if r.ok {
		col.OK++
	}
	if good {
		col.Good++
	}
	ci, user, id, sent := r.client, r.user, r.id, r.attempts > 0
	r.client = nobody
	r.next, m.freeRequest = m.freeRequest, ri
	if c := &m.clients[ci]; c.Users > 0 {
		pause := int64(0)
		if !sent {
			pause = int64(time.Millisecond)
		}
		m.userThinks(c, user, id, pause)
	}
}
