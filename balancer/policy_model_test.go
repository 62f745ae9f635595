package balancer_test

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

// The models are the definitions of the policies over hosts by identity, in the
// plainest form: each pick looks at every host and recomputes what it needs.

// modelHost is what all models know of a host.
type modelHost struct {
	id     string
	weight int
	up     bool
	out    int // calls in flight

	credit int     // smooth
	points []int64 // wheel: its places in a lap
}

func (h *modelHost) usable() bool { return h.up && h.weight > 0 }

// model is one policy's definition.
type model interface {
	// join and reweigh follow an update; hosts are in their new order.
	join(m *modelPool, h *modelHost)
	reweigh(m *modelPool, h *modelHost, weight int)
	// pick returns the host that must be picked; or, of a policy that draws, nil,
	// and check says whether a pick was allowed.
	pick(m *modelPool) *modelHost
	check(m *modelPool, h *modelHost) error
}

type modelPool struct {
	hosts []*modelHost
	turn  *modelHost // whose turn it is; nil for the first one's
	drawn bool       // the turn is where the seed put it
	pos   int64      // wheel: how far in the lap the latest pick was
	ever  int64
}

func (m *modelPool) usable() (out []*modelHost) {
	for _, h := range m.hosts {
		if h.usable() {
			out = append(out, h)
		}
	}
	return out
}

// noState is the part of a model that an update does not touch.
type noState struct{}

func (noState) join(*modelPool, *modelHost)               {}
func (noState) reweigh(_ *modelPool, h *modelHost, w int) { h.weight = w }
func (noState) check(*modelPool, *modelHost) error        { return nil }
func (noState) pick(*modelPool) *modelHost                { return nil }
func (m *modelPool) after(h *modelHost) *modelHost        { return m.at(slices.Index(m.hosts, h) + 1) }
func (m *modelPool) at(i int) *modelHost                  { return m.hosts[i%len(m.hosts)] }
func (m *modelPool) from(h *modelHost, ok func(*modelHost) bool) *modelHost {
	i := max(0, slices.Index(m.hosts, h))
	for d := range m.hosts {
		if c := m.at(i + d); ok(c) {
			return c
		}
	}
	return nil
}

// turns is round robin: the first usable host from the one whose turn it is. If
// the seed decided that, any pick will do, and the next turn is known.
type turns struct{ noState }

func (turns) pick(m *modelPool) *modelHost {
	if m.drawn {
		return nil
	}
	return m.from(m.turn, (*modelHost).usable)
}

func (turns) check(m *modelPool, h *modelHost) error {
	m.turn, m.drawn = m.after(h), false
	return nil
}

// nginx is smooth weighted round robin: every usable host gains its weight, the
// one with the most is picked and pays what all have gained. Of equals the first
// one is picked, which a stable sort says without a comparison of our own.
type nginx struct{ noState }

func (nginx) pick(m *modelPool) *modelHost {
	order, sum := m.usable(), 0
	for _, h := range order {
		sum += h.weight
		h.credit += h.weight
	}
	sort.SliceStable(order, func(i, j int) bool { return order[i].credit > order[j].credit })
	if len(order) == 0 {
		return nil
	}
	order[0].credit -= sum
	return order[0]
}

// fewest is least connections: nobody usable has a smaller load per weight. With
// index it is also the first of them.
type fewest struct {
	noState
	index, rotate bool
}

func (f fewest) least(m *modelPool) (least []*modelHost) {
	for _, h := range m.usable() {
		c := 0
		if len(least) > 0 {
			c = cmp.Compare(h.out*least[0].weight, least[0].out*h.weight)
		}
		if c < 0 {
			least = nil
		}
		if c <= 0 {
			least = append(least, h)
		}
	}
	return least
}

func (f fewest) pick(m *modelPool) *modelHost {
	least := f.least(m)
	switch {
	case len(least) == 0:
		return nil
	case f.index || len(least) == 1:
		return least[0]
	case f.rotate && !m.drawn:
		return m.from(m.turn, func(h *modelHost) bool { return slices.Contains(least, h) })
	}
	return nil
}

func (f fewest) check(m *modelPool, h *modelHost) error {
	least := f.least(m)
	if !slices.Contains(least, h) {
		return fmt.Errorf("another host has less load than %s", h.id)
	}
	if f.rotate && len(least) > 1 {
		m.turn, m.drawn = m.after(h), false
	}
	return nil
}

// twoChoices allows every usable host but the unique worst of at least two.
// What is compared is the load per weight, or what PeakEWMA makes of it as long
// as nobody has answered: the calls out and the one to come take 2^40 ns each,
// and the first one of an idle host 1 ns.
type twoChoices struct {
	noState
	peak bool
}

// cost is in calls, or in nanoseconds.
func (c twoChoices) cost(h *modelHost) int64 {
	switch n := int64(h.out); {
	case !c.peak:
		return n
	case n == 0:
		return 1
	default:
		return (n + 1) << 40
	}
}

func (c twoChoices) check(m *modelPool, h *modelHost) error {
	better := 0
	for _, o := range m.usable() {
		if c.cost(o)*int64(h.weight) < c.cost(h)*int64(o.weight) {
			better++
		}
	}
	if n := len(m.usable()); n > 1 && better == n-1 {
		return fmt.Errorf("%s is the worst of %d", h.id, n)
	}
	return nil
}

// anyone allows every usable host.
type anyone struct{ noState }

// calendar is the wheel: all places of all hosts on a lap of 2^32, in order.
type calendar struct{ hash func(string) uint64 }

const modelLap = int64(1) << 32

func (calendar) check(*modelPool, *modelHost) error { return nil }

// place fills in a host's places, the first phase units of 1/weight from the
// start: (k*lap + phase) / weight, whole units.
func place(h *modelHost, phase int64) {
	h.points = nil
	for k := range int64(h.weight) {
		h.points = append(h.points, (k*modelLap+phase)/int64(h.weight))
	}
}

func (c calendar) join(m *modelPool, h *modelHost) {
	if h.weight > 0 {
		// Multiples of the golden ratio, modulo 1, in 32 bits.
		phase := uint64(m.ever) * 0x9e3779b97f4a7c15 >> 32
		place(h, int64(phase))
		m.ever++
	}
}

// reweigh keeps the share of the way to the next place.
func (c calendar) reweigh(m *modelPool, h *modelHost, w int) {
	old := h.weight
	h.weight = w
	switch {
	case w == old:
	case w == 0:
		h.points = nil
	case old == 0:
		c.join(m, h)
	default:
		from, next := m.pos, int64(-1)
		if c.done(m, h) {
			from++
		}
		for _, lap := range []int64{0, modelLap} {
			for _, p := range h.points {
				if at := p + lap; at >= from && (next < 0 || at < next) {
					next = at
				}
			}
		}
		due := from + (next-from)*int64(old)/int64(w)
		place(h, due%modelLap*int64(w)%modelLap)
	}
}

// done tells whether a place of h at the position has been visited: those at one
// position go in the order of hashes.
func (c calendar) done(m *modelPool, h *modelHost) bool {
	return m.turn != nil && c.hash(h.id) <= c.hash(m.turn.id)
}

func (c calendar) pick(m *modelPool) *modelHost {
	var best *modelHost
	var due int64
	for _, h := range m.usable() {
		done := c.done(m, h)
		for _, at := range h.points {
			if at < m.pos || at == m.pos && done {
				at += modelLap
			}
			if best == nil || at < due || at == due && c.hash(h.id) < c.hash(best.id) {
				best, due = h, at
			}
		}
	}
	if best != nil {
		m.pos, m.turn = due%modelLap, best
	}
	return best
}

// modelled is a policy and its model, and how many hosts to run it with.
type modelled struct {
	policy   balancer.Policy
	model    model
	min, max int
}

func allModelled() []modelled {
	return []modelled{
		{balancer.RoundRobin{First: true}, turns{}, 0, 70},
		{balancer.WeightedRoundRobin{First: true}, nginx{}, 0, 32},
		{balancer.WeightedRoundRobin{First: true}, calendar{fnvMixed}, 33, 60},
		{balancer.RoundRobin{}, turns{}, 0, 70},
		{balancer.LeastConn{}, fewest{rotate: true}, 0, 40},
		{balancer.LeastConn{Ties: balancer.TiesIndex}, fewest{index: true}, 0, 40},
		{balancer.LeastConn{Ties: balancer.TiesRandom}, fewest{}, 0, 40},
		{balancer.Random{}, anyone{}, 0, 70},
		{balancer.TwoRandom{}, twoChoices{}, 0, 40},
		{balancer.PeakEWMA{}, twoChoices{peak: true}, 0, 40},
		{balancer.Hash{}, anyone{}, 0, 20},
	}
}

// fnvMixed is the hash of an id: FNV-1a and the SplitMix64 finaliser.
func fnvMixed(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h ^= uint64(id[i])
		h *= 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// machine runs a Pool and a model side by side.
type machine struct {
	fail func(format string, args ...any)
	modelled
	m      modelPool
	pool   *balancer.Pool[peer]
	leases []balancer.Lease[peer]
	whose  []*modelHost
	joined int
}

func newMachine(fail func(string, ...any), what modelled, seed uint64, weights []int) *machine {
	m := &machine{fail: fail, modelled: what}
	cfg := plain(what.policy)
	cfg.Clock, cfg.Seed = clock.NewManual(time.Unix(0, 0)), seed
	var err error
	if m.pool, err = balancer.NewPool[peer](cfg); err != nil {
		fail("%v", err)
	}
	m.update(weights, nil)
	return m
}

// update replaces the hosts: those kept, in the order of perm, then new ones
// with the given weights.
func (m *machine) update(fresh []int, kept []*modelHost) {
	// New hosts are in place before weights and phases are looked at, in order.
	old := map[*modelHost]bool{}
	for _, h := range kept {
		old[h] = true
	}
	_, wheel := m.model.(calendar)
	if turn := m.m.turn; !wheel && !old[turn] && len(m.m.hosts) > 0 {
		// The turn goes to the next one that stays. If nobody does, the seed says
		// whose it is, unless there was nobody at all in between.
		if turn == nil {
			turn = m.m.hosts[0]
		}
		m.m.turn = m.m.from(turn, func(h *modelHost) bool { return old[h] })
		m.m.drawn = m.m.drawn || m.m.turn == nil
	}
	if len(kept)+len(fresh) == 0 || m.joined == 0 {
		m.m.turn, m.m.drawn = nil, seeded(m.policy)
	}
	m.m.hosts = slices.Clone(kept)
	for _, w := range fresh {
		m.m.hosts = append(m.m.hosts, &modelHost{id: fmt.Sprint("n", m.joined), weight: w, up: true})
		m.joined++
	}
	var peers []peer
	for _, h := range m.m.hosts {
		if !old[h] {
			m.model.join(&m.m, h)
		}
		peers = append(peers, peer{id: h.id, weight: h.weight})
	}
	if err := m.pool.Update(peers...); err != nil {
		m.fail("%v", err)
	}
}

// seeded tells whether a policy begins where the seed says.
func seeded(p balancer.Policy) bool { return p != (balancer.RoundRobin{First: true}) }

// reweigh gives every host a weight.
func (m *machine) reweigh(weight func(i, old int) int) {
	var peers []peer
	for i, h := range m.m.hosts {
		m.model.reweigh(&m.m, h, weight(i, h.weight))
		peers = append(peers, peer{id: h.id, weight: h.weight})
	}
	if err := m.pool.Update(peers...); err != nil {
		m.fail("%v", err)
	}
}

func (m *machine) flip(i int) {
	if len(m.m.hosts) == 0 {
		return
	}
	h := m.m.at(i)
	h.up = !h.up
	if err := m.pool.SetHealth(h.id, h.up, ""); err != nil {
		m.fail("%v", err)
	}
}

func (m *machine) acquire(key uint64) {
	want := m.model.pick(&m.m)
	l, err := m.pool.Acquire(balancer.Request{Key: balancer.HashKey(key)})
	usable := m.m.usable()
	if err != nil {
		if len(usable) > 0 {
			m.fail("no pick, and %d hosts are usable", len(usable))
		}
		return
	}
	i := slices.IndexFunc(m.m.hosts, func(h *modelHost) bool { return h.id == l.Upstream().id })
	switch {
	case i < 0:
		m.fail("picked %s, which has left", l.Upstream().id)
	case !m.m.hosts[i].usable():
		m.fail("picked %s, which is not usable", l.Upstream().id)
	case want != nil && want != m.m.hosts[i]:
		m.fail("picked %s, want %s", l.Upstream().id, want.id)
	}
	h := m.m.hosts[i]
	if err := m.model.check(&m.m, h); err != nil {
		m.fail("%v", err)
	}
	h.out++
	m.leases, m.whose = append(m.leases, l), append(m.whose, h)
}

func (m *machine) release(i int) {
	if len(m.leases) == 0 {
		return
	}
	i %= len(m.leases)
	if !m.leases[i].Release(balancer.Ignored) {
		m.fail("a lease was released before")
	}
	m.whose[i].out--
	m.leases, m.whose = slices.Delete(m.leases, i, i+1), slices.Delete(m.whose, i, i+1)
}

// check compares what can be seen.
func (m *machine) check() {
	s := m.pool.Snapshot()
	if s.Totals.BadPicks > 0 {
		m.fail("%d bad picks", s.Totals.BadPicks)
	}
	for i, u := range s.Upstreams {
		if h := m.m.hosts[i]; u.ID != h.id || u.Inflight != h.out || u.Weight != h.weight || u.Selectable != h.usable() {
			m.fail("host %d is %+v, want %+v", i, u, *h)
		}
	}
}

// propPolicies drives every policy and its model through the same random life.
func propPolicies(t *rapid.T) {
	what := rapid.SampledFrom(allModelled()).Draw(t, "policy")
	weights := rapid.IntRange(0, 12)
	fresh := func(lo, hi int) []int { return rapid.SliceOfN(weights, max(0, lo), max(0, hi)).Draw(t, "weights") }
	m := newMachine(t.Fatalf, what, rapid.Uint64Min(1).Draw(t, "seed"), fresh(what.min, what.max))
	// A swarm: each run leaves out some of the operations.
	skip := rapid.IntRange(0, 31).Draw(t, "skip")
	actions := map[string]func(*rapid.T){
		"": func(*rapid.T) { m.check() },
		"acquire": func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "n") {
				m.acquire(rapid.Uint64().Draw(t, "key"))
			}
		},
		"release": func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "n") {
				m.release(rapid.IntRange(0, 1000).Draw(t, "i"))
			}
		},
		"sequential": func(t *rapid.T) {
			for range rapid.IntRange(1, 60).Draw(t, "n") {
				m.acquire(0)
				m.release(len(m.leases) - 1)
			}
		},
	}
	if skip&1 == 0 {
		actions["flip"] = func(t *rapid.T) { m.flip(rapid.IntRange(0, 1000).Draw(t, "i")) }
	}
	if skip&2 == 0 {
		actions["most down"] = func(t *rapid.T) {
			for i := range m.m.hosts {
				if m.m.hosts[i].up == rapid.Bool().Draw(t, "keep") {
					m.flip(i)
				}
			}
		}
	}
	if skip&4 == 0 {
		actions["reweigh"] = func(t *rapid.T) {
			m.reweigh(func(int, int) int { return weights.Draw(t, "weight") })
		}
	}
	if skip&8 == 0 {
		actions["members"] = func(t *rapid.T) {
			kept := slices.Clone(m.m.hosts)
			for len(kept) > 0 && rapid.Bool().Draw(t, "drop") {
				i := rapid.IntRange(0, len(kept)-1).Draw(t, "i")
				kept = slices.Delete(kept, i, i+1)
			}
			m.update(fresh(what.min-len(kept), min(3, what.max-len(kept))+max(0, what.min-len(kept))), kept)
		}
	}
	if skip&16 == 0 {
		actions["permute"] = func(t *rapid.T) {
			m.update(nil, rapid.Permutation(m.m.hosts).Draw(t, "order"))
		}
	}
	t.Repeat(actions)
}

func TestPolicyModels(t *testing.T) { checkSeeded(t, 1, propPolicies) }

// Renaming the hosts of a policy that looks at their order only renames the
// picks; with Random and TwoRandom the draws are by place, so it does for them.
func TestRenaming(t *testing.T) {
	checkSeeded(t, 2, func(t *rapid.T) {
		p := rapid.SampledFrom([]balancer.Policy{
			balancer.RoundRobin{}, balancer.WeightedRoundRobin{First: true}, balancer.Random{}, balancer.LeastConn{},
			balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.TwoRandom{}, balancer.PeakEWMA{},
		}).Draw(t, "policy")
		weights := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 32).Draw(t, "weights")
		cfg := plain(p)
		cfg.Clock, cfg.Seed = clock.NewManual(time.Unix(0, 0)), 9
		var pools [2]*balancer.Pool[peer]
		for i, format := range []string{"a%d", "%d-other"} {
			var peers []peer
			for k, w := range weights {
				peers = append(peers, peer{id: fmt.Sprintf(format, k), weight: w})
			}
			var err error
			if pools[i], err = balancer.NewPool(cfg, peers...); err != nil {
				t.Fatal(err)
			}
		}
		for range 60 {
			down := rapid.IntRange(0, 3*len(weights)).Draw(t, "flip")
			var at [2]int
			for i, pool := range pools {
				all := pool.Snapshot().Upstreams
				if down < len(all) {
					if err := pool.SetHealth(all[down].ID, !all[down].Healthy, ""); err != nil {
						t.Fatal(err)
					}
				}
				at[i] = -1
				if l, err := pool.Acquire(balancer.Request{}); err == nil {
					at[i] = slices.IndexFunc(all, func(s balancer.Status) bool { return s.ID == l.Upstream().id })
					if down%2 == 0 {
						l.Release(balancer.Success)
					}
				}
			}
			if at[0] != at[1] {
				t.Fatalf("%s picks host %d, and host %d under other names", p.Name(), at[0], at[1])
			}
		}
	})
}

// Every aligned window of as many picks as the weights add up to has each host
// exactly its weight of times, from any point where a cycle began, and a common
// factor changes no pick of the smooth order.
func TestWeightedWindows(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, 5, 32, 33, 50}).Draw(t, "hosts")
		weights := rapid.SliceOfN(rapid.IntRange(0, 20), n, n).Draw(t, "weights")
		factor := rapid.IntRange(2, 50).Draw(t, "factor")
		var a, b []peer
		sum := 0
		for i, w := range weights {
			a = append(a, peer{id: fmt.Sprint(i), weight: w})
			b = append(b, peer{id: fmt.Sprint(i), weight: w * factor})
			sum += w
		}
		one, many := newRig(quiet{t: t}, plain(balancer.WeightedRoundRobin{First: true}), a...), newRig(quiet{t: t}, plain(balancer.WeightedRoundRobin{First: true}), b...)
		for cycle := range 2 {
			got := map[string]int{}
			for k := range sum {
				id := one.next()
				if got[id]++; n <= 32 && many.next() != id {
					t.Fatalf("pick %d of cycle %d is %s, and another one at %d times the weights", k, cycle, id, factor)
				}
			}
			for _, p := range a {
				if got[p.id] != p.weight {
					t.Fatalf("cycle %d: host %s of weight %d was picked %d times", cycle, p.id, p.weight, got[p.id])
				}
			}
		}
	})
}

// quiet makes a testing.TB of a *rapid.T, as far as the helpers need one.
type quiet struct {
	testing.TB
	t *rapid.T
}

func (q quiet) Helper()                   {}
func (q quiet) Errorf(f string, a ...any) { q.t.Errorf(f, a...) }
func (q quiet) Fatalf(f string, a ...any) { q.t.Fatalf(f, a...) }
func (q quiet) FailNow()                  { q.t.FailNow() }
