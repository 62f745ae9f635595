package hashring_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/hashring"
)

// FuzzTableOps decodes a member set, a set of members that are down, and keys
// from bytes, and checks what must hold for all of them.
func FuzzTableOps(f *testing.F) {
	f.Add([]byte{0, 3, 1, 1, 1, 0, 'k', 'e', 'y'})
	f.Add([]byte{7, 5, 255, 0, 3, 9, 1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{255, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x55, 0x0a})
	f.Fuzz(func(t *testing.T, in []byte) {
		next := func() (b byte) {
			if len(in) > 0 {
				b, in = in[0], in[1:]
			}
			return b
		}
		options := next()
		n := int(next() % 16)
		ms := numbered(n)
		for i := range ms {
			ms[i].Weight = int(next())
			if options&1 != 0 {
				ms[i].Weight %= 3
			}
		}
		down := uint(next()) | uint(next())<<8
		seed := uint64(options >> 4)
		cfg := hashring.RingConfig{VirtualNodes: 1 + int(options>>1&3), MaxPoints: 256, Seed: seed}
		kinds := func(ms []hashring.Member) []hashring.Table {
			return []hashring.Table{
				ring(t, cfg, ms),
				rendezvous(t, hashring.RendezvousConfig{Seed: seed}, ms),
				maglev(t, hashring.MaglevConfig{TableSize: 101, Seed: seed}, ms),
			}
		}
		points := 0
		for _, m := range ms {
			points += m.Weight * cfg.VirtualNodes
		}
		out := func(m int) bool { return down>>m&1 != 0 }
		rest := slices.Clone(ms)
		for i := range rest {
			if out(i) {
				rest[i].Weight = 0
			}
		}
		all, left := kinds(ms), kinds(rest)
		var word [8]byte
		copy(word[:], in)
		for _, key := range []uint64{binary.LittleEndian.Uint64(word[:]), hashring.KeyBytes(in), 0, 1<<64 - 1} {
			for i, table := range all {
				checkWalk(t, table, ms, key)
				m := firstUsable(table, key, out)
				if home := table.Lookup(key); home >= 0 && !out(home) && m != home {
					t.Fatalf("%T: key %#x left %d for %d", table, key, home, m)
				}
				// Rings that are halved may differ in how often, and Maglev
				// makes no such promise.
				if i == 0 && points > cfg.MaxPoints || i == 2 {
					continue
				}
				if want := left[i].Lookup(key); m != want {
					t.Fatalf("%T: key %#x walks to %d, a table without the others says %d", table, key, m, want)
				}
			}
		}
	})
}

// checkWalk checks that a walk starts at the owner, reaches each member with a
// weight and no other, and that Owners agrees with it.
func checkWalk(t *testing.T, table hashring.Table, ms []hashring.Member, key uint64) {
	t.Helper()
	var order []int
	w := table.Walk(key)
	steps := 0
	for m, ok := w.Next(); ok; m, ok = w.Next() {
		if !slices.Contains(order, m) {
			order = append(order, m)
		}
		if steps++; steps > 1000 {
			t.Fatalf("%T: the walk does not end", table)
		}
	}
	first := -1
	if len(order) > 0 {
		first = order[0]
	}
	if table.Lookup(key) != first {
		t.Fatalf("%T: Lookup %d, Walk %d", table, table.Lookup(key), first)
	}
	for i, m := range ms {
		if slices.Contains(order, i) != (m.Weight > 0) {
			t.Fatalf("%T: weight %d, walk %v", table, m.Weight, order)
		}
	}
	if got := ownersOf(table, key, 99); !slices.Equal(got, order) {
		t.Fatalf("%T: Owners %v, Walk %v", table, got, order)
	}
}

// FuzzTableModel drives the state machine of TestModel, FuzzBoundedModel that
// of TestBoundedModel.
func FuzzTableModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(modelProperty)) }

func FuzzBoundedModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(boundedProperty)) }
