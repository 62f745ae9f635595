package ewma_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// From a cut anywhere, the restored average goes on as the saved one does, also
// when the clock of the new process shows another time.
func TestRestoreGoesOn(t *testing.T) {
	checkSeeded(t, 10, func(t *rapid.T) {
		cfg := drawConfig(t)
		a := ewma.NewCore(cfg)
		now := rapid.Int64Range(-1e15, 1e15).Draw(t, "now")
		observe := func() (at, sample int64) {
			now += max(0, drawStep(t, cfg))
			return now + rapid.Int64Range(-3, 0).Draw(t, "late"), drawSample(t)
		}
		for range rapid.IntRange(0, 8).Draw(t, "before") {
			a.Observe(observe())
		}
		now += rapid.Int64Range(-3, 1e10).Draw(t, "idle")
		shift := rapid.Int64Range(-1e15, 1e15).Draw(t, "shift")
		b := ewma.NewCore(cfg)
		rest, err := b.RestoreState(append(a.AppendState(nil, now), "rest"...), now+shift)
		if err != nil || string(rest) != "rest" {
			t.Fatalf("restore: %q, %v", rest, err)
		}
		for range rapid.IntRange(0, 8).Draw(t, "after") {
			at, sample := observe()
			a.Observe(at, sample)
			b.Observe(at+shift, sample)
			idle := drawStep(t, cfg)
			va, oka := a.Value(now + idle)
			vb, okb := b.Value(now + idle + shift)
			if va != vb || oka != okb {
				t.Fatalf("%d, %v became %d, %v", va, oka, vb, okb)
			}
		}
		if !bytes.Equal(a.AppendState(nil, now), b.AppendState(nil, now+shift)) {
			t.Fatalf("states differ")
		}
	})
}

func TestStateIsFrozen(t *testing.T) {
	c := ewma.NewCore(ewma.Config{Warmup: 2})
	require.Equal(t, []byte{1, 0}, c.AppendState(nil, 99))
	c.Observe(100, 7)
	require.Equal(t, []byte{9, 1, 1, 10, 7, 0}, c.AppendState([]byte{9}, 105))
	c.Observe(103, 8)
	// 7.5: the fraction is 2^31 in 2^-32.
	require.Equal(t, []byte{1, 2, 4, 7, 0x80, 0x80, 0x80, 0x80, 0x08}, c.AppendState(nil, 105))
	require.Equal(t, []byte{1, 2, 5, 7, 0x80, 0x80, 0x80, 0x80, 0x08}, c.AppendState(nil, 100), "now before the sample")
}

func TestRestoreErrors(t *testing.T) {
	c := ewma.NewCore(ewma.Config{Warmup: 3})
	c.Observe(100, 700)
	c.Observe(200, 701)
	before := c
	good := c.AppendState(nil, 300)
	for n := range good {
		rest, err := c.RestoreState(good[:n], 300)
		require.ErrorIs(t, err, ewma.ErrState, "cut after %d bytes", n)
		require.Equal(t, good[:n], rest)
		require.Equal(t, before, c)
	}
	for name, bad := range map[string][]byte{
		"version":                   {2, 0},
		"count":                     {1, 0x80, 0x80, 0x80, 0x80, 0x08, 0, 0, 0},
		"estimate":                  {1, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0},
		"rest of a mean":            {1, 2, 0, 7, 2},
		"fraction":                  {1, 3, 0, 7, 0x80, 0x80, 0x80, 0x80, 0x10},
		"number longer than 64 bit": {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	} {
		_, err := c.RestoreState(bad, 300)
		require.ErrorIs(t, err, ewma.ErrState, name)
		require.Equal(t, before, c)
	}
	whole := ewma.NewCore(ewma.Config{AlphaMilli: 250})
	_, err := whole.RestoreState([]byte{1, 5, 0, 7, 1}, 0)
	require.ErrorIs(t, err, ewma.ErrState, "a fraction where there is none")

	rest, err := c.RestoreState(good, 300)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, before, c)

	var zero ewma.Core
	_, err = zero.RestoreState([]byte{1, 1, 10, 7, 0}, 105)
	require.NoError(t, err)
	require.EqualValues(t, 100, zero.LastAt())
	require.True(t, zero.Warm())
}

// Ages that do not fit saturate instead of wrapping round.
func TestStateAtTheEndsOfTime(t *testing.T) {
	var c ewma.Core
	c.Observe(math.MinInt64, 5)
	b := c.AppendState(nil, math.MaxInt64)
	_, err := c.RestoreState(b, 0)
	require.NoError(t, err)
	require.Equal(t, int64(-math.MaxInt64), c.LastAt())
	_, err = c.RestoreState(b, math.MinInt64)
	require.NoError(t, err)
	require.Equal(t, int64(math.MinInt64), c.LastAt())

	c.Observe(math.MaxInt64, 5)
	b = c.AppendState(nil, math.MinInt64)
	_, err = c.RestoreState(b, math.MaxInt64)
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), c.LastAt())
	_, err = c.RestoreState(b, 0)
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), c.LastAt())
}

func TestMeterState(t *testing.T) {
	a, b := ewma.NewMeter(ewma.Config{}), ewma.NewMeter(ewma.Config{})
	require.Equal(t, []byte{1, 0}, a.AppendState(nil, t0))
	a.Observe(t0, 100*ms)
	a.Observe(t0.Add(3*s), 300*ms)
	now, later := t0.Add(5*s), t0.Add(240*time.Hour)
	rest, err := b.RestoreState(append(a.AppendState(nil, now), 42), later)
	require.NoError(t, err)
	require.Equal(t, []byte{42}, rest)
	require.True(t, later.Add(-2*s).Equal(b.LastAt()))
	a.Observe(now.Add(s), 7*ms)
	b.Observe(later.Add(s), 7*ms)
	require.Equal(t, a.AppendState(nil, now.Add(2*s)), b.AppendState(nil, later.Add(2*s)))

	_, err = b.RestoreState(nil, later)
	require.ErrorIs(t, err, ewma.ErrState)
	require.True(t, later.Add(s).Equal(b.LastAt()))
}

// The number of samples stays where it ends.
func TestSamplesEnd(t *testing.T) {
	var c ewma.Core
	_, err := c.RestoreState([]byte{1, 0xfe, 0xff, 0xff, 0xff, 0x07, 0, 7, 0}, 0)
	require.NoError(t, err)
	require.Equal(t, math.MaxInt32-1, c.Samples())
	for now := range int64(3) {
		c.Observe(now, 7)
		require.Equal(t, math.MaxInt32, c.Samples())
	}
	_, err = c.RestoreState(c.AppendState(nil, 3), 3)
	require.NoError(t, err)
}
