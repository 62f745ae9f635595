package balancer_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// With nothing to do, a host on a ramp gets what its ramp says under every
// policy: exactly where there are turns, on average where there are draws.
func TestRampSharesOfIdleHosts(t *testing.T) {
	seed, fixed := seedOf(t, 7)
	for _, n := range []int{4, 40} {
		for _, p := range builtin() {
			if p == assumedSlow() {
				continue
			}
			cfg := ramped(p)
			cfg.Seed = seed
			r := newRig(t, cfg, crowd(n, 1)...)
			r.picks(7)
			id := "h00001"
			r.returned(id)
			for _, ramp := range []int{250, 500, 1000} {
				require.Equal(t, ramp, r.ramp(id))
				picks := 80 * n
				share := float64(ramp) / float64((n-1)*1000+ramp)
				got := tally(r.picks(picks))
				name := fmt.Sprintf("%d hosts, %+v at %d: %v", n, p, ramp, got)
				switch l, _ := p.(balancer.LeastConn); {
				case l.Ties == balancer.TiesIndex: // the first is picked for ever
					require.Equal(t, map[string]int{"h00000": picks}, got)
				case equalTurns(p):
					require.InDelta(t, share*float64(picks), got[id], 1.001, name)
				default:
					// Four standard deviations.
					width := 4 * math.Sqrt(float64(picks)*share*(1-share))
					band(t, fixed, got[id], picks, share, width)
				}
				require.LessOrEqual(t, len(got), n)
				r.clk.Advance(time.Second)
			}
		}
	}
}

// LeastConn by index gives the host that would have everything a part of it.
func TestRampOfTheFirstByIndex(t *testing.T) {
	r := newRig(t, ramped(balancer.LeastConn{Ties: balancer.TiesIndex}), peersOf(1, 1, 1)...)
	r.returned("A")
	require.Equal(t, map[string]int{"A": 100, "B": 300}, tally(r.picks(400)))
}

// With calls piling up, in-flight counts are in proportion to the ramps where
// load decides.
func TestRampUnderLoad(t *testing.T) {
	for _, n := range []int{4, 40} {
		for _, p := range []balancer.Policy{balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.LeastConn{Ties: balancer.TiesIndex}, balancer.TwoRandom{}, balancer.PeakEWMA{}} {
			r := newRig(t, ramped(p), crowd(n, 2)...)
			id := "h00001"
			r.returned(id)
			for _, ramp := range []int{250, 500, 1000} {
				require.Equal(t, ramp, r.ramp(id))
				var held []balancer.Lease[peer]
				per := 40
				if p.Name() == "p2c_ewma" { // all have answered, and equally fast
					for _, u := range r.pool.Snapshot().Upstreams {
						r.answer(u.ID, time.Millisecond)
					}
				}
				for range (n-1)*per + per*ramp/1000 {
					held = append(held, r.hold())
				}
				got := map[string]int{}
				for _, l := range held {
					got[l.Upstream().id]++
				}
				want, slack := float64(per*ramp)/1000, 3.0
				switch p {
				case balancer.LeastConn{Ties: balancer.TiesRandom}:
					// A draw that hits it while it is not the least loaded is lost.
					want, slack = want*3/4, want/4+1
				case balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesIndex}:
					slack = 1
				}
				require.InDelta(t, want, got[id], slack, "%+v at %d: %v", p, ramp, got)
				for _, l := range held {
					l.Release(balancer.Ignored)
				}
				r.clk.Advance(time.Second)
			}
		}
	}
}

// However much faster than the others, a host on a ramp gets no more than twice
// its share from PeakEWMA, and however much slower, not nothing of the draws.
func TestRampCapsTheFastest(t *testing.T) {
	seed, fixed := seedOf(t, 7)
	for _, n := range []int{2, 10} {
		cfg := ramped(balancer.PeakEWMA{})
		cfg.Seed = seed
		r := newRig(t, cfg, crowd(n, 1)...)
		r.returned("h00000")
		for i, u := range r.pool.Snapshot().Upstreams {
			r.answer(u.ID, time.Duration(1+1000*i)*time.Millisecond)
		}
		share := 0.25 / (float64(n) - 0.75)
		// First in its share of draws, and second in as many of the others.
		most := share + (1-share)*0.25/float64(n-1)
		got := 0
		for range 20000 {
			l := r.hold()
			got += b2i(l.Upstream().id == "h00000")
			l.Release(balancer.Ignored)
		}
		band(t, fixed, got, 20000, most, 4*math.Sqrt(20000*most*(1-most)))
	}
}

// Hosts that are as far on their ramps as each other are chosen by load and
// latency as if there were no ramp, where two are compared: one that hangs gets
// nothing.
func TestRampOfAWholeTierChooses(t *testing.T) {
	for _, p := range []balancer.Policy{balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.LeastConn{Ties: balancer.TiesIndex}} {
		cfg := ramped(p)
		cfg.Outlier.Last, cfg.Outlier.RampStep = outlier.EjectLast, time.Hour
		r := newRig(t, cfg, crowd(10, 1)...)
		for _, ramp := range []int{1000, 250} {
			if ramp < 1000 {
				var ids []string
				for i := range 10 {
					ids = append(ids, fmt.Sprintf("h%05d", i))
				}
				r.returned(ids...)
			}
			require.Equal(t, ramp, r.ramp("h00003"))
			for _, u := range r.pool.Snapshot().Upstreams {
				if p.Name() == "p2c_ewma" {
					r.answer(u.ID, time.Millisecond)
				}
			}
			held := r.load("h00003", 20)
			r.clk.Advance(500 * time.Millisecond)
			require.Zero(t, tally(r.picks(2000))["h00003"], "%+v at %d", p, ramp)
			for _, l := range held {
				l.Release(balancer.Ignored)
			}
		}
	}
}

// The draws of a request stay where they are while a ramp grows, but for those
// that the growing host takes.
func TestRampMovesDrawsOneWay(t *testing.T) {
	for _, p := range []balancer.Policy{balancer.Random{}, balancer.TwoRandom{}, balancer.LeastConn{Ties: balancer.TiesRandom}} {
		for _, weights := range [][]int{{1}, {1, 2, 3}} {
			if p.Name() == "least_conn" && len(weights) > 1 {
				continue // not a matter of weights
			}
			cfg := ramped(p)
			cfg.Outlier.RampFrom, cfg.Outlier.RampGrowth = 100, 1500
			r := newRig(t, cfg, crowd(10, weights...)...)
			r.returned("h00004")
			var last []string
			for {
				now := make([]string, 500)
				for i := range now {
					l, err := r.pool.Acquire(balancer.Request{ID: uint64(i + 1e6)})
					require.NoError(t, err)
					l.Release(balancer.Ignored)
					now[i] = l.Upstream().id
				}
				if last != nil {
					n := moved(last, now, func(from, to string) {
						require.True(t, to == "h00004" || p.Name() == "two_random" && from != "h00004", "%s from %s to %s", p.Name(), from, to)
					})
					require.Positive(t, n)
				}
				if last = now; r.ramp("h00004") == 1000 {
					break
				}
				r.clk.Advance(time.Second)
			}
		}
	}
}

// The keys of a host come back to it in the course of its ramp, each once, and
// no other key moves.
func TestRampOfKeys(t *testing.T) {
	const keys = 4000
	cfg := ramped(balancer.Hash{})
	cfg.Outlier.RampFrom, cfg.Outlier.RampGrowth = 100, 1500
	r := newRig(t, cfg, named("ABCDE")...)
	home := r.owners("k", keys)
	r.eject("C")
	away := r.owners("k", keys)
	r.clk.Advance(time.Second)
	last := away
	for {
		ramp := r.ramp("C")
		now := r.owners("k", keys)
		moved(last, now, func(from, to string) { require.Equal(t, "C", to) })
		own := float64(tally(home)["C"])
		require.InDelta(t, float64(ramp)/1000, float64(tally(now)["C"])/own, 0.07)
		moved(now, home, func(from, to string) { require.Equal(t, "C", to) })
		moved(now, away, func(from, to string) { require.Equal(t, "C", from) })
		require.Equal(t, now, r.owners("k", keys), "the same keys again")
		// With everyone else down it serves all, not yet its own or not.
		r.only("C", func() { require.Equal(t, map[string]int{"C": 100}, tally(r.owners("k", 100))) })
		if last = now; ramp == 1000 {
			break
		}
		r.clk.Advance(time.Second)
	}
	require.Equal(t, home, last)
}

// Where only hosts on ramps are left a pick finds one, in their proportions
// where turns decide.
func TestRampWhereNobodyElseIsLeft(t *testing.T) {
	for _, n := range []int{3, 40, 200} {
		for _, p := range builtin() {
			cfg := ramped(p)
			cfg.Outlier.RampFrom = 20
			r := newRig(t, cfg, crowd(n, 1)...)
			r.returned("h00000")
			for range 4 {
				r.clk.Advance(time.Second)
			}
			r.pool.Poll()
			old := r.ramp("h00000")
			require.Equal(t, 320, old)
			for i := 2; i < n; i++ {
				r.set(fmt.Sprintf("h%05d", i), false)
			}
			// h00000 is at 320, and alone while h00001 is out.
			r.eject("h00001")
			got := tally(r.picks(50))
			require.Equal(t, map[string]int{"h00000": 50}, got, "%+v", p)
			r.clk.Advance(time.Second)
			// 640 and 20.
			got = tally(r.picks(6600))
			if p == assumedSlow() {
				require.Equal(t, map[string]int{"h00000": 6600}, got, "h00001 is not tried before the other has been slow")
				continue
			}
			require.Equal(t, []string{"h00000", "h00001"}, slices.Sorted(maps.Keys(got)), "%+v", p)
			switch {
			case p.Name() == "p2c_ewma" || p == (balancer.LeastConn{Ties: balancer.TiesIndex}):
			case equalTurns(p):
				require.InDelta(t, 200, got["h00001"], 3, "%d hosts, %+v: %v", n, p, got)
			default:
				require.InDelta(t, 200, got["h00001"], 6*14, "%d hosts, %+v: %v", n, p, got)
			}
			require.Zero(t, r.pool.Snapshot().Totals.BadPicks)
		}
	}
}

// A whole tier that returns at once: everyone is served, whatever the ramp.
func TestRampOfAWholeTier(t *testing.T) {
	for _, p := range builtin() {
		cfg := ramped(p)
		cfg.Outlier.RampFrom, cfg.Outlier.Last, cfg.WhenNone = 3, outlier.EjectLast, balancer.FailFast
		r := newRig(t, cfg, crowd(150, 1)...)
		var held []balancer.Lease[peer]
		for _, u := range r.pool.Snapshot().Upstreams {
			held = append(held, r.load(u.ID, 1)...)
		}
		for _, l := range held {
			l.Release(balancer.TransportFailure)
		}
		_, err := r.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		r.clk.Advance(time.Second)
		got := tally(r.picks(3000))
		if equalTurns(p) {
			require.Len(t, got, 150, "%+v", p)
			for id, k := range got {
				require.InDelta(t, 20, k, 3, "%+v: %s", p, id)
			}
		}
	}
}

// A step loses nothing that a host has on the way to its next turn, and gives
// nobody two turns for one: over a ramp of many steps, one before every pick,
// each host's count is within two of the sum of its shares at every moment.
func TestRampStepsCarryProgress(t *testing.T) {
	for _, n := range []int{4, 40} {
		for _, p := range []balancer.Policy{balancer.RoundRobin{}, balancer.RoundRobin{IndexCursor: true}, balancer.WeightedRoundRobin{}, balancer.LeastConn{}} {
			cfg := ramped(p)
			cfg.Outlier.RampFrom, cfg.Outlier.RampGrowth, cfg.Outlier.RampStep = 50, 1100, time.Millisecond
			r := newRig(t, cfg, crowd(n, 1)...)
			r.returned("h00002")
			got, ideal := map[string]int{}, map[string]float64{}
			for k := range 40 * n {
				for _, u := range r.pool.Snapshot().Upstreams {
					ideal[u.ID] += u.Expected
				}
				got[r.next()]++
				for id, x := range ideal {
					require.InDelta(t, x, got[id], 2, "%d hosts, %+v: %s after %d picks", n, p, id, k+1)
				}
				if k%n == 0 {
					r.clk.Advance(time.Millisecond)
				}
			}
			require.Equal(t, 1000, r.ramp("h00002"))
		}
	}
}

// Weights and ramps multiply.
func TestRampTimesWeight(t *testing.T) {
	both(t, func(t *testing.T, _ func(...int) *rig, grow func([]peer) []peer) {
		for _, ignore := range []bool{false, true} {
			cfg := ramped(balancer.WeightedRoundRobin{First: true})
			cfg.IgnoreWeights = ignore
			r := newRig(t, cfg, grow(peersOf(8, 2, 1))...)
			for _, u := range r.pool.Snapshot().Upstreams[3:] {
				r.set(u.ID, false)
			}
			r.returned("A")
			want := map[string]int{"A": 200, "B": 200, "C": 100}
			if ignore {
				want = map[string]int{"A": 50, "B": 200, "C": 200}
			}
			sum := 0
			for _, k := range want {
				sum += k
			}
			for id, k := range tally(r.picks(sum)) {
				require.InDelta(t, want[id], k, 1)
			}
			for _, p := range r.pool.Snapshot().Distribution()[:3] {
				require.InDelta(t, float64(want[p.ID])/float64(sum), p.Expected, 1e-9)
			}
		}
	})
}

// The wheel counts in thousandths, and the heaviest weights do not overflow it.
func TestRampOfTheHeaviest(t *testing.T) {
	for _, n := range []int{3, 40} {
		r := newRig(t, ramped(balancer.WeightedRoundRobin{}), crowd(n, balancer.MaxWeight)...)
		require.GreaterOrEqual(t, len(tally(r.picks(n))), n-1)
		r.returned("h00001")
		picks := 4*n - 3
		for id, k := range tally(r.picks(20 * picks)) {
			want := 80
			if id == "h00001" {
				want = 20
			}
			require.InDelta(t, want, k, 2, id)
		}
		require.Equal(t, 250, r.ramp("h00001"))
		// The same set again changes nothing.
		saved := r.pool.Save()
		r.update(crowd(n, balancer.MaxWeight)...)
		require.Equal(t, saved, r.pool.Save())
	}
}

// Where nobody serves a key yet, the first usable owner on the ring does.
func TestRampOfKeysThatNobodyServes(t *testing.T) {
	cfg := ramped(balancer.Hash{})
	cfg.Outlier.RampFrom = 1
	r := newRig(t, cfg, named("ABCDE")...)
	for _, id := range []string{"A", "C", "D"} {
		r.set(id, false)
	}
	want := r.owners("k", 1000)
	require.Len(t, tally(want), 2)
	for _, id := range []string{"A", "C", "D"} {
		r.set(id, true)
	}
	r.returned("B", "E")
	for _, id := range []string{"A", "C", "D"} {
		r.set(id, false)
	}
	require.Less(t, moved(want, r.owners("k", 1000), func(string, string) {}), 10)
}

// Beside busy hosts one on a ramp is idle most of the time, and the least loaded
// of all; it gets no more of the traffic for that.
func TestRampBesideBusyHosts(t *testing.T) {
	for _, ties := range []balancer.Ties{balancer.TiesRotate, balancer.TiesRandom} {
		for _, n := range []int{4, 40} {
			for _, from := range []int{10, 250} {
				for _, calls := range []int{1, n - 1, 2 * n, 10 * n} {
					cfg := ramped(balancer.LeastConn{Ties: ties})
					cfg.Outlier.RampFrom, cfg.Outlier.RampStep = from, time.Hour
					r := newRig(t, cfg, crowd(n, 1)...)
					r.returned("h00002")
					var held []balancer.Lease[peer]
					got := 0
					const picks = 8000
					for i := range uint64(picks) {
						if len(held) == calls {
							k := int(mixed(i) % uint64(calls))
							held[k].Release(balancer.Ignored)
							held = slices.Delete(held, k, k+1)
						}
						l := r.hold()
						held = append(held, l)
						got += b2i(l.Upstream().id == "h00002")
					}
					share := picks * float64(from) / float64(1000*(n-1)+from)
					width := 1.5
					if ties == balancer.TiesRandom {
						width = 4 * math.Sqrt(share)
					}
					name := fmt.Sprintf("ties %v, %d hosts at %d, %d calls", ties, n, from, calls)
					require.LessOrEqual(t, float64(got), share+width, name)
					if calls == 1 { // with more it is not always the least loaded when its turn comes
						require.GreaterOrEqual(t, float64(got), share-width, name)
					}
				}
			}
		}
	}
}

// Where more hosts on a ramp stand side by side than may let one pick pass, they
// get their shares all the same, each of them, and so do the others.
func TestRampOfManySideBySide(t *testing.T) {
	for _, p := range []balancer.Policy{balancer.RoundRobin{}, balancer.RoundRobin{IndexCursor: true}, balancer.LeastConn{}} {
		for _, n := range []int{100, 300} {
			cfg := ramped(p)
			cfg.Outlier.RampFrom, cfg.Outlier.RampStep = 10, time.Hour
			r := newRig(t, cfg, crowd(2*n, 1)...)
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprintf("h%05d", i))
			}
			r.returned(ids...)
			rounds := 400
			got := tally(r.picks(rounds * n))
			for id, k := range got {
				want := float64(rounds) / 1.01
				if id < fmt.Sprintf("h%05d", n) {
					want /= 100
				}
				require.InDelta(t, want, k, 1.5+0.04*want, "%+v, %d of %d: %s", p, n, 2*n, id)
			}
			require.Len(t, got, 2*n, "%+v", p)
		}
	}
}

// The policies that use a word of a host's scratch for its turns leave the other
// one to whoever wraps them.
func TestRampLeavesTheSecondWord(t *testing.T) {
	for _, p := range []balancer.Policy{balancer.RoundRobin{}, balancer.RoundRobin{IndexCursor: true}, balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesIndex}} {
		w := &counting{Policy: p}
		r := newRig(t, ramped(w), peersOf(1, 1, 1)...)
		r.returned("B")
		for range 4 {
			r.picks(100)
			r.clk.Advance(time.Second)
			r.update(peersOf(1, 1, 1)...)
		}
		sum := uint64(0)
		for i := range 3 {
			sum += w.v.Scratch(i)[1]
		}
		require.EqualValues(t, r.pool.Snapshot().Totals.Attempts, sum, "%+v", p)
	}
}

// counting counts the picks of each host in the second word of its scratch.
type counting struct {
	balancer.Policy
	v *balancer.View
}

func (c *counting) NewPicker(v *balancer.View, prev balancer.Picker) balancer.Picker {
	c.v = v
	if p, ok := prev.(countingPicker); ok {
		prev = p.Picker
	}
	p := countingPicker{c.Policy.NewPicker(v, prev), v}
	if f, ok := p.Picker.(balancer.Follower); ok {
		return countingFollower{p, f}
	}
	return p
}

type countingPicker struct {
	balancer.Picker
	v *balancer.View
}

func (p countingPicker) Pick(c balancer.Call) int {
	i := p.Picker.Pick(c)
	p.v.Scratch(i)[1]++
	return i
}

type countingFollower struct {
	countingPicker
	balancer.Follower
}

// Where hardly anybody serves his keys a pick does not walk the whole ring: the
// few in full service share what is left, each key at one of them; without any,
// everyone serves his keys as ever.
func TestRampOfKeysThatHardlyAnybodyServes(t *testing.T) {
	cfg := ramped(balancer.Hash{})
	cfg.Outlier.RampFrom, cfg.Outlier.RampStep, cfg.Outlier.Last = 1, time.Hour, outlier.EjectLast
	weights := []int{1}
	for range 10 {
		weights = append(weights, 100)
	}
	r := newRig(t, cfg, crowd(33, weights...)...) // every 11th has a 1001st of the weight
	home := r.owners("k", 3000)
	var heavy []string
	for i := range 33 {
		if i%11 != 0 {
			heavy = append(heavy, fmt.Sprintf("h%05d", i))
		}
	}
	r.returned(heavy...)
	now := r.owners("k", 3000)
	got := tally(now)
	for _, id := range []string{"h00000", "h00011", "h00022"} {
		require.InDelta(t, 1000, got[id], 250)
	}
	require.InDelta(t, 90, 3000-got["h00000"]-got["h00011"]-got["h00022"], 50, "a thousandth of 30 hosts")
	require.Equal(t, now, r.owners("k", 3000))
	r.returned("h00000", "h00011", "h00022")
	require.Less(t, moved(home, r.owners("k", 3000), func(string, string) {}), 200)
}

// Beside a busy host and one on a ramp the idle ones are drawn alike.
func TestRampDrawsOfTheRest(t *testing.T) {
	r := newRig(t, ramped(balancer.LeastConn{Ties: balancer.TiesRandom}), peersOf(1, 1, 1, 1)...)
	r.load("B", 1)
	r.returned("A")
	const n = 13000
	got := tally(r.picks(n))
	require.InDelta(t, n/13, got["A"], 4*math.Sqrt(n/13))
	require.InDelta(t, n*6/13, got["C"], 4*math.Sqrt(n/4))
	require.InDelta(t, n*6/13, got["D"], 4*math.Sqrt(n/4))
}

// The rotation of LeastConn stays where it is if there is one to choose only, also
// beside a host on a ramp.
func TestRampLeavesTheRotation(t *testing.T) {
	r := newRig(t, ramped(balancer.LeastConn{}), peersOf(1, 1, 1, 1)...)
	r.returned("D")
	r.set("D", false) // on its ramp, which stands still
	for r.next() != "A" {
		continue
	}
	held := append(r.load("B", 1), r.load("A", 1)...)
	for range 5 {
		require.Equal(t, "C", r.next(), "the only idle one")
	}
	for _, l := range held {
		l.Release(balancer.Ignored)
	}
	require.Equal(t, "BCABCA", r.line(6))
}
