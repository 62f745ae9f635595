package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Twelve requests per phase are few enough for the retry budget, however slow
// the machine.
func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(&out, options{seed: 7, requests: 12, ejection: 100 * time.Millisecond})
	require.NoError(t, err, out.String())
	for _, p := range phases {
		require.Contains(t, out.String(), p.name)
	}
	require.Contains(t, out.String(), "B ejected (consecutive")
	require.Contains(t, out.String(), "B returned")
}
