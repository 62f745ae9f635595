package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
)

// server is an upstream: anything with an ID.
type server struct {
	addr string
	down bool
}

func (s *server) ID() string { return s.addr }

// get is a call to it.
func (s *server) get(context.Context) error {
	if s.down {
		return balancer.WithOutcome(errors.New(s.addr+": connection refused"), balancer.TransportFailure)
	}
	fmt.Println("answer from", s.addr)
	return nil
}

func ExampleNewPool() {
	// The zero Config is complete. This one starts with the first server, so that
	// the example always prints the same.
	pool, err := balancer.NewPool(balancer.Config{Policy: balancer.RoundRobin{First: true}},
		&server{addr: "10.0.0.1:80"}, &server{addr: "10.0.0.2:80"})
	if err != nil {
		panic(err)
	}
	for range 3 {
		_ = pool.Do(context.Background(), balancer.Request{}, func(ctx context.Context, s *server) error {
			return s.get(ctx)
		})
	}
	// Output:
	// answer from 10.0.0.1:80
	// answer from 10.0.0.2:80
	// answer from 10.0.0.1:80
}

func ExampleNewPool_error() {
	_, err := balancer.NewPool(balancer.Config{}, &server{addr: "10.0.0.1:80"}, &server{addr: "10.0.0.1:80"})
	fmt.Println(err)
	fmt.Println(errors.Is(err, balancer.ErrConfig))
	// Output:
	// balancer: upstream id "10.0.0.1:80" is given twice, want distinct ids
	// true
}

// A call that fails on its way is tried again elsewhere.
func ExamplePool_Do() {
	pool, err := balancer.NewPool(balancer.Config{Policy: balancer.RoundRobin{First: true}},
		&server{addr: "10.0.0.1:80", down: true}, &server{addr: "10.0.0.2:80"})
	if err != nil {
		panic(err)
	}
	var result balancer.Result
	err = pool.Do(context.Background(), balancer.Request{Result: &result}, func(ctx context.Context, s *server) error {
		return s.get(ctx)
	})
	fmt.Println("error:", err)
	for _, a := range result.Attempts {
		fmt.Println(a.Upstream, a.Outcome)
	}
	// Output:
	// answer from 10.0.0.2:80
	// error: <nil>
	// 10.0.0.1:80 transport_failure
	// 10.0.0.2:80 success
}

// A proxy that sends by itself holds a lease for each attempt.
func ExamplePool_Acquire() {
	pool, err := balancer.NewPool(balancer.Config{Policy: balancer.LeastConn{}},
		&server{addr: "10.0.0.1:80"}, &server{addr: "10.0.0.2:80"})
	if err != nil {
		panic(err)
	}
	first, _ := pool.Acquire(balancer.Request{})
	second, _ := pool.Acquire(balancer.Request{})
	fmt.Println(first.Upstream() != second.Upstream())
	for _, lease := range []balancer.Lease[*server]{first, second} {
		lease.Answered() // the first byte is there: what counts as latency ends
		lease.Release(balancer.Success)
	}
	fmt.Println(first.Release(balancer.Failure)) // once is enough
	// Output:
	// true
	// false
}

// Start is for drivers that wait and send in their own way.
func ExamplePool_Start() {
	clk := clock.NewManual(time.Unix(0, 0))
	pool, err := balancer.NewPool(balancer.Config{
		Policy: balancer.RoundRobin{First: true}, Clock: clk,
		Retry: balancer.Retry{Backoff: balancer.Backoff{Base: 100 * time.Millisecond, JitterPercent: -1}},
	}, &server{addr: "10.0.0.1:80"}, &server{addr: "10.0.0.2:80"}, &server{addr: "10.0.0.3:80"})
	if err != nil {
		panic(err)
	}
	try := pool.Start(balancer.Request{Deadline: clk.Now().Add(250 * time.Millisecond)})
	for {
		switch step := try.Next(); step.Kind {
		case balancer.StepSend:
			fmt.Println("send to", step.Lease.Upstream().ID())
			try.Done(balancer.Report{Outcome: balancer.TransportFailure})
		case balancer.StepWait:
			fmt.Println("wait", step.Wait)
			clk.Advance(step.Wait)
		case balancer.StepEnd:
			fmt.Println("end:", step.End)
			return
		}
	}
	// Output:
	// send to 10.0.0.1:80
	// wait 100ms
	// send to 10.0.0.2:80
	// end: deadline
}

// A Snapshot says what every upstream is, why it is out and when it returns.
func ExamplePool_Snapshot() {
	clk := clock.NewManual(time.Unix(0, 0))
	pool, err := balancer.NewPool(balancer.Config{
		Policy: balancer.RoundRobin{First: true}, Clock: clk,
		Breaker: breaker.Config{ConsecutiveFailures: 1, OpenFor: 10 * time.Second},
	}, &server{addr: "10.0.0.1:80"}, &server{addr: "10.0.0.2:80"}, &server{addr: "10.0.0.3:80"})
	if err != nil {
		panic(err)
	}
	lease, _ := pool.Acquire(balancer.Request{})
	lease.Release(balancer.Failure)
	_ = pool.SetHealth("10.0.0.2:80", false, "maintenance")
	for _, u := range pool.Snapshot().Upstreams {
		switch {
		case u.Selectable:
			fmt.Println(u.ID, "is in")
		case u.Returns.IsZero():
			fmt.Println(u.ID, "is out:", u.Why, u.Note)
		default:
			fmt.Println(u.ID, "is out:", u.Why, "for", u.Returns.Sub(clk.Now()))
		}
	}
	// Output:
	// 10.0.0.1:80 is out: [circuit_open] for 10s
	// 10.0.0.2:80 is out: [unhealthy] maintenance
	// 10.0.0.3:80 is in
}

// Changes of state are told in order.
func ExampleConfig_events() {
	pool, err := balancer.NewPool(balancer.Config{
		OnEvent: func(e balancer.Event) { fmt.Println(e) },
	}, &server{addr: "10.0.0.1:80"}, &server{addr: "10.0.0.2:80"})
	if err != nil {
		panic(err)
	}
	_ = pool.SetHealth("10.0.0.2:80", false, "maintenance")
	_ = pool.Update(&server{addr: "10.0.0.1:80"})
	// Output:
	// 1 joined 10.0.0.1:80
	// 2 joined 10.0.0.2:80
	// 3 unhealthy 10.0.0.2:80 (maintenance)
	// 4 left 10.0.0.2:80
}
