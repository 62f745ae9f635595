package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func output(t *testing.T, seed uint64) string {
	var b bytes.Buffer
	require.NoError(t, run(&b, seed))
	return b.String()
}

func TestRows(t *testing.T) {
	out := output(t, 7)
	lines := strings.Split(out, "\n")
	var squeezed []string
	for _, l := range lines {
		squeezed = append(squeezed, strings.Join(strings.Fields(l), " "))
	}
	has := func(want string) {
		t.Helper()
		require.Contains(t, squeezed, want)
	}
	t.Run("E-DM-01", func(t *testing.T) {
		has("600 ms 200 /checkout?o=5 -> shop [C(server error 503 FAIL) retry->A(200 ok)]")
		has("700 ms 200 /checkout?o=7 -> shop [C(server error 503 FAIL) retry->B(200 ok)]")
		has("800 ms 200 /checkout?o=9 -> shop [C(server error 503 FAIL) retry->A(200 ok)]")
		has("800 ms * C ejected until 3300 ms")
		has("C true 0 closed yes 6") // out, and its breaker closed
		has("3800 ms 200 /cart?i=2 -> shop [C(server error 503 FAIL) retry->B(200 ok)]")
		has("3900 ms * C opened until 6900 ms")
		has("C true 0 open no 8")
		has("6900 ms * C half_open")
		has("7550 ms 200 /catalog?r=0 -> shop [C(200 ok)]")
		has("7700 ms * C closed")
		has("A true 0 closed no 20")
		has("B true 0 closed no 23")
		has("C true 0 closed no 13")
		has("totals: requests 51, retries 5, failovers 5, retry tokens left 10.0")
	})
	t.Run("E-DM-02", func(t *testing.T) {
		trail := func(path string) string {
			for _, l := range squeezed {
				if i := strings.Index(l, "200 "+path+" "); i >= 0 {
					return l[i:]
				}
			}
			return ""
		}
		require.Equal(t, "200 /checkout?o=5 -> shop [C(server error 503 FAIL) retry->A(200 ok)]", trail("/checkout?o=5"))
		require.Equal(t, "200 /checkout?o=7 -> shop [C(server error 503 FAIL) retry->B(200 ok)]", trail("/checkout?o=7"))
	})
}

func TestSameSeedSameBytes(t *testing.T) {
	first := output(t, 42)
	require.Equal(t, first, output(t, 42))
	require.NotEqual(t, first, output(t, 43), "the seed keys the draws")
}

// The README shows what the example prints.
func TestReadmeShowsTheOutput(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	out := output(t, 7)
	_, block, _ := strings.Cut(string(readme), "```\nfrom ")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(block, "\n")
	require.Greater(t, len(lines), 8)
	for _, l := range lines {
		require.Contains(t, out, l)
	}
}

// Under the zero Config the caller of the drawn incident sees no failure.
func TestDrawnIncidentHealsUnseen(t *testing.T) {
	_, drawn, ok := strings.Cut(output(t, 7), "5. Under the zero Config")
	require.True(t, ok)
	for _, l := range strings.Split(drawn, "\n") {
		if strings.Contains(l, "answered by") {
			require.True(t, strings.HasSuffix(l, "failed 0"), l)
		}
	}
	require.Contains(t, drawn, "B ejected")
	require.Contains(t, drawn, "B returned")
}
