package incident_test

import (
	"bytes"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// live is a Pool on a manual clock and what records it.
type live struct {
	*balancer.Pool[balancer.Member]
	clk *clock.Manual
	rec *incident.Recorder
}

func newLive(t *testing.T, cfg balancer.Config, n int) live {
	clk := clock.NewManual(time.Unix(0, 0))
	cfg.Clock, cfg.Seed = clk, 3
	p, err := balancer.NewPool(cfg, members(n)...)
	require.NoError(t, err)
	return live{p, clk, incident.NewRecorder(incident.Config{Size: 100})}
}

// verifies writes what was recorded as a file and replays it.
func (l live) verifies(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, l.rec.Dump().Write(&b))
	text := b.String()
	r, err := incident.NewReader(&b)
	require.NoError(t, err, text)
	cfg, err := r.Header().Config()
	require.NoError(t, err)
	require.NoError(t, incident.Verify(r, cfg), text)
	return text
}

// A lease may be released by itself before its Try hears of it, and the recording
// may begin in between.
func TestRecordBetweenReleaseAndDone(t *testing.T) {
	for _, end := range []func(*balancer.Try[balancer.Member]){
		func(x *balancer.Try[balancer.Member]) { x.Done(balancer.Report{Outcome: balancer.Success}) },
		func(x *balancer.Try[balancer.Member]) { x.Stop() },
		func(x *balancer.Try[balancer.Member]) {
			x.Done(balancer.Report{Outcome: balancer.TransportFailure})
			x.Next()
		},
	} {
		p := newLive(t, balancer.Config{}, 2)
		x := p.Start(balancer.Request{})
		require.True(t, x.Next().Lease.Release(balancer.Failure))
		p.rec.Attach(p)
		end(&x)
		require.Contains(t, p.verifies(t), `"phase":"sent","settled":true`)
	}
}

// However many upstreams a request has tried, the file names them all.
func TestRecordAfterManyTried(t *testing.T) {
	for n := range 12 {
		p := newLive(t, balancer.Config{Retry: balancer.Retry{Max: 12}, Budget: retrybudget.Config{Off: true}}, 14)
		x := p.Start(balancer.Request{})
		for range n + 1 {
			require.Equal(t, balancer.StepSend, x.Next().Kind)
			x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		}
		p.rec.Attach(p)
		x.Next()
		f, err := incident.Read(bytes.NewReader([]byte(p.verifies(t))))
		require.NoError(t, err)
		require.Len(t, f.Lines[0].From.Tried, n+1)
	}
}

// A deadline in the days of the Romans is over, on every timeline.
func TestRecordDeadlineLongAgo(t *testing.T) {
	for _, deadline := range []time.Time{time.Time{}.Add(time.Second), time.Unix(0, 0), time.Unix(1<<40, 0)} {
		p := newLive(t, balancer.Config{}, 2)
		p.clk.Advance(time.Hour)
		p.Poll()
		p.rec.Attach(p)
		x := p.Start(balancer.Request{Deadline: deadline})
		want := balancer.StepEnd
		if deadline.After(p.clk.Now()) {
			want = balancer.StepSend
		}
		require.Equal(t, want, x.Next().Kind)
		p.verifies(t)
	}
}

// A state that ends beyond all time ends never, wherever time began.
func TestRecordEndsBeyondTime(t *testing.T) {
	const long = math.MaxInt64 - 5*time.Second
	for _, cfg := range []balancer.Config{
		{Outlier: outlier.Config{Off: true}, Breaker: breaker.Config{ConsecutiveFailures: 1, OpenFor: long}},
		{Breaker: breaker.Config{Off: true}, Outlier: outlier.Config{Consecutive: 1, Base: long, Max: long}},
	} {
		p := newLive(t, cfg, 2)
		p.clk.Advance(10 * time.Second)
		p.Poll()
		p.rec.Attach(p)
		p.clk.Advance(time.Second)
		l, err := p.Acquire(balancer.Request{})
		require.NoError(t, err)
		l.Release(balancer.Failure)
		require.Contains(t, p.verifies(t), `"until":"never"`)
	}
}

// picksNobody panics instead of picking.
type picksNobody struct{}

func (picksNobody) Name() string                                                { return "picks_nobody" }
func (p picksNobody) NewPicker(*balancer.View, balancer.Picker) balancer.Picker { return p }
func (picksNobody) Pick(balancer.Call) int                                      { panic("nobody") }

// What a request that met such a Picker leaves is a file all the same.
func TestRecordPickerPanics(t *testing.T) {
	p := newLive(t, balancer.Config{Policy: picksNobody{}}, 2)
	p.rec.Attach(p)
	require.Panics(t, func() { _, _ = p.Acquire(balancer.Request{Key: balancer.HashKey(7)}) })
	x := p.Start(balancer.Request{})
	require.Panics(t, func() { x.Next() })
	var b bytes.Buffer
	require.NoError(t, p.rec.Dump().Write(&b))
	f, err := incident.Read(&b)
	require.NoError(t, err)
	require.Equal(t, uint64(1), f.Lines[0].Request)
	require.True(t, f.Lines[0].HasHash)
	require.Equal(t, uint64(2), f.Lines[2].Request)
}

// A dump stays as it is while the tape is drained and written again, also for
// who reads it only then.
func TestDumpBesideDrain(t *testing.T) {
	p := newLive(t, balancer.Config{}, 2)
	tape := balancer.NewTape(16)
	p.Attach(tape)
	for range 20 {
		p.Poll()
	}
	dump := tape.Dump()
	want := fmt.Sprint(dump.Records)
	require.Len(t, tape.Drain(nil), 20)
	for range 40 {
		_ = p.SetHealth("a", true, "later")
	}
	require.Equal(t, want, fmt.Sprint(dump.Records))
	require.Len(t, tape.Drain(nil), 24, "what was not drained in time is lost")
	require.True(t, tape.Lost())

	// Many of both at once, for the race detector.
	large := balancer.NewTape(1000)
	p.Attach(large)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			p.Attach(large) // once drained, a tape cannot be dumped
			for range 300 {
				p.Poll()
			}
			large.Dump()
		}
	})
	wg.Go(func() {
		for range 2000 {
			large.Drain(nil)
			for range 20 {
				p.Poll()
			}
		}
	})
	wg.Wait()
	p.Attach(large)
	p.Poll()
	require.Len(t, large.Dump().Records, 1, "attached anew")
}
