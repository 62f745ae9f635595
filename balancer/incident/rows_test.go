package incident_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/preset"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// play replays n requests, each answered at once, and returns who was picked.
func play(t *testing.T, cfg balancer.Config, weights []int, n int, every time.Duration) string {
	f := &incident.File{Header: incident.Header{Seed: 7, Settings: cfg}}
	for i, w := range weights {
		f.Header.Members = append(f.Header.Members, balancer.Member{Name: string(rune('A' + i)), Share: w})
	}
	for i := range n {
		at := time.Duration(i) * every
		f.Lines = append(f.Lines,
			incident.Line{Kind: incident.InAcquire, At: at, Request: uint64(i + 1)},
			incident.Line{Kind: incident.InSettle, At: at, Request: uint64(i + 1), Outcome: balancer.Success})
	}
	b, err := f.Bytes()
	require.NoError(t, err)
	out, err := incident.Read(bytes.NewReader(replayed(t, b)))
	require.NoError(t, err)
	picks := ""
	for _, l := range out.Lines {
		if l.Kind == incident.EvPick {
			picks += l.Upstream
		}
	}
	return picks
}

func TestRows(t *testing.T) {
	t.Run("E-PG-01", func(t *testing.T) {
		// Send 10 in turn, and by weight; stream 4000 ms at one per 400 ms.
		require.Equal(t, "ABCDABCDAB", play(t, preset.EchofrontPlayground(), []int{1, 1, 2, 1}, 10, 0))
		weighted := preset.EchofrontPlayground()
		weighted.Policy, weighted.IgnoreWeights = balancer.WeightedRoundRobin{First: true}, false
		require.Equal(t, "CABDCCABDC", play(t, weighted, []int{1, 1, 2, 1}, 10, 0))
		var stream bytes.Buffer
		_, err := sim.Record(sim.Scenario{
			Seed: 7, Duration: 4 * time.Second, Pool: weighted,
			Servers: []sim.Server{{Name: "A"}, {Name: "B"}, {Name: "C", Weight: 2}, {Name: "D"}},
			Clients: []sim.Client{{Rate: 2.5, Even: true}},
		}, 0, &stream)
		require.NoError(t, err)
		f, err := incident.Read(&stream)
		require.NoError(t, err)
		picks, latest := "", -400*time.Millisecond
		for _, l := range f.Lines {
			if l.Kind == incident.EvPick {
				if picks != "" {
					require.Equal(t, 400*time.Millisecond, l.At-latest)
				}
				picks, latest = picks+l.Upstream, l.At
			}
		}
		require.Equal(t, "CABDCCABDC", picks)
		// A reset is the header without the lines: what was counted is gone, and who
		// would be next is the first again.
		cfg, err := f.Header.Config()
		require.NoError(t, err)
		p, err := balancer.NewPool(cfg, f.Header.Members...)
		require.NoError(t, err)
		turn := func() string {
			l, err := p.Acquire(balancer.Request{})
			require.NoError(t, err)
			l.Release(balancer.Failure)
			return l.Upstream().Name
		}
		require.Equal(t, "CABD", turn()+turn()+turn()+turn())
		require.NotZero(t, p.Snapshot().Totals)
		p, err = balancer.NewPool(cfg, f.Header.Members...)
		require.NoError(t, err)
		require.Zero(t, p.Snapshot().Totals)
		for _, u := range p.Snapshot().Upstreams {
			require.Zero(t, u.Served+u.Failures+uint64(u.Inflight))
		}
		require.Equal(t, "CABD", turn()+turn()+turn()+turn())
	})
	t.Run("E-PG-02", func(t *testing.T) {
		// What the events say is what the Pool has counted.
		for _, x := range incidents {
			s := x.run(t)
			snapshot := s.pool.Snapshot()
			want := snapshot.Totals
			f, err := incident.FromRecording(s.tape.Dump(), s.pool.Config(), incident.Options{}).File()
			require.NoError(t, err)
			var got balancer.Totals
			latest := map[uint64]string{}
			tokens := tokensOf(f.Header.Settings.Budget)
			for _, l := range f.Lines {
				tokens.follow(&l)
				switch {
				case l.Kind == incident.InAcquire || l.Kind == incident.InRequest:
					got.Requests++
				case l.Kind == incident.EvPick:
					got.Attempts++
					latest[l.Request] = l.Upstream
				case l.Kind == incident.EvRetry:
					got.Attempts++
					got.Retries++
					if l.Upstream != latest[l.Request] {
						got.Failovers++
					}
					latest[l.Request] = l.Upstream
				case (l.Kind == incident.InDone || l.Kind == incident.InSettle) && l.Outcome == balancer.Success:
					got.Successes++
				case (l.Kind == incident.InDone || l.Kind == incident.InSettle) && l.Outcome != balancer.Ignored:
					got.Failures++
				case l.Kind == incident.EvState && l.Event == balancer.UpstreamEjected:
					got.Ejections++
				case l.Kind == incident.EvState && l.Event == balancer.BreakerOpened:
					got.Trips++
				}
			}
			require.Equal(t, want.Requests, got.Requests)
			require.Equal(t, want.Attempts, got.Attempts)
			require.Equal(t, want.Successes, got.Successes)
			require.Equal(t, want.Failures, got.Failures)
			require.Equal(t, want.Retries, got.Retries)
			require.Equal(t, want.Failovers, got.Failovers)
			require.Equal(t, want.Ejections, got.Ejections)
			require.Equal(t, want.Trips, got.Trips)
			now := snapshot.At.Sub(f.Header.Start)
			require.InDelta(t, tokens.budget.Balance(int64(now)), snapshot.Tokens, 1e-9, x.name)
			require.Equal(t, s.clk.Now().UTC(), snapshot.At.UTC(), x.name)
			require.LessOrEqual(t, f.Lines[len(f.Lines)-1].At, now, x.name)
		}
	})
	t.Run("E-PG-03", func(t *testing.T) {
		text := goldenText(t, "echofront-playground")
		for _, want := range []string{
			`{"t":"0.8","ev":"opened","n":2,"b":"a","until":"3.8",`,
			`{"t":"3.8","ev":"opened","n":4,"b":"a","until":"6.8",`,
			`{"t":"6.8","ev":"ejected","n":6,"b":"a","until":"11.8",`,
			`{"t":"9.8","ev":"half_open",`,
			`{"t":"11.8","ev":"returned",`,
			`{"t":"11.8","ev":"pick",`,
			`{"t":"12.2","ev":"closed",`,
		} {
			i := strings.Index(text, want)
			require.GreaterOrEqual(t, i, 0, want)
			text = text[i:]
		}
		r := reader(t, []byte(goldenText(t, "echofront-playground")))
		require.Equal(t, breaker.Config{ConsecutiveFailures: 3, OpenFor: 3 * time.Second, Trials: 1, Passes: 2, TrialTimeout: -1}, r.Header().Settings.Breaker)
	})
	t.Run("E-PG-04", func(t *testing.T) {
		text := goldenText(t, "echofront-demo")
		i := strings.Index(text, `"out":"failure"`)
		require.Positive(t, i)
		text = text[i:]
		lines := strings.Split(text, "\n")
		require.Equal(t, `{"t":"0.6","in":"next","r":12}`, lines[1])
		require.Equal(t, `{"t":"0.6","ev":"retry","r":12,"try":1,"b":"A"}`, lines[2])
		require.Equal(t, `{"t":"0.6","in":"done","r":12,"out":"success","lat":"0.005"}`, lines[3])
	})
	t.Run("E-PG-05", func(t *testing.T) {
		// Probes at 1.5 and 2 s meet the failing toggle, those at 3 and 3.5 s do not.
		file := []byte(goldenText(t, "health-toggle"))
		require.NoError(t, verify(t, file))
		f, err := incident.Read(bytes.NewReader(file))
		require.NoError(t, err)
		scenario, err := f.Inputs().Bytes()
		require.NoError(t, err)
		out, err := incident.Read(bytes.NewReader(replayed(t, scenario)))
		require.NoError(t, err)
		var turns []string
		picks, failed := "", 0
		for _, l := range out.Lines {
			switch {
			case l.Kind == incident.EvState && l.Event != balancer.UpstreamJoined:
				turns = append(turns, fmt.Sprintf("%v %s %v: %s", l.At, l.Upstream, l.Event, l.Why))
			case l.Kind == incident.EvPick:
				picks += l.Upstream
				if l.Upstream == "B" {
					require.False(t, l.At >= 2010*time.Millisecond && l.At < 3510*time.Millisecond, l.At)
				}
			case l.Kind == incident.InSettle && l.Outcome == balancer.Failure:
				failed++
			}
		}
		require.Equal(t, []string{"2.01s B unhealthy: probe failed", "3.51s B healthy: probe passed"}, turns)
		// A request every 200 ms from 100 ms on: ten, seven without B, five.
		require.Equal(t, "ABCDABCDAB"+"CDACDAC"+"DABCD", picks)
		require.Equal(t, 1, failed)
	})
}

// tokens is a retry budget that knows of a Pool what its events say.
type tokens struct {
	budget *retrybudget.Core
	tries  map[uint64]int // of each request, retries that were sent
	paid   map[uint64]bool
}

func tokensOf(cfg retrybudget.Config) *tokens {
	budget := retrybudget.NewCore(cfg)
	return &tokens{&budget, map[uint64]int{}, map[uint64]bool{}}
}

func (k *tokens) follow(l *incident.Line) {
	now := int64(l.At)
	switch l.Kind {
	case incident.InAcquire, incident.InRequest:
		k.budget.Request(now)
	case incident.EvWait, incident.EvRetry:
		if !k.paid[l.Request] {
			k.budget.Withdraw(now)
		}
		k.paid[l.Request] = l.Kind == incident.EvWait
		k.tries[l.Request] = l.Try
	case incident.EvEnd:
		if k.paid[l.Request] {
			k.budget.Refund(now)
		}
	case incident.InDone, incident.InSettle:
		switch l.Outcome {
		case balancer.Success:
			k.budget.Success(now)
		case balancer.Failure, balancer.TransportFailure:
			k.budget.Failure(now)
		}
		if k.tries[l.Request] > 0 {
			k.budget.EndRetry(now, l.Outcome == balancer.Success)
		}
	}
}
