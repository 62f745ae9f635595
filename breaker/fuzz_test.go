package breaker_test

import (
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"pgregory.net/rapid"
)

// FuzzBreakerModel drives the property of the model test with fuzzed bytes.
func FuzzBreakerModel(f *testing.F) {
	f.Add(make([]byte, 4096))
	f.Fuzz(rapid.MakeFuzz(propModel))
}

// FuzzBreakerOps reads a configuration and operations from the bytes and checks
// what must hold whatever they are.
func FuzzBreakerOps(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 10, 1, 1, 0, 0x10, 0x11, 0x10, 0x11, 0x10, 0x11, 0x2a, 0x00})
	f.Add([]byte{0, 3, 6, 6, 5, 2, 2, 3, 0x10, 0x21, 0x11, 0x35, 0x46, 0x57, 0x68, 0x79})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 8 || len(data) > 4096 {
			t.Skip()
		}
		h, ops := data[:8], data[8:]
		cfg := breaker.Config{
			ConsecutiveFailures: int(h[0] % 8), WindowFailures: int(h[1] % 8),
			FailureRate: float64(h[2]%11) / 10, SlowRate: float64(h[3]%11) / 10,
			MinCalls: int(h[2] / 32), SlowAfter: 3, Window: time.Duration(h[4]),
			OpenFor: time.Duration(h[4]%16 + 1), Trials: int(h[5] % 4), Passes: int(h[6] % 4),
			TrialTimeout: time.Duration(h[5] / 8), FlapTransitions: int(h[7] % 4), FlapWindow: time.Duration(h[6]),
			LateFailure: breaker.LateFailure(h[7] >> 2 & 1), OpenGrowth: 1 + float64(h[7]>>4)/8,
		}
		trials := max(1, cfg.Trials)
		c := breaker.NewCore(cfg, uint64(h[3]))
		var now int64
		var held []breaker.Ticket
		state, last := breaker.Closed, int64(math.MinInt64)
		var opened uint64
		for _, b := range ops {
			arg := int64(b >> 4)
			before, ready := c.State(now), c.Ready(now)
			switch b & 15 {
			case 0, 1, 2, 3:
				tk, why := c.Allow(now)
				if (why == breaker.Admitted) != ready || ready != tk.Valid() {
					t.Fatalf("ready %v, but %v", ready, why)
				}
				if before == breaker.Open && ready || before == breaker.Closed && !ready {
					t.Fatalf("%v and ready %v", before, ready)
				}
				if tk.Valid() {
					held = append(held, tk)
				}
			case 4, 5, 6, 7:
				if len(held) == 0 {
					break
				}
				i := int(arg) % len(held)
				c.Done(now, held[i], b&2 != 0)
				// Settled twice: a trial counts once.
				if held[i].Trial() && c.Done(now, held[i], false) {
					t.Fatal("a trial counted twice")
				}
				held = append(held[:i], held[i+1:]...)
			case 8:
				if len(held) > 0 {
					c.Cancel(now, held[0])
					held = held[1:]
				}
			case 9:
				now += arg
			case 10:
				now += arg * arg
			case 11:
				if at := c.NextChange(); at != math.MaxInt64 {
					now = max(now, at-arg%2)
				}
			case 12:
				c.Trip(now, arg-1)
			case 13:
				c.Force(now, breaker.State(arg%4))
			case 14:
				c.Release(now)
			case 15:
				saved := c.AppendState(nil, now)
				n := c.Fresh(uint64(h[3]))
				if rest, err := n.RestoreState(saved, now); err != nil || len(rest) > 0 {
					t.Fatalf("restore: %v, %d left", err, len(rest))
				}
				c = n
			}
			for ch, ok := c.Pop(); ok; ch, ok = c.Pop() {
				if ch.From != state || ch.At < last || (ch.Kind == breaker.Transition) == (ch.From == ch.To) {
					t.Fatalf("%+v after %v at %d", ch, state, last)
				}
				if ch.Kind == breaker.Transition && ch.To == breaker.Open {
					opened++
				}
				state, last = ch.To, ch.At
			}
			n := c.Counts(now)
			if n.Trials > trials || n.Failures > n.Calls || n.Slow > n.Calls || min(n.Trials, n.Passes, n.Calls) < 0 {
				t.Fatalf("counts %+v", n)
			}
			if st := c.Stats(); st.Opened != opened {
				t.Fatalf("opened %d, reported %d", st.Opened, opened)
			}
			// Never stuck: once all that is due has passed, a call is admitted, unless
			// someone said otherwise.
			if !c.Forced() && cfg.TrialTimeout > 0 && !c.Ready(math.MaxInt64-1) {
				t.Fatalf("stuck in %v", c.State(now))
			}
		}
	})
}

// FuzzBreakerState restores arbitrary bytes: an error, or a core that works and
// saves as the same bytes again when restored from its own.
func FuzzBreakerState(f *testing.F) {
	c := breaker.NewCore(everyRule, 1)
	f.Add(c.AppendState(nil, 0))
	for i := range int64(6) {
		tk, _ := c.Allow(i)
		c.Done(i, tk, false)
	}
	c.Poll(int64(time.Minute))
	c.Allow(int64(time.Minute))
	f.Add(c.AppendState(nil, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := breaker.NewCore(everyRule, 1)
		if _, err := c.RestoreState(data, 0); err != nil {
			return
		}
		saved := c.AppendState(nil, 0)
		n := breaker.NewCore(everyRule, 1)
		if _, err := n.RestoreState(saved, 0); err != nil {
			t.Fatalf("restored, saved and refused: %v", err)
		}
		exercise(&n)
	})
}
