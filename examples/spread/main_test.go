package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer"
)

func TestSpread(t *testing.T) {
	for name, want := range map[string][]string{
		"weighted":    {"A   weight 1  served  1000", "B   weight 1  served  1000", "C   weight 3  served  3000", "D   weight 1  served  1000"},
		"round_robin": {"A   weight 1  served  1500", "D   weight 1  served  1500"},
		"least_conn":  {"A   weight 1  served  1500", "C   weight 3  served  1500"}, // all idle: everyone is equal
	} {
		policy, err := balancer.ParsePolicy(name)
		require.NoError(t, err)
		var b, again bytes.Buffer
		require.NoError(t, spread(&b, policy))
		for _, line := range want {
			require.Contains(t, b.String(), line)
		}
		require.NoError(t, spread(&again, policy))
		require.Equal(t, b.String(), again.String())
	}
}
