package incident_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

// A recording that begins in the middle of a ramp verifies, under every policy.
func TestVerifyFromTheMiddleOfARamp(t *testing.T) {
	for _, p := range []balancer.Policy{
		balancer.RoundRobin{}, balancer.RoundRobin{IndexCursor: true}, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{},
		balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{},
	} {
		ups := upstreams("abcd")
		s := newStage(t, balancer.Config{
			Policy:  p,
			Breaker: breaker.Config{Off: true},
			Outlier: outlier.Config{Consecutive: 1, Base: time.Second, Return: outlier.Ramp, RampGrowth: 1300},
		}, ups...)
		s.send(10, 10*time.Millisecond)
		ups[1].Default(balancertest.Fail(balancertest.ErrConnection))
		for !s.pool.Snapshot().Upstreams[1].Ejected {
			s.send(1, 10*time.Millisecond)
		}
		ups[1].Default(balancertest.Status(200))
		s.send(180, 10*time.Millisecond)
		require.Equal(t, 250, s.pool.Snapshot().Upstreams[1].Ramp)
		s.tape = balancer.NewTape(1 << 12)
		s.pool.Attach(s.tape)
		s.send(700, 10*time.Millisecond)
		require.Equal(t, 1000, s.pool.Snapshot().Upstreams[1].Ramp)
		f, err := incident.FromRecording(s.tape.Dump(), s.pool.Config(), incident.Options{}).File()
		require.NoError(t, err)
		b, err := f.Bytes()
		require.NoError(t, err)
		require.NoError(t, verify(t, b), "%+v", p)
	}
}
