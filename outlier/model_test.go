package outlier_test

import (
	"math"
	"math/big"
	"sort"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// model judges from the whole history: it keeps every result and every ejection
// ever, and recomputes runs, rates, scores, baselines, caps and counts from the
// definitions at each question. It stores no counter.
type model struct {
	cfg    outlier.Config // every default spelled out
	hosts  []*modelHost
	now    int64
	origin int64
	swept  int64 // last end of an interval that was looked at
	events []event
}

type modelHost struct {
	h       *outlier.Host // for Index only
	member  bool
	usable  bool
	turns   []int64 // when usable changed, from usable on
	results []result
	periods []period
}

type result struct {
	at      int64
	o       outlier.Outcome
	latency int64
	above   bool // measured, judged, and above the line of the moment
}

type period struct {
	at, until, end int64 // end: when it really ended; -1 while it runs
	count          int64
	seq            int // results recorded before
}

// event is what model and Core must agree on of a Change.
type event struct {
	kind      outlier.Kind
	rule      outlier.Rule
	cause     outlier.Cause
	index     int
	at, until int64
	count     int
}

func (m *modelHost) last() *period {
	if len(m.periods) == 0 {
		return nil
	}
	return &m.periods[len(m.periods)-1]
}

func (m *modelHost) out() bool { p := m.last(); return p != nil && p.end < 0 }

// evidence is what was recorded since the host was last ejected. Results of calls
// begun before its return never got in.
func (m *modelHost) evidence() []result {
	if p := m.last(); p != nil {
		return m.results[p.seq:]
	}
	return m.results
}

// run counts the results at the end of the evidence that satisfy f.
func (m *modelHost) run(f func(outlier.Outcome) bool) (n int) {
	e := m.evidence()
	for i := len(e) - 1; i >= 0 && f(e[i].o); i-- {
		n++
	}
	return n
}

// samples are the latencies that make the score.
func (m *model) samples(h *modelHost) (list []result) {
	all := h.evidence()
	if m.cfg.Latency.KeepScore {
		all = h.results
	}
	for _, r := range all {
		if r.o == success && r.latency >= 0 {
			list = append(list, r)
		}
	}
	return list
}

func (m *model) score(h *modelHost) *big.Int {
	var v *big.Int
	for _, r := range m.samples(h) {
		s := new(big.Int).Mul(big.NewInt(r.latency), big.NewInt(1000))
		if v == nil {
			v = s
			continue
		}
		a := int64(m.cfg.Latency.Alpha)
		v.Mul(v, big.NewInt(1000-a))
		v.Add(v, s.Mul(s, big.NewInt(a)))
		v.Div(v, big.NewInt(1000))
	}
	return v
}

// above tells whether h, at its newest sample, is judged and over the line.
func (m *model) above(h *modelHost) bool {
	lt := m.cfg.Latency
	var others, both []*big.Int
	for _, x := range m.hosts {
		if x.member && x.usable && !x.out() && len(m.samples(x)) >= lt.MinSamples {
			both = append(both, m.score(x))
			if x != h {
				others = append(others, m.score(x))
			}
		}
	}
	if !h.usable || len(m.samples(h)) < lt.MinSamples || len(both) < lt.MinHosts {
		return false
	}
	set := both
	if lt.Baseline == outlier.BaselineOthers {
		set = others
	}
	if len(set) == 0 {
		return false
	}
	base := new(big.Int)
	if lt.Baseline == outlier.BaselineMedian {
		sort.Slice(set, func(i, j int) bool { return set[i].Cmp(set[j]) < 0 })
		base.Set(set[(len(set)-1)/2])
	} else {
		for _, v := range set {
			base.Add(base, v)
		}
		base.Div(base, big.NewInt(int64(len(set))))
	}
	line := base.Mul(base, big.NewInt(int64(lt.Factor)))
	line.Div(line, big.NewInt(1000))
	score := m.score(h)
	return score.Cmp(line) > 0 && score.Cmp(big.NewInt(int64(lt.Floor)*1000)) > 0
}

// sustained tells whether the samples at the end of the evidence make a slow
// period that is long enough and has enough new samples.
func (m *model) sustained(h *modelHost) bool {
	var measured []result
	for _, r := range h.evidence() {
		if r.o == success && r.latency >= 0 {
			measured = append(measured, r)
		}
	}
	first := len(measured)
	for first > 0 && measured[first-1].above {
		first--
	}
	if first == len(measured) {
		return false
	}
	newer := 0
	for _, r := range measured[first:] {
		if r.at > measured[first].at {
			newer++
		}
	}
	return newer >= m.cfg.Latency.MinSamples && m.now-measured[first].at >= int64(m.cfg.Latency.Window)
}

// tallies counts the evidence of [from, to).
func (h *modelHost) tallies(from, to int64) (good, bad int64) {
	for _, r := range h.evidence() {
		if r.at >= from && r.at < to {
			if r.o == success {
				good++
			} else {
				bad++
			}
		}
	}
	return good, bad
}

// mayEject is the cap, counted anew, as it would be afterwards.
func (m *model) mayEject(h *modelHost) bool {
	serving, gone, total := 0, 0, 0
	for _, x := range m.hosts {
		if !x.member || !x.usable {
			continue
		}
		total++
		if x.out() || x == h {
			gone++
		} else {
			serving++
		}
	}
	switch {
	case !h.usable,
		serving == 0 && m.cfg.Last == outlier.KeepLast,
		total == 1 && m.cfg.Last == outlier.KeepSole:
		return false
	case gone == 1 && m.cfg.EjectOne:
		return true
	}
	return float64(gone)/float64(total) <= float64(m.cfg.MaxEjectedPercent)/100+1e-9
}

func (m *model) eject(at int64, h *modelHost, rule outlier.Rule) {
	if !m.mayEject(h) {
		return
	}
	count := m.count(at, h) + 1
	for (count-1)*int64(m.cfg.Base) >= int64(m.cfg.Max) {
		count--
	}
	d := min(count*int64(m.cfg.Base), int64(m.cfg.Max))
	h.periods = append(h.periods, period{at: at, until: at + d, end: -1, count: count, seq: len(h.results)})
	m.emit(event{outlier.Ejected, rule, 0, h.h.Index, at, at + d, int(count)})
}

// count is the factor of the last ejection less the full forgiving times since.
func (m *model) count(at int64, h *modelHost) int64 {
	p := h.last()
	if p == nil {
		return 0
	}
	count := p.count
	if p.end >= 0 && m.cfg.Forgive > 0 {
		for end := p.end + int64(m.cfg.Forgive); end <= at && count > 0; end += int64(m.cfg.Forgive) {
			count--
		}
	}
	return count
}

func (m *model) emit(e event) { m.events = append(m.events, e) }

// weight is the weight of h at an instant of its service: a step for each RampStep
// of each time since its return in which it could serve without a break.
func (m *model) weight(at int64, h *modelHost) int {
	p := h.last()
	if m.cfg.Return != outlier.Ramp || p == nil {
		return 1000
	}
	w := m.cfg.RampFrom
	for i := 0; i <= len(h.turns); i += 2 {
		begin, end := int64(math.MinInt64), at
		if i > 0 {
			begin = h.turns[i-1]
		}
		if i < len(h.turns) {
			end = min(at, h.turns[i])
		}
		for step := max(begin, p.end) + int64(m.cfg.RampStep); step <= end && w < 1000; step += int64(m.cfg.RampStep) {
			w = min(1000, max(w+1, w*m.cfg.RampGrowth/1000))
		}
	}
	return w
}

// weightSince is the weight at a time to come, if the one thing that happens until
// then is that a host that cannot serve can from since on.
func (m *model) weightSince(at int64, h *modelHost, since int64) int {
	later := *h
	if h.out() {
		if h.last().until > at {
			return 0
		}
		later.periods = append([]period(nil), h.periods...)
		later.last().end = h.last().until
	}
	if since = max(since, m.now); !h.usable && since <= at {
		later.turns = append(append([]int64(nil), h.turns...), since)
	}
	return m.weight(at, &later)
}

// turn says whether h can serve from m.now on.
func (m *model) turn(h *modelHost, can bool) {
	if h.usable != can {
		h.usable, h.turns = can, append(h.turns, m.now)
	}
}

// advance walks through time: at each instant returns and steps by index, then
// the sweep.
func (m *model) advance(now int64) {
	now = max(now, m.now)
	for {
		next := m.swept + int64(m.cfg.Interval)
		for _, h := range m.hosts {
			if h.member {
				if t, ok := m.planned(h); ok {
					next = min(next, t)
				}
			}
		}
		if next > now {
			break
		}
		m.now = next
		m.instant(next)
	}
	m.now = now
}

// planned is when h next changes by time alone, after m.now.
func (m *model) planned(h *modelHost) (int64, bool) {
	if h.out() {
		return h.last().until, true
	}
	if m.weight(m.now, h) == 1000 || !h.usable {
		return 0, false
	}
	t := h.last().end
	if n := len(h.turns); n > 0 {
		t = max(t, h.turns[n-1])
	}
	for t <= m.now {
		t += int64(m.cfg.RampStep)
	}
	return t, true
}

func (m *model) instant(at int64) {
	order := append([]*modelHost(nil), m.hosts...)
	sort.Slice(order, func(i, j int) bool { return order[i].h.Index < order[j].h.Index })
	for _, h := range order {
		switch p := h.last(); {
		case !h.member || p == nil:
		case p.end < 0 && p.until == at:
			m.restore(at, h, 0)
		case p.end >= 0 && p.end < at && m.weight(at, h) != m.weight(at-1, h):
			m.emit(event{kind: outlier.Stepped, index: h.h.Index, at: at, until: at})
		}
	}
	if (at-m.origin)%int64(m.cfg.Interval) == 0 && at > m.swept {
		m.swept = at
		m.sweep(at, order)
	}
}

func (m *model) restore(at int64, h *modelHost, cause outlier.Cause) {
	p := h.last()
	p.end = at
	m.emit(event{outlier.Returned, m.ruleOf(h), cause, h.h.Index, at, at, int(p.count)})
}

// ruleOf finds the rule of the last ejection in the events.
func (m *model) ruleOf(h *modelHost) outlier.Rule {
	p := h.last()
	for i := len(m.events) - 1; i >= 0; i-- {
		if e := m.events[i]; e.kind == outlier.Ejected && e.at == p.at && e.until == p.until && e.index == h.h.Index {
			return e.rule
		}
	}
	return 0 // renumbered since; compared without the rule
}

// sweep judges the interval that ends at at, in rationals.
func (m *model) sweep(at int64, order []*modelHost) {
	type suspect struct {
		h    *modelHost
		rule outlier.Rule
		rate *big.Rat
	}
	sr, fp := m.cfg.SuccessRate, m.cfg.FailurePercentage
	var rated []suspect
	mean, volume := new(big.Rat), 0
	for _, h := range order {
		if !h.member || !h.usable || h.out() {
			continue
		}
		good, bad := h.tallies(at-int64(m.cfg.Interval), at)
		if good+bad >= int64(fp.MinRequests) {
			volume++
		}
		if good+bad >= int64(sr.MinRequests) {
			rated = append(rated, suspect{h: h, rate: big.NewRat(good, good+bad)})
			mean.Add(mean, rated[len(rated)-1].rate)
		}
	}
	n := big.NewRat(int64(max(1, len(rated))), 1)
	mean.Quo(mean, n)
	variance := new(big.Rat)
	for _, s := range rated {
		d := new(big.Rat).Sub(s.rate, mean)
		variance.Add(variance, d.Mul(d, d))
	}
	variance.Quo(variance, n)

	var suspects []suspect
	for _, h := range order {
		if !h.member || !h.usable || h.out() {
			continue
		}
		good, bad := h.tallies(at-int64(m.cfg.Interval), at)
		if good+bad == 0 {
			continue
		}
		s := suspect{h: h, rate: big.NewRat(good, good+bad)}
		if sr.On && good+bad >= int64(sr.MinRequests) && len(rated) >= sr.MinHosts && bad >= int64(sr.MinFailures) {
			below := new(big.Rat).Sub(mean, s.rate)
			sigmas := new(big.Rat).Mul(big.NewRat(int64(sr.Factor), 1000), big.NewRat(int64(sr.Factor), 1000))
			sigmas.Mul(sigmas, variance)
			statistical := below.Sign() > 0 && new(big.Rat).Mul(below, below).Cmp(sigmas) > 0 &&
				s.rate.Cmp(big.NewRat(int64(sr.Tolerate), 1000)) < 0
			dead := s.rate.Cmp(big.NewRat(int64(sr.Dead), 1000)) <= 0 &&
				new(big.Rat).Add(s.rate, s.rate).Cmp(mean) < 0
			if statistical || dead {
				s.rule = outlier.RuleSuccessRate
			}
		}
		if s.rule == 0 && fp.On && !fp.Inline && volume >= fp.MinHosts && good+bad >= int64(fp.MinRequests) &&
			big.NewRat(bad, good+bad).Cmp(big.NewRat(int64(fp.Threshold), 100)) >= 0 {
			s.rule = outlier.RuleFailurePercentage
		}
		if s.rule != 0 {
			suspects = append(suspects, s)
		}
	}
	sort.SliceStable(suspects, func(i, j int) bool { return suspects[i].rate.Cmp(suspects[j].rate) < 0 })
	mark := len(m.events)
	for _, s := range suspects {
		m.eject(at, s.h, s.rule)
	}
	sort.SliceStable(m.events[mark:], func(i, j int) bool { return m.events[mark+i].index < m.events[mark+j].index })
}

func (m *model) record(now int64, h *modelHost, start int64, o outlier.Outcome, latency int64) {
	m.advance(now)
	if p := h.last(); !h.member || h.out() || p != nil && start < p.end || o > transport {
		return
	}
	// On probation until something since the return cleared it.
	onProbation := m.cfg.Return == outlier.Probation && h.last() != nil
	for _, r := range h.evidence() {
		if !m.counts(r.o) {
			onProbation = false
		}
	}
	h.results = append(h.results, result{at: m.now, o: o, latency: latency})
	if o == success {
		if m.cfg.Latency.On && latency >= 0 {
			h.results[len(h.results)-1].above = m.above(h)
			if m.sustained(h) {
				m.eject(m.now, h, outlier.RuleLatency)
			}
		}
		return
	}
	good, bad := h.tallies(m.now-(m.now-m.origin)%int64(m.cfg.Interval), m.now+1)
	fp := m.cfg.FailurePercentage
	atLeast := func(n, limit int) bool { return limit > 0 && n >= limit }
	switch {
	case onProbation && m.counts(o):
		m.eject(m.now, h, outlier.RuleProbation)
	case atLeast(h.run(func(o outlier.Outcome) bool { return o != success }), m.cfg.Consecutive):
		m.eject(m.now, h, outlier.RuleConsecutive)
	case atLeast(h.run(func(o outlier.Outcome) bool { return o >= gateway }), m.cfg.ConsecutiveGateway):
		m.eject(m.now, h, outlier.RuleGateway)
	case atLeast(h.run(func(o outlier.Outcome) bool { return o == transport }), m.cfg.ConsecutiveTransport):
		m.eject(m.now, h, outlier.RuleTransport)
	case fp.On && fp.Inline && good+bad >= int64(fp.MinRequests) && 100*bad >= int64(fp.Threshold)*(good+bad):
		m.eject(m.now, h, outlier.RuleFailurePercentage)
	}
}

// counts tells whether a result is a failure in the eyes of some consecutive
// rule, or of any where there is none.
func (m *model) counts(o outlier.Outcome) bool {
	c := m.cfg
	if c.Consecutive < 0 && c.ConsecutiveGateway == 0 && c.ConsecutiveTransport == 0 {
		return o != success
	}
	return c.Consecutive > 0 && o != success || c.ConsecutiveGateway > 0 && o >= gateway ||
		c.ConsecutiveTransport > 0 && o == transport
}
