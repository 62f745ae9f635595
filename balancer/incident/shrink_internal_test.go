package incident

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMinimize(t *testing.T) {
	minimize := func(all []string, good func([]string) bool) []string { return minimized(t, all, good) }
	has := func(s []string, x string) bool { return slices.Contains(s, x) }
	require.Empty(t, minimize([]string{"a"}, func([]string) bool { return true }))
	require.Empty(t, minimize(nil, func([]string) bool { return true }))
	// a can go only when b has gone, and that goes later.
	good := func(s []string) bool { return has(s, "c") && has(s, "d") && (has(s, "a") || !has(s, "b")) }
	require.Equal(t, []string{"c", "d"}, minimize([]string{"a", "c", "b", "d"}, good))
	for n := range 40 {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		for _, want := range [][]int{{}, {0}, {n - 1}, {n / 3, n / 2}} {
			if n == 0 || n == 1 && len(want) > 1 {
				continue
			}
			want = slices.Compact(want)
			got := minimized(t, all, func(s []int) bool {
				for _, x := range want {
					if !slices.Contains(s, x) {
						return false
					}
				}
				return true
			})
			require.Equal(t, want, append([]int{}, got...))
		}
	}
}

func minimized[T any](t *testing.T, all []T, good func([]T) bool) []T {
	got, err := minimize(all, func(s []T) (bool, error) { return good(s), nil })
	require.NoError(t, err)
	return got
}

// An error ends it at once, with what is left by then.
func TestMinimizeEnds(t *testing.T) {
	calls, broken := 0, errors.New("broken")
	got, err := minimize([]int{1, 2, 3, 4}, func([]int) (bool, error) {
		if calls++; calls == 2 {
			return false, broken
		}
		return true, nil
	})
	require.Equal(t, broken, err)
	require.Equal(t, []int{3, 4}, got)
	require.Equal(t, 2, calls)
}
