package sim

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Against a sorted list: pops are by (at, seq), whatever comes between.
func TestHeap(t *testing.T) {
	var h heap
	var list []event
	x := uint64(1)
	for n := range uint64(20_000) {
		x = mix(x + golden)
		if len(list) == 0 || x%100 < 48 || n%1000 < 60 {
			e := event{at: int64(x >> 32 % 500), seq: n, a: uint32(x)}
			h.push(e)
			at, _ := slices.BinarySearchFunc(list, e, func(a, b event) int {
				if before(&a, &b) {
					return -1
				}
				return 1
			})
			list = slices.Insert(list, at, e)
		} else {
			require.Equal(t, list[0], h.pop())
			list = list[1:]
		}
		require.Equal(t, len(list), h.len())
	}
}

// A share of nothing is never hit and the whole always.
func TestThreshold(t *testing.T) {
	require.False(t, hit(0, threshold(0)))
	require.True(t, hit(1<<64-1, threshold(1)))
	require.True(t, hit(1<<63-1, threshold(.5)))
	require.False(t, hit(1<<63, threshold(.5)))
}
