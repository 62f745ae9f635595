package balancer_test

import (
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A tape gives back what was put on it, whatever it was, and holds the record of
// an ordinary attempt in one line.
func TestEntryHoldsTheRecord(t *testing.T) {
	require.LessOrEqual(t, balancer.EntrySize, uintptr(64))
	var s balancer.Segment
	checkSeeded(t, 0xe27, func(t *rapid.T) {
		position := rapid.SampledFrom([]int32{-1, 0, 1, 255, 256, math.MaxInt32})
		times := rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64, math.MinInt64})
		r := balancer.Record{
			Kind: balancer.RecordKind(rapid.IntRange(int(balancer.RecordEvent), int(balancer.RecordSettle)).Draw(t, "kind")),
			At:   times.Draw(t, "at"), Request: rapid.Uint64().Draw(t, "request"), Own: rapid.Bool().Draw(t, "own"),
			Attempt:  rapid.Int32Range(0, 255).Draw(t, "attempt"),
			Key:      rapid.SampledFrom([]balancer.Key{{}, balancer.HashKey(0), balancer.HashKey(math.MaxUint64)}).Draw(t, "key"),
			Deadline: times.Draw(t, "deadline"), Outcome: balancer.Outcome(rapid.Uint8().Draw(t, "outcome")),
			Latency: time.Duration(times.Draw(t, "latency")), Verdict: balancer.Verdict(rapid.Uint8().Draw(t, "verdict")),
			Retries: rapid.Int32Range(0, 255).Draw(t, "retries"), Phase: rapid.Uint8().Draw(t, "phase"),
			Settled: rapid.Bool().Draw(t, "settled"), Over: rapid.Bool().Draw(t, "over"), Latest: position.Draw(t, "latest"),
			Picked: position.Draw(t, "picked"), Fallback: rapid.Bool().Draw(t, "fallback"), Step: balancer.StepKind(rapid.Uint8().Draw(t, "step")),
			NTried: rapid.Int32Range(0, 1).Draw(t, "tried"),
		}
		// At most one thing is out of the ordinary.
		outsize := rapid.SampledFrom([]int32{-1, 256, math.MaxInt32, math.MinInt32})
		switch rapid.IntRange(0, 8).Draw(t, "odd") {
		case 0:
			r.Attempt = outsize.Draw(t, "attempt")
		case 1:
			r.Retries = outsize.Draw(t, "retries")
		case 2:
			r.Same = outsize.Draw(t, "same")
		case 3:
			r.Until = times.Draw(t, "until")
		case 4:
			r.Wait = times.Draw(t, "wait")
		case 5:
			r.End = balancer.EndBudget
		case 6:
			r.NTried = rapid.Int32Range(2, balancer.InlineTried+2).Draw(t, "more")
		}
		for i := range r.NTried {
			if p := position.Draw(t, "position"); i < balancer.InlineTried {
				r.Tried[i] = p
			} else {
				r.More = append(r.More, p)
			}
		}
		switch r.Kind {
		case balancer.RecordEvent:
			r.Seq, r.Event, r.Count, r.Note, r.Upstream = 1<<40, balancer.BreakerOpened, 7, "rule", "a"
		case balancer.RecordHealth:
			r.Healthy, r.Note, r.Upstream = true, "why", "b"
		case balancer.RecordUpdate:
			r.Members = []balancer.Member{{Name: "c"}}
		}
		require.Equal(t, r, s.Put(r))
	})
	require.Zero(t, s.Clear())
	require.False(t, s.Narrow(balancer.Record{Kind: balancer.RecordEvent}))
	require.True(t, s.Narrow(balancer.Record{Kind: balancer.RecordAcquire, Request: 1, Picked: 2, Latest: -1, Own: true}))
	require.True(t, s.Narrow(balancer.Record{
		Kind: balancer.RecordDone, Request: 1, Picked: -1, Phase: 1, NTried: 1, Deadline: math.MaxInt64, Outcome: balancer.Success, Over: true,
	}))
}
