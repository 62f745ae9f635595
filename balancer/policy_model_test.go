package balancer_test

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// The models are the definitions of the policies over hosts by identity, in the
// plainest form: each pick looks at every host and recomputes what it needs.

// modelHost is what all models know of a host.
type modelHost struct {
	id     string
	weight int
	up     bool
	out    int // calls in flight

	ramp  int   // thousandths; 1 for everyone where there are no ramps
	until int64 // ejected until then; 0 for not ejected
	back  int64 // since when it has been in service
	step  int64 // when its ramp goes on, 0 for never: on none, or it cannot serve

	owed   int     // turns on a ramp, in thousandths
	asked  int     // fewest: the number of the pick that was offered to it last; 0 for none
	blur   bool    // it may have been offered turns that the model does not know of
	credit int     // smooth
	points []int64 // wheel: its places in a lap
	phase  int64   // and the first one's in parts of 1/len(points)
}

// full tells whether it is on no ramp.
func (h *modelHost) full() bool { return h.ramp == m1000(h.ramp) }

// serves tells whether it could serve but for an ejection.
func (h *modelHost) serves() bool { return h.up && h.weight > 0 }

func (h *modelHost) usable() bool { return h.up && h.weight > 0 && h.until == 0 }

// pull is the weight as far as the ramp leaves it.
func (h *modelHost) pull() int { return h.weight * h.ramp }

// model is one policy's definition.
type model interface {
	// join and reweigh follow an update; hosts are in their new order.
	join(m *modelPool, h *modelHost)
	reweigh(m *modelPool, h *modelHost, weight, ramp int)
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
	picks int // fewest: those that a host on a ramp may let pass
	jump  int // whose index comes first when 64 have let a turn pass
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

func (noState) join(*modelPool, *modelHost)                  {}
func (noState) reweigh(_ *modelPool, h *modelHost, w, r int) { h.weight, h.ramp = w, r }
func (noState) check(*modelPool, *modelHost) error           { return nil }
func (noState) pick(*modelPool) *modelHost                   { return nil }
func (m *modelPool) after(h *modelHost) *modelHost           { return m.at(slices.Index(m.hosts, h) + 1) }
func (m *modelPool) at(i int) *modelHost                     { return m.hosts[i%len(m.hosts)] }
func (m *modelPool) from(h *modelHost, ok func(*modelHost) bool) *modelHost {
	i := max(0, slices.Index(m.hosts, h))
	for d := range m.hosts {
		if c := m.at(i + d); ok(c) {
			return c
		}
	}
	return nil
}

// rotate gives the hosts that ok allows their turns, from one on, and returns who
// takes the first and whose is the next. A host on a ramp takes a turn when it is
// owed a whole one. If all let theirs pass, or 64 do, one on no ramp takes it, each
// in turn; or if there is none the one that is owed most, which pays for it with
// what they have gained.
func (m *modelPool) rotate(from *modelHost, ok func(*modelHost) bool) (taken, next *modelHost) {
	var passed []*modelHost
	gained := 0
	for _, h := range m.hosts {
		if ok(h) && h.blur {
			m.drawn = true
			return nil, from
		}
	}
	for taken == nil {
		h := m.from(from, ok)
		if h == nil {
			return nil, from
		}
		switch from = m.after(h); {
		case len(passed) == 64 || slices.Contains(passed, h):
			// What it was offered last it is not offered again.
			from = m.after(passed[len(passed)-1])
			for d := range m.hosts {
				i := (m.jump + d) % len(m.hosts)
				if h := m.hosts[i]; ok(h) && h.full() {
					m.jump = i + 1
					return h, from
				}
			}
			taken = slices.MaxFunc(passed, func(a, b *modelHost) int { return cmp.Compare(a.owed, b.owed) })
			taken.owed -= min(gained, 1000)
		case h.full():
			taken = h
		case h.owed+h.ramp >= 1000:
			h.owed += h.ramp - 1000
			taken = h
		default:
			h.owed += h.ramp
			gained += h.ramp
			passed = append(passed, h)
		}
	}
	return taken, from
}

// turns is round robin: the first usable host from the one whose turn it is. If
// the seed decided that, any pick will do, and the next turn is known.
type turns struct{ noState }

func (turns) pick(m *modelPool) (h *modelHost) {
	if !m.drawn {
		h, m.turn = m.rotate(m.turn, (*modelHost).usable)
	}
	return h
}

func (turns) check(m *modelPool, h *modelHost) error {
	if m.drawn {
		m.found(h, m.usable())
	}
	return nil
}

// found notes the pick h of some equals, where it was not known whose turn it was:
// now it is, unless h may have been picked because all let their turns pass.
func (m *modelPool) found(h *modelHost, equals []*modelHost) {
	m.turn, m.drawn = m.after(h), false
	for _, o := range equals {
		if !o.full() {
			o.blur, m.drawn = true, m.drawn || o == h
		}
	}
}

// nginx is smooth weighted round robin: every usable host gains its weight, the
// one with the most is picked and pays what all have gained. Of equals the first
// one is picked, which a stable sort says without a comparison of our own.
type nginx struct{ noState }

func (nginx) pick(m *modelPool) *modelHost {
	order, sum := m.usable(), 0
	for _, h := range order {
		sum += h.pull()
		h.credit += h.pull()
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

func (f fewest) least(m *modelPool, but ...*modelHost) (least []*modelHost) {
	for _, h := range m.usable() {
		if slices.Contains(but, h) {
			continue
		}
		c := 0
		if len(least) > 0 {
			c = cmp.Compare(int64(h.out)*int64(least[0].pull()), int64(least[0].out)*int64(h.pull()))
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

// ramps tells who is usable on a ramp, and how many usable hosts are on none; gentle
// whether that matters: somebody is on a ramp, if not usable, and not all are.
func (f fewest) ramps(m *modelPool) (on []*modelHost, full int, gentle bool) {
	for _, h := range m.usable() {
		if h.full() {
			full++
		} else {
			on = append(on, h)
		}
	}
	return on, full, full > 0 && slices.ContainsFunc(m.hosts, func(h *modelHost) bool { return !h.full() })
}

// beside is the pick where gentle says so: the least loaded who takes it. One on a
// ramp is offered a turn at most once in as many picks as there are usable hosts
// on none, by index at every pick, and takes one when it is owed a whole.
func (f fewest) beside(m *modelPool, full int) *modelHost {
	var passed []*modelHost
	from, tied := m.turn, false
	if f.index {
		from = nil
	}
	for {
		least := f.least(m, passed...)
		h := m.from(from, func(h *modelHost) bool { return slices.Contains(least, h) })
		if f.rotate && len(least) > 1 {
			from, tied = m.after(h), true
		}
		takes := h.full()
		if !takes && (f.index || h.asked == 0 || m.picks-h.asked >= full) {
			h.owed, h.asked = h.owed+h.ramp, m.picks
			if takes = h.owed >= 1000; takes {
				h.owed -= 1000
			}
		}
		if takes {
			if tied {
				m.turn = m.after(h)
			}
			return h
		}
		passed = append(passed, h)
	}
}

func (f fewest) pick(m *modelPool) (h *modelHost) {
	if on, full, gentle := f.ramps(m); gentle {
		m.picks++
		m.drawn = m.drawn || slices.ContainsFunc(on, func(h *modelHost) bool { return h.blur })
		if !f.index && (!f.rotate || m.drawn) {
			return nil
		}
		return f.beside(m, full)
	}
	least := f.least(m)
	equal := func(h *modelHost) bool { return slices.Contains(least, h) }
	switch {
	case len(least) == 0:
	case len(least) == 1:
		return least[0]
	case f.index:
		h, _ = m.rotate(nil, equal)
	case f.rotate && !m.drawn:
		h, m.turn = m.rotate(m.turn, equal)
	}
	return h
}

func (f fewest) check(m *modelPool, h *modelHost) error {
	on, _, gentle := f.ramps(m)
	least := f.least(m)
	if gentle && (h.full() || f.rotate || f.index) {
		// Hosts on a ramp with less load may have let it pass.
		least = f.least(m, slices.DeleteFunc(slices.Clone(on), func(o *modelHost) bool { return o == h })...)
	}
	if f.rotate && gentle && m.drawn && len(on) > 0 {
		// Who was offered what is as unknown as the turn.
		for _, h := range on {
			h.blur = true
		}
	}
	if !slices.Contains(least, h) {
		return fmt.Errorf("another host has less load than %s", h.id)
	}
	if f.rotate && len(least) > 1 && m.drawn && !(gentle && len(on) > 0) {
		m.found(h, least)
	}
	return nil
}

// twoChoices allows every usable host but the unique worst of at least two.
// What is compared is the load per weight, or what PeakEWMA makes of it as long
// as nobody has answered: the calls out and the one to come take 2^40 ns each,
// and the first one of an idle host 1 ns. On a ramp a call out counts for more. The
// worst may be picked if the other one that was drawn is on a ramp, and does not
// compete.
type twoChoices struct {
	noState
	peak bool
}

// cost is in calls, or in nanoseconds, by weight and ramp.
func (c twoChoices) cost(h *modelHost) *big.Rat {
	share := big.NewRat(int64(h.ramp), int64(m1000(h.ramp)))
	cost := new(big.Rat).Quo(big.NewRat(int64(h.out), 1), share)
	switch {
	case c.peak && h.out == 0:
		cost = big.NewRat(1, 1)
	case c.peak:
		cost.Add(cost, big.NewRat(1, 1)).Mul(cost, big.NewRat(1<<40, 1))
	}
	return cost.Quo(cost, big.NewRat(int64(h.weight), 1))
}

// m1000 is what a whole is where a ramp is r.
func m1000(r int) int {
	if r == 1 {
		return 1
	}
	return 1000
}

func (c twoChoices) check(m *modelPool, h *modelHost) error {
	better := 0
	for _, o := range m.usable() {
		if c.cost(o).Cmp(c.cost(h)) < 0 {
			better++
		}
		if o != h && o.ramp < m1000(o.ramp) {
			return nil
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

// place fills in a host's places, weight of them, the first phase units of
// 1/weight from the start: (k*lap + phase) / weight, whole units.
func place(h *modelHost, weight, phase int64) {
	h.points, h.phase = nil, phase
	for k := range weight {
		h.points = append(h.points, (k*modelLap+phase)/weight)
	}
}

func (c calendar) join(m *modelPool, h *modelHost) {
	if h.weight > 0 {
		// Multiples of the golden ratio, modulo 1, in 32 bits.
		h.phase = int64(uint64(m.ever) * 0x9e3779b97f4a7c15 >> 32)
		m.ever++
	}
}

// reweigh keeps the share of the way to the next place.
func (c calendar) reweigh(m *modelPool, h *modelHost, weight, ramp int) {
	old := h.weight
	if ramp == 1 && weight != old && weight > 0 && old > 0 {
		next, from := c.next(m, h), c.first(m, h)
		due := from + (next-from)*int64(old)/int64(weight)
		place(h, int64(weight), due%modelLap*int64(weight)%modelLap)
	}
	switch h.weight, h.ramp = weight, ramp; {
	case weight == 0:
		h.points = nil
	case old == 0:
		c.join(m, h)
	}
	c.fit(m)
}

// fit gives all hosts as many places as come to weights times ramps, without a
// common factor while somebody is on a ramp. What is left of the way to the next
// place stays as many parts of the whole as it is, exactly; one that has joined
// has its phase.
func (c calendar) fit(m *modelPool) {
	unit, ramps := int64(0), int64(1000)
	for _, h := range m.hosts {
		if h.ramp == 1 {
			if len(h.points) == 0 {
				place(h, int64(h.weight), h.phase)
			}
			continue
		}
		unit, ramps = gcd64(int64(h.weight), unit), gcd64(int64(h.ramp), ramps)
	}
	if ramps == 1000 {
		unit = 1
	}
	for _, h := range m.hosts {
		if h.ramp == 1 || h.weight == 0 {
			continue
		}
		old, n := int64(len(h.points)), int64(h.weight)/unit*int64(h.ramp)/ramps
		if old == 0 {
			place(h, n, h.phase)
		} else if n != old {
			from := c.first(m, h)
			left := h.phase - from*old
			for left < 0 {
				left += modelLap
			}
			place(h, n, (from*n+left)%modelLap)
		}
	}
}

func gcd64(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// first is the first position of which h has not been visited.
func (c calendar) first(m *modelPool, h *modelHost) int64 {
	if c.done(m, h) {
		return m.pos + 1
	}
	return m.pos
}

// next is the first place of h that has not been visited, in this lap or the
// next one.
func (c calendar) next(m *modelPool, h *modelHost) int64 {
	from := c.first(m, h)
	if k, _ := slices.BinarySearch(h.points, from); k < len(h.points) {
		return h.points[k]
	}
	if len(h.points) == 0 {
		return 0
	}
	return h.points[0] + modelLap
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
		at := c.next(m, h)
		if best == nil || at < due || at == due && c.hash(h.id) < c.hash(best.id) {
			best, due = h, at
		}
	}
	if best != nil {
		m.pos, m.turn = due%modelLap, best
	}
	return best
}

// modelled is a policy and its model, and how many hosts to run it with; ramps is
// where a ramp begins, 0 for a Pool without ejections.
type modelled struct {
	policy   balancer.Policy
	model    model
	min, max int
	ramps    int
}

// tick is the unit of time of the machine: an ejection lasts two, a step three.
const tick = int64(time.Millisecond)

func (w modelled) config() balancer.Config {
	cfg := plain(w.policy)
	cfg.WhenNone = balancer.FailFast
	if w.ramps > 0 {
		cfg.Outlier = outlier.Config{
			Consecutive: 1, Base: time.Duration(2 * tick), Max: time.Duration(2 * tick), MaxEjectedPercent: 100, Last: outlier.EjectLast,
			Return: outlier.Ramp, RampFrom: w.ramps, RampStep: time.Duration(3 * tick),
		}
	}
	return cfg
}

func allModelled() (out []modelled) {
	for _, ramps := range []int{0, 250, 30} {
		out = append(out, []modelled{
			{balancer.RoundRobin{First: true}, turns{}, 0, 70, ramps},
			{balancer.WeightedRoundRobin{First: true}, nginx{}, 0, 32, ramps},
			{balancer.WeightedRoundRobin{First: true}, calendar{fnvMixed}, 33, 60, ramps},
			{balancer.RoundRobin{}, turns{}, 0, 70, ramps},
			{balancer.LeastConn{}, fewest{rotate: true}, 0, 40, ramps},
			{balancer.LeastConn{Ties: balancer.TiesIndex}, fewest{index: true}, 0, 40, ramps},
			{balancer.LeastConn{Ties: balancer.TiesRandom}, fewest{}, 0, 40, ramps},
			{balancer.Random{}, anyone{}, 0, 70, ramps},
			{balancer.TwoRandom{}, twoChoices{}, 0, 40, ramps},
			{balancer.PeakEWMA{}, twoChoices{peak: true}, 0, 40, ramps},
			{balancer.Hash{}, anyone{}, 0, 20, ramps},
		}...)
	}
	return out
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
	begun  []int64
	joined int
	clk    *clock.Manual
	now    int64
}

func newMachine(fail func(string, ...any), what modelled, seed uint64, weights []int) *machine {
	m := &machine{fail: fail, modelled: what, clk: clock.NewManual(time.Unix(0, 0))}
	cfg := what.config()
	cfg.Clock, cfg.Seed = m.clk, seed
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
	cal, wheel := m.model.(calendar)
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
		m.m.picks, m.m.jump = 0, 0
	}
	m.m.hosts = slices.Clone(kept)
	for _, w := range fresh {
		h := &modelHost{id: fmt.Sprint("n", m.joined), weight: w, up: true, ramp: 1}
		if m.ramps > 0 {
			h.ramp = 1000
		}
		m.m.hosts = append(m.m.hosts, h)
		m.joined++
	}
	var peers []peer
	for _, h := range m.m.hosts {
		if !old[h] {
			m.model.join(&m.m, h)
		}
		peers = append(peers, peer{id: h.id, weight: h.weight})
	}
	if wheel {
		cal.fit(&m.m) // also to those that leave
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
		served := h.serves()
		m.model.reweigh(&m.m, h, weight(i, h.weight), h.ramp)
		m.hold(h, served)
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
	served := h.serves()
	h.up = !h.up
	m.hold(h, served)
	if err := m.pool.SetHealth(h.id, h.up, ""); err != nil {
		m.fail("%v", err)
	}
}

// hold lets the ramp of a host stand still from the time on when it cannot serve,
// and go on a whole step after it can again.
func (m *machine) hold(h *modelHost, served bool) {
	if h.full() || h.serves() == served {
		return
	}
	if h.step = 0; h.serves() {
		h.step = m.now + 3*tick
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
	m.leases, m.whose, m.begun = append(m.leases, l), append(m.whose, h), append(m.begun, m.now)
}

func (m *machine) release(i int) { m.settle(i, balancer.Ignored) }

// settle ends a call. One that fails ejects its host, unless it began before the
// host last returned or the host cannot serve.
func (m *machine) settle(i int, o balancer.Outcome) {
	if len(m.leases) == 0 {
		return
	}
	i %= len(m.leases)
	h := m.whose[i]
	ejects := m.ramps > 0 && o == balancer.TransportFailure && h.usable() && slices.Contains(m.m.hosts, h) && m.begun[i] >= h.back
	if m.policy == (balancer.PeakEWMA{}) && !ejects {
		o = balancer.Ignored // its model knows no averages, and a return forgets them
	}
	if !m.leases[i].Release(o) {
		m.fail("a lease was released before")
	}
	h.out--
	if ejects {
		h.until, h.step = m.now+2*tick, 0
		m.rampTo(h, 1000)
	}
	m.leases, m.whose, m.begun = slices.Delete(m.leases, i, i+1), slices.Delete(m.whose, i, i+1), slices.Delete(m.begun, i, i+1)
}

// rampTo puts a host on another place of its ramp.
func (m *machine) rampTo(h *modelHost, ramp int) {
	if ramp < 1000 && h.ramp == 1000 {
		// How far it begins on the way to its first turn: by its place in the order,
		// multiples of the golden ratio.
		i := slices.Index(m.m.hosts, h)
		h.owed, h.blur, h.asked = int(scaleDown(uint64(i)*0x9e3779b97f4a7c15, 1000)), false, 0
	}
	h.blur = h.blur && ramp < 1000
	m.model.reweigh(&m.m, h, h.weight, ramp)
}

// pass lets time pass, and what falls due happen.
func (m *machine) pass(n int64) {
	m.now += n * tick
	m.clk.Set(time.Unix(0, m.now))
	m.pool.Poll()
	for _, h := range m.m.hosts {
		ramp := h.ramp
		if h.until > 0 && h.until <= m.now {
			ramp, h.back, h.step, h.until = m.ramps, h.until, h.until+3*tick, 0
			if !h.serves() {
				h.step = 0
			}
		}
		for h.step > 0 && h.step <= m.now {
			ramp, h.step = min(2*ramp, 1000), h.step+3*tick
			if ramp == 1000 {
				h.step = 0
			}
		}
		m.rampTo(h, ramp)
	}
}

// check compares what can be seen.
func (m *machine) check() {
	s := m.pool.Snapshot()
	if s.Totals.BadPicks > 0 {
		m.fail("%d bad picks", s.Totals.BadPicks)
	}
	for i, u := range s.Upstreams {
		h := m.m.hosts[i]
		if u.ID != h.id || u.Inflight != h.out || u.Weight != h.weight || u.Selectable != h.usable() {
			m.fail("host %d is %+v, want %+v", i, u, *h)
		}
		if m.ramps > 0 && u.Ramp != h.ramp*b2i(h.until == 0) {
			m.fail("host %d is at %d of its ramp, want %+v", i, u.Ramp, *h)
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
	skip := rapid.IntRange(0, 63).Draw(t, "skip")
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
	if skip&32 == 0 && what.ramps > 0 {
		actions["fail"] = func(t *rapid.T) {
			for range rapid.IntRange(1, 4).Draw(t, "n") {
				m.settle(rapid.IntRange(0, 1000).Draw(t, "i"), balancer.TransportFailure)
			}
		}
		actions["fail now"] = func(t *rapid.T) {
			m.acquire(0)
			m.settle(len(m.leases)-1, balancer.TransportFailure)
		}
		actions["pass"] = func(t *rapid.T) { m.pass(rapid.Int64Range(1, 5).Draw(t, "ms")) }
		actions["pass2"] = actions["pass"]
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
