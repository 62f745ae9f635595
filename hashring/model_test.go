package hashring_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// The models know nothing of tables: they hold the members by id and answer
// each question from the definition, by looking at everything.

// ringOrder returns the ids at all points in the order in which a key meets
// them: by distance going up from the key, then by id.
func ringOrder(members map[string]int, virtual, limit int, key uint64) []string {
	type at struct {
		distance uint64
		id       string
	}
	// Points are halved, all members at once, until they fit the limit.
	points := func(weight, halvings int) int {
		n := new(big.Int).Mul(big.NewInt(int64(weight)), big.NewInt(int64(virtual)))
		n.Rsh(n, uint(halvings))
		if n.Sign() == 0 {
			return 1
		}
		if n.Cmp(big.NewInt(int64(limit))) > 0 {
			return limit + 1
		}
		return int(n.Int64())
	}
	halvings := 0
	for {
		total, most := 0, 0
		for _, w := range members {
			if w > 0 {
				total += points(w, halvings)
				most = max(most, points(w, halvings))
			}
		}
		if total <= limit || most <= 1 {
			break
		}
		halvings++
	}
	var all []at
	for id, w := range members {
		if w == 0 {
			continue
		}
		for i := range points(w, halvings) {
			p := hashring.Mix(hashring.FNV1a(id) + hashring.Mix(uint64(i)))
			all = append(all, at{p - key, id})
		}
	}
	slices.SortFunc(all, func(a, b at) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.id, b.id))
	})
	ids := make([]string, len(all))
	for i, a := range all {
		ids[i] = a.id
	}
	return ids
}

// maglevTable fills a table as the paper's pseudocode does, with a permutation
// written out for each member, and turns found by asking each member in each
// round whether one is due.
func maglevTable(members map[string]int, size int) []string {
	var ids []string
	sum := new(big.Int)
	for id, w := range members {
		if w > 0 {
			ids = append(ids, id)
			sum.Add(sum, big.NewInt(int64(w)))
		}
	}
	slices.Sort(ids)
	table := make([]string, size)
	if len(ids) == 0 {
		return nil
	}
	quota := fairQuotas(ids, members, size)
	most := 0
	for _, q := range quota {
		most = max(most, q)
	}
	next := map[string]int{}
	free := size
	for round := 0; free > 0; round++ {
		for _, id := range ids {
			q := quota[id]
			due := false
			for j := range q {
				due = due || j*most/q == round
			}
			if !due {
				continue
			}
			base := hashring.FNV1a(id)
			offset := hashring.Draw(base, 5, 0) % uint64(size)
			skip := uint64(1)
			if size > 2 {
				skip += hashring.Draw(base, 6, 0) % uint64(size-1)
			}
			for {
				slot := (offset + uint64(next[id])*skip) % uint64(size)
				next[id]++
				if table[slot] == "" {
					table[slot] = id
					free--
					break
				}
			}
		}
	}
	return table
}

// fairQuotas divides size by largest remainder, with at least one each, in
// rational arithmetic.
func fairQuotas(ids []string, members map[string]int, size int) map[string]int {
	quota := map[string]int{}
	poor := map[string]bool{}
	for {
		total, slots := new(big.Int), size
		for _, id := range ids {
			if poor[id] {
				slots--
			} else {
				total.Add(total, big.NewInt(int64(members[id])))
			}
		}
		type part struct {
			id   string
			rest *big.Rat
		}
		var parts []part
		var fell []string
		left := slots
		for _, id := range ids {
			if poor[id] {
				quota[id] = 1
				continue
			}
			exact := new(big.Rat).SetFrac(
				new(big.Int).Mul(big.NewInt(int64(slots)), big.NewInt(int64(members[id]))), total)
			whole := new(big.Int).Div(exact.Num(), exact.Denom())
			if whole.Sign() == 0 {
				fell = append(fell, id)
				continue
			}
			quota[id] = int(whole.Int64())
			left -= quota[id]
			parts = append(parts, part{id, exact.Sub(exact, new(big.Rat).SetInt(whole))})
		}
		if len(fell) > 0 {
			for _, id := range fell {
				poor[id] = true
			}
			continue
		}
		slices.SortStableFunc(parts, func(a, b part) int { return b.rest.Cmp(a.rest) })
		for i := range left {
			quota[parts[i].id]++
		}
		return quota
	}
}

// rendezvousCost is -ln(u)/weight with the library's logarithm.
func rendezvousCost(id string, weight int, key uint64) float64 {
	h := hashring.Mix(key ^ hashring.Mix(hashring.FNV1a(id)))
	u := (float64(h) + 1) / (1 << 64)
	if h > 1<<63 {
		// Near 1 the difference to 1 is what carries the digits.
		return -math.Log1p(-float64(^h)/(1<<64)) / float64(weight)
	}
	return -math.Log(u) / float64(weight)
}

// machine drives changes of a member set against the models.
type machine struct {
	members map[string]int
	virtual int
	limit   int
	size    int
	keys    []uint64
	last    map[string][]string // by table: owner of each key before the change
	changed string              // id touched by the last action
	how     string
}

var idPool = []string{"a", "b", "c", "d", "e", "f", "10.0.0.1:80", "10.0.0.2:80"}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		members: map[string]int{},
		virtual: rapid.SampledFrom([]int{1, 2, 7, 40}).Draw(t, "virtual"),
		limit:   rapid.SampledFrom([]int{1, 50, 100000}).Draw(t, "limit"),
		size:    rapid.SampledFrom([]int{11, 13, 101}).Draw(t, "size"),
		last:    map[string][]string{},
	}
	m.keys = []uint64{0, 1, math.MaxUint64, 1 << 63}
	for i := range 6 {
		m.keys = append(m.keys, hashring.KeyUint64(uint64(i)))
	}
	// Keys at a point of the ring, and beside it.
	for _, id := range []string{"a", "b", "10.0.0.1:80"} {
		p := hashring.PointHash(hashring.FNV1a(id), 0)
		m.keys = append(m.keys, p-1, p, p+1)
	}
	return m
}

func (m *machine) list(t *rapid.T) []hashring.Member {
	var ids []string
	for id := range m.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	// The order of the list must not matter.
	ids = rapid.Permutation(ids).Draw(t, "order")
	ms := make([]hashring.Member, len(ids))
	for i, id := range ids {
		ms[i] = hashring.Member{ID: id, Weight: m.members[id]}
	}
	return ms
}

func (m *machine) add(t *rapid.T) {
	id := rapid.SampledFrom(idPool).Draw(t, "id")
	if _, ok := m.members[id]; ok {
		return
	}
	m.members[id] = rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3, 5, 60}).Draw(t, "weight")
	m.changed, m.how = id, "add"
}

func (m *machine) remove(t *rapid.T) {
	id := rapid.SampledFrom(idPool).Draw(t, "id")
	if _, ok := m.members[id]; !ok {
		return
	}
	delete(m.members, id)
	m.changed, m.how = id, "remove"
}

func (m *machine) reweigh(t *rapid.T) {
	id := rapid.SampledFrom(idPool).Draw(t, "id")
	if _, ok := m.members[id]; !ok {
		return
	}
	m.members[id] = rapid.IntRange(0, 6).Draw(t, "weight")
	m.changed, m.how = id, "reweigh"
}

// check rebuilds every table and compares it with its definition.
func (m *machine) check(t *rapid.T) {
	ms := m.list(t)
	live := 0
	for _, w := range m.members {
		if w > 0 {
			live++
		}
	}
	r := ring(t, hashring.RingConfig{VirtualNodes: m.virtual, MaxPoints: m.limit}, ms)
	g := maglev(t, hashring.MaglevConfig{TableSize: m.size}, ms)
	h := rendezvous(t, hashring.RendezvousConfig{}, ms)
	slots := maglevTable(m.members, m.size)
	if g.Slots() != len(slots) {
		t.Fatalf("%d slots, want %d", g.Slots(), len(slots))
	}
	for _, key := range m.keys {
		if live == 0 {
			for _, table := range []hashring.Table{r, g, h} {
				w := table.Walk(key)
				if _, ok := w.Next(); ok || table.Lookup(key) != -1 {
					t.Fatalf("%T of nobody has an owner", table)
				}
			}
			continue
		}
		want := ringOrder(m.members, m.virtual, m.limit, key)
		compareWalk(t, r, key, want)
		at := new(big.Int).Mul(new(big.Int).SetUint64(key), big.NewInt(int64(len(slots))))
		first := int(at.Rsh(at, 64).Int64())
		compareWalk(t, g, key, append(slices.Clone(slots[first:]), slots[:first]...))
		m.checkRanking(t, h, key, live)
		for _, n := range []int{-1, 0, 1, 3, 17, 100} {
			if got := names(r, r.Owners(key, n)); !slices.Equal(got, distinct(want, n)) {
				t.Fatalf("owners %v, want %v", got, distinct(want, n))
			}
		}
	}
	m.checkMoves(t, "rendezvous", h)
	if m.limit == 100000 {
		m.checkMoves(t, "ring", r)
	}
}

func compareWalk(t *rapid.T, table hashring.Table, key uint64, want []string) {
	if got := owner(table, key); got != want[0] {
		t.Fatalf("%T: key %#x is at %s, want %s", table, key, got, want[0])
	}
	w := table.Walk(key)
	for i, id := range want {
		m, ok := w.Next()
		if !ok || table.ID(m) != id {
			t.Fatalf("%T: key %#x, step %d: %d %v, want %s", table, key, i, m, ok, id)
		}
	}
	if m, ok := w.Next(); ok {
		t.Fatalf("%T: key %#x: %d after a whole lap", table, key, m)
	}
}

// checkRanking holds a ranking against floating-point logarithms.
func (m *machine) checkRanking(t *rapid.T, h *hashring.Rendezvous, key uint64, live int) {
	w := h.Walk(key)
	seen := map[string]bool{}
	last := 0.0
	for i := range live {
		k, ok := w.Next()
		if !ok {
			t.Fatalf("ranking ended after %d of %d", i, live)
		}
		id := h.ID(k)
		cost := rendezvousCost(id, m.members[id], key)
		if seen[id] || m.members[id] == 0 || cost < last-1e-12*(1+last) {
			t.Fatalf("ranking of %#x: %s with cost %g after %g (seen %v)", key, id, cost, last, seen)
		}
		if i == 0 && h.Lookup(key) != k {
			t.Fatalf("Lookup says %d, Walk %d", h.Lookup(key), k)
		}
		seen[id], last = true, cost
	}
	if _, ok := w.Next(); ok {
		t.Fatalf("ranking of %#x goes on", key)
	}
}

// checkMoves compares owners with those before the last change.
func (m *machine) checkMoves(t *rapid.T, name string, table hashring.Table) {
	now := make([]string, len(m.keys))
	for i, key := range m.keys {
		now[i] = owner(table, key)
	}
	if before := m.last[name]; before != nil {
		for i := range now {
			if now[i] == before[i] {
				continue
			}
			if from, to := before[i] == m.changed, now[i] == m.changed; !from && !to ||
				m.how == "add" && !to || m.how == "remove" && !from {
				t.Fatalf("%s: %s of %s moved a key from %q to %q", name, m.how, m.changed, before[i], now[i])
			}
		}
	}
	m.last[name] = now
}

func names(t hashring.Table, members []int) []string {
	var ids []string
	for _, m := range members {
		ids = append(ids, t.ID(m))
	}
	return ids
}

func distinct(ids []string, n int) []string {
	var out []string
	for _, id := range ids {
		if len(out) < n && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func modelProperty(t *rapid.T) {
	m := newMachine(t)
	t.Repeat(map[string]func(*rapid.T){
		"add":     m.add,
		"remove":  m.remove,
		"reweigh": m.reweigh,
		"":        m.check,
	})
}

func TestModel(t *testing.T) { checkSeeded(t, 1, modelProperty) }

// boundedProperty holds Limit against rational arithmetic, and a run of picks
// against the bound.
func boundedProperty(t *rapid.T) {
	n := rapid.IntRange(1, 9).Draw(t, "n")
	ms := make([]hashring.Member, n)
	sum := 0
	for i := range ms {
		ms[i] = hashring.Member{ID: fmt.Sprint("m", i), Weight: rapid.IntRange(0, 4).Draw(t, "weight")}
		sum += ms[i].Weight
	}
	factor := rapid.SampledFrom([]int{100, 101, 125, 150, 1000}).Draw(t, "factor")
	table := rapid.SampledFrom(tables(t, ms)).Draw(t, "table")
	b, err := hashring.NewBounded(hashring.BoundedConfig{Factor: factor}, table)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(member, total int) int {
		// ceil(factor/100 * (total+1) * w / sum)
		x := big.NewRat(int64(factor)*int64(total+1)*int64(ms[member].Weight), 100*int64(max(sum, 1)))
		c := new(big.Int).Add(x.Num(), x.Denom())
		c.Sub(c, big.NewInt(1)).Div(c, x.Denom())
		return int(c.Int64())
	}
	loads, total := make([]int, n), 0
	for range 60 {
		key := rapid.Uint64().Draw(t, "key")
		if total > 0 && rapid.IntRange(0, 3).Draw(t, "finish") == 0 {
			if i := rapid.IntRange(0, n-1).Draw(t, "who"); loads[i] > 0 {
				loads[i]--
				total--
			}
		}
		for i := range ms {
			for _, usable := range []int{0, sum} {
				if got := b.Limit(i, total, usable); got != limit(i, total) {
					t.Fatalf("limit of %d at %d: %d, want %d", i, total, got, limit(i, total))
				}
			}
		}
		got := b.Pick(key, loads)
		if sum == 0 {
			if got != -1 {
				t.Fatalf("picked %d of nobody", got)
			}
			return
		}
		if got < 0 || loads[got] >= limit(got, total) {
			t.Fatalf("picked %d at load %v", got, loads)
		}
		if own := table.Lookup(key); loads[own] < limit(own, total) && got != own {
			t.Fatalf("picked %d, owner %d has room", got, own)
		}
		w := b.Walk(key)
		seen, steps := make([]bool, n), 0
		for m, ok := w.Next(); ok; m, ok = w.Next() {
			seen[m] = true
			steps++
		}
		for i := range ms {
			if seen[i] != (ms[i].Weight > 0) {
				t.Fatalf("walk of weight %d: seen %v", ms[i].Weight, seen[i])
			}
		}
		if steps > 33+n {
			t.Fatalf("%d steps", steps)
		}
		loads[got]++
		total++
	}
}

func TestBoundedModel(t *testing.T) { checkSeeded(t, 2, boundedProperty) }
