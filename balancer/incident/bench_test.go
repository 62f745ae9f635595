package incident_test

import (
	"bytes"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// traffic records n requests over 20 upstreams, of which a hundredth fails and
// is sent again.
func traffic(tb testing.TB, n int) (balancer.Recording, balancer.Config) {
	clk := clock.NewManual(time.Unix(0, 0))
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clk}, members(20)...)
	require.NoError(tb, err)
	tape := balancer.NewTape(4 * n)
	p.Attach(tape)
	for i := range uint64(n) {
		clk.Advance(100 * time.Microsecond)
		try := p.Start(balancer.Request{Key: balancer.HashKey(i)})
		for a := uint64(0); try.Next().Kind == balancer.StepSend; a++ {
			clk.Advance(time.Duration(mixed(i+a) % 1e6))
			o := balancer.Success
			if mixed(i+a<<40)%100 == 0 {
				o = balancer.TransportFailure
			}
			try.Done(balancer.Report{Outcome: o})
		}
	}
	return tape.Dump(), p.Config()
}

// BenchmarkVerify verifies a file of 20,000 requests; an op is a request.
func BenchmarkVerify(b *testing.B) {
	const n = 20_000
	rec, cfg := traffic(b, n)
	file := text(b, incident.FromRecording(rec, cfg, incident.Options{}))
	b.SetBytes(int64(len(file) / n))
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += n {
		r, err := incident.NewReader(bytes.NewReader(file))
		require.NoError(b, err)
		require.NoError(b, incident.Verify(r, cfg))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkWrite writes the file of a recording; an op is a request.
func BenchmarkWrite(b *testing.B) {
	const n = 20_000
	rec, cfg := traffic(b, n)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += n {
		require.NoError(b, incident.Copy(io.Discard, incident.FromRecording(rec, cfg, incident.Options{})))
	}
}

// BenchmarkRead parses a file; an op is a request.
func BenchmarkRead(b *testing.B) {
	const n = 20_000
	rec, cfg := traffic(b, n)
	file := text(b, incident.FromRecording(rec, cfg, incident.Options{}))
	b.SetBytes(int64(len(file) / n))
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += n {
		r, err := incident.NewReader(bytes.NewReader(file))
		require.NoError(b, err)
		for err == nil {
			_, err = r.Next()
		}
		require.Equal(b, io.EOF, err)
	}
}

// BenchmarkTimeline draws a file; an op is a request.
func BenchmarkTimeline(b *testing.B) {
	const n = 20_000
	rec, cfg := traffic(b, n)
	b.ResetTimer()
	for done := 0; done < b.N; done += n {
		require.NoError(b, incident.Timeline(io.Discard, incident.FromRecording(rec, cfg, incident.Options{}), incident.TimelineOptions{}))
	}
}

// BenchmarkReference is what the others are compared with: encoding one short
// string.
func BenchmarkReference(b *testing.B) {
	var buf []byte
	for b.Loop() {
		buf = strconv.AppendQuote(buf[:0], "upstream-7")
	}
}
