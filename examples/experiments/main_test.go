package main

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// band is where a figure of a small run must lie.
type band struct {
	variant, measure string
	least, most      float64
}

// The main figures of every card, at a twentieth of the size and for one seed. The
// bands are as wide as such a run scatters over other seeds: what leaves them is
// another behaviour, not another draw.
var bands = map[string][]band{
	"E1": {
		{"round robin", "% within 1 s", 95.4, 95.5},
		{"round robin", "p95, ms", 175, 185},
		{"round robin", "p97, ms", 1990, 2010},
		{"random", "% within 1 s", 95.2, 95.8},
		{"least loaded", "% within 1 s", 99.53, 99.59},
		{"P2C", "% within 1 s", 99.46, 99.53},
		{"P2C peak EWMA", "% within 1 s", 99.93, 99.96},
		{"P2C peak EWMA", "p99, ms", 175, 185},
		{"our default", "% within 1 s", 99.93, 99.96},
		{"our default, slow ones ejected", "% within 1 s", 99.96, 99.98},
	},
	"E2": {
		{"cold start: Finagle EWMA", "% to the server meanwhile", 2.3, 2.8},
		{"slow middle: Finagle EWMA", "% to the server meanwhile", .13, .2},
		{"slow middle: our default, no retry", "% slow or failed", .08, .13},
		{"fails for 15 s: Finagle EWMA", "% to the server meanwhile", 9.5, 10.2},
		{"fails for 15 s: our default, no retry", "% to the server meanwhile", .09, .16},
		{"fails for 15 s: our default, no retry", "s until its first success", 15, 16},
		{"fails for 15 s: our default, no retry", "s until half its fair share", 14, 16},
		{"fails for 15 s: round robin", "s until half its fair share", 0, 0},
		{"fails for good: our default, no retry", "% slow or failed", .03, .06},
		{"fails for good: round robin", "% slow or failed", 7.77, 7.79},
	},
	"E3": {
		{"one server at twice the latency", "its load over the others'", .42, .58},
		{"one server at an hour", "requests to it", 1, 1},
		{"5 clients, 150 requests, 10 servers", "most on one server", 75, 100},
	},
	"E4": {
		{"load 0.50", "mean sojourn / service", 1.22, 1.33},
		{"load 0.70", "mean sojourn / service", 1.56, 1.67},
		{"load 0.80", "mean sojourn / service", 1.85, 2.05},
		{"load 0.90", "mean sojourn / service", 2.4, 2.8},
		{"load 0.50", "longest queue", 3, 5},
		{"load 0.90", "longest queue", 6, 8},
		{"load 0.95", "longest queue", 6, 9},
	},
	"E5": {
		{"two distinct hosts", "% to the loaded one", 0, 0},
		{"with replacement (Envoy)", "% to the loaded one", 23, 27},
	},
	"E13": {
		{"1 of 1000 leave", "% of slots changed", .6, .7},
		{"10 of 1000 leave", "% of slots changed", 3.2, 3.5},
		{"50 of 1000 leave", "% of slots changed", 8.1, 8.5},
		{"5 of 100 leave", "% of slots changed", 5.7, 6.1},
		{"1000 members", "most slots of one", 66, 66},
		{"1000 members", "fewest slots of one", 65, 65},
	},
	"E14": {
		{"c = 1.25, 100 points", "loads above the bound", 0, 0},
		{"c = 1.25, 100 points", "max / mean", 1.2, 1.25},
		{"c = 1.10, 100 points", "max / mean", 1.1, 1.1},
		{"c = 1.25, 100 points", "% displaced, bound known", 0, 1.2},
		{"c = 1.05, 100 points", "% displaced, bound known", 3.4, 5.8},
		{"c = 1.25, 1 points", "% displaced, bound known", 30, 48},
	},
	"E15": {
		{"no retries", "700/s: s to recover", 18, 24},
		{"no retries", "800/s: s to recover", 29, 42},
		{"two retries", "800/s: attempts per request in the stall", 2.99, 3},
		{"two retries", "700/s: s to recover", math.Inf(1), math.Inf(1)},
		{"Finagle budget", "700/s: attempts per request in the stall", 1.205, 1.225},
		{"Finagle budget", "700/s: s to recover", 44, 61},
		{"gRPC A6 budget", "700/s: attempts per request in the stall", 1, 1.01},
		{"AWS budget", "800/s: s to recover", 29, 42},
		{"our budget", "800/s: attempts per request in the stall", 1, 1.002},
		{"our budget", "800/s: recovery over that of no retries", .95, 1.05},
		{"our default Pool", "700/s: s to recover", 1, 3},
		{"our budget", "1 % failing: % of failures retried", 99.9, 100},
	},
	"E17": {
		{"no budget", "attempts per request", 3, 3},
		{"a tenth of requests", "attempts per request", 1.099, 1.101},
		{"Finagle budget", "attempts per request", 1.2, 1.22},
		{"our budget", "attempts per request", 1, 1.001},
		{"no budget", "through 5 layers", 243, 243},
		{"our budget", "through 5 layers", 1.001, 1.05},
	},
	"E18": {
		{"5 1 1", "wrong counts after whole cycles", 0, 0},
		{"20 random, 1 to 100", "picks ahead of the share", .7, .9999},
		{"30 random, 1 to 32", "picks behind it", .7, 1.4999},
		{"1000 of 128, 100 of 10, updates", "% to the light ones", .74, .81},
		{"first picks of 1000 clients, 10 hosts", "chi-square, 9 degrees", 1, 27.88},
		{"the same of 40 hosts", "chi-square, 39 degrees", 15, 72.05},
	},
	"E21": {
		{"5 in a row (Envoy, Finagle, ours)", "failures until it is out", 5, 5},
		{"7 in a row (linkerd)", "failures until it is out", 7, 7},
		{"success rate below 0.8 (Finagle)", "s of failures, window 30 s", 6.68, 6.72},
		{"success rate below 0.8 (Finagle)", "failures below 0.5, window 100", 70, 70},
		{"1 % failing at random, 1e6 requests", "ejections", 0, 0},
		{"half of 20 servers fail, cap 10 %", "most ejected at once, %", 10, 10},
		{"16 of 20 servers fail, our cap", "most ejected at once, %", 50, 50},
	},
	"E22": {
		{"round robin", "% failed", 9.9, 10.1},
		{"least loaded", "% failed", 50, 54},
		{"P2C", "% failed", 17.5, 20},
		{"P2C peak EWMA (Finagle)", "% failed", 18, 21},
		{"ours, without ejector and breaker", "% failed", .3, .9},
		{"ours, no retry", "% failed", 0, .13},
		{"our default, failures retried", "% failed", 0, 0},
	},
	"E24": {
		{"1 permits", "admitted while open", 0, 0},
		{"10 permits", "admitted when half-open", 10, 10},
		{"10 permits", "admitted for one cancelled", 1, 1},
	},
}

// Every card is well formed and comes to its figures.
func TestCards(t *testing.T) {
	require.Len(t, bands, len(cards))
	for _, c := range cards {
		if raceOn && !slices.Contains([]string{"E3", "E5", "E14", "E22", "E24"}, c.id) {
			// A run of one goroutine, ten times as slow: the figures are the same.
			continue
		}
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, strings.ToUpper(c.id), c.id)
			got := map[[2]string]float64{}
			for _, f := range c.run(&lab{seed: 1, shrink: 20}) {
				require.NotEmpty(t, f.variant)
				require.NotEmpty(t, f.measure)
				require.Equal(t, f.goal != "", f.met != nil)
				key := [2]string{f.variant, f.measure}
				require.NotContains(t, got, key, "two figures of one name")
				got[key] = f.value
			}
			require.NotEmpty(t, bands[c.id])
			for _, b := range bands[c.id] {
				key := [2]string{b.variant, b.measure}
				require.Contains(t, got, key)
				require.GreaterOrEqual(t, got[key], b.least, key)
				require.LessOrEqual(t, got[key], b.most, key)
			}
		})
	}
}

// Each kind of goal can be reached and missed.
func TestGoals(t *testing.T) {
	never := math.Inf(1)
	for _, c := range []struct {
		f    figure
		good [3]float64 // mean, least, most
		bad  [3]float64
	}{
		{figure{}.atLeast(2), [3]float64{2, 1, 3}, [3]float64{1.9, 1.9, 9}},
		{figure{}.atMost(2), [3]float64{2, 1, 3}, [3]float64{2.1, 0, 3}},
		{figure{}.always(2), [3]float64{1, 0, 2}, [3]float64{1, 0, 2.1}},
		{figure{}.below(2), [3]float64{1, 0, 1.9}, [3]float64{1, 0, 2}},
		{figure{}.exactly(2), [3]float64{2, 2, 2}, [3]float64{2, 1, 3}},
		{figure{}.within(10, 2), [3]float64{2.19, 0, 9}, [3]float64{2.3, 2, 2.5}},
		{figure{}.never(), [3]float64{never, never, never}, [3]float64{never, 5, never}},
	} {
		require.NotEmpty(t, c.f.goal)
		require.True(t, c.f.met(c.good[0], c.good[1], c.good[2]), c.f.goal)
		require.False(t, c.f.met(c.bad[0], c.bad[1], c.bad[2]), c.f.goal)
	}
}

func TestTable(t *testing.T) {
	var b, again bytes.Buffer
	o := options{cards: "e24, E5", seeds: 2, first: 1, shrink: 100}
	require.NoError(t, run(&b, o))
	require.NoError(t, run(&again, o))
	require.Equal(t, b.String(), again.String())
	require.Contains(t, b.String(), "half-open stampede")
	require.Contains(t, b.String(), " of 8 goals met")

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
	one := row{Card: "E0", Variant: "v", Measure: "m", Mean: 2, Least: 1, Most: 3, Goal: "<= 1", Met: new(bool), Note: "since it is late"}
	rows := []row{one, one}
	var b bytes.Buffer
	require.NoError(t, table(&b, rows, options{seeds: 1, first: 1, shrink: 1}))
	require.Regexp(t, `v +m +2 +1 \.\. 3 +- +<= 1 +no`, b.String())
	require.Contains(t, b.String(), "0 of 2 goals met")
	require.Equal(t, 1, strings.Count(b.String(), "E0, v: since it is late\n"), "a note is printed once")
}
