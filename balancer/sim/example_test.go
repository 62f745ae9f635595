package sim_test

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
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

// A fleet, its load and what happens to it, in a file; and what would have been
// without ejection and breakers.
func ExampleRead() {
	scenario, err := sim.Read(strings.NewReader(`
# Ten servers, of which one fails every request for twenty seconds.
{"scenario":1,"Seed":1,"Duration":"60","Pool":{"Policy":{"name":"round_robin"},"Retry":{"Off":true}}}
{"server":{"Count":10,"Workers":4,"Service":{"Shape":"lognormal","Mean":"0.01","Spread":"0.04"}}}
{"client":{"Rate":500,"Timeout":"1"}}
{"change":{"Kind":"sinkhole","At":"20","For":"20","Servers":"s-3"}}
{"end":true}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	with, err := sim.Run(scenario)
	if err != nil {
		fmt.Println(err)
		return
	}
	scenario.Pool.Outlier.Off, scenario.Pool.Breaker.Off = true, true
	without, _ := sim.Run(scenario)
	fmt.Printf("%.2f %% failed, without ejection and breakers %.2f %%\n", 100-100*with.OKShare(), 100-100*without.OKShare())
	// Output: 0.02 % failed, without ejection and breakers 3.40 %
}

// The traffic of a recording under another configuration. Here a simulated client
// is recorded; in a service a Recorder writes the file.
func ExampleFit() {
	var recording bytes.Buffer
	_, err := sim.Record(sim.Scenario{
		Seed: 1, Duration: time.Minute,
		Servers: []sim.Server{{Name: "s", Count: 5, Workers: -1, Service: sim.Exponential(10 * time.Millisecond)}},
		Clients: []sim.Client{{Rate: 200}},
		Script:  []sim.Change{{Kind: sim.Refusals, At: 20 * time.Second, For: 20 * time.Second, Servers: "s-2", Share: .5}},
		Pool:    balancer.Config{Policy: balancer.Random{}, Outlier: outlier.Config{Off: true}, Retry: balancer.Retry{Off: true}},
	}, 0, &recording)
	if err != nil {
		fmt.Println(err)
		return
	}
	reader, err := incident.NewReader(&recording)
	if err != nil {
		fmt.Println(err)
		return
	}
	scenario, err := sim.Fit(reader, sim.FitConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	asRecorded, _ := sim.Run(scenario)
	scenario.Pool.Retry.Off = false
	retried, _ := sim.Run(scenario)
	fmt.Printf("%.1f %% failed, with retries %.1f %% at %.3f attempts a request\n",
		100-100*asRecorded.OKShare(), 100-100*retried.OKShare(), retried.Amplification())
	// Output: 3.3 % failed, with retries 0.3 % at 1.030 attempts a request
}
