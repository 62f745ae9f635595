package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A breaker is asked before a call and told the result after it. Time is an
// argument, so an hour passes when you say so.
func Example() {
	b := breaker.New(breaker.Config{ConsecutiveFailures: 3, OpenFor: 10 * time.Second})
	now := start
	for range 3 {
		p, err := b.Allow(now)
		if err != nil {
			panic(err)
		}
		p.Done(now, false) // the call failed
	}
	now = now.Add(4 * time.Second)
	_, err := b.Allow(now)
	var rej *breaker.RejectedError
	if errors.As(err, &rej) {
		fmt.Println(err, "because of", rej.Rule, "- try again in", rej.TimeLeft(now))
	}
	now = now.Add(6 * time.Second)
	fmt.Println(b.State(now))
	p, _ := b.Allow(now) // the trial
	p.Done(now, true)
	fmt.Println(b.State(now))
	// Output:
	// breaker: open because of consecutive - try again in 6s
	// half_open
	// closed
}

type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// Do settles the call however it ends, and knows a third outcome besides success
// and failure.
func ExampleBreaker_Do() {
	b := breaker.New(breaker.Config{ConsecutiveFailures: 2})
	clk := &clock{start}
	get := func(status int) error {
		return b.Do(context.Background(), clk, func(context.Context) error {
			err := fmt.Errorf("status %d", status)
			switch {
			case status >= 500:
				return err
			case status >= 400:
				return breaker.Ignore(err) // the client's fault
			}
			return nil
		})
	}
	for _, status := range []int{200, 500, 404, 500, 200} {
		fmt.Println(get(status))
	}
	// Output:
	// <nil>
	// status 500
	// status 404
	// status 500
	// breaker: open
}

// Ready is for choosing among many: it takes no trial slot. Only the one that is
// chosen is asked with Allow.
func ExampleBreaker_Ready() {
	hosts := []*breaker.Breaker{breaker.New(breaker.Config{}), breaker.New(breaker.Config{})}
	hosts[0].Trip(start, time.Minute) // the server said: come back in a minute
	for i, b := range hosts {
		fmt.Println(i, b.Ready(start), b.Ready(start.Add(time.Minute)))
	}
	// Output:
	// 0 false true
	// 1 true true
}

// Changes say what happened, why, and on which numbers.
func ExampleBreaker_Observe() {
	b := breaker.New(breaker.Config{FailureRate: 0.5, MinCalls: 4, OpenFor: 5 * time.Second})
	b.Observe(func(at time.Time, ch breaker.Change) {
		fmt.Printf("%s %v -> %v by %v (%d of %d failed)\n",
			at.Format("15:04:05"), ch.From, ch.To, ch.Rule, ch.Counts.Failures, ch.Counts.Calls)
	})
	for _, ok := range []bool{true, true, false, false} {
		p, _ := b.Allow(start)
		p.Done(start, ok)
	}
	// Noticed two seconds late, reported with the time it was due.
	b.Poll(start.Add(7 * time.Second))
	// Output:
	// 12:00:00 closed -> open by failure_rate (2 of 4 failed)
	// 12:00:05 open -> half_open by timer (0 of 0 failed)
}

// A Core is the state machine alone, for an owner with a lock and a clock.
func ExampleCore() {
	settings := breaker.NewCore(breaker.Config{ConsecutiveFailures: 1, OpenFor: time.Second}, 0)
	hosts := make([]breaker.Core, 3)
	for i := range hosts {
		hosts[i] = settings.Fresh(uint64(i))
	}
	const second = int64(time.Second)
	t, _ := hosts[1].Allow(0)
	hosts[1].Done(0, t, false)
	for i := range hosts {
		fmt.Println(hosts[i].State(second/2), hosts[i].State(second))
	}
	// Output:
	// closed closed
	// open half_open
	// closed closed
}
