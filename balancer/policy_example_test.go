package balancer_test

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// replica is an upstream with a weight.
type replica struct {
	name   string
	weight int
}

func (r replica) ID() string  { return r.name }
func (r replica) Weight() int { return r.weight }

func ExampleWeightedRoundRobin() {
	pool, err := balancer.NewPool(balancer.Config{Policy: balancer.WeightedRoundRobin{First: true}},
		replica{"A", 5}, replica{"B", 1}, replica{"C", 1})
	if err != nil {
		panic(err)
	}
	for range 7 {
		lease, _ := pool.Acquire(balancer.Request{})
		fmt.Print(lease.Upstream().name, " ")
		lease.Release(balancer.Success)
	}
	// Output: A A B A C A A
}

func ExampleHash() {
	pool, err := balancer.NewPool(balancer.Config{Policy: balancer.Hash{}},
		replica{"A", 1}, replica{"B", 1}, replica{"C", 1})
	if err != nil {
		panic(err)
	}
	where := func() string {
		lease, _ := pool.Acquire(balancer.Request{Key: balancer.StringKey("user-7")})
		defer lease.Release(balancer.Success)
		return lease.Upstream().name
	}
	home := where()
	fmt.Println("same host again:", where() == home)
	_ = pool.SetHealth(home, false, "maintenance")
	fmt.Println("elsewhere while it is out:", where() != home)
	_ = pool.SetHealth(home, true, "")
	fmt.Println("back home:", where() == home)
	// Output:
	// same host again: true
	// elsewhere while it is out: true
	// back home: true
}

func ExampleParsePolicy() {
	for _, name := range []string{"wrr", "peak_ewma", "fastest"} {
		p, err := balancer.ParsePolicy(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(name, "is", p.Name())
	}
	// Output:
	// wrr is weighted_round_robin
	// peak_ewma is p2c_ewma
	// balancer: policy is "fastest", want round_robin, weighted_round_robin, least_conn, random, two_random, p2c_ewma or hash
}

// newest picks the last usable host of the list: a policy of one's own.
type newest struct{}

func (newest) Name() string { return "newest" }

func (newest) NewPicker(v *balancer.View, _ balancer.Picker) balancer.Picker { return newestPicker{v} }

type newestPicker struct{ v *balancer.View }

func (p newestPicker) Pick(balancer.Call) int { return p.v.NthUsable(p.v.UsableCount() - 1) }

func ExamplePolicy() {
	pool, err := balancer.NewPool(balancer.Config{Policy: newest{}},
		replica{"v1", 1}, replica{"v2", 1}, replica{"v3", 1})
	if err != nil {
		panic(err)
	}
	_ = pool.SetHealth("v3", false, "crash loop")
	lease, _ := pool.Acquire(balancer.Request{})
	fmt.Println(lease.Upstream().name)
	lease.Release(balancer.Success)
	// Output: v2
}

func ExampleSnapshot_Distribution() {
	clk := clock.NewManual(time.Unix(0, 0))
	pool, err := balancer.NewPool(balancer.Config{
		Policy: balancer.WeightedRoundRobin{First: true},
		Clock:  clk,
		// A single failure ejects for a second; the way back begins at a quarter.
		Outlier: outlier.Config{Consecutive: 1, Base: time.Second, Return: outlier.Ramp},
	}, replica{"A", 2}, replica{"B", 1}, replica{"C", 1})
	if err != nil {
		panic(err)
	}
	send := func(n int) {
		for range n {
			lease, _ := pool.Acquire(balancer.Request{})
			outcome := balancer.Success
			if lease.Upstream().name == "C" && clk.Now().Unix() == 0 {
				outcome = balancer.Failure
			}
			lease.Release(outcome)
		}
	}
	send(4)
	clk.Advance(time.Second)
	send(13)
	for _, p := range pool.Snapshot().Distribution() {
		fmt.Printf("%s: weight %d, ramp %d, served %d, expected %.1f %%\n", p.ID, p.Weight, p.Ramp, p.Served, 100*p.Expected)
	}
	// Output:
	// A: weight 2, ramp 1000, served 10, expected 61.5 %
	// B: weight 1, ramp 1000, served 5, expected 30.8 %
	// C: weight 1, ramp 250, served 2, expected 7.7 %
}
