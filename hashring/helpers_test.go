package hashring_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// tb is what the helpers need of a test, a benchmark or a property.
type tb interface {
	require.TestingT
	Helper()
}

// list returns members of weight 1.
func list(ids ...string) []hashring.Member {
	ms := make([]hashring.Member, len(ids))
	for i, id := range ids {
		ms[i] = hashring.Member{ID: id, Weight: 1}
	}
	return ms
}

// numbered returns n members of weight 1.
func numbered(n int) []hashring.Member {
	ms := make([]hashring.Member, n)
	for i := range ms {
		ms[i] = hashring.Member{ID: "host-" + strconv.Itoa(i), Weight: 1}
	}
	return ms
}

// tables builds every table with its default configuration.
func tables(t tb, ms []hashring.Member) []hashring.Table {
	t.Helper()
	return []hashring.Table{
		ring(t, hashring.RingConfig{}, ms),
		maglev(t, hashring.MaglevConfig{}, ms),
		rendezvous(t, hashring.RendezvousConfig{}, ms),
	}
}

func ring(t tb, cfg hashring.RingConfig, ms []hashring.Member) *hashring.Ring {
	t.Helper()
	r, err := hashring.NewRing(cfg, ms)
	require.NoError(t, err)
	return r
}

func maglev(t tb, cfg hashring.MaglevConfig, ms []hashring.Member) *hashring.Maglev {
	t.Helper()
	m, err := hashring.NewMaglev(cfg, ms)
	require.NoError(t, err)
	return m
}

func rendezvous(t tb, cfg hashring.RendezvousConfig, ms []hashring.Member) *hashring.Rendezvous {
	t.Helper()
	r, err := hashring.NewRendezvous(cfg, ms)
	require.NoError(t, err)
	return r
}

// without returns ms without the member at index i.
func without(ms []hashring.Member, i int) []hashring.Member {
	return append(append([]hashring.Member(nil), ms[:i]...), ms[i+1:]...)
}

// owner returns the id of the member that owns key.
func owner(t hashring.Table, key uint64) string {
	if m := t.Lookup(key); m >= 0 {
		return t.ID(m)
	}
	return ""
}

// keys returns the keys of prefix0, prefix1, ...
func keys(prefix string, n int) []uint64 {
	ks := make([]uint64, n)
	for i := range ks {
		ks[i] = hashring.Key(prefix + strconv.Itoa(i))
	}
	return ks
}

func numberedKey(prefix string, i int) string { return prefix + strconv.Itoa(i) }

// weighted returns members in the order of their ids.
func weighted(weights map[string]int) []hashring.Member {
	var ms []hashring.Member
	for id, w := range weights {
		ms = append(ms, hashring.Member{ID: id, Weight: w})
	}
	slices.SortFunc(ms, func(a, b hashring.Member) int { return strings.Compare(a.ID, b.ID) })
	return ms
}

// firstUsable walks to the first member that is not out, or returns -1.
func firstUsable(t hashring.Table, key uint64, out func(m int) bool) int {
	w := t.Walk(key)
	for m, ok := w.Next(); ok; m, ok = w.Next() {
		if !out(m) {
			return m
		}
	}
	return -1
}

// ownersOf calls the Owners method that every table has.
func ownersOf(t hashring.Table, key uint64, n int) []int {
	return t.(interface{ Owners(uint64, int) []int }).Owners(key, n)
}
