package breaker_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

const (
	ms = int64(time.Millisecond)
	s  = int64(time.Second)
)

// script drives a Core through a scenario. Its times are nanoseconds since 0.
type script struct {
	t *testing.T
	c breaker.Core
}

func newScript(t *testing.T, cfg breaker.Config) *script {
	t.Helper()
	return &script{t, breaker.NewCore(cfg, 1)}
}

// call makes a call that is admitted and settled at once.
func (x *script) call(at int64, ok bool) {
	x.t.Helper()
	t := x.allow(at)
	require.True(x.t, x.c.Done(at, t, ok), "result at %v counts", time.Duration(at))
}

// calls makes one call per letter, F or S, all at the same time.
func (x *script) calls(at int64, results string) {
	x.t.Helper()
	for _, r := range results {
		x.call(at, r == 'S')
	}
}

func (x *script) allow(at int64) breaker.Ticket {
	x.t.Helper()
	t, why := x.c.Allow(at)
	require.Equal(x.t, breaker.Admitted, why, "call at %v", time.Duration(at))
	require.True(x.t, t.Valid())
	return t
}

func (x *script) refused(at int64, want breaker.Reason) {
	x.t.Helper()
	t, why := x.c.Allow(at)
	require.Equal(x.t, want, why, "call at %v", time.Duration(at))
	require.Zero(x.t, t)
}

func (x *script) state(at int64, want breaker.State) {
	x.t.Helper()
	require.Equal(x.t, want, x.c.State(at), "state at %v", time.Duration(at))
	if want == breaker.Open {
		require.False(x.t, x.c.Ready(at), "an open breaker is never ready")
	}
}

// changes returns all that wait.
func (x *script) changes() []breaker.Change {
	var all []breaker.Change
	for ch, ok := x.c.Pop(); ok; ch, ok = x.c.Pop() {
		all = append(all, ch)
	}
	return all
}

// brief is a Change without its counts.
func brief(all []breaker.Change) []breaker.Change {
	for i := range all {
		all[i].Counts = breaker.Counts{}
	}
	return all
}

// rng is a small generator for workloads.
type rng uint64

func (r *rng) n(n uint64) uint64 {
	*r += 0x9e3779b97f4a7c15
	x := uint64(*r)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) % n
}
