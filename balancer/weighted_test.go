package balancer_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// weightedRig is a Pool of peers A, B, C, ... under weighted round robin.
func weightedRig(t *testing.T, weights ...int) *rig {
	t.Helper()
	return newRig(t, plain(balancer.WeightedRoundRobin{First: true}), peersOf(weights...)...)
}

// onWheel adds forty peers that stay down, so that the wheel is used.
func onWheel(t *testing.T, weights ...int) *rig {
	t.Helper()
	r := newRig(t, plain(balancer.WeightedRoundRobin{First: true}), padded(peersOf(weights...))...)
	for _, p := range crowd(40, 1) {
		r.set(p.id, false)
	}
	return r
}

// padded puts forty more peers behind the given ones.
func padded(peers []peer) []peer { return append(slices.Clip(peers), crowd(40, 1)...) }

// both runs a test on the smooth order and on the wheel. grow completes a list
// of peers for an update.
func both(t *testing.T, f func(t *testing.T, make func(...int) *rig, grow func([]peer) []peer)) {
	f(t, func(w ...int) *rig { return weightedRig(t, w...) }, func(p []peer) []peer { return p })
	f(t, func(w ...int) *rig { return onWheel(t, w...) }, padded)
}

func TestWeightedRows(t *testing.T) {
	t.Run("F-LB-03", func(t *testing.T) {
		r := weightedRig(t, 5, 2, 1)
		require.Equal(t, strings.Repeat("ABAACABA", 20), r.line(160))
		both(t, func(t *testing.T, make func(...int) *rig, _ func([]peer) []peer) {
			got := make(5, 2, 1).picks(800)
			for i := 8; i <= len(got); i += 8 {
				require.Equal(t, map[string]int{"A": 5, "B": 2, "C": 1}, tally(got[i-8:i]))
			}
		})
	})

	t.Run("F-LB-04", func(t *testing.T) {
		require.Equal(t, "AABACAA", weightedRig(t, 5, 1, 1).line(7))
		require.Equal(t, 2, longestRun(weightedRig(t, 5, 2, 1).picks(800), "A"))
	})

	t.Run("E-LB-03", func(t *testing.T) {
		require.Equal(t, "DCBDACDBCD", weightedRig(t, 1, 2, 3, 4).line(10))
		both(t, func(t *testing.T, make func(...int) *rig, _ func([]peer) []peer) {
			require.Equal(t, map[string]int{"A": 400, "B": 800, "C": 1200, "D": 1600}, tally(make(1, 2, 3, 4).picks(4000)))
		})
	})

	t.Run("E-LB-04", func(t *testing.T) {
		both(t, func(t *testing.T, make func(...int) *rig, _ func([]peer) []peer) {
			require.Equal(t, map[string]int{"A": 1, "B": 100, "C": 3, "D": 9}, tally(make(1, 100, 3, 9, 0).picks(113)))
			for _, weights := range [][]int{{2, 4, 6, 8}, {6, 10, 14, 20}, {5, 5, 20, 30}} {
				sum, want := 0, map[string]int{}
				for i, w := range weights {
					sum, want[string(rune('A'+i))] = sum+w, w
				}
				r := make(weights...)
				cycle := r.line(sum)
				require.Equal(t, want, tally(strings.Split(cycle, "")))
				require.Equal(t, cycle, r.line(sum), "the second cycle is the first")
			}
		})
	})

	t.Run("E-LB-05", func(t *testing.T) {
		require.Equal(t, map[string]int{"B": 300}, tally(weightedRig(t, 0, 3).picks(300)))
		_, err := weightedRig(t, 0, 0).pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		var none *balancer.UnavailableError
		require.ErrorAs(t, err, &none)
		require.Equal(t, balancer.UnavailableError{Upstreams: 2, NoTraffic: 2}, *none)

		// A pool that does not look at weights routes to it.
		cfg := plain(first)
		cfg.IgnoreWeights = true
		require.Equal(t, "ABAB", newRig(t, cfg, peersOf(0, 3)...).line(4))
	})
}

func TestWeightedTraps(t *testing.T) {
	t.Run("A-WR-01", func(t *testing.T) {
		both(t, func(t *testing.T, make func(...int) *rig, _ func([]peer) []peer) {
			r := make(9, 1)
			r.picks(3)
			r.set("A", false)
			require.Equal(t, strings.Repeat("B", 20), r.line(20))
			r.set("A", true)
			require.InDelta(t, 9, tally(r.picks(10))["A"], 1)
		})
	})

	t.Run("A-WR-02", func(t *testing.T) {
		both(t, func(t *testing.T, make func(...int) *rig, grow func([]peer) []peer) {
			for before := 1; before <= 4; before++ {
				r := make(3, 1)
				r.picks(before)
				r.update(grow(peersOf(1, 1))...)
				a := 0
				for n := 1; n <= 60; n++ {
					if r.next() == "A" {
						a++
					}
					require.InDelta(t, float64(n)/2, a, 1, "%d picks at 3:1, then %d at 1:1", before, n)
				}
			}
		})
	})

	t.Run("A-WR-03", func(t *testing.T) {
		both(t, func(t *testing.T, make func(...int) *rig, grow func([]peer) []peer) {
			r := make(100, 100, 1)
			c, ideal := 0, 0.0
			for w := 1; w <= 100; w++ {
				r.update(grow(peersOf(100, 100, w))...)
				r.update(grow(peersOf(100, 100, w))...) // the same again changes nothing
				ideal += float64(w) / float64(200+w)
				if r.next() == "C" {
					c++
				}
				require.InDelta(t, ideal, c, 3)
			}
			require.InDelta(t, 19.07, ideal, 0.01)
			require.InDelta(t, 19.07, c, 3)
		})
	})

	t.Run("A-WR-04", func(t *testing.T) {
		// State lives with the hosts: what is saved does not grow with churn.
		r := weightedRig(t, 1, 1, 1)
		size := 0
		for i := range 10_000 {
			r.update(peer{id: fmt.Sprint("x", i%90+10), weight: 1}, peer{id: "yyy", weight: 1}, peer{id: "zzz", weight: 1})
			r.next()
			if i == 1000 {
				size = len(r.pool.Save())
			}
		}
		require.Len(t, r.pool.Snapshot().Upstreams, 3)
		// Counters that grow with the work take a few bytes more.
		require.InDelta(t, size, len(r.pool.Save()), 16)

		both(t, func(t *testing.T, make func(...int) *rig, grow func([]peer) []peer) {
			r := make(10, 1, 1)
			for r.next() != "A" {
			}
			abc := grow(peersOf(10, 1, 1))
			r.update(abc[1:]...)
			r.update(grow(peersOf(1, 1, 1))...)
			got := tally(r.picks(30))
			for _, id := range []string{"A", "B", "C"} {
				require.InDelta(t, 10, got[id], 1, id)
			}
		})
	})

	t.Run("A-WR-05", func(t *testing.T) {
		require.Equal(t, "AAAAABAAAAA", weightedRig(t, 100, 10).line(11), "the light pick is the sixth")
		both(t, func(t *testing.T, make func(...int) *rig, grow func([]peer) []peer) {
			r := make(100, 10)
			require.Equal(t, 1, tally(r.picks(11))["B"])
			r, light := make(100, 10), 0
			for range 22 {
				light += tally(r.picks(5))["B"]
				r.update(grow(peersOf(100, 10))...)
			}
			require.Equal(t, 10, light)
		})
	})

	t.Run("A-WR-06", func(t *testing.T) {
		require.Equal(t, "ABABABAB", weightedRig(t, 7, 7).line(8))
		got := onWheel(t, 7, 7).line(70)
		require.NotContains(t, got, "AAA")
		require.NotContains(t, got, "BBB")
		// Equal weights are a round robin at any size.
		many := newRig(t, plain(balancer.WeightedRoundRobin{First: true}), crowd(100, 7)...).picks(700)
		for i := 100; i <= len(many); i += 100 {
			require.Len(t, tally(many[i-100:i]), 100)
		}
	})

	t.Run("A-WR-07", func(t *testing.T) {
		both(t, func(t *testing.T, make func(...int) *rig, grow func([]peer) []peer) {
			r := make(1, 0)
			r.set("B", false)
			r.set("B", true)
			require.Equal(t, map[string]int{"A": 50}, tally(r.picks(50)))
			r.update(grow(peersOf(0, 0))...)
			_, err := r.pool.Acquire(balancer.Request{})
			require.ErrorIs(t, err, balancer.ErrNoneAvailable)
			r.update(grow(peersOf(0, 2))...)
			require.Equal(t, "BB", r.line(2))
		})
	})
}

// How far the counts of the wheel are from ideal, at every moment of three
// cycles, and how long it stays at one host.
func TestWheelIsSmooth(t *testing.T) {
	heavy := append([]int{100}, slices.Repeat([]int{1}, 99)...)
	for _, c := range []struct {
		weights []int
		n       int
		most    float64
		run     int
	}{
		{heavy, 100, 1.1, 2},
		{[]int{1}, 200, 1, 1},
		{[]int{1, 2, 3, 4, 5}, 200, 1.5, 1},
		{[]int{3, 9, 27, 81}, 100, 1.5, 1},
		{append([]int{3000}, slices.Repeat([]int{1}, 99)...), 100, 1.5, 60},
	} {
		peers := crowd(c.n, c.weights...)
		sum := 0
		for _, p := range peers {
			sum += p.weight
		}
		r := newRig(t, plain(balancer.WeightedRoundRobin{First: true}), peers...)
		got, worst := map[string]int{}, 0.0
		var order []string
		for n := 1; n <= 3*sum; n++ {
			id := r.next()
			order = append(order, id)
			got[id]++
			if n%7 == 0 || n%sum == 0 {
				for _, p := range peers {
					worst = max(worst, math.Abs(float64(got[p.id])-float64(n*p.weight)/float64(sum)))
				}
			}
			if n%sum == 0 {
				for _, p := range peers {
					require.Equal(t, n/sum*p.weight, got[p.id], "%s after %d picks", p.id, n)
				}
			}
		}
		require.LessOrEqual(t, worst, c.most, "weights %v", c.weights)
		most := 0
		for _, p := range peers {
			most = max(most, longestRun(order, p.id))
		}
		require.LessOrEqual(t, most, c.run, "weights %v", c.weights)
	}
}

// A tenth of the hosts goes down and comes back, again and again: nobody bursts
// on its return, and those that are always up keep equal shares.
func TestWheelUnderFlapping(t *testing.T) {
	peers := crowd(200, 1, 2, 3, 4, 5)
	r := newRig(t, plain(balancer.WeightedRoundRobin{First: true}), peers...)
	got := map[string]int{}
	var order []string
	for round := range 40 {
		for i := range 20 {
			r.set(peers[(round*7+i*9)%100].id, round%2 == 1)
		}
		for range 150 {
			id := r.next()
			got[id]++
			order = append(order, id)
		}
		for i := range 20 {
			r.set(peers[(round*7+i*9)%100].id, true)
		}
	}
	lo, hi := math.Inf(1), 0.0
	for i, p := range peers {
		require.LessOrEqual(t, longestRun(order, p.id), 1)
		if i >= 100 {
			lo, hi = min(lo, float64(got[p.id])/float64(p.weight)), max(hi, float64(got[p.id])/float64(p.weight))
		}
	}
	require.LessOrEqual(t, hi-lo, 1.5, "picks per unit of weight")
}

// A host that was down while the wheel jumped over its place is served again.
func TestWheelServesWhomItJumpedOver(t *testing.T) {
	peers := crowd(300, 1)
	r := newRig(t, plain(balancer.WeightedRoundRobin{First: true}), peers...)
	for round := range 6 {
		for i, p := range peers {
			r.set(p.id, i == round)
		}
		r.picks(3 + round%5) // a lap each
		for _, p := range peers {
			r.set(p.id, true)
		}
		require.Len(t, tally(r.picks(300)), 300, "round %d", round)
	}
}
