package peers_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
)

// all is a breaker with every rule on.
var all = breaker.Config{
	ConsecutiveFailures: 5, WindowFailures: 20, FailureRate: 0.5, SlowRate: 0.9, SlowAfter: time.Second, MinCalls: 20,
}

// Yardsticks: what a clock reading and a lock cost here and now, and what the
// usual breaker does.
func BenchmarkYardstick(b *testing.B) {
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
	b.Run("clock.System", func(b *testing.B) {
		clk := clock.System()
		for b.Loop() {
			_ = clk.Now()
		}
	})
	b.Run("gobreaker.Execute", func(b *testing.B) {
		cb := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})
		for b.Loop() {
			_, _ = cb.Execute(func() (int, error) { return 0, nil })
		}
	})
	b.Run("gobreaker.reject", func(b *testing.B) {
		cb := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Timeout: time.Hour})
		for range 10 {
			_, _ = cb.Execute(func() (int, error) { return 0, errors.New("down") })
		}
		for b.Loop() {
			_, _ = cb.Execute(func() (int, error) { return 0, nil })
		}
	})
}

// The breaker with now given, with both clock readings inside, and refusing.
func BenchmarkBreaker(b *testing.B) {
	b.Run("core", func(b *testing.B) {
		c := breaker.NewCore(all, 1)
		now := int64(0)
		for b.Loop() {
			now += 1000
			t, _ := c.Allow(now)
			c.Done(now, t, true)
		}
	})
	b.Run("locked", func(b *testing.B) {
		br, now := breaker.New(all), time.Now()
		for b.Loop() {
			p, _ := br.Allow(now)
			p.Done(now, true)
		}
	})
	b.Run("locked with clock", func(b *testing.B) {
		br, clk := breaker.New(all), clock.System()
		for b.Loop() {
			p, _ := br.Allow(clk.Now())
			p.Done(clk.Now(), true)
		}
	})
	b.Run("reject", func(b *testing.B) {
		br, now := breaker.New(all), time.Now()
		br.Trip(now, time.Hour)
		for b.Loop() {
			_, _ = br.Allow(now)
		}
	})
}

type host struct{ id string }

func (h host) ID() string { return h.id }

// Acquire and Release with breaker, outlier detection, latency and budget on,
// the clock readings included.
func BenchmarkPool(b *testing.B) {
	for _, p := range []balancer.Policy{balancer.RoundRobin{}, balancer.PeakEWMA{}, balancer.TwoRandom{}, balancer.Random{},
		balancer.WeightedRoundRobin{}, balancer.LeastConn{}, balancer.Hash{}} {
		for _, n := range []int{10, 1000, 10000} {
			if _, ring := p.(balancer.Hash); ring && n > 1000 {
				continue // its table takes longer to build than the rest to run
			}
			b.Run(fmt.Sprintf("%s/%d", p.Name(), n), func(b *testing.B) {
				hosts := make([]host, n)
				for i := range hosts {
					hosts[i].id = fmt.Sprintf("10.0.%d.%d:8080", i/256, i%256)
				}
				pool, err := balancer.NewPool(balancer.Config{Policy: p, Seed: 1, Breaker: all}, hosts...)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					l, _ := pool.Acquire(balancer.Request{})
					l.Release(balancer.Success)
				}
			})
		}
	}
}

// Two goroutines with some private work around each call, which is nearer to a
// server than a tight loop: there a core keeps the lock's cache line for a
// burst. The figure to look at is what a call adds to "idle".
func BenchmarkSpaced(b *testing.B) {
	cb := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})
	br, clk := breaker.New(all), clock.System()
	pool, err := balancer.NewPool(balancer.Config{Seed: 1, Breaker: all}, host{"a"}, host{"b"}, host{"c"}, host{"d"})
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name string
		call func()
	}{
		{"idle", func() {}},
		{"gobreaker", func() { _, _ = cb.Execute(func() (int, error) { return 0, nil }) }},
		{"breaker", func() { p, _ := br.Allow(clk.Now()); p.Done(clk.Now(), true) }},
		{"pool", func() { l, _ := pool.Acquire(balancer.Request{}); l.Release(balancer.Success) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetParallelism(1)
			b.RunParallel(func(pb *testing.PB) {
				x := uint64(1)
				for pb.Next() {
					for range 300 {
						x = x*6364136223846793005 + 1442695040888963407
					}
					bench.call()
				}
				sink(x)
			})
		})
	}
}

//go:noinline
func sink(uint64) {}

// The peers and the library agree on the plainest of cases, so that what is
// measured is the same work.
func TestSameWork(t *testing.T) {
	cb := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 5 }})
	br, now := breaker.New(breaker.Config{ConsecutiveFailures: 5}), time.Now()
	for i := range 8 {
		_, err := cb.Execute(func() (int, error) { return 0, errors.New("down") })
		refused := errors.Is(err, gobreaker.ErrOpenState)
		p, err := br.Allow(now)
		if (err != nil) != refused || refused != (i >= 5) {
			t.Fatalf("call %d: gobreaker refused is %v, ours %v", i, refused, err)
		}
		if err == nil {
			p.Done(now, false)
		}
	}
}
