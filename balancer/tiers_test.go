package balancer_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// tiered are A and B in tier 0 and C in tier 1.
func tiered() []scripted {
	return []scripted{balancertest.New("A"), balancertest.New("B"), balancertest.New("C").WithPriority(1)}
}

// hits is where n picks went.
func (b *bench) hits(n int) map[string]int {
	b.Helper()
	out := map[string]int{}
	for range n {
		l := b.acquire()
		out[l.Upstream().ID()]++
		l.Release(balancer.Success)
	}
	return out
}

// failOn sends attempts until one on the upstream could be failed.
func (b *bench) failOn(id string, o balancer.Outcome) {
	b.Helper()
	for range 100 {
		l := b.acquire()
		if l.Upstream().ID() == id {
			l.Release(o)
			return
		}
		l.Release(balancer.Ignored)
	}
	b.Fatalf("%s is never picked", id)
}

// route is where the attempts of a request went.
func route(t balancertest.Trail) (s string) {
	for _, h := range t.Hops {
		s += h.Upstream
	}
	return s
}

func TestTierRows(t *testing.T) {
	quick := balancer.Config{Policy: first, Outlier: noEjection, WhenNone: balancer.FailFast,
		Breaker: breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}, Retry: balancer.Retry{Off: true}}
	t.Run("F-PR-01", func(t *testing.T) {
		b := newBench(t, quick, tiered()...)
		require.Equal(t, map[string]int{"A": 50, "B": 50}, b.hits(100))
		b.failOn("A", balancer.Failure)
		require.Equal(t, map[string]int{"B": 100}, b.hits(100))
		b.at(time.Second)
		b.failOn("B", balancer.Failure)
		require.Equal(t, map[string]int{"C": 100}, b.hits(100))
		b.at(10 * time.Second)
		require.Equal(t, map[string]int{"A": 100}, b.hits(100), "A is back, B is not")
		b.at(11 * time.Second)
		require.Equal(t, map[string]int{"A": 50, "B": 50}, b.hits(100))
	})
	t.Run("F-PR-02", func(t *testing.T) {
		cfg := quick
		cfg.Policy = balancer.WeightedRoundRobin{}
		b := newBench(t, cfg, balancertest.New("A").WithWeight(2), balancertest.New("B"), balancertest.New("C").WithPriority(1).WithWeight(9))
		require.Equal(t, map[string]int{"A": 200, "B": 100}, b.hits(300))
	})
	t.Run("F-PR-03", func(t *testing.T) {
		for same, want := range map[int]string{0: "AC", 1: "AAC"} {
			b := newBench(t, free(balancer.Retry{SameUpstream: same}),
				balancertest.AlwaysFailing("A", balancertest.ErrConnection), balancertest.New("C").WithPriority(1))
			got := b.send()
			require.Equal(t, want, route(got))
			require.True(t, got.OK())
		}
	})
	t.Run("F-CB-14", func(t *testing.T) {
		b := newBench(t, quick, ups("A")...)
		b.fail(1, balancer.Failure)
		require.Equal(t, []string{"circuit_open"}, b.status(0).Why, "healthy and open")
		b.health("A", false)
		require.Equal(t, []string{"unhealthy", "circuit_open"}, b.status(0).Why)
		b.at(10 * time.Second)
		require.Equal(t, []string{"unhealthy"}, b.status(0).Why, "unhealthy and half-open")
		b.health("A", true)
		b.fail(1, balancer.Success)
		require.True(t, b.status(0).Selectable)
	})
	t.Run("F-OB-05", func(t *testing.T) {
		b := newBench(t, quick, ups("A")...)
		l, _, _ := b.acquire(), b.acquire(), b.acquire()
		require.True(t, l.Release(balancer.Success))
		require.Equal(t, 2, b.status(0).Inflight)
		require.EqualValues(t, 2, b.totals().Inflight)
		require.False(t, l.Release(balancer.Success))
		require.Equal(t, 2, b.status(0).Inflight, "twice is once")
	})
	t.Run("F-RB-12", func(t *testing.T) {
		cfg := free(balancer.Retry{Max: 5})
		cfg.Budget = retrybudget.Config{Capacity: 10, PerSuccess: -1, PerSecond: -1}
		b := newBench(t, cfg, down("A")...)
		for range 15 {
			require.Equal(t, 502, b.send().Status())
		}
		require.Equal(t, 10.0, b.pool.Snapshot().Tokens)
	})
	t.Run("F-RT-02", func(t *testing.T) {
		b := newBench(t, free(balancer.Retry{Max: 9, SameUpstream: 1}), down("A")...)
		got := b.send()
		require.Equal(t, "AA", route(got))
		require.Equal(t, balancer.EndNoTarget, got.End)
	})
	t.Run("F-RT-03", func(t *testing.T) {
		for _, c := range []struct {
			same, fails int
			want        string
			ok          bool
		}{{1, 1, "AA", true}, {0, 1, "A", false}, {2, 2, "AAA", true}, {1, 2, "AA", false}} {
			u := balancertest.New("A")
			u.PushN(c.fails, balancertest.Fail(balancertest.ErrConnection))
			got := newBench(t, free(balancer.Retry{SameUpstream: c.same}), u).send()
			require.Equal(t, c.want, route(got), "%+v", c)
			require.Equal(t, c.ok, got.OK(), "%+v", c)
		}
	})
	t.Run("F-RT-05", func(t *testing.T) {
		for same, want := range map[int]string{0: "ABC", 1: "AABBCC"} {
			b := newBench(t, free(balancer.Retry{Max: 9, SameUpstream: same}), down("A", "B", "C")...)
			require.Equal(t, want, route(b.send()))
		}
	})
	t.Run("F-RT-07", func(t *testing.T) {
		cfg := free(balancer.Retry{SameUpstream: 1})
		cfg.Breaker = breaker.Config{ConsecutiveFailures: 5}
		cfg.WhenNone = balancer.FailFast
		b := newBench(t, cfg, down("A")...)
		require.Equal(t, "AA", route(b.send()))
		require.Equal(t, "AA", route(b.send()))
		require.EqualValues(t, 4, b.status(0).Failures)
		require.Equal(t, breaker.Closed, b.status(0).Breaker)
		require.Equal(t, "A", route(b.send()), "the fifth failure opens; nothing is sent against it")
		require.Equal(t, breaker.Open, b.status(0).Breaker)
	})
}

func TestTierTraps(t *testing.T) {
	eject := balancer.Config{Policy: first, Breaker: noBreaker, Retry: balancer.Retry{Off: true},
		Outlier: outlier.Config{Consecutive: 1, Base: 30 * time.Second, MaxEjectedPercent: 100, Last: outlier.EjectLast}}
	t.Run("A-PT-01", func(t *testing.T) {
		b := newBench(t, eject, balancertest.New("A"), balancertest.New("B").WithPriority(1))
		b.failOn("A", balancer.TransportFailure)
		for s := range 30 {
			b.at(time.Duration(s) * time.Second)
			require.Equal(t, map[string]int{"B": 1}, b.hits(1))
		}
		b.at(30 * time.Second)
		require.Equal(t, map[string]int{"A": 1}, b.hits(1), "the first pick after its return")
	})
	t.Run("A-PT-02", func(t *testing.T) {
		b := newBench(t, eject, balancertest.New("A"), balancertest.New("B"), balancertest.New("C"), balancertest.New("D").WithPriority(1))
		for _, id := range []string{"A", "B", "C"} {
			b.failOn(id, balancer.TransportFailure)
		}
		require.Equal(t, map[string]int{"D": 100}, b.hits(100), "a tier of ejected hosts is no reason to ignore ejections")
		b.failOn("D", balancer.TransportFailure)
		require.True(t, b.pool.Snapshot().Fallback)
		require.Equal(t, map[string]int{"A": 33, "B": 33, "C": 33}, b.hits(99), "now there is nothing else, in the order of the tiers")
	})
	t.Run("A-PT-03", func(t *testing.T) {
		cfg := eject
		cfg.Outlier, cfg.Breaker = noEjection, breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}
		b := newBench(t, cfg, balancertest.New("A"), balancertest.New("B").WithPriority(1))
		b.failOn("A", balancer.Failure)
		require.Equal(t, map[string]int{"B": 100}, b.hits(100))
		b.at(10 * time.Second)
		trial := b.acquire()
		require.Equal(t, "A", trial.Upstream().ID(), "time alone offers the trial")
		require.Equal(t, map[string]int{"B": 100}, b.hits(100), "and only the one")
		trial.Release(balancer.Success)
		require.Equal(t, map[string]int{"A": 100}, b.hits(100))
	})
	t.Run("A-PT-04", func(t *testing.T) {
		for _, none := range []balancer.WhenNone{balancer.FailFast, balancer.IgnoreEjections} {
			cfg := eject
			cfg.WhenNone = none
			b := newBench(t, cfg, tiered()...)
			for _, id := range []string{"A", "B", "C"} {
				b.failOn(id, balancer.TransportFailure)
			}
			if none == balancer.FailFast {
				_, err := b.pool.Acquire(balancer.Request{})
				require.ErrorIs(t, err, balancer.ErrNoneAvailable)
				continue
			}
			require.Equal(t, map[string]int{"A": 50, "B": 50}, b.hits(100))
		}
	})
}
