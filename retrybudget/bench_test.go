package retrybudget_test

import (
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// The first two are the yardsticks: read the others as multiples of them.

func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}

func BenchmarkMutexPair(b *testing.B) {
	var mu sync.Mutex
	for b.Loop() {
		mu.Lock()
		//lint:ignore SA2001 the pair is what is measured
		mu.Unlock()
	}
}

var benchConfigs = []struct {
	name string
	cfg  retrybudget.Config
}{
	{"Default", retrybudget.Config{}},
	{"Finagle", retrybudget.Finagle()},
	{"GRPC", retrybudget.GRPC()},
	{"Envoy", retrybudget.Envoy()},
	{"Ferron", retrybudget.Ferron()},
}

// BenchmarkCoreRequest is what each request costs that succeeds at once.
func BenchmarkCoreRequest(b *testing.B) {
	for _, bc := range benchConfigs {
		b.Run(bc.name, func(b *testing.B) {
			c := retrybudget.NewCore(bc.cfg)
			now := int64(0)
			for b.Loop() {
				now += 1e6
				c.Request(now)
				c.Success(now)
				c.End(now)
			}
		})
	}
}

// BenchmarkCoreWithdraw is a failure that asks for a retry.
func BenchmarkCoreWithdraw(b *testing.B) {
	for _, bc := range benchConfigs {
		b.Run(bc.name, func(b *testing.B) {
			c := retrybudget.NewCore(bc.cfg)
			now := int64(0)
			for b.Loop() {
				now += 1e6
				c.Failure(now)
				c.Withdraw(now)
			}
		})
	}
}

func BenchmarkCoreNextGrant(b *testing.B) {
	for _, bc := range benchConfigs {
		b.Run(bc.name, func(b *testing.B) {
			c := retrybudget.NewCore(bc.cfg)
			withdraw(&c, 0, 1000)
			for b.Loop() {
				c.NextGrant(0)
			}
		})
	}
}

func BenchmarkBudgetWithdraw(b *testing.B) {
	budget := retrybudget.New(retrybudget.Config{})
	now := time.Unix(1000, 0)
	for b.Loop() {
		now = now.Add(time.Millisecond)
		budget.Withdraw(now)
	}
}

func BenchmarkBudgetSuccess(b *testing.B) {
	budget := retrybudget.New(retrybudget.Config{})
	now := time.Unix(1000, 0)
	for b.Loop() {
		now = now.Add(time.Millisecond)
		budget.Success(now)
	}
}

func BenchmarkBudgetContended(b *testing.B) {
	budget := retrybudget.New(retrybudget.Config{})
	now := time.Unix(1000, 0)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			budget.Success(now)
		}
	})
}
