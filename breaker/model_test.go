package breaker_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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
	m.state, m.rule, m.since = to, rule, at
	m.era++
	m.results, m.trials = nil, nil
	if ch.From == to {
		return
	}
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

// drawConfig draws settings with small durations, so that instants coincide.
func drawConfig(t *rapid.T) breaker.Config {
	rate := func(name string) float64 {
		return float64(rapid.SampledFrom([]int{0, 0, 1, 4, 6, 8, 12}).Draw(t, name)) / 12
	}
	d := func(lo, hi int, name string) time.Duration {
		return time.Duration(rapid.IntRange(lo, hi).Draw(t, name))
	}
	cfg := breaker.Config{
		ConsecutiveFailures: rapid.IntRange(0, 4).Draw(t, "consecutive"),
		WindowFailures:      rapid.IntRange(0, 4).Draw(t, "windowFailures"),
		FailureRate:         rate("failureRate"),
		SlowRate:            rate("slowRate"),
		SlowAfter:           d(1, 30, "slowAfter"),
		FailAfter:           rapid.SampledFrom([]time.Duration{0, 0, 20}).Draw(t, "failAfter"),
		MinCalls:            rapid.IntRange(1, 6).Draw(t, "minCalls"),
		Window:              d(1, 100, "window"),
		OpenFor:             d(1, 50, "openFor"),
		OpenGrowth:          float64(rapid.IntRange(4, 12).Draw(t, "growth4")) / 4,
		OpenJitter:          rapid.SampledFrom([]float64{0, 0, 0.25, 1}).Draw(t, "jitter"),
		ForgetAfter:         rapid.SampledFrom([]time.Duration{-1, 1, 40, 200}).Draw(t, "forgetAfter"),
		LateFailure:         breaker.LateFailure(rapid.IntRange(0, 1).Draw(t, "lateFailure")),
		Trials:              rapid.IntRange(1, 3).Draw(t, "trials"),
		Passes:              rapid.IntRange(1, 3).Draw(t, "passes"),
		TrialTimeout:        rapid.SampledFrom([]time.Duration{-1, 5, 30}).Draw(t, "trialTimeout"),
		FlapTransitions:     rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "flapTransitions"),
		FlapWindow:          d(1, 100, "flapWindow"),
	}
	cfg.OpenMax = cfg.OpenFor + d(0, 300, "openMaxOver")
	if cfg.ConsecutiveFailures == 0 && cfg.WindowFailures == 0 && cfg.FailureRate == 0 && cfg.SlowRate == 0 {
		cfg.ConsecutiveFailures = 3
	}
	return cfg
}

// propModel holds a Core against the model.
func propModel(t *rapid.T) {
	cfg := drawConfig(t)
	seed := rapid.Uint64().Draw(t, "seed")
	start := rapid.SampledFrom([]int64{0, -1000, 1 << 40}).Draw(t, "start")
	core := breaker.NewCore(cfg, seed)
	m := &model{cfg: cfg, now: math.MinInt64, since: math.MinInt64 / 2}
	now := start
	type pair struct {
		c breaker.Ticket
		m mticket
	}
	var held, settled []pair

	check := func() {
		var got []breaker.Change
		for ch, ok := core.Pop(); ok; ch, ok = core.Pop() {
			got = append(got, ch)
		}
		if !slices.Equal(got, m.changes) {
			t.Fatalf("changes\n got %+v\nwant %+v", got, m.changes)
		}
		m.changes = nil
		if got := core.Stats(); got != m.stats {
			t.Fatalf("stats %+v, want %+v", got, m.stats)
		}
	}
	// drawn peeks at the length that the core drew for the opening just made; 0
	// if it made none, which no bound allows.
	drawn := func() int64 {
		var all []breaker.Change
		c2 := clone(t, &core, cfg, seed)
		for ch, ok := c2.Pop(); ok; ch, ok = c2.Pop() {
			all = append(all, ch)
		}
		for _, ch := range slices.Backward(all) {
			if ch.Kind == breaker.Transition && ch.To == breaker.Open {
				return int64(ch.OpenFor)
			}
		}
		return 0
	}
	done := func(t *rapid.T, p pair) {
		ok := rapid.IntRange(0, 2).Draw(t, "ok") == 0
		var took int64
		var got bool
		if rapid.Bool().Draw(t, "measured") {
			took = int64(rapid.SampledFrom([]time.Duration{-1, 0, cfg.SlowAfter, cfg.SlowAfter + 1, 20, 21}).Draw(t, "took"))
			got = core.DoneIn(now, p.c, ok, took)
		} else {
			took = max(now, m.now) - p.m.at
			got = core.Done(now, p.c, ok)
		}
		want, err := m.done(now, p.m, ok, took, drawn)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("at %d: counted %v, want %v", now, got, want)
		}
		check()
	}
	// Some runs leave out some operations, so that others come in long rows. They
	// do nothing instead of t.Skip: fuzzed bytes can choose them for ever, which
	// rapid takes for a failure.
	skip := rapid.Uint8().Draw(t, "skip")
	unless := func(bit int, f func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			if skip>>bit&1 == 0 {
				f(t)
			}
		}
	}
	call := func(t *rapid.T) {
		tk, why := core.Allow(now)
		mt, want := m.allow(now)
		if why != want || tk.Valid() != (want == breaker.Admitted) || tk.Trial() != (mt.trial != nil) {
			t.Fatalf("allow at %d: %v %v, want %v", now, tk, why, want)
		}
		if tk.Valid() {
			held = append(held, pair{tk, mt})
		}
		check()
	}
	settle := func(t *rapid.T) {
		if len(held) == 0 {
			return
		}
		i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
		p := held[i]
		held = slices.Delete(held, i, i+1)
		settled = append(settled, p)
		done(t, p)
	}
	advance := func(t *rapid.T) {
		step := int64(rapid.IntRange(0, 40).Draw(t, "step"))
		at, _ := m.due()
		switch rapid.IntRange(0, 5).Draw(t, "to") {
		case 0:
			if at != never {
				now = max(now, at)
			}
		case 1:
			if at != never {
				now = max(now, at-1)
			}
		case 2:
			now += int64(cfg.Window) - step%3
		case 3:
			now -= step % 10 // a reading that goes back
		default:
			now += step
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"allow":  call,
		"allow2": call,
		"done":   settle,
		"done2":  settle,
		"burst": unless(0, func(t *rapid.T) {
			for range rapid.IntRange(1, 6).Draw(t, "n") {
				call(t)
				if len(held) > 0 {
					p := held[len(held)-1]
					held = held[:len(held)-1]
					settled = append(settled, p)
					done(t, p)
				}
			}
		}),
		"again": unless(1, func(t *rapid.T) {
			// A trial counts once; another ticket counts each time.
			if len(settled) == 0 {
				return
			}
			done(t, rapid.SampledFrom(settled).Draw(t, "p"))
		}),
		"zero": func(t *rapid.T) {
			core.Cancel(now, breaker.Ticket{})
			m.input(now)
			if core.Done(now, breaker.Ticket{}, false) {
				t.Fatal("the zero ticket counted")
			}
			check()
		},
		"cancel": unless(2, func(t *rapid.T) {
			if len(held) == 0 {
				return
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			core.Cancel(now, held[i].c)
			m.cancel(now, held[i].m)
			settled = append(settled, held[i])
			held = slices.Delete(held, i, i+1)
			check()
		}),
		"poll": unless(3, func(t *rapid.T) {
			core.Poll(now)
			m.input(now)
			check()
		}),
		"trip": unless(4, func(t *rapid.T) {
			d := int64(rapid.IntRange(-1, 60).Draw(t, "for"))
			core.Trip(now, d)
			m.trip(now, d)
			check()
		}),
		"force": unless(5, func(t *rapid.T) {
			to := breaker.State(rapid.IntRange(0, 2).Draw(t, "to"))
			core.Force(now, to)
			m.force(now, to)
			check()
		}),
		"release": unless(6, func(t *rapid.T) {
			core.Release(now)
			m.release(now)
			check()
		}),
		"restore": unless(7, func(t *rapid.T) {
			core = clone(t, &core, cfg, seed)
		}),
		"advance":  advance,
		"advance2": advance,
		"": func(t *rapid.T) {
			before := core.AppendState(nil, now)
			for _, ahead := range []int64{0, 1, 13} {
				m.compare(t, &core, now+ahead)
			}
			if !bytes.Equal(before, core.AppendState(nil, now)) {
				t.Fatal("a read changed something")
			}
		},
	})
}

// compare holds all reads at now against the model, which is rolled forward on a
// copy for that.
func (m *model) compare(t *rapid.T, core *breaker.Core, now int64) {
	if at, _ := m.due(); core.NextChange() != at {
		t.Fatalf("next change %d, want %d", core.NextChange(), at)
	}
	if core.Forced() != m.forced || core.Rule() != m.rule {
		t.Fatalf("forced %v by %v, want %v by %v", core.Forced(), core.Rule(), m.forced, m.rule)
	}
	future := *m
	future.trials = nil
	for _, tr := range m.trials {
		c := *tr
		future.trials = append(future.trials, &c)
	}
	flapping := m.flap && max(now, m.now) < m.flapEnd()
	future.input(now)
	if got := core.State(now); got != future.state {
		t.Fatalf("state at %d is %v, want %v", now, got, future.state)
	}
	counts := future.counts(future.now)
	ready := future.state == breaker.Closed || future.state == breaker.HalfOpen && counts.Trials < m.cfg.Trials
	if got := core.Ready(now); got != ready {
		t.Fatalf("ready at %d is %v, want %v", now, got, ready)
	}
	if got := core.Counts(now); got != counts {
		t.Fatalf("counts at %d are %+v, want %+v", now, got, counts)
	}
	if got := core.Flapping(now); got != flapping {
		t.Fatalf("flapping at %d is %v, want %v", now, got, flapping)
	}
	if until := core.Until(); ready {
		if until > max(now, m.now) {
			t.Fatalf("ready at %d, but until %d", now, until)
		}
	} else if until <= max(now, m.now) {
		t.Fatalf("not ready at %d, but until %d", now, until)
	}
	idle := future.state == breaker.Closed && !m.forced && counts == breaker.Counts{} &&
		(m.cfg.FlapTransitions == 0 || future.recent(future.now) == 0) &&
		len(future.changes) == 0 && !future.remembers()
	if got := core.Idle(now); got != idle {
		t.Fatalf("idle at %d is %v, want %v", now, got, idle)
	}
}

// remembers reports whether a trip now would be longer for the past ones.
func (m *model) remembers() bool {
	return m.cfg.OpenGrowth != 1 && len(m.trips) > 0 &&
		(m.cfg.ForgetAfter < 0 || m.now-m.since < int64(m.cfg.ForgetAfter))
}

// clone returns a core restored from the saved state of c.
func clone(t *rapid.T, c *breaker.Core, cfg breaker.Config, seed uint64) breaker.Core {
	const at = 777
	saved := c.AppendState([]byte("head"), at)
	n := breaker.NewCore(cfg, seed)
	rest, err := n.RestoreState(append(saved[4:], "tail"...), at)
	if err != nil || string(rest) != "tail" {
		t.Fatalf("restore: %q, %v", rest, err)
	}
	if again := n.AppendState([]byte("head"), at); !bytes.Equal(again, saved) {
		t.Fatalf("saved again:\n got %x\nwant %x", again, saved)
	}
	return n
}

func TestModel(t *testing.T) {
	deepen(t, 1500)
	checkSeeded(t, 1, propModel)
}

// deepen raises the number of cases of the rapid tests from the default, which
// these cheap ones exhaust in milliseconds. An explicit flag wins.
func deepen(t *testing.T, checks int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	old := f.Value.String()
	if old != f.DefValue {
		return
	}
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(opsOf(t, checks))))
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", old)) })
}
