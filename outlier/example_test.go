package outlier_test

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// Five failures in a row take a host out for thirty seconds.
func Example() {
	d := outlier.New(outlier.Config{}, 1)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	d.Observe(func(e outlier.Event) {
		fmt.Println(e.At.Format(time.TimeOnly), e.ID, e.Kind, e.Rule)
	})
	a, b := d.Add(now, "a"), d.Add(now, "b")

	for range 5 {
		start := now
		now = now.Add(time.Second)
		a.Record(now, start, outlier.TransportFailure, -1)
		b.Record(now, start, outlier.Success, 20*time.Millisecond)
	}
	fmt.Println("a out:", a.Ejected(now), "b out:", b.Ejected(now))

	now = now.Add(time.Minute)
	fmt.Println("a out:", a.Ejected(now))
	d.Poll(now) // the return is reported with the time it fell due
	// Output:
	// 12:00:05 a ejected consecutive
	// a out: true b out: false
	// a out: false
	// 12:00:35 a returned consecutive
}

// A Core is for owners with their own lock and their own record of a host.
func ExampleCore() {
	type backend struct {
		name string
		host outlier.Host
	}
	c := outlier.NewCore(outlier.Config{
		Return:  outlier.Ramp,
		Latency: outlier.Latency{On: true, MinSamples: 2, Window: time.Second},
	}, 1)
	backends := []*backend{{name: "fast"}, {name: "fair"}, {name: "slow"}}
	for i, b := range backends {
		b.host.Index = i
		c.Add(0, &b.host, uint64(i))
	}

	now := int64(0)
	for range 5 {
		now += int64(500 * time.Millisecond)
		for i, b := range backends {
			latency := []time.Duration{5, 8, 90}[i] * time.Millisecond
			c.Record(now, &b.host, now-int64(latency), outlier.Success, int64(latency))
		}
	}
	c.Poll(int64(time.Hour))
	for ch, ok := c.Pop(); ok; ch, ok = c.Pop() {
		fmt.Println(time.Duration(ch.At), backends[ch.Host.Index].name, ch.Kind, "weight", ch.Weight)
	}
	// Output:
	// 2s slow ejected weight 0
	// 32s slow returned weight 250
	// 33s slow stepped weight 500
	// 34s slow stepped weight 1000
}

// In shadow mode the detector tells what it would do.
func ExampleConfig_shadow() {
	d := outlier.New(outlier.Config{Shadow: true, Consecutive: 3}, 1)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	d.Observe(func(e outlier.Event) { fmt.Println(e.ID, e.Kind, "for", e.Until.Sub(e.At)) })
	a := d.Add(now, "a")
	d.Add(now, "b")
	for range 3 {
		a.Record(now, now, outlier.Failure, -1)
	}
	fmt.Println("a out:", a.Ejected(now))
	// Output:
	// a would eject for 30s
	// a out: false
}
