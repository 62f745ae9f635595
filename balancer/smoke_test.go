package balancer

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

type host1 struct{ id string }

func (h host1) ID() string { return h.id }

func hostsN(n int) []host1 {
	out := make([]host1, n)
	for i := range out {
		out[i].id = fmt.Sprintf("h%05d", i)
	}
	return out
}

func TestSmoke(t *testing.T) {
	for _, pol := range []Policy{RoundRobin{}, WeightedRoundRobin{}, Random{}, LeastConn{}, TwoRandom{}, PeakEWMA{}, Hash{}} {
		for _, n := range []int{1, 3, 40} {
			clk := clock.NewManual(time.Unix(0, 0))
			var evs []Event
			p, err := NewPool(Config{Policy: pol, Clock: clk, Seed: 7, OnEvent: func(e Event) { evs = append(evs, e) }}, hostsN(n)...)
			require.NoError(t, err)
			counts := map[string]int{}
			for i := 0; i < 4000; i++ {
				l, err := p.Acquire(Request{})
				require.NoError(t, err)
				counts[l.Upstream().id]++
				clk.Advance(time.Millisecond)
				require.True(t, l.Release(Success))
				require.False(t, l.Release(Success))
			}
			for i := 0; i < 6; i++ {
				l, _ := p.Acquire(Request{Key: StringKey("x")})
				l.Release(TransportFailure)
			}
			t.Log(pol.Name(), n, len(counts), p.Snapshot().Totals, len(evs))
			b := p.Save()
			q, err := RestorePool(Config{Policy: pol, Clock: clk}, b, hostsN(n)...)
			require.NoError(t, err)
			require.Equal(t, b, q.Save())
		}
	}
}

func BenchmarkPool(b *testing.B) {
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			_ = time.Now()
		}
	})
	for _, pol := range []Policy{RoundRobin{}, WeightedRoundRobin{}, Random{}, LeastConn{}, TwoRandom{}, PeakEWMA{}, Hash{}} {
		for _, n := range []int{10, 1000, 10000} {
			p, err := NewPool(Config{Policy: pol, Seed: 7}, hostsN(n)...)
			require.NoError(b, err)
			b.Run(fmt.Sprintf("%s/%d", pol.Name(), n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					l, _ := p.Acquire(Request{})
					l.Release(Success)
				}
			})
		}
	}
}
