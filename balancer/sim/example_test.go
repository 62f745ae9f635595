package sim_test

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// Ten servers, one of which fails everything at once for twenty seconds and so
// looks like the fastest of all. What does ejection change?
func ExampleRun() {
	scenario := sim.Scenario{
		Seed:     1,
		Duration: time.Minute,
		Servers: []sim.Server{
			{Count: 10, Workers: 4, Service: sim.Exponential(10 * time.Millisecond)},
		},
		Clients: []sim.Client{
			{Rate: 500, Timeout: time.Second},
		},
		Script: []sim.Change{
			{Kind: sim.Sinkhole, At: 20 * time.Second, For: 20 * time.Second, Servers: "s-3"},
		},
		Pool: balancer.Config{Policy: balancer.LeastConn{}, Retry: balancer.Retry{Off: true}},
	}
	with, err := sim.Run(scenario)
	if err != nil {
		fmt.Println(err)
		return
	}
	scenario.Pool.Outlier = outlier.Config{Off: true}
	scenario.Pool.Breaker.Off = true
	without, _ := sim.Run(scenario)
	fmt.Printf("with ejection:    %.2f %% failed, s-3 was out after %d failures\n", 100-100*with.OKShare(), with.Servers[3].Failures)
	fmt.Printf("without ejection: %.2f %% failed\n", 100-100*without.OKShare())
	// Output:
	// with ejection:    0.02 % failed, s-3 was out after 5 failures
	// without ejection: 4.86 % failed
}

// A Scenario that cannot be run says why.
func ExampleScenario_Validate() {
	s := sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Name: "web", Count: 3}},
		Clients:  []sim.Client{{Rate: 100}},
		Script:   []sim.Change{{Kind: sim.Brownout, Servers: "wbe"}},
	}
	fmt.Println(s.Validate())
	// Output:
	// sim: Scenario.Script[0].Servers is "wbe", want the id of a server, the name of a group, or zone:NAME
}

func ExampleWatch() {
	slow := 0
	_, err := sim.Watch(sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{Name: "a", Service: sim.Constant(10 * time.Millisecond)}},
		Clients:  []sim.Client{{Times: []time.Duration{0, time.Millisecond, 2 * time.Millisecond}}},
	}, func(a sim.Attempt) {
		if a.Took > 15*time.Millisecond {
			slow++
		}
	})
	fmt.Println(slow, "of 3 waited for long,", err)
	// Output: 2 of 3 waited for long, <nil>
}

// A server fails every request for twenty seconds, and nothing but its active
// checks may take it out. A probe that only asks whether the server is there
// finds nothing wrong with it.
func ExampleChecks() {
	scenario := sim.Scenario{
		Seed:     1,
		Duration: time.Minute,
		Servers:  []sim.Server{{Count: 4, Workers: 8, Service: sim.Exponential(10 * time.Millisecond)}},
		Clients:  []sim.Client{{Rate: 400, Timeout: time.Second}},
		Script: []sim.Change{
			{Kind: sim.Errors, At: 20 * time.Second, For: 20 * time.Second, Servers: "s-3"},
		},
		Pool: balancer.Config{Policy: balancer.TwoRandom{}, Retry: balancer.Retry{Off: true}, Outlier: outlier.Config{Off: true}},
	}
	scenario.Pool.Breaker.Off = true
	for _, deep := range []bool{false, true} {
		scenario.Clients[0].Checks = &sim.Checks{
			Deep:  deep,
			Probe: health.Config{Interval: 2 * time.Second, StartHealthy: true},
		}
		r, err := sim.Run(scenario)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("deep %v: %d of %d probes failed, %.1f %% of the requests\n", deep, r.Servers[3].ProbeFailures, r.Servers[3].Probes, 100-100*r.OKShare())
		if out := r.Changes[0].Unhealthy; out.Count > 0 {
			fmt.Println("out after", out.First.Round(time.Second))
		}
	}
	// Output:
	// deep false: 0 of 31 probes failed, 8.4 % of the requests
	// deep true: 10 of 31 probes failed, 1.8 % of the requests
	// out after 4s
}
