package sim_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// The mixer is frozen: these are the vectors that all packages' copies share.
func TestMixGolden(t *testing.T) {
	require.Equal(t, uint64(0), sim.Mix(0))
	require.Equal(t, uint64(0x5692161d100b05e5), sim.Mix(1))
	require.Equal(t, sim.Mix(sim.Mix(sim.Mix(7+0x9e3779b97f4a7c15)^2*0xd1342543de82ef95&math.MaxUint64)), sim.Draw(7, 2, 0))
}

// Against package math, whose last digits differ between architectures while
// these do not.
func TestFixedPoint(t *testing.T) {
	checkSeeded(t, 1, func(t *rapid.T) {
		x := rapid.Uint64Range(1, math.MaxUint64).Draw(t, "x")
		want := math.Log2(float64(x))
		if got := float64(sim.Log2(x)) / (1 << 32); math.Abs(got-want) > 3e-7 {
			t.Fatalf("log2(%d) = %v, want %v", x, got, want)
		}
		want = -math.Log((float64(x>>1) + .5) / (1 << 63))
		if got := float64(sim.Exponential64(x)) / (1 << 32); math.Abs(got-want) > 3e-7+1e-9*want {
			t.Fatalf("exponential(%d) = %v, want %v", x, got, want)
		}
		d := rapid.Uint64Range(1, 1<<40).Draw(t, "d")
		e := rapid.Int64Range(-40<<32, 18<<32).Draw(t, "e")
		want = float64(d) * math.Exp2(float64(e)/(1<<32))
		if got := float64(sim.ScaleExp2(d, e)); math.Abs(got-want) > 1+2e-7*want {
			t.Fatalf("%d * 2^%v = %v, want %v", d, float64(e)/(1<<32), got, want)
		}
	})
	// No bias: the mean over a grid is 1.
	sum := 0.0
	const grid = 1 << 20
	for i := range uint64(grid) {
		sum += float64(sim.Exponential64(i<<44|1<<43)) / (1 << 32)
	}
	require.InDelta(t, 1, sum/grid, 1e-6)
	require.Equal(t, uint64(0), sim.Log2(1))
	require.Equal(t, uint64(3)<<32, sim.Log2(8))
	require.Equal(t, int64(math.MaxInt64), sim.ScaleExp2(1, 100<<32))
	require.Equal(t, int64(0), sim.ScaleExp2(1000, -200<<32))
	// Monotone across the joints of the table.
	for x := uint64(1 << 40); x < 1<<41; x += 1<<28 + 12345 {
		require.LessOrEqual(t, sim.Log2(x), sim.Log2(x+1))
	}
}

// What a Dist draws for a key is part of what a seed means.
func TestDistGolden(t *testing.T) {
	for _, c := range []struct {
		d    sim.Dist
		want []int64
	}{
		{sim.Constant(10 * ms), []int64{10000000, 10000000, 10000000}},
		{sim.Exponential(10 * ms), []int64{10842166, 1523631, 21331830}},
		{sim.Uniform(10*ms, 20*ms), []int64{13381666, 18586765, 11184596}},
		{sim.Normal(10*ms, ms), []int64{9632847, 11428075, 9814680}},
		{sim.LogNormal(10*ms, 100*ms), []int64{6953055, 41102035, 8324028}},
		{sim.Recorded([]time.Duration{1, 2, 3, 4, 5}), []int64{2, 5, 1}},
	} {
		var got []int64
		for key := range uint64(3) {
			got = append(got, sim.Sample(c.d, key+1))
		}
		require.Equal(t, c.want, got, "%v", c.d.Shape)
	}
}

// Mean, deviation and quantiles of each shape, within six standard errors.
func TestDistMoments(t *testing.T) {
	seed, _ := seedOf(t, 1)
	const n = 100_000
	draws := func(d sim.Dist) (mean, deviation float64, sorted []float64) {
		sample := sim.NewSampler(d)
		var sum, sum2 float64
		for i := range uint64(n) {
			x := float64(sample(sim.Draw(seed, 99, i))) / float64(ms)
			sum, sum2 = sum+x, sum2+x*x
			sorted = append(sorted, x)
		}
		slices.Sort(sorted)
		mean = sum / n
		return mean, math.Sqrt(sum2/n - mean*mean), sorted
	}
	root := math.Sqrt(n)
	mean, dev, q := draws(sim.Exponential(10 * ms))
	require.InDelta(t, 10, mean, 6*10/root)
	require.InDelta(t, 10, dev, .3)
	require.InEpsilon(t, 10*math.Ln2, q[n/2], .03)

	mean, dev, q = draws(sim.Normal(167*ms, 5*ms))
	require.InDelta(t, 167, mean, 6*5/root)
	require.InDelta(t, 5, dev, .067)
	require.InDelta(t, 167+1.6449*5, q[n*95/100], .2)
	require.InDelta(t, 167-2.3263*5, q[n/100], .36)

	mean, _, q = draws(sim.Uniform(10*ms, 20*ms))
	require.InDelta(t, 15, mean, 6*2.9/root)
	require.GreaterOrEqual(t, q[0], 10.0)
	require.LessOrEqual(t, q[n-1], 20.0)

	_, _, q = draws(sim.LogNormal(10*ms, 100*ms))
	require.InEpsilon(t, 10, q[n/2], .03)
	require.InEpsilon(t, 100, q[n*99/100], .08)

	mean, _, q = draws(sim.Recorded([]time.Duration{ms, 2 * ms, 6 * ms}))
	require.InDelta(t, 3, mean, .05)
	require.Equal(t, []float64{1, 2, 6}, slices.Compact(q))

	_, _, q = draws(sim.Normal(ms, 10*ms))
	require.Equal(t, 1e-6, q[0], "cut off at zero, which is a nanosecond")
}

func TestReadSamples(t *testing.T) {
	got, err := sim.ReadSamples(strings.NewReader("# pings\n12.5\n\n 3ms \n250us\n0\n"))
	require.NoError(t, err)
	require.Equal(t, []time.Duration{12500 * time.Microsecond, 3 * ms, 250 * time.Microsecond, 0}, got)
	for text, want := range map[string]string{"1\nx": "line 2", "-1": "line 1", "NaN": "line 1", "1e3": "line 1"} {
		_, err := sim.ReadSamples(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

func TestHistogram(t *testing.T) {
	for b := 0; b < sim.BucketOf(1<<62); b++ {
		require.Equal(t, b, sim.BucketOf(sim.UpperOf(b)))
		require.Equal(t, b+1, sim.BucketOf(sim.UpperOf(b)+1))
	}
	require.Positive(t, sim.BucketOf(math.MaxInt64))
	checkSeeded(t, 1, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Int64Range(0, 1<<rapid.IntRange(1, 50).Draw(t, "bits")), 1, 60).Draw(t, "xs")
		var h sim.Histogram
		sum := int64(0)
		for _, x := range xs {
			h.Add(time.Duration(x))
			sum += x
		}
		slices.Sort(xs)
		if h.Count() != uint64(len(xs)) || int64(h.Sum().Duration()) != sum || int64(h.Min()) != xs[0] || int64(h.Max()) != xs[len(xs)-1] {
			t.Fatalf("%d %v %d %d", h.Count(), h.Sum(), h.Min(), h.Max())
		}
		// A share with digits as people write it, so that the rank is exact.
		ten := rapid.SampledFrom([]int{1, 10, 100, 1000, 10_000, 1_000_000}).Draw(t, "of")
		part := rapid.IntRange(0, ten).Draw(t, "part")
		q := float64(part) / float64(ten)
		rank := max(1, (part*len(xs)+ten-1)/ten)
		want, got := xs[rank-1], int64(h.Quantile(q))
		if got < want || float64(got) > float64(want)*(1+1.0/128)+1 {
			t.Fatalf("quantile %v of %v is %d, want %d", q, xs, got, want)
		}
	})
	var none sim.Histogram
	require.Zero(t, none.Quantile(.5))
	require.Zero(t, none.Mean())
	var big sim.Histogram
	big.Add(-1)
	big.Add(math.MaxInt64)
	require.Equal(t, time.Duration(math.MaxInt64), big.Quantile(1))
	require.Zero(t, big.Min())
}

// Every name reads back, and there are no others.
func TestShapeNames(t *testing.T) {
	for s := sim.ShapeConstant; s <= sim.ShapeSamples; s++ {
		text, err := s.MarshalText()
		require.NoError(t, err)
		var back sim.Shape
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, s, back)
	}
	require.Equal(t, "Shape(6)", (sim.ShapeSamples + 1).String())
	require.Equal(t, "Shape(255)", sim.Shape(255).String())
	require.ErrorContains(t, new(sim.Shape).UnmarshalText([]byte("Shape(6)")), "want one of constant, exponential")
}
