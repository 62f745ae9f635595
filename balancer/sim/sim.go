// Package sim asks what a balancer would do before a real outage does: it runs
// the real balancer.Pool against a modelled fleet, by discrete events on one
// goroutine, at about a million requests per second.
//
// A [Scenario] is data: who sends how much, which servers answer how fast, what
// goes wrong and when, and the balancer.Config under test. This fleet of ten has
// one server that fails everything at once for twenty seconds:
//
//	result, err := sim.Run(sim.Scenario{
//		Duration: time.Minute,
//		Servers:  []sim.Server{{Count: 10, Workers: 4, Service: sim.Exponential(10 * time.Millisecond)}},
//		Clients:  []sim.Client{{Rate: 2500, Timeout: time.Second}},
//		Script:   []sim.Change{{Kind: sim.Sinkhole, At: 20 * time.Second, For: 20 * time.Second, Servers: "s-3"}},
//		Pool:     balancer.Config{Policy: balancer.TwoRandom{}},
//	})
//	fmt.Print(result)
//
// # Files
//
// [Read] and [Scenario.Write] keep a scenario in a file, in the manner of package
// incident: one JSON object a line, strict, with comments, times and spans as
// strings of seconds exact to the nanosecond, and fields that are zero left out.
// The header has the fields of Scenario; then come servers, clients and what
// happens, each with the fields of its struct, in its order. The one above is:
//
//	{"scenario":1,"Duration":"60","Pool":{"Policy":{"name":"two_random"}}}
//	{"server":{"Count":10,"Workers":4,"Service":{"Shape":"exponential","Mean":"0.01"}}}
//	{"client":{"Rate":2500,"Timeout":"1"}}
//	# One server answers at once, and always with an error.
//	{"change":{"Kind":"sinkhole","At":"20","For":"20","Servers":"s-3"}}
//	{"end":true}
//
// [Record] runs a scenario and writes what one client's Pool decided as a file of
// package incident, to be drawn, verified, or cut down to a test. [Fit] goes the
// other way: it makes a scenario of what was recorded of a real Pool.
//
// # The model
//
// A server has workers that serve one request each, first come, first served,
// and a queue. It does not know that a client has given up: work that nobody
// waits for is done all the same, unless DropExpired says otherwise. The network
// takes no time. A client has a Pool of its own, sends by its retry machine, and
// waits for each answer no longer than its timeout. Servers learn nothing of
// clients, and clients of servers only what the answers tell.
//
// A client may also have active checks ([Checks]), which probe its servers and
// turn the health bits of its Pool. A shallow probe asks whether anybody is
// there, a deep one is work like a request. Probes have draws of their own, so
// that two Scenarios that differ in their checks alone stay comparable, and they
// keep no run going; but they go on for as long as something else does.
//
// # What can be relied on
//
// Time is whole nanoseconds on a clock.Manual. Events at one instant happen in
// the order in which they were scheduled. Every random draw is a hash of (seed,
// purpose, client, request, attempt, server): the same Scenario gives the same
// Result on every architecture, two Scenarios that differ in one setting see the
// same arrivals and, where both send a request's attempt to the same server, the
// same service times, and a request that is left out (Client.Skip) changes no
// other request's draws. Nothing but integers is counted, and nothing is counted
// before everything is over: a run ends when the last request has ended, not when
// the last one has begun, and when the servers have done what they were left with.
//
// The tests hold the model against Erlang's formula for M/M/c, Little's law, the
// supermarket formula for two random choices, and conservation of work.
//
// A simulation is a model, not evidence of what will happen: real servers do not
// know their distribution.
package sim

// Run simulates a scenario to its end. The error is a *ConfigError. It takes
// about a microsecond per attempt and memory for the requests under way. Safe
// for concurrent use.
func Run(s Scenario) (Result, error) { return Watch(s, nil) }

// Watch is Run, and calls each with every attempt when the client has settled
// it, in that order. Safe for concurrent use if each is.
func Watch(s Scenario, each func(Attempt)) (Result, error) {
	m, err := newMachine(s)
	if err != nil {
		return Result{}, err
	}
	m.each = each
	for m.step() {
	}
	return m.result(), nil
}
