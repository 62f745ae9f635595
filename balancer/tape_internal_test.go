package balancer

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a Dump has noted and not yet copied is nobody's to overwrite: neither a
// ring that goes round nor one that is drained.
func TestTapeKept(t *testing.T) {
	for name, meanwhile := range map[string]func(*Tape){
		"round":   func(*Tape) {},
		"drained": func(t *Tape) { t.Drain(nil) },
	} {
		p, err := NewPool(Config{Seed: 1}, Member{Name: "a", Share: 1})
		require.NoError(t, err)
		tape := NewTape(16)
		p.Attach(tape)
		poll := func() {
			for range 20 {
				p.Poll()
			}
		}
		poll()
		older, newer := tape.keep(&p.e)
		want := newer.records(older.records(nil))
		require.Len(t, want, 20)
		copied := slices.Clone(want)
		for range 5 {
			meanwhile(tape)
			_ = p.SetHealth("a", false, "later")
			poll()
		}
		require.Equal(t, copied, newer.records(older.records(nil)), name)
	}
}
