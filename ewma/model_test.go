package ewma_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// point is one sample of a history.
type point struct{ at, sample int64 }

// history is all samples since the beginning. It is the model: every value is
// computed from it anew, from the sum that an average is, not step by step.
type history struct {
	cfg    ewma.Config
	points []point
}

func (h *history) observe(at, sample int64) {
	if sample < 0 {
		return
	}
	if n := len(h.points); n > 0 {
		at = max(at, h.points[n-1].at)
	}
	h.points = append(h.points, point{at, sample})
}

// left is what remains of a share of the average from a to b, which are the
// numbers of the samples.
func (h *history) left(a, b int) float64 {
	elapsed := float64(uint64(h.points[b].at) - uint64(h.points[a].at))
	switch {
	case h.cfg.AlphaMilli > 0:
		return math.Pow(1-float64(h.cfg.AlphaMilli)/1000, float64(b-a))
	case h.cfg.HalfLife > 0:
		return math.Exp2(-elapsed / float64(h.cfg.HalfLife))
	case h.cfg.Tau > 0:
		return math.Exp(-elapsed / float64(h.cfg.Tau))
	}
	return math.Exp(-elapsed / 10e9)
}

// from is the average of the samples after number start, in which the estimate
// at start was v: each sample has the share that it filled, times what is left.
func (h *history) from(start int, v float64) float64 {
	last := len(h.points) - 1
	sum := v * h.left(start, last)
	for i := start + 1; i <= last; i++ {
		sum += float64(h.points[i].sample) * (1 - h.left(i-1, i)) * h.left(i, last)
	}
	return sum
}

// mean is the arithmetic mean of the first n samples, rounded down.
func (h *history) mean(n int) int64 {
	sum := new(big.Int)
	for _, p := range h.points[:n] {
		sum.Add(sum, big.NewInt(p.sample))
	}
	return sum.Quo(sum, big.NewInt(int64(n))).Int64()
}

// estimate is the average after the last sample, and how far the code may be
// from it. There must be a sample.
func (h *history) estimate() (v, tolerance float64) {
	n, warm := len(h.points), max(h.cfg.Warmup, 1)
	if n <= warm {
		return float64(h.mean(n)), 0
	}
	v = h.from(warm-1, float64(h.mean(warm)))
	if h.cfg.Peak {
		// Jumping up at a sample is starting anew from it, where that gives
		// more. So the average of peaks is the greatest of the averages that
		// start anywhere.
		for i := warm; i < n; i++ {
			v = max(v, h.from(i, float64(h.points[i].sample)))
		}
	}
	var largest float64
	for _, p := range h.points {
		largest = max(largest, float64(p.sample))
	}
	tolerance = 2 + float64(n)*7e-9*largest
	if h.cfg.AlphaMilli > 0 {
		tolerance = 2 + 1000/float64(h.cfg.AlphaMilli) + 1e-12*largest
	}
	return v, tolerance
}

// value is the reading at now, given the estimate.
func (h *history) value(now, estimate int64) (v, tolerance float64) {
	at := h.points[len(h.points)-1].at
	elapsed := float64(uint64(max(now, at)) - uint64(at))
	left := 1.0
	switch {
	case h.cfg.IdleTau > 0:
		left = math.Exp(-elapsed / float64(h.cfg.IdleTau))
	case h.cfg.IdleHalfLife > 0:
		left = math.Exp2(-elapsed / float64(h.cfg.IdleHalfLife))
	case h.cfg.IdleTau == 0 && h.cfg.AlphaMilli == 0:
		unit, half := 10e9, float64(h.cfg.HalfLife)
		if h.cfg.Tau > 0 {
			unit = float64(h.cfg.Tau)
		}
		left = math.Exp(-elapsed / unit)
		if half > 0 {
			left = math.Exp2(-elapsed / half)
		}
	}
	e := float64(estimate)
	return max(e*left, min(float64(h.cfg.Floor), e)), 2 + 4e-9*e
}

func drawConfig(t *rapid.T) ewma.Config {
	span := func(name string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int64{1, 7, 1000, 1e6, 5e9, 10e9, 3600e9}).Draw(t, name))
	}
	var cfg ewma.Config
	switch rapid.IntRange(0, 3).Draw(t, "weights") {
	case 1:
		cfg.Tau = span("tau")
	case 2:
		cfg.HalfLife = span("half-life")
	case 3:
		cfg.AlphaMilli = rapid.SampledFrom([]int{1, 125, 250, 300, 999, 1000}).Draw(t, "alpha")
	}
	switch rapid.IntRange(0, 3).Draw(t, "idle") {
	case 1:
		cfg.IdleTau = span("idle tau")
	case 2:
		cfg.IdleHalfLife = span("idle half-life")
	case 3:
		cfg.IdleTau = -1
	}
	cfg.Peak = rapid.Bool().Draw(t, "peak")
	cfg.Warmup = rapid.IntRange(0, 5).Draw(t, "warmup")
	cfg.Floor = rapid.SampledFrom([]int64{0, 1, 1000, math.MaxInt64}).Draw(t, "floor")
	cfg.Prior = rapid.SampledFrom([]int64{0, 1, 1e8}).Draw(t, "prior")
	return cfg
}

func drawSample(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(-2, 10),
		rapid.Int64Range(0, 1e9),
		rapid.Int64Range(0, math.MaxInt64),
		rapid.SampledFrom([]int64{0, math.MaxInt64, math.MaxInt64 - 1, 1<<32 - 1, 1 << 32, 1<<32 + 1}),
	).Draw(t, "sample")
}

// drawStep is a time from the last sample to the next or to a reading: around
// the spans of the configuration, or small, or backwards.
func drawStep(t *rapid.T, cfg ewma.Config) int64 {
	spans := []int64{int64(cfg.Tau), int64(cfg.HalfLife), int64(cfg.IdleTau), int64(cfg.IdleHalfLife), 10e9}
	span := rapid.SampledFrom(spans).Draw(t, "span")
	return rapid.OneOf(
		rapid.SampledFrom([]int64{span, span - 1, span + 1, 2 * span, 0, 1}),
		rapid.Int64Range(0, 3*max(span, 1)),
		rapid.Int64Range(-5, 1000),
	).Draw(t, "step")
}

// subject is a Core under test beside its history.
type subject struct {
	core    ewma.Core
	history history
	now     int64
}

func newSubject(cfg ewma.Config) *subject {
	return &subject{core: ewma.NewCore(cfg), history: history{cfg: cfg}}
}

type fataler interface{ Fatalf(string, ...any) }

func (x *subject) observe(step, sample int64) {
	x.core.Observe(x.now+step, sample)
	x.history.observe(x.now+step, sample)
	x.now = max(x.now, x.core.LastAt())
}

// check compares what can be read at the last time plus idle.
func (x *subject) check(t fataler, idle int64) {
	n := len(x.history.points)
	if x.core.Samples() != n {
		t.Fatalf("%d samples, want %d", x.core.Samples(), n)
	}
	if want := n >= max(1, x.history.cfg.Warmup); x.core.Warm() != want {
		t.Fatalf("Warm is %v after %d samples", x.core.Warm(), n)
	}
	v, ok := x.core.Value(x.now + idle)
	last, ok2 := x.core.Last()
	if ok != (n > 0) || ok2 != ok {
		t.Fatalf("measured is %v and %v after %d samples", ok, ok2, n)
	}
	if n == 0 {
		if v != x.history.cfg.Prior || last != v {
			t.Fatalf("read %d and %d before a sample, want %d", v, last, x.history.cfg.Prior)
		}
		return
	}
	if got, want := x.core.LastAt(), x.history.points[n-1].at; got != want {
		t.Fatalf("LastAt is %d, want %d", got, want)
	}
	want, tolerance := x.history.estimate()
	if math.Abs(float64(last)-want) > tolerance {
		t.Fatalf("estimate %d, want %.3f +- %.3f\n%+v", last, want, tolerance, x.history)
	}
	lo, hi := int64(math.MaxInt64), int64(0)
	for _, p := range x.history.points {
		lo, hi = min(lo, p.sample), max(hi, p.sample)
	}
	if last < lo || last > hi {
		t.Fatalf("estimate %d is outside the samples, %d to %d", last, lo, hi)
	}
	want, tolerance = x.history.value(x.now+idle, last)
	if math.Abs(float64(v)-want) > tolerance {
		t.Fatalf("value %d, want %.3f +- %.3f\n%+v", v, want, tolerance, x.history)
	}
	if v > last || v < min(x.history.cfg.Floor, last) {
		t.Fatalf("value %d of estimate %d", v, last)
	}
}

func propCore(t *rapid.T) {
	x := newSubject(drawConfig(t))
	var state []byte
	t.Repeat(map[string]func(*rapid.T){
		"observe": func(t *rapid.T) { x.observe(drawStep(t, x.history.cfg), drawSample(t)) },
		"read":    func(t *rapid.T) { x.check(t, drawStep(t, x.history.cfg)) },
		"idle":    func(t *rapid.T) { x.now += max(0, drawStep(t, x.history.cfg)) },
		"restore": func(t *rapid.T) {
			state = x.core.AppendState(state[:0], x.now)
			c := x.core.Fresh()
			if _, err := c.RestoreState(state, x.now); err != nil {
				t.Fatalf("restore: %v", err)
			}
			x.core = c
		},
		"": func(t *rapid.T) { x.check(t, 0) },
	})
}

func TestCoreModel(t *testing.T) { checkSeeded(t, 1, propCore) }

// The step itself, to the last bit: s + (v-s)*w rounded down to 2^-32, on
// integers without limit.
func TestBlendIsExact(t *testing.T) {
	checkSeeded(t, 2, func(t *rapid.T) {
		cfg := ewma.Config{HalfLife: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "half-life"))}
		c := ewma.NewCore(cfg)
		now := int64(0)
		v := new(big.Int) // Q32
		for i := range rapid.IntRange(1, 20).Draw(t, "samples") {
			step, sample := max(0, drawStep(t, cfg)), max(0, drawSample(t))
			if rapid.Bool().Draw(t, "as it is") {
				sample, _ = c.Last() // differs from the estimate by its fraction
			}
			now += step
			c.Observe(now, sample)
			s := new(big.Int).Lsh(big.NewInt(sample), 32)
			if i == 0 {
				v = s
			} else {
				kept := new(big.Int).Sub(v, s)
				kept.Mul(kept, new(big.Int).SetUint64(c.FoldWeight(uint64(step))))
				v = s.Add(s, kept.Rsh(kept, 63))
			}
			est, rest := estimateOf(&c)
			got := new(big.Int).Lsh(big.NewInt(est), 32)
			got.Add(got, new(big.Int).SetUint64(rest))
			if got.Cmp(v) != 0 {
				t.Fatalf("after sample %d the estimate is %v/2^32, want %v", i, got, v)
			}
			// A reading is est*w, rounded down to a whole unit.
			idle := max(0, drawStep(t, cfg))
			read := new(big.Int).SetUint64(c.FoldWeight(uint64(idle)))
			read.Rsh(read.Mul(read, big.NewInt(est)), 63)
			if got, _ := c.Value(now + idle); got != read.Int64() {
				t.Fatalf("after sample %d the reading is %d, want %v", i, got, read)
			}
		}
	})
}

// estimateOf reads the whole and the fractional part from a saved state.
func estimateOf(c *ewma.Core) (est int64, rest uint64) {
	b := c.AppendState(nil, c.LastAt())[1:]
	_, n := binary.Uvarint(b)
	b = b[n:]
	_, n = binary.Varint(b)
	b = b[n:]
	v, n := binary.Uvarint(b)
	rest, _ = binary.Uvarint(b[n:])
	return int64(v), rest
}

// By number, and in the mean, the step is exact in whole units.
func TestFoldIsExact(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		alpha := int64(rapid.IntRange(1, 1000).Draw(t, "alpha"))
		c := ewma.NewCore(ewma.Config{AlphaMilli: int(alpha)})
		v := new(big.Int)
		for i := range rapid.IntRange(1, 20).Draw(t, "samples") {
			sample := max(0, drawSample(t))
			c.Observe(0, sample)
			if i == 0 {
				v.SetInt64(sample)
			} else {
				v.Mul(v, big.NewInt(1000-alpha))
				v.Add(v, new(big.Int).Mul(big.NewInt(sample), big.NewInt(alpha)))
				v.Quo(v, big.NewInt(1000))
			}
			if got, _ := c.Last(); got != v.Int64() {
				t.Fatalf("after sample %d the estimate is %d, want %v", i, got, v)
			}
		}
	})
}

func drawHistory(t *rapid.T, cfg ewma.Config) []point {
	points := make([]point, rapid.IntRange(1, 20).Draw(t, "samples"))
	now := int64(0)
	for i := range points {
		now += drawStep(t, cfg)
		points[i] = point{now, max(0, drawSample(t))}
	}
	return points
}

func after(cfg ewma.Config, points []point) *ewma.Core {
	c := ewma.NewCore(cfg)
	for _, p := range points {
		c.Observe(p.at, p.sample)
	}
	return &c
}

func TestConstantIsFixed(t *testing.T) {
	checkSeeded(t, 4, func(t *rapid.T) {
		cfg := drawConfig(t)
		points, sample := drawHistory(t, cfg), max(0, drawSample(t))
		for i := range points {
			points[i].sample = sample
		}
		if got, _ := after(cfg, points).Last(); got != sample {
			t.Fatalf("the average of nothing but %d is %d", sample, got)
		}
	})
}

// A greater sample never lowers the average, now or at any reading.
func TestMonotoneInSamples(t *testing.T) {
	checkSeeded(t, 5, func(t *rapid.T) {
		cfg := drawConfig(t)
		points := drawHistory(t, cfg)
		more := slices.Clone(points)
		p := &more[rapid.IntRange(0, len(points)-1).Draw(t, "which")]
		p.sample = rapid.Int64Range(p.sample, math.MaxInt64).Draw(t, "greater")
		a, b := after(cfg, points), after(cfg, more)
		ea, ra := estimateOf(a)
		eb, rb := estimateOf(b)
		if ea > eb || ea == eb && ra > rb {
			t.Fatalf("%v gives %d, but %v only %d", points, ea, more, eb)
		}
		idle := drawStep(t, cfg)
		va, _ := a.Value(a.LastAt() + idle)
		vb, _ := b.Value(b.LastAt() + idle)
		if va > vb {
			t.Fatalf("%v reads %d, but %v only %d", points, va, more, vb)
		}
	})
}

// Nothing but differences of times counts, and nothing but their ratio to the
// times of the configuration.
func TestShiftAndScale(t *testing.T) {
	checkSeeded(t, 6, func(t *rapid.T) {
		cfg := drawConfig(t)
		points := drawHistory(t, cfg)
		by := rapid.Int64Range(-1e18, 1e18).Draw(t, "shift")
		k := rapid.IntRange(0, 10).Draw(t, "scale")
		if cfg.Tau == 0 && cfg.HalfLife == 0 && cfg.AlphaMilli == 0 {
			cfg.Tau = 10 * time.Second // the default does not scale
		}
		scaled := cfg
		scaled.Tau <<= k
		scaled.HalfLife <<= k
		scaled.IdleHalfLife <<= k
		if cfg.IdleTau > 0 {
			scaled.IdleTau <<= k
		}
		moved := slices.Clone(points)
		for i := range moved {
			moved[i].at = moved[i].at<<k + by
		}
		a, b := after(cfg, points), after(scaled, moved)
		idle := max(0, drawStep(t, cfg))
		va, _ := a.Value(a.LastAt() + idle)
		vb, _ := b.Value(b.LastAt() + idle<<k)
		if va != vb || !bytes.Equal(a.AppendState(nil, a.LastAt()), b.AppendState(nil, b.LastAt())) {
			t.Fatalf("%d became %d, shifted by %d and scaled by 2^%d", va, vb, by, k)
		}
	})
}
