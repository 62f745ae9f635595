package retrybudget_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

// plain is a bucket of ten tokens that nothing fills.
var plain = retrybudget.Config{Capacity: 10, PerSuccess: -1, PerSecond: -1}

// withdraw asks n times and returns how many retries were granted.
func withdraw(c *retrybudget.Core, now int64, n int) int {
	granted := 0
	for range n {
		if c.Withdraw(now) {
			granted++
		}
	}
	return granted
}

// workload1 sends 1000 requests, one every 10 ms, of which two in three fail
// at first and succeed when retried.
func workload1(cfg retrybudget.Config) (retries, refused, ok int) {
	c := retrybudget.NewCore(cfg)
	for i := range 1000 {
		now := int64(i) * 10 * ms
		c.Request(now)
		if i%3 == 2 {
			c.Success(now)
			ok++
			continue
		}
		c.Failure(now)
		if !c.Withdraw(now) {
			refused++
			continue
		}
		retries++
		c.Success(now)
		c.EndRetry(now, true)
		ok++
	}
	return retries, refused, ok
}

// workload2 sends 1000 requests, one every 10 ms, round robin over two dead
// members and a live one; each request tries each member at most once, and
// every attempt moves the round robin.
func workload2(cfg retrybudget.Config) (retries, refused, ok int) {
	c := retrybudget.NewCore(cfg)
	next := 0
	for i := range 1000 {
		now := int64(i) * 10 * ms
		c.Request(now)
		for attempt := range 3 {
			if attempt > 0 {
				if !c.Withdraw(now) {
					refused++
					break
				}
				retries++
			}
			member := next % 3
			next++
			if member == 2 {
				c.Success(now)
				ok++
				break
			}
			c.Failure(now)
		}
	}
	return retries, refused, ok
}

// echofront sends n requests that each want one retry.
func echofront(c *retrybudget.Core, n int) (granted, firstDenied int) {
	for i := range n {
		c.Request(int64(i))
		c.Failure(int64(i))
		if c.Withdraw(int64(i)) {
			granted++
		} else if firstDenied == 0 {
			firstDenied = i + 1
		}
	}
	return granted, firstDenied
}

// TestRows holds each behaviour to the numbers of its row.
func TestRows(t *testing.T) {
	t.Run("F-RB-01", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Off: true})
		for i := range int64(1000) {
			c.Request(i)
			c.Failure(i)
			require.True(t, c.CanWithdraw(i))
			require.True(t, c.Withdraw(i))
		}
		require.EqualValues(t, 1000, c.Granted())
		require.Zero(t, c.Refused())
	})
	t.Run("F-RB-02", func(t *testing.T) {
		c := retrybudget.NewCore(plain)
		require.Equal(t, 10.0, c.Balance(0))
		require.Equal(t, 10, withdraw(&c, 0, 10))
		require.False(t, c.Withdraw(0))
	})
	t.Run("F-RB-03", func(t *testing.T) {
		cfg := plain
		cfg.PerSuccess = 1
		c := retrybudget.NewCore(cfg)
		withdraw(&c, 0, 10)
		c.Success(0)
		require.Equal(t, 1, withdraw(&c, 0, 20))
		for range 50 {
			c.Success(0)
		}
		require.Equal(t, 10, withdraw(&c, 0, 20))
	})
	t.Run("F-RB-04", func(t *testing.T) {
		// Three dead members, each tried twice: six attempts, five retries.
		c := retrybudget.NewCore(retrybudget.Ferron())
		c.Request(0)
		for range 5 {
			c.Failure(0)
			require.True(t, c.Withdraw(0))
		}
		c.Failure(0)
		require.Equal(t, 5.0, c.Balance(0))
	})
	t.Run("F-RB-05", func(t *testing.T) {
		cfg := plain
		cfg.PerSecond = 2
		c := retrybudget.NewCore(cfg)
		require.Equal(t, 10, withdraw(&c, 0, 11))
		require.False(t, c.Withdraw(499*ms))
		require.False(t, c.Withdraw(500*ms-1))
		require.True(t, c.Withdraw(500*ms))

		c = retrybudget.NewCore(cfg)
		withdraw(&c, 0, 10)
		require.Equal(t, 10.0, c.Balance(5*sec))
		require.Equal(t, 10.0, c.Balance(5*sec+300*ms))
		require.Equal(t, 10, withdraw(&c, 5*sec+300*ms, 20))
	})
	t.Run("F-RB-06", func(t *testing.T) {
		for _, tc := range []struct {
			refill float64
			want   time.Duration
		}{
			{2, time.Second},
			{1, time.Second},
			{0.99, 2 * time.Second},
			{0.1, 10 * time.Second},
			{1e-4, time.Hour},
			{1e-9, time.Hour},
			{-1, 5 * time.Second},
		} {
			cfg := plain
			cfg.PerSecond = tc.refill
			c := retrybudget.NewCore(cfg)
			withdraw(&c, 0, 10)
			require.False(t, c.Withdraw(0))
			require.Equal(t, tc.want, c.RetryAfter(0), "refill %v", tc.refill)
		}
	})
	t.Run("F-RB-07", func(t *testing.T) {
		retries, refused, ok := workload1(retrybudget.Ferron())
		require.Equal(t, [3]int{110, 557, 443}, [3]int{retries, refused, ok})
		retries, refused, ok = workload2(retrybudget.Ferron())
		require.Equal(t, [3]int{110, 630, 370}, [3]int{retries, refused, ok})
		retries, refused, _ = workload1(retrybudget.FerronStrict())
		require.Equal(t, [2]int{36, 631}, [2]int{retries, refused})
	})
	t.Run("F-RB-08", func(t *testing.T) {
		cfg := retrybudget.Ferron()
		cfg.Share = retrybudget.Share{}
		retries, refused, _ := workload1(cfg)
		require.Equal(t, [2]int{667, 0}, [2]int{retries, refused})
		retries, refused, _ = workload2(cfg)
		require.Equal(t, [2]int{542, 486}, [2]int{retries, refused})
	})
	t.Run("F-RB-09", func(t *testing.T) {
		now := time.Unix(1000, 0)
		a, b := retrybudget.New(plain), retrybudget.New(plain)
		for range 10 {
			require.True(t, a.Withdraw(now))
		}
		require.False(t, a.Withdraw(now))
		require.Equal(t, 10.0, b.Balance(now))

		shared := retrybudget.New(plain)
		pools := [2]*retrybudget.Budget{shared, shared}
		for i := range 10 {
			require.True(t, pools[i%2].Withdraw(now))
		}
		require.False(t, pools[0].Withdraw(now))
		require.False(t, pools[1].Withdraw(now))
	})
	t.Run("F-RB-10", func(t *testing.T) {
		// The grant is for the instant of the question.
		c := retrybudget.NewCore(plain)
		c.Failure(7 * sec)
		at, ok := c.NextGrant(7 * sec)
		require.True(t, ok)
		require.Equal(t, 7*sec, at)
		require.True(t, c.Withdraw(7*sec))
	})
	t.Run("F-RB-11", func(t *testing.T) {
		checkSeeded(t, 2, boundProp)
	})
	t.Run("F-RB-13", func(t *testing.T) {
		require.EqualValues(t, 100, contend(t, 100, 10, 20))
	})
	t.Run("F-OB-11", func(t *testing.T) {
		now := time.Unix(1000, 0)
		cfg := plain
		cfg.PerSecond = 2
		b := retrybudget.New(cfg)
		for range 10 {
			b.Withdraw(now)
		}
		require.Zero(t, b.Refused())
		require.False(t, b.Withdraw(now))
		require.EqualValues(t, 1, b.Refused())
		require.EqualValues(t, 10, b.Granted())
		require.Equal(t, 0.0, b.Balance(now))
		require.Equal(t, 0.5, b.Balance(now.Add(250*time.Millisecond)))
	})
	t.Run("E-RB-01", func(t *testing.T) {
		// One failure, one retry: a request pays for a fifth of it.
		c := retrybudget.NewCore(retrybudget.Echofront())
		withdraw(&c, 0, 5)
		c.Request(0)
		c.Failure(0)
		require.True(t, c.Withdraw(0))
		c.Success(0)
		require.Equal(t, 4.2, c.Balance(0))
		require.EqualValues(t, 6, c.Granted())
	})
	t.Run("E-RB-02", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Echofront())
		granted, firstDenied := echofront(&c, 100)
		require.Equal(t, 29, granted)
		require.Equal(t, 13, firstDenied)

		c = retrybudget.NewCore(retrybudget.Echofront())
		withdraw(&c, 0, 10)
		for range 5 {
			c.Request(0)
		}
		require.Equal(t, 1, withdraw(&c, 0, 10))
	})
	t.Run("E-RB-03", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Echofront())
		granted, _ := echofront(&c, 500)
		require.Equal(t, 109, granted)
	})
	t.Run("E-RB-04", func(t *testing.T) {
		// A refusal is a plain answer: it carries no error that could stand in
		// for the one of the last attempt, and time alone will not lift it.
		c := retrybudget.NewCore(retrybudget.Echofront())
		withdraw(&c, 0, 10)
		require.False(t, c.Withdraw(0))
		_, ok := c.NextGrant(0)
		require.False(t, ok)
		require.Equal(t, 5*time.Second, c.RetryAfter(0))
	})
}

// TestTraps holds the package to the right side of faults that others had.
func TestTraps(t *testing.T) {
	t.Run("A-RB-01", func(t *testing.T) {
		for _, tc := range []struct {
			rate float64
			k    int
			want int
		}{
			{1, 1, 1}, {1, 6, 6}, {0.5, 6, 3}, {0.5, 1, 0}, {0.2, 4, 0}, {0.2, 5, 1},
		} {
			// The requests that failed are still active while they back off.
			c := retrybudget.NewCore(retrybudget.Config{
				Capacity: -1,
				Share:    retrybudget.Share{Of: retrybudget.Active, Rate: tc.rate},
			})
			for range tc.k {
				c.Request(0)
			}
			for range tc.k {
				c.Failure(0)
			}
			require.Equal(t, tc.want, withdraw(&c, 0, tc.k), "rate %v, %d requests", tc.rate, tc.k)
		}
	})
	t.Run("A-RB-02", func(t *testing.T) {
		for _, tc := range []struct {
			ratio    float64
			deposits int
			want     int
		}{
			{0.6, 10, 6}, {0.3, 1000, 300}, {0.7, 1000, 700}, {0.9, 1000, 900}, {1, 1000, 1000},
		} {
			c := retrybudget.NewCore(retrybudget.Config{
				Capacity: 1e6, Initial: -1, PerRequest: tc.ratio, PerSuccess: -1, PerSecond: -1,
			})
			for range tc.deposits {
				c.Request(0)
			}
			require.Equal(t, tc.want, withdraw(&c, 0, 2*tc.deposits), "ratio %v", tc.ratio)

			c = retrybudget.NewCore(retrybudget.Config{
				Capacity: -1, Share: retrybudget.Share{Rate: tc.ratio},
			})
			for range tc.deposits {
				c.Request(0)
			}
			require.Equal(t, tc.want, withdraw(&c, 0, 2*tc.deposits), "share %v", tc.ratio)
		}
	})
	t.Run("A-RB-03", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Capacity: 10, PerSuccess: 0.1, PerSecond: -1})
		for i := range int64(1_000_000) {
			c.Success(i)
		}
		require.Equal(t, 10.0, c.Balance(1_000_000))
		require.Equal(t, 10, withdraw(&c, 1_000_000, 100))
	})
	t.Run("A-RB-04", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Config{Capacity: 10, PerSuccess: 0.1, PerSecond: -1})
		withdraw(&c, 0, 10)
		for range 9 {
			c.Success(0)
		}
		require.False(t, c.Withdraw(0))
		c.Success(0)
		require.True(t, c.Withdraw(0))
		require.False(t, c.Withdraw(0))
	})
	t.Run("A-RB-05", func(t *testing.T) {
		require.EqualValues(t, 100, contend(t, 100, 1000, 1))

		drip := retrybudget.NewCore(retrybudget.Config{Capacity: 20, Initial: -1, PerSecond: 2})
		require.False(t, drip.Withdraw(0))
		require.Equal(t, 10, withdraw(&drip, 5*sec, 30))

		capped := retrybudget.NewCore(retrybudget.Config{Capacity: 7, Initial: -1, PerSecond: 2})
		require.False(t, capped.Withdraw(0))
		require.Equal(t, 7, withdraw(&capped, 5*sec, 30))
	})
	t.Run("A-RB-06", func(t *testing.T) {
		// Ten requests in the window of a second, all of which fail.
		for _, tc := range []struct {
			name string
			cfg  retrybudget.Config
			want int
		}{
			{"no floor", retrybudget.Config{PerRequest: 0.1, PerSuccess: -1, PerSecond: -1, TTL: time.Second}, 1},
			{"floor, summed", retrybudget.Config{PerRequest: 0.1, PerSuccess: -1, PerSecond: 3, TTL: time.Second}, 4},
			{"share, no floor", retrybudget.Config{Capacity: -1,
				Share: retrybudget.Share{Rate: 0.1, Window: time.Second}}, 1},
			{"share, floor", retrybudget.Config{Capacity: -1,
				Share: retrybudget.Share{Rate: 0.1, Min: 3, Window: time.Second}}, 3},
		} {
			c := retrybudget.NewCore(tc.cfg)
			for i := range int64(10) {
				c.Request(i * ms)
				c.Failure(i * ms)
			}
			require.Equal(t, tc.want, withdraw(&c, 10*ms, 10), tc.name)
		}
		// The default at one request per second and at a thousand: a tenth of
		// the successes, and one in ten seconds.
		for _, rps := range []int64{1, 1000} {
			c := retrybudget.NewCore(retrybudget.Config{Initial: -1})
			granted := 0
			for i := range 100 * rps {
				now := i * sec / rps
				c.Request(now)
				c.Success(now)
				granted += withdraw(&c, now, 2)
			}
			require.InDelta(t, 0.1*float64(100*rps)+0.1*100, float64(granted), 1, "%d rps", rps)
		}
	})
}

// contend lets goroutines withdraw from one budget and returns the grants.
func contend(t *testing.T, balance float64, goroutines, tries int) int64 {
	t.Helper()
	now := time.Unix(1000, 0)
	b := retrybudget.New(retrybudget.Config{Capacity: balance, PerSuccess: -1, PerSecond: -1})
	var granted atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range goroutines {
		wg.Go(func() {
			<-start
			for range tries {
				if b.Withdraw(now) {
					granted.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	close(start)
	wg.Wait()
	require.EqualValues(t, granted.Load(), b.Granted())
	require.EqualValues(t, goroutines*tries, b.Granted()+b.Refused())
	return granted.Load()
}
