package retrybudget_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// The sums of a ring are bounded, not only its entries.
func TestRestoredSumsAreBounded(t *testing.T) {
	cfg := retrybudget.Config{Share: retrybudget.Share{Rate: 0.5}}
	c := retrybudget.NewCore(cfg)
	c.Request(0)
	saved := c.AppendState(nil, 0)
	head := saved[:len(saved)-20] // ten pairs of one byte each
	for _, tc := range []struct {
		pairs [4]uint64
		ok    bool
	}{
		{[4]uint64{1 << 62, 1 << 62, 0, 0}, true},
		{[4]uint64{1 << 61, 1 << 61, 1 << 61, 1 << 61}, true},
		{[4]uint64{1 << 62, 0, 1, 0}, false},
		{[4]uint64{0, 1 << 62, 0, 1}, false},
	} {
		b := append([]byte(nil), head...)
		for _, v := range tc.pairs {
			b = binary.AppendUvarint(b, v)
		}
		b = append(b, make([]byte, 16)...)
		_, err := c.RestoreState(b, 0)
		if tc.ok {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, retrybudget.ErrState)
		}
	}
}

// A state with counts that the configuration has no use for is of another one,
// though what it needs is all there.
func TestRestoreWantsTheSameKind(t *testing.T) {
	share := retrybudget.NewCore(retrybudget.Config{Share: retrybudget.Share{Rate: 0.5, Window: -1}})
	share.Request(0)
	plain := retrybudget.NewCore(retrybudget.Config{})
	_, err := plain.RestoreState(share.AppendState(nil, 0), 0)
	require.ErrorIs(t, err, retrybudget.ErrState)
}

// The last instant of the time line stands for all beyond: nothing expires there.
func TestNothingExpiresAtTheEndOfTime(t *testing.T) {
	c := retrybudget.NewCore(retrybudget.Config{Capacity: 1, Initial: 1, PerSecond: -1, TTL: 10}) // a slot is 1 ns
	require.True(t, c.Withdraw(math.MaxInt64-1))
	_, ok := c.NextGrant(math.MaxInt64 - 1)
	require.False(t, ok)
}
