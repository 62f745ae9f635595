package balancer_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"pgregory.net/rapid"
)

// The model is the Pool by its definition: a log of everything that happened,
// from which counts, loads and the course of each request are worked out anew
// whenever they are asked for. Only the readiness of breakers and the verdicts
// of the detector come from cores of their own, one breaker per member and one
// detector, which the model feeds.

// incarnation is one stay of an id in the Pool.
type incarnation struct {
	id      string
	pos     int
	member  balancer.Member
	healthy bool
	gone    bool
	br      breaker.Core
	out     outlier.Host
}

// entry is one thing that happened.
type entry struct {
	what    string // request, refused, attempt, answered, end, retry, failover, granted, denied, deposit, refund, ejected, tripped
	on      *incarnation
	lease   int
	at      int64
	outcome balancer.Outcome
}

// modelLease is an attempt as the model and the Pool see it.
type modelLease struct {
	on    *incarnation
	start int64
	first int64 // byte of the answer; -1 for none
	open  bool
	tick  breaker.Ticket
	real  balancer.Lease[balancer.Member]
}

// modelTry is a request of several attempts.
type modelTry struct {
	real     balancer.Try[balancer.Member]
	deadline int64
	leases   []int
	failed   bool // the latest attempt may be tried again
	waiting  bool
	until    int64
	out      bool
	ended    bool
	end      balancer.End
}

type poolModel struct {
	fatalf func(string, ...any)
	choose func(what string, n int) int

	cfg    balancer.Config
	clk    *clock.Manual
	pool   *balancer.Pool[balancer.Member]
	events []balancer.Event // delivered

	now     int64
	members []*incarnation
	det     *outlier.Core
	proto   breaker.Core
	log     []entry
	leases  []*modelLease
	tries   []*modelTry
	want    []balancer.Event
}

const unit = int64(time.Millisecond)

func fromUnix(at int64) time.Time { return time.Unix(0, at) }

// newPoolModel makes a Pool with a drawn configuration, and the model of it.
func newPoolModel(fatalf func(string, ...any), choose func(string, int) int) *poolModel {
	m := &poolModel{fatalf: fatalf, choose: choose, clk: clock.NewManual(time.Unix(0, 0))}
	ms := func(what string, n int) time.Duration { return time.Duration(choose(what, n)+1) * time.Millisecond }
	yes := func(what string, oneIn int) bool { return choose(what, oneIn) == oneIn-1 }
	policies := []balancer.Policy{first, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{}, balancer.RoundRobin{IndexCursor: true}}
	m.cfg = balancer.Config{
		Policy: policies[choose("policy", len(policies))], Seed: 7, Clock: m.clk,
		WhenNone:       balancer.WhenNone(choose("when none", 2)),
		StartUnhealthy: yes("start unhealthy", 6), IgnoreWeights: yes("ignore weights", 6),
		Breaker: breaker.Config{
			Off: yes("breaker off", 6), ConsecutiveFailures: choose("trip", 4) + 1, OpenFor: ms("open", 6), OpenGrowth: 2, OpenMax: 40 * time.Millisecond,
			Trials: choose("trials", 2) + 1, Passes: choose("passes", 2) + 1, TrialTimeout: ms("trial timeout", 8),
		},
		Outlier: outlier.Config{
			Off: yes("outlier off", 6), Shadow: yes("shadow", 8), Consecutive: choose("eject", 3) + 1, Base: ms("base", 6), Max: 30 * time.Millisecond,
			MaxEjectedPercent: 50 * (choose("cap", 2) + 1), Last: outlier.LastRule(choose("last", 3)), Return: outlier.ReturnMode(choose("return", 3)),
			RampFrom: 1 + choose("ramp from", 5)*240, RampStep: ms("ramp step", 4), RampGrowth: 1500, Interval: 10 * time.Millisecond,
		},
		Retry: balancer.Retry{
			Off: yes("retry off", 8), Max: choose("retries", 4) + 1, SameUpstream: choose("same", 3), OnFailure: yes("on failure", 2),
		},
		// Tokens in whole numbers: three at first and at most, one more for each
		// success, one for each retry.
		Budget:  retrybudget.Config{Capacity: 3, PerSuccess: 1, PerSecond: -1},
		OnEvent: func(e balancer.Event) { m.events = append(m.events, e) },
	}
	if yes("flaps", 3) {
		m.cfg.Breaker.FlapTransitions, m.cfg.Breaker.FlapWindow = 3, ms("flap window", 20)
	}
	if yes("slow", 3) {
		m.cfg.Breaker.SlowRate, m.cfg.Breaker.SlowAfter, m.cfg.Breaker.MinCalls = 0.5, ms("slow after", 4), 3
	}
	if yes("late", 3) {
		m.cfg.Breaker.LateFailure = breaker.LateRestart
	}
	if yes("percentage", 3) {
		m.cfg.Outlier.FailurePercentage = outlier.FailurePercentage{On: true, Threshold: 50, MinHosts: 1, MinRequests: 3, Inline: yes("inline", 2)}
	}
	if yes("backoff", 2) {
		m.cfg.Retry.Backoff = balancer.Backoff{Base: ms("backoff base", 3), JitterPercent: -1, Multiplier: choose("multiplier", 3), Max: 7 * time.Millisecond}
	}
	m.det = outlier.NewCore(m.cfg.Outlier, 1)
	m.proto = breaker.NewCore(m.cfg.Breaker, 1)
	set := m.drawMembers()
	p, err := balancer.NewPool(m.cfg, set...)
	if err != nil {
		m.fatalf("new pool: %v", err)
	}
	m.pool = p
	m.update(set)
	m.check()
	return m
}

func (m *poolModel) drawMembers() (set []balancer.Member) {
	ids := []string{"a", "b", "c", "d", "e", "f"}
	n := m.choose("members", len(ids)+1)
	for range n {
		i := m.choose("id", len(ids))
		set = append(set, balancer.Member{
			Name: ids[i], Share: (m.choose("weight", 5) + 1) % 5, Tier: m.choose("tier", 3) / 2, Limit: max(0, m.choose("limit", 5)-2),
		})
		ids = slices.Delete(ids, i, i+1)
	}
	return set
}

func (m *poolModel) count(what string, on *incarnation, ok func(entry) bool) (n uint64) {
	for _, e := range m.log {
		if e.what == what && (on == nil || e.on == on) && (ok == nil || ok(e)) {
			n++
		}
	}
	return n
}

func (m *poolModel) inflight(h *incarnation) (n int) {
	for _, l := range m.leases {
		if l.open && (h == nil || l.on == h) {
			n++
		}
	}
	return n
}

func judged(o balancer.Outcome) bool { return o >= balancer.Success && o <= balancer.TransportFailure }

// tokens replays the budget.
func (m *poolModel) tokens() int {
	n := 3
	for _, e := range m.log {
		switch {
		case e.what == "end" && e.outcome == balancer.Success, e.what == "refund":
			n = min(n+1, 3)
		case e.what == "granted":
			n--
		}
	}
	return n
}

// why lists the reasons that keep h out at an instant not before the latest
// input, in the order in which they are documented.
func (m *poolModel) why(h *incarnation, now int64) (out []string) {
	if !h.healthy {
		out = append(out, "unhealthy")
	}
	if m.det.EjectedAt(now, &h.out) {
		out = append(out, "ejected")
	}
	switch {
	case h.br.Ready(now):
	case h.br.State(now) == breaker.HalfOpen:
		out = append(out, "on_trial")
	default:
		out = append(out, "circuit_open")
	}
	if h.member.Limit > 0 && m.inflight(h) >= h.member.Limit {
		out = append(out, "overloaded")
	}
	if h.member.Share == 0 {
		out = append(out, "no_traffic")
	}
	return out
}

// candidates are the members that a request which has tried some may be sent to.
func (m *poolModel) candidates(tried []*incarnation) (may []*incarnation, fallback bool) {
	var good, spare []*incarnation
	full := false
	for _, h := range m.members {
		switch why := m.why(h, m.now); {
		case len(why) == 0:
			good = append(good, h)
		case slices.Equal(why, []string{"ejected"}):
			spare = append(spare, h)
		case slices.Equal(why, []string{"overloaded"}):
			full = true
		}
	}
	if len(good) == 0 {
		if m.cfg.WhenNone == balancer.FailFast || full {
			return nil, false
		}
		good, fallback = spare, true
	}
	best := math.MaxInt
	for _, h := range good {
		if slices.Contains(tried, h) {
			continue
		}
		if h.member.Tier < best {
			may, best = nil, h.member.Tier
		}
		if h.member.Tier == best {
			may = append(may, h)
		}
	}
	return may, fallback && len(may) > 0
}

func (m *poolModel) event(at int64, kind balancer.EventKind, h *incarnation, until int64, rule string, count int) {
	e := balancer.Event{Seq: uint64(len(m.want) + 1), At: fromUnix(at), Kind: kind, Upstream: h.id, Rule: rule, Count: count}
	if until != 0 {
		e.Until = fromUnix(until)
	}
	m.want = append(m.want, e)
}

// verdicts takes what the detector says, by member.
func (m *poolModel) verdicts() map[*outlier.Host][]outlier.Change {
	by := map[*outlier.Host][]outlier.Change{}
	for {
		c, ok := m.det.Pop()
		if !ok {
			return by
		}
		by[c.Host] = append(by[c.Host], c)
	}
}

// tell makes events of one member's verdicts and of what its breaker says.
func (m *poolModel) tell(h *incarnation, changes []outlier.Change) {
	for _, c := range changes {
		switch c.Kind {
		case outlier.Ejected:
			m.log = append(m.log, entry{what: "ejected", on: h})
			m.event(c.At, balancer.UpstreamEjected, h, c.Until, c.Rule.String(), int(c.Seen))
		case outlier.Returned:
			rule := c.Cause.String()
			if c.Cause == 0 {
				rule = ""
			}
			m.event(c.At, balancer.UpstreamReturned, h, 0, rule, 0)
		case outlier.Spared, outlier.WouldEject:
			m.event(c.At, balancer.EjectionWithheld, h, 0, c.Rule.String(), int(c.Seen))
		}
	}
	for {
		c, ok := h.br.Pop()
		if !ok {
			return
		}
		switch {
		case c.Kind == breaker.TrialLost:
			m.event(c.At, balancer.TrialLost, h, 0, "expired", 0)
		case c.Kind == breaker.TrialAbandoned:
			m.event(c.At, balancer.TrialLost, h, 0, "abandoned", 0)
		case c.Kind == breaker.FlapStarted:
			m.event(c.At, balancer.BreakerFlapping, h, 0, "", 0)
		case c.Kind == breaker.FlapEnded:
			m.event(c.At, balancer.BreakerSteady, h, 0, "", 0)
		case c.To == breaker.Open:
			m.log = append(m.log, entry{what: "tripped", on: h})
			n := map[breaker.Rule]int{breaker.RuleConsecutive: c.Counts.Consecutive, breaker.RuleSlowRate: c.Counts.Slow}
			count, ok := n[c.Rule]
			if !ok {
				count = c.Counts.Failures
			}
			m.event(c.At, balancer.BreakerOpened, h, c.At+int64(c.OpenFor), c.Rule.String(), count)
		case c.To == breaker.HalfOpen:
			m.event(c.At, balancer.BreakerHalfOpen, h, 0, c.Rule.String(), 0)
		default:
			m.event(c.At, balancer.BreakerClosed, h, 0, c.Rule.String(), c.Counts.Passes)
		}
	}
}

// nextChange is when time alone next changes something.
func (m *poolModel) nextChange() int64 {
	at := m.det.NextChange()
	for _, h := range m.members {
		at = min(at, h.br.NextChange())
	}
	return at
}

// input begins an input: everything that fell due until now happens, instant by
// instant, and at one instant member by member, the detector's before the
// breaker's.
func (m *poolModel) input() {
	m.now = max(m.now, m.clk.Now().UnixNano())
	for at := m.nextChange(); at <= m.now; at = m.nextChange() {
		if m.det.NextChange() <= at {
			m.det.Poll(at)
		}
		by := m.verdicts()
		for _, h := range m.members {
			if h.br.NextChange() <= at {
				h.br.Poll(at)
			}
			m.tell(h, by[&h.out])
		}
		m.serving(at)
	}
}

// serving tells the detector who can serve: healthy, with a weight, its circuit
// not open.
func (m *poolModel) serving(at int64) {
	for _, h := range m.members {
		open := !h.br.Ready(at) && h.br.State(at) == breaker.Open
		m.det.SetUsable(at, &h.out, h.healthy && h.member.Share > 0 && !open)
	}
}

// ops are what may happen, by name.
func (m *poolModel) ops() map[string]func() {
	return map[string]func(){
		"acquire":  m.acquire,
		"acquire2": m.acquire,
		"answered": m.answered,
		"release":  m.release,
		"release2": m.release,
		"start":    m.start,
		"next": func() {
			if i, t := m.drawTry(); t != nil {
				m.next(i)
			}
		},
		"fail": func() { // the usual course of a request
			if i, t := m.drawTry(); t != nil {
				m.done(i, balancer.Report{Outcome: balancer.TransportFailure})
				m.check()
				m.next(i)
			}
		},
		"done": func() {
			if i, t := m.drawTry(); t != nil {
				m.done(i, m.report())
			}
		},
		"stop":   m.stop,
		"health": m.health,
		"poll":   func() { m.pool.Poll(); m.input() },
		"save":   func() { m.pool.Save(); m.input() },
		"pass":   m.pass,
		"pass2":  m.pass,
		"update": func() {
			set := m.drawMembers()
			if err := m.pool.Update(set...); err != nil {
				m.fatalf("update: %v", err)
			}
			m.update(set)
		},
	}
}

// ramp is how far a member is on its ramp, which stands still while it cannot
// serve: an open circuit may have ended since the latest input.
func (m *poolModel) ramp(h *incarnation, now int64) int {
	open := func(at int64) bool { return h.br.State(at) == breaker.Open }
	if h.healthy && h.member.Share > 0 && open(m.now) && !open(now) {
		return m.det.WeightSince(now, &h.out, h.br.Until())
	}
	return m.det.Weight(now, &h.out)
}

// expected is each member's share of its tier, by weight and ramp: of those who
// can be picked, or would be but for their limit; of the ejected ones if only
// they are left.
func (m *poolModel) expected(now int64) map[*incarnation]float64 {
	sums, out := map[int]int{}, map[*incarnation]float64{}
	parts := map[*incarnation]int{}
	for _, reason := range []string{"overloaded", "ejected"} {
		for _, h := range m.members {
			why := m.why(h, now)
			if len(why) > 1 || len(why) == 1 && why[0] != reason {
				continue
			}
			parts[h] = h.member.Share * 1000
			if reason == "overloaded" {
				parts[h] = h.member.Share * m.ramp(h, now)
			}
			sums[h.member.Tier] += parts[h]
		}
		if len(parts) > 0 || m.cfg.WhenNone == balancer.FailFast {
			break
		}
	}
	for h, part := range parts {
		out[h] = float64(part) / float64(sums[h.member.Tier])
	}
	return out
}

// check compares all that can be seen.
func (m *poolModel) check() {
	if !slices.Equal(m.events, m.want) {
		n := min(len(m.events), len(m.want))
		for i := range n {
			if m.events[i] != m.want[i] {
				n = i
				break
			}
		}
		m.fatalf("events from number %d on:\n%v\nwant\n%v", n+1, m.events[n:], m.want[n:])
	}
	if err := m.pool.Check(); err != nil {
		m.fatalf("%v", err)
	}
	now := max(m.now, m.clk.Now().UnixNano())
	s := m.pool.Snapshot()
	full, spare, good := false, false, false
	expected := m.expected(now)
	if len(s.Upstreams) != len(m.members) {
		m.fatalf("%d upstreams, want %d", len(s.Upstreams), len(m.members))
	}
	for i, h := range m.members {
		why := m.why(h, now)
		good = good || len(why) == 0
		spare = spare || slices.Equal(why, []string{"ejected"})
		full = full || slices.Equal(why, []string{"overloaded"})
		returns := int64(math.MinInt64)
		if slices.Contains(why, "ejected") {
			returns = h.out.Until()
		}
		if slices.Contains(why, "circuit_open") || slices.Contains(why, "on_trial") {
			returns = max(returns, h.br.Until())
		}
		oldest := now
		for _, l := range m.leases {
			if l.on == h && l.open && l.first < 0 {
				oldest = min(oldest, l.start)
			}
		}
		got, want := s.Upstreams[i], balancer.Status{
			ID: h.id, Weight: h.member.Share, Priority: h.member.Tier,
			Ramp: m.ramp(h, now), Expected: expected[h],
			Selectable: len(why) == 0, Why: why,
			Healthy: h.healthy, Ejected: slices.Contains(why, "ejected"), Breaker: h.br.State(now),
			Inflight: m.inflight(h), Oldest: time.Duration(now - oldest),
			Served:    m.count("end", h, func(e entry) bool { return judged(e.outcome) }),
			Failures:  m.count("end", h, func(e entry) bool { return judged(e.outcome) && e.outcome != balancer.Success }),
			Ejections: h.out.Ejections(), Trips: m.count("tripped", h, nil),
		}
		if returns != math.MinInt64 && returns != math.MaxInt64 {
			want.Returns = fromUnix(returns)
		}
		// What is measured is the averages' own affair.
		got.Latency, got.Measured, got.Note = 0, false, ""
		if fmt.Sprint(got) != fmt.Sprint(want) {
			m.fatalf("at %d:\n%+v\nwant\n%+v", now, got, want)
		}
	}
	if want := !good && !full && spare && m.cfg.WhenNone == balancer.IgnoreEjections; s.Fallback != want {
		m.fatalf("fallback %v, want %v", s.Fallback, want)
	}
	outcome := func(os ...balancer.Outcome) uint64 {
		return m.count("end", nil, func(e entry) bool { return slices.Contains(os, e.outcome) })
	}
	want := balancer.Totals{
		Requests: m.count("request", nil, nil), Attempts: m.count("attempt", nil, nil), Inflight: uint64(m.inflight(nil)),
		Successes: outcome(balancer.Success), Failures: outcome(balancer.Failure, balancer.TransportFailure),
		Ignored: outcome(balancer.Ignored, 4), Refused: m.count("refused", nil, nil),
		Retries: m.count("retry", nil, nil), Failovers: m.count("failover", nil, nil),
		Granted: m.count("granted", nil, nil), Denied: m.count("denied", nil, nil),
		Ejections: m.count("ejected", nil, nil), Trips: m.count("tripped", nil, nil),
	}
	if s.Totals != want {
		m.fatalf("totals %+v, want %+v", s.Totals, want)
	}
	if s.Tokens != float64(m.tokens()) {
		m.fatalf("tokens %v, want %v", s.Tokens, m.tokens())
	}
	due, ok := m.pool.NextChange()
	if at := m.nextChange(); ok != (at != math.MaxInt64) || ok && due.UnixNano() != at {
		m.fatalf("next change %v %v, want %d", due, ok, at)
	}
}

// The Pool does what its definition says, whatever happens in whatever order.
func TestPoolModel(t *testing.T) {
	setFlag(t, "rapid.steps", "50")
	setFlag(t, "rapid.checks", "300")
	checkSeeded(t, 0x9001, poolProperty)
}

// setFlag sets a flag for the time of one test, unless the command line has.
func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	old := f.Value.String()
	if old != f.DefValue {
		return
	}
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, old) })
}

func poolProperty(t *rapid.T) {
	m := newPoolModel(t.Fatalf, func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) })
	actions := map[string]func(*rapid.T){"": func(*rapid.T) { m.check() }}
	for name, op := range m.ops() {
		actions[name] = func(*rapid.T) { op() }
	}
	t.Repeat(actions)
}
