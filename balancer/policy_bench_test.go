package balancer_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// BenchmarkAnchor is what the other benchmarks of a run are measured by.
func BenchmarkAnchor(b *testing.B) {
	b.Run("time.Now", func(b *testing.B) {
		for b.Loop() {
			_ = time.Now()
		}
	})
	b.Run("mutex", func(b *testing.B) {
		var mu sync.Mutex
		for b.Loop() {
			mu.Lock()
			//lint:ignore SA2001 the pair is what is measured
			mu.Unlock()
		}
	})
}

// BenchmarkAcquireRelease is an attempt that succeeds, under the default
// Config: breaker, ejection, latency score and budget on, both readings of the
// clock included.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, p := range []balancer.Policy{
		balancer.RoundRobin{}, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{},
	} {
		for _, n := range []int{10, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", p.Name(), n), func(b *testing.B) {
				pool, err := balancer.NewPool(balancer.Config{Policy: p, Seed: 7}, crowd(n, 1, 2, 3, 4, 5)...)
				require.NoError(b, err)
				b.ReportAllocs()
				key := uint64(0)
				for b.Loop() {
					key += 0x9e3779b97f4a7c15
					l, _ := pool.Acquire(balancer.Request{Key: balancer.HashKey(key)})
					l.Release(balancer.Success)
				}
			})
		}
	}
}
