package ewma_test

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// After one time constant, a sample fills 63 % of the average.
func ExampleMeter() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := ewma.NewMeter(ewma.Config{Tau: 10 * time.Second})

	_, ok := m.Value(start)
	fmt.Println("measured:", ok)

	m.Observe(start, 100*time.Millisecond)
	m.Observe(start.Add(10*time.Second), 200*time.Millisecond)
	v, _ := m.Value(start.Add(10 * time.Second))
	fmt.Println(v.Round(100 * time.Microsecond))
	// Output:
	// measured: false
	// 163.2ms
}

// A peak counts in full at once and is forgotten slowly.
func ExampleConfig_peak() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := ewma.NewMeter(ewma.Config{HalfLife: 10 * time.Second, Peak: true})
	m.Observe(start, 10*time.Millisecond)
	m.Observe(start.Add(time.Second), 410*time.Millisecond)
	last, _ := m.Last()
	fmt.Println(last)
	m.Observe(start.Add(11*time.Second), 10*time.Millisecond)
	last, _ = m.Last()
	fmt.Println(last)
	// Output:
	// 410ms
	// 210ms
}

// A weight per sample, with a mean of the first ones and a reading that fades
// while nothing is measured.
func ExampleConfig_alphaMilli() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := ewma.NewMeter(ewma.Config{
		AlphaMilli:   300,
		Warmup:       10,
		IdleHalfLife: 5 * time.Second,
	})
	for i := range 10 {
		m.Observe(start, time.Duration(i+1)*100*time.Millisecond)
	}
	fmt.Println(m.Last())
	m.Observe(start, time.Second)
	fmt.Println(m.Last())
	fmt.Println(m.Value(start.Add(5 * time.Second)))
	// Output:
	// 550ms true
	// 685ms true
	// 342.5ms true
}

// The owner of a Core chooses the timeline, the unit and the lock.
func ExampleCore() {
	c := ewma.NewCore(ewma.Config{AlphaMilli: 250})
	for i, sample := range []int64{100000, 0, 0, 0, 40000} {
		c.Observe(int64(i), sample)
		v, _ := c.Last()
		fmt.Print(v, " ")
	}
	fmt.Println()
	// Output:
	// 100000 75000 56250 42187 41640
}

// Of two hosts, the one whose calls are answered sooner is better.
func ExampleScore() {
	slow := ewma.ProductScore(int64(40*time.Millisecond), 0, 1)
	busy := ewma.ProductScore(int64(10*time.Millisecond), 5, 1)
	fmt.Println(slow.Less(busy), busy.Less(slow))
	// Output:
	// true false
}
