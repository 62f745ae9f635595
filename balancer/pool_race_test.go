package balancer_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

// Sixteen goroutines use a Pool in every way at once, while its members change
// and a hook that is slow and calls back is told of everything: in order, one
// event at a time, none twice, none left out.
func TestPoolInConcurrentUse(t *testing.T) {
	seed, _ := seedOf(t, 16)
	for _, policy := range []balancer.Policy{balancer.PeakEWMA{}, balancer.LeastConn{}, balancer.WeightedRoundRobin{}} {
		t.Run(policy.Name(), func(t *testing.T) {
			var pool *balancer.Pool[balancer.Member]
			var busy atomic.Bool
			var last, calls atomic.Uint64
			callers := sync.Map{}
			cfg := balancer.Config{
				Policy: policy, Seed: seed | 1,
				Breaker: breaker.Config{ConsecutiveFailures: 4, OpenFor: 100 * time.Microsecond},
				Outlier: outlier.Config{Consecutive: 3, Base: 100 * time.Microsecond},
				Retry:   balancer.Retry{OnFailure: true, SameUpstream: 1},
			}
			cfg.OnEvent = func(e balancer.Event) {
				if !busy.CompareAndSwap(false, true) {
					t.Error("two events at a time")
				}
				if !last.CompareAndSwap(e.Seq-1, e.Seq) {
					t.Errorf("event %d after %d", e.Seq, last.Load())
				}
				callers.Store(goroutine(), true)
				if pool != nil {
					switch n := calls.Add(1); n % 64 {
					case 1:
						_ = pool.SetHealth("m2", n%128 == 1, "from the hook")
					case 2:
						_ = pool.Snapshot()
					case 3:
						for range 20 {
							runtime.Gosched()
						}
					case 4:
						if l, err := pool.Acquire(balancer.Request{}); err == nil {
							l.Release(balancer.Success)
						}
					case 5:
						busy.Store(false)
						panic("from the hook")
					}
				}
				busy.Store(false)
			}
			p, err := balancer.NewPool(cfg, drawTwinMembers(6, 0)...)
			require.NoError(t, err)
			pool = p
			var wg sync.WaitGroup
			ops := opsOf(t, 3200) / 16
			for g := range uint64(16) {
				wg.Go(func() {
					for i := range uint64(ops) {
						x := mixed(seed + g<<32 + i)
						switch x % 40 {
						case 0:
							if err := pool.Update(drawTwinMembers(4+int(x>>8%3), int(x>>16%4))...); err != nil {
								t.Error(err)
							}
						case 1:
							_ = pool.SetHealth(fmt.Sprint("m", x>>8%6), x>>16%2 == 0, "drawn")
						case 2:
							pool.Poll()
							pool.NextChange()
						case 3:
							_ = pool.Save()
							_ = pool.Leases()
						case 4, 5, 6:
							try := pool.Start(balancer.Request{})
							if try.Next().Kind == balancer.StepSend {
								_ = try.Exclusions()
								try.Done(balancer.Report{Outcome: balancer.TransportFailure})
								try.Next()
							}
							try.Stop()
						case 7, 8, 9, 10, 11, 12:
							l, err := pool.Acquire(balancer.Request{Key: balancer.HashKey(x)})
							if err != nil {
								continue
							}
							l.Answered()
							// Of two who end it at once, one does.
							var first atomic.Int32
							var two sync.WaitGroup
							for range 2 {
								two.Go(func() {
									if l.Release(balancer.Outcome(x >> 8 % 4)) {
										first.Add(1)
									}
								})
							}
							two.Wait()
							if first.Load() != 1 {
								t.Errorf("%d of two releases took effect", first.Load())
							}
						default:
							_ = pool.Do(context.Background(), balancer.Request{}, func(context.Context, balancer.Member) error {
								if x>>8%3 == 0 {
									return errDown
								}
								return nil
							})
						}
					}
				})
			}
			wg.Wait()
			s := pool.Snapshot()
			require.Zero(t, s.Totals.Inflight)
			require.Zero(t, s.Totals.BadPicks)
			require.EqualValues(t, s.Totals.Attempts, s.Totals.Successes+s.Totals.Failures+s.Totals.Ignored)
			for _, u := range s.Upstreams {
				require.Zero(t, u.Inflight)
			}
			require.NoError(t, pool.Update()) // everything that was due
			require.NoError(t, pool.Check())
			told := last.Load()
			require.NoError(t, pool.Update(balancer.Member{Name: "last", Share: 1}))
			require.Equal(t, told+1, last.Load(), "nothing waited")
			n := 0
			callers.Range(func(any, any) bool { n++; return true })
			require.Greater(t, n, 1, "events came on several goroutines")
			require.NotZero(t, s.Totals.HookPanics)
		})
	}
}

// goroutine tells goroutines apart, by the header of their stack.
func goroutine() string {
	var b [32]byte
	return string(b[:runtime.Stack(b[:], false)])
}
