package retrybudget_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// TestRestore cuts a run anywhere, restores it on another timeline, and finds
// no difference from there on.
func TestRestore(t *testing.T) {
	checkSeeded(t, 6, func(t *rapid.T) {
		cfg := drawConfig(t)
		kinds := drawKinds(t)
		a := retrybudget.NewCore(cfg)
		now := int64(0)
		run := func(n int, also func(op, bool)) {
			for range n {
				now = drawTime(t, &a, cfg, now)
				o := op{rapid.SampledFrom(kinds).Draw(t, "kind"), now}
				also(o, o.apply(&a))
			}
		}
		latest := int64(math.MinInt64)
		run(rapid.IntRange(0, 50).Draw(t, "before"), func(o op, _ bool) { latest = max(latest, o.at) })

		save := max(now, latest) // an earlier now counts as the latest
		shift := rapid.Int64Range(-1<<60, 1<<60).Draw(t, "shift")
		saved := a.AppendState([]byte("head"), save)
		b := retrybudget.NewCore(cfg)
		withdraw(&b, 5, 3)
		rest, err := b.RestoreState(append(saved[4:], "tail"...), save+shift)
		if err != nil || string(rest) != "tail" {
			t.Fatalf("restore: %v, rest %q", err, rest)
		}
		if !bytes.Equal(saved[4:], b.AppendState(nil, save+shift)) {
			t.Fatalf("saving again differs")
		}

		run(rapid.IntRange(0, 50).Draw(t, "after"), func(o op, want bool) {
			o.at += shift
			if got := o.apply(&b); got != want {
				t.Fatalf("%v answered %v, want %v", o, got, want)
			}
			if x, y := a.Balance(now), b.Balance(now+shift); x != y {
				t.Fatalf("balance %v, want %v", y, x)
			}
			x, ok := a.NextGrant(now)
			y, ok2 := b.NextGrant(now + shift)
			if ok != ok2 || x != math.MaxInt64 && y != math.MaxInt64 && x+shift != y {
				t.Fatalf("next grant %d %v, want %d %v", y, ok2, x+shift, ok)
			}
		})
		end := max(now, latest)
		if !bytes.Equal(a.AppendState(nil, end), b.AppendState(nil, end+shift)) {
			t.Fatalf("the ends differ")
		}
	})
}

// TestBudgetState: a Budget goes on from where another was saved, at another
// time of day.
func TestBudgetState(t *testing.T) {
	cfg := retrybudget.Config{Initial: -1, PerSecond: 1}
	a, b := retrybudget.New(cfg), retrybudget.New(cfg)
	saved, later := time.Unix(1000, 0), time.Unix(5e6, 0)
	require.Equal(t, b.AppendState(nil, saved), a.AppendState(nil, later), "nothing seen yet")
	require.Equal(t, 0.0, a.Balance(saved))
	require.False(t, a.Withdraw(saved.Add(-3500*time.Millisecond)))
	require.False(t, b.Withdraw(later.Add(-time.Hour)))

	state := a.AppendState([]byte("head"), saved)
	rest, err := b.RestoreState(append(state[4:], 42), later)
	require.NoError(t, err)
	require.Equal(t, []byte{42}, rest)
	require.Equal(t, state[4:], b.AppendState(nil, later))
	require.Equal(t, 3.5, b.Balance(later))
	require.EqualValues(t, 1, b.Refused())
	for i := range 4 {
		require.Equal(t, i < 3, a.Withdraw(saved))
		require.Equal(t, i < 3, b.Withdraw(later))
	}
	at, ok := b.NextGrant(later)
	require.True(t, ok)
	require.True(t, at.Equal(later.Add(500*time.Millisecond)))

	// An error leaves all as it was, the timeline included.
	want := b.AppendState(nil, later)
	_, err = b.RestoreState(state[:6], saved)
	require.ErrorIs(t, err, retrybudget.ErrState)
	require.Equal(t, want, b.AppendState(nil, later))

	var zero retrybudget.Budget
	_, err = zero.RestoreState(want, saved)
	require.ErrorIs(t, err, retrybudget.ErrState, "a balance, but no configuration")
}

// TestStateEncoding freezes the encoding.
func TestStateEncoding(t *testing.T) {
	c := retrybudget.NewCore(retrybudget.Config{})
	c.Request(0)
	require.True(t, c.Withdraw(0))
	require.Equal(t, "01"+"01"+"80a8d6b907"+"80e8888743"+"00"+"01"+"01"+"01"+"00",
		hex.EncodeToString(c.AppendState(nil, 2*sec)))

	c = retrybudget.NewCore(retrybudget.FerronStrict())
	c.Success(0)
	require.Equal(t, "01"+"15"+"00"+"8090dfc04a"+"00"+"00"+"00"+"00"+"00"+"01"+"00",
		hex.EncodeToString(c.AppendState(nil, 0)))
}

func TestRestoreErrors(t *testing.T) {
	busy := func(cfg retrybudget.Config) (retrybudget.Core, []byte) {
		c := retrybudget.NewCore(cfg)
		for i := range int64(40) {
			c.Request(i * sec / 3)
			c.Success(i * sec / 3)
			c.Withdraw(i * sec / 3)
		}
		return c, c.AppendState(nil, 20*sec)
	}
	windowed := retrybudget.Config{TTL: time.Second, Share: retrybudget.Share{Rate: 0.5}}
	for _, cfg := range []retrybudget.Config{{}, retrybudget.Finagle(), retrybudget.Ferron(), retrybudget.FerronStrict(), retrybudget.Envoy(), windowed} {
		c, saved := busy(cfg)
		before := c
		fails := func(b []byte, now int64, msg string) {
			t.Helper()
			_, err := c.RestoreState(b, now)
			require.ErrorIs(t, err, retrybudget.ErrState, msg)
			require.Equal(t, before, c, msg)
		}
		for n := range saved {
			fails(saved[:n], 0, "truncated")
		}
		fails(append([]byte{2}, saved[1:]...), 0, "version")
		fails(append([]byte{1, 0x7f}, saved[2:]...), 0, "flags")
		for _, f := range []byte{32, 33} { // the first ones that mean nothing
			_, err := c.RestoreState(append([]byte{1, f}, saved[2:]...), 0)
			require.ErrorContains(t, err, "flags")
		}
		fails(saved, math.MinInt64, "the latest input is off the timeline")
		rest, err := c.RestoreState(append(bytes.Clone(saved), 9), 0)
		require.NoError(t, err)
		require.Equal(t, []byte{9}, rest)
	}

	// A state of another kind of budget, and one with a balance out of range.
	_, finagle := busy(retrybudget.Finagle())
	c := retrybudget.NewCore(retrybudget.Config{})
	_, err := c.RestoreState(finagle, 0)
	require.ErrorIs(t, err, retrybudget.ErrState)
	big := retrybudget.NewCore(retrybudget.Config{Capacity: 11})
	_, err = c.RestoreState(big.AppendState(nil, 0), 0)
	require.ErrorContains(t, err, "balance out of range")
	_, strict := busy(retrybudget.FerronStrict())
	ferron := retrybudget.NewCore(retrybudget.Ferron())
	_, err = ferron.RestoreState(strict, 0)
	require.ErrorContains(t, err, "configurations differ")

	// States that no run leads to, by hand: flags, age, balance, carry, four
	// counts, and for the ring the age of its newest slot and ten pairs.
	ring := func(age, in byte) []byte {
		b := append(make([]byte, 0, 32), age)
		return append(append(b, make([]byte, 18)...), in, 0)
	}
	build := func(flags, age uint64, balance int64, carry uint64, tail ...byte) []byte {
		b := binary.AppendUvarint([]byte{1}, flags)
		b = binary.AppendUvarint(b, age)
		b = binary.AppendVarint(b, balance)
		b = binary.AppendUvarint(b, carry)
		return append(append(b, 0, 0, 0, 0), tail...)
	}
	expiring := retrybudget.Config{Capacity: 20e-9, Cost: 1e-9, PerSecond: -1, TTL: 100} // a slot is 10 ns
	for _, tc := range []struct {
		cfg   retrybudget.Config
		state []byte
		now   int64
		want  string // "" when possible
	}{
		{retrybudget.Config{}, build(1, 0, 10e9, 0), 0, ""},
		{retrybudget.Config{}, build(1, 0, 10e9-1, 1e9-1), 0, ""},
		{retrybudget.Config{}, build(1, 0, 10e9+1, 0), 0, "balance out of range"},
		{retrybudget.Config{}, build(1, 0, -1, 0), 0, "balance out of range"},
		{retrybudget.Config{}, build(1, 0, 10e9, 1), 0, "balance out of range"},
		{retrybudget.Config{}, build(1, 0, 9e9, 1e9), 0, "carry out of range"},
		{expiring, build(3, 0, 20, 0, ring(9, 20)...), 0, ""},
		{expiring, build(3, 0, 21, 0, ring(9, 21)...), 0, "balance out of range"},
		{expiring, build(3, 0, 19, 0, ring(9, 20)...), 0, "balance out of range"},
		{expiring, build(3, 0, 20, 1, ring(9, 20)...), 0, "balance out of range"},
		{expiring, build(3, 0, 20, 0, ring(10, 20)...), 0, "slots age out of range"},
		{expiring, build(3, 5, 20, 0, ring(9, 20)...), math.MinInt64 + 14, ""},
		{expiring, build(3, 5, 20, 0, ring(9, 20)...), math.MinInt64 + 13, "slot age out of range"},
		{expiring, build(2, 0, 20, 0, ring(0, 20)...), 0, ""},
		{expiring, build(2, 0, 20, 0, ring(1, 20)...), 0, "slot age out of range"},
	} {
		c := retrybudget.NewCore(tc.cfg)
		_, err := c.RestoreState(tc.state, tc.now)
		if tc.want == "" {
			require.NoError(t, err, "%x", tc.state)
			continue
		}
		require.ErrorIs(t, err, retrybudget.ErrState)
		require.ErrorContains(t, err, tc.want, "%x", tc.state)
	}

	// Before the first input there is nothing whose age matters.
	fresh := retrybudget.NewCore(retrybudget.Config{})
	require.Equal(t, fresh.AppendState(nil, 0), fresh.AppendState(nil, 5*sec))

	var zero retrybudget.Core
	_, err = zero.RestoreState(zero.AppendState(nil, 0), 0)
	require.NoError(t, err)
	require.False(t, zero.Withdraw(0))
	off := retrybudget.NewCore(retrybudget.Config{Off: true})
	off.Withdraw(0)
	_, err = off.RestoreState(off.AppendState(nil, 0), 0)
	require.NoError(t, err)
	require.True(t, off.Withdraw(0))
	require.EqualValues(t, 2, off.Granted())
}
