package outlier_test

import (
	"math"
	"math/big"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

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

// weight is the weight of h at an instant of its service.
func (m *model) weight(at int64, h *modelHost) int {
	p := h.last()
	if m.cfg.Return != outlier.Ramp || p == nil {
		return 1000
	}
	w := m.cfg.RampFrom
	for step := p.end + int64(m.cfg.RampStep); step <= at && w < 1000; step += int64(m.cfg.RampStep) {
		w = min(1000, max(w+1, w*m.cfg.RampGrowth/1000))
	}
	return w
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
	if m.weight(m.now, h) == 1000 {
		return 0, false
	}
	t := h.last().end
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

// drawConfig draws a configuration with small numbers and no zero that means a
// default.
func drawConfig(t *rapid.T) outlier.Config {
	num := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
	dur := func(name string, of ...time.Duration) time.Duration { return rapid.SampledFrom(of).Draw(t, name) }
	base := dur("base", 3, 10, 40)
	return outlier.Config{
		Consecutive:          num("consecutive", -1, 1, 2, 3, 5),
		ConsecutiveGateway:   num("gateway", 0, 0, 2, 3),
		ConsecutiveTransport: num("transport", 0, 0, 1, 2),
		SuccessRate: outlier.SuccessRate{
			On: rapid.Bool().Draw(t, "success rate"), Factor: num("factor", 700, 1900, 2300),
			MinHosts: num("rate hosts", 1, 2, 4), MinRequests: num("rate requests", 1, 2, 4),
			MinFailures: num("failures", 1, 2), Tolerate: num("tolerate", 400, 700, 950), Dead: num("dead", 1, 100, 300),
		},
		FailurePercentage: outlier.FailurePercentage{
			On: rapid.Bool().Draw(t, "percentage"), Inline: rapid.Bool().Draw(t, "inline"),
			Threshold: num("threshold", 34, 50, 100), MinHosts: num("percentage hosts", 1, 2, 3),
			MinRequests: num("percentage requests", 1, 3, 6),
		},
		Latency: outlier.Latency{
			On: rapid.Bool().Draw(t, "latency"), Alpha: num("alpha", 1, 250, 500, 1000), Factor: num("line", 1100, 2000, 3000),
			Window: dur("window", 1, 5, 20), MinSamples: num("samples", 1, 2, 4), MinHosts: num("latency hosts", 1, 2, 3),
			Floor:     dur("floor", 0, 0, 20),
			Baseline:  rapid.SampledFrom([]outlier.Baseline{outlier.BaselineOthers, outlier.BaselineAll, outlier.BaselineMedian}).Draw(t, "baseline"),
			KeepScore: rapid.Bool().Draw(t, "keep"),
		},
		Interval: dur("interval", 5, 16, 100), Base: base, Max: base * dur("max", 1, 2, 5),
		Forgive:           dur("forgive", -1, 7, 50),
		MaxEjectedPercent: num("percent", 20, 50, 67, 100), EjectOne: rapid.Bool().Draw(t, "one"),
		Last:     rapid.SampledFrom([]outlier.LastRule{outlier.KeepLast, outlier.KeepSole, outlier.EjectLast}).Draw(t, "last"),
		Return:   rapid.SampledFrom([]outlier.ReturnMode{outlier.Clean, outlier.Probation, outlier.Ramp}).Draw(t, "return"),
		RampFrom: num("from", 1, 250, 1000), RampStep: dur("step", 1, 6), RampGrowth: num("growth", 1100, 2000),
	}
}

// pair drives a Core and the model side by side. The Core's timeline is off
// ahead of the model's.
type pair struct {
	c     *outlier.Core
	m     *model
	cfg   outlier.Config
	hosts []*outlier.Host
	off   int64
	seed  uint64
}

func newPair(cfg outlier.Config, n int, seed uint64) *pair {
	p := &pair{c: outlier.NewCore(cfg, seed), m: &model{cfg: cfg}, cfg: cfg, seed: seed}
	for i := range n {
		h := &outlier.Host{Index: i}
		p.hosts = append(p.hosts, h)
		p.m.hosts = append(p.m.hosts, &modelHost{h: h})
		p.add(0, i)
	}
	return p
}

func (p *pair) add(now int64, i int) {
	p.c.Add(now+p.off, p.hosts[i], uint64(i))
	p.m.advance(now)
	if h := p.m.hosts[i]; !h.member {
		*h = modelHost{h: h.h, member: true, usable: true}
	}
}

func (p *pair) remove(now int64, i int) {
	p.c.Remove(now+p.off, p.hosts[i])
	p.m.advance(now)
	p.m.hosts[i].member = false
}

func (p *pair) setUsable(now int64, i int, yes bool) {
	p.c.SetUsable(now+p.off, p.hosts[i], yes)
	p.m.advance(now)
	p.m.hosts[i].usable = yes
}

func (p *pair) record(now int64, i int, start int64, o outlier.Outcome, latency int64) {
	p.c.Record(now+p.off, p.hosts[i], start+p.off, o, latency)
	p.m.record(now, p.m.hosts[i], start, o, latency)
}

func (p *pair) uneject(now int64, i int) {
	p.c.Uneject(now+p.off, p.hosts[i])
	p.m.advance(now)
	if h := p.m.hosts[i]; h.member && h.out() {
		p.m.restore(p.m.now, h, outlier.CauseForced)
	}
}

// move saves the Core and goes on with another one on another timeline.
func (p *pair) move(t fataler, now, off int64) {
	p.compare(t)
	saved := p.c.AppendState([]byte("head"), now+p.off, p.hosts)
	p.c = outlier.NewCore(p.cfg, p.seed)
	rest, err := p.c.RestoreState(append(saved, "tail"...)[4:], now+off, p.hosts)
	if err != nil || string(rest) != "tail" {
		t.Fatalf("restore: rest %q, error %v", rest, err)
	}
	p.off = off
}

// compare pops the Core's changes and holds everything against the model.
func (p *pair) compare(t fataler) {
	var got []event
	for ch, ok := p.c.Pop(); ok; ch, ok = p.c.Pop() {
		if ch.Kind == outlier.Spared {
			continue
		}
		got = append(got, event{ch.Kind, ch.Rule, ch.Cause, ch.Host.Index, ch.At - p.off, ch.Until - p.off, ch.Count})
	}
	want := p.m.events
	if len(got) != len(want) {
		t.Fatalf("%d changes, want %d\n got %+v\nwant %+v", len(got), len(want), got, want)
	}
	for i := range got {
		if want[i].kind == outlier.Returned {
			got[i].rule, want[i].rule = 0, 0 // the model does not keep it
		}
		if want[i].kind == outlier.Stepped {
			got[i].count = 0
		}
		if got[i] != want[i] {
			t.Fatalf("change %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	p.m.events = p.m.events[:0]
	ejected, usable := 0, 0
	for i, h := range p.hosts {
		x := p.m.hosts[i]
		if !x.member {
			continue
		}
		if h.Ejected() != x.out() {
			t.Fatalf("host %d ejected: %v, want %v", i, h.Ejected(), x.out())
		}
		if x.out() {
			ejected++
		}
		if x.usable {
			usable++
		}
		if h.Ejections() != len(x.periods) {
			t.Fatalf("host %d ejections: %d, want %d", i, h.Ejections(), len(x.periods))
		}
		if got, want := p.c.Count(p.m.now+p.off, h), int(p.m.count(p.m.now, x)); got != want {
			t.Fatalf("host %d count: %d, want %d", i, got, want)
		}
		want := p.m.weight(p.m.now, x)
		if x.out() {
			want = 0
		}
		if got := p.c.Weight(p.m.now+p.off, h); got != want {
			t.Fatalf("host %d weight: %d, want %d", i, got, want)
		}
		if p.cfg.Latency.On {
			v, ok := h.Score()
			if s := p.m.score(x); (s != nil) != ok || ok && s.Cmp(big.NewInt(v)) != 0 {
				t.Fatalf("host %d score: %v %v, want %v", i, v, ok, s)
			}
		}
	}
	if p.c.EjectedCount() != ejected || p.c.UsableCount() != usable {
		t.Fatalf("ejected %d, usable %d, want %d, %d", p.c.EjectedCount(), p.c.UsableCount(), ejected, usable)
	}
}

type fataler interface{ Fatalf(string, ...any) }

// machine is the property: whatever is done, Core and model agree.
func machine(t *rapid.T) {
	p := newPair(drawConfig(t), rapid.IntRange(1, 6).Draw(t, "hosts"), 7)
	now := int64(0)
	host := func() int { return rapid.IntRange(0, len(p.hosts)-1).Draw(t, "host") }
	outcome := rapid.SampledFrom([]outlier.Outcome{success, success, failure, failure, gateway, transport, transport + 1})
	latency := rapid.SampledFrom([]int64{-1, 0, 5, 5, 6, 9, 30, 100, 1000})
	// Swarm: some runs never do some things, so that others happen in a row.
	skip := rapid.Uint8().Draw(t, "skip")
	unless := func(bit int, f func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			if skip&(1<<bit) != 0 {
				t.Skip("not in this run")
			}
			f(t)
		}
	}
	result := func(t *rapid.T) {
		start := now
		if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
			start -= rapid.Int64Range(0, 60).Draw(t, "age")
		}
		p.record(now, host(), start, outcome.Draw(t, "outcome"), latency.Draw(t, "latency"))
	}
	burst := func(t *rapid.T) {
		i, o, d := host(), outcome.Draw(t, "outcome"), latency.Draw(t, "latency")
		for range rapid.IntRange(1, 7).Draw(t, "times") {
			p.record(now, i, now, o, d)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"result":  result,
		"result2": result,
		"burst":   burst,
		"everyone": func(t *rapid.T) {
			d := latency.Draw(t, "latency")
			for i := range p.hosts {
				p.record(now, i, now, success, d)
			}
		},
		"wait": func(t *rapid.T) {
			next, planned := p.c.NextChange(), false
			if next != math.MaxInt64 {
				next -= p.off
				planned = next < now+1000
			}
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				if planned {
					now = max(now, next)
				}
			case 1:
				if planned {
					now = max(now, next-1)
				}
			case 2:
				now += rapid.Int64Range(0, 20).Draw(t, "short")
			default:
				now += rapid.Int64Range(0, 300).Draw(t, "long")
			}
			if rapid.Bool().Draw(t, "poll") {
				p.c.Poll(now + p.off)
				p.m.advance(now)
			}
		},
		"back": unless(0, func(t *rapid.T) {
			early := now - rapid.Int64Range(1, 50).Draw(t, "by")
			p.record(early, host(), early, outcome.Draw(t, "outcome"), latency.Draw(t, "latency"))
		}),
		"usable":  unless(1, func(t *rapid.T) { p.setUsable(now, host(), rapid.Bool().Draw(t, "yes")) }),
		"remove":  unless(2, func(t *rapid.T) { p.remove(now, host()) }),
		"add":     unless(2, func(t *rapid.T) { p.add(now, host()) }),
		"uneject": unless(3, func(t *rapid.T) { p.uneject(now, host()) }),
		"renumber": unless(4, func(t *rapid.T) {
			p.compare(t) // what is queued has the old numbers
			a, b := p.hosts[host()], p.hosts[host()]
			a.Index, b.Index = b.Index, a.Index
		}),
		"move": unless(5, func(t *rapid.T) { p.move(t, now, rapid.Int64Range(-1e6, 1e6).Draw(t, "off")) }),
		"":     func(t *rapid.T) { p.compare(t) },
	})
}

func TestModel(t *testing.T) { checkSeeded(t, 1, machine) }
