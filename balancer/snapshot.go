package balancer

import (
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
)

// Totals are counts since the Pool was made. Inflight is a gauge.
type Totals struct {
	Requests  uint64 // begun, by Acquire or the first Next of a Try
	Attempts  uint64 // leases given out
	Inflight  uint64 // leases not released
	Successes uint64 // attempts that ended as Success
	Failures  uint64 // as Failure or TransportFailure
	Ignored   uint64 // as Ignored
	Refused   uint64 // picks that found nothing
	Retries   uint64 // attempts after a request's first
	Failovers uint64 // retries that went to another upstream

	Granted uint64 // retries that the budget granted
	Denied  uint64 // and refused

	Ejections uint64 // by the outlier detector
	Trips     uint64 // of breakers into open

	BadPicks   uint64 // answers of a Picker that were not usable
	HookPanics uint64 // panics of OnEvent that were recovered
}

// Snapshot is the state of a Pool at one instant.
type Snapshot struct {
	At        time.Time // the instant
	Policy    string    // name of the policy
	Seed      uint64    // of every draw
	Totals    Totals    // counts since the Pool was made
	Tokens    float64   // what the retry budget holds
	Fallback  bool      // nothing is selectable, and ejections are being ignored
	Upstreams []Status  // in the order of the latest Update
}

// Status is the state of one upstream.
type Status struct {
	ID       string // as the Upstream says
	Weight   int    // 0 for no traffic
	Priority int    // its tier

	// Ramp is what it takes of its traffic, in thousandths: 1000 in full service,
	// less on its way back from an ejection if Config.Outlier.Return is a ramp, 0
	// while it is ejected.
	Ramp int

	// Expected is the share of its tier's traffic, 0 to 1, that its weight and its
	// ramp come to beside those of the others that are not out, at the instant of
	// the Snapshot; one that is at its limit is not out in this. A Policy that goes
	// by load, latency or keys departs from it as these differ, and one that does
	// not look at weights if they do: see Config.IgnoreWeights.
	Expected float64

	// Selectable says whether the next pick may choose it. If not, Why has the
	// reasons and Returns when time alone will end the last of those that time
	// ends; zero if none of them does.
	Selectable bool
	Why        []string
	Returns    time.Time

	Healthy  bool          // the bit that SetHealth sets
	Note     string        // reason of the latest SetHealth
	Ejected  bool          // by the outlier detector
	Breaker  breaker.State // as it is at the Snapshot's instant
	Inflight int           // leases not released
	Oldest   time.Duration // age of the oldest call without an answer

	Latency  time.Duration // decayed estimate
	Measured bool          // Latency was measured at all

	Served    uint64 // attempts with an outcome other than Ignored
	Failures  uint64 // those of them that failed
	Ejections int    // how often it was ejected
	Trips     uint64 // how often its breaker opened
}

// Snapshot describes the Pool at the clock's time. It is a read: it changes
// nothing that happens later, and what time alone has brought since the latest
// input shows in it, though its event is still to come. O(n).
func (p *Pool[U]) Snapshot() Snapshot {
	now := p.e.read()
	p.e.mu.Lock()
	defer p.e.unlock()
	return p.e.snapshot(max(now, p.e.now))
}

func (e *engine) snapshot(now int64) Snapshot {
	s := Snapshot{
		At: e.time(now), Policy: e.policy.Name(), Seed: e.seed,
		Totals: e.totals, Tokens: e.budget.Balance(now),
		Upstreams: make([]Status, len(e.hosts)),
	}
	selectable, spare, full := 0, 0, 0
	whys := make([]reasons, len(e.hosts))
	for i, h := range e.hosts {
		st, why := e.status(h, now)
		s.Upstreams[i], whys[i] = st, why
		selectable += b2i(why == 0)
		spare += b2i(why == outEjected)
		full += b2i(why == outFull)
	}
	s.Fallback = e.whenNone == IgnoreEjections && selectable == 0 && full == 0 && spare > 0
	s.expect(whys)
	return s
}

func (e *engine) status(h *host, now int64) (Status, reasons) {
	// Everything that time decides is asked afresh: h.why is as of the latest
	// input.
	why := h.why &^ (outEjected | outOpen | outTrialing)
	ejected := e.outliers.EjectedAt(now, &h.outlier)
	state := h.breaker.State(now)
	var ready, returns int64
	if ejected {
		why |= outEjected
		ready = h.outlier.Until()
	}
	if !h.breaker.Ready(now) {
		why |= outOpen
		if state == breaker.HalfOpen {
			why = why&^outOpen | outTrialing
		}
		ready = max(ready, h.breaker.Until())
	}
	if ready != never {
		returns = ready
	}
	latency, measured := h.latency.Value(now)
	st := Status{
		ID: h.id, Weight: int(h.weight), Priority: int(h.priority), Ramp: fullRamp,
		Selectable: why == 0, Why: why.names(),
		Healthy: h.healthy, Note: h.noted(), Ejected: ejected, Breaker: state,
		Inflight: int(h.inflight), Oldest: time.Duration(h.waiting(now)),
		Latency: time.Duration(latency), Measured: measured,
		Served: h.served, Failures: h.failures, Ejections: h.outlier.Ejections(), Trips: h.trips,
	}
	switch {
	case ejected:
		st.Ramp = 0
	case e.ramps:
		// Of a host that time alone has made able to serve the detector does not know.
		since := int64(never)
		if h.healthy && h.weight > 0 && state != breaker.Open {
			since = h.breaker.Until()
		}
		st.Ramp = e.outliers.WeightSince(now, &h.outlier, since)
	}
	if returns != 0 {
		st.Returns = e.time(returns)
	}
	return st, why
}

// names lists the reasons, as events and exclusions spell them.
func (r reasons) names() []string {
	var out []string
	for bit, name := range [...]string{"unhealthy", "ejected", "circuit_open", "on_trial", "overloaded", "no_traffic"} {
		if r>>bit&1 != 0 {
			out = append(out, name)
		}
	}
	return out
}
