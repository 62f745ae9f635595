package incident_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/ewma"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// chooser makes the choices of a drawn life: a number below n.
type chooser func(n int) int

func one[T any](choose chooser, of ...T) T { return of[choose(len(of))] }

// drawnConfig chooses among settings of every part of a Pool. Spans are some
// milliseconds, so that they end within a life.
func drawnConfig(c chooser) balancer.Config {
	const ms = time.Millisecond
	yes := func(oneIn int) bool { return c(oneIn) == 0 }
	cfg := balancer.Config{
		Seed: uint64(c(1000)) + 1, IgnoreWeights: yes(4), StartUnhealthy: yes(8),
		WhenNone: one(c, balancer.IgnoreEjections, balancer.FailFast), FailurePenalty: one(c, 0, -1, ms),
	}
	cfg.Policy = one[balancer.Policy](c,
		nil, balancer.RoundRobin{}, balancer.RoundRobin{First: true}, balancer.RoundRobin{IndexCursor: true},
		balancer.WeightedRoundRobin{}, balancer.WeightedRoundRobin{First: true}, balancer.Random{},
		balancer.LeastConn{}, balancer.LeastConn{Ties: balancer.TiesIndex}, &balancer.LeastConn{Ties: balancer.TiesRandom},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{}, balancer.Hash{Keyless: &balancer.LeastConn{}},
	)
	cfg.Latency = one(c, ewma.Config{}, ewma.Config{Tau: 50 * ms}, ewma.Config{Peak: true, HalfLife: 5 * ms, IdleHalfLife: ms},
		ewma.Config{AlphaMilli: 200, Warmup: 3, Floor: 10, Prior: 1000})
	cfg.Breaker = breaker.Config{
		Off: yes(5), ConsecutiveFailures: c(5), WindowFailures: one(c, 0, 0, 3), Window: one(c, 0, 100*ms),
		FailureRate: one(c, 0, 0.5), MinCalls: one(c, 0, 4), SlowRate: one(c, 0, 0.5), SlowAfter: 5 * ms,
		OpenFor: one(c, 0, ms, 20*ms), OpenGrowth: one(c, 0, 2.0), OpenJitter: one(c, 0, 0.5),
		Trials: c(3), Passes: c(3), TrialTimeout: one(c, 0, -1, 3*ms),
		FlapTransitions: one(c, 0, 4), FlapWindow: one(c, 0, 50*ms), ForgetAfter: one(c, 0, 30*ms),
	}
	cfg.Outlier = outlier.Config{
		Off: yes(8), Consecutive: c(5), ConsecutiveTransport: c(3), Shadow: yes(6), Enforce: one(c, 0, 50),
		Base: one(c, 0, ms, 10*ms), Jitter: one(c, 0, ms), Interval: one(c, 0, 5*ms), Forgive: one(c, 0, -1, 10*ms),
		MaxEjectedPercent: one(c, 0, 50, 100), EjectOne: yes(2), ProbeEnds: yes(2), Return: outlier.ReturnMode(c(3)), RampStep: ms,
		SuccessRate:       outlier.SuccessRate{On: yes(2), MinHosts: 2, MinRequests: 2},
		FailurePercentage: outlier.FailurePercentage{On: yes(2), Inline: yes(2), Threshold: 50, MinHosts: 2, MinRequests: 2},
		Latency:           outlier.Latency{On: yes(2), MinSamples: 2, MinHosts: 2, Window: 20 * ms, KeepScore: yes(2)},
	}
	cfg.Retry = balancer.Retry{
		Max: c(12), OnFailure: yes(2), SameUpstream: c(3),
		Backoff: balancer.Backoff{Base: one(c, 0, 0, 100*time.Microsecond, ms)},
	}
	cfg.Budget = one(c, retrybudget.Config{}, retrybudget.Config{Off: true}, retrybudget.Config{Capacity: 3, PerSecond: 100},
		retrybudget.Finagle(), retrybudget.GRPC(), retrybudget.AWS(), retrybudget.Envoy(), retrybudget.Ferron(), retrybudget.Echofront())
	return cfg
}

// drawnMembers chooses up to twelve members in any order, of weights, tiers and
// limits that matter.
func drawnMembers(c chooser) []balancer.Member {
	out := make([]balancer.Member, c(13))
	from := c(3)
	for i := range out {
		out[i] = balancer.Member{Name: fmt.Sprint("m", from+i), Share: c(4), Tier: c(3) / 2, Limit: one(c, 0, 0, 2)}
	}
	for i := range out {
		j := c(i + 1)
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// life is a Pool under drawn inputs, with what they have left.
type life struct {
	chooser
	clk    *clock.Manual
	pool   *balancer.Pool[balancer.Member]
	leases []balancer.Lease[balancer.Member]
	tries  []*balancer.Try[balancer.Member]
	given  uint64 // numbers that the caller gave to requests
}

// act does one thing.
func (l *life) act() {
	if l.chooser(3) > 0 {
		l.clk.Advance(time.Duration(l.chooser(3_000_000)))
	}
	switch l.chooser(16) {
	case 0:
		if l.chooser(4) == 0 {
			_ = l.pool.Update(drawnMembers(l.chooser)...)
		}
	case 1:
		_ = l.pool.SetHealth(fmt.Sprint("m", l.chooser(9)), l.chooser(3) > 0, one(l.chooser, "", "x", "y\n\xff"))
	case 2:
		one(l.chooser,
			l.pool.Poll, func() { l.pool.Save() }, func() { l.pool.Snapshot() },
			func() { _ = l.pool.Update(balancer.Member{Name: "a"}, balancer.Member{Name: "a"}) })()
	case 3, 4:
		if lease, err := l.pool.Acquire(l.request()); err == nil {
			l.leases = append(l.leases, lease)
		}
	case 5, 6:
		if len(l.leases) > 0 {
			l.lease(l.chooser(len(l.leases)))
		}
	case 7, 8:
		x := l.pool.Start(l.request())
		l.tries = append(l.tries, &x)
	default:
		if len(l.tries) > 0 {
			l.try(l.chooser(len(l.tries)))
		}
	}
}

func (l *life) request() (req balancer.Request) {
	if l.chooser(3) == 0 {
		req.Key = balancer.StringKey(fmt.Sprint(l.chooser(5)))
	}
	if l.chooser(4) == 0 {
		req.Deadline = l.clk.Now().Add(time.Duration(l.chooser(20_000_000) - 1_000_000))
	}
	if l.chooser(5) == 0 {
		l.given++
		req.ID = 1<<40 + l.given
	}
	return req
}

// lease goes on with a lease, which may be over by now.
func (l *life) lease(i int) {
	switch l.chooser(3) {
	case 0:
		l.leases[i].Answered()
	case 1:
		l.leases[i].Settle(l.report())
	default:
		l.leases[i].Settle(l.report())
		l.leases = append(l.leases[:i], l.leases[i+1:]...)
	}
}

func (l *life) report() balancer.Report {
	return balancer.Report{
		Outcome: balancer.Outcome(l.chooser(5)), Retry: balancer.Verdict(l.chooser(4)),
		Latency: one(l.chooser, 0, 0, -5, time.Millisecond, 1<<62),
	}
}

// try goes on with a request.
func (l *life) try(i int) {
	x := l.tries[i]
	switch l.chooser(8) {
	case 0:
		x.Stop()
	case 1, 2, 3:
		x.Done(l.report())
	default:
		switch step := x.Next(); step.Kind {
		case balancer.StepSend:
			switch l.chooser(9) {
			case 0, 1:
				step.Lease.Answered()
			case 2:
				step.Lease.Settle(l.report())
			}
		case balancer.StepWait:
			if l.chooser(2) == 0 {
				l.clk.Advance(step.Wait)
			}
		case balancer.StepEnd:
			l.tries = append(l.tries[:i], l.tries[i+1:]...)
		}
	}
}

// live lives a life of that many acts, of which the first ones are not recorded,
// and has what the recorder holds verify now and then: as a file and without one.
// The ring is small, so that a checkpoint falls anywhere.
func liveAndVerify(t *testing.T, choose chooser, acts int) {
	cfg := drawnConfig(choose)
	l := &life{chooser: choose, clk: clock.NewManual(time.Unix(int64(choose(100)), 0))}
	cfg.Clock = l.clk
	var err error
	if l.pool, err = balancer.NewPool(cfg, drawnMembers(choose)...); err != nil {
		require.ErrorIs(t, err, balancer.ErrConfig)
		return
	}
	rec := incident.NewRecorder(incident.Config{Size: 16 + choose(40)})
	before := choose(40)
	for i := range acts {
		if i == before {
			rec.Attach(l.pool)
		}
		if l.act(); i >= before && choose(25) == 0 || i == acts-1 && i >= before {
			d := rec.Dump()
			verifyIncident(t, d)
			require.NoError(t, incident.Verify(d.Reader(), d.Config), "in memory")
			require.NoError(t, incident.Timeline(&bytes.Buffer{}, d.Reader(), incident.TimelineOptions{}))
		}
	}
}

// Whatever the settings and whatever happens, a recording from any moment on
// verifies.
func TestAnyLifeVerifies(t *testing.T) {
	seed, _ := seedOf(t, 9)
	for n := range uint64(opsOf(t, 100)) {
		i := seed<<32 + n<<16
		liveAndVerify(t, func(n int) int { i++; return int(mixed(mixed(i)) >> 11 % uint64(n)) }, 250)
	}
}

// FuzzLife is TestAnyLifeVerifies with choices from bytes, three for each.
func FuzzLife(f *testing.F) {
	for s := range uint64(6) {
		b := make([]byte, 3000)
		for i := range b {
			b[i] = byte(mixed(s<<32+uint64(i)) >> 20)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		acts := min(len(b)/12, 400)
		liveAndVerify(t, func(n int) int {
			if len(b) < 3 {
				return 0
			}
			x := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
			b = b[3:]
			return x % n
		}, acts)
	})
}
