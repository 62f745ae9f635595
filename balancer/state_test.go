package balancer_test

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

// restored moves a Pool to a clock that starts at 5 s.
func restored(t *testing.T, cfg balancer.Config, saved []byte, members ...balancer.Member) (*balancer.Pool[balancer.Member], *clock.Manual) {
	t.Helper()
	clk := clock.NewManual(time.Unix(5, 0))
	cfg.Clock = clk
	p, err := balancer.RestorePool(cfg, saved, members...)
	require.NoError(t, err)
	return p, clk
}

// The saved state does not depend on how the slots of leases came to be used, so
// a Pool and its restored twin save the same bytes for ever.
func TestSaveIsCanonical(t *testing.T) {
	cfg := tapeConfig(first)
	p, _ := small(t, cfg)
	var held [4]balancer.Lease[balancer.Member]
	for i := range held {
		held[i], _ = p.Acquire(balancer.Request{})
	}
	held[1].Release(balancer.Success)
	held[0].Release(balancer.Success)
	saved := p.Save()
	q, _ := restored(t, cfg, saved, abc...)
	require.Equal(t, saved, q.Save())
	for _, x := range []*balancer.Pool[balancer.Member]{p, q} {
		for range 2 {
			_, err := x.Acquire(balancer.Request{})
			require.NoError(t, err)
		}
		for _, l := range x.Leases() {
			if l.Request() == 3 {
				require.True(t, l.Release(balancer.Success))
			}
		}
		_, err := x.Acquire(balancer.Request{})
		require.NoError(t, err)
	}
	require.Equal(t, p.Save(), q.Save())
}

// Weights, priorities and limits of a restored Pool are those of the upstreams
// given.
func TestRestoreWithOtherTraits(t *testing.T) {
	cfg := balancer.Config{Policy: first, Breaker: noBreaker, Outlier: outlier.Config{Consecutive: 1}, Seed: 3}
	p, _ := small(t, cfg)
	for range 2 {
		l, err := p.Acquire(balancer.Request{})
		require.NoError(t, err)
		l.Release(balancer.Success)
	}
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	require.Equal(t, "c", l.Upstream().Name)
	l.Release(balancer.TransportFailure)
	q, clk := restored(t, cfg, p.Save(),
		balancer.Member{Name: "a", Share: 1, Tier: 2}, balancer.Member{Name: "b", Share: 0, Tier: 1}, balancer.Member{Name: "c", Share: 1, Limit: 1})
	s := q.Snapshot()
	require.Equal(t, []int{2, 1, 0}, []int{s.Upstreams[0].Priority, s.Upstreams[1].Priority, s.Upstreams[2].Priority})
	require.Equal(t, []string{"no_traffic"}, s.Upstreams[1].Why)
	require.Equal(t, []string{"ejected"}, s.Upstreams[2].Why)
	next := func() string {
		l, err := q.Acquire(balancer.Request{})
		require.NoError(t, err)
		return l.Upstream().Name
	}
	require.Equal(t, "a", next())
	clk.Advance(time.Minute)
	require.Equal(t, "c", next())
	require.Equal(t, "a", next(), "c is full")
}

// A damaged state is an error, and costs no memory that its length does not
// warrant.
func TestRestoreDamaged(t *testing.T) {
	cfg := balancer.Config{Policy: first, Seed: 3}
	p, _ := small(t, cfg)
	for range 3 {
		_, err := p.Acquire(balancer.Request{})
		require.NoError(t, err)
	}
	saved := p.Save()
	cfg.Clock = clock.NewManual(time.Unix(5, 0))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range saved {
		_, err := balancer.RestorePool(cfg, saved[:i], abc...)
		require.ErrorIs(t, err, balancer.ErrState, "cut at %d", i)
		// A number that has grown to the largest.
		huge := binary.AppendUvarint(append([]byte(nil), saved[:i]...), 1<<64-1)
		_, _ = balancer.RestorePool(cfg, append(huge, saved[i+1:]...), abc...)
		huge = binary.AppendUvarint(append([]byte(nil), saved[:i]...), 1<<24)
		_, _ = balancer.RestorePool(cfg, append(huge, saved[i+1:]...), abc...)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
	// A single bit: an error, or a Pool that holds together.
	for i := range 8 * len(saved) {
		flipped := slices.Clone(saved)
		flipped[i/8] ^= 1 << (i % 8)
		cfg.Seed = 0
		if p, err := balancer.RestorePool(cfg, flipped, abc...); err == nil {
			require.NoError(t, p.Check(), "bit %d", i)
		} else {
			require.ErrorIs(t, err, balancer.ErrState, "bit %d", i)
		}
	}
	cfg.Seed = 3
	_, err := balancer.RestorePool(cfg, append(saved[:len(saved):len(saved)], 0), abc...)
	require.ErrorIs(t, err, balancer.ErrState, "something after the end")
	_, err = balancer.RestorePool(cfg, saved, abc[:2]...)
	require.ErrorIs(t, err, balancer.ErrState, "another number of upstreams")
	other := slices.Clone(abc)
	other[1].Name = "x"
	_, err = balancer.RestorePool(cfg, saved, other...)
	require.ErrorIs(t, err, balancer.ErrState, "another upstream")
	cfg.Seed = 4
	_, err = balancer.RestorePool(cfg, saved, abc...)
	require.ErrorIs(t, err, balancer.ErrConfig, "another seed")
}

// The earliest and the latest times that a clock can have neither wrap nor make
// a state that does not restore.
func TestExtremesOfTime(t *testing.T) {
	cfg := tapeConfig(balancer.PeakEWMA{})
	cfg.Breaker = breaker.Config{ConsecutiveFailures: 2, OpenFor: 1<<63 - 1, OpenMax: 1<<63 - 1}
	p, clk := small(t, cfg)
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	clk.Set(time.Unix(0, 0).Add(1<<63 - 1))
	_, err = p.Acquire(balancer.Request{})
	require.NoError(t, err)
	saved := p.Save()
	q, qclk := restored(t, cfg, saved, abc...)
	qclk.Set(time.Unix(5, 0).Add(1<<63 - 1))
	for i := range 20 {
		l, err := q.Acquire(balancer.Request{})
		if err != nil {
			break
		}
		l.Release(balancer.Outcome(i % 4))
	}
	for _, u := range q.Snapshot().Upstreams {
		require.GreaterOrEqual(t, u.Oldest, time.Duration(0))
		require.GreaterOrEqual(t, u.Latency, time.Duration(0))
	}
	for _, l := range q.Leases() {
		require.True(t, l.Release(balancer.Success))
	}
	for _, u := range q.Snapshot().Upstreams {
		require.Zero(t, u.Inflight)
		require.GreaterOrEqual(t, u.Latency, time.Duration(0))
	}
	_, _ = restored(t, cfg, q.Save(), abc...)
	require.True(t, l.Release(balancer.Success))
}

// A lease that was picked for want of anything else still says so.
func TestRestoreKeepsFallback(t *testing.T) {
	cfg := balancer.Config{Policy: first, Breaker: noBreaker, Outlier: outlier.Config{Consecutive: 1, MaxEjectedPercent: 100, Last: outlier.EjectLast}, Seed: 3}
	p, _ := small(t, cfg)
	for range abc {
		l, err := p.Acquire(balancer.Request{})
		require.NoError(t, err)
		require.False(t, l.Fallback())
		l.Release(balancer.Failure)
	}
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	require.True(t, l.Fallback())
	q, _ := restored(t, cfg, p.Save(), abc...)
	require.True(t, q.Leases()[0].Fallback())
}
