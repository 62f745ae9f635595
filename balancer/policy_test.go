package balancer_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// peer is an upstream that is nothing but its properties.
type peer struct {
	id                string
	weight, tier, max int
}

func (p peer) ID() string       { return p.id }
func (p peer) Weight() int      { return p.weight }
func (p peer) Priority() int    { return p.tier }
func (p peer) MaxInflight() int { return p.max }

// peersOf makes peers A, B, C, ... of the given weights.
func peersOf(weights ...int) []peer {
	out := make([]peer, len(weights))
	for i, w := range weights {
		out[i] = peer{id: string(rune('A' + i)), weight: w}
	}
	return out
}

// crowd makes n peers whose weights go round in the given ones.
func crowd(n int, weights ...int) []peer {
	out := make([]peer, n)
	for i := range out {
		out[i] = peer{id: fmt.Sprintf("h%05d", i), weight: weights[i%len(weights)]}
	}
	return out
}

// rig is a Pool of peers on a manual clock, without breakers and ejections
// unless cfg says otherwise: what is left is the policy.
type rig struct {
	testing.TB
	clk  *clock.Manual
	pool *balancer.Pool[peer]
}

// plain is a Config with everything but the policy switched off.
func plain(p balancer.Policy) balancer.Config {
	return balancer.Config{Policy: p, Breaker: noBreaker, Outlier: noEjection}
}

func newRig(tb testing.TB, cfg balancer.Config, peers ...peer) *rig {
	tb.Helper()
	r := &rig{TB: tb, clk: clock.NewManual(time.Unix(0, 0))}
	cfg.Clock = r.clk
	if cfg.Seed == 0 {
		cfg.Seed = 7
	}
	var err error
	r.pool, err = balancer.NewPool(cfg, peers...)
	require.NoError(tb, err)
	return r
}

func (r *rig) hold() balancer.Lease[peer] {
	r.Helper()
	l, err := r.pool.Acquire(balancer.Request{})
	if err != nil {
		r.Fatalf("Acquire: %v", err)
	}
	return l
}

// next is the id of one pick, which succeeds at once.
func (r *rig) next() string {
	r.Helper()
	l := r.hold()
	l.Release(balancer.Success)
	return l.Upstream().id
}

// picks are the ids of n picks that do not overlap.
func (r *rig) picks(n int) []string {
	r.Helper()
	out := make([]string, n)
	for i := range out {
		out[i] = r.next()
	}
	return out
}

// line is picks in one string, for ids of one letter.
func (r *rig) line(n int) string { return strings.Join(r.picks(n), "") }

// only takes every upstream but the given one out for as long as f runs.
func (r *rig) only(id string, f func()) {
	r.Helper()
	was := map[string]bool{}
	for _, s := range r.pool.Snapshot().Upstreams {
		was[s.ID] = s.Healthy
		r.set(s.ID, s.ID == id)
	}
	f()
	for id, ok := range was {
		r.set(id, ok)
	}
}

// load puts n calls on an upstream and returns their leases.
func (r *rig) load(id string, n int) (ls []balancer.Lease[peer]) {
	r.Helper()
	r.only(id, func() {
		for range n {
			ls = append(ls, r.hold())
		}
	})
	return ls
}

// answer lets an upstream answer one call after the given time.
func (r *rig) answer(id string, d time.Duration) {
	r.Helper()
	for _, l := range r.load(id, 1) {
		l.Settle(balancer.Report{Outcome: balancer.Success, Latency: d})
	}
}

func (r *rig) set(id string, healthy bool) {
	r.Helper()
	require.NoError(r, r.pool.SetHealth(id, healthy, ""))
}

func (r *rig) update(peers ...peer) {
	r.Helper()
	require.NoError(r, r.pool.Update(peers...))
}

func (r *rig) inflight(id string) int {
	for _, s := range r.pool.Snapshot().Upstreams {
		if s.ID == id {
			return s.Inflight
		}
	}
	r.Fatalf("no upstream %s", id)
	return 0
}

func tally(picks []string) map[string]int {
	m := map[string]int{}
	for _, id := range picks {
		m[id]++
	}
	return m
}

// longestRun is the most picks in a row that one upstream got.
func longestRun(picks []string, id string) (most int) {
	run := 0
	for _, p := range picks {
		if run++; p != id {
			run = 0
		}
		most = max(most, run)
	}
	return most
}

// band checks a count of n draws with probability p against its printed width,
// and under a user's seed against six standard deviations.
func band(tb testing.TB, fixed bool, got, n int, p, width float64) {
	tb.Helper()
	if !fixed {
		width = max(width, 6*math.Sqrt(float64(n)*p*(1-p)))
	}
	require.InDelta(tb, float64(n)*p, float64(got), width)
}

// builtin are all policies of the package, with every setting that changes the
// way they pick.
func builtin() []balancer.Policy {
	return []balancer.Policy{
		balancer.RoundRobin{}, balancer.RoundRobin{First: true}, balancer.RoundRobin{IndexCursor: true},
		balancer.WeightedRoundRobin{}, balancer.Random{},
		balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.LeastConn{Ties: balancer.TiesIndex},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.PeakEWMA{ActivePenalty: time.Second / 2, Unmeasured: time.Second / 10, Fade: -1},
		balancer.Hash{}, balancer.Hash{Keyless: balancer.LeastConn{}},
	}
}

func TestPolicyRows(t *testing.T) {
	t.Run("F-LB-01", func(t *testing.T) {
		for _, name := range []string{"random", "round_robin", "least_conn", "two_random", "p2c_ewma"} {
			p, err := balancer.ParsePolicy(name)
			require.NoError(t, err)
			require.Equal(t, name, p.Name())
		}
		_, err := balancer.ParsePolicy("foo")
		require.ErrorIs(t, err, balancer.ErrConfig)
		var bad *balancer.ConfigError
		require.True(t, errors.As(err, &bad))
		require.Equal(t, `"foo"`, bad.Value)

		r := newRig(t, balancer.Config{Policy: balancer.TwoRandom{}}, peersOf(1, 1)...)
		require.Equal(t, "two_random", r.pool.Snapshot().Policy)
	})

	t.Run("F-LB-11", func(t *testing.T) {
		// A weight that is absent is 1; each policy does it justice in its own terms.
		r := newRig(t, plain(balancer.WeightedRoundRobin{}), peersOf(1, 2, 3)...)
		require.Equal(t, map[string]int{"A": 100, "B": 200, "C": 300}, tally(r.picks(600)))
		seed, fixed := seedOf(t, 7)
		cfg := plain(balancer.Random{})
		cfg.Seed = seed
		got := tally(newRig(t, cfg, peersOf(1, 2, 3)...).picks(6000))
		for i, id := range []string{"A", "B", "C"} {
			p := float64(i+1) / 6
			band(t, fixed, got[id], 6000, p, 3*math.Sqrt(6000*p*(1-p)))
		}

		// The policies by load keep load / weight equal: exactly within one call for
		// least_conn, which sees all hosts, and near it for those that see two.
		for _, p := range []balancer.Policy{balancer.LeastConn{}, balancer.TwoRandom{}, balancer.PeakEWMA{ActivePenalty: time.Second}} {
			r := newRig(t, plain(p), peersOf(1, 2, 3, 6)...)
			for n := range 240 {
				r.hold()
				if p.Name() != "least_conn" {
					continue
				}
				lo, hi := math.Inf(1), 0.0
				for _, s := range r.pool.Snapshot().Upstreams {
					per := float64(s.Inflight) / float64(s.Weight)
					lo, hi = min(lo, per), max(hi, per)
				}
				require.LessOrEqual(t, hi-lo, 1.0, "after %d", n+1)
			}
			for _, s := range r.pool.Snapshot().Upstreams {
				require.InDelta(t, 20, float64(s.Inflight)/float64(s.Weight), 2, "%s: %s", p.Name(), s.ID)
			}
		}

		// Affinity: as many keys as weight, within what 160 points per unit give.
		r = newRig(t, plain(balancer.Hash{}), peersOf(1, 2, 3)...)
		owned := map[string]int{}
		for i := range 6000 {
			owned[r.keyed(fmt.Sprint("session-", i))]++
		}
		for i, id := range []string{"A", "B", "C"} {
			require.InEpsilon(t, 1000*(i+1), owned[id], 0.2, id)
		}
	})

	t.Run("F-LB-14", func(t *testing.T) {
		cfg := plain(first)
		cfg.Breaker = breaker.Config{ConsecutiveFailures: 3}
		r := newRig(t, cfg, peersOf(1, 1, 1)...)
		r.only("B", func() {
			for range 3 {
				r.hold().Release(balancer.TransportFailure)
			}
		})
		r.set("A", false)
		try := r.pool.Start(balancer.Request{})
		step := try.Next()
		require.Equal(t, "C", step.Lease.Upstream().id)
		try.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.EndNoTarget, try.Next().End)
		require.Equal(t, []balancer.Exclusion{
			{Upstream: "A", Why: []string{"unhealthy"}},
			{Upstream: "B", Why: []string{"circuit_open"}},
			{Upstream: "C", Why: []string{"already_tried"}},
		}, try.Exclusions())
	})

	t.Run("E-LB-01", func(t *testing.T) {
		for name, want := range map[string][]string{
			"round_robin":          {"rr", "round-robin"},
			"weighted_round_robin": {"wrr", "weighted"},
			"least_conn":           {"lc", "least-conn"},
			"hash":                 {"sticky", "consistent_hash"},
			"random":               nil,
			"two_random":           nil,
			"p2c_ewma":             {"peak_ewma"},
		} {
			for _, alias := range append(want, name) {
				p, err := balancer.ParsePolicy(alias)
				require.NoError(t, err, alias)
				require.Equal(t, name, p.Name(), alias)
			}
		}
		for _, name := range []string{"", "RR", " rr", "weighted_random"} {
			_, err := balancer.ParsePolicy(name)
			require.ErrorIs(t, err, balancer.ErrConfig, "%q", name)
		}
	})

	t.Run("E-DM-03", func(t *testing.T) {
		spread := func(cfg balancer.Config) map[string]int {
			return tally(newRig(t, cfg, peersOf(1, 1, 3, 1)...).picks(6000))
		}
		even := map[string]int{"A": 1500, "B": 1500, "C": 1500, "D": 1500}
		require.Equal(t, map[string]int{"A": 1000, "B": 1000, "C": 3000, "D": 1000}, spread(plain(balancer.WeightedRoundRobin{})))
		require.Equal(t, even, spread(plain(balancer.RoundRobin{})))
		require.Equal(t, even, spread(plain(balancer.LeastConn{})))
		require.Equal(t, map[string]int{"A": 6000}, spread(plain(balancer.LeastConn{Ties: balancer.TiesIndex})))

		// Fifty users in turn, on a ring that does not look at weights.
		cfg := plain(balancer.Hash{})
		cfg.IgnoreWeights = true
		r, got := newRig(t, cfg, peersOf(1, 1, 3, 1)...), map[string]int{}
		for i := range 6000 {
			got[r.keyed(fmt.Sprint("user-", i%50))]++
		}
		require.Equal(t, map[string]int{"A": 1680, "B": 1200, "C": 1920, "D": 1200}, got)
	})
}

// keyed is the id that a request with an affinity key is sent to.
func (r *rig) keyed(key string) string {
	r.Helper()
	l, err := r.pool.Acquire(balancer.Request{Key: balancer.StringKey(key)})
	require.NoError(r, err)
	l.Release(balancer.Success)
	return l.Upstream().id
}

// Whatever is down, a pick finds a usable host, and none where there is none.
func TestPickFindsWhatIsUsable(t *testing.T) {
	for _, p := range builtin() {
		for _, n := range []int{1, 2, 3, 33, 70} {
			r := newRig(t, plain(p), crowd(n, 1, 2, 3)...)
			seed, _ := seedOf(t, 1)
			up := n
			for step := range 200 {
				s := r.pool.Snapshot().Upstreams[(seed+uint64(step)*7919)%uint64(n)]
				r.set(s.ID, !s.Healthy)
				if up++; s.Healthy {
					up -= 2
				}
				l, err := r.pool.Acquire(balancer.Request{Key: balancer.HashKey(uint64(step) << 56)})
				if up == 0 {
					require.ErrorIs(t, err, balancer.ErrNoneAvailable)
					continue
				}
				require.NoError(t, err)
				for _, s := range r.pool.Snapshot().Upstreams {
					if s.ID == l.Upstream().id {
						require.True(t, s.Healthy, "%s picked %s, which is down", p.Name(), s.ID)
					}
				}
				if step%3 == 0 {
					l.Release(balancer.Success)
				}
			}
			require.Zero(t, r.pool.Snapshot().Totals.BadPicks, "%s/%d", p.Name(), n)
		}
	}
}

// When all are ejected the policies go on over the ejected ones, and keep their
// promises there.
func TestFallback(t *testing.T) {
	for _, p := range builtin() {
		for _, n := range []int{3, 40} {
			cfg := plain(p)
			cfg.Outlier = outlier.Config{Consecutive: 1, MaxEjectedPercent: 100, Last: outlier.EjectLast}
			r := newRig(t, cfg, crowd(n, 1, 2, 3)...)
			for !r.pool.Snapshot().Fallback {
				r.hold().Release(balancer.TransportFailure)
			}
			seen := map[string]bool{}
			for range 60 * n {
				l := r.hold()
				require.True(t, l.Fallback())
				seen[l.Upstream().id] = true
				l.Release(balancer.Ignored)
			}
			if _, hash := p.(balancer.Hash); !hash && p != (balancer.LeastConn{Ties: balancer.TiesIndex}) && p.Name() != "p2c_ewma" {
				require.Len(t, seen, n, "%s/%d", p.Name(), n)
			}
			require.Zero(t, r.pool.Snapshot().Totals.BadPicks)
		}
	}
}

// Among the ejected, too, Random is exact, also if the heavy ones cannot serve.
func TestFallbackByWeight(t *testing.T) {
	seed, fixed := seedOf(t, 7)
	cfg := plain(balancer.Random{})
	cfg.Seed = seed
	cfg.Outlier = outlier.Config{Consecutive: 1, MaxEjectedPercent: 100, Last: outlier.EjectLast}
	r := newRig(t, cfg, peersOf(1_000_000, 1, 3)...)
	for _, id := range []string{"B", "C"} {
		r.only(id, func() { r.hold().Release(balancer.TransportFailure) })
	}
	r.set("A", false)
	got := map[string]int{}
	for range 4000 {
		l := r.hold()
		require.True(t, l.Fallback())
		got[l.Upstream().id]++
		l.Release(balancer.Ignored)
	}
	band(t, fixed, got["B"], 4000, 0.25, 82)
	require.Equal(t, 4000, got["B"]+got["C"])
}

// witness is a policy that looks at everything a View and a Call have to say of
// the first host, and picks it.
type witness struct{ seen *[]any }

func (witness) Name() string { return "witness" }
func (w witness) NewPicker(v *balancer.View, _ balancer.Picker) balancer.Picker {
	return witnessPicker{w, v}
}

type witnessPicker struct {
	witness
	v *balancer.View
}

func (w witnessPicker) Pick(c balancer.Call) int {
	v := w.v
	latency, measured := v.Latency(0, c)
	key, has := c.Key()
	*w.seen = []any{
		c.Now(), c.Attempt(), key, has,
		v.Len(), v.ID(0), v.Weight(0), v.Inflight(0), v.Usable(1), v.UsableCount(), v.NextUsable(1), v.NthUsable(1), v.NthUsable(2),
		v.Fallback(), v.Seed(), latency, measured, v.FailShare(0, c), v.Oldest(0, c), *v.Scratch(0), *v.Shared(),
	}
	v.Scratch(0)[1]++
	v.Shared()[0]++
	return 0
}

func TestViewAndCall(t *testing.T) {
	var seen []any
	r := newRig(t, plain(witness{&seen}), peersOf(4, 1, 2)...)
	r.set("B", false)
	l := r.hold()
	require.Equal(t, []any{
		time.Duration(0), 0, uint64(0), false,
		3, "A", 4, 0, false, 2, 2, 2, -1,
		false, uint64(7), time.Duration(0), false, 0, time.Duration(0), [2]uint64{}, [2]uint64{},
	}, seen)
	r.clk.Advance(time.Second)
	l.Settle(balancer.Report{Outcome: balancer.Failure, Latency: 3 * time.Millisecond})
	r.load("A", 2)
	r.clk.Advance(time.Second)
	l, err := r.pool.Acquire(balancer.Request{Key: balancer.HashKey(99)})
	require.NoError(t, err)
	require.Equal(t, "A", l.Upstream().id)
	require.Equal(t, []any{2 * time.Second, 0, uint64(99), true, 3, "A", 4, 2}, seen[:8])
	require.Equal(t, true, seen[16])
	require.InDelta(t, 904, seen[17], 1, "one second of ten has passed")
	require.Equal(t, []any{time.Second, [2]uint64{0, 3}, [2]uint64{3, 0}}, seen[18:])

	// State of the host follows it, and that of the tier stays.
	r.update(peersOf(4)...)
	r.hold()
	require.Equal(t, []any{[2]uint64{0, 4}, [2]uint64{4, 0}}, seen[19:])

	// The second attempt has another draw and another number.
	try := r.pool.Start(balancer.Request{})
	try.Next()
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	r.update(peersOf(1, 1)...)
	require.Equal(t, balancer.StepSend, try.Next().Kind)
	require.Equal(t, 1, seen[1])
	require.Equal(t, uint64(1), r.pool.Snapshot().Totals.BadPicks, "A was tried; B was used instead")
}

// A Pool saved at any moment goes on as the original does.
func TestPoliciesAreRestored(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		p := rapid.SampledFrom(builtin()).Draw(t, "policy")
		n := rapid.SampledFrom([]int{1, 5, 33, 70}).Draw(t, "hosts")
		cfg := plain(p)
		peers := crowd(n, rapid.SliceOfN(rapid.IntRange(1, 9), 1, 5).Draw(t, "weights")...)
		clk := clock.NewManual(time.Unix(0, 0))
		cfg.Clock, cfg.Seed = clk, rapid.Uint64Min(1).Draw(t, "seed")
		a, err := balancer.NewPool(cfg, peers...)
		if err != nil {
			t.Fatal(err)
		}
		step := func(p *balancer.Pool[peer], op int) string {
			if op%5 == 0 {
				s := p.Snapshot().Upstreams[op%n]
				if err := p.SetHealth(s.ID, !s.Healthy, ""); err != nil {
					t.Fatal(err)
				}
			}
			l, err := p.Acquire(balancer.Request{Key: balancer.HashKey(uint64(op) * 0x9e3779b97f4a7c15)})
			if err != nil {
				return "none"
			}
			if op%3 > 0 {
				l.Release(balancer.Success)
			}
			return l.Upstream().id
		}
		ops := rapid.SliceOfN(rapid.IntRange(0, 999), 0, 60).Draw(t, "before")
		for _, op := range ops {
			clk.Advance(time.Duration(op) * time.Millisecond)
			step(a, op)
		}
		saved := a.Save()
		cfg.Clock = clock.NewManual(time.Unix(1000, 0))
		b, err := balancer.RestorePool(cfg, saved, peers...)
		if err != nil {
			t.Fatal(err)
		}
		if again := b.Save(); string(again) != string(saved) {
			t.Fatalf("%s: the restored pool saves something else", p.Name())
		}
		for _, op := range rapid.SliceOfN(rapid.IntRange(0, 999), 1, 60).Draw(t, "after") {
			d := time.Duration(op) * time.Millisecond
			clk.Advance(d)
			cfg.Clock.(*clock.Manual).Advance(d)
			if x, y := step(a, op), step(b, op); x != y {
				t.Fatalf("%s: the original picks %s, the restored pool %s", p.Name(), x, y)
			}
		}
	})
}

func TestPolicyConfigErrors(t *testing.T) {
	for _, p := range []balancer.Policy{
		balancer.LeastConn{Ties: 3},
		balancer.PeakEWMA{ActivePenalty: -1},
		balancer.PeakEWMA{Unmeasured: -1},
		balancer.Hash{Keyless: balancer.LeastConn{Ties: 9}},
	} {
		_, err := balancer.NewPool[peer](balancer.Config{Policy: p})
		require.ErrorIs(t, err, balancer.ErrConfig, "%#v", p)
	}
	require.Equal(t, "rotate random index Ties(7)",
		fmt.Sprint(balancer.TiesRotate, " ", balancer.TiesRandom, " ", balancer.TiesIndex, " ", balancer.Ties(7)))
}

func TestPoliciesDoNotAllocate(t *testing.T) {
	for _, p := range builtin() {
		for _, n := range []int{1, 10, 100} {
			pool, err := balancer.NewPool(balancer.Config{Policy: p, Seed: 7}, crowd(n, 1, 2, 3)...)
			require.NoError(t, err)
			for i := range n {
				if i%10 == 9 {
					require.NoError(t, pool.SetHealth(fmt.Sprintf("h%05d", i), false, ""))
				}
			}
			req := balancer.Request{}
			got := testing.AllocsPerRun(100, func() {
				req.Key = balancer.Key{}
				l, _ := pool.Acquire(req)
				l.Release(balancer.Success)
				req.Key = balancer.HashKey(0x123456789abcdef0)
				l, _ = pool.Acquire(req)
				l.Release(balancer.Success)
			})
			require.Zero(t, got, "%s with %d hosts", p.Name(), n)
		}
	}
}
