// Spread sends 6000 requests through one policy, one after another, and prints
// what share each of four upstreams of unequal weight got.
//
//	go run ./examples/spread weighted
//
// Policies: round_robin, weighted, least_conn, sticky, random, two_random,
// p2c_ewma, and their aliases. Without one it prints them all.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/clock"
)

const requests = 6000

func main() {
	names := os.Args[1:]
	if len(names) == 0 {
		names = []string{"weighted", "round_robin", "least_conn", "sticky", "random", "two_random", "p2c_ewma"}
	}
	for _, name := range names {
		policy, err := balancer.ParsePolicy(name)
		if err == nil {
			err = spread(os.Stdout, policy)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "spread:", err)
			os.Exit(2)
		}
	}
}

func spread(w io.Writer, policy balancer.Policy) error {
	clk := clock.NewManual(time.Unix(0, 0))
	pool, err := balancer.NewPool(balancer.Config{Policy: policy, Clock: clk, Seed: 7},
		balancertest.New("A"), balancertest.New("B"), balancertest.New("C").WithWeight(3), balancertest.New("D"))
	if err != nil {
		return err
	}
	for i := range requests {
		// 50 users; only a sticky policy looks at who it is.
		t := balancertest.Send(pool, balancer.Request{Key: balancer.StringKey(fmt.Sprintf("user-%d", i%50))})
		if !t.OK() {
			return fmt.Errorf("request %d: %v", i, t.Err)
		}
		clk.Advance(time.Millisecond)
	}
	fmt.Fprintf(w, "policy %s, %d requests\n", policy.Name(), requests)
	for _, u := range pool.Snapshot().Upstreams {
		share := 100 * float64(u.Served) / requests
		fmt.Fprintf(w, "  %-3s weight %d  served %5d  %5.1f%%  %s\n", u.ID, u.Weight, u.Served, share, strings.Repeat("#", int(share/2)))
	}
	return nil
}
