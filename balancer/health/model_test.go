package health_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/health"
)

// model is the definition over the whole history. The verdict is read off the
// text of all answers, P or F; the schedule is a search for the first point of
// the grid that the last probe left free.
type model struct {
	start, interval, timeout, slow int64
	fall, rise                     int
	startHealthy                   bool

	probes  []probe
	changes []health.Change
	now     int64
}

type probe struct {
	begin, end int64
	open       bool
	answer     string // P, F, or empty for a cancelled one
}

func newModel(cfg health.Config, start int64) *model {
	m := &model{start: start, interval: 10e9, timeout: 3e9, slow: math.MaxInt64, fall: 3, rise: 2, startHealthy: cfg.StartHealthy, now: start}
	if cfg.Interval > 0 {
		m.interval = int64(cfg.Interval)
		m.timeout = min(m.timeout, m.interval)
	}
	if cfg.Timeout > 0 {
		m.timeout = int64(cfg.Timeout)
	}
	if cfg.SlowAfter > 0 {
		m.slow = int64(cfg.SlowAfter)
	}
	if cfg.Fall > 0 {
		m.fall = cfg.Fall
	}
	if cfg.Rise > 0 {
		m.rise = cfg.Rise
	}
	if cfg.First == health.AfterInterval {
		m.start += m.interval
	}
	return m
}

// history is every answer given by now, a probe past its deadline included.
func (m *model) history(now int64) string {
	var b strings.Builder
	for _, p := range m.probes {
		if p.open && now >= p.begin+m.timeout {
			p.answer = "F"
		}
		b.WriteString(p.answer)
	}
	return b.String()
}

// verdict cuts the history after every answer that completed a run against
// the state of its time.
func (m *model) verdict(history string) (state health.State, since string) {
	if m.startHealthy {
		state = health.Healthy
	}
	for history != "" {
		var cut int
		switch state {
		case health.Unknown:
			state, cut = map[byte]health.State{'P': health.Healthy, 'F': health.Unhealthy}[history[0]], 1
		case health.Healthy:
			run := strings.Repeat("F", m.fall)
			if cut = strings.Index(history, run) + len(run); cut < len(run) {
				return state, history
			}
			state = health.Unhealthy
		case health.Unhealthy:
			run := strings.Repeat("P", m.rise)
			if cut = strings.Index(history, run) + len(run); cut < len(run) {
				return state, history
			}
			state = health.Healthy
		}
		since, history = history[:cut], history[cut:]
	}
	return state, since
}

func (m *model) last() *probe {
	if len(m.probes) == 0 {
		return nil
	}
	return &m.probes[len(m.probes)-1]
}

func (m *model) inFlight(now int64) bool {
	p := m.last()
	return p != nil && p.open && now < p.begin+m.timeout
}

// nextProbe is the first grid point after the last begin, and not before the
// last end.
func (m *model) nextProbe() int64 {
	p := m.last()
	for at := m.start; ; at += m.interval {
		if p == nil {
			return at
		}
		end := p.end
		if p.open {
			end = p.begin + m.timeout
		}
		if at > p.begin && at >= end {
			return at
		}
	}
}

func (m *model) nextChange() int64 {
	if p := m.last(); p != nil && p.open {
		return p.begin + m.timeout
	}
	return math.MaxInt64
}

func (m *model) due(now int64) bool { return !m.inFlight(now) && now >= m.nextProbe() }

func (m *model) counts(now int64) health.Counts {
	h := m.history(now)
	return health.Counts{Passes: uint64(strings.Count(h, "P")), Failures: uint64(strings.Count(h, "F"))}
}

// end settles the last probe and notes the change if the verdict differs.
func (m *model) end(at int64, answer string, r health.Result) {
	p := m.last()
	before, since := m.verdict(m.history(p.begin))
	p.open, p.end, p.answer = false, at, answer
	after, _ := m.verdict(m.history(at))
	if before != after {
		since += answer
		run := len(since) - len(strings.TrimRight(since, answer))
		m.changes = append(m.changes, health.Change{From: before, To: after, At: at, Last: r, Run: run})
	}
}

func (m *model) move(now int64) {
	m.now = max(m.now, now)
	if p := m.last(); p != nil && p.open && m.now >= p.begin+m.timeout {
		m.end(p.begin+m.timeout, "F", health.TimedOut)
	}
}

func (m *model) record(i int, ok bool) {
	if p := m.last(); p == nil || i != len(m.probes)-1 || !p.open {
		return
	}
	switch p := m.last(); {
	case !ok:
		m.end(m.now, "F", health.Failed)
	case m.now-p.begin > m.slow:
		m.end(m.now, "F", health.Slow)
	default:
		m.end(m.now, "P", health.Passed)
	}
}

func drawConfig(t *rapid.T) health.Config {
	small := func(name string) time.Duration { return time.Duration(rapid.IntRange(0, 12).Draw(t, name)) }
	return health.Config{
		Interval:     time.Duration(rapid.IntRange(1, 9).Draw(t, "interval")),
		Timeout:      small("timeout"),
		SlowAfter:    small("slow"),
		Fall:         rapid.IntRange(0, 4).Draw(t, "fall"),
		Rise:         rapid.IntRange(0, 4).Draw(t, "rise"),
		StartHealthy: rapid.Bool().Draw(t, "start healthy"),
		First:        health.FirstProbe(rapid.IntRange(0, 1).Draw(t, "first")),
	}
}

// propModel runs the Core and the definition side by side. The Core is moved
// to another timeline now and then, through its saved state.
func propModel(t *rapid.T) {
	cfg := drawConfig(t)
	now := int64(rapid.IntRange(-50, 50).Draw(t, "start"))
	m := newModel(cfg, now)
	core := health.NewCore(cfg, now)
	shift := int64(0)
	var handles []health.Probe
	seen := 0
	changed := func(what string, got health.Change, ok bool) {
		t.Helper()
		want := m.changes[seen:]
		seen = len(m.changes)
		got.At -= shift
		if ok != (len(want) == 1) || ok && got != want[0] {
			t.Fatalf("%s at %d: got %+v, %v, want %+v", what, m.now, got, ok, want)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"advance": func(t *rapid.T) {
			deadline := m.nextChange()
			if deadline == math.MaxInt64 {
				deadline = m.nextProbe()
			}
			slow := now
			if p := m.last(); p != nil && m.slow != math.MaxInt64 {
				slow = p.begin + m.slow
			}
			now = rapid.SampledFrom([]int64{
				deadline, deadline - 1, m.nextProbe(), m.nextProbe() - 1, slow, slow + 1,
				now + int64(rapid.IntRange(-3, 40).Draw(t, "step")),
			}).Draw(t, "to")
		},
		"begin": func(t *rapid.T) {
			m.move(now)
			want := m.due(m.now)
			if want {
				m.probes = append(m.probes, probe{begin: m.now, open: true})
			}
			p, ok, ch, chOK := core.Begin(now + shift)
			changed("Begin", ch, chOK)
			if ok != want {
				t.Fatalf("Begin at %d: got %v, want %v", m.now, ok, want)
			}
			if ok {
				handles = append(handles, p)
				if p.Deadline-shift != m.now+m.timeout {
					t.Fatalf("deadline %d, want %d", p.Deadline-shift, m.now+m.timeout)
				}
			}
		},
		"record": func(t *rapid.T) {
			i := len(handles) - 1 - rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "back")
			var p health.Probe
			if i >= 0 {
				p = handles[i]
			}
			ok := rapid.Bool().Draw(t, "ok")
			m.move(now)
			m.record(i, ok)
			ch, chOK := core.Record(now+shift, p, ok)
			changed("Record", ch, chOK)
		},
		"cancel": func(t *rapid.T) {
			if len(handles) == 0 {
				return
			}
			m.move(now)
			if p := m.last(); p.open {
				p.open, p.end = false, m.now
			}
			ch, chOK := core.Cancel(now+shift, handles[len(handles)-1])
			changed("Cancel", ch, chOK)
		},
		"poll": func(t *rapid.T) {
			m.move(now)
			ch, chOK := core.Poll(now + shift)
			changed("Poll", ch, chOK)
		},
		"restore": func(t *rapid.T) {
			at := max(now, m.now)
			saved := core.AppendState([]byte("head"), at+shift)
			moved := int64(rapid.IntRange(-1000, 1000).Draw(t, "shift"))
			next := health.NewCore(cfg, 12345)
			rest, err := next.RestoreState(append(saved, "tail"...)[4:], at+moved)
			if err != nil || string(rest) != "tail" {
				t.Fatalf("restore: %q, %v", rest, err)
			}
			core, shift = next, moved
		},
		"": func(t *rapid.T) {
			at := max(now, m.now)
			if rapid.Bool().Draw(t, "look ahead") {
				at += int64(rapid.IntRange(0, 30).Draw(t, "ahead"))
			}
			before := core
			state, _ := m.verdict(m.history(at))
			got := fmt.Sprint(core.State(at+shift), core.Healthy(at+shift), core.Due(at+shift), core.Counts(at+shift), core.NextProbe()-shift)
			want := fmt.Sprint(state, state == health.Healthy, m.due(at), m.counts(at), m.nextProbe())
			if got != want {
				t.Fatalf("at %d: got %s, want %s\n%+v", at, got, want, m.probes)
			}
			next := core.NextChange()
			if next != math.MaxInt64 {
				next -= shift
			}
			if next != m.nextChange() {
				t.Fatalf("NextChange: got %d, want %d", next, m.nextChange())
			}
			if core != before {
				t.Fatalf("a read changed the state")
			}
		},
	})
	if !slices.IsSortedFunc(m.changes, func(a, b health.Change) int { return int(a.At - b.At) }) {
		t.Fatalf("changes out of order: %+v", m.changes)
	}
}

func TestModel(t *testing.T) { checkSeeded(t, 1, propModel) }
