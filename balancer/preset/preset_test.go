package preset_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/balancer/preset"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// rig is a Pool of scripted upstreams on a manual clock whose zero is the
// script's, with its events as lines of milliseconds.
type rig struct {
	*testing.T
	clk    *clock.Manual
	pool   *balancer.Pool[*balancertest.Upstream]
	events []string
}

func newRig(t *testing.T, cfg balancer.Config, ups ...*balancertest.Upstream) *rig {
	r := &rig{T: t, clk: clock.NewManual(time.Unix(0, 0))}
	cfg.Clock, cfg.Seed = r.clk, 7
	cfg.OnEvent = func(e balancer.Event) {
		if e.Kind != balancer.UpstreamJoined {
			r.events = append(r.events, fmt.Sprintf("%d %s %s", e.At.Sub(time.Unix(0, 0)).Milliseconds(), e.Upstream, e.Kind))
		}
	}
	var err error
	r.pool, err = balancer.NewPool(cfg, ups...)
	require.NoError(t, err)
	return r
}

func (r *rig) at(ms int) { r.clk.AdvanceTo(time.UnixMilli(int64(ms))) }

func (r *rig) send() balancertest.Trail { return balancertest.Send(r.pool, balancer.Request{}) }

func TestRows(t *testing.T) {
	t.Run("E-RB-01", func(t *testing.T) {
		bad := balancertest.AlwaysFailing("bad", balancertest.ErrTimeout)
		r := newRig(t, preset.Echofront(), bad, balancertest.New("good"))
		got := r.send()
		require.Equal(t, 200, got.Status())
		require.Len(t, got.Hops, 2)
		require.EqualValues(t, 1, r.pool.Snapshot().Totals.Failovers)
		require.InDelta(t, 9.0, r.pool.Snapshot().Tokens, 1e-9, "full at the start, one spent")
	})
	t.Run("E-RB-02", func(t *testing.T) {
		// Each request wants one retry: two upstreams, both failing. A breaker or an
		// ejection would stop the retries before the budget does.
		cfg := preset.Echofront()
		cfg.Breaker, cfg.Outlier.Consecutive = breaker.Config{Off: true}, -1
		a := balancertest.AlwaysFailing("a", balancertest.ErrTimeout)
		b := balancertest.AlwaysFailing("b", balancertest.ErrTimeout)
		r := newRig(t, cfg, a, b)
		granted, firstDenial := 0, 0
		for i := 1; i <= 100; i++ {
			got := r.send()
			granted += len(got.Hops) - 1
			if len(got.Hops) == 1 && firstDenial == 0 {
				firstDenial = i
				require.Equal(t, balancer.EndBudget, got.End)
			}
		}
		require.Equal(t, 29, granted)
		require.Equal(t, 13, firstDenial)
		snap := r.pool.Snapshot()
		require.EqualValues(t, 29, snap.Totals.Granted)
		require.EqualValues(t, 71, snap.Totals.Denied)
	})
	t.Run("E-RB-03", func(t *testing.T) {
		cfg := preset.Echofront()
		cfg.Breaker, cfg.Outlier.Consecutive = breaker.Config{Off: true}, -1
		var ups []*balancertest.Upstream
		for i := range 4 {
			ups = append(ups, balancertest.AlwaysFailing(fmt.Sprint(i), balancertest.ErrTimeout))
		}
		r := newRig(t, cfg, ups...)
		retries := 0
		for range 500 {
			got := r.send()
			require.LessOrEqual(t, len(got.Hops), 3)
			retries += len(got.Hops) - 1
		}
		require.LessOrEqual(t, retries, 110, "(cap + n*deposit) / cost")
		require.Equal(t, 109, retries)
	})
	t.Run("E-RB-04", func(t *testing.T) {
		cfg := preset.Echofront()
		cfg.Breaker, cfg.Outlier.Consecutive = breaker.Config{Off: true}, -1
		cfg.Budget.Initial = -1
		cfg.Budget.PerRequest = 0
		r := newRig(t, cfg, balancertest.AlwaysFailing("a", balancertest.ErrTimeout), balancertest.New("b"))
		got := r.send()
		require.Equal(t, balancer.EndBudget, got.End)
		require.Equal(t, 502, got.Status(), "the last error, not a 503")
		require.NoError(t, got.Err)
	})
	t.Run("E-BR-01", func(t *testing.T) {
		// The numbers of the preset: 5 failures, 2 successes, 5000 ms, 1 trial.
		cfg := preset.Echofront()
		cfg.Outlier.Consecutive = -1
		a := balancertest.New("a")
		a.PushN(5, balancertest.Status(500))
		r := newRig(t, cfg, a)
		for range 4 {
			require.Equal(t, 502, r.send().Status())
		}
		require.Equal(t, breaker.Closed, r.pool.Snapshot().Upstreams[0].Breaker)
		r.send()
		require.Equal(t, breaker.Open, r.pool.Snapshot().Upstreams[0].Breaker)
		r.at(4999)
		require.Equal(t, 503, r.send().Status())
		r.at(5000)
		first, err := r.pool.Acquire(balancer.Request{})
		require.NoError(t, err)
		_, err = r.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoneAvailable, "one trial at once")
		first.Release(balancer.Success)
		require.Equal(t, breaker.HalfOpen, r.pool.Snapshot().Upstreams[0].Breaker)
		require.True(t, r.send().OK())
		require.Equal(t, breaker.Closed, r.pool.Snapshot().Upstreams[0].Breaker)
	})
	t.Run("E-OU-01", func(t *testing.T) {
		cfg := preset.Echofront()
		cfg.Breaker = breaker.Config{Off: true}
		a := balancertest.New("a")
		a.PushN(5, balancertest.Status(500))
		r := newRig(t, cfg, a)
		r.at(100)
		for range 5 {
			r.send()
		}
		require.True(t, r.pool.Snapshot().Upstreams[0].Ejected)
		require.Equal(t, time.UnixMilli(5100), r.pool.Snapshot().Upstreams[0].Returns)
		r.at(5099)
		require.Equal(t, 503, r.send().Status(), "a pool of one may be ejected whole")
		r.at(5100)
		require.Equal(t, 200, r.send().Status())
		require.Equal(t, []string{"100 a ejected", "5100 a returned"}, r.events)
	})
}

// The playground's timeline: C fails until its breaker has opened three times
// and the detector has ejected it, and comes back when both let it.
func TestPlaygroundTimeline(t *testing.T) {
	c := balancertest.New("C")
	c.PushN(5, balancertest.Status(503))
	cfg := preset.EchofrontPlayground()
	cfg.Budget.Initial = 10 // an empty budget is another test's matter
	r := newRig(t, cfg, c)
	for ms := 0; ms <= 13000; ms += 400 {
		r.at(ms)
		r.send()
	}
	require.Equal(t, []string{
		"800 C opened", "3800 C half_open", "4000 C opened", "7000 C half_open", "7200 C ejected", "7200 C opened",
		"10200 C half_open", "12200 C returned", "12800 C closed",
	}, r.events)
}

func TestPlaygroundBudgetStartsEmpty(t *testing.T) {
	r := newRig(t, preset.EchofrontPlayground(), balancertest.AlwaysFailing("a", balancertest.ErrTimeout), balancertest.New("b"))
	require.Zero(t, r.pool.Snapshot().Tokens)
	require.Equal(t, balancer.EndBudget, r.send().End)
}

// Every preset is valid, and editing one does not change the next.
func TestPresetsAreValues(t *testing.T) {
	for name, f := range map[string]func() balancer.Config{
		"Echofront": preset.Echofront, "EchofrontDemo": preset.EchofrontDemo, "EchofrontPlayground": preset.EchofrontPlayground,
	} {
		c := f()
		require.NoError(t, c.Validate(), name)
		c.Retry.Max = 99
		require.NotEqual(t, 99, f().Retry.Max, name)
	}
}
