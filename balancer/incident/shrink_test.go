package incident_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// A minute of traffic in which one of ten upstreams fails becomes the five
// requests whose failures ejected it.
func ExampleShrink() {
	var recording bytes.Buffer
	_, err := sim.Record(sim.Scenario{
		Seed: 1, Duration: time.Minute,
		Servers: []sim.Server{{Name: "s", Count: 10, Workers: 4}},
		Clients: []sim.Client{{Rate: 100, Timeout: time.Second}},
		Script:  []sim.Change{{Kind: sim.Sinkhole, At: 20 * time.Second, Servers: "s-3"}},
		Pool:    balancer.Config{Policy: balancer.Random{}},
	}, 0, &recording)
	if err != nil {
		panic(err)
	}
	file, err := incident.Read(&recording)
	if err != nil {
		panic(err)
	}
	cfg, err := file.Header.Config()
	if err != nil {
		panic(err)
	}
	small, err := incident.Shrink(context.Background(), file, cfg, func(f *incident.File) bool {
		return slices.ContainsFunc(f.Lines, func(l incident.Line) bool {
			return l.Kind == incident.EvState && l.Event == balancer.UpstreamEjected
		})
	})
	if err != nil {
		panic(err)
	}
	requests := 0
	for _, l := range small.Lines {
		switch l.Kind {
		case incident.InRequest:
			requests++
		case incident.EvState:
			fmt.Printf("%d of thousands of requests, among %d upstreams: %v after %d failures\n",
				requests, len(small.Header.Members), l.Event, l.Count)
		}
	}
	// Output:
	// 5 of thousands of requests, among 2 upstreams: ejected after 5 failures
}

func hasEvent(kind balancer.EventKind, upstream string) func(*incident.File) bool {
	return func(f *incident.File) bool {
		return slices.ContainsFunc(f.Lines, func(l incident.Line) bool {
			return l.Kind == incident.EvState && l.Event == kind && (upstream == "" || l.Upstream == upstream)
		})
	}
}

// What is left verifies, has the property, and would not have it with one request
// less.
func TestShrinkIsMinimal(t *testing.T) {
	for _, c := range []struct {
		name string
		keep func(*incident.File) bool
		left int // inputs, at most
	}{
		{"echofront-demo", hasEvent(balancer.BreakerOpened, "C"), 38},
		{"echofront-demo", hasEvent(balancer.UpstreamReturned, ""), 20},
		{"ejection-cap", hasEvent(balancer.UpstreamEjected, "b"), 10},
		{"ejection-cap", hasEvent(balancer.EjectionWithheld, ""), 30},
		{"fallback", func(f *incident.File) bool {
			return slices.ContainsFunc(f.Lines, func(l incident.Line) bool { return l.Fallback })
		}, 10},
		{"half-open-abort", hasEvent(balancer.BreakerHalfOpen, ""), 20},
	} {
		f, err := incident.Read(strings.NewReader(goldenText(t, c.name)))
		require.NoError(t, err)
		cfg, err := f.Header.Config()
		require.NoError(t, err)
		before, err := f.Bytes()
		require.NoError(t, err)
		small, err := incident.Shrink(context.Background(), f, cfg, c.keep)
		require.NoError(t, err, c.name)
		after, err := f.Bytes()
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "the file is as it was")
		require.True(t, c.keep(small))
		inputs := small.Inputs()
		require.LessOrEqual(t, len(inputs.Lines), c.left, c.name)
		b, err := small.Bytes()
		require.NoError(t, err)
		require.NoError(t, incident.Verify(reader(t, b), cfg))

		for i, l := range inputs.Lines {
			if l.Kind != incident.InAcquire && l.Kind != incident.InRequest {
				continue
			}
			less := &incident.File{Header: inputs.Header}
			for _, m := range inputs.Lines {
				if m.Request != l.Request {
					less.Lines = append(less.Lines, m)
				}
			}
			b, err := less.Bytes()
			require.NoError(t, err)
			var out bytes.Buffer
			if incident.Replay(&out, reader(t, b), cfg) != nil {
				continue // what is left has lost its object: not a file to keep
			}
			g, err := incident.Read(&out)
			require.NoError(t, err)
			require.False(t, c.keep(g), "%s: without line %d, %v", c.name, i, l)
		}
	}
}

// A recording that begins in the middle of a life keeps its state and its
// upstreams, and the requests that were under way.
func TestShrinkKeepsTheState(t *testing.T) {
	clk := clock.NewManual(time.Unix(0, 0))
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clk, Policy: balancer.RoundRobin{First: true}, Retry: balancer.Retry{Off: true}}, members(4)...)
	require.NoError(t, err)
	var under []balancer.Try[balancer.Member]
	for range 4 {
		try := p.Start(balancer.Request{})
		try.Next()
		under = append(under, try)
	}
	var b bytes.Buffer
	log, err := incident.NewLog(&b, p, 0, incident.Options{})
	require.NoError(t, err)
	for i := range under {
		clk.Advance(time.Millisecond)
		under[i].Done(balancer.Report{Outcome: balancer.TransportFailure})
	}
	for range 40 {
		clk.Advance(time.Millisecond)
		l, err := p.Acquire(balancer.Request{})
		require.NoError(t, err)
		o := balancer.Success
		if l.Upstream().Name == members(4)[2].Name {
			o = balancer.TransportFailure
		}
		l.Release(o)
	}
	require.NoError(t, log.Close())
	f, err := incident.Read(&b)
	require.NoError(t, err)
	small, err := incident.Shrink(context.Background(), f, p.Config(), hasEvent(balancer.UpstreamEjected, members(4)[2].Name))
	require.NoError(t, err)
	require.Equal(t, f.Header.State, small.Header.State)
	require.Len(t, small.Header.Members, 4)
	require.Equal(t, incident.InDone, small.Lines[0].Kind, "the call that was out is the first failure")
	require.NotNil(t, small.Lines[0].From)
	text, err := small.Bytes()
	require.NoError(t, err)
	require.NoError(t, incident.Verify(reader(t, text), p.Config()))
}

// shrunk shrinks a file, and has what is left verify and not shrink any further.
func shrunk(t *testing.T, f *incident.File, cfg balancer.Config, keep func(*incident.File) bool) *incident.File {
	t.Helper()
	small, err := incident.Shrink(context.Background(), f, cfg, keep)
	require.NoError(t, err)
	require.True(t, keep(small))
	text, err := small.Bytes()
	require.NoError(t, err)
	require.NoError(t, incident.Verify(reader(t, text), cfg))
	again, err := incident.Shrink(context.Background(), small, cfg, keep)
	require.NoError(t, err)
	less, err := again.Bytes()
	require.NoError(t, err)
	require.Equal(t, string(text), string(less))
	return small
}

// Whatever the settings and whatever happened, what is left of a recording
// verifies, and nothing more of it can be left out.
func TestShrinkAnyLife(t *testing.T) {
	seed, _ := seedOf(t, 11)
	for n := range uint64(opsOf(t, 30)) {
		i := seed<<32 + n<<16
		choose := func(n int) int { i++; return int(mixed(mixed(i)) >> 11 % uint64(n)) }
		cfg := drawnConfig(choose)
		l := &life{chooser: choose, clk: clock.NewManual(time.Unix(int64(choose(100)), 0))}
		cfg.Clock = l.clk
		var err error
		if l.pool, err = balancer.NewPool(cfg, drawnMembers(choose)...); err != nil {
			continue
		}
		before := choose(2) * 60
		for range before {
			l.act()
		}
		rec := incident.NewRecorder(incident.Config{})
		rec.Attach(l.pool)
		for range 150 {
			l.act()
		}
		d := rec.Dump()
		f, err := d.Reader().File()
		require.NoError(t, err)
		if before == 0 {
			f.Header.State = nil // that of a new Pool
		}
		require.NoError(t, incident.Verify(f.Reader(), d.Config))
		for _, kind := range []balancer.EventKind{balancer.UpstreamEjected, balancer.BreakerOpened, balancer.UpstreamReturned, balancer.UpstreamLeft} {
			if keep := hasEvent(kind, ""); keep(f) {
				shrunk(t, f, d.Config, keep)
			}
		}
	}
}

// logged is what a log says of a Pool's life.
func logged(t *testing.T, p live, life func()) *incident.File {
	var b bytes.Buffer
	log, err := incident.NewLog(&b, p, 0, incident.Options{})
	require.NoError(t, err)
	life()
	require.NoError(t, log.Close())
	f, err := incident.Read(&b)
	require.NoError(t, err)
	return f
}

// Of an update that is wanted for one upstream, the others are left out; what it
// brings is not.
func TestShrinkUpdates(t *testing.T) {
	p := newLive(t, balancer.Config{Policy: balancer.RoundRobin{}}, 2)
	all := append(members(2), balancer.Member{Name: "x", Share: 1}, balancer.Member{Name: "y", Share: 1})
	f := logged(t, p, func() {
		require.NoError(t, p.Update(all...))
		for range 40 {
			p.clk.Advance(time.Millisecond)
			l, err := p.Acquire(balancer.Request{})
			require.NoError(t, err)
			o := balancer.Success
			if l.Upstream().Name == "x" {
				o = balancer.TransportFailure
			}
			l.Release(o)
		}
	})
	updates := func(f *incident.File) (out []incident.Line) {
		for _, l := range f.Lines {
			if l.Kind == incident.InUpdate {
				out = append(out, l)
			}
		}
		return out
	}
	small := shrunk(t, f, p.Config(), hasEvent(balancer.UpstreamEjected, "x"))
	require.Len(t, updates(small), 1)
	require.Contains(t, updates(small)[0].Members, all[2])
	small = shrunk(t, f, p.Config(), hasEvent(balancer.UpstreamJoined, "y"))
	require.Len(t, small.Lines, 2)
	require.Equal(t, all[3:], small.Lines[0].Members)
	require.Equal(t, all, updates(f)[0].Members, "the file is as it was")
}

// What is left out last may have held back what was tried first.
func TestShrinkAgain(t *testing.T) {
	p := newLive(t, balancer.Config{Policy: balancer.RoundRobin{First: true}}, 2)
	f := logged(t, p, func() {
		for range 2 {
			l, err := p.Acquire(balancer.Request{})
			require.NoError(t, err)
			l.Release(balancer.Success)
		}
	})
	// Two requests among two; among one any number; among none there is none.
	small := shrunk(t, f, p.Config(), func(f *incident.File) bool {
		requests := 0
		for _, l := range f.Lines {
			if l.Kind == incident.InAcquire {
				requests++
			}
		}
		m := len(f.Header.Members)
		return requests == 2 && m == 2 || requests > 0 && m == 1 || requests == 0 && m < 2
	})
	require.Empty(t, small.Lines)
	require.Empty(t, small.Header.Members)
}

// A request from before the file goes or stays as a whole, too.
func TestShrinkRequestFromBefore(t *testing.T) {
	p := newLive(t, balancer.Config{}, 3)
	x := p.Start(balancer.Request{})
	require.Equal(t, balancer.StepSend, x.Next().Kind)
	f := logged(t, p, func() {
		p.Poll()
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.StepSend, x.Next().Kind)
		x.Done(balancer.Report{Outcome: balancer.Success})
	})
	whole := shrunk(t, f, p.Config(), func(f *incident.File) bool {
		return slices.ContainsFunc(f.Lines, func(l incident.Line) bool { return l.Kind == incident.InDone && l.From != nil })
	})
	require.Len(t, whole.Inputs().Lines, 3)
	none := shrunk(t, f, p.Config(), func(f *incident.File) bool {
		return slices.ContainsFunc(f.Lines, func(l incident.Line) bool { return l.Kind == incident.InTime })
	})
	require.Len(t, none.Lines, 1)
}

// What is left is a file of the settings that it was replayed with.
func TestShrinkUnderOtherSettings(t *testing.T) {
	f, err := incident.Read(strings.NewReader(goldenText(t, "ejection-cap")))
	require.NoError(t, err)
	f = f.Inputs()
	cfg, err := f.Header.Config()
	require.NoError(t, err)
	cfg.Policy = balancer.Random{}
	small := shrunk(t, f, cfg, func(f *incident.File) bool { return len(f.Lines) > 3 })
	got, err := small.Header.Config()
	require.NoError(t, err)
	require.Equal(t, cfg, got)
}

// A file that does not replay is told apart at its first wrong line.
func TestShrinkOfBadFile(t *testing.T) {
	head := `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","members":[{"b":"a"},{"b":"c"}]}` + "\n"
	good := `{"t":"0","in":"acquire","r":1}` + "\n"
	for _, bad := range []string{
		`{"t":"0","in":"done","r":9,"out":"success"}`,
		`{"t":"0","in":"done","r":9,"out":"transport_failure","phase":"failed","latest":"a"}`,
		`{"t":"0","in":"update","members":[{"b":"x"},{"b":"x"}]}`,
	} {
		f, err := incident.Read(strings.NewReader(head + good + bad + "\n" + good + `{"end":true}`))
		require.NoError(t, err)
		_, err = incident.Shrink(context.Background(), f, f.Header.Settings, func(*incident.File) bool { return true })
		require.ErrorContains(t, err, "incident: line 3: "+bad)
		want := incident.Replay(io.Discard, f.Reader(), f.Header.Settings)
		require.EqualError(t, err, want.Error())
	}
}

// Whoever has no more time gets what there is.
func TestShrinkCancelled(t *testing.T) {
	f, err := incident.Read(strings.NewReader(goldenText(t, "retry-storm")))
	require.NoError(t, err)
	cfg, err := f.Header.Config()
	require.NoError(t, err)
	for _, after := range []int{1, 2, 9} {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		small, err := incident.Shrink(ctx, f, cfg, func(g *incident.File) bool {
			if calls++; calls == after {
				cancel()
			}
			return len(g.Inputs().Lines) >= 5
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, after, calls)
		require.GreaterOrEqual(t, len(small.Inputs().Lines), 5)
		text, err := small.Bytes()
		require.NoError(t, err)
		require.NoError(t, incident.Verify(reader(t, text), cfg))
	}
}

func TestShrinkErrors(t *testing.T) {
	f, err := incident.Read(strings.NewReader(goldenText(t, "fallback")))
	require.NoError(t, err)
	cfg, err := f.Header.Config()
	require.NoError(t, err)
	_, err = incident.Shrink(context.Background(), f, cfg, func(*incident.File) bool { return false })
	require.ErrorIs(t, err, incident.ErrShrink)
	all := func(*incident.File) bool { return true }
	_, err = incident.Shrink(context.Background(), &incident.File{}, cfg, all)
	require.Error(t, err, "a file that cannot be written")
	other := cfg
	other.Seed = 99
	_, err = incident.Shrink(context.Background(), f, other, all)
	require.ErrorContains(t, err, "seed")
	// A key that was spelt out still is.
	keyed := &incident.File{Header: f.Header, Lines: []incident.Line{{Kind: incident.InAcquire, Request: 1, Key: "user-1", HasKey: true}}}
	small, err := incident.Shrink(context.Background(), keyed, cfg, func(f *incident.File) bool { return len(f.Lines) > 0 })
	require.NoError(t, err)
	require.Equal(t, "user-1", small.Lines[0].Key)
	// Of which everything can be left out.
	small, err = incident.Shrink(context.Background(), f, cfg, all)
	require.NoError(t, err)
	require.Empty(t, small.Lines)
	require.Empty(t, small.Header.Members)
}
