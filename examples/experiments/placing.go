package main

import (
	"fmt"
	"math"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/hashring"
)

// cards are the experiments, in the order in which they are printed.
var cards = []card{
	{"E1", "a slow server", slowServer},
	{"E2", "Finagle's simulation", variants},
	{"E3", "Finagle's balancer tests", finagleTests},
	{"E4", "two choices, supermarket formula", twoChoices},
	{"E5", "two choices among two", twoOfTwo},
	{"E13", "Maglev when members leave", maglev},
	{"E14", "bounded loads", bounded},
	{"E15", "retry storm", retryStorm},
	{"E17", "retry amplification", amplification},
	{"E18", "weighted round robin", weighted},
	{"E21", "time to eject", ejecting},
	{"E22", "sinkhole", sinkhole},
	{"E24", "half-open stampede", stampede},
}

// rng is SplitMix64, for the experiments' own draws.
type rng uint64

func (r *rng) next(n int) int {
	*r += 0x9e3779b97f4a7c15
	x := uint64(*r)
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return int(x % uint64(n))
}

// shuffled is 0 to n-1 in random order.
func (r *rng) shuffled(n int) []int {
	out := make([]int, n)
	for i := range out {
		j := r.next(i + 1)
		out[i] = out[j]
		out[j] = i
	}
	return out
}

func members(n int) []hashring.Member {
	out := make([]hashring.Member, n)
	for i := range out {
		out[i] = hashring.Member{ID: fmt.Sprintf("host-%d", i), Weight: 1}
	}
	return out
}

// slots lists the owner of every slot of a table, in an order that is the same
// for all tables of its size.
func slots(all []hashring.Member) []int {
	m, err := hashring.NewMaglev(hashring.MaglevConfig{}, all)
	if err != nil {
		panic(err)
	}
	out := make([]int, 0, m.Slots())
	for w := m.Walk(0); len(out) < m.Slots(); {
		owner, ok := w.Next()
		if !ok {
			break
		}
		out = append(out, owner)
	}
	return out
}

// E13: how much of a Maglev table changes when k of n members leave.
func maglev(x *lab) []figure {
	var out []figure
	r := rng(x.seed)
	full := map[int][]int{}
	for _, c := range []struct {
		n, k int
		want float64
	}{{1000, 1, .69}, {1000, 5, 2.33}, {1000, 10, 3.30}, {1000, 20, 4.70}, {1000, 50, 8.24}, {100, 1, 1.57}, {100, 5, 5.92}} {
		all := members(c.n)
		if full[c.n] == nil {
			full[c.n] = slots(all)
		}
		// The mean over a few draws: which member leaves makes a difference.
		const draws = 4
		sum := 0.0
		for range draws {
			for _, i := range r.shuffled(c.n)[:c.k] {
				all[i].Weight = 0
			}
			changed := 0
			for i, owner := range slots(all) {
				if owner != full[c.n][i] {
					changed++
				}
			}
			sum += 100 * float64(changed) / float64(len(full[c.n]))
			for i := range all {
				all[i].Weight = 1
			}
		}
		out = append(out, fig(fmt.Sprintf("%d of %d leave", c.k, c.n), "% of slots changed", sum/draws).pub(fmt.Sprint(c.want)).within(10, c.want))
	}
	counts := make([]int, 1000)
	for _, owner := range full[1000] {
		counts[owner]++
	}
	most, least := 0, math.MaxInt
	for _, n := range counts {
		most, least = max(most, n), min(least, n)
	}
	return append(out,
		fig("1000 members", "most slots of one", float64(most)).pub("66").always(66),
		fig("1000 members", "fewest slots of one", float64(least)).pub("65").exactly(65))
}

// E14: ten thousand balls on a hundred servers, none above c times the mean.
func bounded(x *lab) []figure {
	const servers, balls = 100, 10_000
	var out []figure
	for _, c := range []struct {
		points, factor int
		pub            string
	}{{100, 125, "0.34"}, {100, 110, "3.2"}, {100, 105, "3.6"}, {1, 125, "31.6"}} {
		ring, err := hashring.NewRing(hashring.RingConfig{VirtualNodes: c.points, Seed: x.seed}, members(servers))
		if err != nil {
			panic(err)
		}
		b, err := hashring.NewBounded(hashring.BoundedConfig{Factor: c.factor}, ring)
		if err != nil {
			panic(err)
		}
		loads := make([]int, servers)
		displaced, broken, total := 0, 0, 0
		known := make([]int, servers)
		displacedKnown := 0
		limit := (c.factor*balls/servers + 99) / 100
		for k := range balls {
			key := hashring.KeyUint64(uint64(k) ^ x.seed<<32)
			owner := ring.Lookup(key)
			i := b.Pick(key, loads)
			loads[i]++
			total++
			// ceil(c*m/k) of the load so far.
			if loads[i] > (c.factor*total+100*servers-1)/(100*servers) {
				broken++
			}
			if i != owner {
				displaced++
			}
			for w := b.Walk(key); ; {
				i, ok := w.Next()
				if !ok {
					broken++
					break
				}
				if known[i] < limit {
					known[i]++
					if i != owner {
						displacedKnown++
					}
					break
				}
			}
		}
		most := 0
		for _, n := range loads {
			most = max(most, n)
		}
		name := fmt.Sprintf("c = %.2f, %d points", float64(c.factor)/100, c.points)
		out = append(out,
			fig(name, "loads above the bound", float64(broken)).exactly(0),
			fig(name, "max / mean", float64(most)*servers/balls).pub(number(float64(c.factor)/100)).always(float64(c.factor)/100),
			fig(name, "% displaced, bound known", 100*float64(displacedKnown)/balls).pub(c.pub).
				why("of one ring; 60 of ours had 0.01 to 1.1 at c = 1.25, 1.5 to 3.7 at 1.10, 3.5 to 5.8 at 1.05, and 31 to 46 with one point"),
			fig(name, "% displaced, one by one", 100*float64(displaced)/balls))
	}
	return out
}

// E18: shares of weighted round robin, after any number of picks.
func weighted(x *lab) []figure {
	r := rng(x.seed)
	twenty, thirty := make([]int, 20), make([]int, 30)
	for i := range twenty {
		twenty[i] = 1 + r.next(100)
	}
	for i := range thirty {
		thirty[i] = 1 + r.next(32)
	}
	var out []figure
	for _, c := range []struct {
		name    string
		weights []int
	}{
		{"5 1 1", []int{5, 1, 1}},
		{"11 3", []int{11, 3}},
		{"10 and ten of 1", []int{10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{"20 random, 1 to 100", twenty},
		{"30 random, 1 to 32", thirty},
	} {
		var hosts []*host
		sum := 0
		for i, w := range c.weights {
			hosts = append(hosts, &host{fmt.Sprint("h", i), w, i})
			sum += w
		}
		pool := newPool(bare(balancer.WeightedRoundRobin{First: true}), x.seed, hosts...)
		counts := make([]int, len(hosts))
		over, under, wrong := 0.0, 0.0, 0
		for k := 1; k <= 3*sum; k++ {
			counts[pick(pool)]++
			for i, n := range counts {
				off := float64(n) - float64(k*c.weights[i])/float64(sum)
				over, under = max(over, off), max(under, -off)
				if k%sum == 0 && n != k/sum*c.weights[i] {
					wrong++
				}
			}
		}
		out = append(out,
			fig(c.name, "picks ahead of the share", over).below(1),
			fig(c.name, "picks behind it", under).below(1.5),
			fig(c.name, "wrong counts after whole cycles", float64(wrong)).exactly(0))
	}

	// Light hosts among heavy ones, with an update every 500 picks.
	var hosts []*host
	for i := range 1100 {
		w := 128
		if i >= 1000 {
			w = 10
		}
		hosts = append(hosts, &host{fmt.Sprint("h", i), w, i})
	}
	pool := newPool(bare(balancer.WeightedRoundRobin{}), x.seed, hosts...)
	n, light := x.scale(258_000), 0
	for k := range n {
		if k%500 == 499 {
			if err := pool.Update(hosts...); err != nil {
				panic(err)
			}
		}
		if pick(pool) >= 1000 {
			light++
		}
	}
	out = append(out, fig("1000 of 128, 100 of 10, updates", "% to the light ones", 100*float64(light)/float64(n)).pub("0 with EDF; 0.775").within(5, .775))

	// The first pick of a thousand clients that start together.
	chi := func(p balancer.Policy, n int) float64 {
		const clients = 1000
		first := make([]float64, n)
		var hosts []*host
		for i := range n {
			hosts = append(hosts, &host{fmt.Sprint("h", i), 1, i})
		}
		for c := range uint64(clients) {
			first[pick(newPool(bare(p), x.seed*1_000_003+c, hosts...))]++
		}
		sum := 0.0
		for _, got := range first {
			d := got - clients/float64(n)
			sum += d * d / (clients / float64(n))
		}
		return sum
	}
	// One in a thousand by chance.
	return append(out,
		fig("first picks of 1000 clients, 10 hosts", "chi-square, 9 degrees", chi(balancer.WeightedRoundRobin{}, 10)).pub("9000 with EDF").atMost(27.88),
		fig("the same of 40 hosts", "chi-square, 39 degrees", chi(balancer.WeightedRoundRobin{}, 40)).pub("39000 with EDF").atMost(72.05),
		fig("the same, plain round robin, 10 hosts", "chi-square, 9 degrees", chi(balancer.RoundRobin{}, 10)).atMost(27.88))
}
