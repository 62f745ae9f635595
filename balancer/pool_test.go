package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

type scripted = *balancertest.Upstream

// bench is a Pool of scripted upstreams on a manual clock that starts at the
// Unix epoch, with every event it delivered.
type bench struct {
	testing.TB
	clk    *clock.Manual
	pool   *balancer.Pool[scripted]
	events []balancer.Event
}

func newBench(tb testing.TB, cfg balancer.Config, ups ...scripted) *bench {
	tb.Helper()
	b := &bench{TB: tb, clk: clock.NewManual(time.Unix(0, 0))}
	cfg.Clock = b.clk
	if cfg.Seed == 0 {
		cfg.Seed = 7
	}
	cfg.OnEvent = func(e balancer.Event) { b.events = append(b.events, e) }
	var err error
	b.pool, err = balancer.NewPool(cfg, ups...)
	require.NoError(tb, err)
	return b
}

func (b *bench) at(d time.Duration)           { b.clk.AdvanceTo(time.Unix(0, 0).Add(d)) }
func (b *bench) send() balancertest.Trail     { return balancertest.Send(b.pool, balancer.Request{}) }
func (b *bench) status(i int) balancer.Status { return b.pool.Snapshot().Upstreams[i] }
func (b *bench) totals() balancer.Totals      { return b.pool.Snapshot().Totals }
func (b *bench) health(id string, ok bool)    { require.NoError(b, b.pool.SetHealth(id, ok, "test")) }
func (b *bench) acquire() balancer.Lease[scripted] {
	b.Helper()
	l, err := b.pool.Acquire(balancer.Request{})
	require.NoError(b, err)
	return l
}
func (b *bench) fail(n int, o balancer.Outcome) *bench {
	for range n {
		b.acquire().Release(o)
	}
	return b
}
func (b *bench) kinds(skip ...balancer.EventKind) (s []string) {
	for _, e := range b.events {
		keep := e.Kind != balancer.UpstreamJoined
		for _, k := range skip {
			keep = keep && e.Kind != k
		}
		if keep {
			s = append(s, fmt.Sprintf("%d %s %s", e.At.UnixMilli(), e.Upstream, e.Kind))
		}
	}
	return s
}

func ups(ids ...string) (out []scripted) {
	for _, id := range ids {
		out = append(out, balancertest.New(id))
	}
	return out
}

// first is round robin from the first upstream on.
var first = balancer.RoundRobin{First: true}

// noBreaker and noEjection leave the other gates to themselves.
var (
	noBreaker  = breaker.Config{Off: true}
	noEjection = outlier.Config{Off: true}
)

func TestPoolRows(t *testing.T) {
	t.Run("E-OU-04", func(t *testing.T) {
		// Health, ejection and breaker are three gates; every combination.
		for mask := range 8 {
			sick, ejected, open := mask&1 != 0, mask&2 != 0, mask&4 != 0
			cfg := balancer.Config{Policy: first, WhenNone: balancer.FailFast, Breaker: noBreaker, Outlier: noEjection}
			if ejected {
				cfg.Outlier = outlier.Config{Consecutive: 3, MaxEjectedPercent: 100, Last: outlier.EjectLast}
			}
			if open {
				cfg.Breaker = breaker.Config{ConsecutiveFailures: 3}
			}
			b := newBench(t, cfg, ups("a")...)
			b.fail(3, balancer.TransportFailure)
			b.health("a", !sick)
			s := b.status(0)
			require.Equal(t, []bool{!sick, ejected, open}, []bool{s.Healthy, s.Ejected, s.Breaker == breaker.Open}, "mask %d", mask)
			require.Equal(t, mask == 0, s.Selectable, "mask %d", mask)
			_, err := b.pool.Acquire(balancer.Request{})
			require.Equal(t, mask == 0, err == nil, "mask %d", mask)
			var none *balancer.UnavailableError
			if mask != 0 {
				require.ErrorAs(t, err, &none)
				require.Equal(t, []int{1, b2i(sick), b2i(ejected), b2i(open)}, []int{none.Upstreams, none.Unhealthy, none.Ejected, none.Open})
			}
		}
	})
	t.Run("E-PX-02", func(t *testing.T) {
		// Nothing at the first pick is a 503, nothing left after an attempt a 502.
		b := newBench(t, balancer.Config{Policy: first, WhenNone: balancer.FailFast, Outlier: noEjection,
			Breaker: breaker.Config{ConsecutiveFailures: 5, OpenFor: 5 * time.Second}, Retry: balancer.Retry{OnFailure: true}},
			balancertest.AlwaysFailing("only", balancertest.ErrConnection))
		for range 5 {
			require.Equal(t, 502, b.send().Status())
		}
		for ms := 0; ms < 5000; ms += 100 {
			b.at(time.Duration(ms) * time.Millisecond)
			got := b.send()
			require.Equal(t, 503, got.Status(), "a pool of one that is open is an outage, not a fall-through")
			require.ErrorIs(t, got.Err, balancer.ErrNoneAvailable)
		}
		b.at(5 * time.Second)
		require.Equal(t, 502, b.send().Status(), "the trial")
	})
	t.Run("E-PX-03", func(t *testing.T) {
		// Counters against what the script did.
		c := balancertest.New("c", balancertest.Status(503), balancertest.Status(503), balancertest.Status(503))
		b := newBench(t, balancer.Config{Policy: first, Breaker: noBreaker, Outlier: outlier.Config{Consecutive: 3},
			Retry: balancer.Retry{OnFailure: true}}, append(ups("a", "b"), c)...)
		for range 9 {
			require.True(t, b.send().OK())
		}
		require.Equal(t, balancer.Totals{Requests: 9, Attempts: 12, Successes: 9, Failures: 3, Retries: 3, Failovers: 3,
			Granted: 3, Ejections: 1}, b.totals())
		served := uint64(0)
		for i := range 3 {
			served += b.status(i).Served
		}
		require.EqualValues(t, 12, served)
		require.EqualValues(t, 3, b.status(2).Failures)
	})
	t.Run("E-PX-04", func(t *testing.T) {
		// Upstream i fails i*3 times; they recover in another order than they fail.
		members := ups("a", "b", "c", "d", "e")
		b := newBench(t, balancer.Config{Policy: first, WhenNone: balancer.FailFast,
			Breaker: breaker.Config{ConsecutiveFailures: 4, OpenFor: time.Second, OpenMax: time.Second},
			Outlier: outlier.Config{Consecutive: 3, Base: 1500 * time.Millisecond, Max: 1500 * time.Millisecond, MaxEjectedPercent: 100, Last: outlier.EjectLast},
			Retry:   balancer.Retry{OnFailure: true, Max: 4}, Budget: retrybudget.Config{Off: true}}, members...)
		for i, u := range members {
			u.PushN(3*i, balancertest.Status(500))
		}
		for ms := 0; ms < 60_000; ms += 50 {
			b.at(time.Duration(ms) * time.Millisecond)
			before := b.pool.Snapshot()
			got := b.send()
			for _, h := range got.Hops {
				for _, u := range before.Upstreams {
					if u.ID == h.Upstream {
						require.True(t, u.Selectable, "at %d ms %s was picked and is out: %v", ms, u.ID, u.Why)
					}
				}
			}
		}
		for i := range members {
			require.True(t, b.status(i).Selectable)
			require.EqualValues(t, 3*i, b.status(i).Failures)
		}
		require.True(t, b.send().OK())
	})
	t.Run("E-PX-05", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: balancer.Hash{}, Breaker: noBreaker,
			Outlier: outlier.Config{Consecutive: 3, Base: 5 * time.Second}}, ups("a", "b", "c", "d")...)
		hits := func() (n int) {
			for i := range 500 {
				l, err := b.pool.Acquire(balancer.Request{Key: balancer.StringKey(fmt.Sprintf("user-%d", i))})
				require.NoError(t, err)
				if l.Upstream().ID() == "a" {
					n++
				}
				l.Release(balancer.Success)
			}
			return n
		}
		home := hits()
		require.Positive(t, home)
		for i := 0; !b.status(0).Ejected; i++ {
			l, err := b.pool.Acquire(balancer.Request{Key: balancer.StringKey(fmt.Sprintf("user-%d", i))})
			require.NoError(t, err)
			if l.Upstream().ID() == "a" {
				l.Release(balancer.TransportFailure)
			} else {
				l.Release(balancer.Ignored)
			}
		}
		require.Zero(t, hits(), "sticky never lands on an ejected upstream")
		b.at(5 * time.Second)
		require.Equal(t, home, hits(), "and returns home after it")
	})
	t.Run("E-HC-01", func(t *testing.T) {
		// The health bit as a prober drives it: out and in, the same each time.
		run := func() []string {
			b := newBench(t, balancer.Config{Policy: first, WhenNone: balancer.FailFast}, ups("a", "b")...)
			b.at(2 * time.Second)
			b.health("a", false)
			for range 10 {
				l := b.acquire()
				require.Equal(t, "b", l.Upstream().ID())
				l.Release(balancer.Success)
			}
			b.at(7 * time.Second)
			b.health("a", true)
			b.health("a", true)
			seen := map[string]int{}
			for range 10 {
				l := b.acquire()
				seen[l.Upstream().ID()]++
				l.Release(balancer.Success)
			}
			require.Equal(t, map[string]int{"a": 5, "b": 5}, seen)
			return b.kinds()
		}
		require.Equal(t, []string{"2000 a unhealthy", "7000 a healthy"}, run())
		require.Equal(t, run(), run())
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestPoolTraps(t *testing.T) {
	t.Run("A-PL-01", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first, Breaker: noBreaker, Outlier: outlier.Config{Consecutive: 2, Base: 30 * time.Second}}, ups("a", "b")...)
		held := []balancer.Lease[scripted]{}
		for len(held) < 2 {
			if l := b.acquire(); l.Upstream().ID() == "a" {
				held = append(held, l)
			} else {
				l.Release(balancer.Ignored)
			}
		}
		for !b.status(0).Ejected {
			if l := b.acquire(); l.Upstream().ID() == "a" {
				l.Release(balancer.TransportFailure)
			} else {
				l.Release(balancer.Success)
			}
		}
		latency := b.status(1).Latency
		for s := 1; s <= 29; s++ {
			b.at(time.Duration(s) * time.Second)
			require.NoError(t, b.pool.Update(ups("a", "b")...))
			require.True(t, b.status(0).Ejected, "second %d", s)
			require.Equal(t, 2, b.status(0).Inflight)
			require.Equal(t, "b", func() string { l := b.acquire(); defer l.Release(balancer.Ignored); return l.Upstream().ID() }())
		}
		require.Equal(t, latency, b.status(1).Latency)
		b.at(30 * time.Second)
		require.NoError(t, b.pool.Update(ups("b", "a")...))
		require.False(t, b.status(1).Ejected)
		require.Equal(t, "a", b.status(1).ID)
		require.Equal(t, 2, b.status(1).Inflight)
		for _, l := range held {
			require.True(t, l.Release(balancer.Success))
		}
		require.Zero(t, b.status(1).Inflight)
	})
	t.Run("A-PL-03", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a", "b")...)
		x := b.acquire()
		require.Equal(t, "a", x.Upstream().ID())
		require.NoError(t, b.pool.Update(ups("b")...))
		require.True(t, x.Release(balancer.Success))
		for range 100 {
			l := b.acquire()
			require.Equal(t, "b", l.Upstream().ID())
			l.Release(balancer.Success)
		}
	})
	t.Run("A-PL-04", func(t *testing.T) {
		for _, p := range []balancer.Policy{first, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{}, balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{}} {
			closed := newBench(t, balancer.Config{Policy: p, WhenNone: balancer.FailFast, Breaker: noBreaker,
				Outlier: outlier.Config{Consecutive: 1, MaxEjectedPercent: 100, Last: outlier.EjectLast, Base: time.Second}}, ups("a")...)
			closed.fail(1, balancer.TransportFailure)
			got := closed.send()
			require.ErrorIs(t, got.Err, balancer.ErrNoneAvailable, p.Name())
			require.Empty(t, got.Hops, "no attempt is spent")

			open := newBench(t, balancer.Config{Policy: p, Breaker: noBreaker,
				Outlier: outlier.Config{Consecutive: 1, MaxEjectedPercent: 100, Last: outlier.EjectLast, Base: time.Second}}, ups("a", "b")...)
			open.fail(2, balancer.TransportFailure)
			require.True(t, open.pool.Snapshot().Fallback, p.Name())
			l := open.acquire()
			require.True(t, l.Fallback(), "%s: a pick that ignores ejections says so", p.Name())
			l.Release(balancer.Success)
			open.at(time.Second)
			l = open.acquire()
			require.False(t, l.Fallback(), "%s: recovery returns to normal", p.Name())
			l.Release(balancer.Success)

			// A failed check is not an ejection: it stays honest.
			open.health("a", false)
			open.health("b", false)
			_, err := open.pool.Acquire(balancer.Request{})
			require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		}
	})
	t.Run("A-PL-05", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a")...)
		err := b.pool.Update(balancertest.New("a"), balancertest.New("b").WithWeight(-1))
		require.ErrorIs(t, err, balancer.ErrConfig)
		require.Equal(t, "a", b.acquire().Upstream().ID(), "the old set is in force")
		require.Len(t, b.pool.Snapshot().Upstreams, 1)
		require.NoError(t, b.pool.Update(ups("a", "b")...))
		require.Len(t, b.pool.Snapshot().Upstreams, 2)
	})
	t.Run("A-PL-06", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first, Breaker: noBreaker, Outlier: outlier.Config{Consecutive: 3}}, ups("a", "b")...)
		for _, o := range []balancer.Outcome{balancer.TransportFailure, balancer.TransportFailure, balancer.TransportFailure} {
			b.acquire().Release(o) // a, b, a
		}
		require.False(t, b.status(0).Ejected)
		require.False(t, b.status(1).Ejected)
	})
	t.Run("A-OU-03", func(t *testing.T) {
		// A failed check never shortens an ejection, a good one does by option only.
		for _, on := range []bool{false, true} {
			b := newBench(t, balancer.Config{Policy: first, Breaker: noBreaker,
				Outlier: outlier.Config{Consecutive: 3, Base: 30 * time.Second, ProbeEnds: on}}, ups("a", "b")...)
			for !b.status(0).Ejected {
				if l := b.acquire(); l.Upstream().ID() == "a" {
					l.Release(balancer.TransportFailure)
				} else {
					l.Release(balancer.Success)
				}
			}
			b.at(time.Second)
			b.health("a", false)
			require.True(t, b.status(0).Ejected)
			b.at(2 * time.Second)
			b.health("a", true)
			require.Equal(t, !on, b.status(0).Ejected)
			require.Equal(t, on, b.status(0).Selectable)
			if on {
				require.Equal(t, []string{"0 a ejected", "1000 a unhealthy", "2000 a healthy", "2000 a returned"}, b.kinds())
				continue
			}
			b.at(30*time.Second - 1)
			require.True(t, b.status(0).Ejected)
			b.at(30 * time.Second)
			require.False(t, b.status(0).Ejected)
		}
	})
	t.Run("A-BR-03", func(t *testing.T) {
		// Calls that their caller cancelled, by an error that only mentions it.
		b := newBench(t, balancer.Config{Policy: first, WhenNone: balancer.FailFast, Breaker: breaker.Config{ConsecutiveFailures: 3}, Retry: balancer.Retry{Off: true},
			Outlier: outlier.Config{Consecutive: 3}}, ups("a")...)
		for range 20 {
			ctx, cancel := context.WithCancel(context.Background())
			err := b.pool.Do(ctx, balancer.Request{}, func(context.Context, scripted) error {
				cancel()
				return errors.New("request aborted")
			})
			require.EqualError(t, err, "request aborted")
		}
		require.True(t, b.status(0).Selectable)
		for range 3 {
			_ = b.pool.Do(context.Background(), balancer.Request{}, func(context.Context, scripted) error { return context.DeadlineExceeded })
		}
		require.Equal(t, breaker.Open, b.status(0).Breaker)
	})
	t.Run("A-BR-08", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first, WhenNone: balancer.FailFast, Outlier: noEjection, Breaker: breaker.Config{ConsecutiveFailures: 3, OpenFor: 10 * time.Second}}, ups("a")...)
		b.fail(3, balancer.Failure)
		b.at(10 * time.Second)
		require.PanicsWithValue(t, "boom", func() {
			_ = b.pool.Do(context.Background(), balancer.Request{}, func(context.Context, scripted) error { panic("boom") })
		})
		require.Equal(t, breaker.Open, b.status(0).Breaker)
		require.Equal(t, time.Unix(20, 0), b.status(0).Returns)
		require.Zero(t, b.status(0).Inflight)
		b.at(20 * time.Second)
		require.NoError(t, b.pool.Do(context.Background(), balancer.Request{}, func(context.Context, scripted) error { return nil }))
		require.Equal(t, breaker.Closed, b.status(0).Breaker)
	})
}

// TestBadInput: a typed error at construction or a documented clamp, never a
// crash, a leak or a stuck breaker.
func TestBadInput(t *testing.T) {
	t.Run("members", func(t *testing.T) {
		for name, set := range map[string][]scripted{
			"duplicate id":    ups("a", "b", "a"),
			"empty id":        ups("a", ""),
			"not UTF-8":       ups("a", "b\xff"),
			"nil":             {nil},
			"negative weight": {balancertest.New("a").WithWeight(-1)},
			"huge weight":     {balancertest.New("a").WithWeight(balancer.MaxWeight + 1)},
			"negative limit":  {balancertest.New("a").WithMaxInflight(-1)},
		} {
			_, err := balancer.NewPool(balancer.Config{}, set...)
			require.ErrorIs(t, err, balancer.ErrConfig, name)
			var ce *balancer.ConfigError
			require.ErrorAs(t, err, &ce, name)
			require.NotEmpty(t, ce.Field, name)
		}
	})
	t.Run("settings", func(t *testing.T) {
		for name, cfg := range map[string]balancer.Config{
			"retries":     {Retry: balancer.Retry{Max: -1}},
			"same":        {Retry: balancer.Retry{SameUpstream: -1}},
			"base":        {Retry: balancer.Retry{Backoff: balancer.Backoff{Base: -1}}},
			"max < base":  {Retry: balancer.Retry{Backoff: balancer.Backoff{Base: 2, Max: 1}}},
			"multiplier":  {Retry: balancer.Retry{Backoff: balancer.Backoff{Multiplier: -2}}},
			"jitter":      {Retry: balancer.Retry{Backoff: balancer.Backoff{JitterPercent: 101}}},
			"no timers":   {Clock: onlyNow{}, Retry: balancer.Retry{Backoff: balancer.Backoff{Base: 1}}},
			"when none":   {WhenNone: 9},
			"penalty":     {FailurePenalty: 2 * time.Hour},
			"breaker":     {Breaker: breaker.Config{OpenFor: -1}},
			"breaker NaN": {Breaker: breaker.Config{FailureRate: math.NaN()}},
			"outlier":     {Outlier: outlier.Config{Base: -1}},
			"budget":      {Budget: retrybudget.Config{PerRequest: math.Inf(1)}},
			"ramp":        {Outlier: outlier.Config{Return: outlier.Ramp, RampFrom: 1001}},
		} {
			_, err := balancer.NewPool[scripted](cfg)
			require.ErrorIs(t, err, balancer.ErrConfig, name)
			require.ErrorContains(t, err, "balancer: ", name)
		}
		_, err := balancer.NewPool[scripted](balancer.Config{Breaker: breaker.Config{OpenFor: -1}})
		require.ErrorIs(t, err, breaker.ErrConfig, "the cause is there too")
	})
	t.Run("no upstreams", func(t *testing.T) {
		b := newBench(t, balancer.Config{})
		_, err := b.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoUpstreams)
		require.ErrorIs(t, b.pool.SetHealth("a", true, ""), balancer.ErrUnknownUpstream)
		require.NoError(t, b.pool.Update(ups("a")...))
		b.acquire().Release(balancer.Success)
		require.NoError(t, b.pool.Update())
		_, err = b.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoUpstreams)
	})
	t.Run("time running backwards", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first, Breaker: breaker.Config{ConsecutiveFailures: 3, OpenFor: 10 * time.Second}, Outlier: noEjection, WhenNone: balancer.FailFast}, ups("a")...)
		b.at(100 * time.Second)
		l := b.acquire()
		b.fail(3, balancer.Failure)
		b.clk.Set(time.Unix(40, 0))
		_, err := b.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		require.True(t, l.Release(balancer.Success))
		require.Equal(t, time.Unix(110, 0), b.status(0).Returns)
		require.GreaterOrEqual(t, b.status(0).Latency, time.Duration(0))
		b.clk.Set(time.Unix(110, 0))
		b.acquire().Release(balancer.Success)
	})
	t.Run("second release, copies, foreign and zero leases", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first}, ups("a")...)
		l := b.acquire()
		c := l
		require.Equal(t, 1, b.status(0).Inflight)
		require.True(t, c.Release(balancer.Success))
		require.False(t, l.Release(balancer.Failure))
		require.False(t, l.Settle(balancer.Report{Outcome: balancer.Failure}))
		l.Answered()
		require.Zero(t, b.status(0).Inflight)
		next := b.acquire() // the same slot, the next generation
		require.False(t, l.Release(balancer.Failure))
		require.Equal(t, 1, b.status(0).Inflight)
		require.True(t, next.Release(balancer.Outcome(77)), "an undefined outcome counts as ignored")
		require.EqualValues(t, 1, b.totals().Ignored)
		var zero balancer.Lease[scripted]
		require.False(t, zero.Release(balancer.Success))
		require.False(t, zero.Valid())
		zero.Answered()
	})
	t.Run("release after the upstream was removed and came back", func(t *testing.T) {
		b := newBench(t, balancer.Config{Policy: first, Outlier: outlier.Config{Consecutive: 1}}, ups("a")...)
		old := b.acquire()
		require.NoError(t, b.pool.Update(ups("b")...))
		require.NoError(t, b.pool.Update(ups("a", "b")...))
		require.Zero(t, b.status(0).Inflight)
		require.True(t, old.Release(balancer.TransportFailure))
		require.Zero(t, b.status(0).Inflight, "another a")
		require.False(t, b.status(0).Ejected)
		require.Zero(t, b.totals().Inflight)
	})
	t.Run("panic in a hook", func(t *testing.T) {
		clk := clock.NewManual(time.Unix(0, 0))
		var seen []balancer.EventKind
		p, err := balancer.NewPool(balancer.Config{Clock: clk, Policy: first, OnEvent: func(e balancer.Event) {
			seen = append(seen, e.Kind)
			panic("hook")
		}}, ups("a", "b")...)
		require.NoError(t, err)
		require.NoError(t, p.SetHealth("a", false, "x"))
		require.Equal(t, []balancer.EventKind{balancer.UpstreamJoined, balancer.UpstreamJoined, balancer.UpstreamUnhealthy}, seen)
		require.EqualValues(t, 3, p.Snapshot().Totals.HookPanics)
	})
	t.Run("a hook that ends its goroutine", func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		exit := true
		p, err := balancer.NewPool[scripted](balancer.Config{Policy: first, OnEvent: func(e balancer.Event) {
			mu.Lock()
			seen = append(seen, e.Upstream)
			now := exit
			exit = false
			mu.Unlock()
			if now {
				goexit()
			}
		}})
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = p.Update(ups("a", "b", "c")...)
		}()
		<-done
		p.Poll()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"a", "b", "c"}, seen, "the rest is delivered by the next input")
	})
	t.Run("hook calls the pool", func(t *testing.T) {
		clk := clock.NewManual(time.Unix(0, 0))
		var p *balancer.Pool[scripted]
		calls := 0
		p, err := balancer.NewPool[scripted](balancer.Config{Clock: clk, OnEvent: func(e balancer.Event) {
			if p == nil {
				return
			}
			if calls++; calls == 1 {
				require.NoError(t, p.SetHealth("a", false, "from the hook"))
				_ = p.Snapshot()
			}
		}})
		require.NoError(t, err)
		require.NoError(t, p.Update(ups("a")...))
		require.Equal(t, 2, calls)
		require.Equal(t, "from the hook", p.Snapshot().Upstreams[0].Note)
	})
}

// onlyNow is a clock without timers.
type onlyNow struct{}

func (onlyNow) Now() time.Time { return time.Unix(0, 0) }

func goexit() { runtime.Goexit() }
