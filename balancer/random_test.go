package balancer_test

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// cumulative is Random as it is defined: a point of the range that the weights
// fill end to end, drawn anew while its owner is not usable. O(n), and it gives
// up with -1 after as many draws as Random takes before it changes its method.
type cumulative struct{}

func (cumulative) Name() string { return "cumulative" }

func (cumulative) NewPicker(v *balancer.View, _ balancer.Picker) balancer.Picker {
	return cumulativePicker{v}
}

type cumulativePicker struct{ v *balancer.View }

func (p cumulativePicker) Pick(c balancer.Call) int {
	var total uint64
	for i := range p.v.Len() {
		total += uint64(p.v.Weight(i))
	}
	for k := range uint64(16) {
		at := scaleDown(c.Draw(k), total)
		for i := range p.v.Len() {
			w := uint64(p.v.Weight(i))
			if at < w {
				if p.v.Usable(i) {
					return i
				}
				break
			}
			at -= w
		}
	}
	return -1
}

// scaleDown is floor(x * n / 2^64) for n below 2^32.
func scaleDown(x, n uint64) uint64 { return (x>>32*n + x&math.MaxUint32*n>>32) >> 32 }

func TestRandomRows(t *testing.T) {
	t.Run("F-LB-02", func(t *testing.T) {
		seed, fixed := seedOf(t, 7)
		cfg := plain(balancer.Random{})
		cfg.Seed = seed
		got := newRig(t, cfg, peersOf(5, 2, 1)...).picks(8000)
		counts := tally(got)
		band(t, fixed, counts["A"], 8000, 5.0/8, 130)
		band(t, fixed, counts["B"], 8000, 2.0/8, 117)
		band(t, fixed, counts["C"], 8000, 1.0/8, 89)

		cfg.Policy = cumulative{}
		require.Equal(t, newRig(t, cfg, peersOf(5, 2, 1)...).picks(8000), got)
	})
}

func TestRandomTraps(t *testing.T) {
	t.Run("A-RN-01", func(t *testing.T) {
		// 64 goroutines share one seeded source.
		const goroutines = 64
		each := opsOf(t, 2000)
		seed, fixed := seedOf(t, 7)
		cfg := plain(balancer.Random{})
		cfg.Seed = seed
		r := newRig(t, cfg, peersOf(1, 1, 1, 1)...)
		counts := make([]map[string]int, goroutines)
		var wg sync.WaitGroup
		for g := range counts {
			counts[g] = map[string]int{}
			wg.Go(func() {
				for range each {
					l, err := r.pool.Acquire(balancer.Request{})
					if err != nil {
						t.Error(err)
						return
					}
					counts[g][l.Upstream().id]++
					l.Release(balancer.Success)
				}
			})
		}
		wg.Wait()
		n := goroutines * each
		for _, id := range []string{"A", "B", "C", "D"} {
			sum := 0
			for _, c := range counts {
				sum += c[id]
			}
			band(t, fixed, sum, n, 0.25, 0.01*float64(n))
		}
	})

	t.Run("A-RN-02", func(t *testing.T) {
		// The only host is the one to leave out: none, at once. For draws that are
		// always 0 see TestDrawsEnd.
		r := newRig(t, plain(balancer.Random{}), peersOf(1)...)
		try := r.pool.Start(balancer.Request{})
		require.Equal(t, balancer.StepSend, try.Next().Kind)
		try.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.EndNoTarget, try.Next().End)

		for id := range uint64(200) {
			for _, weights := range [][]int{{1, 1, 1}, {1000, 1, 1}} {
				try := newRig(t, plain(balancer.Random{}), peersOf(weights...)...).pool.Start(balancer.Request{ID: id + 1})
				one := try.Next().Lease.Upstream().id
				try.Done(balancer.Report{Outcome: balancer.TransportFailure})
				require.NotEqual(t, one, try.Next().Lease.Upstream().id)
			}
		}
	})
}

// The distribution over what is usable, at 0, 10, 50, 90 and 99 % down, equal
// and unequal weights: chi-square with n-1 degrees of freedom.
func TestRandomIsUniform(t *testing.T) {
	seed, fixed := seedOf(t, 7)
	for _, weights := range [][]int{{1}, {1, 2, 3, 10}} {
		for _, up := range []int{200, 180, 100, 20, 2} {
			cfg := plain(balancer.Random{})
			cfg.Seed = seed
			peers := crowd(200, weights...)
			r := newRig(t, cfg, peers...)
			total, usable := 0, map[string]int{}
			for i, p := range peers {
				if i*37%200 < up {
					usable[p.id] = p.weight
					total += p.weight
				} else {
					r.set(p.id, false)
				}
			}
			n := opsOf(t, 60*up)
			chi := 0.0
			got := tally(r.picks(n))
			for id, w := range usable {
				want := float64(n*w) / float64(total)
				chi += (float64(got[id]) - want) * (float64(got[id]) - want) / want
			}
			require.Len(t, got, up)
			df, sigmas := float64(up-1), 3.0
			if !fixed {
				sigmas = 6
			}
			// The normal approximation is coarse for few degrees of freedom, on the
			// side of passing.
			require.LessOrEqual(t, chi, df+sigmas*math.Sqrt(2*df)+10, "%d of 200 up, weights %v", up, weights)
		}
	}
}

// A host that goes down moves only the picks that hit it, and leaving out a
// request moves no pick at all.
func TestRandomPicksAreKeyed(t *testing.T) {
	for _, p := range []balancer.Policy{balancer.Random{}, balancer.TwoRandom{}} {
		for _, weights := range [][]int{{1}, {1, 2, 3}} {
			run := func(down string, skip uint64) map[uint64]string {
				r, out := newRig(t, plain(p), crowd(50, weights...)...), map[uint64]string{}
				if down != "" {
					r.set(down, false)
				}
				for id := uint64(1); id <= 2000; id++ {
					if id != skip {
						l, err := r.pool.Acquire(balancer.Request{ID: id})
						require.NoError(t, err)
						l.Release(balancer.Success)
						out[id] = l.Upstream().id
					}
				}
				return out
			}
			all, without, skipped := run("", 0), run("h00007", 0), run("", 77)
			moved := 0
			for id, host := range all {
				if host != without[id] {
					moved++
					if p.Name() == "random" {
						require.Equal(t, "h00007", host, "request %d", id)
					}
				}
				if id != 77 {
					require.Equal(t, host, skipped[id])
				}
			}
			require.Positive(t, moved)
			// Two choices hit a host twice as often.
			require.Less(t, moved, 2000*2*3*2/50)
		}
	}
}
