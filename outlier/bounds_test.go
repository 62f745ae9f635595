package outlier_test

import (
	"hash/fnv"
	"math"
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
