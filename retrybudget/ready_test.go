package retrybudget_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// TestReady holds each ready configuration to its published rule.
func TestReady(t *testing.T) {
	t.Run("all are valid and data", func(t *testing.T) {
		for _, cfg := range []retrybudget.Config{
			{}, retrybudget.Finagle(), retrybudget.GRPC(), retrybudget.AWS(), retrybudget.Envoy(),
			retrybudget.Ferron(), retrybudget.FerronStrict(), retrybudget.Echofront(),
		} {
			require.NoError(t, cfg.Validate())
			same := cfg
			require.True(t, cfg == same)
		}
	})
	t.Run("Finagle: 20 percent and ten per second, over ten seconds", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Finagle())
		require.Equal(t, 100, withdraw(&c, 0, 200), "the reserve of ten seconds")
		for range 5 {
			c.Request(sec)
		}
		require.Equal(t, 1, withdraw(&c, sec, 200))
		// The first withdrawals are back after ten seconds. The deposit and what
		// it paid for are of one slot, and leave together.
		require.False(t, c.CanWithdraw(10*sec-1))
		require.Equal(t, 100.0, c.Balance(10*sec))
		require.Equal(t, 100.0, c.Balance(11*sec))

		// A deposit that is not used lapses.
		c = retrybudget.NewCore(retrybudget.Finagle())
		for range 50 {
			c.Request(0)
		}
		require.Equal(t, 110.0, c.Balance(10*sec-1))
		require.Equal(t, 100.0, c.Balance(10*sec))

		// A deposit that leaves before the withdrawal it paid for is owed.
		c = retrybudget.NewCore(retrybudget.Finagle())
		for range 50 {
			c.Request(0)
		}
		require.Equal(t, 110, withdraw(&c, 5*sec, 200))
		require.Equal(t, 0.0, c.Balance(10*sec), "a debt shows as nothing")
		c.Request(10 * sec)
		for range 49 {
			c.Request(10 * sec)
		}
		require.False(t, c.Withdraw(10*sec), "ten deposits only settle the debt")
		require.Equal(t, 110, withdraw(&c, 15*sec, 200))
	})
	t.Run("GRPC: retries while more than half of the tokens are there", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.GRPC())
		// 10 -> 9, 8, 7, 6 grant; 5 is not more than half.
		granted := 0
		for range 100 {
			c.Failure(0)
			granted += withdraw(&c, 0, 1)
		}
		require.Equal(t, 4, granted)
		require.Equal(t, 0.0, c.Balance(0))
		for range 50 {
			c.Success(0)
		}
		require.Equal(t, 5.0, c.Balance(0))
		require.False(t, c.CanWithdraw(0))
		c.Success(0)
		require.True(t, c.Withdraw(0))
		require.Equal(t, 5.1, c.Balance(0), "a retry by itself is free")
		require.Equal(t, 5.1, c.Balance(3600*sec), "time alone brings nothing back")
	})
	t.Run("AWS: 500 tokens, 5 per retry, back on success", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.AWS())
		require.Equal(t, 100, withdraw(&c, 0, 200))
		require.Equal(t, 0.0, c.Balance(0))
		c.Success(0) // at the first try
		require.Equal(t, 1.0, c.Balance(0))
		c.Success(0) // by one of the retries
		c.EndRetry(0, true)
		require.Equal(t, 6.0, c.Balance(0))
		c.Failure(0)
		c.EndRetry(0, false)
		require.Equal(t, 6.0, c.Balance(0))
		require.Equal(t, 6.0, c.Balance(3600*sec), "time alone brings nothing back")
		require.True(t, c.Withdraw(0))

		// As long as retries succeed the quota does not shrink.
		c = retrybudget.NewCore(retrybudget.AWS())
		for range 1000 {
			c.Failure(0)
			require.True(t, c.Withdraw(0))
			c.Success(0)
			c.EndRetry(0, true)
		}
		require.Equal(t, 500.0, c.Balance(0))

		cfg := retrybudget.AWS()
		cfg.Cost, cfg.RetrySuccess = 10, 9
		c = retrybudget.NewCore(cfg)
		require.Equal(t, 50, withdraw(&c, 0, 200), "timeouts")
	})
	t.Run("Envoy: a fifth of the active requests, three in any case", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Envoy())
		c.Request(0)
		require.Equal(t, 3, withdraw(&c, 0, 10))
		for range 19 {
			c.Request(0)
		}
		require.Equal(t, 1, withdraw(&c, 0, 10), "a fifth of twenty is four")
		c.EndRetry(0, false)
		require.Equal(t, 1, withdraw(&c, 0, 10))
		c.Refund(0)
		require.Equal(t, 1, withdraw(&c, 0, 10))
		for range 6 {
			c.End(0)
		}
		c.EndRetry(0, true)
		require.False(t, c.Withdraw(0), "three are in flight, a fifth of fourteen is two")
		c.EndRetry(0, true)
		require.Equal(t, 1, withdraw(&c, 0, 10))
		_, ok := c.NextGrant(0)
		require.False(t, ok, "time alone ends no retry")
		require.Equal(t, 0.0, c.Balance(0), "there is no bucket")
	})
	t.Run("Ferron: defaults", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.Ferron())
		require.Equal(t, 10.0, c.Balance(0))
		require.Equal(t, 10, withdraw(&c, 0, 20))
		require.False(t, c.Withdraw(sec), "two tokens, but the burst of the share is used up")
		for range 10 {
			c.Request(sec)
		}
		require.Equal(t, 1, withdraw(&c, sec, 20))
	})
	t.Run("FerronStrict: free until the first success", func(t *testing.T) {
		c := retrybudget.NewCore(retrybudget.FerronStrict())
		require.Equal(t, 10, withdraw(&c, 0, 20), "the tokens still count")
		c.Success(0)
		require.False(t, c.Withdraw(0))
		for range 109 {
			c.Success(0)
		}
		require.Equal(t, 1, withdraw(&c, 0, 20), "110 successes allow eleven")
	})
}
