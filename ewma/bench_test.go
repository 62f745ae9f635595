package ewma_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// The yardsticks of the others: a reading by package time, a mutex pair, and
// the exponential that the table replaces.
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

func BenchmarkMathExp(b *testing.B) {
	x, sum := 0.0, 0.0
	for b.Loop() {
		x -= 1e-6
		sum += math.Exp(x)
	}
	_ = sum
}

var benchConfigs = []struct {
	name string
	cfg  ewma.Config
}{
	{"Tau", ewma.Config{}},
	{"Peak", ewma.Config{Peak: true}},
	{"AlphaMilli", ewma.Config{AlphaMilli: 250}},
}

func BenchmarkCoreObserve(b *testing.B) {
	for _, bench := range benchConfigs {
		b.Run(bench.name, func(b *testing.B) {
			c := ewma.NewCore(bench.cfg)
			now := int64(0)
			for b.Loop() {
				now += 100_003
				c.Observe(now, now&0xfffff)
			}
		})
	}
}

func BenchmarkCoreValue(b *testing.B) {
	c := ewma.NewCore(ewma.Config{})
	c.Observe(0, 1e8)
	now, sum := int64(0), int64(0)
	for b.Loop() {
		now += 1003
		v, _ := c.Value(now)
		sum += v
	}
	_ = sum
}

// What a balancer does per call: one sample, and one reading a while later.
func BenchmarkCoreObserveAndValue(b *testing.B) {
	for _, bench := range benchConfigs {
		b.Run(bench.name, func(b *testing.B) {
			c := ewma.NewCore(bench.cfg)
			now, sum := int64(0), int64(0)
			for b.Loop() {
				now += 100_003
				c.Observe(now, now&0xfffff)
				v, _ := c.Value(now + 5000)
				sum += v
			}
			_ = sum
		})
	}
}

func BenchmarkMeterObserve(b *testing.B) {
	var m ewma.Meter
	now := time.Unix(0, 0)
	for b.Loop() {
		now = now.Add(100_003)
		m.Observe(now, 5*time.Millisecond)
	}
}

func BenchmarkScoreLess(b *testing.B) {
	n := 0
	for i := int64(0); b.Loop(); i++ {
		if ewma.ProductScore(i&1023, 3, 1).Less(ewma.ProductScore(500, i&7, 2)) {
			n++
		}
	}
	_ = n
}
