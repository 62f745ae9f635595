package incident

import (
	"bytes"
	"testing"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
	"github.com/stretchr/testify/require"
)

// The latest are known, the oldest forgotten, each of them once.
func TestRoster(t *testing.T) {
	forgotten := map[uint64]int{}
	s := newRoster()
	s.forgotten = func(r uint64) { forgotten[r]++ }
	const n = 4*maxBegun + 7
	for r := uint64(1); r <= n; r++ {
		s.add(r)
		require.True(t, s.has(r))
		if r == 1 {
			s.add(1) // again, before it is old
		}
		if r == maxBegun+5 {
			s.add(2) // and after: it is young again
			s.drop(3)
			require.False(t, s.has(3))
		}
	}
	require.LessOrEqual(t, len(s.young)+len(s.old), 2*maxBegun)
	require.Equal(t, n-1, len(s.young)+len(s.old)+len(forgotten))
	for r, times := range forgotten {
		require.Equal(t, 1, times)
		require.False(t, s.has(r))
	}
	require.Zero(t, forgotten[3])
	for r := uint64(n - maxBegun + 1); r <= n; r++ {
		require.True(t, s.has(r))
	}
	require.False(t, s.has(2*maxBegun))
	s.drop(n)
	require.False(t, s.has(n))
}

// What cannot be translated is the end of a log, and not a line of it.
func TestLogOfBadRecord(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 1}, balancer.Member{Name: "a", Share: 1})
	require.NoError(t, err)
	var b bytes.Buffer
	l, err := NewLog(&b, p, 0, Options{})
	require.NoError(t, err)
	p.Poll()
	_, err = p.Acquire(balancer.Request{})
	require.NoError(t, err)
	l.trans.members = nil
	require.ErrorContains(t, l.Flush(), "names position 0 of 0")
	require.ErrorContains(t, l.Close(), "names position 0 of 0")
	require.Equal(t, 2, bytes.Count(b.Bytes(), []byte("\n")), "the header and what came before")
}

// A replay forgets the requests that the file has forgotten.
func TestPlayerForgets(t *testing.T) {
	p, err := newPlayer(&Header{Seed: 1, Members: []balancer.Member{{Name: "a", Share: 1}}}, balancer.Config{})
	require.NoError(t, err)
	var out []Line
	feed := func(l Line) error {
		var err error
		out, err = p.feed(&l, out[:0])
		return err
	}
	const n = 2*maxBegun + 1
	for r := uint64(1); r <= n; r++ {
		require.NoError(t, feed(Line{Kind: InRequest, Request: r}))
		require.NoError(t, feed(Line{Kind: InSettle, Request: r}))
	}
	require.Len(t, p.tries, maxBegun+1)
	require.ErrorIs(t, feed(Line{Kind: InStop, Request: maxBegun}), ErrInput)
	require.NoError(t, feed(Line{Kind: InStop, Request: maxBegun + 1}))
	require.NoError(t, feed(Line{Kind: InStop, Request: n}))
}

func TestTooLong(t *testing.T) {
	line := make([]byte, jsonline.MaxLine)
	require.Error(t, tooLong(line))
	require.NoError(t, tooLong(line[1:]), "the line feed still fits")
}

// An input that cannot be fed has done nothing.
func TestFeedNothing(t *testing.T) {
	h := Header{Seed: 1, Members: []balancer.Member{{Name: "a", Share: 1}, {Name: "b", Share: 1}}}
	p, err := newPlayer(&h, balancer.Config{Retry: balancer.Retry{OnFailure: true}})
	require.NoError(t, err)
	feed := func(l Line) {
		_, err := p.feed(&l, nil)
		require.NoError(t, err)
	}
	feed(Line{Kind: InRequest, Request: 1})
	feed(Line{Kind: InAcquire, Request: 2})
	feed(Line{Kind: InRequest, Request: 3})
	feed(Line{Kind: InDone, Request: 3, Outcome: balancer.Failure})
	state := p.pool.Save()
	p.tape.Drain(nil)
	members, try, failed := p.members, p.tries[1], *p.tries[3]
	for _, l := range []Line{
		{Kind: InUpdate, Members: []balancer.Member{{Name: "c"}, {Name: "c"}}},
		{Kind: InAcquire, Request: 1},
		{Kind: InRequest, Request: 2},
		{Kind: InNext, Request: 1},
		{Kind: InNext, Request: 1, From: &Progress{Phase: "sent", Tried: []string{p.members[0].Name}, Latest: p.members[0].Name}},
		{Kind: InNext, Request: 1, From: &Progress{Phase: "sent", Retries: 1, Settled: true, Latest: "a"}},
		{Kind: InNext, Request: 1, From: &Progress{Phase: "sent", Retries: 1, Latest: "a"}},
		{Kind: InDone, Request: 1, From: &Progress{Phase: "failed", Latest: "a"}},
		{Kind: InDone, Request: 9, From: &Progress{Phase: "failed", Latest: "a"}},
		{Kind: InDone, Request: 3, Outcome: balancer.Success},
		{Kind: InStop, Request: 9},
		{Kind: InSettle, Request: 3},
		{Kind: InAnswered, Request: 2, Try: 1},
	} {
		out, err := p.feed(&l, nil)
		require.Error(t, err, l.String())
		require.Empty(t, out)
		require.Equal(t, members, p.members)
		require.Len(t, p.leases, 2)
		require.Len(t, p.tries, 2)
		require.Same(t, try, p.tries[1])
		require.Equal(t, failed, *p.tries[3])
		require.Equal(t, state, p.pool.Save(), l.String())
		p.tape.Drain(nil)
	}
	feed(Line{Kind: InDone, Request: 1, Outcome: balancer.Success})
	feed(Line{Kind: InSettle, Request: 2, Outcome: balancer.Success})
	feed(Line{Kind: InNext, Request: 3})
}
