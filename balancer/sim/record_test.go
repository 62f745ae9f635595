package sim_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// What is recorded of any run replays, and recording changes nothing.
func TestRecordVerifies(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		s := fleet(t)
		want, err := sim.Run(s)
		require.NoError(t, err)
		for client := range s.Clients {
			var b bytes.Buffer
			got, err := sim.Record(s, client, &b)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NoError(t, verified(&b))
		}
	})
}

// The file has every request of the client, and only those.
func TestRecordIsOfOneClient(t *testing.T) {
	s := sim.Scenario{
		Seed: 1, Duration: 10 * time.Second,
		Servers: []sim.Server{{Name: "a"}, {Name: "b"}},
		Clients: []sim.Client{{Rate: 20}, {Rate: 30}},
		Script:  []sim.Change{{Kind: sim.Down, At: 4 * time.Second, For: time.Second, Servers: "a"}},
		Pool:    balancer.Config{Policy: balancer.RoundRobin{}},
	}
	attempts := map[int]int{}
	_, err := sim.Watch(s, func(a sim.Attempt) { attempts[a.Client]++ })
	require.NoError(t, err)
	for client := range 2 {
		var b bytes.Buffer
		_, err := sim.Record(s, client, &b)
		require.NoError(t, err)
		f, err := incident.Read(&b)
		require.NoError(t, err)
		require.Empty(t, f.Header.State, "the Pool is new")
		require.Equal(t, time.Unix(0, 0).UTC(), f.Header.Start)
		picks, out := 0, 0
		for _, l := range f.Lines {
			switch {
			case l.Kind == incident.EvPick || l.Kind == incident.EvRetry:
				picks++
			case l.Kind == incident.EvState && (l.Event == balancer.UpstreamEjected || l.Event == balancer.BreakerOpened):
				out++
			}
		}
		require.Equal(t, attempts[client], picks)
		require.Positive(t, out)
	}
}

func TestRecordErrors(t *testing.T) {
	s := sim.Scenario{Duration: 10 * time.Second, Servers: []sim.Server{{}}, Clients: []sim.Client{{Rate: 1000}}}
	for _, client := range []int{-1, 1} {
		_, err := sim.Record(s, client, io.Discard)
		require.ErrorIs(t, err, sim.ErrConfig)
	}
	_, err := sim.Record(sim.Scenario{}, 0, io.Discard)
	require.ErrorIs(t, err, sim.ErrConfig)
	// An error of the writer comes back, wherever it is met.
	broken := errors.New("broken")
	for _, after := range []int{0, 1 << 12, 1 << 16, 1 << 20} {
		r, err := sim.Record(s, 0, &limited{after, broken})
		require.ErrorIs(t, err, broken)
		require.Equal(t, after > 0, r.OK > 0, "the run is whole all the same, once it has begun")
	}
}

// limited is a writer that fails after a number of bytes.
type limited struct {
	left int
	err  error
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, l.err
	}
	return len(b), nil
}

// A busy run is longer than what the tape holds between two flushes.
func TestRecordIsWhole(t *testing.T) {
	var b bytes.Buffer
	r, err := sim.Record(busy(30_000, balancer.TwoRandom{}), 0, &b)
	require.NoError(t, err)
	require.EqualValues(t, r.Total.Attempts, strings.Count(b.String(), `"ev":"pick"`)+strings.Count(b.String(), `"ev":"retry"`))
	require.NoError(t, verified(&b))
}

func verified(b *bytes.Buffer) error {
	r, err := incident.NewReader(b)
	if err != nil {
		return err
	}
	cfg, err := r.Header().Config()
	if err != nil {
		return err
	}
	return incident.Verify(r, cfg)
}

// An input may bring more events than fit between two flushes: many breakers turn
// half-open at one of them, many ejections end at another.
func TestRecordManyEventsAtOnce(t *testing.T) {
	s := sim.Scenario{
		Seed: 1, Duration: 50 * time.Second,
		Servers: []sim.Server{{Count: 9000, Workers: -1}},
		Clients: []sim.Client{{Times: nil, Rate: 9000}},
		Script:  []sim.Change{{Kind: sim.Down, For: 5 * time.Second}, {Kind: sim.Surge, Factor: 1e-4, At: 5 * time.Second}},
		Pool: balancer.Config{
			Policy: balancer.RoundRobin{}, Retry: balancer.Retry{Off: true},
			Breaker: breaker.Config{ConsecutiveFailures: 2, OpenFor: 10 * time.Second},
			Outlier: outlier.Config{Consecutive: 2, Base: 20 * time.Second, MaxEjectedPercent: 100, Last: outlier.EjectLast},
		},
	}
	var b bytes.Buffer
	_, err := sim.Record(s, 0, &b)
	require.NoError(t, err)
	require.Greater(t, strings.Count(b.String(), `"ev":"half_open"`), 8000)
	require.NoError(t, verified(&b))
}
