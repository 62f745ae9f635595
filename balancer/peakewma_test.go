package balancer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/ewma"
)

const ms = time.Millisecond

// serve sends requests one after the other, each answered after its upstream's
// latency, and returns where they went.
func (r *rig) serve(n int, latency map[string]time.Duration) []string {
	r.Helper()
	out := make([]string, n)
	for i := range out {
		l := r.hold()
		out[i] = l.Upstream().id
		r.clk.Advance(latency[out[i]])
		l.Release(balancer.Success)
	}
	return out
}

// wins checks that every one of 50 picks between two upstreams goes to id. The
// picks leave no trace.
func (r *rig) wins(id, why string) {
	r.Helper()
	for range 50 {
		l := r.hold()
		require.Equal(r, id, l.Upstream().id, why)
		l.Release(balancer.Ignored)
	}
}

func TestPeakEWMARows(t *testing.T) {
	t.Run("F-LB-07", func(t *testing.T) {
		p := balancer.PeakEWMA{ActivePenalty: 500 * ms}
		r := newRig(t, plain(p), peersOf(1, 1)...)
		r.answer("A", 100*ms)
		r.answer("B", 50*ms)
		r.load("B", 1)
		r.wins("A", "0.10 is below 0.55")

		r = newRig(t, plain(p), peersOf(1, 4)...)
		r.answer("A", 100*ms)
		r.answer("B", 300*ms)
		r.wins("B", "0.075 is below 0.10")

		// Of equals the first drawn wins: either, half the time.
		seed, fixed := seedOf(t, 7)
		cfg := plain(p)
		cfg.Seed = seed
		r = newRig(t, cfg, peersOf(1, 1)...)
		r.answer("A", 100*ms)
		r.answer("B", 100*ms)
		a := 0
		for range 1000 {
			l := r.hold()
			if l.Upstream().id == "A" {
				a++
			}
			l.Release(balancer.Ignored)
		}
		band(t, fixed, a, 1000, 0.5, 48)
	})

	t.Run("F-LB-09", func(t *testing.T) {
		for _, p := range []balancer.Policy{balancer.PeakEWMA{}, balancer.PeakEWMA{ActivePenalty: 500 * ms, Unmeasured: 100 * ms, Fade: -1}} {
			r := newRig(t, plain(p), peersOf(1, 1)...)
			r.answer("A", 10*ms)
			r.answer("B", 200*ms)
			fast := map[string]time.Duration{"A": 10 * ms, "B": 200 * ms}
			require.Equal(t, map[string]int{"A": 500}, tally(r.serve(500, fast)))
			swapped := map[string]time.Duration{"A": 200 * ms, "B": 10 * ms}
			require.Greater(t, tally(r.serve(20, swapped))["B"], 10)
			require.Equal(t, map[string]int{"B": 200}, tally(r.serve(200, swapped)))
		}
	})
}

func TestPeakEWMATraps(t *testing.T) {
	t.Run("A-PE-01", func(t *testing.T) {
		// A newcomer that is taken to need a second, beside one that needs 10 ms:
		// the assumption fades with 10 s and passes 10 ms after 46.05 s.
		prior := plain(balancer.PeakEWMA{})
		prior.Latency = ewma.Config{Peak: true, Prior: int64(time.Second)}
		own := plain(balancer.PeakEWMA{Unmeasured: time.Second, Fade: 10 * time.Second})
		for _, cfg := range []balancer.Config{prior, own} {
			for _, real := range []time.Duration{5 * ms, 200 * ms} {
				r := newRig(t, cfg, peersOf(1)...)
				latency := map[string]time.Duration{"A": 10 * ms, "B": real}
				r.serve(1, latency)
				r.update(peersOf(1, 1)...)
				joined := r.clk.Now()
				for r.serve(1, latency)[0] == "A" {
					r.clk.Advance(90 * ms)
					require.Less(t, r.clk.Now().Sub(joined), 50*time.Second, "B was never tried")
				}
				require.Greater(t, r.clk.Now().Sub(joined), 46*time.Second)
				want := "A"
				if real < 10*ms {
					want = "B"
				}
				r.wins(want, "B is judged by its real latency")
			}
		}

		// An assumption that does not fade keeps the newcomer out.
		r := newRig(t, plain(balancer.PeakEWMA{Unmeasured: time.Second, Fade: -1}), peersOf(1, 1)...)
		r.answer("A", 10*ms)
		r.clk.Advance(time.Hour)
		r.answer("A", 10*ms)
		r.wins("A", "10 ms is below 1 s")
	})

	t.Run("A-PE-02", func(t *testing.T) {
		for _, p := range []balancer.PeakEWMA{
			{}, {Unmeasured: 1}, {Unmeasured: ms}, {Unmeasured: time.Second, Fade: -1}, {Unmeasured: 1 << 62},
			{ActivePenalty: 1}, {ActivePenalty: 500 * ms, Unmeasured: 100 * ms, Fade: -1},
		} {
			r := newRig(t, plain(p), peersOf(1, 1, 1)...)
			r.load("A", 3)
			r.load("C", 1)
			got := map[string]int{}
			for range 300 {
				l := r.hold()
				got[l.Upstream().id]++
				l.Release(balancer.Ignored)
			}
			require.Zero(t, got["A"], "%+v", p)
			require.Greater(t, got["B"], got["C"], "B wins both of its pairs")
			r.set("B", false)
			r.wins("C", "1 is below 3")

			// Strictly increasing in the calls out, however many.
			r = newRig(t, plain(p), peersOf(1, 1)...)
			for n := range 40 {
				r.load("A", 1)
				r.wins("B", "fewer in flight")
				r.load("B", 1)
				require.Equal(t, n+1, r.inflight("B"))
			}
		}
	})

	t.Run("A-PE-03", func(t *testing.T) {
		r := newRig(t, plain(balancer.PeakEWMA{}), peersOf(1, 1)...)
		r.answer("B", 200*ms)
		r.clk.Advance(10 * time.Minute)
		r.answer("A", 10*ms)
		// Fifty at once. The stale host gets one, and no second one while that is
		// out, until A's queue is worth more than 200 ms.
		var order []string
		var b balancer.Lease[peer]
		for range 50 {
			l := r.hold()
			order = append(order, l.Upstream().id)
			if l.Upstream().id == "B" {
				b = l
			}
		}
		require.Equal(t, "B", order[0])
		require.Equal(t, map[string]int{"A": 38}, tally(order[1:39]))
		got := tally(order)
		require.Positive(t, got["A"])
		require.Positive(t, got["B"])
		b.Settle(balancer.Report{Outcome: balancer.Success, Latency: 200 * ms})

		// Its next answer is as slow as the last: it loses again.
		r = newRig(t, plain(balancer.PeakEWMA{}), peersOf(1, 1)...)
		r.answer("B", 200*ms)
		r.clk.Advance(10 * time.Minute)
		r.answer("A", 10*ms)
		r.wins("B", "stale")
		r.answer("B", 200*ms)
		r.wins("A", "10 ms is below 200 ms")
	})

	t.Run("A-EW-02", func(t *testing.T) {
		// B fails within a millisecond, and nothing but the score keeps it out.
		r := newRig(t, plain(balancer.PeakEWMA{}), peersOf(1, 1)...)
		got, half := map[string]int{}, 0
		for n := 1; n <= 200; n++ {
			l := r.hold()
			id := l.Upstream().id
			got[id]++
			if id == "A" {
				r.clk.Advance(50 * ms)
				l.Release(balancer.Success)
			} else {
				r.clk.Advance(ms)
				l.Release(balancer.Failure)
			}
			if n > 1 {
				require.LessOrEqual(t, got["B"], got["A"], "after %d", n)
			}
			if n == 100 {
				half = got["B"]
			}
		}
		require.LessOrEqual(t, got["B"], 100)
		require.LessOrEqual(t, got["B"]-half, half, "the share falls")
	})

	t.Run("A-EW-03", func(t *testing.T) {
		r := newRig(t, plain(balancer.PeakEWMA{}), peersOf(1, 1)...)
		r.answer("A", 10*ms)
		r.answer("B", 10*ms)
		hung := r.load("A", 1)
		r.clk.Advance(5 * time.Second)
		require.Equal(t, 5*time.Second, r.pool.Snapshot().Upstreams[0].Oldest)
		require.Equal(t, map[string]int{"B": 100}, tally(r.serve(100, map[string]time.Duration{"B": 10 * ms})))
		// So it is not the one call in flight: B has up to 600 of them, and A's age
		// still weighs more.
		for range 500 {
			require.Equal(t, "B", r.hold().Upstream().id)
		}
		// Once it has answered, the call is no evidence, only what it took is.
		hung[0].Answered()
		require.Zero(t, r.pool.Snapshot().Upstreams[0].Oldest)
	})
}

// A newcomer without a measurement is tried at once, and by one request only
// until it has answered.
func TestPeakEWMATriesNewcomersOnce(t *testing.T) {
	r := newRig(t, plain(balancer.PeakEWMA{}), peersOf(1, 1)...)
	r.answer("A", 10*ms)
	l := r.hold()
	require.Equal(t, "B", l.Upstream().id)
	for range 100 {
		require.Equal(t, "A", r.hold().Upstream().id)
	}
	l.Settle(balancer.Report{Outcome: balancer.Success, Latency: ms})
	require.Equal(t, "B", r.next())
}
