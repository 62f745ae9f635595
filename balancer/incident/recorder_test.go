package incident_test

import (
	"bytes"
	"os"
	"path/filepath"
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
	require.NoError(t, verify(t, b.Bytes()))
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
	require.Equal(t, []string{"ejected m0", "nothing selectable"}, reasons())
	require.EqualValues(t, 1, rec.Suppressed(), "the second ejection is within the gap")
	fail()
	require.Len(t, dumps, 2)
	require.EqualValues(t, 2, rec.Suppressed(), "nothing to pick, again")
	clk.Advance(30 * time.Second)
	for range 4 {
		fail()
	}
	require.Equal(t, []string{"ejected m0", "nothing selectable", "ejected m0", "nothing selectable"}, reasons())
	for _, d := range dumps {
		verifyIncident(t, d)
	}
	last := dumps[1].Recording.Records
	require.Equal(t, balancer.UpstreamEjected, last[len(last)-1].Event, "a dump ends with what triggered it")

	rec.Close()
	rec.Close()
	n := len(rec.Dump().Recording.Records)
	clk.Advance(time.Hour)
	for range 4 {
		fail()
	}
	require.Len(t, dumps, 4, "closed")
	require.Len(t, rec.Dump().Recording.Records, n)
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
	require.ErrorIs(t, incident.Config{Size: -1}.Validate(), balancer.ErrConfig)
	require.Panics(t, func() { incident.NewRecorder(incident.Config{Size: -1}) })
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
			require.Greater(t, len(dumps), 1)
			for _, d := range dumps {
				verifyIncident(t, d)
			}
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
