package balancer_test

import (
	"fmt"

	"github.com/evenkeel-go/evenkeel/balancer"
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
