package outlier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

func TestSmoke(t *testing.T) {
	c := outlier.NewCore(outlier.Config{}, 1)
	var a, b outlier.Host
	c.Add(0, &a, 1)
	c.Add(0, &b, 2)
	for range 5 {
		c.Record(1, &a, 1, outlier.Failure, -1)
	}
	require.True(t, a.Ejected())
	require.Equal(t, int64(30e9+1), c.NextChange())
}
