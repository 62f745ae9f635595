package hashring_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// TestRows has one subtest for each row of the conformance table.
func TestRows(t *testing.T) {
	t.Run("E-LB-07", func(t *testing.T) {
		// A key stays on its node until the node is out, and returns with it.
		for _, table := range tables(t, list("A", "B", "C", "D")) {
			key := hashring.Key("user-3")
			home := table.Lookup(key)
			for range 100 {
				require.Equal(t, home, table.Lookup(key))
			}
			ejected := func(m int) bool { return m == home }
			away := firstUsable(table, key, ejected)
			require.NotEqual(t, home, away, "%T", table)
			for range 100 {
				require.Equal(t, away, firstUsable(table, key, ejected))
			}
			require.Equal(t, home, firstUsable(table, key, func(int) bool { return false }))
		}
	})

	t.Run("E-LB-08", func(t *testing.T) {
		require.Equal(t, uint64(0xcbf29ce484222325), hashring.FNV1a(""))
		require.Equal(t, uint64(0xaf63dc4c8601ec8c), hashring.FNV1a("a"))
		require.Equal(t, uint64(0x85944171f73967e8), hashring.FNV1a("foobar"))
		require.Equal(t, uint64(0x7cb122970a23b0a2), hashring.Key("user-3"))
		require.Equal(t, hashring.Key("user-3"), hashring.KeyBytes([]byte("user-3")))

		r := ring(t, hashring.RingConfig{}, list("A", "B", "C", "D"))
		require.Equal(t, 4*160, r.Points())
		mixed, raw := map[string]int{}, map[string]int{}
		for i := range 400 {
			mixed[owner(r, hashring.Key(numberedKey("user-", i)))]++
			raw[owner(r, hashring.FNV1a(numberedKey("user-", i)))]++
		}
		require.Len(t, mixed, 4, "keys with a common prefix reach every node")
		require.Less(t, len(raw), 4, "without the finaliser they do not")
	})

	t.Run("E-LB-09", func(t *testing.T) {
		cfg := hashring.RingConfig{VirtualNodes: 200}
		four := ring(t, cfg, list("a", "b", "c", "d"))
		three := ring(t, cfg, list("a", "b", "c"))
		five := ring(t, cfg, list("a", "b", "c", "d", "e"))
		removed, added := 0, 0
		for _, key := range keys("session-", 4000) {
			before := owner(four, key)
			if after := owner(three, key); after != before {
				require.Equal(t, "d", before)
				removed++
			}
			if after := owner(five, key); after != before {
				require.Equal(t, "e", after)
				added++
			}
		}
		require.Equal(t, 1049, removed)
		require.Equal(t, 726, added)
	})

	t.Run("E-LB-10", func(t *testing.T) {
		// Skipping a node equals a table without it, whichever node it is.
		ms := list("a", "b", "c", "d")
		build := func(ms []hashring.Member) []hashring.Table {
			return []hashring.Table{
				ring(t, hashring.RingConfig{VirtualNodes: 200}, ms),
				ring(t, hashring.RingConfig{Seed: 9}, ms),
				rendezvous(t, hashring.RendezvousConfig{}, ms),
				rendezvous(t, hashring.RendezvousConfig{Seed: 9}, ms),
			}
		}
		for i, all := range build(ms) {
			for out := range ms {
				rest := build(without(ms, out))[i]
				for _, key := range keys("session-", 4000) {
					m := firstUsable(all, key, func(m int) bool { return m == out })
					if all.ID(m) != owner(rest, key) {
						t.Fatalf("%T without %s: key %#x at %s, want %s",
							all, ms[out].ID, key, all.ID(m), owner(rest, key))
					}
				}
			}
		}
	})

	t.Run("E-LB-11", func(t *testing.T) {
		// As E-LB-09, with the node down instead of gone.
		four := ring(t, hashring.RingConfig{VirtualNodes: 200}, list("a", "b", "c", "d"))
		moved := 0
		for _, key := range keys("session-", 4000) {
			m := firstUsable(four, key, func(m int) bool { return m == 3 })
			if home := four.Lookup(key); m != home {
				require.Equal(t, 3, home)
				moved++
			}
		}
		require.Equal(t, 1049, moved)

		// On the Maglev table too, only the node's own keys move.
		g := maglev(t, hashring.MaglevConfig{}, list("a", "b", "c", "d"))
		for _, key := range keys("session-", 4000) {
			if m := firstUsable(g, key, func(m int) bool { return m == 3 }); m != g.Lookup(key) {
				require.Equal(t, 3, g.Lookup(key))
			}
		}
	})

	t.Run("E-DM-03", func(t *testing.T) {
		// The sticky part: 6000 requests of 50 users in turn.
		r := ring(t, hashring.RingConfig{}, list("A", "B", "C", "D"))
		users := keys("user-", 50)
		spread := map[string]int{}
		for i := range 6000 {
			spread[owner(r, users[i%len(users)])]++
		}
		require.Equal(t, map[string]int{"A": 1680, "B": 1200, "C": 1920, "D": 1200}, spread)
	})

	t.Run("F-AF-02", func(t *testing.T) {
		ms := weighted(map[string]int{"a": 1, "b": 2, "c": 3, "d": 1, "e": 5})
		reversed := slices.Clone(ms)
		slices.Reverse(reversed)
		for i, table := range tables(t, ms) {
			other := tables(t, reversed)[i]
			for _, key := range keys("k", 4000) {
				if owner(table, key) != owner(other, key) {
					t.Fatalf("%T depends on the order of members", table)
				}
			}
		}
	})

	t.Run("F-AF-10", func(t *testing.T) {
		ms := weighted(map[string]int{"heavy": 3, "light": 1})
		r := ring(t, hashring.RingConfig{}, ms)
		heavy := 0
		for _, key := range keys("key-", 10000) {
			if owner(r, key) == "heavy" {
				heavy++
			}
		}
		require.Equal(t, 7714, heavy)
	})

	t.Run("F-LB-11", func(t *testing.T) {
		// Shares follow the weights on every table.
		ms := weighted(map[string]int{"a": 1, "b": 2, "c": 5, "none": 0})
		const n = 80000
		for _, table := range tables(t, ms) {
			share := map[string]float64{}
			for _, key := range keys("k", n) {
				share[owner(table, key)] += 8.0 / n
			}
			// A ring's share of 160 points has a deviation of about 8 %; the
			// others have the sampling noise only.
			within := 0.03
			if _, ok := table.(*hashring.Ring); ok {
				within = 0.15
			}
			for _, m := range ms {
				require.InDelta(t, float64(m.Weight), share[m.ID], within*float64(m.Weight), "%T %s", table, m.ID)
			}
		}
	})

	t.Run("F-LB-13", func(t *testing.T) {
		steep := weighted(map[string]int{"a": 1000, "b": 100, "c": 1})
		flat := weighted(map[string]int{"a": 100, "b": 100, "c": 1})
		capped := []hashring.Table{
			ring(t, hashring.RingConfig{MaxWeight: 100}, steep),
			maglev(t, hashring.MaglevConfig{MaxWeight: 100}, steep),
			rendezvous(t, hashring.RendezvousConfig{MaxWeight: 100}, steep),
		}
		for i, table := range tables(t, flat) {
			require.Equal(t, 100, capped[i].Weight(0))
			free := tables(t, steep)[i]
			require.Equal(t, 1000, free.Weight(0), "no cap by default")
			differ := 0
			for _, key := range keys("k", 4000) {
				require.Equal(t, table.Lookup(key), capped[i].Lookup(key))
				if table.Lookup(key) != free.Lookup(key) {
					differ++
				}
			}
			require.Greater(t, differ, 1000)
		}
	})
}
