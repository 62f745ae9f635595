package balancer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

func TestTwoRandomRows(t *testing.T) {
	t.Run("F-LB-06", func(t *testing.T) {
		r := newRig(t, plain(balancer.TwoRandom{}), peersOf(1, 1)...)
		r.load("A", 4)
		r.load("B", 1)
		require.Equal(t, map[string]int{"B": 100}, tally(r.picks(100)))

		r = newRig(t, plain(balancer.TwoRandom{}), crowd(10, 1)...)
		r.load("h00000", 100)
		got := tally(r.picks(10_000))
		require.Zero(t, got["h00000"])
		require.Len(t, got, 9)

		// The first drawn of two equals wins: each of two idle hosts is that one
		// half the time.
		seed, fixed := seedOf(t, 7)
		cfg := plain(balancer.TwoRandom{})
		cfg.Seed = seed
		got = tally(newRig(t, cfg, peersOf(1, 1)...).picks(1000))
		band(t, fixed, got["A"], 1000, 0.5, 48)
	})
}

func TestTwoRandomTraps(t *testing.T) {
	t.Run("A-TR-01", func(t *testing.T) {
		// The two are never the same host, so the busy one of two is never picked.
		for _, p := range []balancer.Policy{balancer.TwoRandom{}, balancer.PeakEWMA{}} {
			r := newRig(t, plain(p), peersOf(1, 1)...)
			r.load("A", 10)
			for range 1000 {
				l := r.hold()
				require.Equal(t, "B", l.Upstream().id)
				l.Release(balancer.Ignored)
			}
		}
	})

	t.Run("A-TR-02", func(t *testing.T) {
		// One host, or one usable host, needs no draw. TestDrawsEnd has the draws
		// that are always 0.
		for _, n := range []int{1, 2, 3, 70} {
			for _, p := range []balancer.Policy{balancer.TwoRandom{}, balancer.PeakEWMA{}} {
				r := newRig(t, plain(p), crowd(n, 1)...)
				r.only("h00000", func() {
					for range 100 {
						require.Equal(t, "h00000", r.next())
					}
				})
				r.picks(10)
			}
		}
	})
}
