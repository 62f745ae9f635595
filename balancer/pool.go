// Package balancer keeps requests flowing to backends that misbehave. A [Pool]
// holds the upstreams of one service and decides, for each attempt, which of
// them to use: load balancing, circuit breaking, outlier ejection, latency
// scoring, affinity and the retry budget meet in one short critical section, so
// that a decision always sees one consistent state and an incident can be
// replayed from its inputs.
//
// The shortest way to use it is [Pool.Do]:
//
//	pool, err := balancer.NewPool(balancer.Config{}, hosts...)
//	...
//	err = pool.Do(ctx, balancer.Request{}, func(ctx context.Context, h Host) error {
//		return h.Call(ctx)
//	})
//
// A proxy that sends by itself acquires a [Lease] for each attempt and settles
// it with the [Outcome]; [Pool.Start] adds retries that know what they have
// tried and what they may still spend.
//
// # Decisions
//
// An upstream is selectable when it is healthy, not ejected, its breaker would
// admit a call, it is below its MaxInflight, its weight is not 0, and the
// request at hand has not tried it. Of the tiers of Priority the first with a
// selectable upstream is used. If none has one, Config.WhenNone decides. Which
// of a tier's selectable upstreams is picked is the [Policy]'s business, and so is
// how one that comes back from an ejection takes a part of its traffic first, if
// Config.Outlier says that it does.
//
// Every decision is a function of (Config, seed, ordered inputs). Time comes
// from Config.Clock and moves with inputs only: reading a Snapshot changes
// nothing. Random draws are keyed by seed, request and attempt. The inputs -
// Acquire, Release, Update, SetHealth, Poll - are critical sections of one
// lock; events are numbered in that order.
package balancer

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Pool is a set of upstreams and what is known about each. U is what the caller
// needs to reach one: a URL, a client, a struct with an ID method.
//
// The zero Pool is not usable: make one with NewPool or RestorePool. All
// methods are safe for concurrent use.
type Pool[U Upstream] struct {
	e engine
	// ups holds the caller's values in the order of the latest Update. Guarded by
	// the engine's lock.
	ups []U
}

// NewPool returns a Pool over the given upstreams. With none it is empty until
// the first Update. Errors are *ConfigError.
func NewPool[U Upstream](cfg Config, ups ...U) (*Pool[U], error) {
	p := &Pool[U]{}
	if err := p.e.init(cfg); err != nil {
		return nil, err
	}
	if err := p.Update(ups...); err != nil {
		return nil, err
	}
	return p, nil
}

// entropy draws a seed for a Config that has none: never 0.
func entropy() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]) | 1, nil
}

// Seed returns the seed of the Pool's draws, for the record.
func (p *Pool[U]) Seed() uint64 { return p.e.seed }

// Update makes the given upstreams the Pool's members, in this order. An id
// that stays keeps all its state - health, ejection, breaker, scores, calls in
// flight - and takes on the new value and the new weight, priority and limit.
// An id that is gone loses all of it; calls in flight finish on the object they
// hold, and touch nobody else's counts. An id that comes back is new. The whole
// set is checked first: on an error nothing changes.
//
// Update costs O(n) and whatever the Policy's tables cost.
func (p *Pool[U]) Update(ups ...U) error {
	set := make([]traits, len(ups))
	for i, u := range ups {
		t, err := describe(u)
		if err != nil {
			return err
		}
		if p.e.ignoreWeights {
			t.weight = 1
		}
		set[i] = t
	}
	if err := distinct(set); err != nil {
		return err
	}
	own := append([]U(nil), ups...)
	now := p.e.read()
	p.e.mu.Lock()
	defer p.e.unlock()
	now = p.e.advance(now)
	p.ups = own // first: a NewPicker may panic
	p.e.update(now, set)
	return nil
}

// Acquire picks an upstream for one attempt and returns the lease on it, which
// must be released. It never blocks. Each call counts as a request of its own:
// use Start, or Do, for attempts that belong together. Errors match
// ErrNoUpstreams or ErrNoneAvailable.
func (p *Pool[U]) Acquire(req Request) (Lease[U], error) {
	now := p.e.read()
	p.e.mu.Lock()
	defer p.e.unlock()
	i, err := p.e.acquireSole(p.e.advance(now), &req)
	if err != nil {
		return Lease[U]{}, err
	}
	return p.lease(i), nil
}

// Poll is an input that only moves time: changes that have become due - an
// ejection's end, a breaker's half-open - take effect and their events are
// delivered, without waiting for the next request. It moves no pick of the policies
// here, with one exception: where an upstream has come onto a ramp, and the next
// input would have been an Update, what it has on the way to its first turn is
// reckoned in the old order and the old tier.
func (p *Pool[U]) Poll() {
	now := p.e.read()
	p.e.mu.Lock()
	defer p.e.unlock()
	p.e.advance(now)
	p.e.open(RecordPoll, 0)
}

// NextChange returns when state next changes by time alone, and whether it
// will: a good time for a Poll.
func (p *Pool[U]) NextChange() (time.Time, bool) {
	p.e.mu.Lock()
	defer p.e.unlock()
	if p.e.due == never {
		return time.Time{}, false
	}
	return p.e.time(p.e.due), true
}

// SetHealth sets the health bit of an upstream, as active checks or an operator
// see it; reason goes into the event and the snapshot. A good one ends an
// ejection early if Config.Outlier.ProbeEnds says so, also where the bit was set
// already; a bad one never does. It returns
// ErrUnknownUpstream for an id that is not a member.
func (p *Pool[U]) SetHealth(id string, healthy bool, reason string) error {
	now := p.e.read()
	p.e.mu.Lock()
	defer p.e.unlock()
	return p.e.setHealth(p.e.advance(now), id, healthy, reason)
}

// Selectable is how many upstreams were selectable after the latest input: what
// time alone has brought since is not in it, nor is what the next request has
// tried. O(1).
func (p *Pool[U]) Selectable() int {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.e.selectable
}

// Detach ends the recording on t, unless another tape has taken its place.
func (p *Pool[U]) Detach(t *Tape) {
	p.e.mu.Lock()
	defer p.e.unlock()
	if t != nil && p.e.tape == t {
		p.e.tape, p.e.taped = nil, len(p.e.queue)
	}
}
