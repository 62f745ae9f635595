package retrybudget_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// A budget around a call that may be tried three times.
func Example() {
	budget := retrybudget.New(retrybudget.Config{})
	now := time.Unix(1000, 0) // time.Now() in a program

	call := func(attempt int) error {
		if attempt < 2 {
			return errors.New("connection refused")
		}
		return nil
	}

	budget.Request(now)
	for attempt := 1; ; attempt++ {
		err := call(attempt)
		if err == nil {
			budget.Success(now)
			fmt.Println("attempt", attempt, "succeeded")
			break
		}
		budget.Failure(now)
		if attempt == 3 || !budget.Withdraw(now) {
			fmt.Println("giving up:", err)
			break
		}
	}
	fmt.Println("tokens:", budget.Balance(now))
	// Output:
	// attempt 2 succeeded
	// tokens: 9.1
}

// When everything fails, the bucket runs dry and the load stays what it is
// without retries.
func Example_outage() {
	budget := retrybudget.New(retrybudget.Config{})
	now := time.Unix(1000, 0)
	retries := 0
	for range 1000 {
		budget.Request(now)
		budget.Failure(now)
		if budget.Withdraw(now) {
			retries++
		}
		now = now.Add(10 * time.Millisecond)
	}
	fmt.Println(retries, "retries for 1000 failed requests in ten seconds")
	// Output:
	// 10 retries for 1000 failed requests in ten seconds
}

// A budget that deposits per request allows a fifth of them to be retried,
// whether they succeed or not, and ten per second in any case.
func ExampleFinagle() {
	budget := retrybudget.New(retrybudget.Finagle())
	now := time.Unix(1000, 0)
	fmt.Println("reserve:", budget.Balance(now))
	for range 50 {
		budget.Request(now)
	}
	fmt.Println("after 50 requests:", budget.Balance(now))
	fmt.Println("ten seconds later:", budget.Balance(now.Add(10*time.Second)))
	// Output:
	// reserve: 100
	// after 50 requests: 110
	// ten seconds later: 100
}

// What to put in the Retry-After header of a request that is given up.
func ExampleBudget_RetryAfter() {
	budget := retrybudget.New(retrybudget.Config{Capacity: 2, PerSecond: 0.25})
	now := time.Unix(1000, 0)
	for budget.Withdraw(now) {
	}
	fmt.Println("Retry-After:", budget.RetryAfter(now).Seconds())
	at, _ := budget.NextGrant(now)
	fmt.Println("next grant in", at.Sub(now))
	// Output:
	// Retry-After: 4
	// next grant in 4s
}

// A core belongs to an owner that has a lock and a timeline of its own.
func ExampleCore() {
	core := retrybudget.NewCore(retrybudget.GRPC())
	var now int64 // nanoseconds
	for core.CanWithdraw(now) {
		core.Failure(now)
	}
	fmt.Println("tokens:", core.Balance(now))

	// Its state can be saved and restored, here an hour further on.
	state := core.AppendState(nil, now)
	restored := retrybudget.NewCore(retrybudget.GRPC())
	if _, err := restored.RestoreState(state, now+int64(time.Hour)); err != nil {
		fmt.Println(err)
	}
	fmt.Println("restored:", restored.Balance(now+int64(time.Hour)))
	// Output:
	// tokens: 5
	// restored: 5
}
