package hashring_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{hashring.RingConfig{VirtualNodes: -1}.Validate(), "hashring: RingConfig.VirtualNodes is -1, want 0..65536"},
		{hashring.RingConfig{VirtualNodes: 65537}.Validate(), "hashring: RingConfig.VirtualNodes is 65537, want 0..65536"},
		{hashring.RingConfig{MaxWeight: -1}.Validate(), "hashring: RingConfig.MaxWeight is -1, want >= 0"},
		{hashring.RingConfig{MaxPoints: -1}.Validate(), "hashring: RingConfig.MaxPoints is -1, want 0..67108864"},
		{hashring.RingConfig{MaxPoints: 1<<26 + 1}.Validate(), "hashring: RingConfig.MaxPoints is 67108865, want 0..67108864"},
		{hashring.MaglevConfig{TableSize: -7}.Validate(), "hashring: MaglevConfig.TableSize is -7, want 0 or a prime up to 5000011"},
		{hashring.MaglevConfig{TableSize: 1}.Validate(), "hashring: MaglevConfig.TableSize is 1, want 0 or a prime up to 5000011"},
		{hashring.MaglevConfig{TableSize: 65536}.Validate(), "hashring: MaglevConfig.TableSize is 65536, want 0 or a prime up to 5000011"},
		{hashring.MaglevConfig{TableSize: 251 * 251}.Validate(), "hashring: MaglevConfig.TableSize is 63001, want 0 or a prime up to 5000011"},
		{hashring.MaglevConfig{TableSize: 5000077}.Validate(), "hashring: MaglevConfig.TableSize is 5000077, want 0 or a prime up to 5000011"},
		{hashring.MaglevConfig{MaxWeight: -1}.Validate(), "hashring: MaglevConfig.MaxWeight is -1, want >= 0"},
		{hashring.RendezvousConfig{MaxWeight: -1}.Validate(), "hashring: RendezvousConfig.MaxWeight is -1, want >= 0"},
		{hashring.BoundedConfig{Factor: -1}.Validate(), "hashring: BoundedConfig.Factor is -1, want 0 or 100..1000000"},
		{hashring.BoundedConfig{Factor: 99}.Validate(), "hashring: BoundedConfig.Factor is 99, want 0 or 100..1000000"},
		{hashring.BoundedConfig{Factor: 1000001}.Validate(), "hashring: BoundedConfig.Factor is 1000001, want 0 or 100..1000000"},
	} {
		require.EqualError(t, c.err, c.want)
		require.ErrorIs(t, c.err, hashring.ErrConfig)
		var bad *hashring.ConfigError
		require.True(t, errors.As(c.err, &bad))
	}
	for _, err := range []error{
		hashring.RingConfig{VirtualNodes: 65536, MaxWeight: math.MaxInt, MaxPoints: 1 << 26}.Validate(),
		hashring.RingConfig{VirtualNodes: 1, MaxWeight: 1, MaxPoints: 1, Seed: 1}.Validate(),
		hashring.MaglevConfig{TableSize: 2}.Validate(),
		hashring.MaglevConfig{TableSize: 5000011, MaxWeight: 1}.Validate(),
		hashring.BoundedConfig{Factor: 100}.Validate(),
		hashring.BoundedConfig{Factor: 1000000}.Validate(),
		hashring.RingConfig{}.Validate(), hashring.MaglevConfig{}.Validate(),
		hashring.RendezvousConfig{}.Validate(), hashring.BoundedConfig{}.Validate(),
	} {
		require.NoError(t, err)
	}
	// Constructors report what Validate does.
	_, err := hashring.NewRing(hashring.RingConfig{MaxPoints: -1}, nil)
	require.ErrorIs(t, err, hashring.ErrConfig)
	_, err = hashring.NewMaglev(hashring.MaglevConfig{TableSize: 4}, nil)
	require.ErrorIs(t, err, hashring.ErrConfig)
	_, err = hashring.NewRendezvous(hashring.RendezvousConfig{MaxWeight: -1}, nil)
	require.ErrorIs(t, err, hashring.ErrConfig)
	_, err = hashring.NewBounded(hashring.BoundedConfig{Factor: 1}, ring(t, hashring.RingConfig{}, nil))
	require.ErrorIs(t, err, hashring.ErrConfig)
	_, err = hashring.NewMaglev(hashring.MaglevConfig{TableSize: 3}, numbered(4))
	require.EqualError(t, err, "hashring: MaglevConfig.TableSize is 3, want a prime of at least the number of members, 4")
	require.Equal(t, []int{0, 1, 2}, sorted(maglev(t, hashring.MaglevConfig{TableSize: 3}, numbered(3)).Owners(0, 9)))
}

func TestMemberErrors(t *testing.T) {
	for _, c := range []struct {
		members []hashring.Member
		want    string
	}{
		{list("a", ""), `hashring: member 1 (id "", weight 1): empty id`},
		{list("a", "b", "a"), `hashring: member 2 (id "a", weight 1): duplicate id`},
		{[]hashring.Member{{"a", 0}, {"a", 0}}, `hashring: member 1 (id "a", weight 0): duplicate id`},
		{[]hashring.Member{{"a", -1}}, `hashring: member 0 (id "a", weight -1): negative weight`},
	} {
		_, ringErr := hashring.NewRing(hashring.RingConfig{}, c.members)
		_, maglevErr := hashring.NewMaglev(hashring.MaglevConfig{}, c.members)
		_, rendezvousErr := hashring.NewRendezvous(hashring.RendezvousConfig{}, c.members)
		for _, err := range []error{ringErr, maglevErr, rendezvousErr} {
			require.EqualError(t, err, c.want)
			require.ErrorIs(t, err, hashring.ErrMembers)
		}
	}
}

// TestNobody checks tables without owners, and the zero values.
func TestNobody(t *testing.T) {
	all := []hashring.Table{&hashring.Ring{}, &hashring.Maglev{}, &hashring.Rendezvous{}}
	all = append(all, tables(t, nil)...)
	for _, table := range all {
		require.Zero(t, table.Len())
	}
	all = append(all, tables(t, []hashring.Member{{"a", 0}, {"b", 0}})...)
	for _, table := range all {
		require.Equal(t, -1, table.Lookup(1))
		require.Empty(t, ownersOf(table, 1, 3))
		w := table.Walk(1)
		m, ok := w.Next()
		require.Equal(t, -1, m)
		require.False(t, ok)
		b, err := hashring.NewBounded(hashring.BoundedConfig{}, table)
		require.NoError(t, err)
		require.Equal(t, -1, b.Pick(1, nil))
		bw := b.Walk(1)
		m, ok = bw.Next()
		require.Equal(t, -1, m)
		require.False(t, ok)
	}
	var w hashring.Walk
	_, ok := w.Next()
	require.False(t, ok)
	var bw hashring.BoundedWalk
	_, ok = bw.Next()
	require.False(t, ok)
}

// TestWeightZero checks that a member without weight keeps its index and is
// never returned.
func TestWeightZero(t *testing.T) {
	ms := []hashring.Member{{"off", 0}, {"a", 1}, {"off2", 0}, {"b", 2}}
	for i, table := range tables(t, ms) {
		require.Equal(t, 4, table.Len())
		require.Equal(t, "off2", table.ID(2))
		require.Equal(t, []int{0, 1, 0, 2}, []int{table.Weight(0), table.Weight(1), table.Weight(2), table.Weight(3)})
		require.Equal(t, []int{1, 3}, sorted(ownersOf(table, 5, 4)))
		compact := tables(t, []hashring.Member{{"a", 1}, {"b", 2}})[i]
		for _, key := range keys("k", 1000) {
			require.Equal(t, owner(compact, key), owner(table, key))
		}
	}
}

// TestCallersSlices checks that a table keeps nothing of the caller's.
func TestCallersSlices(t *testing.T) {
	ms := numbered(3)
	all := tables(t, ms)
	for i := range ms {
		ms[i] = hashring.Member{ID: "overwritten", Weight: -1}
	}
	for i, table := range tables(t, numbered(3)) {
		require.Equal(t, table.ID(2), all[i].ID(2))
		for _, key := range keys("k", 100) {
			require.Equal(t, table.Lookup(key), all[i].Lookup(key))
		}
	}
	r := all[0].(*hashring.Ring)
	require.Equal(t, []int{7, 7, r.Lookup(5)}, r.AppendOwners([]int{7, 7}, 5, 1), "appends, and counts only its own")
}

// TestMaxPoints checks how weights share a limited number of points.
func TestMaxPoints(t *testing.T) {
	points := func(cfg hashring.RingConfig, weights ...int) int {
		ms := numbered(len(weights))
		for i := range ms {
			ms[i].Weight = weights[i]
		}
		return ring(t, cfg, ms).Points()
	}
	require.Equal(t, 640, points(hashring.RingConfig{}, 1, 3))
	require.Equal(t, 640, points(hashring.RingConfig{MaxPoints: 640}, 1, 3))
	require.Equal(t, 320, points(hashring.RingConfig{MaxPoints: 639}, 1, 3))
	require.Equal(t, 3, points(hashring.RingConfig{MaxPoints: 1}, 1, 3, 9), "one each at least")
	require.Equal(t, 6, points(hashring.RingConfig{MaxPoints: 8, VirtualNodes: 1}, 1, 1024, 1))
	// The default holds for weights of any size.
	most := points(hashring.RingConfig{}, math.MaxInt, math.MaxInt, 1)
	require.LessOrEqual(t, most, 1<<21)
	require.Greater(t, most, 1<<20)

	// A halving takes away the last points of each member and leaves the rest
	// where they are, so half of the keys stay in place, and more by chance.
	ms := numbered(10)
	full := ring(t, hashring.RingConfig{}, ms)
	half := ring(t, hashring.RingConfig{MaxPoints: 1599}, ms)
	require.Equal(t, 800, half.Points())
	stay := 0
	for _, key := range keys("k", 10000) {
		if full.Lookup(key) == half.Lookup(key) {
			stay++
		}
	}
	require.Greater(t, stay, 5000)
}

// TestHugeWeights checks weights whose sums leave 64 bits.
func TestHugeWeights(t *testing.T) {
	ms := []hashring.Member{{"a", math.MaxInt}, {"b", math.MaxInt}, {"c", math.MaxInt / 2}, {"d", 1}}
	for _, table := range []hashring.Table{
		ring(t, hashring.RingConfig{MaxPoints: 1 << 16}, ms),
		maglev(t, hashring.MaglevConfig{}, ms),
		rendezvous(t, hashring.RendezvousConfig{}, ms),
	} {
		counts := make([]int, 4)
		for i := range uint64(10000) {
			counts[table.Lookup(hashring.KeyUint64(i))]++
		}
		require.InDelta(t, 4000, counts[0], 300, "%T %v", table, counts)
		require.InDelta(t, 4000, counts[1], 300)
		require.InDelta(t, 2000, counts[2], 300)
		require.Equal(t, []int{0, 1, 2, 3}, sorted(ownersOf(table, 1, 4)))
		b, err := hashring.NewBounded(hashring.BoundedConfig{}, table)
		require.NoError(t, err)
		loads := make([]int, 4)
		for i := range uint64(1000) {
			loads[b.Pick(hashring.KeyUint64(i), loads)]++
		}
		require.LessOrEqual(t, slices.Max(loads), 500)
	}
}

// TestAllocs holds the hot paths to no allocation at all.
func TestAllocs(t *testing.T) {
	const s = "user-0123456789abcde"
	raw := []byte(s)
	sum := uint64(0)
	dst := make([]int, 0, 16)
	loads := make([]int, 100)
	check := func(name string, f func()) {
		t.Helper()
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
	check("keys", func() {
		sum += hashring.FNV1a(s) + hashring.Key(s) + hashring.KeyBytes(raw) +
			hashring.SeededKey(1, s) + hashring.SeededKeyBytes(1, raw) + hashring.KeyUint64(sum) +
			uint64(hashring.Jump(sum, 100))
	})
	r := ring(t, hashring.RingConfig{Seed: 1}, numbered(100))
	m := maglev(t, hashring.MaglevConfig{Seed: 1}, numbered(100))
	h := rendezvous(t, hashring.RendezvousConfig{Seed: 1}, numbered(100))
	for _, table := range []hashring.Table{r, m, h} {
		b, err := hashring.NewBounded(hashring.BoundedConfig{}, table)
		require.NoError(t, err)
		check("lookup and walk", func() {
			sum += uint64(table.Lookup(sum))
			w := table.Walk(sum)
			for range 5 {
				m, _ := w.Next()
				sum += uint64(m)
			}
			loads[b.Pick(sum, loads)]++
			bw := b.Walk(sum)
			for range 40 {
				m, _ := bw.Next()
				sum += uint64(b.Limit(m, 100, 50))
			}
		})
	}
	check("owners", func() {
		dst = r.AppendOwners(dst[:0], sum, 16)
		dst = m.AppendOwners(dst[:0], sum, 16)
		dst = h.AppendOwners(dst[:0], sum, 16)
		sum++
	})
}

func sorted(members []int) []int {
	slices.Sort(members)
	return members
}

// TestCollidingIDs checks two ids of one FNV-1a hash: all their positions
// collide, the earlier id goes first everywhere, and both can be reached.
func TestCollidingIDs(t *testing.T) {
	const first, second = "8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"
	require.Equal(t, hashring.FNV1a(first), hashring.FNV1a(second))
	for i, table := range tables(t, list("z", second, first)) {
		other := tables(t, list(first, second, "z"))[i]
		for _, key := range keys("k", 200) {
			order := names(table, ownersOf(table, key, 3))
			require.Len(t, order, 3)
			require.Equal(t, order, names(other, ownersOf(other, key, 3)))
			if _, ok := table.(*hashring.Maglev); ok {
				continue // the second takes the free slot after the first one's
			}
			require.NotEqual(t, second, order[0], "%T", table)
			require.Less(t, slices.Index(order, first), slices.Index(order, second), "%T", table)
		}
	}
	// Of different weights, the heavier goes first in a ranking.
	h := rendezvous(t, hashring.RendezvousConfig{}, []hashring.Member{{first, 1}, {second, 2}})
	for _, key := range keys("k", 200) {
		require.Equal(t, []int{1, 0}, h.Owners(key, 2))
	}
}

// TestManyOwners checks the owners of more members than are compared one by
// one: each once, in the order of the walk.
func TestManyOwners(t *testing.T) {
	for _, table := range tables(t, numbered(200)) {
		for _, n := range []int{16, 17, 64, 65, 199, 200, 201} {
			var want []int
			w := table.Walk(42)
			for m, ok := w.Next(); ok && len(want) < n; m, ok = w.Next() {
				if !slices.Contains(want, m) {
					want = append(want, m)
				}
			}
			require.Len(t, want, min(n, 200))
			require.Equal(t, want, ownersOf(table, 42, n), "%T %d", table, n)
		}
	}
}
