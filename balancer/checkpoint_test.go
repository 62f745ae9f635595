package balancer_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// abc are three members of equal weight.
var abc = []balancer.Member{{Name: "a", Share: 1}, {Name: "b", Share: 1}, {Name: "c", Share: 1}}

// small is a Pool of these three members on a manual clock, for scripts.
func small(t *testing.T, cfg balancer.Config) (*balancer.Pool[balancer.Member], *clock.Manual) {
	t.Helper()
	clk := clock.NewManual(time.Unix(0, 0))
	cfg.Clock = clk
	p, err := balancer.NewPool(cfg, abc...)
	require.NoError(t, err)
	return p, clk
}

// A checkpoint may fall on any input: what it holds replays from there.
func TestTapeTurnsAnywhere(t *testing.T) {
	cfg := tapeConfig(first)
	cfg.Retry.Backoff = balancer.Backoff{}
	for shift := range 17 {
		p, clk := small(t, cfg)
		tape := balancer.NewTape(16)
		p.Attach(tape)
		for range shift {
			p.Poll()
		}
		for i := range 8 {
			clk.Advance(100 * time.Microsecond)
			l, err := p.Acquire(balancer.Request{})
			require.NoError(t, err)
			clk.Advance(time.Microsecond)
			l.Answered()
			clk.Advance(time.Microsecond)
			l.Settle(balancer.Report{Outcome: balancer.Outcome(i % 4)})
			if i%3 == 0 {
				try := p.Start(balancer.Request{})
				try.Next()
				try.Done(balancer.Report{Outcome: balancer.Failure})
				try.Next()
				try.Stop()
			}
			rec := tape.Dump()
			equalRecords(t, rec.Records, replay(t, cfg, rec))
		}
		require.True(t, tape.Lost())
	}
}

// A Try that is resumed with its attempt out hands out the lease of it again.
func TestResumeWithAnAttemptOut(t *testing.T) {
	cfg := tapeConfig(first)
	p, _ := small(t, cfg)
	tape := balancer.NewTape(16)
	try := p.Start(balancer.Request{})
	require.Equal(t, balancer.StepSend, try.Next().Kind)
	p.Attach(tape)
	try.Done(balancer.Report{Outcome: balancer.TransportFailure})
	rec := tape.Dump()
	cfg.Clock = clock.NewManual(time.Unix(5, 0))
	q, err := balancer.RestorePool(cfg, rec.Start, rec.Members...)
	require.NoError(t, err)
	again, err := q.Resume(rec.Records[0].Shift(-rec.At))
	require.NoError(t, err)
	step := again.Next()
	require.Equal(t, balancer.StepSend, step.Kind)
	require.True(t, step.Lease.Valid())
	require.Equal(t, "a", step.Lease.Upstream().ID())
	require.True(t, step.Lease.Release(balancer.Success))
	require.Zero(t, q.Snapshot().Totals.Inflight)
}
