package balancer

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The groups of a host's fields begin at lines of 64 bytes, and its size is one
// that the allocator aligns to pairs of lines.
func TestHostLayout(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	var h host
	require.EqualValues(t, 64, unsafe.Offsetof(h.breaker))
	require.EqualValues(t, 128, unsafe.Offsetof(h.failing))
	require.EqualValues(t, 192, unsafe.Offsetof(h.outlier))
	require.EqualValues(t, 384, unsafe.Sizeof(h))
	var kept []*host // on the heap
	for range 100 {
		kept = append(kept, new(host))
		require.Zero(t, uintptr(unsafe.Pointer(kept[len(kept)-1]))%128)
	}
}
