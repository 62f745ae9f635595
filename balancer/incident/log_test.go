package incident_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

// A log that is begun in the middle of a busy life, and flushed meanwhile, holds
// all that happened, in the order in which it did.
func TestLogOfConcurrentRunVerifies(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 5}, members(20)...)
	require.NoError(t, err)
	var b bytes.Buffer
	var log *incident.Log
	var wg sync.WaitGroup
	begun, done := make(chan struct{}), make(chan struct{})
	for g := range uint64(6) {
		wg.Go(func() {
			for i := range uint64(2000) {
				if g == 0 && i == 500 {
					log, err = incident.NewLog(&b, p, 0, incident.Options{Note: "a busy one"})
					require.NoError(t, err)
					close(begun)
				}
				x := mixed(g<<32 + i)
				if x%100 == 0 {
					_ = p.SetHealth(members(20)[x>>8%20].Name, x>>16%2 == 0, "drawn")
				}
				_ = p.Do(context.Background(), balancer.Request{}, func(context.Context, balancer.Member) error {
					if x%7 == 0 {
						return balancer.WithOutcome(io.ErrUnexpectedEOF, balancer.TransportFailure)
					}
					return nil
				})
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	<-begun
	for flushed := false; !flushed; {
		require.NoError(t, log.Flush())
		select {
		case <-done:
			flushed = true
		default:
		}
	}
	require.NoError(t, log.Close())
	text := b.String()
	require.NoError(t, log.Close(), "a second time")
	require.Equal(t, text, b.String())
	r := reader(t, b.Bytes())
	require.NotEmpty(t, r.Header().State)
	require.Equal(t, "a busy one", r.Header().Note)
	requireVerifies(t, b.Bytes())
}

func TestLogOfNewPoolHasNoState(t *testing.T) {
	clk := clock.NewManual(time.Unix(100, 0))
	p, err := balancer.NewPool(balancer.Config{Seed: 5, Clock: clk}, members(3)...)
	require.NoError(t, err)
	logged := func(p incident.Pool) *incident.Reader {
		var b bytes.Buffer
		log, err := incident.NewLog(&b, p, 0, incident.Options{})
		require.NoError(t, err)
		require.NoError(t, log.Close())
		return reader(t, b.Bytes())
	}
	require.Empty(t, logged(p).Header().State)
	clk.Advance(time.Second)
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	l.Release(balancer.Success)
	require.NotEmpty(t, logged(p).Header().State)
}

func TestLogGap(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 5, Clock: clock.NewManual(time.Unix(0, 0))}, members(3)...)
	require.NoError(t, err)
	log, err := incident.NewLog(io.Discard, p, 100, incident.Options{})
	require.NoError(t, err)
	poll := func(n int) {
		for range n {
			p.Poll()
		}
	}
	// What fits is not lost, however often.
	for range 20 {
		poll(150)
		require.NoError(t, log.Flush())
	}
	poll(301)
	require.ErrorIs(t, log.Flush(), incident.ErrGap)
	require.ErrorIs(t, log.Flush(), incident.ErrGap, "the error sticks")
	require.ErrorIs(t, log.Close(), incident.ErrGap)
}

func TestLogErrors(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 5}, members(3)...)
	require.NoError(t, err)
	for _, size := range []int{-1, 1<<24 + 1, math.MaxInt} {
		_, err = incident.NewLog(io.Discard, p, size, incident.Options{})
		require.ErrorIs(t, err, balancer.ErrConfig)
		require.ErrorIs(t, incident.Config{Size: size}.Validate(), balancer.ErrConfig)
	}
	broken := errors.New("broken")
	_, err = incident.NewLog(&brokenPipe{broken, 0}, p, 0, incident.Options{})
	require.ErrorIs(t, err, broken, "the header is written at once")
	pipe := &brokenPipe{broken, 1}
	log, err := incident.NewLog(pipe, p, 0, incident.Options{})
	require.NoError(t, err)
	p.Poll()
	require.ErrorIs(t, log.Flush(), broken)
	require.ErrorIs(t, log.Flush(), broken)
	require.ErrorIs(t, log.Close(), broken)
	require.Equal(t, -1, pipe.good, "nothing is written after an error")
}

// brokenPipe takes a few writes.
type brokenPipe struct {
	err  error
	good int
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.good--; b.good < 0 {
		return 0, b.err
	}
	return len(p), nil
}

// What was flushed has reached the writer, and what came before a gap is whole.
func TestLogFlushWrites(t *testing.T) {
	p := newLive(t, balancer.Config{}, 3)
	var b bytes.Buffer
	log, err := incident.NewLog(&b, p, 100, incident.Options{})
	require.NoError(t, err)
	lines := func() int { return bytes.Count(b.Bytes(), []byte("\n")) }
	require.Equal(t, 1, lines(), "the header")
	poll := func(n int) {
		for range n {
			p.Poll()
		}
	}
	poll(150)
	require.NoError(t, log.Flush())
	require.Equal(t, 151, lines())
	poll(301)
	require.ErrorIs(t, log.Flush(), incident.ErrGap)
	require.ErrorIs(t, log.Close(), incident.ErrGap)
	require.Equal(t, 151, lines())
	_, err = incident.Read(&b)
	require.ErrorContains(t, err, "cut off")
}

// A log is flushed and closed as often as one likes; what happens after its end
// is not in it.
func TestLogAfterClose(t *testing.T) {
	p := newLive(t, balancer.Config{}, 3)
	var b bytes.Buffer
	log, err := incident.NewLog(&b, p, 0, incident.Options{})
	require.NoError(t, err)
	p.Poll()
	require.NoError(t, log.Close())
	text := b.String()
	p.Poll()
	p.Attach(nil)
	require.NoError(t, log.Flush())
	require.NoError(t, log.Close())
	require.Equal(t, text, b.String())
}

// Whoever takes the Pool from a log makes it say so: its file has all until then,
// and no end.
func TestLogReplaced(t *testing.T) {
	for name, take := range map[string]func(p live){
		"a log": func(p live) {
			_, err := incident.NewLog(io.Discard, p, 0, incident.Options{})
			require.NoError(t, err)
		},
		"a recorder": func(p live) { p.rec.Attach(p) },
		"nobody":     func(p live) { p.Attach(nil) },
	} {
		for _, end := range []func(*incident.Log) error{(*incident.Log).Flush, (*incident.Log).Close} {
			p := newLive(t, balancer.Config{}, 3)
			var b bytes.Buffer
			log, err := incident.NewLog(&b, p, 0, incident.Options{})
			require.NoError(t, err)
			p.Poll()
			take(p)
			p.Poll()
			require.ErrorIs(t, end(log), incident.ErrDetached, name)
			require.ErrorIs(t, log.Flush(), incident.ErrDetached, name)
			require.ErrorIs(t, log.Close(), incident.ErrDetached, name)
			_, lines, _ := strings.Cut(b.String(), "\n")
			require.Equal(t, "{\"t\":\"0\",\"in\":\"time\"}\n", lines, name)
		}
	}
}

// counted is a Pool that counts how often its recording is begun and ended.
type counted struct {
	incident.Pool
	attached, detached int
}

func (c *counted) Attach(t *balancer.Tape) { c.attached++; c.Pool.Attach(t) }
func (c *counted) Detach(t *balancer.Tape) { c.detached++; c.Pool.Detach(t) }

// An error ends the recording, which costs the requests time and has no reader
// any more.
func TestLogDetaches(t *testing.T) {
	p := &counted{Pool: newLive(t, balancer.Config{}, 3)}
	_, err := incident.NewLog(&brokenPipe{io.ErrClosedPipe, 0}, p, 0, incident.Options{})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Equal(t, 1, p.detached)
	log, err := incident.NewLog(&brokenPipe{io.ErrClosedPipe, 1}, p, 0, incident.Options{})
	require.NoError(t, err)
	p.Pool.(live).Poll()
	require.Error(t, log.Flush())
	require.Equal(t, 2, p.detached)
}

// A log that cannot be written takes the Pool from nobody.
func TestLogCheckedFirst(t *testing.T) {
	var deep balancer.Policy = balancer.RoundRobin{}
	for range 9 {
		deep = balancer.Hash{Keyless: deep}
	}
	p := &counted{Pool: newLive(t, balancer.Config{Policy: deep}, 3)}
	_, err := incident.NewLog(io.Discard, p, 0, incident.Options{})
	require.ErrorContains(t, err, "policies inside one another")
	require.Zero(t, p.attached)
}

// counting is a policy that is not built in and counts its pickers.
type counting struct {
	balancer.RoundRobin
	pickers *int
}

func (c counting) Name() string { return "counting" }

func (c counting) NewPicker(v *balancer.View, prev balancer.Picker) balancer.Picker {
	*c.pickers++
	return c.RoundRobin.NewPicker(v, prev)
}

// A policy of the caller's own is the Pool's alone, also inside another one.
func TestLogLeavesPoliciesAlone(t *testing.T) {
	n := 0
	for _, policy := range []balancer.Policy{counting{pickers: &n}, balancer.Hash{Keyless: counting{pickers: &n}}} {
		p := newLive(t, balancer.Config{Policy: policy}, 3)
		before := n
		var b bytes.Buffer
		log, err := incident.NewLog(&b, p, 0, incident.Options{})
		require.NoError(t, err)
		require.Equal(t, before, n)
		p.Poll()
		require.NoError(t, log.Close())
		require.NotEmpty(t, reader(t, b.Bytes()).Header().State)
		require.NoError(t, incident.Verify(reader(t, b.Bytes()), p.Config()))
	}
}

// A name that cannot stand in a file is no member's, and does not end a log.
func TestLogOfUnknownHealth(t *testing.T) {
	p := newLive(t, balancer.Config{}, 3)
	var b bytes.Buffer
	log, err := incident.NewLog(&b, p, 0, incident.Options{})
	require.NoError(t, err)
	p.clk.Advance(time.Second)
	require.ErrorIs(t, p.SetHealth("\xff", false, "?"), balancer.ErrUnknownUpstream)
	require.NoError(t, log.Close())
	require.Contains(t, b.String(), `{"t":"1","in":"time"}`)
	requireVerifies(t, b.Bytes())
}

// Requests that are left in their middle do not fill the memory; one that goes on
// after very many of them says again how far it has come.
func TestLogOfRequestsLeft(t *testing.T) {
	p := newLive(t, balancer.Config{Retry: balancer.Retry{Max: 5}}, 4)
	var b bytes.Buffer
	log, err := incident.NewLog(&b, p, 0, incident.Options{})
	require.NoError(t, err)
	start := func() *balancer.Try[balancer.Member] {
		x := p.Start(balancer.Request{Key: balancer.HashKey(7)})
		require.Equal(t, balancer.StepSend, x.Next().Kind)
		return &x
	}
	failed, out, settled := start(), start(), start()
	failed.Done(balancer.Report{Outcome: balancer.TransportFailure})
	lease := settled.Next().Lease
	lease.Release(balancer.Success)
	for i := range 2<<16 + 10 {
		x := p.Start(balancer.Request{})
		x.Next().Lease.Release(balancer.Success)
		if i%5000 == 0 {
			require.NoError(t, log.Flush())
		}
	}
	require.NotContains(t, b.String(), `"phase"`)
	late := start()
	require.Equal(t, balancer.StepSend, failed.Next().Kind)
	for _, x := range []*balancer.Try[balancer.Member]{failed, out, settled, late} {
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.StepSend, x.Next().Kind)
		x.Stop()
	}
	require.NoError(t, log.Close())
	for request, phase := range map[int]string{1: `"phase":"failed"`, 2: `"phase":"sent"`, 3: `"phase":"sent","settled":true`} {
		require.Regexp(t, fmt.Sprintf(`"r":%d,.*%s`, request, phase), b.String())
	}
	require.Equal(t, 3, strings.Count(b.String(), `"phase"`), "once each")
	requireVerifies(t, b.Bytes())
}

// Recorders and logs take a busy Pool from one another: what ends well is whole.
func TestLogsTakeTurns(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 5}, members(6)...)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range 3000 {
				if l, err := p.Acquire(balancer.Request{}); err == nil {
					l.Release(balancer.Outcome(i % 4))
				}
			}
		})
	}
	wg.Go(func() {
		rec := incident.NewRecorder(incident.Config{Size: 64})
		for range 20 {
			rec.Attach(p)
			d := rec.Dump()
			rec.Close()
			if err := incident.Verify(d.Reader(), d.Config); err != nil {
				t.Error(err)
			}
		}
	})
	var whole [][]byte
	wg.Go(func() {
		for range 20 {
			var b bytes.Buffer
			log, err := incident.NewLog(&b, p, 200, incident.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			var flushes sync.WaitGroup
			for range 3 {
				flushes.Go(func() { _ = log.Flush() })
			}
			flushes.Go(func() { _ = log.Close() })
			flushes.Wait()
			switch err := log.Close(); {
			case errors.Is(err, incident.ErrGap), errors.Is(err, incident.ErrDetached):
			case err != nil:
				t.Error(err)
			default:
				whole = append(whole, b.Bytes())
			}
		}
	})
	wg.Wait()
	for _, b := range whole {
		requireVerifies(t, b)
	}
}
