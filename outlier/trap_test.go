package outlier_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// rates is a configuration with only the statistical rule and a sweep each ten
// seconds; bare switches its absolute companions off.
func rates(bare bool) outlier.Config {
	cfg := outlier.Config{Consecutive: -1, SuccessRate: outlier.SuccessRate{On: true}}
	if bare {
		cfg.SuccessRate.MinFailures = -1
		cfg.SuccessRate.Tolerate = -1
		cfg.SuccessRate.Dead = -1
	}
	return cfg
}

// TestTraps holds faults known from public reports of other systems.
func TestTraps(t *testing.T) {
	t.Run("A-OU-01", func(t *testing.T) {
		for _, c := range []struct{ hosts, percent, out int }{{3, 67, 2}, {3, 66, 1}, {3, 50, 1}} {
			r := newRig(t, sec, c.hosts, outlier.Config{MaxEjectedPercent: c.percent, Last: outlier.EjectLast})
			for i := range c.hosts {
				r.mixed(0, i, 0, 20)
			}
			require.Equal(t, c.out, r.c.EjectedCount(), "%+v", c)
			for _, ch := range r.drain() {
				want := outlier.Ejected
				if ch.Host.Index >= c.out {
					want = outlier.Spared
					require.Equal(t, outlier.CausePercent, ch.Cause)
				}
				require.Equal(t, want, ch.Kind)
			}
		}
	})
	t.Run("A-OU-02", func(t *testing.T) {
		// How many of n failing hosts go, for each cap, strict and with one allowed.
		for _, c := range []struct{ hosts, percent, strict, one int }{
			{1, 100, 0, 0}, {2, 100, 1, 1}, {3, 100, 2, 2}, {9, 100, 8, 8}, {10, 100, 9, 9},
			{1, 10, 0, 0}, {2, 10, 0, 1}, {3, 10, 0, 1}, {9, 10, 0, 1}, {10, 10, 1, 1},
			{2, 50, 1, 1}, {3, 50, 1, 1}, {9, 50, 4, 4}, {10, 50, 5, 5}, {10, 49, 4, 4},
		} {
			for _, one := range []bool{false, true} {
				want := c.strict
				if one {
					want = c.one
				}
				r := newRig(t, sec, c.hosts, outlier.Config{MaxEjectedPercent: c.percent, EjectOne: one})
				for i := range c.hosts {
					r.mixed(0, i, 0, 50)
				}
				require.Equal(t, want, r.c.EjectedCount(), "%+v one=%v", c, one)
			}
		}
		// The last one goes only if asked for.
		for last, want := range map[outlier.LastRule]int{outlier.KeepLast: 0, outlier.KeepSole: 0, outlier.EjectLast: 1} {
			r := newRig(t, sec, 1, outlier.Config{MaxEjectedPercent: 100, Last: last})
			r.mixed(0, 0, 0, 50)
			require.Equal(t, want, r.c.EjectedCount(), last)
			spared := r.kinds(outlier.Spared)
			require.Len(t, spared, 1-want, "reported once, not fifty times")
		}
		r := newRig(t, sec, 3, outlier.Config{MaxEjectedPercent: 100, Last: outlier.KeepSole})
		for i := range 3 {
			r.mixed(0, i, 0, 5)
		}
		r.want(0, 0, 1, 2)
	})
	t.Run("A-OU-03", func(t *testing.T) {
		for _, on := range []bool{false, true} {
			r := newRig(t, sec, 2, outlier.Config{ProbeEnds: on})
			r.mixed(0, 0, 0, 5)
			require.False(t, r.c.Probed(1*sec, r.hosts[0], false))
			r.want(1, 0)
			require.Equal(t, on, r.c.Probed(2*sec, r.hosts[0], true))
			if !on {
				r.want(29, 0)
				r.want(30)
				continue
			}
			r.want(2)
			ch := r.drain()
			require.Equal(t, outlier.CauseProbe, ch[1].Cause)
			require.Equal(t, 2*sec, ch[1].At)
			require.Equal(t, int64(math.MaxInt64), r.c.NextChange())
			r.c.Poll(100 * sec)
			require.Empty(t, r.drain(), "the planned end is gone")
		}
		r := newRig(t, sec, 2, outlier.Config{})
		r.mixed(0, 0, 0, 5)
		require.True(t, r.c.Uneject(3*sec, r.hosts[0]))
		require.False(t, r.c.Uneject(3*sec, r.hosts[0]))
		r.want(3)
	})
	t.Run("A-OU-04", func(t *testing.T) {
		r := newRig(t, sec, 2, fixed(3, 5*time.Second))
		r.mixed(0, 0, 0, 3)
		r.want(0, 0)
		r.late(2, 0, 0, failure)
		r.late(2, 0, 0, failure)
		r.want(4, 0)
		r.want(5)
		r.late(5, 0, 0, success) // also later stragglers, in either direction
		r.rec(6, 0, failure, failure)
		r.late(6, 0, 4, success)
		r.late(6, 0, 4, failure)
		r.want(6)
		r.rec(6, 0, failure)
		r.want(6, 0)
	})
	t.Run("A-OU-05", func(t *testing.T) {
		// Rules are fields, not a list, so their order cannot matter; that both see
		// one snapshot can be told from the numbers each reports.
		cfg := outlier.Config{
			Consecutive:       -1,
			SuccessRate:       outlier.SuccessRate{On: true, MinRequests: 10},
			FailurePercentage: outlier.FailurePercentage{On: true, MinRequests: 10, Threshold: 85},
			Forgive:           5 * time.Second,
		}
		r := newRig(t, sec, 6, cfg)
		r.mixed(1, 0, 10, 10)
		for i := 1; i < 6; i++ {
			r.mixed(1, i, 20, 0)
		}
		r.sweep(10, 0)
		ch := r.drain()
		require.Len(t, ch, 1)
		require.Equal(t, outlier.RuleSuccessRate, ch[0].Rule)
		require.Equal(t, int64(500_000_000), ch[0].Seen)
		require.Equal(t, 1, r.c.Count(10*sec, r.hosts[0]))

		// Both object: one ejection, one step of the count.
		r = newRig(t, sec, 6, cfg)
		r.mixed(1, 0, 0, 20)
		for i := 1; i < 6; i++ {
			r.mixed(1, i, 20, 0)
		}
		r.sweep(10, 0)
		require.Equal(t, 1, r.hosts[0].Ejections())
		require.Equal(t, 1, r.c.Count(10*sec, r.hosts[0]))
		require.Equal(t, 40*sec, r.hosts[0].Until())

		// Where the statistic passes, the percentage still speaks.
		cfg.SuccessRate.Enforce = -1
		r = newRig(t, sec, 6, cfg)
		r.mixed(1, 0, 0, 20)
		for i := 1; i < 6; i++ {
			r.mixed(1, i, 20, 0)
		}
		r.sweep(10, 0)
		ch = r.drain()
		require.Equal(t, outlier.RuleFailurePercentage, ch[0].Rule)
		require.Equal(t, []int64{20, 20}, []int64{ch[0].Seen, ch[0].Limit})
	})
	t.Run("A-OU-06", func(t *testing.T) {
		cfg := rates(true)
		cfg.SuccessRate.MinHosts = 4
		r := newRig(t, sec, 10, cfg)
		for i, good := range []int{180, 190, 190, 160} {
			r.mixed(1, i, good, 200-good)
		}
		r.rec(1, 5, success)
		r.rec(1, 6, failure) // one error is not a rate of zero
		r.want(10)
		s := r.c.LastSweep()
		require.Equal(t, 4, s.Hosts)
		require.Equal(t, 10*sec, s.At)
		require.Equal(t, int64(900_000_000), s.Mean)
		require.Equal(t, int64(61_237_243), s.Stdev) // sqrt(.00375)
		require.Equal(t, int64(783_649_239), s.Line) // .7836
		require.Less(t, s.Line, int64(800_000_000))  // .80 stays
		require.Empty(t, r.drain())
	})
	t.Run("A-OU-07", func(t *testing.T) {
		r := newRig(t, sec, 2, outlier.Config{})
		r.mixed(0, 0, 0, 5)
		require.Equal(t, 30*sec, r.hosts[0].Until())
		r.mixed(30, 0, 0, 5)
		require.Equal(t, 90*sec, r.hosts[0].Until())
		var counts []int
		for _, at := range []int64{89, 90, 99, 100, 109, 110, 1000} {
			counts = append(counts, r.c.Count(at*sec, r.hosts[0]))
		}
		require.Equal(t, []int{2, 2, 2, 1, 1, 0, 0}, counts)
		r.mixed(110, 0, 0, 5)
		require.Equal(t, 140*sec, r.hosts[0].Until())

		// Forgiven to one, the next is the second again; never, the third.
		for forgive, want := range map[time.Duration]int64{0: 60, -1: 90} {
			r = newRig(t, sec, 2, outlier.Config{Forgive: forgive})
			r.mixed(0, 0, 0, 5)
			r.mixed(30, 0, 0, 5)
			r.mixed(100, 0, 0, 5)
			require.Equal(t, (100+want)*sec, r.hosts[0].Until())
		}

		// The factor stops at the bound, so forgiveness starts there.
		r = newRig(t, sec, 2, outlier.Config{Max: 70 * time.Second})
		var spans []int64
		at := int64(0)
		for range 6 {
			r.mixed(at, 0, 0, 5)
			spans = append(spans, r.hosts[0].Until()/sec-at)
			at = r.hosts[0].Until() / sec
		}
		require.Equal(t, []int64{30, 60, 70, 70, 70, 70}, spans)
		require.Equal(t, 3, r.c.Count(at*sec, r.hosts[0]))
		require.Equal(t, 0, r.c.Count((at+30)*sec, r.hosts[0]))
	})
	t.Run("A-OU-08", func(t *testing.T) {
		r := newRig(t, sec, 2, outlier.Config{
			Consecutive: -1, Interval: time.Minute, Base: 10 * time.Second,
			FailurePercentage: outlier.FailurePercentage{On: true, Inline: true, Threshold: 50, MinRequests: 5},
		})
		r.mixed(0, 0, 0, 4)
		r.want(0)
		r.rec(0, 0, failure)
		r.want(0, 0)
		r.want(10)
		r.rec(11, 0, success)
		r.want(11)
		r.rec(12, 0, failure)
		r.want(12)
		r.rec(13, 0, failure, failure)
		r.want(13)
		r.rec(13, 0, failure) // now five since the return, four of them failures
		r.want(13, 0)

		// A success never ejects, though it completes the volume.
		r = newRig(t, sec, 2, outlier.Config{
			Consecutive:       -1,
			FailurePercentage: outlier.FailurePercentage{On: true, Inline: true, Threshold: 50, MinRequests: 5},
		})
		r.rec(0, 0, failure, failure, failure, failure, success)
		r.want(0)
		r.want(10)
		r.rec(11, 0, failure) // and the interval is over
		r.want(11)
	})
	t.Run("A-OU-09", func(t *testing.T) {
		thin := newRig(t, sec, 2, fixed(3, 10*time.Second))
		for _, at := range []int64{0, 8, 16, 24} {
			thin.rec(at, 0, failure)
			thin.rec(at+1, 0, success)
		}
		thin.want(30)
		require.Zero(t, thin.hosts[0].Ejections())
		dense := newRig(t, sec, 2, fixed(3, 10*time.Second))
		dense.rec(0, 0, failure)
		dense.rec(4, 0, failure)
		dense.want(4)
		dense.rec(8, 0, failure)
		dense.want(8, 0)
	})
	t.Run("A-OU-10", func(t *testing.T) {
		r := newRig(t, sec, 2, outlier.Config{})
		r.mixed(1, 0, 0, 5)
		r.late(2, 0, 0, success)
		r.want(2, 0)
		r.drain()
		r.c.Remove(3*sec, r.hosts[0])
		r.c.Remove(3*sec, r.hosts[1])
		require.Equal(t, int64(math.MaxInt64), r.c.NextChange())
		r.c.Poll(100 * sec)
		require.Empty(t, r.drain())
		r.mixed(101, 0, 0, 5)
		require.False(t, r.hosts[0].Ejected(), "no member")
	})
	t.Run("A-OU-11", func(t *testing.T) {
		load := func(r *rig) {
			for i := range 4 {
				if i < 2 {
					r.mixed(1, i, 100, 0)
				} else {
					r.mixed(1, i, 0, 100)
				}
			}
		}
		cfg := rates(true)
		cfg.SuccessRate.MinHosts = 4
		r := newRig(t, sec, 4, cfg)
		load(r)
		r.want(10)
		require.Equal(t, int64(-450_000_000), r.c.LastSweep().Line)

		cfg.FailurePercentage = outlier.FailurePercentage{On: true, Threshold: 85, MinHosts: 4}
		r = newRig(t, sec, 4, cfg)
		load(r)
		r.sweep(10, 2, 3)

		// The companion that is on by default catches them too.
		cfg = rates(false)
		cfg.SuccessRate.MinHosts = 4
		r = newRig(t, sec, 4, cfg)
		load(r)
		r.sweep(10, 2, 3)
	})
	t.Run("A-OU-12", func(t *testing.T) {
		r := newRig(t, sec, 2, outlier.Config{Consecutive: 1})
		r.c.SetUsable(0, r.hosts[1], false)
		r.rec(1, 0, failure)
		r.want(1)
		ch := r.drain()
		require.Len(t, ch, 1)
		require.Equal(t, outlier.Spared, ch[0].Kind)
		require.Equal(t, outlier.CauseLast, ch[0].Cause)
		require.Equal(t, 1, r.c.UsableCount())

		// Nobody is ejected who serves nobody; the evidence waits.
		r.rec(2, 1, failure)
		r.want(2)
		require.Empty(t, r.drain(), "no cap kept it in")
		r.c.SetUsable(3*sec, r.hosts[1], true)
		r.want(3)
		r.rec(4, 1, failure)
		r.want(4, 1)

		// An ejected member that is drained leaves room, and takes it when back.
		r = newRig(t, sec, 4, outlier.Config{Consecutive: 1})
		r.rec(1, 0, failure)
		r.rec(1, 1, failure)
		r.rec(1, 2, failure)
		r.want(1, 0, 1)
		r.c.SetUsable(2*sec, r.hosts[0], false)
		r.rec(2, 2, failure) // one of three is out; two would be too many
		r.want(2, 0, 1)
		r.c.SetUsable(2*sec, r.hosts[1], false)
		r.rec(2, 2, failure) // none of two
		r.want(2, 0, 1, 2)
	})
}

// TestDefects holds defects that were reproduced in other implementations.
func TestDefects(t *testing.T) {
	// "removal keeps the count"
	t.Run("P-OD-1", func(t *testing.T) {
		r := newRig(t, sec, 10, outlier.Config{MaxEjectedPercent: 10})
		r.mixed(0, 0, 0, 5)
		r.want(0, 0)
		r.c.Remove(1*sec, r.hosts[0])
		require.Zero(t, r.c.EjectedCount())
		require.Equal(t, 9, r.c.UsableCount())
		fresh := r.add(1)
		r.mixed(2, fresh, 0, 5)
		require.True(t, r.hosts[fresh].Ejected())
		require.Equal(t, 1, r.c.EjectedCount())
		// The same record may come back as a new host.
		r.c.Add(3*sec, r.hosts[0], 1)
		require.Zero(t, r.hosts[0].Ejections())
		require.Equal(t, 11, r.c.Len())
	})
	// "two rules eject twice in one sweep"
	t.Run("P-OD-2", func(t *testing.T) {
		r := newRig(t, sec, 10, outlier.Config{
			Consecutive: 100, SuccessRate: outlier.SuccessRate{On: true},
			FailurePercentage: outlier.FailurePercentage{On: true}, Forgive: -1,
		})
		for i := range 10 {
			r.mixed(1, i, 100*min(i, 1), 99*(1-min(i, 1)))
		}
		r.rec(1, 0, failure) // the hundredth, inline
		r.want(1, 0)
		r.want(10, 0)
		require.Equal(t, 1, r.hosts[0].Ejections())
		r.want(31)

		r.mixed(31, 0, 1, 199)
		for i := 1; i < 10; i++ {
			r.mixed(31, i, 100, 0)
		}
		r.want(31, 0) // again inline, before the sweep at 40
		require.Equal(t, 2, r.c.Count(40*sec, r.hosts[0]))
		r.want(90, 0)
		r.want(91)
		require.Equal(t, 2, r.hosts[0].Ejections())
		require.Len(t, r.drain(), 4)
	})
	// "late failures eject again each sweep"
	t.Run("P-OD-3", func(t *testing.T) {
		r := newRig(t, sec, 10, rates(false))
		load := func(at int64) {
			for n := range 200 {
				r.late(at, 0, 0, failure)
				r.rec(at, 1+n%9, success)
			}
			for i := 1; i < 10; i++ {
				r.mixed(at, i, 100, 0)
			}
		}
		for at := int64(1); at < 40; at += 10 {
			load(at)
		}
		r.want(39, 0)
		require.Equal(t, 1, r.hosts[0].Ejections())
		r.want(40)
		load(41) // calls of before the ejection, finishing after it
		r.want(60)
		require.Equal(t, 1, r.hosts[0].Ejections())
	})
	// "the cap is tested before ejecting"
	t.Run("P-OD-4", func(t *testing.T) {
		for _, c := range []struct{ hosts, percent, out int }{
			{3, 50, 1}, {3, 67, 2}, {10, 15, 1}, {4, 10, 0}, {10, 10, 1},
		} {
			cfg := outlier.Config{
				Consecutive: -1, MaxEjectedPercent: c.percent,
				FailurePercentage: outlier.FailurePercentage{On: true, MinHosts: 1},
			}
			r := newRig(t, sec, c.hosts, cfg)
			for i := range c.hosts {
				r.mixed(1, i, 0, 50)
			}
			r.c.Poll(10 * sec)
			require.Equal(t, c.out, r.c.EjectedCount(), "%+v", c)
			require.Len(t, r.kinds(outlier.Spared), c.hosts-c.out)
		}
	})
	// "one failure in a thousand ejects, three dead of ten do not"
	t.Run("P-OD-5", func(t *testing.T) {
		run := func(hosts, dead, failures int, bare bool) *rig {
			cfg := rates(bare)
			r := newRig(t, sec, hosts, cfg)
			for i := range hosts {
				switch {
				case i < dead:
					r.mixed(1, i, 0, 100)
				case i == dead:
					r.mixed(1, i, 1000-failures, failures)
				default:
					r.mixed(1, i, 1000, 0)
				}
			}
			r.c.Poll(10 * sec)
			return r
		}
		// The bare statistic, as published: k of N equal hosts go only while
		// (N-k)/k > 1.9^2.
		require.Equal(t, 1, run(10, 0, 1, true).c.EjectedCount())
		for _, c := range []struct{ hosts, dead, out int }{{10, 2, 2}, {10, 3, 0}, {100, 21, 21}, {100, 22, 0}} {
			require.Equal(t, c.out, run(c.hosts, c.dead, 0, true).c.EjectedCount(), "%+v", c)
		}
		// The default.
		require.Equal(t, 0, run(10, 0, 1, false).c.EjectedCount())
		require.Equal(t, 0, run(10, 0, 50, false).c.EjectedCount(), "95 % is not bad enough")
		require.Equal(t, 1, run(10, 0, 51, false).c.EjectedCount())
		for _, c := range []struct{ hosts, dead, out int }{
			{10, 2, 2}, {10, 3, 3}, {10, 5, 5}, {10, 9, 5}, {10, 10, 0}, {100, 22, 22}, {100, 50, 50},
		} {
			require.Equal(t, c.out, run(c.hosts, c.dead, 0, false).c.EjectedCount(), "%+v", c)
		}
	})
	// "every error counts"
	t.Run("P-OD-6", func(t *testing.T) {
		r := newRig(t, sec, 2, outlier.Config{
			ConsecutiveGateway: 5, ConsecutiveTransport: 5,
			FailurePercentage: outlier.FailurePercentage{On: true, Inline: true, MinRequests: 1, Threshold: 100},
		})
		cancelled := outlier.TransportFailure + 1 // not an outcome: speaks for nobody
		for range 100 {
			r.rec(0, 0, cancelled, 255)
		}
		require.Empty(t, r.drain())
		require.Equal(t, int64(math.MaxInt64), r.c.NextChange(), "nothing was counted")

		r = newRig(t, sec, 2, outlier.Config{})
		r.mixed(0, 0, 0, 4)
		r.rec(0, 0, cancelled)
		require.Equal(t, 4, r.hosts[0].Streak(), "moves nothing, resets nothing")
		r.rec(0, 0, failure)
		r.want(0, 0)
	})
}

// TestStreakKinds: which results feed and which break each kind of run.
func TestStreakKinds(t *testing.T) {
	script := map[string][]outlier.Outcome{
		"F": {failure}, "G": {gateway}, "T": {transport}, "S": {success},
	}
	for _, c := range []struct {
		results string
		all     bool // five in a row of any kind
		gateway bool // three of gateway or transport
		wire    bool // two of transport
	}{
		{"FFFFF", true, false, false},
		{"FFSFFF", false, false, false},
		{"FGTFG", true, false, false},
		{"GTG", false, true, false},
		{"GGFG", false, false, false},
		{"GGSG", false, false, false},
		{"TT", false, false, true},
		{"TGT", false, true, false},
		{"TFT", false, false, false},
		{"TST", false, false, false},
	} {
		for rule, on := range map[outlier.Rule]bool{
			outlier.RuleConsecutive: c.all, outlier.RuleGateway: c.gateway, outlier.RuleTransport: c.wire,
		} {
			cfg := outlier.Config{Consecutive: -1}
			switch rule {
			case outlier.RuleConsecutive:
				cfg.Consecutive = 5
			case outlier.RuleGateway:
				cfg.ConsecutiveGateway = 3
			case outlier.RuleTransport:
				cfg.ConsecutiveTransport = 2
			}
			t.Run(fmt.Sprintf("%s/%s", c.results, rule), func(t *testing.T) {
				r := newRig(t, sec, 2, cfg)
				for _, x := range c.results {
					r.rec(0, 0, script[string(x)]...)
				}
				require.Equal(t, on, r.hosts[0].Ejected())
				if on {
					ch := r.drain()
					require.Equal(t, rule, ch[0].Rule)
					require.Equal(t, ch[0].Limit, ch[0].Seen)
				}
			})
		}
	}
}
