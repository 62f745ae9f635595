package hashring_test

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// placementColumns are the columns of testdata/placement.tsv after the key.
var placementColumns = []string{"ring", "maglev", "rendezvous",
	"ring-seeded", "maglev-seeded", "rendezvous-seeded",
	"ring-weighted", "maglev-weighted", "rendezvous-weighted", "jump", "overflow"}

// placementKeys are 20 literal keys; those that look like numbers in hex are
// used as they are.
var placementKeys = []string{"", "a", "user-3", "session-0", "session-1", "10.0.0.1", "/index.html",
	"\u00e4\u20ac", "0", "1", "42", "tenant=t1", "a much longer key, of more than thirty-two bytes",
	"0x0", "0x1", "0x7fffffffffffffff", "0x8000000000000000", "0xffffffffffffffff",
	"0x123456789abcdef0", "0xdeadbeefdeadbeef"}

func placementKey(s string) uint64 {
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		n, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return hashring.Key(s)
}

// placer returns a function that computes the row of a key.
func placer(t *testing.T) func(key uint64) []string {
	ms := list("alpha", "bravo", "10.0.0.3:8080", "delta.example.com", "e")
	uneven := append([]hashring.Member(nil), ms...)
	for i := range uneven {
		uneven[i].Weight = i + 1
	}
	var all []hashring.Table
	for _, seed := range []uint64{0, 7} {
		all = append(all, ring(t, hashring.RingConfig{Seed: seed}, ms),
			maglev(t, hashring.MaglevConfig{Seed: seed}, ms),
			rendezvous(t, hashring.RendezvousConfig{Seed: seed}, ms))
	}
	all = append(all, tables(t, uneven)...)
	bounded, err := hashring.NewBounded(hashring.BoundedConfig{}, all[0])
	require.NoError(t, err)
	return func(key uint64) []string {
		var row []string
		for _, table := range all {
			order := ""
			for _, m := range ownersOf(table, key, 5) {
				order += strconv.Itoa(m)
			}
			row = append(row, order)
		}
		w := bounded.Walk(key)
		overflow := ""
		for m, ok := w.Next(); ok; m, ok = w.Next() {
			overflow += strconv.Itoa(m)
		}
		return append(row, strconv.Itoa(hashring.Jump(key, 5)), overflow)
	}
}

// checkPlacement holds every algorithm to testdata/placement.tsv. Placement is
// a contract: a difference here moves the keys of everyone who upgrades.
func checkPlacement(t *testing.T) {
	f, err := os.Open("testdata/placement.tsv")
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	require.True(t, lines.Scan())
	require.Equal(t, "key\t"+strings.Join(placementColumns, "\t"), lines.Text())
	place := placer(t)
	for _, key := range placementKeys {
		require.True(t, lines.Scan(), "a row for %q", key)
		want := strconv.Quote(key) + "\t" + strings.Join(place(placementKey(key)), "\t")
		require.Equal(t, lines.Text(), want)
	}
	require.False(t, lines.Scan())
}
