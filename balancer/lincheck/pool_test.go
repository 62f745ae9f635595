package lincheck_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

const (
	upstreams   = 2
	maxInflight = 2
)

// upstream is one of the two, with or without its limit.
type upstream struct{ number, limit int }

func (u upstream) ID() string       { return fmt.Sprint("u", u.number) }
func (u upstream) MaxInflight() int { return u.limit }

// poolIn is a call; lease is the number of the lease that an Acquire may bring
// and a release ends.
type poolIn struct {
	op     string
	lease  int
	number int // of the upstream
}

func (in poolIn) String() string {
	switch in.op {
	case "Acquire", "Success", "Ignored":
		return fmt.Sprintf("%s l%d", in.op, in.lease)
	case "Snapshot":
		return in.op
	}
	return fmt.Sprintf("%s u%d", in.op, in.number)
}

// poolOut is the answer of any method.
type poolOut struct {
	ok                     bool
	number                 int // the upstream of a lease
	count, unhealthy, full int // of a refusal
	inflight               [upstreams]int
	totals                 balancer.Totals
}

// Where a lease is: not held, or held on upstream lease-onFirst, or on one that
// has left the Pool.
const (
	released = iota
	orphan
	onFirst
)

type poolUpstream struct {
	member, sick bool
	inflight     int
}

type poolState struct {
	ups    [upstreams]poolUpstream
	leases [clients * calls]uint8
	totals balancer.Totals
}

// poolModel counts: an upstream takes a call if it is a member, healthy and below
// its limit, and which of those that do is not its business. A lease is released
// once, and one of an upstream that has left touches nobody's count.
func poolModel(s poolState, in poolIn, out poolOut) (poolState, bool) {
	var want poolOut
	switch in.op {
	case "Acquire":
		s.totals.Requests++
		for _, u := range s.ups {
			if u.member {
				want.count++
				if u.sick {
					want.unhealthy++
				}
				if u.inflight == maxInflight {
					want.full++
				}
			}
		}
		if u := &s.ups[out.number]; out.ok && u.member && !u.sick && u.inflight < maxInflight {
			u.inflight++
			s.leases[in.lease] = uint8(onFirst + out.number)
			s.totals.Attempts++
			s.totals.Inflight++
			want = poolOut{ok: true, number: out.number}
			break
		}
		for _, u := range s.ups {
			if u.member && !u.sick && u.inflight < maxInflight {
				return s, false
			}
		}
		s.totals.Refused++
	case "Success", "Ignored":
		where := s.leases[in.lease]
		s.leases[in.lease] = released
		if want.ok = where != released; !want.ok {
			break
		}
		if where >= onFirst {
			s.ups[where-onFirst].inflight--
		}
		s.totals.Inflight--
		if in.op == "Success" {
			s.totals.Successes++
		} else {
			s.totals.Ignored++
		}
	case "Healthy", "Unhealthy":
		u := &s.ups[in.number]
		if want.ok = u.member; want.ok {
			u.sick = in.op == "Unhealthy"
		}
	case "Join":
		s.ups[in.number].member = true
	case "Leave":
		s.ups[in.number] = poolUpstream{}
		for i, where := range s.leases {
			if where == uint8(onFirst+in.number) {
				s.leases[i] = orphan
			}
		}
	case "Snapshot":
		for i, u := range s.ups {
			want.inflight[i] = u.inflight
		}
		want.totals = s.totals
	}
	return s, out == want
}

// pool is what the histories are taken of.
type pool interface {
	do(in poolIn) poolOut
}

type realPool struct {
	*balancer.Pool[upstream]
	limit int

	mu     sync.Mutex // guards below, and no call of the Pool
	leases map[int]balancer.Lease[upstream]
}

func newPool(t *testing.T, policy balancer.Policy, limit, n int) *realPool {
	ups := []upstream{{0, limit}, {1, limit}}
	p, err := balancer.NewPool(balancer.Config{Clock: clock.NewManual(base), Seed: 1, Policy: policy}, ups[:n]...)
	if err != nil {
		t.Fatal(err)
	}
	return &realPool{Pool: p, limit: limit, leases: map[int]balancer.Lease[upstream]{}}
}

func (p *realPool) lease(i int) balancer.Lease[upstream] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leases[i]
}

func (p *realPool) do(in poolIn) (out poolOut) {
	switch in.op {
	case "Acquire":
		l, err := p.Acquire(balancer.Request{})
		var none *balancer.UnavailableError
		if errors.As(err, &none) {
			return poolOut{count: none.Upstreams, unhealthy: none.Unhealthy, full: none.Full}
		}
		p.mu.Lock()
		p.leases[in.lease] = l
		p.mu.Unlock()
		return poolOut{ok: err == nil, number: l.Upstream().number}
	case "Success":
		out.ok = p.lease(in.lease).Release(balancer.Success)
	case "Ignored":
		out.ok = p.lease(in.lease).Release(balancer.Ignored)
	case "Healthy", "Unhealthy":
		out.ok = p.SetHealth(upstream{number: in.number}.ID(), in.op == "Healthy", "") == nil
	case "Join", "Leave":
		// The first one always stays.
		ups := []upstream{{0, p.limit}, {1, p.limit}}
		if in.op == "Leave" {
			ups = ups[:1]
		}
		if err := p.Update(ups...); err != nil {
			panic(err)
		}
	case "Snapshot":
		s := p.Pool.Snapshot()
		for i, u := range s.Upstreams {
			out.inflight[i] = u.Inflight
		}
		out.totals = s.Totals
	}
	return out
}

// greedyPool has a Pool without limits and looks itself whether there is room.
type greedyPool struct{ *realPool }

func (p greedyPool) do(in poolIn) poolOut {
	if in.op == "Acquire" && p.Pool.Snapshot().Totals.Inflight >= maxInflight {
		return poolOut{count: 1, full: 1}
	}
	runtime.Gosched()
	return p.realPool.do(in)
}

// doublePool keeps its own record of what is released.
type doublePool struct {
	*realPool
	gone map[int]bool // guarded by mu
}

func (p doublePool) do(in poolIn) poolOut {
	if in.op != "Success" {
		return p.realPool.do(in)
	}
	p.mu.Lock()
	gone := p.gone[in.lease]
	p.mu.Unlock()
	runtime.Gosched()
	p.mu.Lock()
	p.gone[in.lease] = true
	p.mu.Unlock()
	p.realPool.do(in)
	return poolOut{ok: !gone}
}

// poolHistory lets the clients share the leases: any of them may release any,
// and some are released again.
func poolHistory(how schedule, p pool, ops ...string) []porcupine.Operation {
	var (
		mu   sync.Mutex
		held []int
		made [clients]int // each entry belongs to one client
	)
	return how.run(func(c *client) {
		in := poolIn{op: ops[c.IntN(len(ops))], number: c.IntN(upstreams)}
		switch in.op {
		case "Success", "Ignored":
			mu.Lock()
			if len(held) == 0 {
				in.op = "Acquire"
			} else if i := c.IntN(len(held)); c.IntN(3) == 0 {
				in.lease = held[i] // and again, later
			} else {
				in.lease = held[i]
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
			}
			mu.Unlock()
		case "Join", "Leave":
			in.number = 1
		}
		if in.op == "Acquire" {
			in.lease = c.id*calls + made[c.id]
			made[c.id]++
		}
		out := c.call(in, func() any { return p.do(in) }).(poolOut)
		if in.op == "Acquire" && out.ok {
			mu.Lock()
			held = append(held, in.lease)
			mu.Unlock()
		}
	})
}

func TestPool(t *testing.T) {
	both := poolState{ups: [upstreams]poolUpstream{{member: true}, {member: true}}}
	for i, policy := range []balancer.Policy{balancer.PeakEWMA{}, balancer.RoundRobin{}, balancer.LeastConn{}, balancer.WeightedRoundRobin{}} {
		t.Run("linearizable/"+policy.Name(), func(t *testing.T) {
			right(t, 10+uint64(i), model(both, poolModel), func(how schedule) []porcupine.Operation {
				return poolHistory(how, newPool(t, policy, maxInflight, 2), "Acquire", "Acquire", "Acquire", "Acquire", "Acquire", "Acquire",
					"Success", "Success", "Success", "Ignored", "Snapshot", "Healthy", "Healthy", "Unhealthy", "Join", "Leave")
			})
		})
	}
	one := both
	one.ups[1] = poolUpstream{}
	t.Run("a limit beside the lock is seen", func(t *testing.T) {
		wrong(t, 20, model(one, poolModel), func(how schedule) []porcupine.Operation {
			return poolHistory(how, greedyPool{newPool(t, nil, 0, 1)}, "Acquire", "Acquire", "Success")
		})
	})
	t.Run("a release that counts twice is seen", func(t *testing.T) {
		wrong(t, 21, model(one, poolModel), func(how schedule) []porcupine.Operation {
			return poolHistory(how, doublePool{newPool(t, nil, maxInflight, 1), map[int]bool{}}, "Acquire", "Success")
		})
	})
}
