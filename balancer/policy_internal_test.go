package balancer

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// newTestView makes a tier of usable hosts with the given weights, without a
// Pool around it.
func newTestView(weights ...int) *View {
	n := len(weights)
	v := &View{usable: newBitmap(n), spare: newBitmap(n)}
	v.set = &v.usable
	for i, w := range weights {
		id := fmt.Sprintf("h%05d", i)
		v.hosts = append(v.hosts, &host{id: id, weight: int32(w), index: int32(i), oldestSince: never})
		v.usable.set(i, w > 0)
	}
	return v
}

// drawsZero is a Call whose k-th draw is 0, and drawsOnes one whose k-th draw is
// all ones: mix is a bijection, so there is one for each k.
func drawsZero(k uint64) Call { return Call{draw: -(k + 1) * golden} }
func drawsOnes(k uint64) Call { return Call{draw: unmix(math.MaxUint64) - (k+1)*golden} }

// unmix is the inverse of mix.
func unmix(x uint64) uint64 {
	x ^= x>>31 ^ x>>62
	x *= 0x319642b2d24d8ec3
	x ^= x>>27 ^ x>>54
	x *= 0x96de1b173f119089
	return x ^ x>>30 ^ x>>60
}

func TestDrawVectors(t *testing.T) {
	for _, c := range [][4]uint64{
		{0, 0, 0, 0x33fe8bd4f9c57863},
		{1, 2, 3, 0x9952c54fc2eb3288},
		{7, 1, 42, 0xc862b9ae43767467},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, 0xf8b2085b47e6d3af},
	} {
		require.Equal(t, c[3], draw(c[0], c[1], c[2]), "%#x", draw(c[0], c[1], c[2]))
	}
	for x := range uint64(1000) {
		require.Equal(t, x*golden, unmix(mix(x*golden)))
	}
	require.Zero(t, drawsZero(5).Draw(5))
	require.Equal(t, uint64(math.MaxUint64), drawsOnes(5).Draw(5))
}

// Every set of usable hosts of up to 6, every host to skip, ordinary draws and
// the extreme ones: a draw ends, is usable and is not the one skipped.
func TestDrawsEnd(t *testing.T) {
	calls := []Call{}
	for k := range uint64(2*rejections + 2) {
		calls = append(calls, drawsZero(k), drawsOnes(k), Call{draw: k})
	}
	for n := 1; n <= 6; n++ {
		for mask := 1; mask < 1<<n; mask++ {
			v := newTestView(slices.Repeat([]int{1}, n)...)
			for i := range n {
				v.usable.set(i, mask>>i&1 != 0)
			}
			for _, c := range calls {
				for skip := -1; skip < n; skip++ {
					if v.UsableCount() == 1 && skip >= 0 && v.Usable(skip) {
						continue
					}
					i := v.drawUsable(c, 0, skip)
					require.True(t, v.Usable(i) && i != skip, "n=%d mask=%b skip=%d drew %d", n, mask, skip, i)
				}
				a, b := v.drawPair(c)
				require.True(t, v.Usable(a) && v.Usable(b))
				require.Equal(t, v.UsableCount() == 1, a == b)
			}
		}
	}
	// Weights that make nearly all draws hit a host that is out.
	for _, p := range []Policy{Random{}, TwoRandom{}, PeakEWMA{}} {
		v := newTestView(MaxWeight, 1, 2)
		pick := p.NewPicker(v, nil)
		v.usable.set(0, false)
		if f, ok := pick.(Follower); ok {
			f.Changed(0)
		}
		got := [3]int{}
		for _, c := range calls {
			got[pick.Pick(c)]++
		}
		require.Zero(t, got[0])
		if p != (PeakEWMA{}) { // which prefers the heavier of two that are idle
			require.Positive(t, got[1])
		}
		require.Positive(t, got[2])
		v.usable.set(1, false)
		v.usable.set(2, false)
		require.Equal(t, -1, pick.Pick(Call{}))
	}
}

// Pairs are uniform over all pairs of usable hosts, at 0, 10, 50, 90 % down and
// when so few are up that they are drawn by rank: chi-square.
func TestDrawPairIsUniform(t *testing.T) {
	const n = 40
	for _, up := range []int{40, 36, 20, 4, 2} {
		v := newTestView(slices.Repeat([]int{1}, n)...)
		for i := range n {
			v.usable.set(i, i*7%n < up)
		}
		const draws = 40000
		counts := map[[2]int]int{}
		for r := range uint64(draws) {
			a, b := v.drawPair(Call{draw: draw(7, streamPick, r)})
			if a == b {
				t.Fatalf("drew host %d twice", a)
			}
			counts[[2]int{a, b}]++
		}
		pairs := up * (up - 1)
		require.Len(t, counts, pairs)
		chi, want := 0.0, float64(draws)/float64(pairs)
		for _, k := range counts {
			chi += (float64(k) - want) * (float64(k) - want) / want
		}
		require.LessOrEqual(t, chi, float64(pairs-1)+3*math.Sqrt(2*float64(pairs))+6, "%d up", up)
	}
	// Ranks: fewer than one usable host in sixteen.
	v := newTestView(slices.Repeat([]int{1}, 200)...)
	for i := range 200 {
		v.usable.set(i, i%50 == 49)
	}
	counts := map[[2]int]int{}
	for r := range uint64(12000) {
		a, b := v.drawPair(Call{draw: draw(7, streamPick, r)})
		counts[[2]int{a, b}]++
	}
	require.Len(t, counts, 12)
	for _, k := range counts {
		require.InDelta(t, 1000, k, 110)
	}
}

// The counter of IndexCursor goes past its end without a jump that shows.
func TestIndexCursorWraps(t *testing.T) {
	v := newTestView(1, 1, 1)
	p := RoundRobin{IndexCursor: true}.NewPicker(v, nil)
	v.Shared()[0] = math.MaxUint64 - 2
	got := [3]int{}
	for range 6 {
		got[p.Pick(Call{})]++
	}
	require.Equal(t, [3]int{2, 2, 2}, got)
	// The mark of the others may stand behind the last host.
	v.Mark(3)
	require.Equal(t, 0, RoundRobin{}.NewPicker(v, nil).Pick(Call{}))
}

// The cost of PeakEWMA is positive and grows strictly with the in-flight count,
// whatever the latency, and its comparison is exact at the extremes.
func TestPeakEWMACost(t *testing.T) {
	value := func(hi, lo uint64) *big.Int {
		x := new(big.Int).Lsh(new(big.Int).SetUint64(hi), 64)
		return x.Or(x, new(big.Int).SetUint64(lo))
	}
	for _, set := range []PeakEWMA{{}, {ActivePenalty: 1}, {ActivePenalty: math.MaxInt64}, {Unmeasured: math.MaxInt64}, {Unmeasured: 1, Fade: 1}} {
		for _, latency := range []int64{-1, 0, 1, 1e6, 1 << 40, math.MaxInt64} {
			for _, penalty := range []int64{0, int64(time.Hour)} {
				v := newTestView(1)
				v.penalty = penalty
				p := set.NewPicker(v, nil).(*peakEWMA)
				h := v.hosts[0]
				h.latency, h.failing = ewma.NewCore(ewma.Config{Peak: true}), ewma.NewCore(ewma.Config{})
				if latency >= 0 {
					h.latency.Observe(0, latency)
					h.failing.Observe(0, failUnit)
				}
				// Ten minutes on, the average has faded to nothing.
				const now = int64(10 * time.Minute)
				last := new(big.Int)
				for _, inflight := range []int32{0, 1, 2, 3, 1000, 1 << 23, math.MaxInt32 - 1, math.MaxInt32} {
					h.inflight = inflight
					cost := value(p.scaled(h, MaxWeight, now))
					require.Equal(t, 1, cost.Cmp(last), "%+v: latency %d, %d in flight", set, latency, inflight)
					require.Less(t, cost.BitLen(), 128)
					last = cost
				}
			}
		}
	}
}

// The wheel's steps do not grow with the number of hosts, the skew of the
// weights, or how much of them is usable.
func TestWheelSteps(t *testing.T) {
	perPick := func(v *View, w *wheel, n int) float64 {
		sum := 0
		for range n {
			w.Pick(Call{})
			sum += w.looked
		}
		return float64(sum) / float64(n)
	}
	for n, tops := range map[int][]int{33: {1, 5}, 1000: {1, 5, 1000}, 10000: {5}} {
		for _, top := range tops {
			weights := make([]int, n)
			for i := range weights {
				weights[i] = 1 + i%top
			}
			v := newTestView(weights...)
			w := newWheel(v)
			require.Less(t, perPick(v, w, 10000), 8.0, "%d hosts of up to %d", n, top)
			// 99 of 100 go down.
			for i := range n {
				v.usable.set(i, i%100 == 7)
				w.Changed(i)
			}
			perPick(v, w, 10*n)
			require.Less(t, perPick(v, w, 10000), 8.0, "%d hosts of up to %d, few of them up", n, top)
			for i := range n {
				v.usable.set(i, true)
				w.Changed(i)
			}
			perPick(v, w, 10*n)
			require.Less(t, perPick(v, w, 10000), 8.0, "%d hosts of up to %d, up again", n, top)
		}
	}
	// One host has nearly all the weight, and goes down.
	v := newTestView(append([]int{MaxWeight}, slices.Repeat([]int{1}, 999)...)...)
	w := newWheel(v)
	require.Less(t, perPick(v, w, 10000), 8.0)
	v.usable.set(0, false)
	perPick(v, w, 1000)
	require.Less(t, perPick(v, w, 10000), 8.0)
}

// Laps are counted from 0 again before they overflow, and nobody notices.
func TestWheelNeverOverflows(t *testing.T) {
	weights := make([]int, 50)
	for i := range weights {
		weights[i] = 1 + i%7
	}
	va, vb := newTestView(weights...), newTestView(weights...)
	a, b := newWheel(va), newWheel(vb)
	b.base = farLap - 2*lap
	b.at = b.base >> b.shift
	for i := range b.head {
		b.head[i] = nobody
	}
	for i := range weights {
		b.insert(i, b.from(i))
	}
	sum, got := 0, make([]int, 50)
	for _, weight := range weights {
		sum += weight
	}
	for k := range 5 * sum {
		i := a.Pick(Call{})
		require.Equal(t, i, b.Pick(Call{}), "pick %d", k)
		got[i]++
	}
	for i, weight := range weights {
		require.Equal(t, 5*weight, got[i], "host %d", i)
	}
	require.Less(t, b.base, farLap)
	require.Equal(t, va.shared, vb.shared)
}

// State from elsewhere - damaged, or written for another policy - makes odd
// picks and no harm.
func TestWheelTakesAnyState(t *testing.T) {
	for seed := range uint64(200) {
		v := newTestView(append([]int{0, MaxWeight}, slices.Repeat([]int{3}, 40)...)...)
		for i, h := range v.hosts {
			h.scratch[wheelPlace] = draw(seed, 1, uint64(i)) >> (seed % 64)
			h.scratch[smoothCredit] = draw(seed, 2, uint64(i))
		}
		v.shared = [2]uint64{draw(seed, 3, 0), draw(seed, 3, 1)}
		w := newWheel(v)
		for k := range 200 {
			if !v.Usable(w.Pick(Call{})) {
				t.Fatalf("seed %d: pick %d is not usable", seed, k)
			}
		}
	}
}

// BenchmarkPick is the cost of a pick alone, without a Pool.
func BenchmarkPick(b *testing.B) {
	for _, p := range []Policy{RoundRobin{}, WeightedRoundRobin{}, Random{}, LeastConn{}, TwoRandom{}, PeakEWMA{}} {
		for _, n := range []int{10, 32, 1000, 10000} {
			weights := make([]int, n)
			for i := range weights {
				weights[i] = 1 + i%5
			}
			b.Run(fmt.Sprintf("%s/%d", p.Name(), n), func(b *testing.B) {
				pick := p.NewPicker(newTestView(weights...), nil)
				b.ReportAllocs()
				i := uint64(0)
				for b.Loop() {
					i++
					pick.Pick(Call{draw: i * golden})
				}
			})
		}
	}
}
