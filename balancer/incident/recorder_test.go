package incident_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

func verifyIncident(t *testing.T, i incident.Incident) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, i.Write(&b))
	requireVerifies(t, b.Bytes())
}

// failing is a Pool of n upstreams that is recorded, and a function that has its
// next pick fail.
func failing(t *testing.T, n int, rc incident.Config) (*incident.Recorder, *balancer.Pool[balancer.Member], *clock.Manual, func()) {
	clk := clock.NewManual(time.Unix(0, 0))
	rec := incident.NewRecorder(rc)
	p, err := balancer.NewPool(balancer.Config{
		Policy: balancer.RoundRobin{First: true}, Seed: 3, Clock: clk, OnEvent: rec.OnEvent, WhenNone: balancer.FailFast,
		Outlier: outlier.Config{Consecutive: 2, MaxEjectedPercent: 100, Last: outlier.EjectLast, Base: time.Second},
		Breaker: breaker.Config{Off: true},
	}, members(n)...)
	require.NoError(t, err)
	return rec, p, clk, func() {
		clk.Advance(time.Millisecond)
		if l, err := p.Acquire(balancer.Request{}); err == nil {
			l.Release(balancer.TransportFailure)
		} else {
			rec.OnError(err)
		}
	}
}

func TestRecorderTriggers(t *testing.T) {
	var dumps []incident.Incident
	rec, p, clk, fail := failing(t, 2, incident.Config{OnTrigger: func(i incident.Incident) { dumps = append(dumps, i) }})
	require.Empty(t, rec.Dump().Recording.Records, "attached to nothing")
	require.NoError(t, p.SetHealth("m1", false, "test"))
	require.NoError(t, p.SetHealth("m1", true, "test"))
	require.Empty(t, dumps)
	rec.Attach(p)
	reasons := func() (out []string) {
		for _, d := range dumps {
			out = append(out, d.Reason)
		}
		return out
	}
	for range 4 {
		fail()
	}
	want := []string{"ejected m0", "ejected m1", "nothing selectable"}
	require.Equal(t, want, reasons())
	require.Zero(t, rec.Suppressed())
	fail()
	require.Len(t, dumps, 3)
	require.EqualValues(t, 1, rec.Suppressed(), "nothing to pick, again")
	clk.Advance(2 * time.Second)
	for range 4 {
		fail()
	}
	require.Len(t, dumps, 3)
	require.EqualValues(t, 4, rec.Suppressed(), "two ejections and the end of them, within the gap")
	clk.Advance(30 * time.Second)
	for range 4 {
		fail()
	}
	require.Equal(t, append(want, want...), reasons())
	for _, d := range dumps {
		verifyIncident(t, d)
	}
	last := dumps[2].Recording.Records
	require.Equal(t, balancer.UpstreamEjected, last[len(last)-1].Event, "a dump ends with what triggered it")

	rec.Close()
	rec.Close()
	n := len(rec.Dump().Recording.Records)
	clk.Advance(time.Hour)
	for range 4 {
		fail()
	}
	require.Len(t, dumps, 6, "closed")
	require.Len(t, rec.Dump().Recording.Records, n)
	verifyIncident(t, rec.Dump())

	clk.Advance(time.Hour)
	rec.Attach(p)
	for range 4 {
		fail()
	}
	require.Equal(t, want, reasons()[6:], "attached again")
	verifyIncident(t, rec.Dump())
}

func TestRecorderTriggersOfChoice(t *testing.T) {
	for _, x := range []struct {
		triggers []balancer.EventKind
		want     []string
	}{
		{[]balancer.EventKind{}, []string{"nothing selectable"}},
		{[]balancer.EventKind{balancer.UpstreamReturned}, []string{"nothing selectable", "returned m0", "returned m1"}},
	} {
		var got []string
		rec, p, clk, fail := failing(t, 2, incident.Config{Triggers: x.triggers, Gap: -1, OnTrigger: func(i incident.Incident) { got = append(got, i.Reason) }})
		rec.Attach(p)
		for range 4 {
			fail()
		}
		clk.Advance(2 * time.Second)
		p.Poll()
		require.Equal(t, x.want, got)
	}
}

// The gap is over when it is over, to the nanosecond.
func TestRecorderGap(t *testing.T) {
	n := 0
	rec, p, _, _ := failing(t, 2, incident.Config{Gap: time.Second, OnTrigger: func(incident.Incident) { n++ }})
	rec.Attach(p)
	at := time.Unix(100, 0)
	for _, x := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 1}, {time.Second - 1, 1}, {time.Second, 2}, {2*time.Second - 1, 2}, {2 * time.Second, 3}} {
		rec.OnEvent(balancer.Event{Kind: balancer.BreakerOpened, At: at.Add(x.after), Upstream: "m0"})
		require.Equal(t, x.want, n, x.after)
	}
	require.EqualValues(t, 3, rec.Suppressed())
}

// What happens to one upstream leaves the others their triggers, and of one kind
// those of another; of very many they share what is left.
func TestRecorderGaps(t *testing.T) {
	n := 0
	rec, p, _, _ := failing(t, 2, incident.Config{Gap: time.Second, OnTrigger: func(incident.Incident) { n++ }})
	rec.Attach(p)
	at := time.Unix(100, 0)
	send := func(kind balancer.EventKind, upstream string, after time.Duration) bool {
		was := n
		rec.OnEvent(balancer.Event{Kind: kind, Upstream: upstream, At: at.Add(after)})
		return n > was
	}
	require.True(t, send(balancer.BreakerOpened, "m0", 0))
	require.True(t, send(balancer.BreakerOpened, "m1", 0))
	require.True(t, send(balancer.UpstreamEjected, "m0", 0))
	require.False(t, send(balancer.BreakerOpened, "m0", time.Second-1))
	for i := range 1021 {
		require.True(t, send(balancer.BreakerOpened, strconv.Itoa(i), 0))
	}
	require.True(t, send(balancer.BreakerOpened, "x", 0), "the first of those that share")
	require.False(t, send(balancer.BreakerOpened, "y", 0))
	require.True(t, send(balancer.UpstreamEjected, "y", 0), "another kind")
	require.True(t, send(balancer.BreakerOpened, "z", time.Second), "room again")
	require.True(t, send(balancer.BreakerOpened, "y", time.Second))
	require.False(t, send(balancer.BreakerOpened, "y", 2*time.Second-1))
}

func TestRecorderWithoutGap(t *testing.T) {
	n := 0
	rec, p, _, _ := failing(t, 2, incident.Config{Gap: -time.Second, OnTrigger: func(incident.Incident) { n++ }})
	rec.Attach(p)
	for _, at := range []int64{100, 100, 90} {
		rec.OnEvent(balancer.Event{Kind: balancer.BreakerOpened, Upstream: "m0", At: time.Unix(at, 0)})
	}
	require.Equal(t, 3, n)
	require.Zero(t, rec.Suppressed())
}

// Whatever takes the last one away triggers.
func TestRecorderNothingSelectable(t *testing.T) {
	for name, act := range map[string]func(*balancer.Pool[balancer.Member]){
		"unhealthy": func(p *balancer.Pool[balancer.Member]) { _ = p.SetHealth("m0", false, "test") },
		"left":      func(p *balancer.Pool[balancer.Member]) { _ = p.Update() },
		"opened": func(p *balancer.Pool[balancer.Member]) {
			l, _ := p.Acquire(balancer.Request{})
			l.Release(balancer.Failure)
		},
	} {
		var got []string
		rec := incident.NewRecorder(incident.Config{
			Triggers: []balancer.EventKind{}, OnTrigger: func(i incident.Incident) { got = append(got, i.Reason) },
		})
		p, err := balancer.NewPool(balancer.Config{
			Seed: 1, Clock: clock.NewManual(time.Unix(0, 0)), OnEvent: rec.OnEvent,
			Breaker: breaker.Config{ConsecutiveFailures: 1}, Outlier: outlier.Config{Off: true},
		}, members(1)...)
		require.NoError(t, err)
		rec.Attach(p)
		act(p)
		require.Equal(t, []string{"nothing selectable"}, got, name)
	}
}

// A Recorder whose dumps nobody wants is told of events like any other.
func TestRecorderWithoutTrigger(t *testing.T) {
	rec, p, _, fail := failing(t, 2, incident.Config{})
	rec.Attach(p)
	for range 5 {
		fail()
	}
	totals := p.Snapshot().Totals
	require.EqualValues(t, 2, totals.Ejections)
	require.Zero(t, totals.HookPanics)
	require.Zero(t, rec.Suppressed())
}

// What was decided before a Recorder was attached is not in its dump: it is no
// trigger, and does not begin a gap.
func TestRecorderTriggerBeforeAttach(t *testing.T) {
	var got []incident.Incident
	var p *balancer.Pool[balancer.Member]
	rec := incident.NewRecorder(incident.Config{OnTrigger: func(i incident.Incident) { got = append(got, i) }})
	attached := false
	hook := func(e balancer.Event) {
		if e.Kind == balancer.UpstreamUnhealthy && !attached {
			attached = true
			rec.Attach(p)
		}
		rec.OnEvent(e)
	}
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clock.NewManual(time.Unix(0, 0)), OnEvent: hook}, members(1)...)
	require.NoError(t, err)
	require.NoError(t, p.SetHealth("m0", false, "test"))
	require.True(t, attached)
	require.Empty(t, got)
	require.NoError(t, p.SetHealth("m0", true, "test"))
	require.NoError(t, p.SetHealth("m0", false, "test"))
	require.Len(t, got, 1)
	require.NotEmpty(t, got[0].Recording.Records)
}

// One Recorder takes the place of another, and closing that does not end it.
func TestRecorderReplaced(t *testing.T) {
	a, p, _, _ := failing(t, 2, incident.Config{})
	b := incident.NewRecorder(incident.Config{})
	a.Attach(p)
	p.Poll()
	b.Attach(p)
	a.Close()
	p.Poll()
	require.Len(t, a.Dump().Recording.Records, 1)
	require.Len(t, b.Dump().Recording.Records, 1)
	b.Close()
	p.Poll()
	require.Len(t, b.Dump().Recording.Records, 1)
}

// That all upstreams are at their limits no event tells, but the error does.
func TestRecorderOnError(t *testing.T) {
	var got []string
	rec := incident.NewRecorder(incident.Config{OnTrigger: func(i incident.Incident) { got = append(got, i.Reason) }})
	rec.OnError(balancer.ErrNoUpstreams) // attached to nothing
	p, err := balancer.NewPool(balancer.Config{Seed: 1}, balancer.Member{Name: "a", Share: 1, Limit: 1})
	require.NoError(t, err)
	rec.Attach(p)
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	_, err = p.Acquire(balancer.Request{})
	rec.OnError(err)
	rec.OnError(errDown)
	l.Release(balancer.Success)
	require.Equal(t, []string{"nothing selectable"}, got)

	empty, err := balancer.NewPool[balancer.Member](balancer.Config{Seed: 1})
	require.NoError(t, err)
	rec = incident.NewRecorder(incident.Config{OnTrigger: func(i incident.Incident) { got = append(got, i.Reason) }})
	rec.Attach(empty)
	_, err = empty.Acquire(balancer.Request{})
	require.ErrorIs(t, err, balancer.ErrNoUpstreams)
	rec.OnError(err)
	require.Len(t, got, 2)
}

func TestRecorderFile(t *testing.T) {
	rec, p, _, fail := failing(t, 3, incident.Config{Options: incident.Options{Note: "mine"}})
	rec.Attach(p)
	fail()
	name := filepath.Join(t.TempDir(), "x.jsonl")
	require.NoError(t, rec.WriteFile(name))
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Contains(t, string(b), `"note":"mine"`)
	require.NoError(t, verify(t, b))
	require.Error(t, rec.WriteFile(filepath.Join(name, "no such directory")))
	requireClosed(t, name)
	// What cannot be written leaves what was there, and nothing beside it.
	require.ErrorIs(t, incident.NewRecorder(incident.Config{}).WriteFile(name), incident.ErrUnattached)
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "x", "y"), 0o700))
	require.Error(t, rec.WriteFile(filepath.Join(dir, "x")))
	again, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, b, again)
	for _, d := range []string{dir, filepath.Dir(name)} {
		entries, err := os.ReadDir(d)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
	require.ErrorIs(t, incident.Config{Size: -1}.Validate(), balancer.ErrConfig)
	require.Panics(t, func() { incident.NewRecorder(incident.Config{Size: -1}) })
}

// requireClosed looks through what the process has open, where that can be seen.
func requireClosed(t *testing.T, name string) {
	open, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil {
			require.NotEqual(t, name, to, "still open")
		}
	}
}

// Whatever triggers while many goroutines use the Pool verifies, and so does
// every dump on demand; the ring goes round several times.
func TestRecorderUnderLoad(t *testing.T) {
	seed, _ := seedOf(t, 3)
	var mu sync.Mutex
	var dumps []incident.Incident
	rec := incident.NewRecorder(incident.Config{Size: 300, Gap: 2 * time.Millisecond, OnTrigger: func(i incident.Incident) {
		mu.Lock()
		defer mu.Unlock()
		if len(dumps) < 8 {
			dumps = append(dumps, i)
		}
	}})
	cfg := busy(balancer.PeakEWMA{})
	cfg.OnEvent = rec.OnEvent
	p, err := balancer.NewPool(cfg, members(40)...)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		crowd(t, p, seed, opsOf(t, 2000)/8, func() { rec.Attach(p) })
	}()
	for {
		select {
		case <-done:
			rec.Close()
			dumps = append(dumps, rec.Dump())
			triggers := 0
			for _, d := range dumps {
				verifyIncident(t, d)
				if d.Reason != "demand" {
					triggers++
				}
			}
			require.Positive(t, triggers, "of %d dumps", len(dumps))
			require.Less(t, triggers, len(dumps))
			return
		default:
			d := rec.Dump()
			mu.Lock()
			if len(d.Recording.Records) > 0 && len(dumps) < 4 {
				dumps = append(dumps, d)
			}
			mu.Unlock()
		}
	}
}
