// Package preset has the configurations of whole systems, so that a Pool can
// behave as one of them does: to replace it, to compare with it, or to start
// from it. A preset is a plain balancer.Config that the caller may edit.
package preset

import (
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// Echofront is the configuration of the Echofront resilience engine:
//
//   - round robin from the first upstream on, weights not looked at; with
//     WeightedRoundRobin, LeastConn{Ties: TiesIndex} or Hash in its place, set
//     IgnoreWeights to false
//   - breaker: 5 failures in a row open it for 5 s, one trial at a time, 2
//     successes close it; a trial never expires
//   - ejection: 5 failures in a row, 5 s flat, no cap, a clean return
//   - at most 2 retries, after any failure, never to the same upstream; a budget
//     of 10 tokens, full at the start, filled by 0.2 for each request
//   - nothing selectable: an error
func Echofront() balancer.Config {
	return balancer.Config{
		Policy:        balancer.RoundRobin{First: true},
		IgnoreWeights: true,
		Breaker:       echofrontBreaker(5, 2, 5*time.Second, 1),
		Outlier:       echofrontOutlier(5, 5*time.Second),
		Retry:         balancer.Retry{Max: 2, OnFailure: true},
		Budget:        retrybudget.Echofront(),
		WhenNone:      balancer.FailFast,
	}
}

// EchofrontDemo is Echofront as its scripted demonstration sets it up: ejection
// after 3 failures for 2.5 s, a breaker that stays open for 3 s and admits 2
// trials at once, and the round robin by index whose shares become uneven when
// an upstream is out.
func EchofrontDemo() balancer.Config {
	c := Echofront()
	c.Policy = balancer.RoundRobin{IndexCursor: true}
	c.Breaker = echofrontBreaker(5, 2, 3*time.Second, 2)
	c.Outlier = echofrontOutlier(3, 2500*time.Millisecond)
	return c
}

// EchofrontPlayground is Echofront as its playground sets it up: a breaker that
// opens after 3 failures for 3 s and closes after 2 successes, ejection after 5
// failures for 5 s, and a budget that starts empty.
func EchofrontPlayground() balancer.Config {
	c := Echofront()
	c.Breaker = echofrontBreaker(3, 2, 3*time.Second, 1)
	c.Budget.Initial = -1
	return c
}

func echofrontBreaker(failures, passes int, open time.Duration, trials int) breaker.Config {
	return breaker.Config{
		ConsecutiveFailures: failures,
		OpenFor:             open,
		Trials:              trials,
		Passes:              passes,
		TrialTimeout:        -1,
		LateFailure:         breaker.LateIgnore,
	}
}

func echofrontOutlier(failures int, out time.Duration) outlier.Config {
	return outlier.Config{
		Consecutive:       failures,
		Base:              out,
		Max:               out,
		MaxEjectedPercent: 100,
		Last:              outlier.EjectLast,
		Return:            outlier.Clean,
	}
}
