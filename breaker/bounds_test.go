package breaker_test

import (
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
)

// A breaker that is restored before it has seen any input starts its time line
// at the restore.
func TestRestoreStartsTheTimeLine(t *testing.T) {
	a := breaker.New(three)
	fail(t, a, sec(0), 3)
	_, err := a.Allow(sec(1))
	var refused *breaker.RejectedError
	require.ErrorAs(t, err, &refused)
	left := refused.TimeLeft(sec(1))

	b := breaker.New(three)
	_, err = b.RestoreState(a.AppendState(nil, sec(1)), sec(1000))
	require.NoError(t, err)
	require.False(t, b.Ready(sec(1000).Add(left-1)))
	require.True(t, b.Ready(sec(1000).Add(left)))

	// What is said to those who are refused is as new as the state.
	_, err = a.RestoreState(a.AppendState(nil, sec(1)), sec(2))
	require.NoError(t, err)
	_, err = a.Allow(sec(2))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, left, refused.TimeLeft(sec(2)))
}

// Changes are dropped only when 1024 wait, however many were popped before.
func TestQueueCountsWhatWaits(t *testing.T) {
	x := newScript(t, breaker.Config{})
	toggle := func(n int) {
		for i := range n {
			x.c.Force(0, []breaker.State{breaker.Open, breaker.Closed}[i%2])
		}
	}
	toggle(1000)
	for range 600 {
		_, ok := x.c.Pop()
		require.True(t, ok)
	}
	toggle(624)
	require.Zero(t, x.c.Stats().Dropped)
	require.Len(t, x.changes(), 1024)
	toggle(1025)
	require.EqualValues(t, 1, x.c.Stats().Dropped)
}

// Ten times OpenFor is the default of OpenMax as long as that is a Duration.
func TestOpenMaxAtTheEndOfTime(t *testing.T) {
	const tenth = math.MaxInt64 / 10
	cfg := breaker.Config{ConsecutiveFailures: 1, OpenFor: tenth, OpenGrowth: 1000}
	x := newScript(t, cfg)
	require.Equal(t, []time.Duration{tenth, 10 * tenth}, x.reopen(0, 2))
	cfg.OpenFor++
	x = newScript(t, cfg)
	require.Equal(t, []time.Duration{tenth + 1, math.MaxInt64}, x.reopen(0, 2))
}

// The run of failures stays where it ends.
func TestRunEnds(t *testing.T) {
	x := newScript(t, breaker.Config{WindowFailures: 10})
	_, err := x.c.RestoreState([]byte{1, 0, 0, 0, 0, 2, 0, 0, 1, 0xfe, 0xff, 0xff, 0xff, 0x07, 0}, 0)
	require.NoError(t, err)
	require.Equal(t, math.MaxInt32-1, x.c.Counts(0).Consecutive)
	for range 3 {
		x.call(0, false)
		require.Equal(t, math.MaxInt32, x.c.Counts(0).Consecutive)
	}
}

// The mark of Ignore is found by who knows it and by nobody else.
func TestIgnoreIsNoOtherError(t *testing.T) {
	marked := breaker.Ignore(errors.New("not found"))
	require.NotErrorIs(t, marked, io.EOF)
	require.ErrorIs(t, breaker.Ignore(io.EOF), io.EOF)
}

// A growth beyond 64 bits saturates at the cap, and one with a denominator of
// 2^31 is still exact.
func TestGrowthAtItsLimits(t *testing.T) {
	const long = 20_000_000_000_000_000 // 1000 times that is between 2^64 and 2^65
	x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: long, OpenGrowth: 1000, OpenMax: math.MaxInt64 - 1})
	require.Equal(t, []time.Duration{long, math.MaxInt64 - 1}, x.reopen(0, 2))

	x = newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 1 << 31, OpenGrowth: 1 + 1.0/(1<<31)})
	require.Equal(t, []time.Duration{1 << 31, 1<<31 + 1}, x.reopen(0, 2))
}

// A state is refused for its version alone.
func TestVersionIsChecked(t *testing.T) {
	x := newScript(t, three)
	x.calls(0, "SFF")
	saved := x.c.AppendState(nil, 0)
	_, err := x.c.RestoreState(saved, 0)
	require.NoError(t, err)
	saved[0]++
	_, err = x.c.RestoreState(saved, 0)
	require.ErrorIs(t, err, breaker.ErrState)
	require.ErrorContains(t, err, "version 2")
}

// A result at the very instant at which a slice ends belongs to the next one,
// and so leaves the window one slice later.
func TestSlicesMeet(t *testing.T) {
	x := newScript(t, breaker.Config{FailureRate: 1, Window: 10 * time.Second})
	x.call(0, true)
	x.call(s, true)
	require.Equal(t, 2, x.c.Counts(10*s-1).Calls)
	require.Equal(t, 1, x.c.Counts(10*s).Calls)
	require.Equal(t, 1, x.c.Counts(11*s-1).Calls)
	require.Zero(t, x.c.Counts(11*s).Calls)
}

// A ticket that is cut short anywhere is refused.
func TestTicketIsWhole(t *testing.T) {
	x := newScript(t, three)
	saved := x.allow(1000).AppendState(nil, 1)
	var got breaker.Ticket
	for n := range saved {
		_, err := got.RestoreState(saved[:n], 1)
		require.ErrorIs(t, err, breaker.ErrState, "first %d bytes", n)
	}
	_, err := got.RestoreState(saved, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1000, got.At())
}
