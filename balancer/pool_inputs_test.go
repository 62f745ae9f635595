package balancer_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/outlier"
)

func (m *poolModel) update(set []balancer.Member) {
	m.input()
	find := func(id string) *incarnation {
		for _, h := range m.members {
			if h.id == id {
				return h
			}
		}
		return nil
	}
	for _, h := range m.members {
		if !slices.ContainsFunc(set, func(u balancer.Member) bool { return u.Name == h.id }) {
			m.det.Remove(m.now, &h.out)
			h.gone = true
			m.event(m.now, balancer.UpstreamLeft, h, 0, "", 0)
		}
	}
	var now, fresh []*incarnation
	for i, u := range set {
		h := find(u.Name)
		if h == nil {
			h = &incarnation{id: u.Name, healthy: !m.cfg.StartUnhealthy, br: m.proto.Fresh(1)}
			m.event(m.now, balancer.UpstreamJoined, h, 0, "", 0)
			fresh = append(fresh, h)
		}
		if m.cfg.IgnoreWeights {
			u.Share = 1
		}
		h.pos, h.out.Index, h.member = i, i, u
		now = append(now, h)
	}
	m.members = now
	for _, h := range fresh {
		m.det.Add(m.now, &h.out, uint64(h.pos))
	}
	m.serving(m.now)
}

// pickOn settles where a pick of the Pool's may have gone.
func (m *poolModel) pickOn(tried []*incarnation, l balancer.Lease[balancer.Member]) *incarnation {
	may, fallback := m.candidates(tried)
	for _, h := range may {
		if h.id == l.Upstream().Name {
			if l.Fallback() != fallback {
				m.fatalf("pick of %s says fallback %v", h.id, l.Fallback())
			}
			if l.Upstream().Limit != h.member.Limit || l.Upstream().Tier != h.member.Tier {
				m.fatalf("pick of %s carries the value of an earlier update", h.id)
			}
			return h
		}
	}
	m.fatalf("picked %s, which may not be", l.Upstream().Name)
	return nil
}

// attempt logs a lease on h.
func (m *poolModel) attempt(h *incarnation, real balancer.Lease[balancer.Member]) int {
	l := &modelLease{on: h, start: m.now, first: -1, open: true, real: real}
	l.tick, _ = h.br.Allow(m.now)
	m.leases = append(m.leases, l)
	m.log = append(m.log, entry{what: "attempt", on: h, at: m.now})
	m.tell(h, nil)
	m.serving(m.now)
	return len(m.leases) - 1
}

func (m *poolModel) refused(err error) {
	m.log = append(m.log, entry{what: "refused"})
	if may, _ := m.candidates(nil); len(may) > 0 {
		m.fatalf("%v, though %s may be picked", err, may[0].id)
	}
	if len(m.members) == 0 {
		if !errors.Is(err, balancer.ErrNoUpstreams) {
			m.fatalf("no upstreams: %v", err)
		}
		return
	}
	want := balancer.UnavailableError{Upstreams: len(m.members)}
	for _, h := range m.members {
		for _, r := range m.why(h, m.now) {
			switch r {
			case "unhealthy":
				want.Unhealthy++
			case "ejected":
				want.Ejected++
			case "circuit_open":
				want.Open++
			case "on_trial":
				want.Trialing++
			case "overloaded":
				want.Full++
			case "no_traffic":
				want.NoTraffic++
			}
		}
	}
	var got *balancer.UnavailableError
	if !errors.As(err, &got) || *got != want {
		m.fatalf("refused with %v, want %v", err, want)
	}
}

func (m *poolModel) acquire() {
	l, err := m.pool.Acquire(balancer.Request{Key: balancer.HashKey(uint64(m.choose("key", 4)) << 60)})
	m.input()
	m.log = append(m.log, entry{what: "request"})
	if err != nil {
		m.refused(err)
		return
	}
	m.attempt(m.pickOn(nil, l), l)
}

// settle ends lease i in the model.
func (m *poolModel) settle(i int, r balancer.Report) {
	l := m.leases[i]
	h := l.on
	l.open = false
	took := int64(r.Latency)
	if took == 0 {
		if took = m.now - l.start; l.first >= 0 {
			took = l.first - l.start
		}
	}
	m.log = append(m.log, entry{what: "end", on: h, lease: i, at: m.now, outcome: r.Outcome})
	if !judged(r.Outcome) {
		h.br.Cancel(m.now, l.tick)
	} else {
		h.br.DoneIn(m.now, l.tick, r.Outcome == balancer.Success, max(took, 0))
		if !h.gone {
			o := map[balancer.Outcome]outlier.Outcome{balancer.Failure: outlier.Failure, balancer.TransportFailure: outlier.TransportFailure}[r.Outcome]
			m.det.Record(m.now, &h.out, l.start, o, took)
		}
	}
	if h.gone {
		return
	}
	m.tell(h, m.verdicts()[&h.out])
	m.serving(m.now)
}

func (m *poolModel) report() balancer.Report {
	r := balancer.Report{Outcome: balancer.Outcome(m.choose("outcome", 5)), Retry: balancer.Verdict(max(0, m.choose("verdict", 6)-3))}
	switch m.choose("latency", 4) {
	case 0:
		r.Latency = time.Duration(m.choose("ms", 6)) * time.Millisecond
	case 1:
		r.Latency = -1
	}
	return r
}

// drawLease draws a lease, ended ones included.
func (m *poolModel) drawLease() (int, *modelLease) {
	if len(m.leases) == 0 {
		return 0, nil
	}
	i := m.choose("lease", len(m.leases))
	// Those that are out more often than those that have ended.
	for range 3 {
		if !m.leases[i].open {
			i = m.choose("lease", len(m.leases))
		}
	}
	return i, m.leases[i]
}

func (m *poolModel) answered() {
	if _, l := m.drawLease(); l != nil {
		l.real.Answered()
		if l.open && l.first < 0 {
			m.input()
			l.first = m.now
		}
	}
}

func (m *poolModel) release() {
	i, l := m.drawLease()
	if l == nil {
		return
	}
	r := m.report()
	if got := l.real.Settle(r); got != l.open {
		m.fatalf("release took effect: %v, want %v", got, l.open)
	}
	if l.open {
		m.input()
		m.settle(i, r)
	}
}

func (m *poolModel) start() {
	req := balancer.Request{Key: balancer.HashKey(uint64(m.choose("key", 4)) << 60)}
	deadline := int64(math.MaxInt64)
	if m.choose("deadline", 3) == 0 {
		deadline = m.clk.Now().UnixNano() + int64(m.choose("deadline ms", 12)-1)*unit
		req.Deadline = fromUnix(deadline)
	}
	m.tries = append(m.tries, &modelTry{real: m.pool.Start(req), deadline: deadline})
	m.next(len(m.tries) - 1)
}

// tried lists whom a request has tried.
func (m *poolModel) tried(t *modelTry) (out []*incarnation) {
	for _, i := range t.leases {
		out = append(out, m.leases[i].on)
	}
	return out
}

// again returns the upstream that is to be tried once more, nil if another one
// is, and whether there is any.
func (m *poolModel) again(t *modelTry) (same *incarnation, ok bool) {
	tried := m.tried(t)
	last := tried[len(tried)-1]
	run := 0
	for i := len(tried) - 1; i >= 0 && tried[i] == last; i-- {
		run++
	}
	if run <= m.cfg.Retry.SameUpstream && !last.gone && len(m.why(last, m.now)) == 0 {
		return last, true
	}
	may, _ := m.candidates(tried)
	return nil, len(may) > 0
}

func (m *poolModel) retries() int {
	if m.cfg.Retry.Off {
		return 0
	}
	return m.cfg.Retry.Max
}

// backoff is the wait before the n-th retry.
func (m *poolModel) backoff(n int) int64 {
	b := m.cfg.Retry.Backoff
	if b.Base == 0 {
		return 0
	}
	w := int64(b.Base)
	for range n - 1 {
		if b.Multiplier == 0 {
			w *= 2
		} else {
			w *= int64(b.Multiplier)
		}
	}
	return min(w, int64(b.Max))
}

// next asks a request what to do and does it.
func (m *poolModel) next(i int) {
	t := m.tries[i]
	step := t.real.Next()
	over := func(end balancer.End, err error) {
		t.ended, t.end = true, end
		if step.Kind != balancer.StepEnd || step.End != end || !errors.Is(step.Err, err) || err == nil && step.Err != nil {
			m.fatalf("step %+v, want the end %v with %v", step, end, err)
		}
	}
	if t.ended {
		over(t.end, nil)
		return
	}
	if t.out {
		if step.Kind != balancer.StepSend || step.Lease != m.leases[t.leases[len(t.leases)-1]].real {
			m.fatalf("step %+v, want the lease that is out", step)
		}
		return
	}
	m.input()
	send := func(h *incarnation) {
		if step.Kind != balancer.StepSend {
			m.fatalf("step %+v, want an attempt", step)
		}
		if h == nil {
			h = m.pickOn(m.tried(t), step.Lease)
		} else if step.Lease.Upstream().Name != h.id || step.Lease.Fallback() {
			m.fatalf("step %+v, want %s again", step, h.id)
		}
		if step.Lease.Attempt() != len(t.leases) {
			m.fatalf("attempt %d, want %d", step.Lease.Attempt(), len(t.leases))
		}
		t.leases = append(t.leases, m.attempt(h, step.Lease))
		t.out, t.failed, t.waiting = true, false, false
	}
	if len(t.leases) == 0 {
		m.log = append(m.log, entry{what: "request"})
		switch may, _ := m.candidates(nil); {
		case m.now >= t.deadline:
			over(balancer.EndDeadline, balancer.ErrDeadline)
		case len(may) == 0:
			if step.Kind != balancer.StepEnd || step.Err == nil {
				m.fatalf("step %+v, want the end", step)
			}
			m.refused(step.Err)
			over(balancer.EndUnavailable, step.Err)
		default:
			send(nil)
		}
		return
	}
	if !t.waiting {
		_, target := m.again(t)
		switch {
		case !t.failed:
			over(balancer.EndAnswered, nil)
			return
		case len(t.leases)-1 >= m.retries():
			over(balancer.EndAttempts, nil)
			return
		case m.now >= t.deadline:
			over(balancer.EndDeadline, nil)
			return
		case !target:
			over(balancer.EndNoTarget, nil)
			return
		case m.tokens() < 1:
			m.log = append(m.log, entry{what: "denied"})
			over(balancer.EndBudget, nil)
			return
		}
		m.log = append(m.log, entry{what: "granted"})
		wait := m.backoff(len(t.leases))
		if wait > 0 && t.deadline != math.MaxInt64 && m.now+wait >= t.deadline {
			m.log = append(m.log, entry{what: "refund"})
			over(balancer.EndDeadline, nil)
			return
		}
		t.waiting, t.until = true, m.now+wait
	}
	if m.now < t.until {
		if step.Kind != balancer.StepWait || int64(step.Wait) != t.until-m.now {
			m.fatalf("step %+v, want a wait of %d", step, t.until-m.now)
		}
		return
	}
	same, target := m.again(t)
	switch {
	case m.now >= t.deadline:
		m.log = append(m.log, entry{what: "refund"})
		over(balancer.EndDeadline, nil)
		return
	case !target:
		m.log = append(m.log, entry{what: "refund"})
		over(balancer.EndNoTarget, nil)
		return
	}
	m.log = append(m.log, entry{what: "retry"})
	if same == nil {
		m.log = append(m.log, entry{what: "failover"})
	}
	send(same)
}

func (m *poolModel) drawTry() (int, *modelTry) {
	if len(m.tries) == 0 {
		return 0, nil
	}
	i := m.choose("try", len(m.tries))
	for range 3 {
		if m.tries[i].ended {
			i = m.choose("try", len(m.tries))
		}
	}
	return i, m.tries[i]
}

func (m *poolModel) done(i int, r balancer.Report) {
	t := m.tries[i]
	t.real.Done(r)
	if !t.out {
		return
	}
	m.input()
	t.out = false
	if l := t.leases[len(t.leases)-1]; m.leases[l].open {
		m.settle(l, r)
	}
	t.failed = r.Outcome == balancer.TransportFailure || r.Outcome == balancer.Failure && m.cfg.Retry.OnFailure
	if (r.Outcome == balancer.TransportFailure || r.Outcome == balancer.Failure) && r.Retry != balancer.RetryDefault {
		t.failed = r.Retry == balancer.RetryAllowed
	}
	if !t.failed {
		t.ended, t.end = true, balancer.EndAnswered
	}
}

func (m *poolModel) stop() {
	_, t := m.drawTry()
	if t == nil {
		return
	}
	t.real.Stop()
	if t.ended {
		return
	}
	m.input()
	if l := t.leases[len(t.leases)-1]; t.out && m.leases[l].open {
		m.settle(l, balancer.Report{})
	}
	if t.waiting {
		m.log = append(m.log, entry{what: "refund"})
	}
	t.ended, t.out, t.end = true, false, balancer.EndStopped
}

func (m *poolModel) health() {
	id := string(rune('a' + m.choose("id", 7)))
	ok, note := m.choose("healthy", 3) > 0, fmt.Sprint("note ", m.choose("note", 3))
	err := m.pool.SetHealth(id, ok, note)
	m.input()
	for _, h := range m.members {
		if h.id != id {
			continue
		}
		if err != nil {
			m.fatalf("health of %s: %v", id, err)
		}
		if h.healthy != ok {
			h.healthy = ok
			kind := balancer.UpstreamUnhealthy
			if ok {
				kind = balancer.UpstreamHealthy
			}
			m.event(m.now, kind, h, 0, note, 0)
			m.serving(m.now)
		}
		return
	}
	if !errors.Is(err, balancer.ErrUnknownUpstream) {
		m.fatalf("health of %s: %v", id, err)
	}
}

// pass lets time go by: to what is due next, to just before it, or anywhere; at
// times the clock goes back.
func (m *poolModel) pass() {
	d := int64(m.choose("time", 6))*unit + int64(m.choose("ns", 3)-1)
	switch due := m.nextChange(); m.choose("how", 5) {
	case 0, 1:
		if due != math.MaxInt64 {
			d = due - m.clk.Now().UnixNano()
		}
	case 2:
		if due != math.MaxInt64 {
			d = due - 1 - m.clk.Now().UnixNano()
		}
	case 3:
		d = int64(m.choose("long", 60)) * unit
	}
	m.clk.Set(m.clk.Now().Add(time.Duration(d)))
}
