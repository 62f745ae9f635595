package hashring_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/hashring"
)

func list(ids ...string) []hashring.Member {
	ms := make([]hashring.Member, len(ids))
	for i, id := range ids {
		ms[i] = hashring.Member{ID: id, Weight: 1}
	}
	return ms
}

func TestQuick(t *testing.T) {
	require.Equal(t, uint64(0x7cb122970a23b0a2), hashring.Key("user-3"))
	a, _ := hashring.NewRing(hashring.RingConfig{VirtualNodes: 200}, list("a", "b", "c", "d"))
	b, _ := hashring.NewRing(hashring.RingConfig{VirtualNodes: 200}, list("a", "b", "c"))
	c, _ := hashring.NewRing(hashring.RingConfig{VirtualNodes: 200}, list("a", "b", "c", "d", "e"))
	x, y := 0, 0
	for i := range 4000 {
		k := hashring.Key("session-" + strconv.Itoa(i))
		if a.Lookup(k) != b.Lookup(k) {
			x++
		}
		if a.Lookup(k) != c.Lookup(k) {
			y++
		}
	}
	require.Equal(t, [2]int{1049, 726}, [2]int{x, y})
}
