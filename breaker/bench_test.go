package breaker_test

import (
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
)

// everyRule has all trip rules on.
var everyRule = breaker.Config{
	ConsecutiveFailures: 5, WindowFailures: 10, FailureRate: 0.5, SlowRate: 0.5,
	FailAfter: 5 * time.Second, Window: 10 * time.Second,
}

// The first two are the yardstick: read the others as multiples of them.
func BenchmarkTimeNow(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}

func BenchmarkMutexPair(b *testing.B) {
	var mu sync.Mutex
	n := 0
	for b.Loop() {
		mu.Lock()
		n++
		mu.Unlock()
	}
}

func benchmarkCore(b *testing.B, cfg breaker.Config, failEvery int) {
	c := breaker.NewCore(cfg, 1)
	b.ReportAllocs()
	now, n := int64(0), 0
	for b.Loop() {
		now += 1000
		t, _ := c.Allow(now)
		if n++; n == failEvery {
			n = 0
			c.Done(now+500, t, false)
			continue
		}
		c.Done(now+500, t, true)
	}
}

func BenchmarkCoreClosed(b *testing.B)          { benchmarkCore(b, breaker.Config{}, 0) }
func BenchmarkCoreClosedEveryRule(b *testing.B) { benchmarkCore(b, everyRule, 0) }
func BenchmarkCoreTenthFails(b *testing.B) {
	cfg := everyRule
	cfg.WindowFailures = 0
	benchmarkCore(b, cfg, 10)
}

func BenchmarkCoreReady(b *testing.B) {
	c := breaker.NewCore(everyRule, 1)
	for b.Loop() {
		c.Ready(1)
	}
}

func BenchmarkCoreReject(b *testing.B) {
	c := breaker.NewCore(breaker.Config{}, 1)
	c.Trip(0, int64(time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		c.Allow(1)
	}
}

// BenchmarkCoreCycle is a whole round: trip, wait, trial, closed.
func BenchmarkCoreCycle(b *testing.B) {
	c := breaker.NewCore(breaker.Config{ConsecutiveFailures: 1, OpenFor: 10}, 1)
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		t, _ := c.Allow(now)
		c.Done(now, t, false)
		now += 10
		t, _ = c.Allow(now)
		c.Done(now, t, true)
		for c.Changed() {
			c.Pop()
		}
	}
}

func BenchmarkClosed(b *testing.B) {
	br := breaker.New(breaker.Config{})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p, _ := br.Allow(now)
		p.Done(now, true)
	}
}

func BenchmarkClosedEveryRule(b *testing.B) {
	br := breaker.New(everyRule)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p, _ := br.Allow(now)
		p.Done(now, true)
	}
}

func BenchmarkClosedWithClock(b *testing.B) {
	br := breaker.New(everyRule)
	b.ReportAllocs()
	for b.Loop() {
		p, _ := br.Allow(time.Now())
		p.Done(time.Now(), true)
	}
}

func BenchmarkReject(b *testing.B) {
	br := breaker.New(breaker.Config{})
	now := time.Now()
	br.Trip(now, time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = br.Allow(now)
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	br := breaker.New(everyRule)
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, _ := br.Allow(now)
			p.Done(now, true)
		}
	})
}
