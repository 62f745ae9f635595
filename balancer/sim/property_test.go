package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// Names decide nothing but a server's own draws: with services that draw nothing,
// other names give the same run under other names.
func TestRenaming(t *testing.T) {
	def, _ := seedOf(t, 31)
	for _, p := range []balancer.Policy{
		nil, balancer.RoundRobin{}, balancer.Random{}, balancer.LeastConn{}, balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.WeightedRoundRobin{},
	} {
		s := sim.Scenario{
			Seed: def, Duration: time.Second,
			Servers: []sim.Server{
				{Name: "a", Service: fixed(9)}, {Name: "b", Weight: 3, Service: fixed(7)}, {Name: "c", Errors: 1, Service: fixed(5)},
			},
			Clients: []sim.Client{{Rate: 200, Timeout: 60 * ms}},
			Script:  []sim.Change{{Kind: sim.Down, At: 300 * ms, For: 200 * ms, First: 1}},
			Pool:    balancer.Config{Policy: p},
		}
		_, want := watch(t, s)
		other := map[string]string{"a": "zebra", "b": "a", "c": "b"}
		for i := range want {
			want[i].Server = other[want[i].Server]
		}
		s.Servers = slices.Clone(s.Servers)
		for i := range s.Servers {
			s.Servers[i].Name = other[s.Servers[i].Name]
		}
		_, got := watch(t, s)
		require.Equal(t, want, got, "%T", p)
	}
}

// A ring goes by names alone: in another order the same servers get the same keys,
// and serve them as long.
func TestPermuting(t *testing.T) {
	def, _ := seedOf(t, 32)
	s := sim.Scenario{
		Seed: def, Duration: 2 * time.Second,
		Servers: []sim.Server{
			{Name: "a", Count: 2, Service: sim.Exponential(5 * ms)}, {Name: "b", Workers: 2, Errors: .1, Service: sim.LogNormal(5*ms, 40*ms)}, {Name: "c"},
		},
		Clients: []sim.Client{{Rate: 300, Keys: 1000, Timeout: 100 * ms}, {Users: 3, Keys: 9}},
		Pool:    bare(balancer.Hash{}),
	}
	_, want := watch(t, s)
	for _, order := range [][]int{{2, 1, 0}, {1, 2, 0}} {
		u := s
		u.Servers = nil
		for _, i := range order {
			u.Servers = append(u.Servers, s.Servers[i])
		}
		_, got := watch(t, u)
		require.Equal(t, want, got)
	}
}

// Ejections on a run: never more than the share that may be out, each until the
// instant that its event names, each longer than the last up to the bound; equals
// stay in, and a worse server takes no better one out with it.
func TestEjections(t *testing.T) {
	def, _ := seedOf(t, 33)
	base := sim.Scenario{
		Seed: def, Duration: 60 * time.Second,
		Servers: []sim.Server{{Count: 10, Workers: -1}},
		Clients: []sim.Client{{Rate: 300}},
		Pool: balancer.Config{
			Policy: balancer.RoundRobin{}, Breaker: breaker.Config{Off: true}, Retry: balancer.Retry{Off: true},
			Outlier: outlier.Config{Base: 2 * time.Second, Max: 5 * time.Second, MaxEjectedPercent: 20},
		},
	}
	ejected := func(failing int, share float64) (ids []string, spans map[string][]time.Duration) {
		s := base
		if failing > 0 {
			s.Script = []sim.Change{{Kind: sim.Errors, At: time.Second, First: failing, Share: share}}
		}
		spans = map[string][]time.Duration{}
		until := map[string]time.Time{}
		s.Pool.OnEvent = func(e balancer.Event) {
			switch e.Kind {
			case balancer.UpstreamEjected:
				require.Empty(t, until[e.Upstream])
				until[e.Upstream] = e.Until
				spans[e.Upstream] = append(spans[e.Upstream], e.Until.Sub(e.At))
				require.LessOrEqual(t, len(until), 2, "of ten, a fifth")
			case balancer.UpstreamReturned:
				require.Equal(t, until[e.Upstream], e.At)
				delete(until, e.Upstream)
			}
		}
		run(t, s)
		for id := range spans {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids, spans
	}
	ids, _ := ejected(0, 0)
	require.Empty(t, ids, "equals")
	for _, share := range []float64{.7, 1} {
		ids, spans := ejected(1, share)
		require.Equal(t, []string{"s-0"}, ids)
		for i, d := range spans["s-0"] {
			require.LessOrEqual(t, d, 5*time.Second)
			if share == 1 {
				require.Equal(t, min(time.Duration(i+1)*2*time.Second, 5*time.Second), d)
			}
		}
		require.Greater(t, len(spans["s-0"]), 5)
	}
	ids, _ = ejected(5, 1)
	for _, id := range ids {
		require.Less(t, id, "s-5", "only those that fail")
	}
	require.Greater(t, len(ids), 2)
}

// Of any W picks in a row, W the sum of the weights, each server has its weight,
// and larger weights in the same ratio give the same order.
func TestWeightedWindows(t *testing.T) {
	weights := []int{5, 1, 2, 9}
	sent := func(times int) (order []string) {
		s := sim.Scenario{
			Duration: time.Second,
			Clients:  []sim.Client{{Rate: 500, Even: true}},
			Pool:     bare(balancer.WeightedRoundRobin{First: true}),
		}
		for i, w := range weights {
			s.Servers = append(s.Servers, sim.Server{Name: string(rune('a' + i)), Workers: -1, Weight: w * times, Service: sim.Constant(1)})
		}
		_, all := watch(t, s)
		for _, a := range all {
			order = append(order, a.Server)
		}
		return order
	}
	order := sent(1)
	require.Len(t, order, 500)
	require.Equal(t, order, sent(7))
	for from := 0; from+17 <= len(order); from += 17 {
		counts := make([]int, len(weights))
		for _, id := range order[from : from+17] {
			counts[id[0]-'a']++
		}
		require.Equal(t, weights, counts)
	}
}

// Two choices never take the one server that is more loaded than all others, take
// the only one there is, and never one without weight or one that is out.
func TestTwoChoicesOnARun(t *testing.T) {
	def, _ := seedOf(t, 34)
	for seed := def; seed < def+5; seed++ {
		s := sim.Scenario{
			Seed: seed, Duration: 3 * time.Second,
			Servers: []sim.Server{{Count: 4, Workers: -1, Service: sim.Exponential(20 * ms)}, {Name: "none", Weight: -1}},
			Clients: []sim.Client{{Rate: 300}},
			Script: []sim.Change{
				{Kind: sim.Roll, At: time.Second, For: 100 * ms, Every: 200 * ms, Servers: "s"},
				{Kind: sim.Roll, At: 2 * time.Second, For: 100 * ms, Every: 2, Servers: "s", First: 3},
			},
			Pool: bare(balancer.TwoRandom{}),
		}
		_, all := watch(t, s)
		out := func(i int, at time.Duration) bool {
			from := time.Second + time.Duration(i)*200*ms
			late := 2*time.Second + time.Duration(2*i)
			return at >= from && at < from+100*ms || i < 3 && at >= late && at < late+100*ms
		}
		judged, alone := 0, 0
		for _, a := range all {
			require.NotEqual(t, "none", a.Server)
			picked := int(a.Server[2] - '0')
			require.False(t, out(picked, a.Sent), "%s at %v", a.Server, a.Sent)
			// What each had out at that instant, of what this client sent earlier.
			load, clear := [4]int{}, true
			for _, b := range all {
				if b.Sent < a.Sent && b.Sent+b.Took > a.Sent {
					load[b.Server[2]-'0']++
				}
				clear = clear && (b == a || b.Sent != a.Sent && b.Sent+b.Took != a.Sent)
			}
			worst, eligible := true, 0
			for i, n := range load {
				if out(i, a.Sent) {
					continue
				}
				eligible++
				worst = worst && (i == picked || n < load[picked])
			}
			// One that has left and come back is a new one to its Pool, without its old
			// calls, until they have ended.
			if a.Sent >= time.Second && a.Sent < 2500*ms {
				if eligible == 1 {
					alone++
				}
				continue
			}
			if clear && eligible > 1 {
				judged++
				require.False(t, worst, "%s at %v of %v", a.Server, a.Sent, load)
			}
		}
		require.Greater(t, judged, 400)
		require.Positive(t, alone)
	}
}

// A Pool that is saved in the middle of a run and restored in place of itself goes
// on with the same run.
func TestRestoreInTheMiddle(t *testing.T) {
	s := mess(7)
	// Pauses in which nothing is under way: calls belong to the Pool that began them.
	s.Clients = nil
	for c := range 3 {
		var client sim.Client
		for burst := range 8 {
			for i := range 60 {
				client.Times = append(client.Times, time.Duration(burst)*500*ms+time.Duration(i*(3+c))*ms)
			}
		}
		client.Timeout, client.Sees = 60*ms, 9-c
		s.Clients = append(s.Clients, client)
	}
	plain, want := watch(t, s)
	require.Positive(t, plain.Total.Retries)
	require.Positive(t, plain.Servers[2].Ejections+plain.Servers[2].Trips)

	var got []sim.Attempt
	m, err := sim.NewMachine(s)
	require.NoError(t, err)
	m.Watch(func(a sim.Attempt) { got = append(got, a) })
	swapped := 0
	for m.Step() {
		if m.Open() == 0 {
			require.NoError(t, m.RestorePools())
			swapped++
		}
	}
	require.Greater(t, swapped, 8)
	require.Equal(t, want, got)
	require.Equal(t, plain.String(), m.Result().String())
}

// To look changes nothing: snapshots of every Pool after every event.
func TestLooking(t *testing.T) {
	s := mess(8)
	s.Duration = 1200 * ms
	plain, want := watch(t, s)
	var got []sim.Attempt
	m, err := sim.NewMachine(s)
	require.NoError(t, err)
	m.Watch(func(a sim.Attempt) { got = append(got, a) })
	for m.Step() {
		require.NoError(t, m.Check())
	}
	require.Equal(t, want, got)
	require.Equal(t, plain, m.Result())
}

// A request that is left out of a run with queues, retries, ejections and a
// script changes nothing that was settled before it would have begun.
func TestSkipChangesNoPast(t *testing.T) {
	def, _ := seedOf(t, 35)
	s := mess(def)
	_, all := watch(t, s)
	// The clients of three groups: 0 to 2, 3 with its users, 4.
	for group, first := range map[int]int{0: 0, 2: 4} {
		begun := map[uint64]time.Duration{}
		for _, a := range all {
			if a.Client < first || a.Client > first+2 || group == 0 && a.Client > 2 {
				continue
			}
			if at, there := begun[a.Request]; !there || a.Begun < at {
				begun[a.Request] = a.Begun
			}
		}
		for _, skip := range []uint64{1, 150, 300} {
			from, there := begun[skip]
			require.True(t, there)
			u := s
			u.Clients = slices.Clone(s.Clients)
			u.Clients[group].Skip = []uint64{skip}
			var got, want []sim.Attempt
			_, left := watch(t, u)
			for _, a := range left {
				if a.Sent+a.Took < from {
					got = append(got, a)
				}
				require.False(t, group == 2 && a.Client == 4 && a.Request == skip)
			}
			for _, a := range all {
				if a.Sent+a.Took < from {
					want = append(want, a)
				}
			}
			require.Equal(t, want, got)
		}
	}
}
