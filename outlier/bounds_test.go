package outlier_test

import (
	"hash/fnv"
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// The greatest values that a Config may have.
func TestConfigLimits(t *testing.T) {
	require.NoError(t, outlier.Config{RampGrowth: 1_000_000, Latency: outlier.Latency{Factor: 1_000_000}}.Validate())
	require.Error(t, outlier.Config{RampGrowth: 1_000_001}.Validate())
	require.Error(t, outlier.Config{Latency: outlier.Latency{Factor: 1_000_001}}.Validate())
	require.NoError(t, outlier.Config{RampGrowth: 1100, Latency: outlier.Latency{Factor: 1001}}.Validate())
}

// The first number that names nothing, of each kind of number.
func TestUnknownNames(t *testing.T) {
	require.Equal(t, "would return", outlier.WouldReturn.String())
	require.Equal(t, "unknown", (outlier.WouldReturn + 1).String())
	require.Equal(t, "latency", outlier.RuleLatency.String())
	require.Equal(t, "unknown", (outlier.RuleLatency + 1).String())
}

// Hosts that were out together return in the order in which they were added.
func TestReturnsInOrderOfAdding(t *testing.T) {
	d := outlier.New(outlier.Config{MaxEjectedPercent: 100}, 1)
	var order []string
	d.Observe(func(e outlier.Event) {
		if e.Kind == outlier.Returned {
			order = append(order, e.ID)
		}
	})
	var hosts []*outlier.Handle
	for _, id := range []string{"m", "z", "a", "stays"} {
		hosts = append(hosts, d.Add(epoch, id))
	}
	for _, i := range []int{2, 0, 1} {
		break5(hosts[i], epoch)
	}
	d.Poll(epoch.Add(time.Hour))
	require.Equal(t, []string{"m", "z", "a"}, order)
}

// The key of a host is FNV-1a of its name with the mixer over it: recordings
// depend on it.
func TestHashGolden(t *testing.T) {
	mix := func(x uint64) uint64 {
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	for _, id := range []string{"", "a", "10.0.0.1:8080", "h\xff\x00é"} {
		h := fnv.New64a()
		h.Write([]byte(id))
		require.Equal(t, mix(h.Sum64()), outlier.HashID(id), "%q", id)
	}
}

// Arithmetic beyond 64 bits, where a behaviour would take ages to get to.
func TestWideArithmetic(t *testing.T) {
	require.Equal(t, int64(math.MaxInt64), outlier.MulDiv(1<<62, 1<<62, 1<<60), "the quotient is 2^64")
	require.Equal(t, int64(math.MaxInt64), outlier.MulDiv(1<<62, 1<<62, 1<<61), "the quotient is 2^63")
	require.Equal(t, int64(1<<62), outlier.MulDiv(1<<62, 1<<62, 1<<62))

	hi, lo := outlier.Total([]uint64{math.MaxUint64, 2}, nil)
	require.Equal(t, []uint64{1, 1}, []uint64{hi, lo})
	hi, lo = outlier.Total([]uint64{math.MaxUint64, 2}, []uint64{2})
	require.Equal(t, []uint64{0, math.MaxUint64}, []uint64{hi, lo})
}

// Draws are numbered by the verdicts on the host, from 1, in a stream of their
// own for jitter and for each rule: recordings depend on it.
func TestDrawsAreNumberedByVerdict(t *testing.T) {
	const seed, key = 1, 100 // of the rig and of its host 0
	below := func(stream, n, limit uint64) int64 {
		hi, _ := bits.Mul64(outlier.Draw(seed^key, stream, n), limit)
		return int64(hi)
	}
	for i, jitter := range jitters(newRig(t, 1, 3, outlier.Config{Jitter: 5 * time.Second, Forgive: -1}), 0, 20) {
		require.Equal(t, below(1, uint64(i)+1, uint64(5*sec)+1), jitter, "ejection %d", i)
	}
	// A sweep counts on.
	r := newRig(t, sec, 3, outlier.Config{
		Consecutive: -1, Jitter: 5 * time.Second, Base: time.Second, Max: time.Second,
		FailurePercentage: outlier.FailurePercentage{On: true, MinHosts: 1},
	})
	for i := range int64(5) {
		r.mixed(10*i+7, 0, 0, 50)
		r.sweep(10*i+10, 0)
		require.Equal(t, below(1, uint64(i)+1, uint64(5*sec)+1), r.hosts[0].Until()-(10*i+11)*sec, "sweep %d", i)
	}
	r = newRig(t, 1, 3, outlier.Config{Enforce: 50, Base: 1, Max: 1})
	for i := range int64(20) {
		r.mixed(2*i, 0, 0, 5)
		require.Equal(t, below(16+1, uint64(i)+1, 100) < 50, r.hosts[0].Ejected(), "verdict %d", i)
		r.c.Poll(2*i + 1)
	}
}

// What the inline rule compared: failures and results of the interval.
func TestInlineNumbers(t *testing.T) {
	r := newRig(t, sec, 3, outlier.Config{
		Consecutive: -1, FailurePercentage: outlier.FailurePercentage{On: true, Inline: true, Threshold: 40, MinRequests: 5},
	})
	r.mixed(1, 0, 3, 2)
	ch := r.drain()
	require.Len(t, ch, 1)
	require.Equal(t, []int64{2, 5}, []int64{ch[0].Seen, ch[0].Limit})
}

// The score is exact also where one of its two products needs more than 64 bits
// and the other does not.
func TestScoreOfLongCalls(t *testing.T) {
	for _, c := range []struct {
		first, second time.Duration
		want          int64
	}{
		{100 * time.Hour, time.Millisecond, 270_000_000_250_000_000},
		{time.Millisecond, 100 * time.Hour, 90_000_000_750_000_000},
	} {
		r := newRig(t, sec, 3, outlier.Config{Latency: outlier.Latency{On: true}})
		r.slow(1, 0, c.first)
		r.slow(2, 0, c.second)
		score, ok := r.hosts[0].Score()
		require.True(t, ok)
		require.Equal(t, c.want, score)
	}
}

// The run of failures stays where it ends, below the limit of a rule that is off.
func TestStreakEnds(t *testing.T) {
	r := newRig(t, sec, 3, outlier.Config{Consecutive: -1})
	outlier.SetStreak(r.hosts[0], math.MaxUint32-2)
	r.mixed(0, 0, 0, 3)
	require.Equal(t, uint32(math.MaxUint32-1), uint32(r.hosts[0].Streak()))
	r.want(0)
}

// At the end of time a ramp has one step left.
func TestRampAtTheEndOfTime(t *testing.T) {
	cfg := fixed(5, time.Second)
	cfg.Return = outlier.Ramp
	r := newRig(t, 1, 3, cfg)
	r.mixed(math.MaxInt64-1-sec, 0, 0, 5)
	r.drain()
	r.c.Poll(math.MaxInt64)
	ch := r.drain()
	require.Len(t, ch, 2)
	require.Equal(t, []outlier.Kind{outlier.Returned, outlier.Stepped}, []outlier.Kind{ch[0].Kind, ch[1].Kind})
	require.Equal(t, []int{250, 1000}, []int{ch[0].Weight, ch[1].Weight})
}

// A rate of exactly Dead is dead: here the mean and the deviation see nobody.
func TestExactlyDead(t *testing.T) {
	r := newRig(t, sec, 6, outlier.Config{Consecutive: -1, SuccessRate: outlier.SuccessRate{On: true}})
	for i := range 6 {
		if i < 2 {
			r.mixed(1, i, 10, 90)
		} else {
			r.mixed(1, i, 100, 0)
		}
	}
	r.sweep(10, 0, 1)
}
