package balancertest_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

func TestRows(t *testing.T) {
	t.Run("E-UP-01", func(t *testing.T) {
		u := balancertest.New("a", balancertest.Status(201), balancertest.Fail(balancertest.ErrTimeout))
		require.Equal(t, 201, u.Send().Status)
		require.ErrorIs(t, u.Send().Err, balancertest.ErrTimeout)
		require.Equal(t, 200, u.Send().Status)
		require.Equal(t, 3, u.Calls())

		u.PushProbes(false, false)
		require.False(t, u.Probe())
		require.False(t, u.Probe())
		require.True(t, u.Probe())
		require.True(t, u.Probe())
		require.Equal(t, 4, u.Probes())
		require.Equal(t, 3, u.Calls(), "probes are not calls")

		bad := balancertest.AlwaysFailing("b", balancertest.ErrConnection)
		for range 5 {
			require.ErrorIs(t, bad.Send().Err, balancertest.ErrConnection)
		}
		u.Default(balancertest.Status(204))
		require.Equal(t, 204, u.Send().Status)
	})
	t.Run("E-UP-02", func(t *testing.T) {
		require.Equal(t, balancer.Failure, balancertest.Status(503).Outcome())
		require.Equal(t, balancer.Failure, balancertest.Status(500).Outcome())
		require.Equal(t, balancer.Success, balancertest.Status(499).Outcome())
		require.Equal(t, balancer.Success, balancertest.Status(404).Outcome())
		require.Equal(t, balancer.TransportFailure, balancertest.Fail(balancertest.ErrTimeout).Outcome())
		require.Equal(t, balancer.TransportFailure, balancertest.Fail(balancertest.ErrConnection).Outcome())
		require.Equal(t, "server error 503", balancertest.Status(503).String())
		require.Equal(t, "timeout", balancertest.Fail(balancertest.ErrTimeout).String())
		require.Equal(t, "connection", balancertest.Fail(balancertest.ErrConnection).String())
		require.Equal(t, 5*time.Millisecond, balancertest.Status(200).Took())
		require.Equal(t, time.Second, balancertest.Status(200).After(time.Second).Took())
	})
}

func TestSend(t *testing.T) {
	send := func(cfg balancer.Config, ups ...*balancertest.Upstream) balancertest.Trail {
		cfg.Clock, cfg.Policy, cfg.Seed = clock.NewManual(time.Unix(0, 0)), balancer.RoundRobin{First: true}, 1
		pool, err := balancer.NewPool(cfg, ups...)
		require.NoError(t, err)
		return balancertest.Send(pool, balancer.Request{})
	}
	down := func(id string) *balancertest.Upstream {
		return balancertest.AlwaysFailing(id, balancertest.ErrConnection)
	}

	got := send(balancer.Config{}, down("a"), balancertest.New("b"))
	require.Equal(t, "a(connection FAIL) retry->b(200 ok)", got.String())
	require.Equal(t, 200, got.Status())
	require.Equal(t, balancer.EndAnswered, got.End)

	got = send(balancer.Config{}, down("a"), down("b"))
	require.Equal(t, 502, got.Status())
	require.Equal(t, balancer.EndNoTarget, got.End)
	require.False(t, got.OK())

	got = send(balancer.Config{})
	require.Equal(t, 503, got.Status())
	require.ErrorIs(t, got.Err, balancer.ErrNoUpstreams)

	got = send(balancer.Config{Retry: balancer.Retry{Backoff: balancer.Backoff{Base: time.Second, JitterPercent: -1}}}, down("a"), down("b"))
	require.Equal(t, balancer.EndDeadline, got.End)
	require.Len(t, got.Hops, 1)
}
