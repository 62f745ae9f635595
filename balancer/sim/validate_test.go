package sim_test

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// erlangC is the probability of having to wait in M/M/c with load a = c*rho, by
// the recursion of Erlang B.
func erlangC(c int, a float64) float64 {
	b := 1.0
	for k := 1; k <= c; k++ {
		b = a * b / (float64(k) + a*b)
	}
	rho := a / float64(c)
	return b / (1 - rho*(1-b))
}

// mmc is the mean sojourn time of M/M/c in units of the mean service.
func mmc(c int, rho float64) float64 {
	return 1 + erlangC(c, rho*float64(c))/(float64(c)*(1-rho))
}

// queueing is one server of c workers under a Poisson load of n requests, after
// a warm-up of a fifth of that. With one upstream the Pool has no choice.
func queueing(seed uint64, c int, rho float64, n int) sim.Scenario {
	const mean = 10 * ms
	rate := rho * float64(c) / mean.Seconds()
	measured := time.Duration(float64(n) / rate * float64(time.Second))
	return sim.Scenario{
		Seed: seed, Duration: measured * 6 / 5, WarmUp: measured / 5, Interval: measured,
		Servers: []sim.Server{{Workers: c, Service: sim.Exponential(mean)}},
		Clients: []sim.Client{{Rate: rate}},
		Pool:    bare(balancer.RoundRobin{}),
	}
}

// spread is the mean of some figures and the standard error of that mean.
func spread(xs []float64) (mean, stderr float64) {
	for _, x := range xs {
		mean += x
	}
	mean /= float64(len(xs))
	for _, x := range xs {
		stderr += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(stderr / float64(len(xs)-1) / float64(len(xs)))
}

// M/M/c against Erlang's formula. The mean over many seeds must be within three
// standard errors of the formula (six under a user's seed), and those small
// enough for that to mean something. EVENKEEL_OPS is the number of requests per
// seed at half load; a run at 95 % needs more, since its queue forgets slowly.
func TestErlangC(t *testing.T) {
	def, own := seedOf(t, 100)
	base, seeds := 1500, 20
	if os.Getenv("EVENKEEL_OPS") != "" {
		base, seeds = opsOf(t, base), 24
	}
	sigmas := 6.0
	switch {
	case raceOn:
		base /= 10
	case own:
		sigmas = 3
	}
	for _, load := range []struct {
		rho  float64
		more int // times as many requests
	}{{.5, 1}, {.8, 2}, {.95, 10}} {
		for _, c := range []int{1, 4, 16} {
			t.Run(fmt.Sprintf("c%d_%.0f%%", c, 100*load.rho), func(t *testing.T) {
				var means []float64
				for k := range seeds {
					r := run(t, queueing(def+uint64(k), c, load.rho, base*load.more))
					require.Equal(t, r.Area, r.Sojourn, "Little's law")
					means = append(means, r.Latency.Mean().Seconds()/(10*ms).Seconds())
				}
				want := mmc(c, load.rho)
				mean, stderr := spread(means)
				t.Logf("mean %.4f +- %.4f, Erlang C %.4f: %+.2f %%, %+.1f sigma", mean, stderr, want, 100*(mean/want-1), (mean-want)/stderr)
				require.InDelta(t, want, mean, sigmas*stderr)
				if own && !raceOn {
					require.Less(t, stderr, .06*want)
				}
			})
		}
	}
}

// With deterministic service the mean wait is half of M/M/1's
// (Pollaczek-Khinchine).
func TestMD1(t *testing.T) {
	def, _ := seedOf(t, 200)
	var means []float64
	n := 4000
	if raceOn {
		n /= 10
	}
	for k := range 20 {
		s := queueing(def+uint64(k), 1, .8, n)
		s.Servers[0].Service = fixed(10)
		means = append(means, run(t, s).Latency.Mean().Seconds()/(10*ms).Seconds())
	}
	mean, stderr := spread(means)
	require.InDelta(t, 1+.8/(2*(1-.8)), mean, 4*stderr)
}

// supermarket is the mean sojourn with d choices among infinitely many servers,
// in units of the mean service (Vvedenskaya, Dobrushin and Karpelevich 1996;
// Mitzenmacher 1996).
func supermarket(lambda float64, d int) float64 {
	sum, power := 0.0, 1.0
	for range 60 {
		// power is d^i; the exponent (d^i-d)/(d-1) begins at i=1.
		power *= float64(d)
		sum += math.Pow(lambda, (power-float64(d))/float64(d-1))
	}
	return sum
}

// Two choices among 200 servers against the formula: within 1.5 %. What the load
// came to differs a little from what was asked for, and at 90 % a little more
// load is a lot more delay, so a short run is held against the formula for the
// load and the mean service that it had. With EVENKEEL_OPS of a million and more
// the loads of the card are added, and the formula is that for the load asked for.
func TestSupermarket_E4(t *testing.T) {
	def, own := seedOf(t, 300)
	n := opsOf(t, 120_000)
	if raceOn {
		n /= 10
	}
	long := n >= 1_000_000
	loads := []float64{.5, .7, .9}
	if long {
		loads = []float64{.5, .7, .8, .9, .95}
	}
	for _, load := range loads {
		t.Run(fmt.Sprintf("%.0f%%", 100*load), func(t *testing.T) {
			const mean, servers = 10 * ms, 200
			rate := load * servers / mean.Seconds()
			n := n
			if load > .92 {
				n *= 3
			}
			measured := time.Duration(float64(n) / rate * float64(time.Second))
			r := run(t, sim.Scenario{
				Seed: def, Duration: measured * 13 / 10, WarmUp: measured * 3 / 10, Interval: measured,
				Servers: []sim.Server{{Count: servers, Service: sim.Exponential(mean)}},
				Clients: []sim.Client{{Rate: rate}},
				Pool:    bare(balancer.TwoRandom{}),
			})
			require.Equal(t, r.Area, r.Sojourn)
			busy := time.Duration(0)
			for _, v := range r.Servers {
				busy += v.Busy
			}
			service := busy.Seconds() / float64(r.Attempts)
			had := busy.Seconds() / servers / measured.Seconds()
			got := r.Latency.Mean().Seconds()
			asked, want := supermarket(load, 2)*mean.Seconds(), supermarket(had, 2)*service
			t.Logf("mean %.4f ms, formula %.4f (%+.2f %%), for the load of %.4f that it had %.4f (%+.2f %%)",
				1e3*got, 1e3*asked, 100*(got/asked-1), had, 1e3*want, 100*(got/want-1))
			bound := .015
			if !own || raceOn {
				bound = .05
			}
			require.InEpsilon(t, want, got, bound)
			if long {
				require.InEpsilon(t, asked, got, bound)
			}
		})
	}
}

// On the same arrivals and services, two choices queue no longer than one.
func TestTwoChoicesBeatOne(t *testing.T) {
	def, _ := seedOf(t, 400)
	longest := func(p balancer.Policy) (most int, mean time.Duration) {
		r := run(t, sim.Scenario{
			Seed: def, Duration: 5 * time.Second,
			Servers: []sim.Server{{Count: 50, Service: sim.Exponential(10 * ms)}},
			Clients: []sim.Client{{Rate: 4000}},
			Pool:    bare(p),
		})
		for _, v := range r.Servers {
			most = max(most, v.LongestQueue)
		}
		return most, r.Latency.Mean()
	}
	one, oneMean := longest(balancer.Random{})
	two, twoMean := longest(balancer.TwoRandom{})
	require.Less(t, two, one)
	require.Less(t, twoMean, oneMean)
}

// Round robin over equal servers at equal distances is exact.
func TestRoundRobinShares(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: 7 * time.Second,
		Servers:  []sim.Server{{Count: 7, Workers: 4, Service: fixed(10)}},
		Clients:  []sim.Client{{Rate: 1000, Even: true}},
		Pool:     bare(balancer.RoundRobin{}),
	})
	for _, v := range r.Servers {
		require.Equal(t, uint64(1000), v.Attempts)
	}
}
