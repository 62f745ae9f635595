package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Kind is what a Change does to the servers it names. The zero Kind is not valid.
type Kind uint8

const (
	// Brownout makes services Factor times as long, or, if Service is set, draws
	// them from that instead.
	Brownout Kind = iota + 1
	// Errors makes a share Share of the services end in a Failure.
	Errors
	// Sinkhole answers every new request, or a share Share of them, with a Failure
	// at once: after Service, if zero constant 500µs. It looks like the fastest
	// server of all.
	Sinkhole
	// BlackHole accepts every new request and never answers.
	BlackHole
	// ColdStart makes services longer by a factor that falls off as For over the
	// time passed, from Factor at most to 1 at the end. With Every set the servers
	// start one after the other, Every apart, as after a Roll.
	ColdStart
	// Down refuses every request with a TransportFailure, after FailTime, and all
	// that the servers have fails so at once, be it in service, waiting, about to
	// be refused, held by a Stall or swallowed by a BlackHole. With the name of a
	// zone it is the loss of the zone.
	Down
	// Flapping is Down for the first half of every period Every.
	Flapping
	// Roll takes the servers out of every client's Pool, one after the other,
	// Every apart and each for For, and puts each back as a new one. They finish
	// what they have.
	Roll
	// Stall stops all work, as a process that is suspended does: nothing begins and
	// nothing ends. What is under way, refusals too, takes that much longer. What
	// arrives meanwhile is noticed when it is over, in the order of arrival, and
	// only then finds a worker, a place in the queue, or neither. A server that is
	// Down refuses all the same.
	Stall
	// Refusals answers a share Share of the new requests with a TransportFailure,
	// after Service, if zero constant 500µs.
	Refusals
	// Surge multiplies the rate of all clients that have a Rate by Factor, at once
	// and until it ends: what is left of the time to a client's next request changes
	// by that ratio. It names no server.
	Surge
)

var kindNames = [...]string{
	Brownout: "brownout", Errors: "errors", Sinkhole: "sinkhole", BlackHole: "black_hole", ColdStart: "cold_start",
	Down: "down", Flapping: "flapping", Roll: "roll", Stall: "stall", Refusals: "refusals", Surge: "surge",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// MarshalText returns the name of the kind. It never fails.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the inverse of MarshalText. The error lists the names.
func (k *Kind) UnmarshalText(b []byte) error {
	i := slices.Index(kindNames[:], string(b))
	if i <= 0 {
		return fmt.Errorf("want one of %s", strings.Join(kindNames[1:], ", "))
	}
	*k = Kind(i)
	return nil
}

// Change is one thing that happens to some servers for a time. Where several
// apply to one server at once, all do, and of the same setting the last of the
// script counts. A Change is plain data and safe for concurrent use while nobody
// writes to it.
type Change struct {
	// Kind is what happens.
	Kind Kind
	// At is when it begins, before the requests of that instant.
	At time.Duration
	// For is how long it lasts. If zero, until the end of the run, of a Flapping
	// until Duration. A ColdStart and a Roll must have one.
	For time.Duration
	// Servers names what it happens to: the id of a server, the name of a group, or
	// "zone:" and the name of a zone. If empty, all.
	Servers string
	// First is how many of those, from the first. If zero, all.
	First int
	// Factor is for Brownout, ColdStart and Surge, more than 0 and up to 1e6. If
	// zero, 10.
	Factor float64
	// Share is for Errors, Sinkhole and Refusals, 0 to 1. If zero, 1.
	Share float64
	// Service is for Brownout, Sinkhole and Refusals.
	Service Dist
	// Every is for Flapping, of which it is at least a millionth of the time that it
	// lasts, for Roll and for ColdStart. If zero, 10s, and for a ColdStart all
	// servers at once.
	Every time.Duration
}

func (c Change) every() int64 {
	if c.Every == 0 {
		return int64(10 * time.Second)
	}
	return int64(c.Every)
}

func (c Change) factor() uint64 {
	if c.Factor == 0 {
		return 10 * q16
	}
	return max(1, fixed16(c.Factor))
}

// share is Share as a threshold.
func (c Change) share() uint64 {
	if c.Share == 0 {
		return q32
	}
	return threshold(c.Share)
}

// lasts is how long the change lasts in a run of some duration.
func (c Change) lasts(duration time.Duration) time.Duration {
	if c.For > 0 {
		return c.For
	}
	return duration - c.At
}

func (c Change) validate(field string, duration time.Duration, names names) error {
	switch {
	case c.Kind < Brownout || c.Kind > Surge:
		return bad(field+".Kind", c.Kind, "one of the Kind constants")
	case c.At < 0 || c.At > maxTime:
		return bad(field+".At", c.At, "0 to 48h")
	case c.For < 0 || c.For > maxTime:
		return bad(field+".For", c.For, "0 to 48h")
	case c.For == 0 && (c.Kind == ColdStart || c.Kind == Roll):
		return bad(field+".For", c.For, "more than 0 for a "+c.Kind.String())
	case !(c.Factor >= 0 && c.Factor <= maxFactor):
		return bad(field+".Factor", c.Factor, "0 to 1e6")
	case !(c.Share >= 0 && c.Share <= 1):
		return bad(field+".Share", c.Share, "0 to 1")
	case c.Every < 0 || c.Every > maxTime || c.Every == 1:
		return bad(field+".Every", c.Every, "0, or 2ns to 48h")
	case c.Kind == Flapping && c.lasts(duration)/time.Duration(c.every()) > 1e6:
		return bad(field+".Every", c.Every, "at least a millionth of the time that it lasts")
	case c.First < 0:
		return bad(field+".First", c.First, ">= 0")
	case c.Kind != Surge && !names.has(c.Servers):
		return bad(field+".Servers", fmt.Sprintf("%q", c.Servers), "the id of a server, the name of a group, or zone:NAME")
	}
	return c.Service.validate(field + ".Service")
}

// never is the instant of what will not happen.
const never = math.MaxInt64

// play is a Change with what it needs at run time.
type play struct {
	Change
	servers []int
	end     int64 // never, if it has none
	service sampler
	load    uint64 // of a Surge, in q40
	result  *ChangeResult
	ejected []bool // by client*len(servers)+rank: counted
	pending []bool // by rank: over, and no success since

	unhealthy []bool // as ejected; nil without checks
}

// span is when the change concerns the server of a rank.
func (p *play) span(rank int) (from, to int64) {
	from, to = int64(p.At), p.end
	if p.staggered() {
		from = satAdd(from, int64(satMul(uint64(rank), uint64(p.every()))))
		to = satAdd(from, int64(p.For))
	}
	return from, to
}

// staggered tells whether the servers have their turns one after the other.
func (c Change) staggered() bool { return c.Kind == Roll || c.Kind == ColdStart && c.Every > 0 }

// active tells whether the change acts on the server of a rank at now. It is a
// function of the time alone, so that no boundary can be missed.
func (p *play) active(rank int, now int64) bool {
	from, to := p.span(rank)
	if now < from || now >= to {
		return false
	}
	return p.Kind != Flapping || (now-from)%p.every() < p.every()/2
}

// next is the first boundary after now.
func (p *play) next(now int64) int64 {
	at := int64(never)
	see := func(t int64) {
		if t > now && t < at {
			at = t
		}
	}
	if p.staggered() {
		for rank := range p.servers {
			from, to := p.span(rank)
			see(from)
			see(to)
		}
		return at
	}
	from := int64(p.At)
	see(from)
	see(p.end)
	if p.Kind == Flapping && now >= from && now < p.end {
		period := (now - from) / p.every() * p.every()
		for _, t := range []int64{period + p.every()/2, period + p.every()} {
			if from+t < p.end {
				see(from + t)
			}
		}
	}
	return at
}

// effect is what the script makes of one server at the moment.
type effect struct {
	factor   uint64 // of a brownout, in q16
	service  *sampler
	errors   uint64 // threshold; the server's own if no change says otherwise
	sink     *sampler
	sinks    uint64 // threshold
	refusal  *sampler
	refusals uint64 // threshold
	hole     bool
	down     bool
	out      bool
	stalled  bool
	cold     uint64 // the factor at most; 0 if warm
	coldFrom int64
	coldFor  int64
}

// slow is how many times longer a service that begins now takes.
func (e *effect) slow(now int64) uint64 {
	f := e.factor
	if e.cold > q16 {
		passed := max(1, now-e.coldFrom)
		if c := min(e.cold, scaledDiv(e.coldFor, passed)); c > q16 {
			f = uint64(shiftSat(f, c, 16))
		}
	}
	return f
}

// scaledDiv is a/b in q16. a is at most maxTime, which leaves the 16 places.
func scaledDiv(a, b int64) uint64 { return uint64(a) << 16 / uint64(b) }

// script applies what the script says for now and schedules the next boundary.
//
// What happens at one instant happens everywhere before anybody reacts to it:
// first the servers, then who is in the Pools, and then the clients learn what has
// failed and try again. Server by server, a retry could go to one that is about
// to fail, or overtake what has long been waiting.
func (m *machine) script() {
	load := uint64(q40)
	was := m.effects
	m.effects, m.spare = m.spare[:0], was
	for i := range m.servers {
		m.effects = append(m.effects, effect{factor: q16, errors: m.servers[i].errors})
	}
	next := int64(never)
	for i := range m.plays {
		p := &m.plays[i]
		next = min(next, p.next(m.now))
		if p.Kind == Surge {
			if p.active(0, m.now) {
				load = p.load
			}
			continue
		}
		for rank, si := range p.servers {
			if p.active(rank, m.now) {
				m.effects[si].apply(p, rank)
			}
			if _, to := p.span(rank); to == m.now {
				p.pending[rank] = true
				m.servers[si].pending++
			}
		}
	}
	if next != never {
		// Before all else that happens at that instant.
		m.pushSeq(next, 0, evScript, 0, 0)
	}
	if load != m.load {
		m.reload(load)
	}
	moved := false
	for si := range m.servers {
		old, e := &was[si], &m.effects[si]
		moved = moved || old.out != e.out
		if e.down && !old.down {
			m.crash(si)
		}
		switch {
		case e.stalled && !old.stalled:
			m.freeze(si)
		case old.stalled && !e.stalled:
			m.thaw(si)
		}
	}
	if moved {
		m.updatePools()
	}
	m.fail()
}

func (e *effect) apply(p *play, rank int) {
	switch p.Kind {
	case Brownout:
		if p.Service.isZero() {
			e.factor = p.factor()
		} else {
			e.service = &p.service
		}
	case Errors:
		e.errors = p.share()
	case Sinkhole:
		e.sink, e.sinks = &p.service, p.share()
	case Refusals:
		e.refusal, e.refusals = &p.service, p.share()
	case BlackHole:
		e.hole = true
	case ColdStart:
		from, _ := p.span(rank)
		e.cold, e.coldFrom, e.coldFor = p.factor(), from, int64(p.For)
	case Down, Flapping:
		e.down = true
	case Roll:
		e.out = true
	case Stall:
		e.stalled = true
	}
}
