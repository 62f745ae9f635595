package health_test

import (
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer/health"
)

// The cost of one probe, against what it contains: a pair of clock reads and a
// pair of lock operations.
func BenchmarkProbe(b *testing.B) {
	b.Run("core", func(b *testing.B) {
		core := health.NewCore(health.Config{Interval: 1}, 0)
		for now := range int64(b.N) {
			p, _, _, _ := core.Begin(now)
			core.Record(now, p, true)
		}
	})
	b.Run("checker", func(b *testing.B) {
		now := time.Unix(0, 0)
		check := health.NewChecker(health.Config{Interval: 1}, now)
		for b.Loop() {
			now = now.Add(1)
			p, _, _, _ := check.Begin(now)
			check.Record(now, p, true)
		}
	})
	b.Run("now", func(b *testing.B) {
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
