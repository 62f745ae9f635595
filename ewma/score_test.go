package ewma_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// A sum between 2^64 and 2^65, where the product and the carry are both beyond
// 64 bits, saturates too.
func TestSumScoreSaturates(t *testing.T) {
	full := ewma.SumScore(1<<33, 1<<33-1, 1<<32, 1)
	require.False(t, full.Less(ewma.SumScore(1<<62, 0, 0, 1)))
	require.True(t, ewma.SumScore(1<<62, 0, 0, 1).Less(full))
	require.Equal(t, full, ewma.SumScore(0, 1<<62, 1<<62, 1))
}
