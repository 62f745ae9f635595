package balancer

import (
	"fmt"
	"testing"
)

// newTestView makes a tier of usable hosts with the given weights, without a
// Pool around it.
func newTestView(weights ...int) *View {
	n := len(weights)
	v := &View{usable: newBitmap(n), spare: newBitmap(n)}
	v.set = &v.usable
	for i, w := range weights {
		id := fmt.Sprintf("h%05d", i)
		v.hosts = append(v.hosts, &host{id: id, key: hashID(id), weight: int32(w), index: int32(i), oldestSince: never})
		v.usable.set(i, true)
	}
	return v
}

// BenchmarkPick is the cost of a pick alone, and with the change of one host's
// eligibility and back.
func BenchmarkPick(b *testing.B) {
	for _, p := range []Policy{RoundRobin{}, WeightedRoundRobin{}, Random{}, LeastConn{}, TwoRandom{}, PeakEWMA{}} {
		for _, n := range []int{10, 32, 1000, 10000} {
			for _, shape := range []string{"equal", "skewed"} {
				weights := make([]int, n)
				for i := range weights {
					weights[i] = 1
					if shape == "skewed" {
						weights[i] = 1 + i%5
					}
				}
				b.Run(fmt.Sprintf("%s/%d/%s", p.Name(), n, shape), func(b *testing.B) {
					pk := p.NewPicker(newTestView(weights...), nil)
					b.ReportAllocs()
					i := uint64(0)
					for b.Loop() {
						i++
						pk.Pick(Call{draw: draw(1, 1, i)})
					}
				})
			}
		}
	}
}
