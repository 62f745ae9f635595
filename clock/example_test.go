package clock_test

import (
	"fmt"
	"time"

	bb "github.com/benbjohnson/clock"

	"github.com/evenkeel-go/evenkeel/clock"
)

// Functions run while the clock is moved, in order, each at its own time.
func ExampleManual() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := clock.NewManual(start)
	m.AfterFunc(3*time.Second, func() {
		fmt.Println("first at", m.Now().Sub(start))
		m.AfterFunc(2*time.Second, func() { fmt.Println("armed on the way, at", m.Now().Sub(start)) })
	})
	m.AfterFunc(7*time.Second, func() { fmt.Println("last at", m.Now().Sub(start)) })

	m.Advance(10 * time.Second)
	fmt.Println("now", m.Now().Sub(start))
	// Output:
	// first at 3s
	// armed on the way, at 5s
	// last at 7s
	// now 10s
}

// A simulation runs from event to event until there are none.
func ExampleManual_Step() {
	var m clock.Manual
	left := 3
	var tick clock.Timer
	tick = m.AfterFunc(time.Hour, func() {
		if left--; left > 0 {
			tick.Reset(time.Hour)
		}
	})
	for m.Step() {
		fmt.Println(m.Now().Format(time.TimeOnly))
	}
	// Output:
	// 01:00:00
	// 02:00:00
	// 03:00:00
}

// A wall clock that is set back does not change how long timers have left.
func ExampleManual_Set() {
	m := clock.NewManual(time.Date(2026, 10, 25, 3, 0, 0, 0, time.UTC))
	m.AfterFunc(10*time.Minute, func() { fmt.Println("runs at", m.Now().Format(time.TimeOnly)) })
	m.Advance(4 * time.Minute)
	m.Set(m.Now().Add(-time.Hour))
	m.Advance(6 * time.Minute)
	// Output:
	// runs at 02:10:00
}

// A clock of another module becomes a Scheduler.
func ExampleAdapt() {
	mock := bb.NewMock()
	var s clock.Scheduler = clock.Adapt(mock)
	timer := s.AfterFunc(time.Second, func() {})
	fmt.Println(timer.Stop(), s.Now().Equal(mock.Now()))
	// Output:
	// true true
}

func ExampleSystem() {
	c := clock.System()
	start := c.Now()
	fmt.Println(c.Now().Sub(start) >= 0, clock.IsSystem(c))
	// Output:
	// true true
}
