package balancer_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// ramped is a Config in which one failure ejects for a second and the way back
// is 250, 500 and 1000 thousandths, a second each.
func ramped(p balancer.Policy) balancer.Config {
	return balancer.Config{
		Policy: p, Breaker: noBreaker,
		Outlier: outlier.Config{Consecutive: 1, Base: time.Second, MaxEjectedPercent: 100, Return: outlier.Ramp},
	}
}

// eject lets one call to an upstream fail, and more to the others.
func (r *rig) eject(ids ...string) {
	r.Helper()
	for _, id := range ids {
		l := r.load(id, 1)[0]
		l.Release(balancer.TransportFailure)
	}
}

// returned ejects upstreams and lets the second pass after which they are back.
func (r *rig) returned(ids ...string) {
	r.Helper()
	r.eject(ids...)
	r.clk.Advance(time.Second)
	r.pool.Poll()
}

// ramp is what the Snapshot says of an upstream's ramp.
func (r *rig) ramp(id string) int {
	r.Helper()
	for _, s := range r.pool.Snapshot().Upstreams {
		if s.ID == id {
			return s.Ramp
		}
	}
	r.Fatalf("no upstream %s", id)
	return 0
}

// slowD is a Pool of four equal upstreams of which D is slow from 1700 ms on: it
// is ejected at 3700 and back at 5200, where this ends.
func slowD(t *testing.T) *rig {
	cfg := balancer.Config{
		Policy: balancer.WeightedRoundRobin{First: true}, Breaker: noBreaker,
		Outlier: outlier.Config{
			Consecutive: -1, Latency: outlier.Latency{On: true}, Base: 1500 * time.Millisecond, Return: outlier.Ramp,
		},
	}
	r := newRig(t, cfg, peersOf(100, 100, 100, 100)...)
	for ms := 0; ms < 5200; ms += 100 {
		for range 4 - b2i(ms >= 3800) {
			l, took := r.hold(), 10*time.Millisecond
			if l.Upstream().id == "D" && ms >= 1700 {
				took *= 10
			}
			l.Settle(balancer.Report{Outcome: balancer.Success, Latency: took})
		}
		require.Equal(t, 1000*b2i(ms < 3700), r.ramp("D"), "at %d ms", ms)
		r.clk.Advance(100 * time.Millisecond)
	}
	return r
}

func TestRampRows(t *testing.T) {
	t.Run("E-EW-04", func(t *testing.T) {
		r := slowD(t)
		at := func(ms int) { r.clk.Set(time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)) }
		require.Equal(t, 250, r.ramp("D"), "a read sees what is due")
		for i := range 750 {
			require.Equal(t, map[string]int{"A": 4, "B": 4, "C": 4, "D": 1}, tally(r.picks(13)), "cycle %d", i)
		}
		at(6199)
		require.Equal(t, 250, r.ramp("D"))
		at(6200)
		require.Equal(t, 500, r.ramp("D"))
		for i := range 100 {
			require.Equal(t, map[string]int{"A": 2, "B": 2, "C": 2, "D": 1}, tally(r.picks(7)), "cycle %d", i)
		}
		at(7200)
		require.Equal(t, 1000, r.ramp("D"))
		for i := range 100 {
			require.Equal(t, map[string]int{"A": 1, "B": 1, "C": 1, "D": 1}, tally(r.picks(4)), "cycle %d", i)
		}
		_, more := r.pool.NextChange()
		require.False(t, more)
	})

	t.Run("E-DM-04", func(t *testing.T) {
		r := slowD(t)
		before := r.pool.Snapshot().Distribution()
		r.picks(9750)
		after := r.pool.Snapshot()
		rows := after.Distribution()
		sum := uint64(0)
		for _, p := range rows {
			sum += p.Served
		}
		for i, p := range rows {
			want := balancer.Portion{
				ID: string(rune('A' + i)), Weight: 100, Ramp: 1000, Expected: 4.0 / 13, Measured: true,
				Served: before[i].Served + 3000, Latency: after.Upstreams[i].Latency,
			}
			percent := "30.77"
			if p.ID == "D" {
				want.Ramp, want.Expected, percent = 250, 1.0/13, "7.69"
				want.Served = before[i].Served + 750
			}
			want.Share = float64(want.Served) / float64(sum)
			require.Equal(t, want, p)
			require.Equal(t, percent, fmt.Sprintf("%.2f", 100*p.Expected))
			require.Equal(t, p.Expected, after.Upstreams[i].Expected)
			require.Equal(t, p.Expected, before[i].Expected)
		}
	})
}

func TestRampTraps(t *testing.T) {
	t.Run("A-SS-01", func(t *testing.T) {
		// Out for much longer than a ramp takes, the second time, and noticed late.
		r := newRig(t, ramped(balancer.WeightedRoundRobin{First: true}), peersOf(1, 1, 1, 1)...)
		for range 3 {
			r.eject("D")
			out := r.pool.Snapshot().Upstreams[3].Returns
			require.Zero(t, r.ramp("D"))
			for _, step := range []struct{ at, ramp int }{{0, 250}, {999, 250}, {1000, 500}, {1999, 500}, {2000, 1000}, {1e6, 1000}} {
				r.clk.Set(out.Add(time.Duration(step.at) * time.Millisecond))
				require.Equal(t, step.ramp, r.ramp("D"))
				require.InDelta(t, 520*step.ramp/(3000+step.ramp), tally(r.picks(520))["D"], 1)
			}
		}

		// Down in the middle, and without a weight: the ramp stands still.
		r = newRig(t, ramped(balancer.RoundRobin{First: true}), peersOf(1, 1, 1, 1)...)
		r.returned("D")
		steps := func() {
			t.Helper()
			for _, step := range []struct{ after, ramp int }{{0, 250}, {999, 250}, {1, 500}, {999, 500}} {
				r.clk.Advance(time.Duration(step.after) * time.Millisecond)
				require.Equal(t, step.ramp, r.ramp("D"))
				require.InDelta(t, 520*step.ramp/(3000+step.ramp), tally(r.picks(520))["D"], 1)
			}
		}
		r.clk.Advance(time.Second / 2)
		r.set("D", false)
		r.clk.Advance(time.Hour)
		require.Equal(t, 250, r.ramp("D"))
		r.set("D", true)
		steps()
		r.update(peersOf(1, 1, 1, 0)...)
		r.clk.Advance(time.Hour)
		require.Equal(t, 500, r.ramp("D"))
		r.update(peersOf(1, 1, 1, 1)...)
		r.clk.Advance(999 * time.Millisecond)
		require.Equal(t, 500, r.ramp("D"))
		r.clk.Advance(time.Millisecond)
		require.Equal(t, 1000, r.ramp("D"))

		// Down when it returns: the ramp begins when it is up.
		r.eject("D")
		r.set("D", false)
		r.clk.Advance(time.Hour)
		require.Equal(t, 250, r.ramp("D"))
		r.set("D", true)
		steps()

		// Its circuit is open for longer than the ejection lasts, and the end of that
		// is noticed late.
		for _, late := range []time.Duration{0, 999 * time.Millisecond, time.Second, time.Minute} {
			cfg := ramped(balancer.RoundRobin{First: true})
			cfg.Breaker = breaker.Config{ConsecutiveFailures: 1, OpenFor: 30 * time.Second}
			r = newRig(t, cfg, peersOf(1, 1, 1, 1)...)
			r.eject("D")
			r.clk.Advance(29 * time.Second)
			require.Equal(t, 250, r.ramp("D"))
			r.clk.Advance(time.Second + late)
			want := map[time.Duration]int{0: 250, 999 * time.Millisecond: 250, time.Second: 500, time.Minute: 1000}[late]
			require.Equal(t, want, r.ramp("D"), "%v late, by a read", late)
			r.pool.Poll()
			require.NoError(t, r.pool.Check())
			require.Equal(t, want, r.ramp("D"), "%v late", late)
		}
	})

	t.Run("A-SS-02", func(t *testing.T) {
		for _, p := range builtin() {
			cfg := ramped(p)
			cfg.Outlier.Last = outlier.EjectLast
			r := newRig(t, cfg, peersOf(1, 1, 1)...)
			for _, u := range r.pool.Snapshot().Upstreams {
				require.Equal(t, 1000, u.Ramp)
			}
			got := tally(r.picks(30))
			if equalTurns(p) {
				require.Equal(t, map[string]int{"A": 10, "B": 10, "C": 10}, got, "%+v", p)
			}
			// All return at once: nobody is refused, and equals stay equal.
			r.returned("A", "B", "C")
			got = tally(r.picks(600))
			for _, id := range []string{"A", "B", "C"} {
				require.Equal(t, 250, r.ramp(id))
				if equalTurns(p) {
					require.InDelta(t, 200, got[id], 4, "%+v", p)
				}
			}
		}
	})

	t.Run("A-SS-03", func(t *testing.T) {
		// One thousandth at first, doubled each second: nine steps in all.
		for _, p := range builtin() {
			cfg := ramped(p)
			cfg.Outlier.RampFrom = 1
			r := newRig(t, cfg, crowd(21, 1)...)
			id := "h00007"
			r.returned(id)
			got, ideal := 0, 0.0
			for sec := range 10 {
				got += tally(r.picks(2100))[id]
				ideal += 2100 * math.Ldexp(1, sec) / (20000 + math.Ldexp(1, sec))
				r.clk.Advance(time.Second)
			}
			require.Equal(t, 1000, r.ramp(id))
			after := tally(r.picks(2100))[id]
			if equalTurns(p) {
				require.InDelta(t, ideal, got, 4, "%+v", p)
				require.InDelta(t, 100, after, 1, "%+v", p)
			} else if p.Name() != "least_conn" && p != assumedSlow() { // by index, the first one gets it all
				require.InDelta(t, ideal, got, 6*math.Sqrt(ideal), "%+v", p)
				require.InDelta(t, 100, after, 6*10, "%+v", p)
			}
		}
	})

	t.Run("A-SS-04", func(t *testing.T) {
		for _, from := range []int{1, 2, 9, 250, 999} {
			for _, growth := range []int{1100, 1500, 2000, 1e6} {
				cfg := ramped(balancer.WeightedRoundRobin{})
				cfg.Outlier.RampFrom, cfg.Outlier.RampGrowth = from, growth
				r := newRig(t, cfg, peersOf(1, 1)...)
				r.returned("B")
				last := from
				require.Equal(t, from, r.ramp("B"))
				for last < 1000 {
					r.clk.Advance(time.Second)
					ramp := r.ramp("B")
					require.Greater(t, ramp, last)
					require.LessOrEqual(t, ramp, 1000)
					last = ramp
				}
				require.Equal(t, map[string]int{"A": 5, "B": 5}, tally(r.picks(10)))
			}
		}
	})
}

// equalTurns tells whether a policy gives equal hosts that have nothing to do
// exactly equal shares.
func equalTurns(p balancer.Policy) bool {
	switch p := p.(type) {
	case balancer.LeastConn:
		return p.Ties == balancer.TiesRotate
	case balancer.RoundRobin, balancer.WeightedRoundRobin, balancer.Hash:
		return true
	}
	return false
}

// assumedSlow does not try a host before it is known to be fast, with or without
// ramps.
func assumedSlow() balancer.Policy {
	return balancer.PeakEWMA{ActivePenalty: time.Second / 2, Unmeasured: time.Second / 10, Fade: -1}
}
