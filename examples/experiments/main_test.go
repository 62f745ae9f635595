package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The cards are well formed. Those that are large even when divided are left to
// the program.
func TestCards(t *testing.T) {
	chosen, err := choose("E3,E5,E14,E18,E22,E24")
	require.NoError(t, err)
	for _, c := range chosen {
		a := c.run(&lab{seed: 1, shrink: 100})
		require.NotEmpty(t, a, c.id)
		for _, f := range a {
			require.NotEmpty(t, f.variant)
			require.NotEmpty(t, f.measure)
			require.Equal(t, f.goal != "", f.met != nil)
		}
		require.Equal(t, strings.ToUpper(c.id), c.id)
	}
}

func TestTable(t *testing.T) {
	var b, again bytes.Buffer
	o := options{cards: "e24, E5", seeds: 2, first: 1, shrink: 100}
	require.NoError(t, run(&b, o))
	require.NoError(t, run(&again, o))
	require.Equal(t, b.String(), again.String())
	require.Contains(t, b.String(), "half-open stampede")
	require.Contains(t, b.String(), "7 of 7 goals met")

	b.Reset()
	o.json = true
	require.NoError(t, run(&b, o))
	var rows []map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &rows))
	require.Len(t, rows, 8)
	require.Equal(t, true, rows[0]["met"])
	require.ErrorContains(t, run(&b, options{cards: "E99", seeds: 1, shrink: 1}), "no card")
	require.Error(t, run(&b, options{shrink: 1}))
}

// A goal that is not reached is printed, not an error.
func TestNotMet(t *testing.T) {
	rows := []row{{Card: "E0", Variant: "v", Measure: "m", Mean: 2, Least: 1, Most: 3, Goal: "<= 1", Met: new(bool)}}
	var b bytes.Buffer
	require.NoError(t, table(&b, rows, options{seeds: 1, first: 1, shrink: 1}))
	require.Regexp(t, `v +m +2 +1 \.\. 3 +- +<= 1 +no`, b.String())
	require.Contains(t, b.String(), "0 of 1 goals met")
}
