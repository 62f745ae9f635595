package incident_test

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	_, err = incident.NewLog(io.Discard, p, -1, incident.Options{})
	require.ErrorIs(t, err, balancer.ErrConfig)
	broken := errors.New("broken")
	log, err := incident.NewLog(brokenPipe{broken}, p, 0, incident.Options{})
	require.NoError(t, err, "the header waits for more")
	p.Poll()
	require.ErrorIs(t, log.Close(), broken)
}

type brokenPipe struct{ err error }

func (b brokenPipe) Write([]byte) (int, error) { return 0, b.err }
