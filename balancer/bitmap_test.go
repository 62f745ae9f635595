package balancer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The set against a plain slice of booleans, at sizes around the word and the
// group boundary.
func TestBitmapAgainstBools(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 200, 4095, 4096, 4097, 9000} {
		b, want := newBitmap(n), make([]bool, n)
		for step := uint64(0); step < 2000; step++ {
			x := draw(uint64(n), 77, step)
			i := int(below(x, uint64(n)))
			on := x&3 == 0 // mostly empty, so that the search has far to go
			if b.set(i, on) != (want[i] != on) {
				t.Fatalf("n=%d step=%d: set(%d, %v) tells the wrong change", n, step, i, on)
			}
			want[i] = on
			if step%100 == 0 {
				checkBitmap(t, &b, want, step)
			}
		}
	}
}

func checkBitmap(t *testing.T, b *bitmap, want []bool, step uint64) {
	t.Helper()
	n, members := len(want), []int{}
	for j, w := range want {
		if b.has(j) != w {
			t.Fatalf("n=%d: has(%d) is %v", n, j, !w)
		}
		if w {
			members = append(members, j)
		}
	}
	require.Equal(t, len(members), b.count)
	for k, m := range members {
		if got := b.nth(k); got != m {
			t.Fatalf("n=%d: nth(%d) is %d, want %d", n, k, got, m)
		}
	}
	require.Equal(t, -1, b.nth(len(members)))
	require.Equal(t, -1, b.nth(-1))
	for probe := uint64(0); probe < 20; probe++ {
		from, exp := int(below(draw(step, 78, probe), uint64(n))), -1
		for d := range n {
			if want[(from+d)%n] {
				exp = (from + d) % n
				break
			}
		}
		require.Equal(t, exp, b.next(from), "n=%d from=%d", n, from)
	}
	require.Equal(t, b.next(0), b.next(n))
	require.Equal(t, b.next(0), b.next(-1))
}

func TestSaltIsTheFirstHalfOfDraw(t *testing.T) {
	for n := uint64(0); n < 100; n++ {
		require.Equal(t, draw(n*n, n, 3*n), mix(salt(n*n, n)+3*n*golden))
	}
}

// nextIn is next of the members of both sets.
func TestBitmapNextIn(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 200, 1000} {
		for seed := range uint64(40) {
			a, b, both := newBitmap(n), newBitmap(n), newBitmap(n)
			for i := range n {
				inA := draw(seed, 1, uint64(i))%(seed+1) == 0
				inB := draw(seed, 2, uint64(i))%(40-seed) == 0
				a.set(i, inA)
				b.set(i, inB)
				both.set(i, inA && inB)
			}
			for i := -1; i <= n; i++ {
				require.Equal(t, both.next(i), a.nextIn(&b, i), "%d of %d", i, n)
			}
		}
	}
}
