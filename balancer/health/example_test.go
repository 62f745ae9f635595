package health_test

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/clock"
)

// A host that dies at 4 s and is back at 8 s, probed every second. The clock is
// moved to whatever is due next, so the run takes no time and prints the same
// text every time.
func Example() {
	start := time.Unix(0, 0)
	clk := clock.NewManual(start)
	check := health.NewChecker(health.Config{Interval: time.Second, Fall: 3, Rise: 2}, clk.Now())

	alive := func() bool {
		t := clk.Now().Sub(start)
		return t < 4*time.Second || t >= 8*time.Second
	}
	for clk.Now().Sub(start) < 10*time.Second {
		probe, begun, _, _ := check.Begin(clk.Now())
		if begun {
			if ch, changed := check.Record(clk.Now(), probe, alive()); changed {
				fmt.Printf("%v: %v -> %v, %s %d times\n", check.Time(ch.At).Sub(start), ch.From, ch.To, ch.Last, ch.Run)
			}
		}
		next, _ := check.Next()
		clk.AdvanceTo(next)
	}
	// Output:
	// 0s: unknown -> healthy, passed 1 times
	// 6s: healthy -> unhealthy, failed 3 times
	// 9s: unhealthy -> healthy, passed 2 times
}

func ExampleParseStatusSet() {
	set, err := health.ParseStatusSet("2xx, 304, <200")
	fmt.Println(set, err)
	fmt.Println(set.Contains(304), set.Contains(404))
	// Output:
	// 100-299,304 <nil>
	// true false
}
