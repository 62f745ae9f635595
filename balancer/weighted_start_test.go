package balancer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// A thousand clients that start together spread their first pick by weight, and
// each of them still gives every host exactly its weight of each cycle.
func TestWeightedStartsAreSpread(t *testing.T) {
	seed, _ := seedOf(t, 7)
	for _, n := range []int{2, 10, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var members []balancer.Member
			total := 0
			for i := range n {
				members = append(members, balancer.Member{Name: fmt.Sprint("m", i), Share: 2 * (1 + i%3)})
				total += 1 + i%3
			}
			first := map[string]int{}
			const clients = 3000
			for c := range uint64(clients) {
				p, err := balancer.NewPool(balancer.Config{Policy: balancer.WeightedRoundRobin{}, Seed: mixed(seed+c) | 1}, members...)
				require.NoError(t, err)
				cycle := total
				if c >= 50 {
					cycle = 1
				}
				seen := map[string]int{}
				for i := range cycle {
					l, err := p.Acquire(balancer.Request{})
					require.NoError(t, err)
					if i == 0 {
						first[l.Upstream().Name]++
					}
					seen[l.Upstream().Name]++
					l.Release(balancer.Success)
				}
				for i, m := range members {
					if cycle == total {
						require.Equal(t, 1+i%3, seen[m.Name], "client %d, %s", c, m.Name)
					}
				}
			}
			// Six sigma on each count: the widest of a binomial is sqrt(np).
			for i, m := range members {
				want := clients * float64(1+i%3) / float64(total)
				require.InDelta(t, want, first[m.Name], 6*sqrt(want), m.Name)
			}
		})
	}
}

// sqrt by Newton, since nothing here needs more.
func sqrt(x float64) float64 {
	y := x
	for range 60 {
		y = (y + x/y) / 2
	}
	return y
}
