package balancer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

func TestRoundRobinRows(t *testing.T) {
	t.Run("E-LB-02", func(t *testing.T) {
		require.Equal(t, "ABCABC", newRig(t, plain(first), peersOf(1, 1, 1)...).line(6))
		got := newRig(t, plain(balancer.RoundRobin{}), peersOf(1, 1, 1, 1)...).picks(1000)
		for i := 4; i <= len(got); i += 4 {
			require.Len(t, tally(got[i-4:i]), 4, "window that ends at %d", i)
		}
	})
}

func TestRoundRobinTraps(t *testing.T) {
	t.Run("A-RR-01", func(t *testing.T) {
		// The neighbour of a dead host gets its own share and no more.
		for _, p := range []balancer.RoundRobin{{}, {First: true}} {
			r := newRig(t, plain(p), peersOf(1, 1, 1, 1)...)
			r.set("B", false)
			r.set("C", false)
			require.Equal(t, map[string]int{"A": 20, "D": 20}, tally(r.picks(40)))
		}
	})

	t.Run("A-RR-02", func(t *testing.T) {
		// An update does not start the round again.
		r := newRig(t, plain(first), peersOf(1, 1, 1)...)
		got := map[string]int{}
		for range 30 {
			r.update(peersOf(1, 1, 1)...)
			got[r.next()]++
		}
		require.Equal(t, map[string]int{"A": 10, "B": 10, "C": 10}, got)

		// Pools do not start in step. Each host gets 60 to 140 of 300 first picks.
		seed, fixed := seedOf(t, 7)
		starts := map[string]int{}
		for i := range 300 {
			cfg := plain(balancer.RoundRobin{})
			cfg.Seed = seed + uint64(i)
			starts[newRig(t, cfg, peersOf(1, 1, 1)...).next()]++
		}
		for _, id := range []string{"A", "B", "C"} {
			band(t, fixed, starts[id], 300, 1.0/3, 40)
		}
	})

	t.Run("A-RR-03", func(t *testing.T) {
		// The place of the next turn outlives the hosts around it. That the counter
		// of IndexCursor may wrap is a test of its own: TestIndexCursorWraps.
		for _, p := range []balancer.RoundRobin{{}, {First: true}, {IndexCursor: true}} {
			r := newRig(t, plain(p), peersOf(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)...)
			r.picks(10)
			r.update(peersOf(1, 1, 1)...)
			require.Equal(t, map[string]int{"A": 2, "B": 2, "C": 2}, tally(r.picks(6)))
		}
	})
}

// The turn is a host: it follows it to a new index, and when it leaves, the turn
// is the next host's that stays.
func TestRoundRobinTurnFollowsTheHost(t *testing.T) {
	abc := peersOf(1, 1, 1, 1)
	r := newRig(t, plain(first), abc...)
	require.Equal(t, "AB", r.line(2))
	r.update(abc[3], abc[2], abc[1], abc[0]) // D C B A, with C's turn
	require.Equal(t, "CBAD", r.line(4))
	r.update(abc[1], abc[0], abc[3]) // B A D: C's turn falls to B
	require.Equal(t, "BADBAD", r.line(6))
	r.set("B", false)
	require.Equal(t, "ADAD", r.line(4))
	r.set("B", true)
	require.Equal(t, "BADB", r.line(4))
}

// A host that a request has tried keeps its turn for the next request.
func TestRoundRobinRetries(t *testing.T) {
	r := newRig(t, plain(first), peersOf(1, 1, 1)...)
	try := r.pool.Start(balancer.Request{})
	for _, want := range []string{"A", "B", "C"} {
		require.Equal(t, want, try.Next().Lease.Upstream().id)
		try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	}
	require.Equal(t, "ABC", r.line(3))
}

// With u usable hosts, every window of u picks has each of them once, while
// others fail and return between the windows.
func TestRoundRobinWindows(t *testing.T) {
	seed, _ := seedOf(t, 7)
	r := newRig(t, plain(balancer.RoundRobin{}), crowd(150, 1)...)
	up := map[string]bool{}
	for _, s := range r.pool.Snapshot().Upstreams {
		up[s.ID] = true
	}
	for step := range opsOf(t, 30) {
		id := fmt.Sprintf("h%05d", (seed+uint64(step)*61)%150)
		r.set(id, !up[id])
		if up[id] = !up[id]; !up[id] {
			delete(up, id)
		}
		for range 2 {
			got := tally(r.picks(len(up)))
			require.Len(t, got, len(up))
			for id := range got {
				require.Contains(t, up, id)
			}
		}
	}
}
