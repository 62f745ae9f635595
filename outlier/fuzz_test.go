package outlier_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// FuzzCoreModel is the property of TestModel on inputs that the fuzzer finds.
func FuzzCoreModel(f *testing.F) {
	f.Add(make([]byte, 2048))
	f.Fuzz(rapid.MakeFuzz(machine))
}

// FuzzCoreOps drives Core and model by bytes: ten for the configuration, then
// three for each operation.
func FuzzCoreOps(f *testing.F) {
	f.Add([]byte("0123456789" + "aaabbbcccdddeeefffggg"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 5, 0, 1, 5, 0, 1, 5, 9, 0, 200, 9, 0, 200, 5, 5, 5})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 10 || len(b) > 300 {
			return
		}
		has := func(i, bit int) bool { return b[i]>>bit&1 != 0 }
		base := 1 + time.Duration(b[1]%32)
		cfg := outlier.Config{
			Consecutive:        int(b[0]%8) - 1,
			ConsecutiveGateway: int(b[0] / 8 % 4), ConsecutiveTransport: int(b[0] / 32 % 4),
			Base: base, Max: base * time.Duration(1+b[1]/32),
			SuccessRate: outlier.SuccessRate{
				On: has(2, 0), Factor: 700 + 1200*int(b[2]>>1&1), MinHosts: 1 + int(b[2]>>2&3),
				MinRequests: 1 + int(b[2]>>4&3), MinFailures: 1, Tolerate: 950, Dead: 100,
			},
			FailurePercentage: outlier.FailurePercentage{
				On: has(3, 0), Inline: has(3, 1), Threshold: 50, MinHosts: 1, MinRequests: 1 + int(b[3]>>2&7),
			},
			Latency: outlier.Latency{
				On: has(4, 0), Alpha: 500, Factor: 1500, Window: 1 + time.Duration(b[4]>>1&7), MinSamples: 1 + int(b[4]>>4&1),
				MinHosts: 1 + int(b[4]>>5&1), Baseline: outlier.Baseline(b[5] % 3), KeepScore: has(4, 7),
			},
			Interval: 5 + time.Duration(b[6]%32), Forgive: 3 + time.Duration(b[6]/32),
			MaxEjectedPercent: 20 + int(b[7]%81), EjectOne: has(5, 7), Last: outlier.LastRule(b[8] % 3),
			Return: outlier.ReturnMode(b[8] / 3 % 3), RampFrom: 250, RampStep: 1 + time.Duration(b[9]%8), RampGrowth: 2000,
		}
		if cfg.Consecutive == 0 {
			cfg.Consecutive = 1
		}
		p := newPair(cfg, 1+int(b[9]/8%6), 7)
		now := int64(0)
		for b = b[10:]; len(b) >= 3; b = b[3:] {
			i, arg := int(b[1])%len(p.hosts), int64(b[2])
			switch op := b[0] % 16; op {
			case 0:
				p.remove(now, i)
			case 1:
				p.add(now, i)
			case 2:
				p.setUsable(now, i, arg&1 != 0)
			case 3:
				p.uneject(now, i)
			case 4:
				p.move(t, now, arg-128)
			case 5, 6:
				if next := p.c.NextChange(); next < 1<<40 { // something is planned
					now = max(now, next-p.off-int64(op-5))
				}
			case 7, 8:
				now += arg
			default:
				p.record(now, i, now-arg>>6*8, outlier.Outcome(op%5), arg&63-1)
			}
			p.compare(t)
		}
	})
}

// FuzzRestore: whatever the bytes, RestoreState refuses them or yields a Core
// that goes on without harm.
func FuzzRestore(f *testing.F) {
	r := busy(f)
	f.Add(r.c.AppendState(nil, 30*sec, r.hosts), int64(0))
	f.Add(r.c.AppendState(nil, 30*sec, r.hosts), int64(-1<<63))
	f.Fuzz(func(t *testing.T, b []byte, now int64) {
		into := newRig(t, 1, 6, outlier.Config{
			Return: outlier.Ramp, FailurePercentage: outlier.FailurePercentage{On: true},
			Latency: outlier.Latency{On: true, Baseline: outlier.BaselineMedian},
		})
		if _, err := into.c.RestoreState(b, now, into.hosts); err != nil {
			return
		}
		again := into.c.AppendState(nil, now, into.hosts)
		if _, err := into.c.RestoreState(again, now, into.hosts); err != nil {
			t.Fatalf("own state refused: %v", err)
		}
		for n := range 100 {
			h := into.hosts[n%6]
			into.c.Record(now, h, now, outlier.Outcome(n%4), int64(n))
			into.c.Poll(into.c.NextChange() - 1)
			now = max(now, into.c.NextChange())
			into.c.Weight(now, h)
			into.c.Count(now, h)
			if into.c.EjectedCount() > 6 || into.c.EjectedCount() < 0 {
				t.Fatalf("%d of 6 ejected", into.c.EjectedCount())
			}
		}
	})
}
