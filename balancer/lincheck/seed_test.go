package lincheck_test

import (
	"encoding/hex"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seedOf returns the seed of a random test: EVENKEEL_SEED (decimal, 0x-hex, or
// a 40-digit commit hash, of which the first 16 digits count), else def. It is
// read inside the test so that the test cache sees it. fixed tells whether the
// test runs under its own seed, for which statistical bands hold at their
// printed width; under a user's seed they widen to 6 sigma. A failure prints
// the command that reproduces it.
func seedOf(tb testing.TB, def uint64) (seed uint64, fixed bool) {
	tb.Helper()
	seed, fixed = def, true
	if s := strings.TrimSpace(os.Getenv("EVENKEEL_SEED")); s != "" {
		fixed = false
		if len(s) == 40 {
			raw, err := hex.DecodeString(s)
			if err != nil {
				tb.Fatalf("EVENKEEL_SEED=%q is neither a number nor a commit hash", s)
			}
			seed = 0
			for _, b := range raw[:8] {
				seed = seed<<8 | uint64(b)
			}
		} else {
			n, err := strconv.ParseUint(s, 0, 64)
			if err != nil {
				tb.Fatalf("EVENKEEL_SEED=%q: %v", s, err)
			}
			seed = n
		}
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			name, _, _ := strings.Cut(tb.Name(), "/")
			tb.Logf("to reproduce: EVENKEEL_SEED=%d go test -count=1 -run '^%s$' .", seed, name)
		}
	})
	return seed, fixed
}

// opsOf returns the size of a random workload: EVENKEEL_OPS, else def.
func opsOf(tb testing.TB, def int) int {
	tb.Helper()
	s := os.Getenv("EVENKEEL_OPS")
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		tb.Fatalf("EVENKEEL_OPS=%q, want a positive number", s)
	}
	return n
}

// checkSeeded runs a rapid property under the seed of seedOf.
func checkSeeded(t *testing.T, def uint64, prop func(*rapid.T)) {
	t.Helper()
	seed, _ := seedOf(t, def)
	if err := flag.Set("rapid.seed", strconv.FormatUint(seed, 10)); err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("rapid.nofailfile") != nil {
		_ = flag.Set("rapid.nofailfile", "true")
	}
	rapid.Check(t, prop)
}
