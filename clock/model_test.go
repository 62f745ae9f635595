package clock_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	bb "github.com/benbjohnson/clock"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/clock"
)

// The model of a Manual: armings in the order in which they happened, due
// times as integers without limit on a line that no Set touches, and a search
// through all of them for what comes next. The reading is a second number.
type model struct {
	line, wall *big.Int // where the clock stands, and what it reads
	end        *big.Int // of the movement under way, nil if none
	armings    []arming // all there ever were
	log        []firing
}

type arming struct {
	timer int
	due   *big.Int
	over  bool // ran, stopped or reset
}

// firing is one call of a timer's function and what the clock read.
type firing struct {
	timer int
	now   int64
}

func newModel(start int64) *model {
	return &model{line: new(big.Int), wall: big.NewInt(start)}
}

// room is how far the reading can go on.
func (m *model) room() *big.Int {
	return new(big.Int).Sub(big.NewInt(math.MaxInt64), m.wall)
}

func (m *model) arm(timer int, d int64) {
	due := new(big.Int).Add(m.line, big.NewInt(max(d, 0)))
	m.armings = append(m.armings, arming{timer: timer, due: due})
}

func (m *model) disarm(timer int) (was bool) {
	for i := range m.armings {
		if a := &m.armings[i]; a.timer == timer && !a.over {
			a.over, was = true, true
		}
	}
	return was
}

// next is the arming that runs first among those that the clock can reach.
func (m *model) next() *arming {
	var best *arming
	last := new(big.Int).Add(m.line, m.room())
	for i := range m.armings {
		a := &m.armings[i]
		if !a.over && a.due.Cmp(last) <= 0 && (best == nil || a.due.Cmp(best.due) < 0) {
			best = a
		}
	}
	return best
}

func (m *model) pending() (n int) {
	for _, a := range m.armings {
		if !a.over {
			n++
		}
	}
	return n
}

func (m *model) stand(line *big.Int) {
	m.wall.Add(m.wall, new(big.Int).Sub(line, m.line))
	m.line = new(big.Int).Set(line)
}

// set steps the reading; it can only shorten a movement, at the end of time.
func (m *model) set(ns int64) {
	m.wall = big.NewInt(ns)
	m.shorten()
}

func (m *model) shorten() {
	last := new(big.Int).Add(m.line, m.room())
	if m.end != nil && m.end.Cmp(last) > 0 {
		m.end = last
	}
}

func (m *model) advance(d int64, react func(timer int)) {
	from := m.line
	if m.end != nil {
		from = m.end
	}
	m.moveTo(new(big.Int).Add(from, big.NewInt(max(d, 0))), react)
}

func (m *model) advanceTo(ns int64, react func(timer int)) {
	to := new(big.Int).Sub(big.NewInt(ns), m.wall)
	to.Add(to, m.line)
	for _, least := range []*big.Int{m.line, m.end} {
		if least != nil && to.Cmp(least) < 0 {
			to = least
		}
	}
	m.moveTo(to, react)
}

func (m *model) moveTo(to *big.Int, react func(timer int)) {
	nested := m.end != nil
	m.end = to
	m.shorten()
	if nested {
		return
	}
	for {
		a := m.next()
		if a == nil || a.due.Cmp(m.end) > 0 {
			break
		}
		a.over = true
		m.stand(a.due)
		m.log = append(m.log, firing{a.timer, m.wall.Int64()})
		react(a.timer)
	}
	m.stand(m.end)
	m.end = nil
}

// deed is something done to the clock by a test or by a timer's function.
type deed struct {
	kind  int
	timer int
	d     int64
}

const (
	deedArm = iota
	deedReset
	deedStop
	deedAdvance
	deedAdvanceTo
	deedStep
	deedSet
	deedKinds
)

// pair is a Manual and its model, to which the same is done. What a timer's
// function does is settled when it is armed first: script[timer] one deed per
// call, until used up.
type pair struct {
	tb     interface{ Fatalf(string, ...any) }
	m      *clock.Manual
	model  *model
	timers []clock.Timer
	script [][]deed
	log    []firing
	base   int64
	calls  []int // of the Manual's timers
	mcalls []int // of the model's
}

func newPair(tb interface{ Fatalf(string, ...any) }, start int64) *pair {
	return &pair{tb: tb, m: clock.NewManual(time.Unix(0, start)), model: newModel(start), base: start}
}

// create arms a new timer in both.
func (p *pair) create(d int64, script []deed) {
	id := len(p.timers)
	p.script = append(p.script, script)
	p.calls, p.mcalls = append(p.calls, 0), append(p.mcalls, 0)
	p.timers = append(p.timers, p.m.AfterFunc(time.Duration(d), func() {
		p.log = append(p.log, firing{id, p.m.Now().UnixNano()})
		if n := p.calls[id]; n < len(p.script[id]) {
			p.calls[id]++
			p.real(p.script[id][n])
		}
	}))
	p.model.arm(id, d)
}

// real and imagined do one deed to the Manual and to the model. Both return
// what the call reported.
func (p *pair) real(a deed) bool {
	switch a.kind {
	case deedReset:
		return p.timers[a.timer%len(p.timers)].Reset(time.Duration(a.d))
	case deedStop:
		return p.timers[a.timer%len(p.timers)].Stop()
	case deedAdvance:
		p.m.Advance(time.Duration(a.d))
	case deedAdvanceTo:
		p.m.AdvanceTo(time.Unix(0, a.d))
	case deedStep:
		return p.m.Step()
	case deedSet:
		p.m.Set(time.Unix(0, a.d))
	}
	return false
}

func (p *pair) imagined(a deed) bool {
	react := func(timer int) {
		if n := p.mcalls[timer]; n < len(p.script[timer]) {
			p.mcalls[timer]++
			p.imagined(p.script[timer][n])
		}
	}
	switch a.kind {
	case deedReset:
		was := p.model.disarm(a.timer % len(p.timers))
		p.model.arm(a.timer%len(p.timers), a.d)
		return was
	case deedStop:
		return p.model.disarm(a.timer % len(p.timers))
	case deedAdvance:
		p.model.advance(a.d, react)
	case deedAdvanceTo:
		p.model.advanceTo(a.d, react)
	case deedStep:
		next := p.model.next()
		if next == nil || p.model.end != nil {
			return false
		}
		p.model.moveTo(next.due, react)
		return true
	case deedSet:
		p.model.set(a.d)
	}
	return false
}

// do does a deed to both. There must be a timer.
func (p *pair) do(a deed) {
	if got, want := p.real(a), p.imagined(a); got != want {
		p.tb.Fatalf("%+v reported %v, want %v", a, got, want)
	}
}

// check compares everything that can be seen.
func (p *pair) check() {
	if !slices.Equal(p.log, p.model.log) {
		p.tb.Fatalf("ran %v\nwant %v", p.log, p.model.log)
	}
	if got, want := p.m.Now().UnixNano(), p.model.wall.Int64(); got != want {
		p.tb.Fatalf("Now is %d, want %d", got, want)
	}
	if got, want := p.m.Pending(), p.model.pending(); got != want {
		p.tb.Fatalf("Pending is %d, want %d", got, want)
	}
	next, ok := p.m.Next()
	want := p.model.next()
	if ok != (want != nil) {
		p.tb.Fatalf("Next is %v, want %v", ok, want != nil)
	}
	if ok {
		due := new(big.Int).Sub(want.due, p.model.line)
		due.Add(due, p.model.wall)
		if next.UnixNano() != due.Int64() {
			p.tb.Fatalf("Next is %d, want %d", next.UnixNano(), due)
		}
	}
}

// dueIn is how long until the next due time, or 0.
func (p *pair) dueIn() int64 {
	next := p.model.next()
	if next == nil {
		return 0
	}
	d := new(big.Int).Sub(next.due, p.model.line)
	if !d.IsInt64() {
		return math.MaxInt64
	}
	return d.Int64()
}

// drawDelay favours few distinct values, so that timers fall due together.
func drawDelay(t *rapid.T, due int64) int64 {
	return rapid.OneOf(
		rapid.Int64Range(-1, 5),
		rapid.SampledFrom([]int64{due, due - 1, due + 1}),
		rapid.Int64Range(0, 1000),
		rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MaxInt64 - 1}),
	).Draw(t, "d")
}

// drawWall is a reading near the one given or near an end of time.
func drawWall(t *rapid.T, now int64) int64 {
	return rapid.OneOf(
		rapid.Map(rapid.Int64Range(-20, 20), func(d int64) int64 {
			if now > math.MaxInt64-d && d > 0 || now < math.MinInt64-d && d < 0 {
				return now
			}
			return now + d
		}),
		rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 3, 0, math.MaxInt64 - 7, math.MaxInt64}),
	).Draw(t, "wall")
}

// drawScript is what a timer's function does, call by call. Each entry is used
// up, so even functions without delay come to an end.
func drawScript(t *rapid.T, now int64) []deed {
	script := make([]deed, rapid.IntRange(0, 3).Draw(t, "deeds"))
	for i := range script {
		a := deed{kind: rapid.IntRange(deedReset, deedKinds-1).Draw(t, "kind")}
		a.timer = rapid.IntRange(0, 7).Draw(t, "timer")
		if a.kind == deedSet || a.kind == deedAdvanceTo {
			a.d = drawWall(t, now)
		} else {
			a.d = rapid.Int64Range(-1, 9).Draw(t, "d")
		}
		script[i] = a
	}
	return script
}

func propManual(t *rapid.T) {
	start := rapid.SampledFrom([]int64{0, t0.UnixNano(), math.MinInt64, math.MaxInt64 - 10}).Draw(t, "start")
	p := newPair(t, start)
	arm := func(t *rapid.T) {
		if len(p.timers) == 12 {
			p.do(deed{kind: deedReset, timer: rapid.IntRange(0, 11).Draw(t, "timer"), d: drawDelay(t, p.dueIn())})
			return
		}
		now := p.model.wall.Int64()
		p.create(drawDelay(t, p.dueIn()), drawScript(t, now))
	}
	doing := func(kind int) func(*rapid.T) {
		return func(t *rapid.T) {
			a := deed{kind: kind}
			switch kind {
			case deedReset, deedAdvance:
				a.d = drawDelay(t, p.dueIn())
			case deedSet, deedAdvanceTo:
				a.d = drawWall(t, p.model.wall.Int64())
			}
			a.timer = rapid.IntRange(0, 11).Draw(t, "timer")
			p.do(a)
		}
	}
	arm(t) // every deed can be done then
	t.Repeat(map[string]func(*rapid.T){
		"arm":       arm,
		"reset":     doing(deedReset),
		"stop":      doing(deedStop),
		"advance":   doing(deedAdvance),
		"advanceTo": doing(deedAdvanceTo),
		"step":      doing(deedStep),
		"set":       doing(deedSet),
		"":          func(*rapid.T) { p.check() },
	})
}

func TestManualModel(t *testing.T) { checkSeeded(t, 1, propManual) }

// The heap under many timers: what runs is what sorting says.
func TestManualManyTimers(t *testing.T) {
	checkSeeded(t, 2, func(t *rapid.T) {
		p := newPair(t, 0)
		for range 80 {
			p.create(rapid.Int64Range(0, 60).Draw(t, "d"), nil)
		}
		for range 40 {
			p.do(deed{
				kind:  rapid.SampledFrom([]int{deedReset, deedStop, deedStop}).Draw(t, "kind"),
				timer: rapid.IntRange(0, 79).Draw(t, "timer"),
				d:     rapid.Int64Range(0, 60).Draw(t, "d"),
			})
		}
		for p.model.next() != nil {
			p.do(deed{kind: deedStep})
		}
		p.check()
	})
}

// scheduled is one clock in the differential test.
type scheduled struct {
	c       clock.Scheduler
	advance func(time.Duration)

	mu     sync.Mutex // guards below: the Mock runs functions on goroutines
	timers []clock.Timer
	log    []string
}

// timer returns one of the timers armed so far.
func (x *scheduled) timer(i int) clock.Timer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.timers[i%len(x.timers)]
}

// ran returns the log, sorted by time and then by timer.
func (x *scheduled) ran() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(slices.Values(x.log))
}

// arm arms a timer whose function arms itself again by the delays given.
func (x *scheduled) arm(d time.Duration, again []time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := len(x.timers)
	x.timers = append(x.timers, nil)
	x.timers[id] = x.c.AfterFunc(d, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.log = append(x.log, fmt.Sprintf("%020d: %d", x.c.Now().UnixNano(), id))
		if len(again) > 0 {
			d := again[0]
			again = again[1:]
			x.timers[id].Reset(d)
		}
	})
}

// Manual and the Mock of benbjohnson/clock run the same timers at the same
// times. In a bubble the Mock's pauses cost nothing and its goroutines have run
// when a pause is over. It does not promise an order among timers due together,
// so the logs are sorted within a time.
func TestManualLikeMock(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			mock, manual := bb.NewMock(), new(clock.Manual)
			both := []*scheduled{
				{c: clock.Adapt(mock), advance: mock.Add},
				{c: manual, advance: manual.Advance},
			}
			delay := rapid.Map(rapid.IntRange(0, 9), func(ms int) time.Duration {
				return time.Duration(ms) * time.Millisecond
			})
			arm := func(t *rapid.T) {
				d, again := delay.Draw(t, "d"), rapid.SliceOfN(delay, 0, 2).Draw(t, "again")
				for _, x := range both {
					x.arm(d, again)
				}
			}
			arm(t) // so that there is one to stop
			t.Repeat(map[string]func(*rapid.T){
				"arm": arm,
				"stop": func(t *rapid.T) {
					i := rapid.IntRange(0, 20).Draw(t, "timer")
					a, b := both[0].timer(i).Stop(), both[1].timer(i).Stop()
					if a != b {
						t.Fatalf("Stop is %v, the Mock's %v", b, a)
					}
				},
				"reset": func(t *rapid.T) {
					i := rapid.IntRange(0, 20).Draw(t, "timer")
					d := delay.Draw(t, "d")
					a, b := both[0].timer(i).Reset(d), both[1].timer(i).Reset(d)
					if a != b {
						t.Fatalf("Reset is %v, the Mock's %v", b, a)
					}
				},
				"advance": func(t *rapid.T) {
					d := delay.Draw(t, "d")
					for _, x := range both {
						x.advance(d)
					}
				},
				"": func(t *rapid.T) {
					if a, b := mock.Now(), manual.Now(); !a.Equal(b) {
						t.Fatalf("Now is %v, the Mock's %v", b, a)
					}
					a, b := both[0].ran(), both[1].ran()
					if !slices.Equal(a, b) {
						t.Fatalf("ran %v, the Mock %v", b, a)
					}
				},
			})
		})
	})
}
