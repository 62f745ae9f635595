package incident_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

var errDown = balancer.WithOutcome(errors.New("down"), balancer.TransportFailure)

// mixed is a mixer of the tests' own.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>29
}

// busy is a Config under which much happens in little time.
func busy(p balancer.Policy) balancer.Config {
	return balancer.Config{
		Policy: p, Seed: 11,
		Breaker: breaker.Config{ConsecutiveFailures: 4, OpenFor: 2 * time.Millisecond, OpenGrowth: 2, OpenJitter: 0.5},
		Outlier: outlier.Config{Consecutive: 3, Base: time.Millisecond, Jitter: time.Millisecond},
		Retry:   balancer.Retry{Max: 3, OnFailure: true, SameUpstream: 1, Backoff: balancer.Backoff{Base: 10 * time.Microsecond}},
	}
}

func members(n int) (out []balancer.Member) {
	for i := range n {
		out = append(out, balancer.Member{Name: fmt.Sprint("m", i), Share: 1 + i%3, Tier: i / 30, Limit: 100 * (i % 2)})
	}
	return out
}

// text writes a recording as a file.
func text(t testing.TB, r *incident.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, incident.Copy(&b, r))
	return b.Bytes()
}

func reader(t testing.TB, file []byte) *incident.Reader {
	t.Helper()
	r, err := incident.NewReader(bytes.NewReader(file))
	require.NoError(t, err)
	return r
}

// verify verifies a file with the Config of its own header.
func verify(t testing.TB, file []byte, policies ...balancer.Policy) error {
	t.Helper()
	r := reader(t, file)
	cfg, err := r.Header().Config(policies...)
	require.NoError(t, err)
	return incident.Verify(r, cfg)
}

// requireVerifies verifies a file. One that does not is kept, with the command
// that shows where it parts.
func requireVerifies(t testing.TB, file []byte) {
	t.Helper()
	if err := verify(t, file); err != nil {
		t.Fatalf("%v\n%s", err, kept(t, file))
	}
}

// kept writes a file that is to be looked at, and returns how.
func kept(t testing.TB, file []byte) string {
	t.Helper()
	f, err := os.CreateTemp("", "evenkeel-*.jsonl")
	require.NoError(t, err)
	_, err = f.Write(file)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return "to replay: go run github.com/evenkeel-go/evenkeel/examples/replay -verify " + f.Name()
}

func TestKept(t *testing.T) {
	how := kept(t, []byte(goldenText(t, "fallback")))
	name := how[strings.LastIndex(how, " ")+1:]
	file, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.Remove(name))
	requireVerifies(t, file)
}

// replayed is what a replay makes of the inputs of a file.
func replayed(t testing.TB, file []byte) []byte {
	t.Helper()
	r := reader(t, file)
	cfg, err := r.Header().Config()
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, incident.Replay(&b, r, cfg))
	return b.Bytes()
}

// crowd drives a Pool from many goroutines and calls attach when a quarter is
// done.
func crowd(t testing.TB, p *balancer.Pool[balancer.Member], seed uint64, ops int, attach func()) {
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			var held []balancer.Lease[balancer.Member]
			for i := range uint64(ops) {
				if g == 0 && i == uint64(ops)/4 {
					attach()
				}
				x := mixed(seed + g<<32 + i)
				switch x % 30 {
				case 0:
					_ = p.Update(members(36 + int(x>>8%6))...)
				case 1:
					_ = p.SetHealth(fmt.Sprint("m", x>>8%40), x>>16%3 > 0, "drawn")
				case 2:
					p.Poll()
				case 3, 4, 5:
					if l, err := p.Acquire(balancer.Request{Key: balancer.HashKey(x)}); err == nil {
						held = append(held, l)
					}
				case 6, 7, 8:
					if len(held) > 0 {
						held[0].Answered()
						held[0].Settle(balancer.Report{Outcome: balancer.Outcome(x >> 8 % 4), Latency: time.Duration(x >> 16 % 3000)})
						held = held[1:]
					}
				case 9:
					try := p.Start(balancer.Request{})
					try.Next()
					if x>>8%2 == 0 {
						try.Done(balancer.Report{Outcome: balancer.TransportFailure})
						try.Next()
					}
					try.Stop()
				default:
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					_ = p.Do(ctx, balancer.Request{Key: balancer.HashKey(x)}, func(context.Context, balancer.Member) error {
						if x>>8%3 == 0 {
							return errDown
						}
						return nil
					})
					cancel()
				}
			}
			for _, l := range held {
				l.Release(balancer.Success)
			}
		})
	}
	wg.Wait()
}

// What many goroutines did to a Pool, recorded from the middle of its life with
// calls in flight, is a file that verifies, and whose events its inputs
// reproduce byte for byte.
func TestConcurrentRunVerifies(t *testing.T) {
	seed, _ := seedOf(t, 7)
	for _, policy := range []balancer.Policy{balancer.PeakEWMA{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.WeightedRoundRobin{}, balancer.Hash{}} {
		t.Run(policy.Name(), func(t *testing.T) {
			p, err := balancer.NewPool(busy(policy), members(40)...)
			require.NoError(t, err)
			ops := opsOf(t, 1200)
			tape := balancer.NewTape(ops * 10)
			// Under way when the recording begins, and over before it ends.
			try := p.Start(balancer.Request{Key: balancer.HashKey(seed)})
			require.Equal(t, balancer.StepSend, try.Next().Kind)
			crowd(t, p, seed, ops/8, func() { p.Attach(tape) })
			for range 2 {
				try.Done(balancer.Report{Outcome: balancer.TransportFailure})
				try.Next()
			}
			try.Stop()
			p.Attach(nil)
			require.False(t, tape.Lost())
			rec := tape.Dump()
			require.Greater(t, len(rec.Records), ops/8)

			file := text(t, incident.FromRecording(rec, p.Config(), incident.Options{Note: "a crowd"}))
			requireVerifies(t, file)
			// In memory, without a file.
			require.NoError(t, incident.Verify(incident.FromRecording(rec, p.Config(), incident.Options{}), p.Config()))
			require.Contains(t, string(file), `"phase":"`, "a request was under way at the start")
			require.Equal(t, string(file), string(replayed(t, file)))

			// Through memory and back.
			f, err := incident.Read(bytes.NewReader(file))
			require.NoError(t, err)
			again, err := f.Bytes()
			require.NoError(t, err)
			require.Equal(t, string(file), string(again))
			require.NoError(t, incident.Verify(f.Reader(), p.Config()))
			scenario, err := f.Inputs().Bytes()
			require.NoError(t, err)
			require.NotContains(t, string(scenario), `"ev"`)
			require.Equal(t, string(file), string(replayed(t, scenario)))
		})
	}
}
