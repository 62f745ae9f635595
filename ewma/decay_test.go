package ewma_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/ewma"
)

const (
	prec  = 256
	one63 = uint64(1) << 63
)

func bigInt(v uint64) *big.Float {
	return new(big.Float).SetPrec(prec).SetInt(new(big.Int).SetUint64(v))
}

// bigExp returns e^-x for x >= 0 by its series, after x has been halved until
// it is small. From x = 1000 it is 0, to far more places than Q63 has.
func bigExp(x *big.Float) *big.Float {
	const halvings = 40
	if x.Cmp(bigInt(1000)) > 0 {
		return bigInt(0)
	}
	y := new(big.Float).SetPrec(prec).SetMantExp(x, -halvings)
	sum, term := bigInt(1), bigInt(1)
	for k := uint64(1); k < 20; k++ {
		term.Mul(term, y).Quo(term, bigInt(k)).Neg(term)
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLn2 is ln(2) as the sum of 1/(k*2^k).
func bigLn2() *big.Float {
	sum := bigInt(0)
	for k := 1; k < prec; k++ {
		term := bigInt(1)
		term.Quo(term, bigInt(uint64(k)))
		sum.Add(sum, term.SetMantExp(term, -k))
	}
	return sum
}

// fixed returns x*2^bits, rounded to nearest.
func fixed(x *big.Float, bits int) uint64 {
	y := new(big.Float).SetPrec(prec).SetMantExp(x, bits)
	n, _ := y.Add(y, big.NewFloat(0.5)).Int(nil)
	return n.Uint64()
}

func TestTable(t *testing.T) {
	ln2 := bigLn2()
	require.Equal(t, uint64(ewma.Ln2Q64), fixed(ln2, 64))
	square := new(big.Float).SetPrec(prec).Mul(ln2, ln2)
	require.Equal(t, uint64(ewma.HalfLn2SqQ64), fixed(square, 63))
	require.Equal(t, uint64(ewma.Log2eQ62), fixed(new(big.Float).SetPrec(prec).Quo(bigInt(1), ln2), 62))

	// 2^(-1/256) is eight square roots of a half.
	root := new(big.Float).SetPrec(prec).Quo(bigInt(1), bigInt(2))
	for range 8 {
		root.Sqrt(root)
	}
	want := bigInt(1)
	for i, got := range ewma.Exp2Table() {
		require.Equal(t, fixed(want, 63), got, "entry %d", i)
		want.Mul(want, root)
	}
}

// requireWeight holds a weight to the documented error, 3.4e-9 of it and
// upwards, and the last places of Q63.
func requireWeight(t interface{ Fatalf(string, ...any) }, got uint64, exponent *big.Float) {
	want, _ := new(big.Float).SetMantExp(bigExp(exponent), 63).Float64()
	diff, _ := new(big.Float).Sub(bigInt(got), new(big.Float).SetMantExp(bigExp(exponent), 63)).Float64()
	if diff > 3.4e-9*want+4 || diff < -4 {
		t.Fatalf("weight %d, want %.0f: off by %g of it", got, want, diff/want)
	}
}

func drawUnit(t *rapid.T) time.Duration {
	return time.Duration(rapid.OneOf(
		rapid.SampledFrom([]int64{1, 2, 3, 255, 256, 1e9, 10e9, 3600e9, math.MaxInt64, math.MaxInt64 - 1, 1 << 62}),
		rapid.Int64Range(1, math.MaxInt64),
		rapid.Int64Range(1, 1e12),
	).Draw(t, "unit"))
}

// drawElapsed is a time around multiples of the unit, or a small one, or any.
func drawElapsed(t *rapid.T, unit time.Duration) uint64 {
	u := uint64(unit)
	k := rapid.Uint64Range(0, 70).Draw(t, "units")
	if k > 0 && k > math.MaxUint64/u {
		k = 1
	}
	around := k * u
	return rapid.OneOf(
		rapid.SampledFrom([]uint64{around, around - min(around, 1), around + 1}),
		rapid.Uint64Range(0, u),
		rapid.Uint64Range(0, u/256+1),
		rapid.Uint64(),
	).Draw(t, "elapsed")
}

func TestWeightError(t *testing.T) {
	ln2 := bigLn2()
	checkSeeded(t, 1, func(t *rapid.T) {
		unit := drawUnit(t)
		elapsed := drawElapsed(t, unit)
		x := new(big.Float).SetPrec(prec).Quo(bigInt(elapsed), bigInt(uint64(unit)))
		requireWeight(t, ewma.FadingWeight(unit, elapsed), x)
		requireWeight(t, ewma.HalvingWeight(unit, elapsed), x.Mul(x, ln2))
	})
}

// Every cell of the table, at its edges and inside.
func TestWeightErrorEverywhere(t *testing.T) {
	ln2 := bigLn2()
	const unit = 256 * 64
	for elapsed := uint64(0); elapsed <= 2*unit; elapsed += 37 {
		x := new(big.Float).SetPrec(prec).Quo(bigInt(elapsed), bigInt(unit))
		requireWeight(t, ewma.HalvingWeight(unit, elapsed), x.Mul(x, ln2))
	}
}

func TestWeightIsMonotone(t *testing.T) {
	checkSeeded(t, 2, func(t *rapid.T) {
		unit := drawUnit(t)
		a, b := drawElapsed(t, unit), drawElapsed(t, unit)
		if rapid.Bool().Draw(t, "next to each other") {
			b = a + 1
		}
		a, b = min(a, b), max(a, b)
		for _, weight := range []func(time.Duration, uint64) uint64{ewma.FadingWeight, ewma.HalvingWeight} {
			if weight(unit, a) < weight(unit, b) {
				t.Fatalf("weight grows from %d after %d to %d after %d", weight(unit, a), a, weight(unit, b), b)
			}
		}
	})
	for _, unit := range []time.Duration{256 * 64, 16411, 25013} {
		for e := uint64(0); e < 3*uint64(unit); e++ {
			if ewma.HalvingWeight(unit, e) < ewma.HalvingWeight(unit, e+1) || ewma.FadingWeight(unit, e) < ewma.FadingWeight(unit, e+1) {
				t.Fatalf("weight grows after %d of %d", e, unit)
			}
		}
	}
}

func TestWeightIsExactAtHalfLives(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		unit := drawUnit(t)
		for k := uint64(0); k < 70 && k <= math.MaxUint64/uint64(unit); k++ {
			if got := ewma.HalvingWeight(unit, k*uint64(unit)); got != one63>>k {
				t.Fatalf("after %d half-lives of %d: %d, want %d", k, unit, got, one63>>k)
			}
		}
	})
}

// Two times one after the other leave what their sum leaves.
func TestWeightsCompose(t *testing.T) {
	checkSeeded(t, 4, func(t *rapid.T) {
		unit := time.Duration(rapid.Int64Range(1, math.MaxInt64/100).Draw(t, "unit"))
		a := rapid.Uint64Range(0, 10*uint64(unit)).Draw(t, "a")
		b := rapid.Uint64Range(0, 10*uint64(unit)).Draw(t, "b")
		for _, weight := range []func(time.Duration, uint64) uint64{ewma.FadingWeight, ewma.HalvingWeight} {
			in := func(e uint64) float64 { return float64(weight(unit, e)) / float64(one63) }
			if want, got := in(a+b), in(a)*in(b); math.Abs(got-want) > 1e-8*want+1e-17 {
				t.Fatalf("%g and %g after each other, %g together", in(a), in(b), want)
			}
		}
	})
}

// The bits are the same everywhere: these were computed once.
func TestWeightGolden(t *testing.T) {
	for _, tt := range []struct{ elapsed, fading, halving uint64 }{
		{1, 0x7fffffffc906404e, 0x7fffffffd9e4d219},
		{1000000, 0x7ffcb92e5f63e8b3, 0x7ffdba90ef6b7e71},
		{1000000000, 0x73d1b66c8fbf2eb1, 0x776da005cda9e334},
		{6931471806, 0x3ffffffff4fd66d8, 0x4f2b1c5f049e7c25},
		{10000000000, 0x2f16ac6c71ea27a9, 0x4000000000000000},
		{12345678901, 0x253e31446e8f81a9, 0x366568c6a16cc30d},
		{400000000000, 0x27, 0x800000},
	} {
		require.Equal(t, tt.fading, ewma.FadingWeight(10*s, tt.elapsed))
		require.Equal(t, tt.halving, ewma.HalvingWeight(10*s, tt.elapsed))
	}
}
