package incident

import (
	"fmt"
	"strings"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
)

// lane is what the lines of a file say of one upstream.
type lane struct {
	name     string
	gen      int // how often it has joined: calls to a former self are nobody's
	member   bool
	healthy  bool
	ejected  bool
	breaker  breaker.State
	inflight int
	served   uint64 // attempts that ended, but for those that were ignored
	failed   uint64
}

// sent is an attempt that is out.
type sent struct {
	lane     *lane
	gen      int
	fallback bool
}

// ledger follows the lines of a file and knows from them alone what the state
// is: a second opinion to that of the Pool that replays them.
type ledger struct {
	lanes     []*lane // in the order of their first appearance
	byID      map[string]*lane
	out       map[uint64]sent // by request, which has one attempt out at a time
	unhealthy bool            // those that join are
}

func newLedger(h *Header) *ledger {
	g := &ledger{byID: map[string]*lane{}, out: map[uint64]sent{}, unhealthy: h.Settings.StartUnhealthy}
	for _, m := range h.Members {
		n := g.lane(m.Name)
		n.member, n.healthy = true, !g.unhealthy
	}
	return g
}

// begin takes the state at the start from a Pool that was restored from it.
func (g *ledger) begin(s balancer.Snapshot, leases []balancer.Lease[balancer.Member]) {
	for _, u := range s.Upstreams {
		n := g.lane(u.ID)
		n.member, n.healthy, n.ejected, n.breaker = true, u.Healthy, u.Ejected, u.Breaker
		n.served, n.failed = u.Served, u.Failures
	}
	for _, l := range leases {
		// Of a host that has left there is no upstream.
		if id := l.Upstream().ID(); id != "" {
			n := g.lane(id)
			n.inflight++
			g.out[l.Request()] = sent{n, n.gen, l.Fallback()}
		}
	}
}

// clone returns a ledger that goes on by itself.
func (g *ledger) clone() *ledger {
	c := &ledger{byID: map[string]*lane{}, out: map[uint64]sent{}, unhealthy: g.unhealthy}
	for _, n := range g.lanes {
		*c.lane(n.name) = *n
	}
	for r, s := range g.out {
		s.lane = c.byID[s.lane.name]
		c.out[r] = s
	}
	return c
}

func (g *ledger) lane(name string) *lane {
	n := g.byID[name]
	if n == nil {
		n = &lane{name: name}
		g.byID[name] = n
		g.lanes = append(g.lanes, n)
	}
	return n
}

// attempt is what a line says about one attempt: that it begins, or how it ends.
type attempt struct {
	lane     *lane // nil if the line is about none
	begins   bool
	fallback bool
	outcome  balancer.Outcome
}

// follow takes one line.
func (g *ledger) follow(l *Line) attempt {
	switch l.Kind {
	case EvPick, EvRetry:
		n := g.lane(l.Upstream)
		n.inflight++
		g.out[l.Request] = sent{n, n.gen, l.Fallback}
		return attempt{lane: n, begins: true, fallback: l.Fallback}
	case InDone, InSettle, InStop:
		s, ok := g.out[l.Request]
		delete(g.out, l.Request)
		if !ok || s.gen != s.lane.gen {
			return attempt{}
		}
		s.lane.inflight--
		if l.Outcome != balancer.Ignored {
			s.lane.served++
			if l.Outcome != balancer.Success {
				s.lane.failed++
			}
		}
		return attempt{lane: s.lane, fallback: s.fallback, outcome: l.Outcome}
	case EvState:
		g.state(l)
	}
	return attempt{}
}

func (g *ledger) state(l *Line) {
	n := g.lane(l.Upstream)
	switch l.Event {
	case balancer.UpstreamJoined:
		// One that comes back is new.
		*n = lane{name: n.name, gen: n.gen + 1, member: true, healthy: !g.unhealthy}
	case balancer.UpstreamLeft:
		n.member = false
	case balancer.UpstreamHealthy, balancer.UpstreamUnhealthy:
		n.healthy = l.Event == balancer.UpstreamHealthy
	case balancer.UpstreamEjected:
		n.ejected = true
	case balancer.UpstreamReturned:
		n.ejected = false
	case balancer.BreakerOpened:
		n.breaker = breaker.Open
	case balancer.BreakerHalfOpen:
		n.breaker = breaker.HalfOpen
	case balancer.BreakerClosed:
		n.breaker = breaker.Closed
	}
}

// String is the state of every member, one a line.
func (g *ledger) String() string {
	var b strings.Builder
	for _, n := range g.lanes {
		if n.member {
			fmt.Fprintln(&b, n)
		}
	}
	return b.String()
}

// String is an upstream as a Divergence shows it.
func (n *lane) String() string {
	health, in := "healthy", "in"
	if !n.healthy {
		health = "unhealthy"
	}
	if n.ejected {
		in = "ejected"
	}
	return fmt.Sprintf("%s: %s, %s, breaker %v, %d in flight, %d served, %d failed",
		n.name, health, in, n.breaker, n.inflight, n.served, n.failed)
}
