package health_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/health"
)

const ms = int64(time.Millisecond)

// script probes a host whose answers are given, one letter a probe, each
// answered at once: P passes, F fails. It returns the changes, and the start of
// every probe.
func script(t *testing.T, cfg health.Config, answers string) (core health.Core, changes []health.Change, begins []int64) {
	t.Helper()
	core = health.NewCore(cfg, 0)
	for _, a := range answers {
		at := core.NextProbe()
		if at > 0 {
			require.False(t, core.Due(at-1))
		}
		require.True(t, core.Due(at))
		p, begun, _, changed := core.Begin(at)
		require.True(t, begun)
		require.False(t, changed)
		begins = append(begins, at)
		if ch, changed := core.Record(at, p, a == 'P'); changed {
			changes = append(changes, ch)
		}
	}
	return core, changes, begins
}

// echofront is a check of 1000 ms that starts healthy.
func echofront(fall, rise int) health.Config {
	return health.Config{Interval: time.Second, Fall: fall, Rise: rise, StartHealthy: true}
}

func TestRows(t *testing.T) {
	t.Run("E-HC-01", func(t *testing.T) {
		_, changes, begins := script(t, echofront(3, 2), "FFFFFFPPPP")
		require.Equal(t, []health.Change{
			{From: health.Healthy, To: health.Unhealthy, At: 2000 * ms, Last: health.Failed, Run: 3},
			{From: health.Unhealthy, To: health.Healthy, At: 7000 * ms, Last: health.Passed, Run: 2},
		}, changes)
		_, again, beginsAgain := script(t, echofront(3, 2), "FFFFFFPPPP")
		require.Equal(t, changes, again)
		require.Equal(t, begins, beginsAgain)
	})

	t.Run("E-HC-02", func(t *testing.T) {
		core := health.NewCore(echofront(2, 2), 0)
		require.True(t, core.Healthy(0))
		require.True(t, core.Due(0), "the first probe is due at once")
		_, changes, begins := script(t, echofront(2, 2), "FFPP")
		require.Equal(t, []int64{0, 1000 * ms, 2000 * ms, 3000 * ms}, begins)
		require.Equal(t, []health.Change{
			{From: health.Healthy, To: health.Unhealthy, At: 1000 * ms, Last: health.Failed, Run: 2},
			{From: health.Unhealthy, To: health.Healthy, At: 3000 * ms, Last: health.Passed, Run: 2},
		}, changes)
	})

	t.Run("E-HC-03", func(t *testing.T) {
		alive, err := health.ParseStatusSet("<500")
		require.NoError(t, err)
		require.True(t, alive.Contains(404))
		require.True(t, alive.Contains(499))
		require.False(t, alive.Contains(500))
		require.False(t, alive.Contains(503))
	})

	t.Run("F-HC-03", func(t *testing.T) {
		for _, c := range []struct {
			text     string
			in, out  int
			in2, bad int
		}{
			{"2xx", 299, 300, 200, 199},
			{"3xx", 301, 200, 399, 400},
			{"2xx,3xx", 200, 404, 399, 400},
			{"200,204", 204, 201, 200, 203},
			{"200-299", 299, 300, 200, 199},
		} {
			set, err := health.ParseStatusSet(c.text)
			require.NoError(t, err)
			require.True(t, set.Contains(c.in) && set.Contains(c.in2), c.text)
			require.False(t, set.Contains(c.out) || set.Contains(c.bad), c.text)
		}
		both, err := health.ParseStatusSet("2xx,3xx")
		require.NoError(t, err)
		for status := -1; status < 1000; status++ {
			require.Equal(t, both.Contains(status), health.StatusSet{}.Contains(status), "the default is 2xx,3xx")
		}
	})

	t.Run("F-HC-04", func(t *testing.T) {
		for took, want := range map[time.Duration]uint64{time.Second: 1, time.Second + time.Millisecond: 0} {
			core := health.NewCore(health.Config{SlowAfter: time.Second}, 0)
			p, _, _, _ := core.Begin(0)
			core.Record(int64(took), p, true)
			require.Equal(t, want, core.Counts(int64(took)).Passes, took)
		}
		core := health.NewCore(health.Config{}, 0)
		p, _, _, _ := core.Begin(0)
		ch, _ := core.Record(2999*ms, p, true)
		require.Equal(t, health.Passed, ch.Last, "off by default")
	})

	t.Run("F-HC-06", func(t *testing.T) {
		cfg := health.Config{Interval: 10 * time.Second, Fall: 2, Rise: 2, StartHealthy: true}
		_, changes, _ := script(t, cfg, "PFF")
		require.Len(t, changes, 1)
		require.Equal(t, 20_000*ms, changes[0].At)
		_, changes, _ = script(t, cfg, "PFPF")
		require.Empty(t, changes)
	})

	t.Run("F-HC-07", func(t *testing.T) {
		cfg := health.Config{Interval: 10 * time.Second, Fall: 2, Rise: 2, StartHealthy: true}
		_, changes, _ := script(t, cfg, "PFFPP")
		require.Len(t, changes, 2)
		require.Equal(t, 40_000*ms, changes[1].At)
		core, changes, _ := script(t, cfg, "PFFPFP")
		require.Len(t, changes, 1)
		require.False(t, core.Healthy(core.NextProbe()))
	})

	t.Run("G-HC-02", func(t *testing.T) {
		cfg := health.Config{Interval: 30 * time.Second, Fall: 1, Rise: 1, StartHealthy: true, First: health.AfterInterval}
		_, changes, begins := script(t, cfg, "FP")
		require.Equal(t, []int64{30_000 * ms, 60_000 * ms}, begins)
		require.Equal(t, []health.Change{
			{From: health.Healthy, To: health.Unhealthy, At: 30_000 * ms, Last: health.Failed, Run: 1},
			{From: health.Unhealthy, To: health.Healthy, At: 60_000 * ms, Last: health.Passed, Run: 1},
		}, changes)
	})

	t.Run("G-HC-03", func(t *testing.T) {
		below, err := health.ParseStatusSet("<400")
		require.NoError(t, err)
		require.False(t, below.Contains(404))
		require.True(t, below.Contains(302))
		list, err := health.ParseStatusSet("200,404")
		require.NoError(t, err)
		require.True(t, list.Contains(404))
		require.False(t, list.Contains(302))
	})

	rustunnel := health.Config{Interval: 10 * time.Second, Timeout: 3 * time.Second, Fall: 3, Rise: 1}

	t.Run("R-HL-02", func(t *testing.T) {
		core := health.NewCore(rustunnel, 0)
		require.Equal(t, health.Unknown, core.State(0))
		require.False(t, core.Healthy(0))
		core, _, _ = script(t, rustunnel, "P")
		require.True(t, core.Healthy(0))
		_, changes, _ := script(t, rustunnel, "FFFP")
		last := changes[len(changes)-1]
		require.Equal(t, health.Healthy, last.To)
		require.Equal(t, 30_000*ms, last.At)
	})

	t.Run("R-HL-04", func(t *testing.T) {
		cfg := rustunnel
		cfg.StartHealthy, cfg.First = true, health.AfterInterval
		_, changes, begins := script(t, cfg, "FFF")
		require.Equal(t, []int64{10_000 * ms, 20_000 * ms, 30_000 * ms}, begins)
		require.Len(t, changes, 1)
		require.Equal(t, 30_000*ms, changes[0].At)
		core := health.NewCore(rustunnel, 0)
		p, _, _, _ := core.Begin(0)
		require.Equal(t, 3000*ms, p.Deadline)
	})

	t.Run("R-HL-05", func(t *testing.T) {
		only, err := health.ParseStatusSet("2xx")
		require.NoError(t, err)
		every, err := health.ParseStatusSet("100-599")
		require.NoError(t, err)
		for _, status := range []int{301, 500} {
			require.False(t, only.Contains(status))
			require.True(t, every.Contains(status))
		}
		require.False(t, only.Contains(0) || every.Contains(0), "no response")
	})

	t.Run("R-HL-06", func(t *testing.T) {
		for at, want := range map[int64]health.State{2999 * ms: health.Healthy, 3000*ms - 1: health.Healthy, 3000 * ms: health.Unhealthy} {
			core := health.NewCore(rustunnel, 0)
			p, _, _, _ := core.Begin(0)
			ch, changed := core.Record(at, p, true)
			require.True(t, changed)
			require.Equal(t, want, ch.To, at)
			require.Equal(t, want, core.State(at), at)
		}
	})

	t.Run("R-HL-07", func(t *testing.T) {
		_, changes, begins := script(t, rustunnel, "PPFFPFFFFP")
		require.Equal(t, []health.Change{
			{From: health.Unknown, To: health.Healthy, At: begins[0], Last: health.Passed, Run: 1},
			{From: health.Healthy, To: health.Unhealthy, At: begins[7], Last: health.Failed, Run: 3},
			{From: health.Unhealthy, To: health.Healthy, At: begins[9], Last: health.Passed, Run: 1},
		}, changes)
	})

	t.Run("R-HL-09", func(t *testing.T) {
		// Dead from 1 s, alive again from 41 s.
		_, changes, begins := script(t, rustunnel, "PFFFFP")
		require.Equal(t, 50_000*ms, begins[5])
		require.Equal(t, []health.Change{
			{From: health.Unknown, To: health.Healthy, At: 0, Last: health.Passed, Run: 1},
			{From: health.Healthy, To: health.Unhealthy, At: 30_000 * ms, Last: health.Failed, Run: 3},
			{From: health.Unhealthy, To: health.Healthy, At: 50_000 * ms, Last: health.Passed, Run: 1},
		}, changes)
	})
}

func TestTraps(t *testing.T) {
	t.Run("A-AH-01", func(t *testing.T) {
		cfg := health.Config{Fall: 3, Rise: 3}
		down := "F"
		core, _, _ := script(t, cfg, down+"PPFP")
		require.False(t, core.Healthy(core.NextProbe()))
		core, _, _ = script(t, cfg, down+"PPP")
		require.True(t, core.Healthy(core.NextProbe()))
		core, _, _ = script(t, cfg, "P"+"FFPF")
		require.True(t, core.Healthy(core.NextProbe()))
	})

	t.Run("A-AH-02", func(t *testing.T) {
		core, _, _ := script(t, health.Config{}, "FFFFFFFF")
		require.False(t, core.Healthy(core.NextProbe()))
		core, changes, _ := script(t, health.Config{Fall: 1, StartHealthy: true}, "F")
		require.Len(t, changes, 1)
		require.Zero(t, changes[0].At, "out at once, not after the interval")
		require.False(t, core.Healthy(0))
		_, changes, _ = script(t, health.Config{Rise: 5}, "P")
		require.Equal(t, health.Healthy, changes[0].To, "from unknown the first answer decides")
		_, changes, _ = script(t, health.Config{Fall: 5}, "F")
		require.Equal(t, health.Unhealthy, changes[0].To, "from unknown the first answer decides")
	})

	t.Run("A-AH-05", func(t *testing.T) {
		core := health.NewCore(health.Config{Interval: time.Second, Timeout: 3 * time.Second, Fall: 1, StartHealthy: true}, 0)
		p, begun, _, _ := core.Begin(0)
		require.True(t, begun)
		for at := int64(1); at < 3000*ms; at += 100 * ms {
			require.False(t, core.Due(at), "never two probes at once")
			_, begun, _, _ := core.Begin(at)
			require.False(t, begun)
		}
		require.Equal(t, 3000*ms, core.NextChange())
		second, begun, ch, changed := core.Begin(3000 * ms)
		require.True(t, changed)
		require.Equal(t, health.Change{From: health.Healthy, To: health.Unhealthy, At: 3000 * ms, Last: health.TimedOut, Run: 1}, ch)
		require.True(t, begun)
		before := core
		_, changed = core.Record(3000*ms, p, true)
		require.False(t, changed)
		require.Equal(t, before, core, "the reply of an ended probe changes nothing")
		ch, changed = core.Record(3500*ms, second, true)
		require.False(t, changed, "%+v", ch)
		require.Equal(t, health.Counts{Passes: 1, Failures: 1}, core.Counts(3500*ms))
	})
}

func TestSkippedPointsAreNotMadeUpFor(t *testing.T) {
	core := health.NewCore(health.Config{Interval: time.Second}, 0)
	for _, c := range []struct{ at, next int64 }{{0, 1000}, {5500, 6000}, {6000, 7000}, {7999, 8000}} {
		p, begun, _, _ := core.Begin(c.at * ms)
		require.True(t, begun)
		core.Record(c.at*ms, p, true)
		require.Equal(t, c.next*ms, core.NextProbe())
		_, begun, _, _ = core.Begin(c.at * ms)
		require.False(t, begun, "no burst")
	}
}

func TestCancelIsNeutral(t *testing.T) {
	core, _, _ := script(t, echofront(3, 2), "FF")
	at := core.NextProbe()
	p, _, _, _ := core.Begin(at)
	_, changed := core.Cancel(at, p)
	require.False(t, changed)
	_, changed = core.Record(at, p, false)
	require.False(t, changed, "settled once")
	require.Equal(t, health.Counts{Failures: 2}, core.Counts(at))
	p, _, _, _ = core.Begin(core.NextProbe())
	_, changed = core.Record(core.NextProbe()-1, p, false)
	require.True(t, changed, "the run of failures went on")
	_, changed = core.Record(core.NextProbe(), health.Probe{}, true)
	require.False(t, changed, "the zero Probe names none")
}

func TestEndsOfTime(t *testing.T) {
	const end = int64(math.MaxInt64)
	forever := health.Config{Interval: math.MaxInt64, Timeout: math.MaxInt64}
	core := health.NewCore(forever, 5)
	p, begun, _, _ := core.Begin(5)
	require.True(t, begun)
	require.Equal(t, end, p.Deadline)
	require.Equal(t, health.Unknown, core.State(end), "no deadline within the timeline")
	ch, changed := core.Record(end, p, true)
	require.True(t, changed)
	require.Equal(t, end, ch.At)
	require.Equal(t, end, core.NextProbe())
	require.False(t, core.Due(end))
	_, begun, _, _ = core.Begin(end)
	require.False(t, begun)
	saved := core.AppendState(nil, end)
	other := health.NewCore(forever, 0)
	_, err := other.RestoreState(saved, end)
	require.NoError(t, err)
	require.Equal(t, saved, other.AppendState(nil, end))

	// A probe in flight at the very end, without a deadline.
	core = health.NewCore(forever, 5)
	_, _, _, _ = core.Begin(5)
	core.Poll(end)
	saved = core.AppendState(nil, end)
	_, err = other.RestoreState(saved, end)
	require.NoError(t, err)
	require.Equal(t, saved, other.AppendState(nil, end))

	for _, interval := range []time.Duration{3, 4, 5} {
		core = health.NewCore(health.Config{Interval: interval}, math.MinInt64)
		p, begun, _, _ = core.Begin(end - 1)
		require.True(t, begun)
		core.Cancel(end-1, p)
		require.Equal(t, end, core.NextProbe(), "the grid ends with the timeline")
	}
	core = health.NewCore(forever, math.MinInt64)
	_, begun, _, _ = core.Begin(math.MinInt64)
	require.True(t, begun)
	require.Equal(t, int64(-1), core.NextProbe())
}

func TestTimeDoesNotRunBackwards(t *testing.T) {
	core := health.NewCore(health.Config{Interval: 10, Timeout: 5, Fall: 1, StartHealthy: true}, 0)
	p, _, _, _ := core.Begin(3)
	core.Poll(7)
	_, changed := core.Record(1, p, true)
	require.False(t, changed)
	require.Equal(t, health.Counts{Passes: 1}, core.Counts(0), "an earlier instant counts as the latest, 7")
	core.Poll(10)
	require.True(t, core.Due(0))
	require.Equal(t, core.AppendState(nil, 10), core.AppendState(nil, 4), "a save is a read")
}

func TestConfig(t *testing.T) {
	require.NoError(t, health.Config{}.Validate())
	for _, c := range []struct {
		cfg  health.Config
		want string
	}{
		{health.Config{Interval: -time.Second}, "health: Config.Interval is -1s, want >= 0"},
		{health.Config{Timeout: -1}, "health: Config.Timeout is -1ns, want >= 0"},
		{health.Config{SlowAfter: -1}, "health: Config.SlowAfter is -1ns, want >= 0"},
		{health.Config{Fall: -1}, "health: Config.Fall is -1, want >= 0"},
		{health.Config{Rise: -2}, "health: Config.Rise is -2, want >= 0"},
		{health.Config{First: 2}, "health: Config.First is 2, want Immediate or AfterInterval"},
	} {
		err := c.cfg.Validate()
		require.EqualError(t, err, c.want)
		require.ErrorIs(t, err, health.ErrConfig)
		require.PanicsWithError(t, c.want, func() { health.NewCore(c.cfg, 0) })
		require.PanicsWithError(t, c.want, func() { health.NewChecker(c.cfg, time.Time{}) })
	}
	// The documented defaults.
	core := health.NewCore(health.Config{}, 0)
	p, _, _, _ := core.Begin(0)
	require.Equal(t, int64(3*time.Second), p.Deadline)
	require.Equal(t, int64(10*time.Second), core.NextChange()+int64(7*time.Second))
	_, changes, _ := script(t, health.Config{}, "PFFFPP")
	require.Equal(t, []int{1, 3, 2}, []int{changes[0].Run, changes[1].Run, changes[2].Run})
	require.Equal(t, int64(10*time.Second), changes[1].At/3)
	short := health.NewCore(health.Config{Interval: time.Second}, 0)
	p, _, _, _ = short.Begin(0)
	require.Equal(t, int64(time.Second), p.Deadline)
}

func TestStrings(t *testing.T) {
	require.Equal(t, "unknown healthy unhealthy State(3)", health.Unknown.String()+" "+health.Healthy.String()+" "+health.Unhealthy.String()+" "+health.State(3).String())
	require.Equal(t, "passed failed slow timed_out Result(4)", health.Passed.String()+" "+health.Failed.String()+" "+health.Slow.String()+" "+health.TimedOut.String()+" "+health.Result(4).String())
	require.Equal(t, "immediate after_interval FirstProbe(2)", health.Immediate.String()+" "+health.AfterInterval.String()+" "+health.FirstProbe(2).String())
}

func TestStatusSet(t *testing.T) {
	for text, want := range map[string]string{
		"2xx, 3xx": "200-399", "204,200,201": "200-201,204", "<500": "100-499", "599,100": "100,599", "5xx,304": "304,500-599",
	} {
		set, err := health.ParseStatusSet(text)
		require.NoError(t, err)
		require.Equal(t, want, set.String())
	}
	require.Equal(t, "200-399", health.StatusSet{}.String())
	for _, text := range []string{"", ",", "200,", "0xx", "6xx", "-1xx", "xx", "20", "099", "600", "+20", "299-200", "200-", "-200", "<100", "<1000", "<", "200-600", "2XX", "abc", "200 204"} {
		set := health.StatusSet{}
		require.ErrorIs(t, set.UnmarshalText([]byte(text)), health.ErrStatusSet, "%q", text)
		require.Equal(t, health.StatusSet{}, set)
	}
}

func TestStatusSetReadsWhatItWrites(t *testing.T) {
	checkSeeded(t, 2, func(t *rapid.T) {
		text := ""
		for i := range rapid.IntRange(1, 5).Draw(t, "items") {
			low := rapid.IntRange(100, 599).Draw(t, "low")
			high := rapid.IntRange(low, 599).Draw(t, "high")
			if i > 0 {
				text += ","
			}
			text += fmt.Sprintf("%d-%d", low, high)
		}
		set, err := health.ParseStatusSet(text)
		if err != nil {
			t.Fatal(err)
		}
		out, err := set.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var again health.StatusSet
		if err := again.UnmarshalText(out); err != nil || again != set {
			t.Fatalf("%s became %s: %v", text, out, err)
		}
	})
}

func TestRestoreRefusesWhatItCannotReach(t *testing.T) {
	cfg := health.Config{Interval: 10, Timeout: 5, Fall: 2, Rise: 2}
	core := health.NewCore(cfg, 0)
	p, _, _, _ := core.Begin(0)
	core.Record(1, p, true)
	p, _, _, _ = core.Begin(10)
	core.Record(11, p, false)
	core.Begin(20)
	saved := core.AppendState(nil, 22)
	for n := range saved {
		fresh := health.NewCore(cfg, 7)
		before := fresh
		_, err := fresh.RestoreState(saved[:n], 22)
		require.ErrorIs(t, err, health.ErrState, "cut at %d", n)
		require.Equal(t, before, fresh)
	}
	for _, c := range []struct {
		at   int
		to   byte
		what string
	}{
		{0, 2, "version"}, {1, 3, "state"}, {2, 8, "flags"}, {2, 4, "no deadline of no probe"},
		{3, 2, "a run that has reached its threshold"}, {4, 0, "probe number zero"}, {7, 2, "latest after the save"},
		{9, 2, "begun after the save"}, {10, 3, "a deadline that has passed"},
		{8, 18, "a grid point more than an interval away"}, {10, 8, "a deadline later than the timeout"},
	} {
		bad := append([]byte(nil), saved...)
		bad[c.at] = c.to
		fresh := health.NewCore(cfg, 7)
		before := fresh
		_, err := fresh.RestoreState(bad, 22)
		require.True(t, errors.Is(err, health.ErrState), "%s: %v", c.what, err)
		require.Equal(t, before, fresh)
	}
	one := health.NewCore(health.Config{Fall: 1}, 0)
	_, err := one.RestoreState(saved, 22)
	require.ErrorIs(t, err, health.ErrState, "saved under another configuration")
}

func TestCheckerFollowsTheCore(t *testing.T) {
	base := time.Unix(1000, 0)
	cfg := health.Config{Interval: time.Second, Fall: 1, Rise: 1}
	c := health.NewChecker(cfg, base)
	next, ok := c.Next()
	require.True(t, ok)
	require.True(t, next.Equal(base))
	p, begun, _, _ := c.Begin(base)
	require.True(t, begun)
	require.True(t, c.Time(p.Deadline).Equal(base.Add(time.Second)))
	next, _ = c.Next()
	require.True(t, next.Equal(base.Add(time.Second)))
	ch, changed := c.Record(base.Add(time.Millisecond), p, true)
	require.True(t, changed)
	require.True(t, c.Time(ch.At).Equal(base.Add(time.Millisecond)))
	require.True(t, c.Healthy(base))
	p, _, _, _ = c.Begin(base.Add(time.Second))
	_, changed = c.Cancel(base.Add(time.Second), p)
	require.False(t, changed)
	_, begun, _, _ = c.Begin(base.Add(2 * time.Second))
	require.True(t, begun)
	require.Equal(t, health.Unhealthy, c.State(base.Add(3*time.Second)))
	require.Equal(t, health.Counts{Passes: 1, Failures: 1}, c.Counts(base.Add(3*time.Second)))
	ch, changed = c.Poll(base.Add(time.Hour))
	require.True(t, changed)
	require.True(t, c.Time(ch.At).Equal(base.Add(3*time.Second)))

	never := health.NewChecker(health.Config{Interval: math.MaxInt64, First: health.AfterInterval}, base)
	_, ok = never.Next()
	require.False(t, ok)
	require.True(t, never.Time(math.MaxInt64).IsZero())
}

func TestNothingIsAllocated(t *testing.T) {
	base := time.Unix(1000, 0)
	c := health.NewChecker(health.Config{Interval: 1, Fall: 1, Rise: 1}, base)
	now := base
	ok := false
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now, ok = now.Add(1), !ok
		p, _, _, _ := c.Begin(now)
		c.Record(now, p, ok)
		c.Poll(now)
		_ = c.Healthy(now)
		_, _ = c.Next()
	}))
}
