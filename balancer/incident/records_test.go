package incident_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

// A lease of a retry is named by its attempt, whatever is done with it by itself.
func TestRecordLeaseOfRetry(t *testing.T) {
	p := newLive(t, balancer.Config{}, 3)
	x := p.Start(balancer.Request{})
	require.Equal(t, balancer.StepSend, x.Next().Kind)
	x.Done(balancer.Report{Outcome: balancer.TransportFailure})
	p.rec.Attach(p)
	lease := x.Next().Lease
	require.Equal(t, 1, lease.Attempt())
	p.clk.Advance(time.Millisecond)
	lease.Answered()
	p.clk.Advance(time.Millisecond)
	require.True(t, lease.Settle(balancer.Report{Outcome: balancer.Success}))
	x.Stop()
	text := p.verifies(t)
	require.Contains(t, text, `"in":"answered","r":1,"try":1}`)
	require.Contains(t, text, `"in":"settle","r":1,"try":1,"out":"success"`)
}

// How far a request had come stands on the first line about it, and on no other.
func TestRecordProgressOnce(t *testing.T) {
	p := newLive(t, balancer.Config{Retry: balancer.Retry{Max: 5}}, 4)
	x := p.Start(balancer.Request{})
	y := p.Start(balancer.Request{})
	require.Equal(t, balancer.StepSend, x.Next().Kind)
	require.Equal(t, balancer.StepSend, y.Next().Kind)
	p.rec.Attach(p)
	for range 3 {
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.StepSend, x.Next().Kind)
	}
	x.Done(balancer.Report{Outcome: balancer.Success})
	y.Stop()
	require.Equal(t, 2, strings.Count(p.verifies(t), `"phase":`))
}

// What a request has behind it decides what becomes of it: each of these goes
// otherwise in a replay that does not know.
func TestRecordProgressDecides(t *testing.T) {
	backoff := balancer.Backoff{Base: 10 * time.Millisecond}
	t.Run("retries on the same upstream", func(t *testing.T) {
		// One is allowed, and has been.
		p := newLive(t, balancer.Config{Retry: balancer.Retry{Max: 3, SameUpstream: 1}}, 3)
		x := p.Start(balancer.Request{})
		first := x.Next().Lease.Upstream()
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, first, x.Next().Lease.Upstream())
		p.rec.Attach(p)
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.NotEqual(t, first, x.Next().Lease.Upstream())
		require.Contains(t, p.verifies(t), `"same":1`)
	})
	t.Run("the end of a wait", func(t *testing.T) {
		p := newLive(t, balancer.Config{Retry: balancer.Retry{Backoff: backoff}}, 3)
		x := p.Start(balancer.Request{})
		require.Equal(t, balancer.StepSend, x.Next().Kind)
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		wait := x.Next()
		require.Equal(t, balancer.StepWait, wait.Kind)
		require.Greater(t, wait.Wait, time.Microsecond)
		p.rec.Attach(p)
		p.clk.Advance(wait.Wait / 2)
		require.Equal(t, balancer.StepWait, x.Next().Kind)
		p.clk.Advance(wait.Wait)
		require.Equal(t, balancer.StepSend, x.Next().Kind)
		require.Contains(t, p.verifies(t), `"phase":"waiting"`)
	})
	t.Run("the deadline", func(t *testing.T) {
		p := newLive(t, balancer.Config{}, 3)
		x := p.Start(balancer.Request{Deadline: p.clk.Now().Add(time.Second)})
		require.Equal(t, balancer.StepSend, x.Next().Kind)
		p.rec.Attach(p)
		p.clk.Advance(2 * time.Second)
		x.Done(balancer.Report{Outcome: balancer.TransportFailure})
		require.Equal(t, balancer.EndDeadline, x.Next().End)
		require.Contains(t, p.verifies(t), `"deadline":"1"`)
	})
}

// The number of a request that was under way is in use, also at its second
// attempt.
func TestRecordNumberInUse(t *testing.T) {
	p := newLive(t, balancer.Config{}, 3)
	x := p.Start(balancer.Request{})
	require.Equal(t, balancer.StepSend, x.Next().Kind)
	x.Done(balancer.Report{Outcome: balancer.TransportFailure})
	require.Equal(t, balancer.StepSend, x.Next().Kind)
	p.rec.Attach(p)
	d := p.rec.Dump()
	f, err := d.Reader().File()
	require.NoError(t, err)
	f.Lines = []incident.Line{{Kind: incident.InAcquire, Request: 1}}
	err = incident.Replay(io.Discard, f.Reader(), d.Config)
	require.ErrorContains(t, err, "request 1 has an attempt out, and its number is in use")
	require.ErrorIs(t, err, incident.ErrInput)
}

// A record that names no member is an error, not a panic.
func TestRecordOfNobody(t *testing.T) {
	p := newLive(t, balancer.Config{}, 2)
	p.rec.Attach(p)
	_, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	d := p.rec.Dump()
	for picked, want := range map[int32]string{
		99: "a record names position 99 of 2",
		2:  "a record names position 2 of 2",
	} {
		d.Recording.Records[0].Picked = picked
		_, err = d.Reader().File()
		require.ErrorContains(t, err, want)
	}
}

// The seed of a Pool that drew its own stands in the state, if it is not given.
func TestRecordSeedFromState(t *testing.T) {
	p := newLive(t, balancer.Config{}, 2)
	p.rec.Attach(p)
	d := p.rec.Dump()
	d.Config.Seed = 0
	require.EqualValues(t, 3, d.Reader().Header().Seed)
}

// The ejection of an upstream that the file begins with ends when it did.
func TestRecordTimesFromTheMiddle(t *testing.T) {
	p := newLive(t, balancer.Config{
		Policy:  balancer.RoundRobin{First: true},
		Outlier: outlier.Config{Consecutive: 1, Base: 10 * time.Second},
	}, 3)
	p.clk.Advance(time.Hour)
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	l.Release(balancer.Failure)
	p.clk.Advance(4 * time.Second)
	p.Poll() // a recording begins with the latest input
	p.rec.Attach(p)
	p.clk.Advance(time.Minute)
	p.Poll()
	require.Contains(t, p.verifies(t), fmt.Sprintf(`{"t":"6","ev":"returned","n":5,"b":%q}`, l.Upstream().Name))
	require.Equal(t, time.Unix(3604, 0).UTC(), p.rec.Dump().Reader().Header().Start)
	f, err := p.rec.Dump().Reader().File()
	require.NoError(t, err)
	require.Len(t, f.Lines, 2)
}
