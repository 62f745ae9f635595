package outlier_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

func TestRamp(t *testing.T) {
	cfg := fixed(1, 4*time.Second)
	cfg.Return, cfg.RampFrom, cfg.RampGrowth = outlier.Ramp, 100, 3000
	r := newRig(t, sec, 2, cfg)
	r.rec(1, 0, failure)
	weights := func() (list []int) {
		for at := int64(4); at <= 9; at++ {
			list = append(list, r.c.Weight(at*sec, r.hosts[0]))
		}
		return list
	}
	want := []int{0, 100, 300, 900, 1000, 1000}
	require.Equal(t, want, weights(), "read ahead")
	require.Equal(t, 1000, r.hosts[0].Ramp(), "it is out")
	require.Equal(t, 5*sec, r.c.NextChange())
	r.c.Poll(6 * sec)
	require.Equal(t, 7*sec, r.c.NextChange())
	require.Equal(t, want[3:], weights()[3:], "read from the middle")
	require.Equal(t, 300, r.hosts[0].Ramp())
	r.c.Poll(100 * sec)
	require.Equal(t, int64(math.MaxInt64), r.c.NextChange())
	var at []int64
	var got []int
	for _, ch := range r.drain()[1:] {
		at, got = append(at, ch.At/sec), append(got, ch.Weight)
	}
	require.Equal(t, []int64{5, 6, 7, 8}, at)
	require.Equal(t, want[1:5], got)

	// Ejected in the middle of the ramp, and after it.
	r.rec(101, 0, failure)
	r.c.Poll(106 * sec)
	require.Equal(t, 300, r.c.Weight(106*sec, r.hosts[0]))
	r.rec(106, 0, failure)
	require.Equal(t, 110*sec, r.c.NextChange())
	require.Zero(t, r.c.Weight(109*sec, r.hosts[0]))
	require.Equal(t, 100, r.c.Weight(110*sec, r.hosts[0]))
	_, err := r.c.RestoreState(r.c.AppendState(nil, 106*sec, r.hosts), 106*sec, r.hosts)
	require.NoError(t, err, "out, and on no ramp")

	// At the end of time nothing loops.
	r = newRig(t, 1, 2, cfg)
	r.rec(math.MaxInt64-5, 0, failure)
	r.c.Poll(math.MaxInt64)
	require.False(t, r.hosts[0].Ejected())
	require.NotZero(t, r.c.Weight(math.MaxInt64, r.hosts[0]))
}

func TestShadow(t *testing.T) {
	cfg := outlier.Config{Shadow: true, Return: outlier.Ramp}
	r := newRig(t, sec, 4, cfg)
	live := cfg
	live.Shadow = false
	real := newRig(t, sec, 4, live)
	for _, r := range []*rig{r, real} {
		for i := range 4 {
			r.mixed(1, i, 0, 50) // caps as in earnest: two
		}
		r.c.Poll(35 * sec)
		r.mixed(36, 0, 0, 5)
		r.c.Poll(200 * sec)
	}
	require.Zero(t, r.c.EjectedCount())
	got, want := r.drain(), real.drain()
	var kept []outlier.Change
	for _, ch := range want {
		if ch.Kind != outlier.Stepped { // a host that never left has no ramp
			kept = append(kept, ch)
		}
	}
	require.Len(t, got, len(kept))
	for i, ch := range got {
		require.Equal(t, 1000, ch.Weight, "full weight all along")
		twin := kept[i]
		switch twin.Kind {
		case outlier.Ejected:
			require.Equal(t, outlier.WouldEject, ch.Kind)
		case outlier.Returned:
			require.Equal(t, outlier.WouldReturn, ch.Kind)
		default:
			require.Equal(t, twin.Kind, ch.Kind)
		}
		require.Equal(t, []int64{twin.At, twin.Until}, []int64{ch.At, ch.Until})
		require.Equal(t, twin.Count, ch.Count)
	}

	// While it would be out, the host is not.
	r = newRig(t, sec, 2, cfg)
	r.mixed(1, 0, 0, 5)
	r.want(1)
	require.False(t, r.hosts[0].Ejected())
	require.Equal(t, 1000, r.c.Weight(2*sec, r.hosts[0]))
	// In earnest from now on: what would have been out is forgotten.
	r.c.Configure(3*sec, live)
	ch := r.drain()
	require.Equal(t, outlier.WouldReturn, ch[1].Kind)
	require.Equal(t, outlier.CauseForget, ch[1].Cause)
	r.mixed(4, 0, 0, 5)
	r.want(4, 0)
	require.Equal(t, 34*sec, r.hosts[0].Until())
}

// TestSparedOnce: a refusal is news once per run, and the evidence stands.
func TestSparedOnce(t *testing.T) {
	r := newRig(t, sec, 2, outlier.Config{Consecutive: 2})
	r.rec(1, 0, failure, failure)
	r.rec(1, 1, failure, failure, failure, failure)
	require.Equal(t, []int{1}, r.kinds(outlier.Spared))
	r.rec(2, 1, success, failure)
	require.Empty(t, r.drain())
	r.rec(2, 1, failure)
	require.Equal(t, []int{1}, r.kinds(outlier.Spared))
	r.want(31)
	r.rec(31, 1, failure) // the cap is free again; the run went on
	r.want(31, 1)
}

// TestSparedPerRule: what ends the run of each rule, after which its refusal is
// news again. A digit in a script is how many refusals were reported so far.
func TestSparedPerRule(t *testing.T) {
	for script, cfg := range map[string]outlier.Config{
		"FF1F1GT1S1F1F2":   {Consecutive: 2},
		"GG1G1TG1F1G1G2":   {Consecutive: -1, ConsecutiveGateway: 2},
		"TT1T1G1T1T2F2TT3": {Consecutive: -1, ConsecutiveTransport: 2},
		"FF1F1S1F1.FF2F2.": {
			Consecutive: -1, FailurePercentage: outlier.FailurePercentage{On: true, Inline: true, Threshold: 50, MinRequests: 2},
		},
		"FF0.1FF1.2FS2.3SSF3.3": {
			Consecutive: -1, FailurePercentage: outlier.FailurePercentage{On: true, Threshold: 50, MinRequests: 2, MinHosts: 1},
		},
		"FF0.1FF1.2SS2.2": {
			Consecutive: -1, SuccessRate: outlier.SuccessRate{On: true, MinRequests: 2, MinHosts: 2, MinFailures: 1},
		},
	} {
		cfg.MaxEjectedPercent = 1
		r := newRig(t, sec, 9, cfg)
		at, got := int64(0), 0
		for n, x := range script {
			switch x {
			case 'S', 'F', 'G', 'T':
				r.rec(at, 0, map[rune]outlier.Outcome{'S': success, 'F': failure, 'G': gateway, 'T': transport}[x])
				for i := 1; i < 9; i++ {
					r.rec(at, i, success)
				}
			case '.':
				at += 10
				r.c.Poll(at * sec)
			default:
				got += len(r.kinds(outlier.Spared))
				require.Equal(t, int(x-'0'), got, "%s at %d", script, n)
			}
		}
	}

	// A slow period, and an ejection, end it too; a sample within the line ends the
	// period.
	lat := outlier.Latency{On: true, Alpha: 1000, MinSamples: 1, Window: time.Second}
	r := newRig(t, sec, 2, outlier.Config{Latency: lat, MaxEjectedPercent: 1})
	r.slow(0, 1, 10)
	for at, d := range []time.Duration{31, 31, 31, 30, 31, 31, 31} {
		r.slow(int64(at), 0, d)
	}
	var at []int64
	for _, ch := range r.drain() {
		require.Equal(t, outlier.Spared, ch.Kind)
		at = append(at, ch.At/sec)
	}
	require.Equal(t, []int64{1, 5}, at)

	r = newRig(t, sec, 2, outlier.Config{Consecutive: 1})
	r.rec(0, 0, failure)
	r.rec(0, 1, failure) // refused
	r.rec(30, 1, failure)
	r.rec(30, 0, failure) // refused
	r.rec(60, 0, failure)
	r.rec(60, 1, failure) // refused, without a success since the first time
	require.Equal(t, []int{1, 0, 1}, r.kinds(outlier.Spared))
}

// TestUnenforcedLatency: a verdict that is let pass starts the slow period anew.
func TestUnenforcedLatency(t *testing.T) {
	lat := outlier.Latency{On: true, Alpha: 1000, MinSamples: 1, Window: 3 * time.Second, Enforce: -1}
	r := newRig(t, sec, 2, outlier.Config{Latency: lat})
	r.slow(0, 1, 10)
	for at := range int64(13) {
		r.slow(at, 0, 31)
	}
	var at []int64
	for _, ch := range r.drain() {
		require.Equal(t, outlier.WouldEject, ch.Kind)
		at = append(at, ch.At/sec)
	}
	require.Equal(t, []int64{3, 7, 11}, at)
}

// TestOrder: changes of one instant come by Index, whatever the order of the
// causes and however the owner renumbers.
func TestOrder(t *testing.T) {
	r := newRig(t, sec, 6, all(outlier.Config{Consecutive: 1}))
	for _, i := range []int{3, 0, 5, 1} {
		r.rec(1, i, failure)
	}
	r.drain()
	r.hosts[0].Index, r.hosts[5].Index = 5, 0
	r.c.Poll(31 * sec)
	var order []*outlier.Host
	for _, ch := range r.drain() {
		order = append(order, ch.Host)
	}
	require.Equal(t, []*outlier.Host{r.hosts[5], r.hosts[1], r.hosts[3], r.hosts[0]}, order)

	// A late input makes everything in the order of the due times, a sweep after
	// the returns of its instant.
	cfg := fixed(3, 9*time.Second)
	cfg.FailurePercentage = outlier.FailurePercentage{On: true, MinHosts: 1, MinRequests: 4, Threshold: 50}
	r = newRig(t, sec, 4, cfg)
	r.rec(1, 2, failure, failure, failure)
	r.rec(1, 1, failure, failure, success, failure, failure)
	r.rec(1, 0, failure, success, success, failure)
	r.c.Poll(1000 * sec)
	type line struct {
		at    int64
		index int
		kind  outlier.Kind
	}
	var got []line
	for _, ch := range r.drain() {
		got = append(got, line{ch.At / sec, ch.Host.Index, ch.Kind})
	}
	require.Equal(t, []line{
		{1, 2, outlier.Ejected}, {10, 2, outlier.Returned},
		{10, 0, outlier.Ejected}, {10, 1, outlier.Ejected},
		{19, 0, outlier.Returned}, {19, 1, outlier.Returned},
	}, got)
}

// TestWorstFirst: where a sweep may not eject all, it ejects the worst.
func TestWorstFirst(t *testing.T) {
	r := newRig(t, sec, 5, outlier.Config{
		Consecutive: -1, MaxEjectedPercent: 40,
		FailurePercentage: outlier.FailurePercentage{On: true, MinHosts: 1, MinRequests: 10, Threshold: 50},
	})
	for i, bad := range []int{5, 9, 6, 7, 0} {
		r.mixed(1, i, 10-bad, bad)
	}
	r.sweep(10, 1, 3)
	require.Equal(t, []int{0, 2}, r.kinds(outlier.Spared))

	// Among equals the numbers of the moment decide.
	r = newRig(t, sec, 5, outlier.Config{
		Consecutive: -1, MaxEjectedPercent: 40,
		FailurePercentage: outlier.FailurePercentage{On: true, MinHosts: 1, MinRequests: 10, Threshold: 50},
	})
	for i := range 5 {
		r.mixed(1, i, 0, 10)
	}
	for i, h := range r.hosts {
		h.Index = 10 - i
	}
	r.c.Poll(10 * sec)
	require.Equal(t, []int{6, 7}, r.kinds(outlier.Ejected))
}

// TestDeadBound: the dead-host rule holds up to its rate, and only below half of
// the mean.
func TestDeadBound(t *testing.T) {
	for _, c := range []struct{ good, others, out int }{
		{100, 1000, 3}, {101, 1000, 0}, {100, 201, 0}, {100, 350, 3},
	} {
		r := newRig(t, sec, 10, rates(false))
		for i := range 10 {
			good := c.others
			if i < 3 { // too many for the statistic
				good = c.good
			}
			r.mixed(1, i, good, 1000-good)
		}
		r.c.Poll(10 * sec)
		require.Equal(t, c.out, r.c.EjectedCount(), "%+v", c)
	}
}

// TestForget: everything goes but the members.
func TestForget(t *testing.T) {
	cfg := outlier.Config{Return: outlier.Ramp, Latency: outlier.Latency{On: true, MinSamples: 1, KeepScore: true, Baseline: outlier.BaselineMedian}}
	r := newRig(t, sec, 4, cfg)
	for i := range 4 {
		r.slow(0, i, time.Duration(i))
	}
	r.mixed(0, 1, 0, 5)
	r.want(30)
	r.mixed(30, 0, 0, 5)
	r.mixed(30, 2, 0, 4)
	r.drain()
	r.c.Forget(30 * sec)
	ch := r.drain()
	require.Len(t, ch, 2)
	require.Equal(t, outlier.Returned, ch[0].Kind)
	require.Equal(t, outlier.Stepped, ch[1].Kind)
	for _, ch := range ch {
		require.Equal(t, outlier.CauseForget, ch.Cause)
		require.Equal(t, 1000, ch.Weight)
	}
	for _, h := range r.hosts {
		_, measured := h.Score()
		require.False(t, measured)
		require.Zero(t, h.Streak()+r.c.Count(30*sec, h))
	}
	require.Equal(t, int64(math.MaxInt64), r.c.NextChange())
	r.rec(30, 2, failure)
	r.want(30)
}

// TestConfigure: what a change of settings keeps.
func TestConfigure(t *testing.T) {
	cfg := outlier.Config{Return: outlier.Ramp, Latency: outlier.Latency{On: true, MinSamples: 2}}
	r := newRig(t, sec, 6, cfg)
	r.mixed(0, 0, 0, 5)
	r.mixed(5, 1, 0, 4)
	for i := 1; i < 5; i++ {
		r.slow(5, i, 10)
	}
	r.mixed(5, 1, 0, 4)
	r.drain()
	cfg.Consecutive, cfg.Base = 4, 7*time.Second
	cfg.Latency.MinSamples, cfg.Latency.Baseline = 1, outlier.BaselineMedian
	r.c.Configure(6*sec, cfg)
	require.Empty(t, r.drain())
	r.want(29, 0) // ends when it was going to
	r.want(30)
	r.rec(30, 1, failure) // the fifth in a row, the limit being four
	r.want(30, 1)
	require.Equal(t, 37*sec, r.hosts[1].Until())
	require.Equal(t, 250, r.c.Weight(30*sec, r.hosts[0]))
	r.drain()
	cfg.Return = outlier.Clean // no ramps any more
	r.c.Configure(30*sec, cfg)
	require.Equal(t, []int{0}, r.kinds(outlier.Stepped))
	require.Equal(t, 1000, r.c.Weight(30*sec, r.hosts[0]))
	require.Equal(t, 37*sec, r.c.NextChange())
}

// TestConfigureForgets: the grid of a new interval holds at once, and a rule that
// was off for a while begins anew.
func TestConfigureForgets(t *testing.T) {
	cfg := outlier.Config{FailurePercentage: outlier.FailurePercentage{On: true}}
	r := newRig(t, sec, 2, cfg)
	r.rec(1, 0, failure)
	require.Equal(t, 10*sec, r.c.NextChange())
	cfg.Interval = 4 * time.Second
	r.c.Configure(3*sec, cfg)
	require.Equal(t, 4*sec, r.c.NextChange())
	r.c.Configure(3*sec, outlier.Config{})
	require.Equal(t, int64(math.MaxInt64), r.c.NextChange())

	// A probation that the new Config knows nothing of is over, as is a ramp.
	for ret, out := range map[outlier.ReturnMode]int{outlier.Probation: 1, outlier.Clean: 0, outlier.Ramp: 0} {
		r = newRig(t, sec, 2, outlier.Config{Return: outlier.Probation})
		r.mixed(0, 0, 0, 5)
		r.c.Configure(31*sec, outlier.Config{Return: ret})
		r.rec(32, 0, failure)
		require.Equal(t, out, r.c.EjectedCount(), ret)
	}

	cfg = outlier.Config{Latency: outlier.Latency{On: true, Alpha: 1000, MinSamples: 1, Window: 3 * time.Second}}
	r = newRig(t, sec, 2, cfg)
	r.slow(0, 1, 10)
	r.slow(0, 0, 31)
	r.c.Configure(1*sec, outlier.Config{})
	r.c.Configure(2*sec, cfg)
	r.slow(10, 1, 10)
	for at := int64(10); at < 13; at++ {
		r.slow(at, 0, 31)
		r.want(at)
	}
	r.slow(13, 0, 31)
	r.want(13, 0)
}

// TestTime: inputs never go back, reads change nothing.
func TestTime(t *testing.T) {
	r := newRig(t, sec, 2, outlier.Config{})
	r.mixed(10, 0, 0, 4)
	r.late(3, 0, 3, failure) // counts as coming at 10
	require.Equal(t, 40*sec, r.hosts[0].Until())
	require.True(t, r.c.EjectedAt(0, r.hosts[0]), "the latest time counts")
	for range 3 {
		require.False(t, r.c.EjectedAt(40*sec, r.hosts[0]))
		require.True(t, r.c.EjectedAt(39*sec, r.hosts[0]))
		require.Equal(t, 1000, r.c.Weight(40*sec, r.hosts[0]))
		require.Zero(t, r.c.Count(1000*sec, r.hosts[0]))
	}
	require.True(t, r.hosts[0].Ejected())
	require.Len(t, r.drain(), 1)

	// A timeline may begin below zero.
	c := outlier.NewCore(outlier.Config{Consecutive: 1, FailurePercentage: outlier.FailurePercentage{On: true}}, 1)
	var a, b outlier.Host
	b.Index = 1
	c.Add(math.MinInt64, &a, 1)
	c.Add(math.MinInt64, &b, 2)
	c.Record(math.MinInt64+5, &a, math.MinInt64, failure, -1)
	require.Equal(t, math.MinInt64+5+30*sec, a.Until())
	c.Poll(math.MaxInt64)
	require.False(t, a.Ejected())
	require.Zero(t, c.Count(math.MaxInt64, &a), "forgiven long ago")
}

// TestNextChange: whatever is planned and dropped, the next change is the
// earliest, and the returns come in the order of their times.
func TestNextChange(t *testing.T) {
	const n = 60
	seed, _ := seedOf(t, 1)
	r := newRig(t, 1, n, all(outlier.Config{Consecutive: 1, Jitter: time.Minute}))
	out := map[*outlier.Host]bool{}
	now := int64(0)
	for step := range uint64(opsOf(t, 20_000)) {
		x := outlier.Draw(seed, 0, step)
		h := r.hosts[x%n]
		now += int64(x >> 40 % uint64(sec))
		if now >= r.c.NextChange() {
			r.c.Poll(now)
			last := int64(0)
			for _, ch := range r.drain() {
				if ch.Kind == outlier.Returned {
					require.LessOrEqual(t, last, ch.At)
					require.Equal(t, ch.Host.Until(), ch.At)
					last = ch.At
					delete(out, ch.Host)
				}
			}
		}
		switch {
		case !out[h]:
			r.c.Record(now, h, now, failure, -1)
			out[h] = true
		case x>>32%2 == 0:
			r.c.Uneject(now, h)
			delete(out, h)
		default:
			r.c.Remove(now, h)
			r.c.Add(now, h, uint64(h.Index))
			delete(out, h)
		}
		r.drain()
		next := int64(math.MaxInt64)
		for h := range out {
			next = min(next, h.Until())
		}
		if got := r.c.NextChange(); got != next {
			t.Fatalf("step %d: next change %d, want %d", step, got, next)
		}
	}
}

// TestUsableMovesNoEjection: whether a host can serve and whether it is ejected are
// two questions; an answer to one does not change that to the other.
func TestUsableMovesNoEjection(t *testing.T) {
	r := newRig(t, sec, 3, outlier.Config{})
	r.mixed(0, 0, 0, 5)
	for _, can := range []bool{false, false, true} {
		r.c.SetUsable(1*sec, r.hosts[0], can)
		r.want(1, 0)
		require.Equal(t, 30*sec, r.hosts[0].Until())
	}
	r.c.SetUsable(2*sec, r.hosts[0], false)
	r.want(29, 0)
	r.want(30)
	require.Equal(t, 2, r.c.UsableCount(), "its ejection ended; it is still down")
	r.c.SetUsable(31*sec, r.hosts[1], false)
	r.want(31)
}

// TestMembership: adding twice, results of strangers.
func TestMembership(t *testing.T) {
	r := newRig(t, sec, 2, outlier.Config{})
	r.mixed(0, 0, 0, 4)
	r.c.Add(0, r.hosts[0], 99)
	require.Equal(t, 4, r.hosts[0].Streak())
	require.Equal(t, 2, r.c.Len())
	var stranger outlier.Host
	r.c.Record(0, &stranger, 0, failure, 1)
	r.c.SetUsable(0, &stranger, true)
	r.c.Remove(0, &stranger)
	require.False(t, r.c.Uneject(0, &stranger))
	require.Equal(t, 2, r.c.Len())
	require.Equal(t, 2, r.c.UsableCount())
}

// TestEqualHosts: hosts that do equally badly or slowly are no outliers, whatever
// they do; making a bad host worse never costs a better one its place.
func TestEqualHosts(t *testing.T) {
	for bad := range 101 {
		cfg := rates(false)
		cfg.Latency = outlier.Latency{On: true, MinSamples: 1, Window: 1}
		r := newRig(t, sec, 10, cfg)
		for n := range 100 {
			for i := range 10 {
				if n < bad {
					r.rec(1, i, failure)
				} else {
					r.slow(1, i, time.Duration(bad)*time.Second)
				}
			}
		}
		r.sweep(10)
	}
	for worse := 50; worse <= 100; worse++ {
		r := newRig(t, sec, 10, rates(false))
		for i := range 10 {
			r.mixed(1, i, 95, 5)
		}
		r.mixed(1, 1, 0, 20)
		r.mixed(1, 0, 0, worse)
		r.c.Poll(10 * sec)
		require.True(t, r.hosts[0].Ejected())
		for _, h := range r.hosts[2:] {
			require.False(t, h.Ejected())
		}
	}
}

// TestQueueIsReused: an owner that is always a change behind does not make the
// queue grow, and gets every change in order.
func TestQueueIsReused(t *testing.T) {
	r := newRig(t, 1, 3, outlier.Config{Consecutive: 1, Base: 1, Max: 1})
	at, popped := int64(0), 0
	for range 5000 {
		r.c.Record(at, r.hosts[0], at, failure, -1)
		at++
		r.c.Poll(at)
		for range 2 {
			if popped++; popped == 1 {
				continue // falls one behind
			}
			ch, ok := r.c.Pop()
			require.True(t, ok)
			want := outlier.Ejected
			if popped%2 == 1 {
				want = outlier.Returned
			}
			require.Equal(t, want, ch.Kind)
			require.Equal(t, int64(popped-1)/2, ch.At)
		}
	}
	require.Less(t, outlier.Waiting(r.c), 64)
}

func TestNames(t *testing.T) {
	require.Equal(t, "would eject", outlier.WouldEject.String())
	require.Equal(t, "latency", outlier.RuleLatency.String())
	require.Equal(t, "forget", outlier.CauseForget.String())
	require.Equal(t, "none", outlier.Kind(0).String())
	require.Equal(t, "unknown", outlier.Rule(99).String())
}
