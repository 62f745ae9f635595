package health_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/health"
)

// FuzzHealthOps reads a configuration from the first bytes and one operation
// from every pair that follows, and holds the Core to the definition.
func FuzzHealthOps(f *testing.F) {
	f.Add([]byte{1, 3, 0, 3, 1, 0, 0, 0, 0, 1, 5, 1, 0, 0, 4, 3})
	f.Add([]byte{1, 3, 2, 1, 1, 1, 1, 5, 0, 1, 3, 0, 2, 0, 4, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 7 {
			return
		}
		cfg := health.Config{
			Interval: time.Duration(1 + data[0]%16), Timeout: time.Duration(data[1] % 32), SlowAfter: time.Duration(data[2] % 32),
			Fall: int(data[3] % 5), Rise: int(data[4] % 5), StartHealthy: data[5]&1 != 0, First: health.FirstProbe(data[6] & 1),
		}
		m := newModel(cfg, 0)
		core := health.NewCore(cfg, 0)
		var handles []health.Probe
		now := int64(0)
		for ops := data[7:]; len(ops) >= 2; ops = ops[2:] {
			arg := ops[1]
			switch ops[0] % 6 {
			case 0:
				now += int64(arg)
			case 1:
				m.move(now)
				want := m.due(m.now)
				if want {
					m.probes = append(m.probes, probe{begin: m.now, open: true})
				}
				p, begun, _, _ := core.Begin(now)
				if begun != want {
					t.Fatalf("Begin at %d: got %v, want %v", now, begun, want)
				}
				if begun {
					handles = append(handles, p)
				}
			case 2:
				if len(handles) == 0 {
					continue
				}
				i := len(handles) - 1 - int(arg>>1)%len(handles)
				m.move(now)
				m.record(i, arg&1 != 0)
				core.Record(now, handles[i], arg&1 != 0)
			case 3:
				if p := m.last(); p != nil {
					m.move(now)
					if p.open {
						p.open, p.end = false, m.now
					}
					core.Cancel(now, handles[len(handles)-1])
				}
			case 4:
				m.move(now)
				core.Poll(now)
			case 5:
				// Arbitrary bytes restore to an error, or to something usable:
				// it can be saved again, and probes within its times or never.
				bad := core.AppendState(nil, now)
				bad[int(arg)%len(bad)] ^= 1 << (arg % 8)
				other := health.NewCore(cfg, now)
				if _, err := other.RestoreState(bad, now); err == nil {
					saved := other.AppendState(nil, now)
					if _, err := other.RestoreState(saved, now); err != nil {
						t.Fatalf("%x became %x: %v", bad, saved, err)
					}
					if next := other.NextProbe(); next != math.MaxInt64 && next > now+16+32 {
						t.Fatalf("%x: next probe at %d, now %d", bad, next, now)
					}
					other.Begin(now)
					other.Poll(other.NextProbe())
				}
			}
			state, _ := m.verdict(m.history(now))
			if got := core.State(now); got != state || core.NextProbe() != m.nextProbe() || core.Counts(now) != m.counts(now) {
				t.Fatalf("at %d: got %v %d %+v, want %v %d %+v", now,
					got, core.NextProbe(), core.Counts(now), state, m.nextProbe(), m.counts(now))
			}
		}
	})
}

// FuzzHealthModel drives the property of TestModel.
func FuzzHealthModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(propModel)) }
