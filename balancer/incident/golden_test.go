package incident_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/balancer/health"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/preset"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// stage is a Pool of scripted upstreams on a clock moved by hand, recorded from
// its beginning.
type stage struct {
	t    *testing.T
	clk  *clock.Manual
	pool *balancer.Pool[*balancertest.Upstream]
	tape *balancer.Tape
}

func newStage(t *testing.T, cfg balancer.Config, ups ...*balancertest.Upstream) *stage {
	s := &stage{t: t, clk: clock.NewManual(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)), tape: balancer.NewTape(1 << 16)}
	cfg.Clock, cfg.Seed = s.clk, 7
	pool, err := balancer.NewPool(cfg, ups...)
	require.NoError(t, err)
	s.pool = pool
	pool.Attach(s.tape)
	return s
}

func (s *stage) sleep(d time.Duration) { s.clk.Advance(d) }

// send sends n requests, each every after the one before.
func (s *stage) send(n int, every time.Duration) {
	for range n {
		s.sleep(every)
		balancertest.Send(s.pool, balancer.Request{})
	}
}

// acquire begins an attempt that is settled by hand.
func (s *stage) acquire() balancer.Lease[*balancertest.Upstream] {
	l, err := s.pool.Acquire(balancer.Request{})
	require.NoError(s.t, err)
	return l
}

// file is the recording. The Pool was new at its start, so the checkpoint is
// left out: the file can be read and edited.
func (s *stage) file(note string) []byte {
	r := incident.FromRecording(s.tape.Dump(), s.pool.Config(), incident.Options{Note: note})
	f, err := r.File()
	require.NoError(s.t, err)
	f.Header.State = nil
	b, err := f.Bytes()
	require.NoError(s.t, err)
	return b
}

func upstreams(ids string) (out []*balancertest.Upstream) {
	for _, id := range ids {
		out = append(out, balancertest.New(string(id)))
	}
	return out
}

// incidents are the golden files and how each of them came about.
var incidents = []struct {
	name, note string
	run        func(*testing.T) *stage
}{
	{"echofront-demo", "The demonstration of the Echofront engine: C fails, is ejected, opens its breaker, and comes back.", func(t *testing.T) *stage {
		ups := upstreams("ABC")
		ups[2].PushN(3, balancertest.Status(200))
		ups[2].PushN(5, balancertest.Status(503))
		s := newStage(t, preset.EchofrontDemo(), ups...)
		for _, act := range []struct {
			pause time.Duration
			n     int
		}{{0, 6}, {0, 15}, {2600 * time.Millisecond, 15}, {3100 * time.Millisecond, 15}} {
			s.sleep(act.pause)
			s.send(act.n, 50*time.Millisecond)
		}
		return s
	}},
	{"half-open-abort", "A breaker's trial is given up by its caller: no verdict, and the next call is the trial.", func(t *testing.T) *stage {
		s := newStage(t, balancer.Config{
			Policy:  balancer.RoundRobin{First: true},
			Breaker: breaker.Config{ConsecutiveFailures: 2, OpenFor: time.Second, Passes: 2},
			Outlier: outlier.Config{Off: true},
			Retry:   balancer.Retry{Off: true},
		}, upstreams("a")...)
		for range 2 {
			s.sleep(10 * time.Millisecond)
			l := s.acquire()
			s.sleep(5 * time.Millisecond)
			l.Release(balancer.Failure)
		}
		_, err := s.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		s.sleep(time.Second)
		trial := s.acquire()
		_, err = s.pool.Acquire(balancer.Request{})
		require.ErrorIs(t, err, balancer.ErrNoneAvailable, "one trial at a time")
		s.sleep(20 * time.Millisecond)
		trial.Release(balancer.Ignored)
		for range 2 {
			l := s.acquire()
			s.sleep(5 * time.Millisecond)
			l.Answered()
			s.sleep(5 * time.Millisecond)
			l.Release(balancer.Success)
		}
		require.Equal(t, breaker.Closed, s.pool.Snapshot().Upstreams[0].Breaker)
		return s
	}},
	{"ejection-cap", "Four of four upstreams fail, and half of them stay in.", func(t *testing.T) *stage {
		ups := upstreams("abcd")
		for _, u := range ups {
			u.PushN(5, balancertest.Status(500))
		}
		s := newStage(t, balancer.Config{
			Policy:  balancer.RoundRobin{First: true},
			Breaker: breaker.Config{Off: true},
			Outlier: outlier.Config{Consecutive: 3, Base: 2 * time.Second},
			Retry:   balancer.Retry{Off: true},
		}, ups...)
		s.send(40, 100*time.Millisecond)
		require.EqualValues(t, 2, s.pool.Snapshot().Totals.Ejections)
		return s
	}},
	{"fallback", "The only healthy upstream is ejected, and used all the same.", func(t *testing.T) *stage {
		ups := upstreams("ab")
		ups[0].PushN(3, balancertest.Status(503))
		s := newStage(t, balancer.Config{
			Policy:  balancer.RoundRobin{First: true},
			Breaker: breaker.Config{Off: true},
			Outlier: outlier.Config{Consecutive: 3, Base: 2 * time.Second, MaxEjectedPercent: 100, Last: outlier.EjectLast},
			Retry:   balancer.Retry{Off: true},
		}, ups...)
		require.NoError(t, s.pool.SetHealth("b", false, "probe timed out"))
		s.send(20, 100*time.Millisecond)
		s.sleep(time.Second)
		require.NoError(t, s.pool.SetHealth("b", true, "probe passed"))
		s.send(6, 100*time.Millisecond)
		return s
	}},
	{"gentle-return", "B fails, is ejected for 2 s, and comes back with 250, 500 and 1000 thousandths of its weight.", func(t *testing.T) *stage {
		ups := upstreams("abcd")
		ups[1].PushN(3, balancertest.Fail(balancertest.ErrTimeout))
		for _, u := range ups {
			u.WithWeight(2)
		}
		s := newStage(t, balancer.Config{
			Policy:  balancer.WeightedRoundRobin{First: true},
			Breaker: breaker.Config{Off: true},
			Outlier: outlier.Config{Consecutive: 3, Base: 2 * time.Second, Return: outlier.Ramp},
			Retry:   balancer.Retry{Off: true},
		}, ups...)
		s.send(12, 100*time.Millisecond)
		require.True(t, s.pool.Snapshot().Upstreams[1].Ejected)
		s.send(20, 100*time.Millisecond)
		for _, step := range []struct{ ramp, sends, calls int }{{250, 13, 1}, {500, 14, 2}, {1000, 16, 4}} {
			require.Equal(t, step.ramp, s.pool.Snapshot().Upstreams[1].Ramp)
			before := ups[1].Calls()
			s.send(step.sends, 70*time.Millisecond)
			require.Equal(t, before+step.calls, ups[1].Calls())
			s.sleep(time.Second - time.Duration(step.sends)*70*time.Millisecond)
		}
		return s
	}},
	{"retry-storm", "A total outage of two seconds: the budget ends the retries after its ten tokens.", func(t *testing.T) *stage {
		ups := upstreams("abc")
		s := newStage(t, balancer.Config{
			Outlier: outlier.Config{Off: true},
			Breaker: breaker.Config{Off: true},
			Budget:  retrybudget.Config{PerSecond: -1},
			Retry:   balancer.Retry{OnFailure: true, Backoff: balancer.Backoff{Base: 20 * time.Millisecond}},
		}, ups...)
		rounds := func(n int, answer balancer.Outcome) {
			for range n {
				s.sleep(20 * time.Millisecond)
				try := s.pool.Start(balancer.Request{Deadline: s.clk.Now().Add(200 * time.Millisecond)})
				for {
					step := try.Next()
					if step.Kind == balancer.StepEnd {
						break
					}
					if step.Kind == balancer.StepWait {
						s.sleep(step.Wait)
						continue
					}
					s.sleep(3 * time.Millisecond)
					try.Done(balancer.Report{Outcome: answer})
				}
			}
		}
		rounds(20, balancer.Success)
		rounds(60, balancer.TransportFailure)
		// One caller gives up while its attempt is out.
		try := s.pool.Start(balancer.Request{})
		require.Equal(t, balancer.StepSend, try.Next().Kind)
		s.sleep(time.Millisecond)
		try.Stop()
		rounds(20, balancer.Success)
		snap := s.pool.Snapshot()
		require.EqualValues(t, 10, snap.Totals.Granted)
		require.EqualValues(t, 10, snap.Totals.Retries)
		return s
	}},
	{"echofront-playground", "E-PG-03: three failures open the breaker for 3 s, five eject for 5 s; after that two trials close it.", func(t *testing.T) *stage {
		cfg := preset.EchofrontPlayground()
		cfg.Retry.Off = true
		s := newStage(t, cfg, upstreams("a")...)
		at := func(ms int, o balancer.Outcome) {
			s.clk.AdvanceTo(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond))
			s.acquire().Release(o)
		}
		for _, ms := range []int{0, 400, 800, 3800, 6800} {
			at(ms, balancer.Failure)
		}
		for ms := 7000; ms < 11800; ms += 400 {
			s.clk.AdvanceTo(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond))
			_, err := s.pool.Acquire(balancer.Request{})
			require.ErrorIs(t, err, balancer.ErrNoneAvailable)
		}
		at(11800, balancer.Success)
		at(12200, balancer.Success)
		return s
	}},
	{"health-toggle", "E-PG-05: B fails requests and probes from 1.2 s to 2.7 s; the second failed probe takes it out, the second passed one brings it back.", func(t *testing.T) *stage {
		cfg := preset.EchofrontPlayground()
		cfg.Retry.Off, cfg.Breaker.Off, cfg.Outlier.Off = true, true, true
		ups := upstreams("ABCD")
		s := newStage(t, cfg, ups...)
		start := s.clk.Now()
		type prober struct {
			*health.Checker
			probe health.Probe
		}
		probers := make([]prober, len(ups))
		for i := range probers {
			probers[i].Checker = health.NewChecker(health.Config{Interval: 500 * time.Millisecond, Fall: 2, StartHealthy: true}, start)
		}
		for ms := 0; ms < 4500; ms += 10 {
			now := start.Add(time.Duration(ms) * time.Millisecond)
			s.clk.AdvanceTo(now)
			works := func(u *balancertest.Upstream) bool { return u.ID() != "B" || ms < 1200 || ms >= 2700 }
			for i, u := range ups {
				p := &probers[i]
				// A probe takes 10 ms. Without one the zero Probe records nothing.
				change, changed := p.Record(now, p.probe, works(u))
				if changed {
					require.NoError(t, s.pool.SetHealth(u.ID(), change.To == health.Healthy, "probe "+change.Last.String()))
				}
				p.probe, _, _, _ = p.Begin(now)
			}
			if ms%200 == 100 {
				l := s.acquire()
				if works(l.Upstream()) {
					l.Release(balancer.Success)
				} else {
					l.Release(balancer.Failure)
				}
			}
		}
		return s
	}},
}

func golden(name string) string { return filepath.Join("testdata", name+".jsonl") }

// What the scripts do is what the files say; EVENKEEL_UPDATE=1 writes the files.
func TestGoldenRecordings(t *testing.T) {
	for _, x := range incidents {
		t.Run(x.name, func(t *testing.T) {
			got := x.run(t).file(x.note)
			if os.Getenv("EVENKEEL_UPDATE") != "" {
				require.NoError(t, os.WriteFile(golden(x.name), got, 0o644))
			}
			want, err := os.ReadFile(golden(x.name))
			require.NoError(t, err)
			equalText(t, want, got)
		})
	}
}

// Every golden file verifies, and its inputs alone make it again, byte for byte.
func TestGoldenFilesReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), len(incidents))
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".jsonl"), func(t *testing.T) {
			file, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, verify(t, file))
			f, err := incident.Read(bytes.NewReader(file))
			require.NoError(t, err)
			scenario, err := f.Inputs().Bytes()
			require.NoError(t, err)
			equalText(t, file, replayed(t, scenario))
		})
	}
}

// equalText shows the first line that differs.
func equalText(t *testing.T, want, got []byte) {
	t.Helper()
	w, g := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range min(len(w), len(g)) {
		require.Equal(t, w[i], g[i], "line %d", i+1)
	}
	require.Equal(t, len(w), len(g), "number of lines")
}
