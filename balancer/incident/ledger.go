package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
)

// lane is what the lines of a file say of one upstream.
type lane struct {
	name     string
	member   bool
	healthy  bool
	ejected  bool
	until    time.Duration // of the ejection
	breaker  breaker.State
	reopens  time.Duration // when the breaker is half-open
	inflight int
	served   uint64 // attempts that ended, but for those that were ignored
	failed   uint64
}

// sent is an attempt that is out.
type sent struct {
	lane     *lane
	fallback bool
}

// ledger follows the lines of a file and knows from them alone what the state
// is: a second opinion to that of the Pool that replays them.
type ledger struct {
	lanes []*lane // in the order of their first appearance
	byID  map[string]*lane
	out   map[uint64]sent // by request, which has one attempt out at a time
}

func newLedger(h *Header) *ledger {
	g := &ledger{byID: map[string]*lane{}, out: map[uint64]sent{}}
	for _, m := range h.Members {
		n := g.lane(m.Name)
		n.member, n.healthy = true, !h.Settings.StartUnhealthy
	}
	return g
}

// begin takes the state at the start from a Pool that was restored from it.
func (g *ledger) begin(s balancer.Snapshot, leases []balancer.Lease[balancer.Member]) {
	for _, u := range s.Upstreams {
		n := g.lane(u.ID)
		n.member, n.healthy, n.ejected, n.breaker = true, u.Healthy, u.Ejected, u.Breaker
		n.served, n.failed = u.Served, u.Failures
		if !u.Returns.IsZero() {
			n.until, n.reopens = u.Returns.Sub(s.At), u.Returns.Sub(s.At)
		}
	}
	for _, l := range leases {
		if id := l.Upstream().ID(); id != "" {
			n := g.lane(id)
			n.inflight++
			g.out[l.Request()] = sent{n, l.Fallback()}
		}
	}
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
		g.out[l.Request] = sent{n, l.Fallback}
		return attempt{lane: n, begins: true, fallback: l.Fallback}
	case InDone, InSettle, InStop:
		s, ok := g.out[l.Request]
		if !ok {
			return attempt{}
		}
		delete(g.out, l.Request)
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
		// One that comes back is new; calls to its former self are nobody's.
		*n = lane{name: n.name, member: true, healthy: true}
		for r, s := range g.out {
			if s.lane == n {
				delete(g.out, r)
			}
		}
	case balancer.UpstreamLeft:
		n.member = false
	case balancer.UpstreamHealthy, balancer.UpstreamUnhealthy:
		n.healthy = l.Event == balancer.UpstreamHealthy
	case balancer.UpstreamEjected:
		n.ejected, n.until = true, l.Until
	case balancer.UpstreamReturned:
		n.ejected = false
	case balancer.BreakerOpened:
		n.breaker, n.reopens = breaker.Open, l.Until
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
			b.WriteString(describe(n.name, n.healthy, n.ejected, n.breaker, n.inflight, n.served, n.failed))
		}
	}
	return b.String()
}

// describe is one upstream as both sides of a Divergence show it.
func describe(id string, healthy, ejected bool, state breaker.State, inflight int, served, failed uint64) string {
	health, in := "healthy", "in"
	if !healthy {
		health = "unhealthy"
	}
	if ejected {
		in = "ejected"
	}
	return fmt.Sprintf("%s: %s, %s, breaker %v, %d in flight, %d served, %d failed\n", id, health, in, state, inflight, served, failed)
}

// snapshotText is the state of a Pool in the same form.
func snapshotText(s balancer.Snapshot) string {
	var b strings.Builder
	for _, u := range s.Upstreams {
		b.WriteString(describe(u.ID, u.Healthy, u.Ejected, u.Breaker, u.Inflight, u.Served, u.Failures))
	}
	return b.String()
}
