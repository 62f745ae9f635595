package retrybudget_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// stall is the experiment of a server that stops for ten seconds: one queue,
// served in order at 1000 attempts per second (exponential), Poisson arrivals,
// clients that give up on an attempt after one second and send another at
// once, three attempts at most, and a server that also serves those that were
// given up. Requests are sent for horizon seconds after the stall.
//
// It returns the attempts per request during the stall, and how many seconds
// after it the answers were in time again (horizon if never).
func stall(cfg retrybudget.Config, rps float64, seed uint64, horizon float64) (amplification, recovery float64) {
	const (
		from, to = 5.0, 15.0
		timeout  = 1.0
		rate     = 1000.0
	)
	type attempt struct {
		number int
		sent   float64
		done   float64
	}
	var (
		c        = retrybudget.NewCore(cfg)
		arrivals = rand.New(rand.NewPCG(seed, 1))
		work     = rand.New(rand.NewPCG(seed, 2))
		wait     = func(r *rand.Rand, rate float64) float64 { return -math.Log(1-r.Float64()) / rate }
		free     float64   // when the server has served all that was sent
		queue    []attempt // sent and unsettled, in order
		late     float64   // when an attempt last failed
		requests int
		attempts int
	)
	send := func(number int, now float64) {
		if from <= now && now < to {
			attempts++
		}
		begin := max(now, free)
		if from <= begin && begin < to {
			begin = to
		}
		free = begin + wait(work, rate)
		queue = append(queue, attempt{number, now, free})
	}
	// settle handles the results that are known by now. Attempts are served and
	// given up in the order in which they were sent, so the head is the next.
	settle := func(now float64) {
		for len(queue) > 0 {
			a := queue[0]
			at := min(a.done, a.sent+timeout)
			if at > now {
				return
			}
			queue = queue[1:]
			t := int64(at * 1e9)
			switch {
			case a.done <= a.sent+timeout:
				c.Success(t)
				if a.number > 1 {
					c.EndRetry(t, true)
				}
				c.End(t)
				continue
			case at > late:
				late = at
			}
			c.Failure(t)
			if a.number > 1 {
				c.EndRetry(t, false)
			}
			if a.number < 3 && c.Withdraw(t) {
				send(a.number+1, at)
			} else {
				c.End(t)
			}
		}
	}
	for now := wait(arrivals, rps); now < to+horizon; now += wait(arrivals, rps) {
		settle(now)
		if now > to && now-late > 2*timeout {
			break // no attempt has failed for two seconds
		}
		c.Request(int64(now * 1e9))
		if from <= now && now < to {
			requests++
		}
		send(1, now)
	}
	return float64(attempts) / float64(requests), min(max(late-to, 0), horizon)
}

// TestOutage holds the default to what it promises, beside the other rules.
func TestOutage(t *testing.T) {
	seed, fixed := seedOf(t, 15)
	slack, near := 1.2, 8.0
	if !fixed { // the recovery of one run spreads by 1.5 s
		slack, near = 1.5, 12
	}
	none := retrybudget.Config{Initial: -1, PerSuccess: -1, PerSecond: -1}
	naive := retrybudget.Config{Off: true}
	for _, rps := range []float64{700, 800} {
		_, base := stall(none, rps, seed, 100)
		require.InDelta(t, 10*rps/(1000-rps), base, near, "the backlog of the stall over the spare capacity")

		for _, tc := range []struct {
			name     string
			cfg      retrybudget.Config
			max, min float64 // attempts per request in the stall
			slower   float64 // at most, than without retries; 0: never recovers
		}{
			{"default", retrybudget.Config{}, 1.05, 1, slack},
			{"gRPC", retrybudget.GRPC(), 1.05, 1, slack},
			{"AWS", retrybudget.AWS(), 1.05, 1, slack},
			{"Finagle", retrybudget.Finagle(), 1.25, 1.1, 100},
			{"naive", naive, 3, 2.5, 0},
		} {
			if tc.slower != slack && rps == 800 {
				continue
			}
			amplification, recovery := stall(tc.cfg, rps, seed, 100)
			t.Logf("%4.0f rps: %-8s %.3f attempts per request, recovered after %5.1fs (without retries %.1fs)",
				rps, tc.name, amplification, recovery, base)
			require.GreaterOrEqual(t, amplification, tc.min, tc.name)
			require.LessOrEqual(t, amplification, tc.max, tc.name)
			if tc.slower == 0 {
				require.Greater(t, recovery, 99.0, tc.name)
				continue
			}
			require.LessOrEqual(t, recovery, tc.slower*base, tc.name)
		}
	}
}

// TestDefaultRetriesRandomFailures: with one failure in a hundred, practically
// each is retried, at any rate.
func TestDefaultRetriesRandomFailures(t *testing.T) {
	seed, _ := seedOf(t, 16)
	coin := rand.New(rand.NewPCG(seed, 3))
	for _, rps := range []int64{1, 100, 10_000} {
		c := retrybudget.NewCore(retrybudget.Config{})
		failed, retried := 0, 0
		for i := range int64(opsOf(t, 100_000)) {
			now := i * sec / rps
			c.Request(now)
			if coin.Float64() >= 0.01 {
				c.Success(now)
				continue
			}
			failed++
			c.Failure(now)
			if c.Withdraw(now) {
				retried++
				c.Success(now)
			}
		}
		require.GreaterOrEqual(t, float64(retried), 0.95*float64(failed), "%d rps", rps)
		t.Logf("%d rps: %d of %d failures retried", rps, retried, failed)
	}
}

// TestDefaultInTotalOutage: when everything fails, what is retried is the ten
// tokens and one per ten seconds, whatever the traffic.
func TestDefaultInTotalOutage(t *testing.T) {
	for _, rps := range []int64{1, 10, 700} {
		c := retrybudget.NewCore(retrybudget.Config{})
		for i := range 60 * rps {
			now := i * sec / rps
			c.Request(now)
			c.Failure(now)
			for attempt := 1; attempt < 3 && c.Withdraw(now); attempt++ {
				c.Failure(now)
			}
		}
		require.LessOrEqual(t, c.Granted(), uint64(16))
		require.GreaterOrEqual(t, c.Granted(), uint64(15))
	}
}
