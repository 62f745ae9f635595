package incident_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// FuzzRead: whatever the bytes, reading does not panic; what is read can be
// written, and what was written is read as the same and written as the same.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(f, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(b[:min(len(b), 4000)])
		f.Add(append(append([]byte{}, b[:min(len(b), 4000)]...), "\n{\"end\":true}\n"...))
	}
	f.Add(scenario(`{"t":"1","in":"next","r":9,"phase":"waiting","retries":2,"same":1,"wait_until":"-3","tried":["a",""],"more":1,"latest":"a","key":"k","deadline":"2"}`))
	f.Add(scenario(`{"t":"1","in":"update","members":[{"b":"a\u0001","weight":0,"tier":-1,"limit":3}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := incident.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		once, err := file.Bytes()
		require.NoError(t, err)
		again, err := incident.Read(bytes.NewReader(once))
		require.NoError(t, err, string(once))
		require.Equal(t, file, again)
		twice, err := again.Bytes()
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice), "what is written is canonical")
		var out bytes.Buffer
		if err := incident.Timeline(&out, file.Reader(), incident.TimelineOptions{}); len(file.Header.State) == 0 {
			require.NoError(t, err)
		}
	})
}

// FuzzReplayOps: inputs decoded from bytes, three for each, replay to a file that
// verifies, whatever they are; a damaged event in it does not.
func FuzzReplayOps(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	for s := range uint64(8) {
		var b []byte
		for i := range uint64(300) {
			b = append(b, byte(mixed(s<<32+i)>>20))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file := &incident.File{Header: incident.Header{Seed: 5, Settings: busy(nil), Members: members(4)}}
		file.Header.Settings.Seed = 0
		var at time.Duration
		var out []incident.Line // what ends an attempt that is out
		for i := uint64(0); len(b) >= 3; i++ {
			at += time.Duration(b[0]) * 10 * time.Microsecond
			l := incident.Line{At: at, Request: i + 1}
			switch n := int(b[2]); b[1] % 8 {
			case 0:
				l = incident.Line{Kind: incident.InUpdate, At: at, Members: members(1 + n%5)}
			case 1:
				l = incident.Line{Kind: incident.InHealth, At: at, Upstream: fmt.Sprint("m", n%5), Healthy: n&16 > 0}
			case 2:
				l = incident.Line{Kind: incident.InTime, At: at}
			case 3:
				l.Kind = incident.InAcquire
			case 4, 5:
				l.Kind = incident.InRequest
				out = append(out, incident.Line{Kind: incident.InDone, Request: l.Request, Outcome: balancer.Outcome(n % 4), Latency: time.Duration(n)})
			case 6, 7:
				if len(out) == 0 {
					break
				}
				l, out = out[n%len(out)], append(out[:n%len(out)], out[n%len(out)+1:]...)
				l.At = at
				if l.Kind == incident.InDone {
					out = append(out, incident.Line{Kind: incident.InNext, Request: l.Request})
				}
			}
			if b = b[3:]; l.Kind != 0 {
				file.Lines = append(file.Lines, l)
			}
		}
		cfg, err := file.Header.Config()
		require.NoError(t, err)
		var text bytes.Buffer
		if err := incident.Replay(&text, file.Reader(), cfg); err != nil {
			// A request that was over already, or found no upstream: without it.
			require.ErrorIs(t, err, incident.ErrInput)
			var line int
			_, scanned := fmt.Sscanf(err.Error(), "incident: line %d:", &line)
			require.NoError(t, scanned)
			file.Lines = file.Lines[:line-2]
			text.Reset()
			require.NoError(t, incident.Replay(&text, file.Reader(), cfg))
		}
		require.NoError(t, verify(t, text.Bytes()))
		whole, err := incident.Read(&text)
		require.NoError(t, err)
		for i := range whole.Lines {
			if l := &whole.Lines[len(whole.Lines)-1-i]; !l.Kind.In() {
				l.Upstream += "x"
				l.Request++
				require.ErrorIs(t, incident.Verify(whole.Reader(), cfg), incident.ErrDivergence)
				break
			}
		}
	})
}

// drawLine draws a line of any kind with any content that a file can hold.
func drawLine(t *rapid.T, at time.Duration) incident.Line {
	name := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", `"`, "\\n", "\n", "ä", "\u2028", "#"}), rapid.String())
	span := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "ns")) })
	number := rapid.IntRange(0, math.MaxInt32)
	l := incident.Line{Kind: incident.Kind(rapid.IntRange(1, int(incident.EvState)).Draw(t, "kind")), At: at}
	key := func() {
		switch rapid.IntRange(0, 2).Draw(t, "key") {
		case 1:
			l.Key, l.HasKey = name.Draw(t, "text"), true
		case 2:
			l.Hash, l.HasHash = rapid.Uint64().Draw(t, "hash"), true
		}
	}
	deadline := func() {
		if l.HasDeadline = rapid.Bool().Draw(t, "deadline"); l.HasDeadline {
			l.Deadline = min(span.Draw(t, "deadline"), incident.Never-1)
		}
	}
	report := func() {
		l.Outcome = balancer.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome"))
		l.Latency = span.Draw(t, "latency")
	}
	progress := func() {
		if !rapid.Bool().Draw(t, "began before") {
			return
		}
		l.From = &incident.Progress{
			Phase:   rapid.SampledFrom([]string{"sent", "failed", "waiting"}).Draw(t, "phase"),
			Retries: number.Draw(t, "retries"), Same: number.Draw(t, "same"), Latest: name.Draw(t, "latest"),
		}
		l.From.Settled = l.From.Phase == "sent" && rapid.Bool().Draw(t, "settled")
		if l.From.Phase == "waiting" {
			l.From.Until = span.Draw(t, "until")
		}
		if tried := rapid.SliceOfN(name, 0, 4).Draw(t, "tried"); len(tried) > 0 {
			l.From.Tried = tried
		}
		key()
		deadline()
	}
	if l.Kind != incident.InUpdate && l.Kind != incident.InHealth && l.Kind != incident.InTime && l.Kind != incident.EvState {
		l.Request = rapid.Uint64Min(1).Draw(t, "request")
	}
	switch l.Kind {
	case incident.InUpdate:
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			l.Members = append(l.Members, balancer.Member{
				Name: name.Draw(t, "id"), Share: rapid.IntRange(0, balancer.MaxWeight).Draw(t, "weight"),
				Tier: rapid.IntRange(-math.MaxInt32, math.MaxInt32).Draw(t, "tier"), Limit: number.Draw(t, "limit"),
			})
		}
	case incident.InHealth:
		l.Upstream, l.Healthy, l.Why = name.Draw(t, "id"), rapid.Bool().Draw(t, "up"), name.Draw(t, "why")
	case incident.InAcquire:
		key()
	case incident.InRequest:
		key()
		deadline()
	case incident.InNext, incident.InStop:
		progress()
	case incident.InDone:
		report()
		l.Retry = balancer.Verdict(rapid.IntRange(0, 2).Draw(t, "verdict"))
		progress()
	case incident.InAnswered:
		l.Try = number.Draw(t, "try")
	case incident.InSettle:
		l.Try = number.Draw(t, "try")
		report()
	case incident.EvPick, incident.EvRetry:
		l.Upstream, l.Fallback = name.Draw(t, "id"), rapid.Bool().Draw(t, "fallback")
		if l.Kind == incident.EvRetry {
			l.Try = rapid.IntRange(1, math.MaxInt32).Draw(t, "try")
		}
	case incident.EvWait:
		l.Wait = span.Draw(t, "wait")
	case incident.EvEnd:
		l.End = balancer.End(rapid.IntRange(1, int(balancer.EndUnavailable)).Draw(t, "end"))
	case incident.EvState:
		l.Event = balancer.EventKind(rapid.IntRange(1, int(balancer.TrialLost)).Draw(t, "event"))
		l.Seq, l.Upstream, l.Until, l.Why = rapid.Uint64().Draw(t, "n"), name.Draw(t, "id"), span.Draw(t, "until"), name.Draw(t, "why")
		l.Count = rapid.IntRange(-math.MaxInt32, math.MaxInt32).Draw(t, "count")
	}
	return l
}

// roundTrip: what is written is read as it was, to the last bit, whatever it is.
func roundTrip(t *rapid.T) {
	f := &incident.File{Header: incident.Header{Library: "x", Seed: rapid.Uint64Min(1).Draw(t, "seed"), Note: rapid.String().Draw(t, "note"), Start: time.Unix(0, rapid.Int64().Draw(t, "start")).UTC()}}
	var at time.Duration
	for range rapid.IntRange(0, 10).Draw(t, "lines") {
		at += time.Duration(rapid.Int64Range(0, math.MaxInt64/11).Draw(t, "step"))
		f.Lines = append(f.Lines, drawLine(t, at))
	}
	b, err := f.Bytes()
	if err != nil {
		t.Fatalf("%v", err)
	}
	back, err := incident.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	require.Equal(t, f, back)
	for i, l := range f.Lines {
		if got := back.Lines[i].String(); got != l.String() {
			t.Fatalf("%s became %s", l, got)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	checkSeeded(t, 1, roundTrip)
}

func FuzzRoundTripModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(roundTrip)) }
