package outlier_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// everything is a configuration with all rules on.
func everything() outlier.Config {
	return outlier.Config{
		ConsecutiveGateway: 5, ConsecutiveTransport: 5,
		SuccessRate:       outlier.SuccessRate{On: true},
		FailurePercentage: outlier.FailurePercentage{On: true},
		Latency:           outlier.Latency{On: true},
	}
}

// TestAllocs: the hot paths allocate nothing, whatever is on.
func TestAllocs(t *testing.T) {
	for _, baseline := range []outlier.Baseline{outlier.BaselineOthers, outlier.BaselineAll, outlier.BaselineMedian} {
		cfg := everything()
		cfg.Latency.Baseline = baseline
		r := newRig(t, 1, 50, cfg)
		at := int64(0)
		work := func() {
			for n := range 200 {
				at += sec / 200
				h := r.hosts[n%50]
				o := success
				if n%50 == 0 {
					o = failure
				}
				r.c.Record(at, h, at, o, int64(n%7))
				r.c.EjectedAt(at, h)
				r.c.Weight(at, h)
				for r.c.Changed() {
					r.c.Pop()
				}
			}
		}
		work() // lets the buffers grow
		for range 20 {
			work()
		}
		require.Zero(t, testing.AllocsPerRun(20, work), "baseline %d", baseline)
		require.Positive(t, r.hosts[0].Ejections(), "changes and sweeps are part of it")
	}

	d := outlier.New(everything(), 1)
	start := time.Unix(0, 0)
	a, now := d.Add(start, "a"), start
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		a.Record(now, now, success, time.Millisecond)
		a.Ejected(now)
	}))
}

var sink int64

// BenchmarkReference is what the others are to be compared with, in the same run.
func BenchmarkReference(b *testing.B) {
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			sink = time.Now().UnixNano()
		}
	})
	b.Run("mutex", func(b *testing.B) {
		var mu sync.Mutex
		for b.Loop() {
			mu.Lock()
			sink++
			mu.Unlock()
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	median := everything()
	median.Latency.Baseline = outlier.BaselineMedian
	for _, c := range []struct {
		name string
		cfg  outlier.Config
		o    outlier.Outcome
	}{
		{"default/success", outlier.Config{}, success},
		{"default/failure", outlier.Config{Consecutive: 1 << 30}, failure},
		{"everything/success", everything(), success},
		{"median/success", median, success},
	} {
		for _, hosts := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, hosts), func(b *testing.B) {
				r := newRig(b, 1, hosts, c.cfg)
				b.ReportAllocs()
				at, i := int64(0), 0
				for b.Loop() {
					at += 1000
					if i++; i == hosts {
						i = 0
					}
					r.c.Record(at, r.hosts[i], at, c.o, at&1023)
				}
			})
		}
	}
}

func BenchmarkSweep(b *testing.B) {
	for _, hosts := range []int{10, 10_000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			cfg := everything()
			cfg.SuccessRate.MinRequests, cfg.Consecutive, cfg.Interval = 1, -1, 1
			r := newRig(b, 1, hosts, cfg)
			at := int64(0)
			for b.Loop() {
				b.StopTimer()
				for _, h := range r.hosts {
					r.c.Record(at, h, at, success, -1)
				}
				at++
				b.StartTimer()
				r.c.Poll(at)
			}
		})
	}
}

func BenchmarkEjectReturn(b *testing.B) {
	for _, hosts := range []int{10, 10_000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			cfg := fixed(1, time.Duration(hosts)/4)
			r := newRig(b, 1, hosts, cfg)
			b.ReportAllocs()
			at, i := int64(0), 0
			for b.Loop() {
				at++
				if i++; i == hosts {
					i = 0
				}
				r.c.Record(at, r.hosts[i], at, failure, -1)
				for r.c.Changed() {
					r.c.Pop()
				}
			}
		})
	}
}

func BenchmarkDetector(b *testing.B) {
	d := outlier.New(outlier.Config{}, 1)
	now := time.Now()
	h := d.Add(now, "a")
	b.Run("record", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Record(now, now, success, -1)
		}
	})
	b.Run("ejected", func(b *testing.B) {
		for b.Loop() {
			if h.Ejected(now) {
				sink++
			}
		}
	})
}
