package hashring_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// TestPublishedBalance asserts the figures of the package documentation.
// Placement is pinned, so they are exact; the tolerance is that of rounding to
// the printed digits.
func TestPublishedBalance(t *testing.T) {
	const digits = 0.0006
	for _, want := range []struct {
		n                       int
		ringMost, ringLeast     float64
		maglevMost, maglevLeast float64
		maglevMoved             float64 // per cent of keys that move between survivors
	}{
		{10, 1.137, 0.891, 1.000, 1.000, 0.17},
		{100, 1.190, 0.805, 1.001, 0.999, 0.60},
		{1000, 1.271, 0.785, 1.007, 0.992, 0.56},
	} {
		ms := numbered(want.n)
		least, most := extremes(ring(t, hashring.RingConfig{}, ms).Arcs())
		require.InDelta(t, want.ringMost, most, digits)
		require.InDelta(t, want.ringLeast, least, digits)

		all := maglev(t, hashring.MaglevConfig{}, ms)
		least, most = extremes(slotShares(all))
		require.InDelta(t, want.maglevMost, most, digits)
		require.InDelta(t, want.maglevLeast, least, digits)

		rest := maglev(t, hashring.MaglevConfig{}, ms[:want.n-1])
		between := 0
		for i, m := range rest.SlotOwners() {
			if was := all.SlotOwners()[i]; was != m && int(was) != want.n-1 {
				between++
			}
		}
		require.InDelta(t, want.maglevMoved, 100*float64(between)/65537, 0.006)
	}
}

// TestRendezvousBalance checks that shares differ from the weights by no more
// than sampling does.
func TestRendezvousBalance(t *testing.T) {
	seed, fixed := seedOf(t, 5)
	sigmas := 6.0
	if fixed {
		sigmas = 4
	}
	const n = 40000
	ms := numbered(20)
	total := 0
	for i := range ms {
		ms[i].Weight = []int{1, 2, 7, 30}[i%4]
		total += ms[i].Weight
	}
	h := rendezvous(t, hashring.RendezvousConfig{Seed: seed}, ms)
	// First and second ranks: the second is drawn from those that are left.
	first, second := make([]int, len(ms)), make([]int, len(ms))
	for i := range uint64(n) {
		w := h.Walk(i)
		m, _ := w.Next()
		first[m]++
		m, _ = w.Next()
		second[m]++
	}
	for i, m := range ms {
		p := float64(m.Weight) / float64(total)
		requireShare(t, first[i], n, p, sigmas)
		q := 0.0
		for j, other := range ms {
			if i != j {
				q += float64(other.Weight) / float64(total) * float64(m.Weight) / float64(total-other.Weight)
			}
		}
		requireShare(t, second[i], n, q, sigmas)
	}
}

func requireShare(t *testing.T, got, n int, p, sigmas float64) {
	t.Helper()
	require.InDelta(t, p*float64(n), float64(got), sigmas*math.Sqrt(float64(n)*p*(1-p)))
}

// TestMaglevDisruption measures how many of 65537 slots change when k random
// members of n go, the share of the k included.
func TestMaglevDisruption(t *testing.T) {
	seed, fixed := seedOf(t, 0)
	within := 0.1
	if !fixed {
		within = 0.2
	}
	for _, card := range []struct {
		n, k int
		want float64
	}{
		{1000, 1, 0.69}, {1000, 5, 2.33}, {1000, 10, 3.30}, {1000, 20, 4.70}, {1000, 50, 8.24},
		{100, 1, 1.57}, {100, 5, 5.92},
	} {
		const runs = 4
		sum := 0.0
		for run := range uint64(runs) {
			cfg := hashring.MaglevConfig{Seed: seed + run}
			ms := numbered(card.n)
			before := maglev(t, cfg, ms).SlotOwners()
			for gone, i := 0, uint64(0); gone < card.k; i++ {
				if m := &ms[hashring.Draw(seed, run, i)%uint64(card.n)]; m.Weight > 0 {
					m.Weight = 0
					gone++
				}
			}
			for i, m := range maglev(t, cfg, ms).SlotOwners() {
				if before[i] != m {
					sum++
				}
			}
		}
		got := 100 * sum / runs / 65537
		t.Logf("n=%d k=%d: %.2f %% of slots change", card.n, card.k, got)
		require.InDelta(t, card.want, got, within*card.want)
	}
}

// TestMaglevQuota checks that each member has its exact share of the slots,
// rounded to a neighbouring whole number.
func TestMaglevQuota(t *testing.T) {
	ms := numbered(100)
	total := 0.0
	for i := range ms {
		ms[i].Weight = 1 + i*i
		total += float64(ms[i].Weight)
	}
	m := maglev(t, hashring.MaglevConfig{TableSize: 655373}, ms)
	counts := make([]float64, len(ms))
	for _, owner := range m.SlotOwners() {
		counts[owner]++
	}
	for i := range ms {
		require.Less(t, math.Abs(counts[i]-655373*float64(ms[i].Weight)/total), 1.0)
	}
	least, most := extremes(slotShares(maglev(t, hashring.MaglevConfig{}, numbered(1000))))
	require.InDelta(t, 66/65.537, most, 1e-9)
	require.InDelta(t, 65/65.537, least, 1e-9)
}

// TestBoundedLoads puts 10000 balls on 100 members of a ring of 100 points
// each. The bound holds after every ball; the share of displaced balls is
// pinned with the placement.
func TestBoundedLoads(t *testing.T) {
	for _, want := range []struct {
		virtual, factor int
		online, offline float64 // per cent displaced
	}{
		{100, 125, 3.04, 0.15},
		{100, 110, 10.19, 1.40},
		{100, 105, 17.33, 2.97},
		{1, 125, 50.64, 37.43},
	} {
		r := ring(t, hashring.RingConfig{VirtualNodes: want.virtual}, numbered(100))
		b, err := hashring.NewBounded(hashring.BoundedConfig{Factor: want.factor}, r)
		require.NoError(t, err)
		const balls = 10000
		// Online, the bound grows with the load; offline, the final one holds
		// from the start.
		for _, offline := range []bool{false, true} {
			loads, displaced, most := make([]int, 100), 0, 0
			for i, key := range keys("ball-", balls) {
				total := i
				if offline {
					total = balls - 1
				}
				w := b.Walk(key)
				m, _ := w.Next()
				for !b.Fits(m, loads[m], total, 0) {
					next, ok := w.Next()
					require.True(t, ok, "somebody has room")
					m = next
				}
				if m != r.Lookup(key) {
					displaced++
				}
				loads[m]++
				most = max(most, loads[m])
				// ceil(c * m / k), with c = factor/100, m = total+1, k = 100.
				if bound := (want.factor*(total+1) + 9999) / 10000; loads[m] > bound {
					t.Fatalf("load %d of ball %d, bound %d", loads[m], i, bound)
				}
			}
			require.LessOrEqual(t, most, want.factor)
			percent := want.online
			if offline {
				percent = want.offline
			}
			require.InDelta(t, percent, float64(displaced)/balls*100, 0.006,
				"%d points, factor %d, offline %v", want.virtual, want.factor, offline)
		}
	}
}

// TestBoundedUsable checks that members that are left take over the shares of
// those that are down.
func TestBoundedUsable(t *testing.T) {
	ms := []hashring.Member{{"a", 1}, {"b", 2}, {"c", 5}, {"d", 0}}
	b, err := hashring.NewBounded(hashring.BoundedConfig{Factor: 150}, ring(t, hashring.RingConfig{}, ms))
	require.NoError(t, err)
	require.Equal(t, 4, b.Limit(1, 9, 0))  // ceil(1.5 * 10 * 2/8) = ceil(3.75)
	require.Equal(t, 10, b.Limit(1, 9, 3)) // ceil(1.5 * 10 * 2/3)
	require.Equal(t, 5, b.Limit(0, 9, 3))
	require.Equal(t, 0, b.Limit(3, 9, 0))
	require.Equal(t, 0, b.Limit(3, 9, 3))
	require.Equal(t, 1, b.Limit(0, -5, -5))
	require.Equal(t, math.MaxInt, b.Limit(2, math.MaxInt, 1))
	require.True(t, b.Fits(1, 3, 9, 0))
	require.False(t, b.Fits(1, 4, 9, 0))
}

// outside is a table of members that this package would not build.
type outside struct {
	hashring.Table
	ids     []string
	weights []int
}

func (o outside) Len() int         { return len(o.ids) }
func (o outside) ID(m int) string  { return o.ids[m] }
func (o outside) Weight(m int) int { return o.weights[m] }

func TestBoundedOverOthersTables(t *testing.T) {
	for _, o := range []outside{
		{ids: []string{"a", "a"}, weights: []int{1, 1}},
		{ids: []string{"a", ""}, weights: []int{1, 1}},
		{ids: []string{"a", "b"}, weights: []int{1, -1}},
	} {
		_, err := hashring.NewBounded(hashring.BoundedConfig{}, o)
		require.ErrorIs(t, err, hashring.ErrMembers)
	}
	require.Panics(t, func() { _, _ = hashring.NewBounded(hashring.BoundedConfig{}, nil) })
}

// TestBoundedSaturates checks limits that are a whole number, one less than the
// largest int, the largest, and beyond, and a list of loads that is too short.
func TestBoundedSaturates(t *testing.T) {
	r := ring(t, hashring.RingConfig{}, []hashring.Member{{"a", 1}, {"b", 1000}})
	b, err := hashring.NewBounded(hashring.BoundedConfig{Factor: 100}, r)
	require.NoError(t, err)
	require.Equal(t, 1, b.Limit(0, 999, 1000))
	require.Equal(t, 2, b.Limit(0, 1000, 1000))
	if math.MaxInt > math.MaxInt32 {
		require.Equal(t, math.MaxInt-807, b.Limit(1, math.MaxInt/1000-1, 1), "1000 times 9223372036854775")
		require.Equal(t, math.MaxInt, b.Limit(1, math.MaxInt/1000, 1), "1000 more")
		require.Equal(t, math.MaxInt, b.Limit(1, math.MaxInt>>6, 1))

		// 2^31 times 2^32 is one more than the largest int.
		weight, total := int64(1<<31), int64(1<<32-1)
		b, err := hashring.NewBounded(hashring.BoundedConfig{Factor: 100}, outside{ids: []string{"a"}, weights: []int{int(weight)}})
		require.NoError(t, err)
		require.Equal(t, math.MaxInt, b.Limit(0, int(total), 1))
	}
	for _, key := range keys("k", 200) {
		// Whoever is missing has no load, and a has more than its share.
		require.Equal(t, 1, b.Pick(key, []int{100}))
		require.Equal(t, r.Lookup(key), b.Pick(key, []int{-5}))
	}
	require.Equal(t, []int{7}, r.AppendOwners([]int{7}, 1, 0))
	require.Equal(t, []int{7}, r.AppendOwners([]int{7}, 1, -1))
}

// extremes returns the least and the largest share, in units of the mean.
func extremes(shares []float64) (least, most float64) {
	least, most = math.Inf(1), 0
	for _, s := range shares {
		s *= float64(len(shares))
		least, most = min(least, s), max(most, s)
	}
	return least, most
}

func slotShares(m *hashring.Maglev) []float64 {
	shares := make([]float64, m.Len())
	for _, owner := range m.SlotOwners() {
		shares[owner] += 1 / float64(m.Slots())
	}
	return shares
}

// TestBoundedTies checks that where nobody fits, and all are equally loaded, the
// first by id is taken.
func TestBoundedTies(t *testing.T) {
	full := []int{math.MaxInt, math.MaxInt, math.MaxInt}
	for want, ids := range [][3]string{{"a", "b", "c"}, {"b", "a", "c"}, {"c", "b", "a"}} {
		r := ring(t, hashring.RingConfig{}, []hashring.Member{{ids[0], 1}, {ids[1], 1}, {ids[2], 1}})
		b, err := hashring.NewBounded(hashring.BoundedConfig{}, r)
		require.NoError(t, err)
		for _, key := range keys("k", 20) {
			require.Equal(t, want, b.Pick(key, full))
		}
	}
	// Equally loaded, a heavier one has less for its weight.
	for w := 1; w < 9; w++ {
		r := ring(t, hashring.RingConfig{}, []hashring.Member{{"a", w}, {"b", w + 1}, {"c", w}})
		b, err := hashring.NewBounded(hashring.BoundedConfig{}, r)
		require.NoError(t, err)
		require.Equal(t, 1, b.Pick(7, full))
	}
}
