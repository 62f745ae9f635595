package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

func TestLeastConnRows(t *testing.T) {
	t.Run("F-LB-05", func(t *testing.T) {
		for _, ties := range []balancer.Ties{balancer.TiesRotate, balancer.TiesRandom, balancer.TiesIndex} {
			r := newRig(t, plain(balancer.LeastConn{Ties: ties}), peersOf(1, 3)...)
			r.load("A", 3)
			r.load("B", 6)
			require.Equal(t, "B", r.next(), "6/3 is below 3/1")
		}
		seed, fixed := seedOf(t, 7)
		cfg := plain(balancer.LeastConn{Ties: balancer.TiesRandom})
		cfg.Seed = seed
		got := tally(newRig(t, cfg, peersOf(1, 1, 1)...).picks(3000))
		for _, id := range []string{"A", "B", "C"} {
			band(t, fixed, got[id], 3000, 1.0/3, 80)
		}
	})

	t.Run("E-LB-06", func(t *testing.T) {
		r := newRig(t, plain(balancer.LeastConn{Ties: balancer.TiesIndex}), peersOf(1, 1, 1)...)
		ls := append(r.load("A", 2), r.load("B", 1)...)
		require.Equal(t, "C", r.next())
		ls[1].Release(balancer.Success)
		ls[2].Release(balancer.Success)
		require.False(t, ls[2].Release(balancer.Success), "an end that was already counted")
		ls[0].Release(balancer.Success)
		for _, id := range []string{"A", "B", "C"} {
			require.Zero(t, r.inflight(id))
		}
		require.Equal(t, "AAA", r.line(3), "ties by lowest index")
	})
}

func TestLeastConnTraps(t *testing.T) {
	t.Run("A-LC-01", func(t *testing.T) {
		got := tally(newRig(t, plain(balancer.LeastConn{}), peersOf(1, 1, 1, 1, 1)...).picks(100))
		require.Equal(t, map[string]int{"A": 20, "B": 20, "C": 20, "D": 20, "E": 20}, got)

		seed, fixed := seedOf(t, 7)
		cfg := plain(balancer.LeastConn{Ties: balancer.TiesRandom})
		cfg.Seed = seed
		got = tally(newRig(t, cfg, peersOf(1, 1, 1, 1, 1)...).picks(100))
		for _, id := range []string{"A", "B", "C", "D", "E"} {
			if fixed {
				require.GreaterOrEqual(t, got[id], 6)
				require.LessOrEqual(t, got[id], 36)
			}
			band(t, fixed, got[id], 100, 0.2, 16)
		}
	})

	t.Run("A-LC-02", func(t *testing.T) {
		for _, p := range builtin() {
			r := newRig(t, plain(p), peer{id: "A", weight: 1, max: 1}, peer{id: "B", weight: 1, max: 1})
			ls := map[string]balancer.Lease[peer]{}
			for range 2 {
				l := r.hold()
				ls[l.Upstream().id] = l
			}
			require.Len(t, ls, 2)
			_, err := r.pool.Acquire(balancer.Request{})
			require.ErrorIs(t, err, balancer.ErrNoneAvailable)
			ls["B"].Release(balancer.Success)
			require.Equal(t, "B", r.hold().Upstream().id)
			_, err = r.pool.Acquire(balancer.Request{})
			require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		}
	})

	t.Run("A-LC-03", func(t *testing.T) {
		e := peer{id: "E", weight: 1}
		r := newRig(t, plain(balancer.LeastConn{}), e)
		old := r.hold()
		require.Equal(t, 1, r.inflight("E"))
		r.update()
		r.update(e)
		require.Equal(t, 0, r.inflight("E"))
		young := r.hold()
		require.True(t, old.Release(balancer.Success))
		require.Equal(t, 1, r.inflight("E"))
		require.True(t, young.Release(balancer.Success))
		require.Equal(t, 0, r.inflight("E"))
	})

	t.Run("A-LC-04", func(t *testing.T) {
		// Every way out of a call, a thousand times: nothing stays in flight. An
		// upgraded connection is a lease like any other; the transport's own exits
		// are tested with it.
		cfg := plain(balancer.LeastConn{})
		cfg.Budget = retrybudget.Config{Off: true}
		r := newRig(t, cfg, peersOf(1, 2, 3)...)
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		boom := errors.New("boom")
		exits := []func(context.Context) error{
			func(context.Context) error { return nil },
			func(context.Context) error { return boom },
			func(context.Context) error { return balancer.WithOutcome(boom, balancer.TransportFailure) },
			func(context.Context) error { panic(boom) },
			func(context.Context) error { return context.Canceled },
			func(context.Context) error { return balancer.WithOutcome(boom, balancer.Failure) },
		}
		calls := 0
		for i := range 1000 {
			func() {
				defer func() { _ = recover() }()
				ctx := context.Background()
				if i%7 == 6 {
					ctx = dead
				}
				_ = r.pool.Do(ctx, balancer.Request{}, func(ctx context.Context, p peer) error {
					calls++
					require.Equal(t, 1, r.inflight(p.id))
					return exits[i%len(exits)](ctx)
				})
			}()
		}
		require.Greater(t, calls, 1000, "some were retried")
		for _, s := range r.pool.Snapshot().Upstreams {
			require.Zero(t, s.Inflight)
		}
		require.Zero(t, r.pool.Snapshot().Totals.Inflight)
		require.Empty(t, r.pool.Leases())
	})

	t.Run("A-LC-05", func(t *testing.T) {
		// Picks, releases and updates at once; the race detector looks on.
		for _, p := range builtin() {
			r := newRig(t, plain(p), crowd(40, 1, 2)...)
			var wg sync.WaitGroup
			for g := range 16 {
				wg.Go(func() {
					for i := range opsOf(t, 100) {
						l, err := r.pool.Acquire(balancer.Request{Key: balancer.HashKey(uint64(g*7919+i) << 40)})
						if err != nil {
							t.Error(err)
							return
						}
						l.Release(balancer.Success)
					}
				})
			}
			wg.Go(func() {
				for i := range 30 {
					if err := r.pool.Update(crowd(20+i*7%30, 1, 2, 3)...); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Wait()
			for _, s := range r.pool.Snapshot().Upstreams {
				require.Zero(t, s.Inflight, "%s: %s", p.Name(), s.ID)
			}
		}
	})
}

// Ties rotate from where the last one was decided, among the equals only.
func TestLeastConnTies(t *testing.T) {
	r := newRig(t, plain(balancer.LeastConn{}), crowd(9, 1)...)
	busy := r.load("h00004", 1)
	require.Len(t, tally(r.picks(8)), 8)
	got := r.picks(16)
	require.Equal(t, got[:8], got[8:])
	require.NotContains(t, got, "h00004")
	busy[0].Release(balancer.Success)
	require.Len(t, tally(r.picks(9)), 9)

	// One call at a time, spread over all before anyone gets a second.
	for round := 1; round <= 3; round++ {
		for range 9 {
			r.hold()
		}
		for _, s := range r.pool.Snapshot().Upstreams {
			require.Equal(t, round, s.Inflight, fmt.Sprint(s.ID, " in round ", round))
		}
	}
}
