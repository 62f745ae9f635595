package retrybudget_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

func TestValidate(t *testing.T) {
	type config = retrybudget.Config
	share := func(s retrybudget.Share) config { return config{Share: s} }
	for _, tc := range []struct {
		cfg  config
		want string // "" when valid
	}{
		{config{}, ""},
		{config{Off: true, Capacity: -1}, ""},
		{config{Capacity: -1, Share: retrybudget.Share{Min: 1}}, ""},
		{config{Capacity: -1, Cost: 50, Share: retrybudget.Share{Min: 1}}, ""},
		{config{Initial: -1, Cost: -1, PerSuccess: -1, PerSecond: -1}, ""},
		{config{Capacity: 1e8, PerSecond: 1e8, TTL: math.MaxInt64}, ""},
		{config{Capacity: 1e8, PerSecond: 1e8, TTL: 184_467_440_738}, ""}, // the reserve is just over 2^64
		{config{PerSecond: 10, TTL: 10 * time.Second, Cost: 100}, ""},
		{config{Cost: 10}, ""},
		{config{Initial: 50}, ""},

		{config{Capacity: -1}, "retrybudget: Config.Capacity is -1, want >= 0 when there is no Share (Off grants every retry)"},
		{config{Capacity: 2e8}, "retrybudget: Config.Capacity is 2e+08, want <= 1e+08"},
		{config{Capacity: math.NaN()}, "retrybudget: Config.Capacity is NaN, want a finite number"},
		{config{Initial: math.Inf(-1)}, "retrybudget: Config.Initial is -Inf, want a finite number"},
		{config{Cost: 11}, "retrybudget: Config.Cost is 11, want <= Capacity, which is 10"},
		{config{Cost: math.Inf(1)}, "retrybudget: Config.Cost is +Inf, want a finite number"},
		{config{Threshold: -1}, "retrybudget: Config.Threshold is -1, want >= 0 and <= 1e+08"},
		{config{Threshold: 10}, "retrybudget: Config.Threshold is 10, want < Capacity, which is 10"},
		{config{PerRequest: -0.1}, "retrybudget: Config.PerRequest is -0.1, want >= 0 and <= 1e+08"},
		{config{PerRequest: 1e-10}, "retrybudget: Config.PerRequest is 1e-10, want 0 or >= 1e-9"},
		{config{PerSuccess: 1e9}, "retrybudget: Config.PerSuccess is 1e+09, want <= 1e+08"},
		{config{RetrySuccess: -1}, "retrybudget: Config.RetrySuccess is -1, want >= 0 and <= 1e+08"},
		{config{PerFailure: -1}, "retrybudget: Config.PerFailure is -1, want >= 0 and <= 1e+08"},
		{config{PerSecond: math.NaN()}, "retrybudget: Config.PerSecond is NaN, want a finite number"},
		{config{TTL: -time.Second}, "retrybudget: Config.TTL is -1s, want >= 0"},
		{share(retrybudget.Share{Rate: -1}), "retrybudget: Config.Share.Rate is -1, want >= 0 and <= 1000"},
		{share(retrybudget.Share{Rate: 1001}), "retrybudget: Config.Share.Rate is 1001, want <= 1000"},
		{share(retrybudget.Share{Burst: -1}), "retrybudget: Config.Share.Burst is -1, want >= 0 and <= 1e+08"},
		{share(retrybudget.Share{Min: -1}), "retrybudget: Config.Share.Min is -1, want >= 0 and <= 1e+08"},
		{share(retrybudget.Share{Of: 3}), "retrybudget: Config.Share.Of is 3, want Requests, Successes or Active"},
	} {
		err := tc.cfg.Validate()
		if tc.want == "" {
			require.NoError(t, err, "%+v", tc.cfg)
			require.NotPanics(t, func() { retrybudget.New(tc.cfg) })
			continue
		}
		require.EqualError(t, err, tc.want)
		require.ErrorIs(t, err, retrybudget.ErrConfig)
		require.Panics(t, func() { retrybudget.New(tc.cfg) })
		require.Panics(t, func() { retrybudget.NewCore(tc.cfg) })
	}
}

func TestRetryAfterCountsFromTheLatestInput(t *testing.T) {
	c := retrybudget.NewCore(retrybudget.Config{PerSecond: 0.5})
	require.Equal(t, 10, withdraw(&c, 10*sec, 20))
	require.Equal(t, 2*time.Second, c.RetryAfter(10*sec))
	require.Equal(t, 2*time.Second, c.RetryAfter(0))
	require.Equal(t, time.Second, c.RetryAfter(11*sec))
}

func TestZeroValuesRefuse(t *testing.T) {
	var b retrybudget.Budget
	now := time.Unix(1, 0)
	b.Request(now)
	b.Success(now)
	b.Failure(now)
	b.Refund(now)
	b.EndRetry(now, true)
	b.End(now)
	require.False(t, b.CanWithdraw(now))
	require.False(t, b.Withdraw(now))
	require.Equal(t, 0.0, b.Balance(now))
	_, ok := b.NextGrant(now)
	require.False(t, ok)
	require.Equal(t, 5*time.Second, b.RetryAfter(now))
	require.EqualValues(t, 1, b.Refused())
}

func TestOff(t *testing.T) {
	c := retrybudget.NewCore(retrybudget.Config{Off: true})
	require.Equal(t, 100, withdraw(&c, 0, 100))
	require.Equal(t, 10.0, c.Balance(0))
	at, ok := c.NextGrant(7)
	require.True(t, ok)
	require.EqualValues(t, 7, at)
	require.Equal(t, time.Second, c.RetryAfter(7))
}

func TestRefund(t *testing.T) {
	t.Run("a refund at once is as if nothing had been asked", func(t *testing.T) {
		for _, cfg := range []retrybudget.Config{{}, retrybudget.Finagle(), retrybudget.Ferron(), retrybudget.Envoy()} {
			c := retrybudget.NewCore(cfg)
			c.Request(0)
			require.True(t, c.Withdraw(0))
			c.Refund(0)
			fresh := retrybudget.NewCore(cfg)
			fresh.Request(0)
			for _, now := range []int64{0, sec, 9 * sec, 10 * sec, 11 * sec, 100 * sec} {
				require.Equal(t, fresh.Balance(now), c.Balance(now))
				require.Equal(t, fresh.CanWithdraw(now), c.CanWithdraw(now))
			}
			require.Equal(t, withdraw(&fresh, 20*sec, 1000), withdraw(&c, 20*sec, 1000))
		}
	})
	t.Run("without a retry to give back nothing happens", func(t *testing.T) {
		for _, cfg := range []retrybudget.Config{plain, retrybudget.Finagle(), retrybudget.AWS()} {
			c := retrybudget.NewCore(cfg)
			require.True(t, c.Withdraw(0))
			c.EndRetry(0, false)
			want := c.Balance(0)
			c.Refund(0)
			c.EndRetry(0, true)
			require.Equal(t, want, c.Balance(0))
		}
	})
	t.Run("a retry that was sent is not forgotten early", func(t *testing.T) {
		cfg := retrybudget.Config{PerSecond: 0.2, TTL: 10 * time.Second, PerSuccess: -1}
		c := retrybudget.NewCore(cfg)
		require.True(t, c.Withdraw(0))
		require.True(t, c.Withdraw(5*sec))
		c.Refund(5 * sec)
		require.Equal(t, 1.0, c.Balance(10*sec), "the one left counts as the later")
		require.Equal(t, 2.0, c.Balance(15*sec))
	})
	t.Run("nor by the share", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Capacity: -1, Share: retrybudget.Share{Min: 2}})
		require.True(t, c.Withdraw(0))
		require.True(t, c.Withdraw(5*sec))
		c.Refund(5 * sec)
		require.Equal(t, 1, withdraw(&c, 10*sec, 5), "the one of 5s counts until 15s")
	})
	t.Run("a refund does not lift the balance above the capacity", func(t *testing.T) {
		for _, ttl := range []time.Duration{0, 10 * time.Second} {
			cfg := retrybudget.Config{Capacity: 2, PerRequest: 1, PerSuccess: -1, PerSecond: 0.2, TTL: ttl}
			c := retrybudget.NewCore(cfg)
			require.True(t, c.Withdraw(0))
			c.Request(0)
			c.Refund(0)
			require.Equal(t, 2.0, c.Balance(0))
		}
	})
}

// TestLapse: withdrawals that expire do not lift the balance above the
// capacity; the oldest deposits make room.
func TestLapse(t *testing.T) {
	cfg := retrybudget.Config{Capacity: 3, PerRequest: 1, PerSuccess: -1, PerSecond: 0.2, TTL: 10 * time.Second}
	c := retrybudget.NewCore(cfg)
	require.Equal(t, 2, withdraw(&c, 0, 5))
	c.Request(sec)
	c.Request(5 * sec)
	c.Request(5 * sec)
	for _, tc := range []struct {
		at   int64
		want float64
	}{
		{5 * sec, 3},
		{10*sec - 1, 3},
		{10 * sec, 3}, // five, of which the deposit of 1s and one of 5s lapse
		{11 * sec, 3},
		{15*sec - 1, 3},
		{15 * sec, 2},
		{100 * sec, 2},
	} {
		require.Equal(t, tc.want, c.Balance(tc.at), "at %d", tc.at)
	}
	require.Equal(t, 3, withdraw(&c, 10*sec, 5))
}

// TestDripStopsAtTheTop: what drips beyond a full bucket is gone, to the last
// part of a billionth.
func TestDripStopsAtTheTop(t *testing.T) {
	const period = int64(3_000_000_004) // the nanoseconds in which 0.333333333/s make one
	c := retrybudget.NewCore(retrybudget.Config{Capacity: 1, PerSuccess: -1, PerSecond: 1.0 / 3})
	require.True(t, c.Withdraw(0))
	for now := int64(0); now < 10*period; now += period {
		at, ok := c.NextGrant(now)
		require.True(t, ok)
		require.Equal(t, now+period, at)
		require.True(t, c.Withdraw(at))
	}

	// A deposit that fills it takes the place of the part.
	c = retrybudget.NewCore(retrybudget.Config{Capacity: 1, PerSuccess: 1, PerSecond: 1.0 / 3})
	require.True(t, c.Withdraw(0))
	c.Success(1)
	require.True(t, c.Withdraw(1))
	at, _ := c.NextGrant(1)
	require.Equal(t, 1+period, at)
}

// TestEdgesOfTime goes from one end of the timeline to the other.
func TestEdgesOfTime(t *testing.T) {
	for _, cfg := range []retrybudget.Config{{}, retrybudget.Finagle(), {PerSecond: 1e8},
		{PerSecond: 1e-9}, {TTL: math.MaxInt64}, {Share: retrybudget.Share{Min: 1, Window: math.MaxInt64}}, {TTL: 1}} {
		c := retrybudget.NewCore(cfg)
		c.Request(math.MinInt64)
		n := withdraw(&c, math.MinInt64, 200)
		c.NextGrant(math.MinInt64)
		require.Equal(t, n > 0, c.CanWithdraw(math.MaxInt64), "%+v", cfg)
		c.Success(math.MaxInt64)
		withdraw(&c, math.MaxInt64, 200)
		c.NextGrant(math.MaxInt64)
		require.Positive(t, c.RetryAfter(math.MaxInt64))
		require.LessOrEqual(t, c.RetryAfter(math.MinInt64), time.Hour)
	}

	// A budget on the wall clock and one past its range.
	b := retrybudget.New(retrybudget.Config{Initial: -1, PerSecond: 1})
	first := time.Unix(0, 0)
	require.False(t, b.Withdraw(first))
	at, ok := b.NextGrant(first)
	require.True(t, ok)
	require.True(t, at.Equal(first.Add(time.Second)))
	require.False(t, b.Withdraw(first.Add(-time.Hour)), "an earlier now is the latest")
	require.Equal(t, 10.0, b.Balance(first.AddDate(1000, 0, 0)))
	require.True(t, b.Withdraw(first.AddDate(1000, 0, 0)))
}

// TestLargest drives the sums to where their products have 128 bits and where
// ten slots would no longer fit in 64.
func TestLargest(t *testing.T) {
	t.Run("drip", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Capacity: 1, PerSecond: 1e8})
		require.True(t, c.Withdraw(0))
		require.Equal(t, 1.0, c.Balance(184_467_440_738)) // 1e17 x that is just over 1e9 x 2^64
	})
	t.Run("wait", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Capacity: 20, Initial: -1, Cost: 18.5, PerSecond: 1e-9})
		require.False(t, c.Withdraw(0))
		at, ok := c.NextGrant(0)
		require.True(t, ok)
		require.Equal(t, int64(math.MaxInt64), at)
		require.Equal(t, time.Hour, c.RetryAfter(0))
	})
	t.Run("share", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Capacity: -1, Share: retrybudget.Share{Rate: 1000, Window: -1}})
		state := []byte{1, 5, 0, 0, 0, 0, 0, 0, 0}
		state = binary.AppendUvarint(state, 18_446_744_073_709_552) // 1e12 x that is just over 1e9 x 2^64
		_, err := c.RestoreState(append(state, 0), 0)
		require.NoError(t, err)
		require.True(t, c.Withdraw(0))
	})
	t.Run("slots", func(t *testing.T) {
		cfg := retrybudget.Config{Capacity: 1e8, Initial: 1e8, Cost: 1e8, PerRequest: 1e8, PerSecond: -1, TTL: 10 * time.Second}
		c := retrybudget.NewCore(cfg)
		for now := range int64(10) { // then the first deposit expires
			for range 100 {
				require.True(t, c.Withdraw(now*sec))
				require.False(t, c.Withdraw(now*sec))
				c.Refund(now * sec)
				c.Withdraw(now * sec)
				c.Request(now * sec)
				require.Equal(t, 1e8, c.Balance(now*sec))
			}
			again := retrybudget.NewCore(cfg)
			_, err := again.RestoreState(c.AppendState(nil, now*sec), now*sec)
			require.NoError(t, err)
			require.Equal(t, 1e8, again.Balance(now*sec))
		}
	})
}

// TestDripIsExact: looking often or seldom, moving at once or in steps, yields
// the same.
func TestDripIsExact(t *testing.T) {
	checkSeeded(t, 4, func(t *rapid.T) {
		cfg := drawConfig(t)
		often, seldom := retrybudget.NewCore(cfg), retrybudget.NewCore(cfg)
		kinds := drawKinds(t)
		now := int64(0)
		often.Failure(now) // starts the drip and the windows of both
		seldom.Failure(now)
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			next := max(now, drawTime(t, &seldom, cfg, now))
			for range rapid.IntRange(0, 3).Draw(t, "looks") {
				now = rapid.Int64Range(now, next).Draw(t, "look")
				often.End(now) // moves its time only, as no request has begun
			}
			now = next
			o := op{rapid.SampledFrom(kinds).Draw(t, "kind"), now}
			if o.kind == opRequest || o.kind == opEnd {
				o.kind = opSuccess
			}
			if o.apply(&often) != o.apply(&seldom) {
				t.Fatalf("%v differs", o)
			}
		}
	})
}

// TestShift: only differences of time matter.
func TestShift(t *testing.T) {
	checkSeeded(t, 5, func(t *rapid.T) {
		cfg := drawConfig(t)
		a, b := retrybudget.NewCore(cfg), retrybudget.NewCore(cfg)
		shift := rapid.Int64Range(-1<<60, 1<<60).Draw(t, "shift")
		kinds := drawKinds(t)
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			now = drawTime(t, &a, cfg, now)
			k := rapid.SampledFrom(kinds).Draw(t, "kind")
			x, y := op{k, now}.apply(&a), op{k, now + shift}.apply(&b)
			if x != y || a.Balance(now) != b.Balance(now+shift) {
				t.Fatalf("%d differs at %d", k, now)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	for _, cfg := range []retrybudget.Config{{}, {Off: true}, retrybudget.Finagle(), retrybudget.GRPC(), retrybudget.Envoy(), retrybudget.Ferron()} {
		b := retrybudget.New(cfg)
		now := time.Unix(1000, 0)
		require.Zero(t, testing.AllocsPerRun(200, func() {
			now = now.Add(10 * time.Millisecond)
			b.Request(now)
			b.Failure(now)
			if b.CanWithdraw(now) && b.Withdraw(now) {
				b.Refund(now)
			}
			b.Withdraw(now)
			b.Success(now)
			b.EndRetry(now, true)
			b.End(now)
			b.Balance(now)
			b.NextGrant(now)
			b.RetryAfter(now)
		}))
	}
}
