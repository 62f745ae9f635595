package incident_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
)

// A scenario that was written by hand becomes a timeline: one failure of b
// ejects it.
func ExampleReplay() {
	scenario := `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","config":{"Policy":{"name":"round_robin","First":true},"Outlier":{"Consecutive":1,"Base":"2"}},"members":[{"b":"a"},{"b":"b"},{"b":"c"}]}
# a answers
{"t":"0","in":"request","r":1}
{"t":"0.1","in":"done","r":1,"out":"success"}
# b does not, and another one has to
{"t":"0.5","in":"request","r":2}
{"t":"0.75","in":"done","r":2,"out":"transport_failure"}
{"t":"0.75","in":"next","r":2}
{"t":"1","in":"done","r":2,"out":"success"}
{"t":"3","in":"time"}
{"end":true}
`
	r, err := incident.NewReader(strings.NewReader(scenario))
	if err != nil {
		panic(err)
	}
	cfg, err := r.Header().Config()
	if err != nil {
		panic(err)
	}
	var file strings.Builder
	if err := incident.Replay(&file, r, cfg); err != nil {
		panic(err)
	}
	_, lines, _ := strings.Cut(file.String(), "\n")
	fmt.Print(lines)
	// Output:
	// {"t":"0","in":"request","r":1}
	// {"t":"0","ev":"pick","r":1,"b":"a"}
	// {"t":"0.1","in":"done","r":1,"out":"success"}
	// {"t":"0.5","in":"request","r":2}
	// {"t":"0.5","ev":"pick","r":2,"b":"b"}
	// {"t":"0.75","in":"done","r":2,"out":"transport_failure"}
	// {"t":"0.75","ev":"ejected","n":4,"b":"b","until":"2.75","why":"consecutive","count":1}
	// {"t":"0.75","in":"next","r":2}
	// {"t":"0.75","ev":"retry","r":2,"try":1,"b":"c"}
	// {"t":"1","in":"done","r":2,"out":"success"}
	// {"t":"2.75","ev":"returned","n":5,"b":"b"}
	// {"t":"3","in":"time"}
	// {"end":true}
}

// A recorder is attached to a Pool that is in use; what it has verifies.
func ExampleRecorder() {
	rec := incident.NewRecorder(incident.Config{OnTrigger: func(i incident.Incident) {
		fmt.Println("trigger:", i.Reason)
	}})
	pool, err := balancer.NewPool(balancer.Config{Policy: balancer.RoundRobin{}, Seed: 7, OnEvent: rec.OnEvent},
		balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
	if err != nil {
		panic(err)
	}
	rec.Attach(pool)
	defer rec.Close()
	for range 20 {
		lease, err := pool.Acquire(balancer.Request{})
		if err != nil {
			panic(err)
		}
		outcome := balancer.Success
		if lease.Upstream().ID() == "b" {
			outcome = balancer.TransportFailure
		}
		lease.Release(outcome)
	}
	dump := rec.Dump()
	fmt.Println("verified:", incident.Verify(dump.Reader(), dump.Config) == nil)
	// Output:
	// trigger: ejected b
	// verified: true
}

// disk is an io.Writer that is slow: while it writes, requests go on.
type disk struct {
	bytes.Buffer
	meanwhile func()
}

func (d *disk) Write(b []byte) (int, error) {
	d.meanwhile()
	return d.Buffer.Write(b)
}

// A log needs somebody who flushes it, in a service a goroutine with a ticker:
// requests wait for no disk. One that is slower than they come makes a gap.
func ExampleLog() {
	pool, err := balancer.NewPool(balancer.Config{Seed: 7},
		balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
	if err != nil {
		panic(err)
	}
	requests := func(n int) func() {
		return func() {
			for range n {
				if lease, err := pool.Acquire(balancer.Request{}); err == nil {
					lease.Release(balancer.Success)
				}
			}
		}
	}
	for _, file := range []*disk{{meanwhile: requests(100)}, {meanwhile: requests(10_000)}} {
		// Two records for each request, and one of two segments is full at any time.
		log, err := incident.NewLog(file, pool, 1000, incident.Options{})
		if err != nil {
			panic(err)
		}
		for range 20 {
			requests(250)()
			if err := log.Flush(); err != nil {
				break // it has ended, and Close says why
			}
		}
		switch err := log.Close(); {
		case errors.Is(err, incident.ErrGap):
			fmt.Println("a gap: a larger size, or a faster disk")
		case err != nil:
			panic(err)
		default:
			r, err := incident.NewReader(&file.Buffer)
			if err != nil {
				panic(err)
			}
			fmt.Println("verified:", incident.Verify(r, pool.Config()) == nil)
		}
	}
	// Output:
	// verified: true
	// a gap: a larger size, or a faster disk
}
