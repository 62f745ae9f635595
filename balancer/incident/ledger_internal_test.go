package incident

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// poolText is the state of a Pool in the form of a ledger.
func poolText(p *balancer.Pool[balancer.Member], order []*lane) string {
	byID := map[string]balancer.Status{}
	for _, u := range p.Snapshot().Upstreams {
		byID[u.ID] = u
	}
	out := ""
	for _, n := range order {
		if u, ok := byID[n.name]; ok {
			l := lane{name: u.ID, healthy: u.Healthy, ejected: u.Ejected, breaker: u.Breaker, inflight: u.Inflight, served: u.Served, failed: u.Failures}
			out += l.String() + "\n"
		}
	}
	return out
}

// What a ledger makes of the lines is the state of the Pool that replays them,
// after every input; and a clone goes its own way.
func TestLedgerIsThePool(t *testing.T) {
	names, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		ledgerIsThePool(t, string(file))
	}
	ledgerIsThePool(t, joins())
	// From the middle of a life.
	clk := clock.NewManual(time.Unix(0, 0))
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clk}, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
	require.NoError(t, err)
	var held []balancer.Lease[balancer.Member]
	for i := range 20 {
		l, err := p.Acquire(balancer.Request{})
		require.NoError(t, err)
		if i%3 > 0 {
			l.Release(balancer.Outcome(i % 4))
		} else {
			held = append(held, l)
		}
	}
	tape := balancer.NewTape(100)
	p.Attach(tape)
	for _, l := range held {
		clk.Advance(time.Millisecond)
		l.Release(balancer.TransportFailure)
	}
	var b strings.Builder
	require.NoError(t, Copy(&b, FromRecording(tape.Dump(), p.Config(), Options{})))
	ledgerIsThePool(t, b.String())
}

// joins is a file in which an upstream leaves with a call in flight and comes
// back, under a Config in which those that join are unhealthy.
func joins() string {
	return `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","config":{"StartUnhealthy":true},"members":[{"b":"a"},{"b":"b"}]}
{"t":"0","in":"health","b":"a","up":true}
{"t":"0","ev":"healthy","n":3,"b":"a"}
{"t":"1","in":"acquire","r":1}
{"t":"1","ev":"pick","r":1,"b":"a"}
{"t":"2","in":"update","members":[{"b":"b"}]}
{"t":"2","ev":"left","n":4,"b":"a"}
{"t":"3","in":"update","members":[{"b":"a"},{"b":"b"}]}
{"t":"3","ev":"joined","n":5,"b":"a"}
{"t":"4","in":"health","b":"a","up":true}
{"t":"4","ev":"healthy","n":6,"b":"a"}
{"t":"5","in":"acquire","r":2}
{"t":"5","ev":"pick","r":2,"b":"a"}
{"t":"6","in":"settle","r":1,"out":"failure"}
{"t":"7","in":"settle","r":2,"out":"transport_failure"}
{"end":true}
`
}

func ledgerIsThePool(t *testing.T, file string) {
	r, err := NewReader(strings.NewReader(file))
	require.NoError(t, err)
	cfg, err := r.head.Config()
	require.NoError(t, err)
	p, err := r.player(cfg)
	require.NoError(t, err)
	g := newLedger(&r.head)
	g.begin(p.pool.Snapshot(), p.pool.Leases())
	require.Equal(t, poolText(p.pool, g.lanes), g.String())
	var l Line
	var got []Line
	for {
		if err = r.read(&l); err != nil {
			break
		}
		if !l.Kind.In() {
			continue
		}
		if got, err = p.feed(&l, got[:0]); err != nil {
			break
		}
		before, c := g.String(), g.clone()
		for i := range got {
			g.follow(&got[i])
		}
		require.Equal(t, before, c.String())
		for i := range got {
			c.follow(&got[i])
		}
		require.Equal(t, g, c, "%d", r.line)
		require.Equal(t, poolText(p.pool, g.lanes), g.String(), "line %d", r.line)
	}
	require.Equal(t, io.EOF, err)
}

// However many calls are out, a join costs no more.
func TestJoinIsConstant(t *testing.T) {
	g := newLedger(&Header{})
	for i := range uint64(1000) {
		g.follow(&Line{Kind: EvPick, Request: i + 1, Upstream: "a"})
	}
	g.follow(&Line{Kind: EvState, Event: balancer.UpstreamJoined, Upstream: "a"})
	require.Len(t, g.out, 1000, "none was looked at")
	require.Equal(t, attempt{}, g.follow(&Line{Kind: InSettle, Request: 1, Outcome: balancer.Failure}))
	require.Equal(t, "a: healthy, in, breaker closed, 0 in flight, 0 served, 0 failed\n", g.String())
}
