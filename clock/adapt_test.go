package clock_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bb "github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/clock"
)

// Another module's clock is a Clock without any adapter.
var (
	_ clock.Clock = bb.New()
	_ clock.Clock = (*bb.Mock)(nil)
)

// foreign is a clock on package time whose timers have type T.
type foreign[T any] struct {
	arm func(d time.Duration, f func()) T
}

func (foreign[T]) Now() time.Time                          { return time.Now() }
func (c foreign[T]) AfterFunc(d time.Duration, f func()) T { return c.arm(d, f) }

// chanTimer is the shape of an interface of timers that have a channel.
type chanTimer interface {
	Chan() <-chan time.Time
	Reset(d time.Duration) bool
	Stop() bool
}

type withChan struct{ *time.Timer }

func (w withChan) Chan() <-chan time.Time { return w.C }

// stopOnly cannot be armed again.
type stopOnly struct{ t *time.Timer }

func (t stopOnly) Stop() bool { return t.t.Stop() }

// mute has a Reset with no result.
type mute struct{ t *time.Timer }

func (t mute) Stop() bool            { return t.t.Stop() }
func (t mute) Reset(d time.Duration) { panic("not a Timer's Reset") }

func TestAdapt(t *testing.T) {
	inBubble := func(name string, make func() (clock.Scheduler, func(time.Duration))) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, move := make()
				checkScheduler(t, c, func(d time.Duration) { move(d); synctest.Wait() })
			})
		})
	}
	sleep := time.Sleep

	inBubble("benbjohnson New", func() (clock.Scheduler, func(time.Duration)) {
		return clock.Adapt(bb.New()), sleep
	})
	inBubble("benbjohnson Mock", func() (clock.Scheduler, func(time.Duration)) {
		m := bb.NewMock()
		return clock.Adapt(m), m.Add
	})
	inBubble("package time", func() (clock.Scheduler, func(time.Duration)) {
		return clock.Adapt(foreign[*time.Timer]{time.AfterFunc}), sleep
	})
	inBubble("timer interface", func() (clock.Scheduler, func(time.Duration)) {
		return clock.Adapt(foreign[chanTimer]{func(d time.Duration, f func()) chanTimer {
			return withChan{time.AfterFunc(d, f)}
		}}), sleep
	})
	inBubble("timer without Reset", func() (clock.Scheduler, func(time.Duration)) {
		return clock.Adapt(foreign[stopOnly]{func(d time.Duration, f func()) stopOnly {
			return stopOnly{time.AfterFunc(d, f)}
		}}), sleep
	})
	inBubble("timer with a silent Reset", func() (clock.Scheduler, func(time.Duration)) {
		return clock.Adapt(foreign[mute]{func(d time.Duration, f func()) mute {
			return mute{time.AfterFunc(d, f)}
		}}), sleep
	})
	inBubble("System", func() (clock.Scheduler, func(time.Duration)) {
		return clock.System(), sleep
	})
	inBubble("Manual", func() (clock.Scheduler, func(time.Duration)) {
		m := clock.NewManual(t0)
		return m, m.Advance
	})
}

// checkScheduler holds any Scheduler to the contract of the interfaces.
func checkScheduler(t *testing.T, c clock.Scheduler, move func(time.Duration)) {
	start := c.Now()
	var mu sync.Mutex // functions may run on goroutines
	var log []time.Duration
	ran := func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(log)
	}
	tm := c.AfterFunc(2*s, func() {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, c.Now().Sub(start))
	})
	move(1 * s)
	require.Empty(t, ran())
	require.True(t, tm.Reset(3*s))
	move(2 * s) // 3s
	require.Empty(t, ran(), "Reset replaced the first delay")
	move(2 * s) // 5s
	require.Equal(t, []time.Duration{4 * s}, ran())
	require.False(t, tm.Stop(), "it has run")
	require.False(t, tm.Reset(2*s))
	require.True(t, tm.Stop())
	require.False(t, tm.Stop())
	move(10 * s) // 15s
	require.Len(t, ran(), 1)
	require.False(t, tm.Reset(1*s))
	move(2 * s) // 17s
	require.Equal(t, []time.Duration{4 * s, 16 * s}, ran())
	require.Equal(t, 17*s, c.Now().Sub(start))
}

func TestAdaptReturnsSchedulers(t *testing.T) {
	m := clock.NewManual(t0)
	require.Same(t, m, clock.Adapt(m))
	sys := clock.System()
	require.True(t, clock.IsSystem(clock.Adapt(sys)))
}
