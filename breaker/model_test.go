package breaker_test

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
)

// model is the breaker written from its definition. It keeps every result and
// every transition and recounts for each answer; there is no ring, no running
// sum, no counter. All settings are explicit, so defaults are not its concern.
type model struct {
	cfg breaker.Config
	now int64

	state  breaker.State
	rule   breaker.Rule
	forced bool
	since  int64
	until  int64
	length int64
	era    int

	results []result // of this era
	trials  []*mtrial
	moves   []int64 // times of all transitions
	trips   []mtrip // all openings by a rule
	flap    bool

	changes []breaker.Change
	stats   breaker.Stats
}

type result struct {
	at           int64
	failed, slow bool
}

type mtrial struct {
	at                         int64
	passed, lost, failed, gone bool
}

func (tr *mtrial) out() bool { return !tr.passed && !tr.lost && !tr.failed && !tr.gone }

// mtrip is an opening by a rule; closed is how long the breaker had been closed,
// or -1 if it opened from half-open.
type mtrip struct{ closed int64 }

// mticket is the model's side of a Ticket.
type mticket struct {
	era   int
	at    int64
	trial *mtrial
}

const never = math.MaxInt64

func (m *model) ends(tr *mtrial) int64 {
	if m.cfg.TrialTimeout < 0 {
		return never
	}
	return tr.at + int64(m.cfg.TrialTimeout)
}

// recent counts the transitions younger than the flap window.
func (m *model) recent(now int64) (n int) {
	for _, at := range m.moves {
		if at <= now && now-at < int64(m.cfg.FlapWindow) {
			n++
		}
	}
	return n
}

// flapEnd is the first instant at which too few of the transitions so far are
// left.
func (m *model) flapEnd() int64 {
	for _, at := range m.moves {
		if end := at + int64(m.cfg.FlapWindow); end >= m.moves[len(m.moves)-1] && m.recent(end) < m.cfg.FlapTransitions {
			return end
		}
	}
	return never
}

// due lists what time alone will change, in the order in which it does.
func (m *model) due() (at int64, apply func()) {
	at = never
	consider := func(t int64, f func()) {
		if t < at {
			at, apply = t, f
		}
	}
	if m.flap {
		end := m.flapEnd()
		consider(end, func() {
			m.flap = false
			m.note(breaker.FlapEnded, end)
		})
	}
	if m.state == breaker.Open {
		end := m.until
		consider(end, func() { m.move(breaker.HalfOpen, end, breaker.RuleTimer) })
	}
	for _, tr := range m.trials {
		if tr.out() {
			end := m.ends(tr)
			consider(end, func() {
				tr.lost = true
				m.stats.HalfOpenLost++
				m.note(breaker.TrialLost, end)
			})
		}
	}
	return at, apply
}

func (m *model) input(now int64) {
	m.now = max(m.now, now)
	for at, apply := m.due(); at <= m.now; at, apply = m.due() {
		apply()
	}
}

func (m *model) note(k breaker.Kind, at int64) {
	m.changes = append(m.changes, breaker.Change{
		Kind: k, At: at, From: m.state, To: m.state, Counts: m.counts(at),
	})
}

func (m *model) move(to breaker.State, at int64, rule breaker.Rule) {
	ch := breaker.Change{At: at, From: m.state, To: to, Rule: rule, Counts: m.counts(at)}
	if to == breaker.Open {
		ch.OpenFor = time.Duration(m.length)
	} else if m.state == breaker.Open {
		ch.OpenFor = time.Duration(at - m.since)
	}
	m.state, m.rule = to, rule
	m.era++
	m.results, m.trials = nil, nil
	if ch.From == to {
		return
	}
	m.since = at
	if to == breaker.Open {
		m.stats.Opened++
	}
	m.moves = append(m.moves, at)
	began := false
	if n := m.cfg.FlapTransitions; n > 0 && m.recent(at) >= n {
		began, m.flap = !m.flap, true
	}
	ch.Suppressed = m.flap
	m.changes = append(m.changes, ch)
	if began {
		m.note(breaker.FlapStarted, at)
	}
}

// bounds returns the shortest and the longest length that the next opening by a
// rule may have.
func (m *model) bounds() (lo, hi int64) {
	past := 0
	for _, trip := range m.trips {
		if trip.closed >= 0 && m.cfg.ForgetAfter >= 0 && trip.closed >= int64(m.cfg.ForgetAfter) {
			past = 0
		}
		past++
	}
	past-- // the last one is this one
	length := big.NewInt(int64(m.cfg.OpenFor))
	growth := new(big.Rat).SetFloat64(m.cfg.OpenGrowth) // drawn as k/2 or k/4: exact
	limit := big.NewInt(int64(m.cfg.OpenMax))
	for range past {
		length.Mul(length, growth.Num()).Quo(length, growth.Denom())
		if length.Cmp(limit) > 0 {
			length.Set(limit)
		}
	}
	hi = length.Int64()
	return hi - int64(math.Floor(float64(hi)*m.cfg.OpenJitter)), hi
}

// live returns the results that the rates look at: cut into slices from the first
// result on, those of the current slice and of the nine before it.
func (m *model) live(now int64) (calls, failed, slow int64) {
	if m.cfg.FailureRate == 0 && m.cfg.SlowRate == 0 {
		return 0, 0, 0
	}
	width := (int64(m.cfg.Window) + 9) / 10
	for _, r := range m.results {
		origin := m.results[0].at
		if (now-origin)/width-(r.at-origin)/width < 10 {
			calls++
			if r.failed {
				failed++
			}
			if r.slow {
				slow++
			}
		}
	}
	return calls, failed, slow
}

func (m *model) counts(now int64) (n breaker.Counts) {
	for i := len(m.results) - 1; i >= 0 && m.results[i].failed; i-- {
		n.Consecutive++
	}
	for _, r := range m.results {
		if r.failed && now-r.at < int64(m.cfg.Window) && n.WindowFailures < m.cfg.WindowFailures {
			n.WindowFailures++
		}
	}
	calls, failed, slow := m.live(now)
	n.Calls, n.Failures, n.Slow = int(calls), int(failed), int(slow)
	for _, tr := range m.trials {
		if tr.passed {
			n.Passes++
		}
		if tr.out() && m.ends(tr) > now {
			n.Trials++
		}
	}
	return n
}

// broken returns the first rule that the results break.
func (m *model) broken() breaker.Rule {
	n := m.counts(m.now)
	last := m.results[len(m.results)-1]
	share := func(part int, rate float64) bool {
		if rate == 0 || n.Calls < m.cfg.MinCalls {
			return false
		}
		// The rates drawn are k/12: compare with that, not with the float.
		twelfths := int64(math.Round(rate * 12))
		return big.NewRat(int64(part), int64(n.Calls)).Cmp(big.NewRat(twelfths, 12)) >= 0
	}
	switch {
	case m.cfg.ConsecutiveFailures > 0 && n.Consecutive >= m.cfg.ConsecutiveFailures:
		return breaker.RuleConsecutive
	case m.cfg.WindowFailures > 0 && last.failed && n.WindowFailures >= m.cfg.WindowFailures:
		return breaker.RuleWindow
	case share(n.Failures, m.cfg.FailureRate):
		return breaker.RuleFailureRate
	case share(n.Slow, m.cfg.SlowRate):
		return breaker.RuleSlowRate
	}
	return breaker.RuleNone
}

// open takes the length that the core drew, after a look at its bounds.
func (m *model) open(rule breaker.Rule, drawn int64) error {
	trip := mtrip{closed: -1}
	if m.state == breaker.Closed {
		trip.closed = m.now - m.since
	}
	m.trips = append(m.trips, trip)
	lo, hi := m.bounds()
	if drawn < lo || drawn > hi {
		return fmt.Errorf("open for %d, want %d to %d", drawn, lo, hi)
	}
	m.length, m.until = drawn, m.now+drawn
	m.move(breaker.Open, m.now, rule)
	return nil
}

func (m *model) done(now int64, tk mticket, ok bool, took int64, drawn func() int64) (counted bool, err error) {
	m.input(now)
	restart := m.state == breaker.Open && !m.forced && m.rule != breaker.RuleTrip && !ok &&
		m.cfg.LateFailure == breaker.LateRestart && tk.trial == nil && tk.era == m.era-1
	if restart {
		m.until = max(m.until, m.now+m.length)
		return true, nil
	}
	if m.forced || tk.era != m.era {
		return false, nil
	}
	if m.cfg.FailAfter > 0 && took > int64(m.cfg.FailAfter) {
		ok = false
	}
	slow := m.cfg.SlowRate > 0 && took > int64(m.cfg.SlowAfter)
	if tk.trial == nil {
		m.results = append(m.results, result{m.now, !ok, slow})
		if rule := m.broken(); rule != breaker.RuleNone {
			return true, m.open(rule, drawn())
		}
		return true, nil
	}
	switch {
	case !tk.trial.out():
		return false, nil
	case !ok || slow:
		tk.trial.failed = true
		return true, m.open(breaker.RuleTrial, drawn())
	}
	tk.trial.passed = true
	if m.counts(m.now).Passes >= m.cfg.Passes {
		m.move(breaker.Closed, m.now, breaker.RuleTrial)
	}
	return true, nil
}

func (m *model) allow(now int64) (mticket, breaker.Reason) {
	m.input(now)
	switch {
	case m.state == breaker.Open && m.forced:
		return mticket{}, breaker.ForcedOpen
	case m.state == breaker.Open:
		return mticket{}, breaker.Opened
	case m.state == breaker.Closed:
		return mticket{m.era, m.now, nil}, breaker.Admitted
	case m.counts(m.now).Trials >= m.cfg.Trials:
		return mticket{}, breaker.TrialsFull
	}
	tr := &mtrial{at: m.now}
	m.trials = append(m.trials, tr)
	return mticket{m.era, m.now, tr}, breaker.Admitted
}

func (m *model) cancel(now int64, tk mticket) {
	m.input(now)
	if tk.era == m.era && tk.trial != nil && tk.trial.out() {
		tk.trial.gone = true
		m.stats.HalfOpenAbandoned++
		m.note(breaker.TrialAbandoned, m.now)
	}
}

func (m *model) trip(now, length int64) {
	m.input(now)
	switch end := m.now + length; {
	case m.forced || length <= 0:
	case m.state != breaker.Open:
		m.length, m.until = length, end
		m.move(breaker.Open, m.now, breaker.RuleTrip)
	case end > m.until:
		m.until, m.rule = end, breaker.RuleTrip
	}
}

func (m *model) force(now int64, to breaker.State) {
	m.input(now)
	switch {
	case m.forced && to == m.state:
	case to == breaker.HalfOpen:
		if m.forced || m.state == breaker.Open {
			m.forced = false
			m.move(to, m.now, breaker.RuleForced)
		}
	default:
		m.forced, m.until, m.length = true, never, never
		m.move(to, m.now, breaker.RuleForced)
	}
}

func (m *model) release(now int64) {
	m.input(now)
	if m.forced {
		m.forced = false
		to := map[breaker.State]breaker.State{breaker.Open: breaker.HalfOpen, breaker.Closed: breaker.Closed}
		m.move(to[m.state], m.now, breaker.RuleReleased)
	}
}
