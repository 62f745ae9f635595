package sim_test

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// busy is a fleet of a hundred servers at 70 % load, under a Pool with breaker,
// ejection and budget on.
func busy(requests int, policy balancer.Policy) sim.Scenario {
	const rate = 28000
	return sim.Scenario{
		Seed:     1,
		Duration: time.Duration(requests) * time.Second / rate,
		Servers:  []sim.Server{{Count: 100, Workers: 4, Service: sim.Exponential(10 * time.Millisecond), Errors: .001}},
		Clients:  []sim.Client{{Rate: rate, Timeout: time.Second}},
		Pool:     balancer.Config{Policy: policy, Retry: balancer.Retry{OnFailure: true}},
	}
}

// BenchmarkSim runs it, also with what the Pool does written down.
func BenchmarkSim(b *testing.B) {
	run := func(b *testing.B, policy balancer.Policy, run func(sim.Scenario) (sim.Result, error)) {
		b.ReportAllocs()
		s := busy(b.N, policy)
		s.Duration = max(s.Duration, 1)
		r, err := run(s)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.Total.Requests)/b.Elapsed().Seconds(), "requests/s")
		b.ReportMetric(float64(r.Events)/float64(max(1, r.Total.Requests)), "events/request")
	}
	for _, policy := range []balancer.Policy{balancer.TwoRandom{}, balancer.PeakEWMA{}} {
		b.Run(policy.Name(), func(b *testing.B) { run(b, policy, sim.Run) })
		b.Run(policy.Name()+"/recorded", func(b *testing.B) {
			run(b, policy, func(s sim.Scenario) (sim.Result, error) { return sim.Record(s, 0, io.Discard) })
		})
	}
}

// The yardsticks of BenchmarkSim, for a machine whose speed is not known.

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
