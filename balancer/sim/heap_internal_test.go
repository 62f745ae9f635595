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

// What is taken comes in order, and the rest still does.
func TestHeapTake(t *testing.T) {
	var h heap
	var list, out []event
	x := uint64(7)
	for n := range uint64(3000) {
		x = mix(x + golden)
		switch {
		case x%50 == 0:
			third := uint32(x >> 40 % 3)
			var want []event
			list = slices.DeleteFunc(list, func(e event) bool {
				if e.a%3 == third {
					want = append(want, e)
				}
				return e.a%3 == third
			})
			had := len(out)
			out = h.take(out, func(e event) bool { return e.a%3 == third })
			require.ElementsMatch(t, want, out[had:])
			for i := 1; i < len(want); i++ {
				require.True(t, before(&out[had+i-1], &out[had+i]))
			}
		case len(list) > 0 && x%50 < 20:
			first := h.pop()
			for _, e := range list {
				require.False(t, before(&e, &first))
			}
			list = slices.DeleteFunc(list, func(e event) bool { return e == first })
		default:
			e := event{at: int64(x >> 32 % 500), seq: n, a: uint32(x >> 20)}
			h.push(e)
			list = append(list, e)
		}
		require.Equal(t, len(list), h.len())
		require.ElementsMatch(t, list, h.all())
	}
	for len(list) > 0 && h.len() > 0 {
		first := h.pop()
		list = slices.DeleteFunc(list, func(e event) bool { return e == first })
	}
	require.Empty(t, list)
	require.Zero(t, h.len())
	require.Empty(t, h.take(nil, func(event) bool { return true }))
	require.Zero(t, h.len())
}

// A share of nothing is never hit and the whole always.
func TestThreshold(t *testing.T) {
	require.False(t, hit(0, threshold(0)))
	require.True(t, hit(1<<64-1, threshold(1)))
	require.True(t, hit(1<<63-1, threshold(.5)))
	require.False(t, hit(1<<63, threshold(.5)))
}
