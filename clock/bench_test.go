package clock_test

import (
	"sync"
	"testing"
	"time"

	bb "github.com/benbjohnson/clock"

	"github.com/evenkeel-go/evenkeel/clock"
)

// The yardsticks of the others: a reading by package time and a mutex pair.
func BenchmarkTimeNow(b *testing.B) {
	var sink time.Time
	for b.Loop() {
		sink = time.Now()
	}
	_ = sink
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

func BenchmarkSystemNow(b *testing.B) {
	var c clock.Clock = clock.System()
	var sink time.Time
	for b.Loop() {
		sink = c.Now()
	}
	_ = sink
}

func BenchmarkManualNow(b *testing.B) {
	var c clock.Clock = clock.NewManual(t0)
	var sink time.Time
	for b.Loop() {
		sink = c.Now()
	}
	_ = sink
}

func BenchmarkMockNow(b *testing.B) {
	var c clock.Clock = bb.NewMock()
	var sink time.Time
	for b.Loop() {
		sink = c.Now()
	}
	_ = sink
}

func BenchmarkManualAdvanceIdle(b *testing.B) {
	m := clock.NewManual(t0)
	for range 1000 {
		m.AfterFunc(1<<62, nil)
	}
	for b.Loop() {
		m.Advance(1)
	}
}

// One timer runs and is armed again, among 1, 10 and 1000 others.
func BenchmarkManualFire(b *testing.B) {
	for _, bench := range []struct {
		name string
		n    int
	}{{"1", 1}, {"10", 10}, {"1000", 1000}} {
		b.Run(bench.name, func(b *testing.B) {
			m := clock.NewManual(t0)
			for i := range bench.n {
				var tm clock.Timer
				tm = m.AfterFunc(time.Duration(i+1), func() { tm.Reset(time.Duration(bench.n)) })
			}
			for b.Loop() {
				m.Step()
			}
		})
	}
}
