package incident_test

import (
	"bytes"
	"fmt"
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
	small, err := incident.Shrink(file, cfg, func(f *incident.File) bool {
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
		small, err := incident.Shrink(f, cfg, c.keep)
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
	small, err := incident.Shrink(f, p.Config(), hasEvent(balancer.UpstreamEjected, members(4)[2].Name))
	require.NoError(t, err)
	require.Equal(t, f.Header.State, small.Header.State)
	require.Len(t, small.Header.Members, 4)
	require.Equal(t, incident.InDone, small.Lines[0].Kind, "the call that was out is the first failure")
	require.NotNil(t, small.Lines[0].From)
	text, err := small.Bytes()
	require.NoError(t, err)
	require.NoError(t, incident.Verify(reader(t, text), p.Config()))
}

func TestShrinkErrors(t *testing.T) {
	f, err := incident.Read(strings.NewReader(goldenText(t, "fallback")))
	require.NoError(t, err)
	cfg, err := f.Header.Config()
	require.NoError(t, err)
	_, err = incident.Shrink(f, cfg, func(*incident.File) bool { return false })
	require.ErrorIs(t, err, incident.ErrShrink)
	all := func(*incident.File) bool { return true }
	_, err = incident.Shrink(&incident.File{}, cfg, all)
	require.Error(t, err, "a file that cannot be written")
	other := cfg
	other.Seed = 99
	_, err = incident.Shrink(f, other, all)
	require.ErrorContains(t, err, "seed")
	// A key that was spelt out still is.
	keyed := &incident.File{Header: f.Header, Lines: []incident.Line{{Kind: incident.InAcquire, Request: 1, Key: "user-1", HasKey: true}}}
	small, err := incident.Shrink(keyed, cfg, func(f *incident.File) bool { return len(f.Lines) > 0 })
	require.NoError(t, err)
	require.Equal(t, "user-1", small.Lines[0].Key)
	// Of which everything can be left out.
	small, err = incident.Shrink(f, cfg, all)
	require.NoError(t, err)
	require.Empty(t, small.Lines)
	require.Empty(t, small.Header.Members)
}
