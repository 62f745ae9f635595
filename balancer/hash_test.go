package balancer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/hashring"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// ring200 is a ring with 200 points a host, the published setting of the rows.
var ring200 = balancer.Hash{Ring: hashring.RingConfig{VirtualNodes: 200}}

// named makes peers of weight 1.
func named(ids string) []peer {
	var out []peer
	for _, id := range strings.Split(ids, "") {
		out = append(out, peer{id: id, weight: 1})
	}
	return out
}

// owners are the upstreams of the keys prefix0, prefix1, ...
func (r *rig) owners(prefix string, n int) []string {
	r.Helper()
	out := make([]string, n)
	for i := range out {
		out[i] = r.keyed(fmt.Sprint(prefix, i))
	}
	return out
}

// moved counts the keys whose upstream has changed, and checks each.
func moved(before, after []string, check func(from, to string)) (n int) {
	for i := range before {
		if before[i] != after[i] {
			n++
			check(before[i], after[i])
		}
	}
	return n
}

func TestHashRows(t *testing.T) {
	t.Run("E-LB-07", func(t *testing.T) {
		r := newRig(t, plain(balancer.Hash{}), named("ABCD")...)
		home := r.keyed("user-3")
		for range 100 {
			require.Equal(t, home, r.keyed("user-3"))
		}
		r.set(home, false)
		away := r.keyed("user-3")
		require.NotEqual(t, home, away)
		r.set(home, true)
		require.Equal(t, home, r.keyed("user-3"))
		require.Len(t, tally(r.picks(4)), 4, "requests without a key go round")
	})

	t.Run("E-LB-08", func(t *testing.T) {
		require.Equal(t, uint64(0xcbf29ce484222325), hashring.FNV1a(""))
		require.Equal(t, uint64(0xaf63dc4c8601ec8c), hashring.FNV1a("a"))
		require.Equal(t, uint64(0x85944171f73967e8), hashring.FNV1a("foobar"))
		require.Equal(t, balancer.HashKey(0x7cb122970a23b0a2), balancer.StringKey("user-3"))
		r := newRig(t, plain(balancer.Hash{}), named("ABCD")...)
		require.Len(t, tally(r.owners("user-", 400)), 4)
	})

	t.Run("E-LB-09", func(t *testing.T) {
		r := newRig(t, plain(ring200), named("abcd")...)
		before := r.owners("session-", 4000)
		r.update(named("abc")...)
		require.Equal(t, 1049, moved(before, r.owners("session-", 4000), func(from, _ string) { require.Equal(t, "d", from) }))
		r.update(named("abcde")...)
		require.Equal(t, 726, moved(before, r.owners("session-", 4000), func(_, to string) { require.Equal(t, "e", to) }))
		r.update(named("dcba")...)
		require.Equal(t, before, r.owners("session-", 4000), "the order of the list is of no account")
	})

	t.Run("E-LB-10", func(t *testing.T) {
		r := newRig(t, plain(ring200), named("abcd")...)
		for _, out := range []string{"a", "b", "c", "d"} {
			r.set(out, false)
			rebuilt := newRig(t, plain(ring200), named(strings.Replace("abcd", out, "", 1))...)
			require.Equal(t, rebuilt.owners("session-", 4000), r.owners("session-", 4000), "without %s", out)
			r.set(out, true)
		}
	})

	t.Run("E-LB-11", func(t *testing.T) {
		r := newRig(t, plain(ring200), named("abcd")...)
		before := r.owners("session-", 4000)
		r.set("d", false)
		require.Equal(t, 1049, moved(before, r.owners("session-", 4000), func(from, _ string) { require.Equal(t, "d", from) }))
		r.set("d", true)
		require.Equal(t, before, r.owners("session-", 4000))
	})
}

func TestHashTraps(t *testing.T) {
	t.Run("A-HS-01", func(t *testing.T) {
		for _, keyless := range []balancer.Policy{nil, balancer.Random{}, balancer.LeastConn{}, balancer.TwoRandom{}} {
			seed, fixed := seedOf(t, 7)
			cfg := plain(balancer.Hash{Keyless: keyless})
			cfg.Seed = seed
			r := newRig(t, cfg, named("ABCD")...)
			got := tally(r.picks(1000))
			for _, id := range []string{"A", "B", "C", "D"} {
				band(t, fixed, got[id], 1000, 0.25, 50)
			}
			// The empty string, given on purpose, is a key like any other.
			home := r.keyed("")
			for range 20 {
				require.Equal(t, home, r.keyed(""))
			}
		}
	})

	t.Run("A-HS-02", func(t *testing.T) {
		// The k-th attempt goes to the k-th distinct host on the ring, whatever
		// pool it comes from.
		ring, err := hashring.NewRing(hashring.RingConfig{}, []hashring.Member{{ID: "A", Weight: 1}, {ID: "B", Weight: 1}, {ID: "C", Weight: 1}})
		require.NoError(t, err)
		var want []string
		for walk := ring.Walk(hashring.Key("u1")); len(want) < 3; {
			if m, _ := walk.Next(); !strings.Contains(strings.Join(want, ""), ring.ID(m)) {
				want = append(want, ring.ID(m))
			}
		}
		for seed := uint64(1); seed <= 5; seed++ {
			cfg := plain(balancer.Hash{})
			cfg.Seed, cfg.Retry.Max, cfg.Budget = seed, 9, retrybudget.Config{Off: true}
			r := newRig(t, cfg, named("CAB")...)
			try := r.pool.Start(balancer.Request{Key: balancer.StringKey("u1")})
			for _, id := range want {
				require.Equal(t, id, try.Next().Lease.Upstream().id)
				try.Done(balancer.Report{Outcome: balancer.TransportFailure})
			}
			require.Equal(t, balancer.EndNoTarget, try.Next().End, "a fourth attempt is refused")
		}
	})

	t.Run("A-HS-03", func(t *testing.T) {
		r := newRig(t, plain(balancer.Hash{}), named("ABC")...)
		before := r.owners("k", 3000)
		r.set("B", false)
		after := r.owners("k", 3000)
		n := moved(before, after, func(from, _ string) { require.Equal(t, "B", from) })
		require.Equal(t, tally(before)["B"], n)
		require.Zero(t, tally(after)["B"])
		require.Len(t, tally(after), 2)
	})

	t.Run("A-HS-04", func(t *testing.T) {
		key := balancer.Request{Key: balancer.StringKey("u1")}
		r := newRig(t, plain(balancer.Hash{}), named("A")...)
		try := r.pool.Start(key)
		require.Equal(t, balancer.StepSend, try.Next().Kind)
		try.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.EndNoTarget, try.Next().End)

		// All saturated.
		r = newRig(t, plain(balancer.Hash{}), peer{id: "A", weight: 1, max: 1}, peer{id: "B", weight: 1, max: 1})
		for range 2 {
			_, err := r.pool.Acquire(key)
			require.NoError(t, err)
		}
		_, err := r.pool.Acquire(key)
		require.ErrorIs(t, err, balancer.ErrNoneAvailable)

		// The host where a request began its walk is gone before the next step.
		cfg := plain(balancer.Hash{})
		cfg.Retry.Max = 9
		r = newRig(t, cfg, named("ABC")...)
		try = r.pool.Start(key)
		seen := ""
		for {
			step := try.Next()
			if step.Kind == balancer.StepEnd {
				break
			}
			id := step.Lease.Upstream().id
			require.NotContains(t, seen, id)
			seen += id
			r.update(named(strings.Map(func(c rune) rune {
				if strings.ContainsRune(seen, c) && len(seen) < 3 {
					return -1
				}
				return c
			}, "ABC"))...)
			try.Done(balancer.Report{Outcome: balancer.TransportFailure})
			if len(seen) == 3 {
				break
			}
		}
		require.Len(t, seen, 3)
	})

	t.Run("A-HS-05", func(t *testing.T) {
		r := newRig(t, plain(balancer.Hash{}), crowd(10, 1)...)
		got := map[string]int{}
		for i := 1; i <= 10_000; i++ {
			got[r.keyed(fmt.Sprint(i))]++
		}
		require.Len(t, got, 10)
		for id, n := range got {
			require.InDelta(t, 1000, n, 300, id)
		}
		seed, fixed := seedOf(t, 7)
		for _, keyless := range []balancer.Policy{balancer.Random{}, balancer.TwoRandom{}} {
			cfg := plain(balancer.Hash{Keyless: keyless})
			cfg.Seed = seed
			got := tally(newRig(t, cfg, crowd(10, 1)...).picks(10_000))
			for _, p := range crowd(10, 1) {
				band(t, fixed, got[p.id], 10_000, 0.1, 300)
			}
		}
	})
}

// A ring is weighted, and is kept while no member and no weight changes.
func TestHashFollowsWeights(t *testing.T) {
	r := newRig(t, plain(balancer.Hash{}), peersOf(1, 1, 0)...)
	before := r.owners("k", 2000)
	require.Zero(t, tally(before)["C"])
	r.update(peersOf(1, 1, 0)...)
	require.Equal(t, before, r.owners("k", 2000))
	r.update(peersOf(1, 3, 0)...)
	after := r.owners("k", 2000)
	moved(before, after, func(from, to string) { require.Equal(t, "AB", from+to) })
	require.InEpsilon(t, 1500, tally(after)["B"], 0.1)
}
