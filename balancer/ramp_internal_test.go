package balancer

import (
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// newRampView is newTestView with ramps.
func newRampView(weights []int, ramps []int16) *View {
	v := newTestView(weights...)
	v.fine = true
	v.follow(ramps)
	return v
}

// On ramps too PeakEWMA compares exactly: (latency * (inflight * 1000 / ramp + 1),
// or latency + penalty * inflight * 1000 / ramp) / weight, as fractions.
func TestPeakEWMACostOnRamp(t *testing.T) {
	latencies := []int64{-1, 1, 1e6, 1 << 40, math.MaxInt64}
	for _, set := range []PeakEWMA{{}, {ActivePenalty: time.Second}, {ActivePenalty: math.MaxInt64}} {
		for n := range 2000 {
			x := func(k uint64, of int) int { return int(below(draw(9, k, uint64(n)), uint64(of))) }
			weights := []int{MaxWeight >> x(0, 21), 1 + x(1, MaxWeight)}
			ramps := []int16{int16(1 + x(2, 1000)), int16(1 + x(3, 1000))}
			v := newRampView(weights, ramps)
			p := set.NewPicker(v, nil).(*peakEWMA)
			var cost [2]*big.Rat
			for i, h := range v.hosts {
				h.latency, h.failing = ewma.NewCore(ewma.Config{Peak: true}), ewma.NewCore(ewma.Config{})
				h.inflight = int32(x(4+uint64(i), maxOnRamp+1) >> x(6+uint64(i), 24))
				d := latencies[x(8+uint64(i), len(latencies))]
				if d >= 0 {
					h.latency.Observe(0, d)
				}
				latency, known := p.latency(h, 0)
				require.Equal(t, d >= 0, known)
				out := big.NewRat(int64(h.inflight)*1000, int64(ramps[i]))
				l := new(big.Rat).SetInt(new(big.Int).SetUint64(latency))
				if set.ActivePenalty == 0 || !known {
					cost[i] = out.Add(out, big.NewRat(1, 1)).Mul(out, l)
				} else {
					cost[i] = out.Mul(out, big.NewRat(int64(set.ActivePenalty), 1)).Add(out, l)
				}
				cost[i].Quo(cost[i], big.NewRat(int64(weights[i]), 1))
			}
			ah, al := p.onRamp(0, 1, 0)
			bh, bl := p.onRamp(1, 0, 0)
			got := 0
			switch {
			case ah > bh || ah == bh && al > bl:
				got = 1
			case ah != bh || al != bl:
				got = -1
			}
			require.Equal(t, cost[0].Cmp(cost[1]), got, "%+v %+v: %+v, %+v", weights, ramps, v.hosts[0], v.hosts[1])
		}
	}
}

// Every set of usable hosts of up to 5, ordinary draws and the extreme ones, ramps
// that let hardly anything through: a draw ends and is usable.
func TestDrawsOnRampEnd(t *testing.T) {
	calls := []Call{}
	for k := range uint64(2*rejections + 3) {
		calls = append(calls, drawsZero(k), drawsOnes(k), Call{draw: k})
	}
	for n := 1; n <= 5; n++ {
		for mask := 1; mask < 1<<n; mask++ {
			ramps := []int16{1, 1000, 1, 999, 2}[:n]
			v := newRampView([]int{1, 2, 3, 4, MaxWeight}[:n], ramps)
			for i := range n {
				v.usable.set(i, mask>>i&1 != 0)
			}
			for _, p := range []Policy{Random{}, TwoRandom{}, PeakEWMA{}, LeastConn{}, LeastConn{Ties: TiesRandom}, LeastConn{Ties: TiesIndex},
				RoundRobin{}, RoundRobin{IndexCursor: true}, WeightedRoundRobin{}} {
				pick := p.NewPicker(v, nil)
				for _, c := range calls {
					require.True(t, v.Usable(v.drawOnRamp(c, 0)))
					a, b := v.drawPair(c)
					require.True(t, v.Usable(a) && v.Usable(b))
					require.True(t, v.Usable(pick.Pick(c)), "%+v, %d hosts, usable %b", p, n, mask)
				}
			}
		}
	}
}

// The draws of the few that are usable among many are in proportion to the ramps,
// which is where they are drawn by rank.
func TestDrawOnRampOfFew(t *testing.T) {
	weights, ramps := make([]int, 200), make([]int16, 200)
	for i := range weights {
		weights[i], ramps[i] = 1, fullRamp
	}
	ramps[3], ramps[70], ramps[199] = 100, 400, 500
	v := newRampView(weights, ramps)
	for i := range weights {
		v.usable.set(i, i == 3 || i == 70 || i == 199)
	}
	got := map[int]int{}
	for r := range uint64(10000) {
		got[v.drawOnRamp(Call{draw: draw(7, streamPick, r)}, 0)]++
	}
	for i, want := range map[int]float64{3: 1000, 70: 4000, 199: 5000} {
		require.InDelta(t, want, got[i], 200, "host %d", i)
	}
	// The smallest ramps are as exact.
	ramps[3], ramps[70], ramps[199] = 1, 1, 1
	clear(got)
	for r := range uint64(9000) {
		got[v.drawOnRamp(Call{draw: draw(7, streamPick, r)}, 0)]++
	}
	for _, i := range []int{3, 70, 199} {
		require.InDelta(t, 3000, got[i], 200, "host %d", i)
	}
}

// What a restored state says that hosts are owed makes odd picks and no harm.
func TestTurnsTakeAnyState(t *testing.T) {
	for seed := range uint64(200) {
		v := newRampView([]int{1, 1, 1}, []int16{1, 500, 1000})
		for i, h := range v.hosts {
			h.scratch = [2]uint64{draw(seed, 1, uint64(i)) >> (seed % 64), draw(seed, 2, uint64(i))}
		}
		for _, p := range []Policy{RoundRobin{}, RoundRobin{IndexCursor: true}, LeastConn{}} {
			pick := p.NewPicker(v, nil)
			for range 100 {
				require.True(t, v.Usable(pick.Pick(Call{})))
			}
		}
	}
}

// A point of a host's range counts if it lies before what its ramp serves of it.
func TestRampServesItsPoints(t *testing.T) {
	v := newRampView([]int{1, 1}, []int16{3, 1000})
	pick := Random{}.NewPicker(v, nil)
	for point := range uint64(10) {
		// The smallest draw that falls on the point, of 2000, as the first of a call.
		x := (math.MaxUint64/2000 + 1) * point
		require.Equal(t, point, below(x, 2000))
		c := Call{draw: unmix(x) - golden}
		require.Equal(t, x, c.Draw(0))
		want := b2i(point >= 3) // host 0, or what is drawn next, which is hardly ever host 0
		require.Equal(t, want, v.drawOnRamp(c, 0), "point %d", point)
		require.Equal(t, want, pick.Pick(c), "point %d", point)
	}
}

// Where all let their turns pass, the first of those who are owed most takes one,
// and pays what they have gained, but no more than a turn.
func TestTurnsThatAllPass(t *testing.T) {
	for _, c := range []struct {
		ramp   int16
		pays   int64
		owed   []int64
		winner int
	}{
		{100, 300, []int64{0, 5, 5}, 1},
		{400, 1000, []int64{-7, -7, -8}, 0},
	} {
		v := newRampView([]int{1, 1, 1}, []int16{c.ramp, c.ramp, c.ramp})
		for i, h := range v.hosts {
			h.setTurn(c.owed[i], neverOffered)
		}
		s := newTurns(v, 3)
		require.Equal(t, -1, s.offer(0))
		require.Equal(t, -1, s.offer(1))
		require.Equal(t, c.winner, s.offer(2))
		for i, h := range v.hosts {
			want := c.owed[i] + int64(c.ramp)
			if i == c.winner {
				want -= c.pays
			}
			owed, offered := h.turn()
			require.Equal(t, want, owed, "host %d", i)
			require.EqualValues(t, neverOffered, offered)
		}
	}
	require.Equal(t, maxPassed, newTurns(newRampView(nil, nil), 1000).left)
}

// The second of a pair is drawn by draws of its own, and competes in as many cases
// as its ramp is of the first's.
func TestPairOnTwoRamps(t *testing.T) {
	for _, ramps := range [][]int16{{250, 500, 1000, 20, 500}, {1, 1, 1}} {
		v := newRampView([]int{1, 1, 1, 1, 1}[:len(ramps)], ramps)
		const n = 200000
		got := map[[2]int]int{}
		for r := range uint64(n) {
			a, b := v.drawPair(Call{draw: draw(5, streamPick, r)})
			got[[2]int{a, b}]++
		}
		sum := 0
		for _, r := range ramps {
			sum += int(r)
		}
		for i := range ramps {
			for j := range ramps {
				if i == j {
					continue
				}
				want := n * float64(min(ramps[i], ramps[j])) / float64(sum*(len(ramps)-1))
				require.InDelta(t, want, got[[2]int{i, j}], 4.5*math.Sqrt(want), "%d and %d", i, j)
			}
		}
	}
}

// The second of a pair competes in exactly its ramp of a thousand cases.
func TestPairOnRamp(t *testing.T) {
	v := newRampView([]int{1, 1}, []int16{1000, 250})
	for part := range uint64(1000) {
		x := (math.MaxUint64/1000 + 1) * part
		require.Equal(t, part, below(x, 1000))
		k := uint64(2 * (rejections + 1))
		c := Call{draw: unmix(x) - (k+1)*golden}
		a, b := v.drawPair(c)
		if a == 0 {
			require.Equal(t, b2i(part < 250), b, "part %d", part)
		} else {
			require.Equal(t, 0, b)
		}
	}
}

// More calls in flight than a product has room for cost as much as the most that
// it has room for.
func TestPeakEWMAOverTheTopOnRamp(t *testing.T) {
	v := newRampView([]int{1, MaxWeight}, []int16{1, 999})
	h := v.hosts[0]
	h.latency, h.failing = ewma.NewCore(ewma.Config{Peak: true}), ewma.NewCore(ewma.Config{})
	h.latency.Observe(0, 1e6)
	for _, set := range []PeakEWMA{{}, {ActivePenalty: time.Second}} {
		p := set.NewPicker(v, nil).(*peakEWMA)
		h.inflight = maxOnRamp
		wantHi, wantLo := p.onRamp(0, 1, 0)
		for _, n := range []int32{maxOnRamp + 1, 1 << 24, 1 << 30, math.MaxInt32} {
			h.inflight = n
			hi, lo := p.onRamp(0, 1, 0)
			require.Equal(t, [2]uint64{wantHi, wantLo}, [2]uint64{hi, lo})
		}
		h.inflight = maxOnRamp - 1
		hi, lo := p.onRamp(0, 1, 0)
		require.True(t, hi < wantHi || hi == wantHi && lo < wantLo)
	}
}

// Which keys a host serves already is its own: of those that one passes on
// another on the same ramp keeps its part.
func TestKeepsDiffersByHost(t *testing.T) {
	a, b := hashID("a"), hashID("b")
	passed, kept := 0, 0
	for k := range uint64(10000) {
		if key := draw(3, 1, k); !keeps(a, key, 500) {
			passed++
			kept += b2i(keeps(b, key, 500))
		}
	}
	require.InDelta(t, 5000, passed, 200)
	require.InDelta(t, 2500, kept, 200)
}

// The wheel has no more points on a lap than ramps need, and buckets that fit them.
func TestWheelPointsOnRamp(t *testing.T) {
	weights, ramps := make([]int, 40), make([]int16, 40)
	for i := range weights {
		weights[i], ramps[i] = 3000*(1+i%2), fullRamp
	}
	points := func(ramps []int16) (out []int) {
		v := newRampView(weights, ramps)
		w := newWheel(v)
		total := uint64(0)
		for _, on := range w.on {
			out = append(out, int(on.weight))
			total += uint64(on.weight)
		}
		require.Equal(t, bucketShift(total), w.shift)
		return out
	}
	require.Equal(t, weights, points(nil), "as without ramps")
	ramps[1], ramps[2] = 250, 500
	want := slices.Clone(weights)
	for i := range want {
		want[i] = want[i] / 3000 * 4
	}
	want[1], want[2] = 2, 2
	require.Equal(t, want, points(ramps))
	ramps[1] = 333
	for i := range want {
		want[i] = weights[i] / 3000 * 1000
	}
	want[1], want[2] = 666, 500
	require.Equal(t, want, points(ramps))
	clear(weights)
	require.Equal(t, weights, points(ramps))
}

// Where a wheel stands, steps lead to the same places one by one and at once, and
// there and back again to those that there were.
func TestWheelStepsAddUp(t *testing.T) {
	weights := make([]int, 40)
	for i := range weights {
		weights[i] = 1 + i*i%23
	}
	for seed := range uint64(200) {
		var views [2]*View
		var wheels [2]*wheel
		for k := range views {
			views[k] = newRampView(weights, nil)
			wheels[k] = newWheel(views[k])
			for range seed {
				wheels[k].Pick(Call{})
			}
		}
		begun := views[0].hosts[7].scratch
		ramps := func(a, b int16) []int16 {
			out := make([]int16, len(weights))
			for i := range out {
				out[i] = fullRamp
			}
			out[7], out[8] = a, b
			return out
		}
		for _, r := range [][]int16{ramps(250, 1000), ramps(333, 17), ramps(999, 400), nil} {
			views[0].follow(r)
			wheels[0] = newWheel(views[0])
		}
		require.Equal(t, begun, views[0].hosts[7].scratch)
		views[0].follow(ramps(250, 700))
		newWheel(views[0])
		for _, v := range views {
			v.follow(ramps(500, 1000))
			newWheel(v)
		}
		for i := range weights {
			require.Equal(t, views[1].hosts[i].scratch, views[0].hosts[i].scratch, "host %d", i)
		}
	}
}

// A walk past hosts that do not serve the key yet ends after its bound.
func TestWalkIsBoundedOnRamp(t *testing.T) {
	v := newRampView([]int{1, 500, 500, 500, 1, 500, 500}, []int16{1000, 1, 1, 1, 1000, 1, 1})
	p := Hash{}.NewPicker(v, nil)
	far, jumps := 0, 0
	for k := range uint64(400) {
		key := draw(4, 1, k)
		i := p.Pick(Call{key: key, flags: 1})
		if v.Ramp(i) != fullRamp {
			continue // it serves the key, or a host in full service was near
		}
		walk, steps := p.(*hash).ring.Walk(key), 0
		near := -1
		for near < 0 {
			steps++
			if j, _ := walk.Next(); v.Ramp(j) == fullRamp {
				near = j
			}
		}
		if steps <= maxWalked {
			require.Equal(t, near, i)
			continue
		}
		far++
		jumps += b2i(i != near)
		require.Equal(t, v.full.next(int(below(mix(key), 7))), i)
	}
	require.Positive(t, far)
	require.Positive(t, jumps)
}
