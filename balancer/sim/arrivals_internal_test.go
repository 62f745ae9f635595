package sim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// What does not fit is as long as can be, and at the highest load there still is
// a gap.
func TestGaps(t *testing.T) {
	const most = math.MaxUint64
	require.Equal(t, uint64(1<<63), times(1<<62, 2<<32))
	require.Equal(t, uint64(1<<62), times(1<<63, 1<<31))
	require.Equal(t, uint64(most), times(1<<62, 4<<32))
	require.Equal(t, uint64(most), times(most, 1<<33))
	require.Equal(t, uint64(most), times(most, 1<<32))
	require.Zero(t, times(5, 0))

	require.Equal(t, uint64(12345), atLoad(12345, q40))
	require.Equal(t, uint64(4115), atLoad(12345, 3*q40))
	require.Equal(t, uint64(most), atLoad(most, q40))
	require.Equal(t, uint64(most), atLoad(most, q40-1))
	require.Equal(t, uint64(most), atLoad(1<<24, 1))
	require.Equal(t, uint64(1<<63), atLoad(1<<23, 1))
	require.Equal(t, uint64(1), atLoad(1, q40))
	require.Equal(t, uint64(1), atLoad(1, q40+1))
	require.Equal(t, uint64(1), atLoad(0, q40))
	require.Equal(t, uint64(1), Change{Factor: math.SmallestNonzeroFloat64}.loadOf())
	require.Equal(t, uint64(1e6*q40), Change{Factor: 1e6}.loadOf())
}

// A turn beyond the range of time is there, and not before the first.
func TestTurns(t *testing.T) {
	p := play{Change: Change{Kind: Roll, At: maxTime, For: maxTime, Every: maxTime}}
	from, to := p.span(3)
	require.Equal(t, []int64{4 * int64(maxTime), 5 * int64(maxTime)}, []int64{from, to})
	last := int64(0)
	for rank := 1; rank <= maxCount; rank *= 2 {
		from, to := p.span(rank)
		require.GreaterOrEqual(t, from, last)
		require.Greater(t, to, from)
		last = from
	}
}
