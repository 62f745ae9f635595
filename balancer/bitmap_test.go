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
		for step := uint64(0); step < 3000; step++ {
			x := draw(uint64(n), 77, step)
			i := int(below(x, uint64(n)))
			on := x&3 == 0 // mostly empty, so that the search has far to go
			require.Equal(t, want[i] != on, b.set(i, on), "n=%d step=%d", n, step)
			want[i] = on
			if step%50 != 0 {
				continue
			}
			var members []int
			for j, w := range want {
				require.Equal(t, w, b.has(j))
				if w {
					members = append(members, j)
				}
			}
			require.Equal(t, len(members), b.count)
			for k := range members {
				require.Equal(t, members[k], b.nth(k))
			}
			require.Equal(t, -1, b.nth(len(members)))
			require.Equal(t, -1, b.nth(-1))
			for probe := uint64(0); probe < 20; probe++ {
				from := int(below(draw(step, 78, probe), uint64(n)))
				exp := -1
				for d := 0; d < n; d++ {
					if want[(from+d)%n] {
						exp = (from + d) % n
						break
					}
				}
				require.Equal(t, exp, b.next(from), "n=%d from=%d", n, from)
			}
			require.Equal(t, b.next(0), b.next(n))
		}
	}
}

func TestSaltIsTheFirstHalfOfDraw(t *testing.T) {
	for n := uint64(0); n < 100; n++ {
		require.Equal(t, draw(n*n, n, 3*n), mix(salt(n*n, n)+3*n*golden))
	}
}
