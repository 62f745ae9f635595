package breaker_test

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

// A fixed run with everything on, jitter included, leaves the same trace on every
// architecture and in every release: the hash covers each answer, each change and
// the saved state. It must only change with a deliberate change of behaviour.
func TestGoldenRun(t *testing.T) {
	cfg := breaker.Config{
		ConsecutiveFailures: 4, WindowFailures: 6, FailureRate: 1.0 / 3, SlowRate: 0.7, MinCalls: 8,
		SlowAfter: 30 * time.Millisecond, FailAfter: 90 * time.Millisecond, Window: 700 * time.Millisecond,
		OpenFor: 50 * time.Millisecond, OpenGrowth: 1.7, OpenMax: time.Second, OpenJitter: 0.3,
		ForgetAfter: 400 * time.Millisecond, LateFailure: breaker.LateRestart,
		Trials: 2, Passes: 3, TrialTimeout: 8 * time.Millisecond,
		FlapTransitions: 3, FlapWindow: 300 * time.Millisecond,
	}
	c := breaker.NewCore(cfg, 42)
	h := fnv.New64a()
	r := rng(7)
	now := int64(0)
	var held []breaker.Ticket
	for range 20000 {
		now += int64(r.n(8)) * ms / 2
		switch op := r.n(40); {
		case op < 18:
			tk, why := c.Allow(now)
			fmt.Fprint(h, why)
			if why == breaker.Admitted {
				held = append(held, tk)
			}
		case op < 34 && len(held) > 0:
			i := r.n(uint64(len(held)))
			fmt.Fprint(h, c.Done(now, held[i], r.n(5) > 0))
			held = append(held[:i], held[i+1:]...)
		case op == 36 && len(held) > 0:
			c.Cancel(now, held[0])
			held = held[1:]
		case op == 37:
			c.Trip(now, int64(r.n(90))*ms)
		case op == 38 && r.n(20) == 0:
			c.Force(now, breaker.State(r.n(3)))
		case op == 39:
			c.Release(now)
		}
		for c.Changed() {
			ch, _ := c.Pop()
			fmt.Fprintf(h, "%d %d %v %v %v %v %v %v\n",
				ch.At, int64(ch.OpenFor), ch.Counts, ch.Kind, ch.From, ch.To, ch.Rule, ch.Suppressed)
		}
	}
	h.Write(c.AppendState(nil, now))
	st := c.Stats()
	require.Equal(t, "0x6e6c7691c528fb5f 95 7 110", fmt.Sprintf("%#x %d %d %d", h.Sum64(), st.Opened, st.HalfOpenAbandoned, st.HalfOpenLost))
}
