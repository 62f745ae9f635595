package balancer_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// Selectable counts what the Snapshot of the same instant says.
func TestSelectable(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clock.NewManual(time.Unix(0, 0))},
		balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1, Limit: 1}, balancer.Member{Name: "c"})
	require.NoError(t, err)
	same := func(want int) {
		t.Helper()
		n := 0
		for _, u := range p.Snapshot().Upstreams {
			if u.Selectable {
				n++
			}
		}
		require.Equal(t, want, n)
		require.Equal(t, want, p.Selectable())
	}
	same(2)
	require.NoError(t, p.SetHealth("a", false, "test"))
	same(1)
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	same(0)
	l.Release(balancer.Success)
	same(1)
	require.NoError(t, p.Update())
	same(0)
}

// A tape that another one has replaced cannot end what that one records.
func TestDetach(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clock.NewManual(time.Unix(0, 0))}, balancer.Member{Name: "a", Share: 1})
	require.NoError(t, err)
	a, b := balancer.NewTape(100), balancer.NewTape(100)
	p.Detach(nil)
	p.Attach(a)
	p.Poll()
	require.EqualValues(t, 1, a.Since(), "that a has joined")
	require.NoError(t, p.SetHealth("a", false, "test"))
	p.Attach(b)
	p.Detach(a)
	p.Poll()
	require.EqualValues(t, 2, b.Since())
	require.True(t, a.Replaced())
	p.Detach(b)
	require.False(t, b.Replaced(), "its owner has ended it")
	p.Poll()
	p.Detach(b)
	require.Len(t, a.Dump().Records, 3)
	require.Len(t, b.Dump().Records, 1)

	p.Attach(a)
	p.Attach(a)
	require.False(t, a.Replaced(), "it is there again")
	p.Attach(nil)
	require.True(t, a.Replaced())
	require.False(t, balancer.NewTape(0).Replaced())
}
