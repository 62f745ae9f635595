package outlier_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// TestRows holds the published behaviours, each by its id with its numbers.
func TestRows(t *testing.T) {
	t.Run("E-OU-01", func(t *testing.T) {
		r := newRig(t, milli, 2, fixed(5, 5*time.Second))
		for range 5 {
			r.rec(100, 0, failure)
		}
		r.want(5099, 0)
		r.want(5100)
		require.Zero(t, r.hosts[0].Streak())
		// Clean: it takes five again.
		r.rec(5200, 0, failure, failure, failure, failure)
		r.want(5200)
		r.rec(5200, 0, failure)
		r.want(5200, 0)
	})
	t.Run("E-OU-02", func(t *testing.T) {
		r := newRig(t, milli, 2, fixed(3, 500*time.Millisecond))
		for at := int64(100); at <= 105; at++ {
			r.rec(at, 0, failure)
		}
		require.Equal(t, 1, r.hosts[0].Ejections())
		require.Equal(t, 602*milli, r.hosts[0].Until())
		r.want(599, 0)
		r.want(601, 0)
		r.want(602)
		require.Equal(t, 1, r.hosts[0].Ejections())
	})
	t.Run("E-OU-03", func(t *testing.T) {
		r := newRig(t, milli, 2, fixed(2, 500*time.Millisecond))
		r.rec(0, 0, failure, failure)
		r.want(0, 0)
		r.want(499, 0)
		r.want(500)

		r = newRig(t, 1, 2, fixed(2, 500*time.Millisecond))
		r.rec(math.MaxInt64-10, 0, failure, failure)
		require.Equal(t, int64(math.MaxInt64), r.hosts[0].Until())
		r.want(math.MaxInt64-1, 0)
		r.want(math.MaxInt64)
		r.rec(math.MaxInt64, 0, failure, failure)
		require.Equal(t, 2, r.hosts[0].Ejections())
		r.want(math.MaxInt64)
	})
	t.Run("E-EW-01", func(t *testing.T) {
		s := newSlowNode(t, false)
		s.run(1500)
		require.False(t, s.over(), "not before four samples")
		s.run(1600)
		require.True(t, s.over())
		score, line := s.scoreAndLine()
		require.Equal(t, 100*milli*1000, score)
		require.Equal(t, 86_250*milli, line) // 86.25 ms, in thousandths of a nanosecond
		s.run(3100)
		s.want(3100)
		s.run(3200)
		s.want(3200, 3)
		require.Equal(t, 5200*milli, s.hosts[3].Until())
		ch := s.drain()
		require.Len(t, ch, 1)
		require.Equal(t, []int64{100 * milli * 1000, 86_250 * milli}, []int64{ch[0].Seen, ch[0].Limit})
		s.run(5199)
		s.want(5199, 3)
		s.want(5200)

		// Off unless enabled.
		r := newRig(t, milli, 4, outlier.Config{})
		for at := int64(0); at < 100_000; at += 100 {
			r.slow(at, int(at/100)%4, time.Duration(1+99*(at/100%4/3))*time.Millisecond)
		}
		require.Empty(t, r.drain())
	})
	t.Run("E-EW-02", func(t *testing.T) {
		r := newRig(t, milli, 1, outlier.Config{Latency: outlier.Latency{On: true, Alpha: 250}})
		_, measured := r.hosts[0].Score()
		require.False(t, measured)
		var got []int64
		for _, sample := range []time.Duration{100, 0, 0, 0, 40} {
			r.slow(0, 0, sample)
			v, ok := r.hosts[0].Score()
			require.True(t, ok)
			got = append(got, v)
		}
		require.Equal(t, []int64{100000, 75000, 56250, 42187, 41640}, got)
	})
	t.Run("E-EW-03", func(t *testing.T) {
		cfg := outlier.Config{
			Base: 1500 * time.Millisecond, Max: 1500 * time.Millisecond,
			Return: outlier.Ramp, RampFrom: 250, RampStep: time.Second,
			Latency: outlier.Latency{
				On: true, Alpha: 250, Factor: 3000, Window: 2 * time.Second, MinSamples: 8,
				Baseline: outlier.BaselineAll,
			},
		}
		// These are the zero values too, where a zero has this meaning.
		bare := cfg
		bare.RampFrom, bare.RampStep = 0, 0
		bare.Latency = outlier.Latency{On: true, Baseline: outlier.BaselineAll}
		for _, cfg := range []outlier.Config{cfg, bare} {
			r := newRig(t, milli, 4, cfg)
			at := int64(0)
			for ; !r.hosts[3].Ejected(); at += 10 {
				for i := range 4 {
					r.slow(at, i, time.Duration(5+95*(i/3))*time.Millisecond)
				}
			}
			// The 8th sample, at 70, is over the line; 2 s later it is out.
			ch := r.drain()
			require.Len(t, ch, 1)
			require.Equal(t, 2070*milli, ch[0].At)
			require.Equal(t, 3570*milli, ch[0].Until)
			require.Equal(t, outlier.RuleLatency, ch[0].Rule)
			var weights []int
			for _, at := range []int64{3569, 3570, 4569, 4570, 5569, 5570} {
				weights = append(weights, r.c.Weight(at*milli, r.hosts[3]))
			}
			require.Equal(t, []int{0, 250, 250, 500, 500, 1000}, weights)
		}
	})
	t.Run("E-EW-05", func(t *testing.T) {
		s := newSlowNode(t, true)
		s.run(5200)
		require.Equal(t, []int{0, 1}, []int{s.c.EjectedCount(), s.hosts[3].Ejections()})
		before, _ := s.hosts[3].Score()
		require.Equal(t, 100*milli*1000, before, "kept by option")
		s.run(7800)
		score, line := s.scoreAndLine()
		require.Less(t, score, line)
		s.run(20_000)
		require.Equal(t, 1, s.hosts[3].Ejections())

		// A first sample over the line after the return starts a new window: the
		// old samples do not count towards the four that eject.
		s = newSlowNode(t, true)
		s.run(5200)
		s.quick = false
		for n := 1; n <= 5; n++ {
			s.want(9000 + int64(n)*500)
			s.slow(9000+int64(n)*500, 3, 100*time.Millisecond)
		}
		s.want(11500, 3) // the fifth: first over at 9500, four newer ones
	})
	t.Run("E-EW-06", func(t *testing.T) {
		cfg := all(outlier.Config{Latency: outlier.Latency{
			On: true, Alpha: 500, Window: time.Second, MinSamples: 4, Baseline: outlier.BaselineAll,
		}})
		r := newRig(t, milli, 4, cfg)
		for step := range int64(120) {
			i := int(step % 4)
			r.slow(step*100, i, []time.Duration{5, 5, 6, 10}[i]*time.Millisecond)
		}
		require.Empty(t, r.drain())
		mean, ok := outlier.BaselineOf(r.c, r.hosts[3])
		require.True(t, ok)
		require.Equal(t, 6500*milli, mean, "6.5 ms, and the line is at 19.5")

		r = newRig(t, milli, 40, cfg)
		w := make(wheel, 40)
		slowOut := 0
		ops := opsOf(t, 3000)
		for step := range int64(ops) {
			at := step * 10
			r.c.Poll(at * milli)
			i := w.pick(func(i int) int { return r.c.Weight(at*milli, r.hosts[i]) })
			r.slow(at, i, []time.Duration{5, 50}[i/30]*time.Millisecond)
		}
		for _, ch := range r.drain() {
			if ch.Kind == outlier.Ejected {
				require.GreaterOrEqual(t, ch.Host.Index, 30, "a fast host")
				slowOut++
			}
		}
		if ops >= 3000 {
			require.Positive(t, slowOut)
		}
	})
	t.Run("E-EW-07", func(t *testing.T) {
		r := newRig(t, 1, 1, outlier.Config{Latency: outlier.Latency{On: true, Alpha: 250}})
		fold := func(sample int64) int64 {
			r.c.Record(0, r.hosts[0], 0, success, sample)
			v, _ := r.hosts[0].Score()
			return v
		}
		require.Equal(t, int64(math.MaxInt64), fold(math.MaxInt64))
		require.Equal(t, int64(math.MaxInt64), fold(math.MaxInt64))
		require.Less(t, fold(0), int64(math.MaxInt64))
		r = newRig(t, 1, 1, outlier.Config{Latency: outlier.Latency{On: true}})
		require.Equal(t, int64(math.MaxInt64), fold(math.MaxInt64/600), "a thousand of it is beyond the range")

		// The line saturates: nothing is above it, however slow.
		r = newRig(t, 1, 3, outlier.Config{Latency: outlier.Latency{
			On: true, MinSamples: 1, Window: 1, Baseline: outlier.BaselineMedian,
		}})
		for at := range int64(20) {
			r.slow(at, int(at%3), math.MaxInt64)
		}
		require.Empty(t, r.drain())

		// A slower rest never lowers the line: host 0 is out at every rest up to a
		// third of its latency and at none above.
		for rest := time.Duration(1); rest < 100; rest++ {
			r := newRig(t, 1, 3, outlier.Config{Latency: outlier.Latency{On: true, MinSamples: 1, Window: 1}})
			r.slow(0, 1, rest)
			r.slow(0, 2, rest)
			for at := range int64(4) {
				r.slow(at, 0, 150)
			}
			require.Equal(t, rest < 50, r.hosts[0].Ejections() > 0, "rest %d", rest)
		}
	})
	t.Run("E-EW-08", func(t *testing.T) {
		r := newRig(t, milli, 2, outlier.Config{Latency: outlier.Latency{On: true}})
		r.rec(0, 0, success)
		for _, o := range []outlier.Outcome{failure, gateway, transport} {
			r.c.Record(0, r.hosts[0], 0, o, 77)
		}
		_, measured := r.hosts[0].Score()
		require.False(t, measured)
		r.slow(1, 0, 100)
		r.rec(2, 0, success)
		r.c.Record(2, r.hosts[0], 2, failure, 77)
		v, measured := r.hosts[0].Score()
		require.True(t, measured)
		require.Equal(t, int64(100_000), v)
	})
	t.Run("G-PH-01", func(t *testing.T) {
		r := newRig(t, sec, 2, outlier.Config{}) // on by default
		r.mixed(0, 0, 0, 5)
		r.want(0, 0)

		sole := newRig(t, sec, 1, outlier.Config{MaxEjectedPercent: 100, Last: outlier.KeepSole})
		sole.mixed(0, 0, 0, 50)
		sole.want(0)

		r.c.Configure(1*sec, outlier.Config{Off: true})
		r.want(1)
		require.Equal(t, []int{0}, r.kinds(outlier.Returned))
		require.Zero(t, r.c.Count(1*sec, r.hosts[0]))
		r.mixed(2, 0, 0, 50)
		r.want(2)
		require.Equal(t, int64(math.MaxInt64), r.c.NextChange())
	})
	t.Run("G-PH-02", func(t *testing.T) {
		r := newRig(t, milli, 2, goma())
		r.rec(0, 0, transport)
		r.rec(1, 0, transport)
		require.Equal(t, 10_001*milli, r.hosts[0].Until())
		r.want(10_000, 0)
		r.want(10_001)
		r = newRig(t, milli, 2, goma())
		r.rec(0, 0, transport, success, transport)
		r.want(0)
		// A value out of range is an error here; the zero is the default.
		require.ErrorIs(t, outlier.Config{ConsecutiveTransport: -1}.Validate(), outlier.ErrConfig)
	})
	t.Run("G-PH-06", func(t *testing.T) {
		r := newRig(t, sec, 2, goma())
		r.rec(0, 0, transport, transport)
		r.want(9, 0)
		r.rec(10, 0, transport)
		require.Equal(t, 20*sec, r.hosts[0].Until())
		r.want(19, 0)
		r.rec(20, 0, success, transport)
		r.want(20)
		require.Equal(t, 1, r.hosts[0].Streak())

		var rules []outlier.Rule
		for _, ch := range r.drain() {
			if ch.Kind == outlier.Ejected {
				rules = append(rules, ch.Rule)
			}
		}
		require.Equal(t, []outlier.Rule{outlier.RuleTransport, outlier.RuleProbation}, rules)

		// Any answer, even a bad one, clears a probation of transport rules.
		r.rec(21, 0, transport)
		r.want(30, 0)
		r.rec(31, 0, failure, transport)
		r.want(31)
	})
	t.Run("G-PH-07", func(t *testing.T) {
		r := newRig(t, sec, 2, goma())
		r.rec(0, 0, transport, transport)
		r.rec(5, 0, transport)
		r.want(9, 0)
		r.want(10)
		require.Equal(t, 1, r.hosts[0].Ejections())
	})
	t.Run("G-PH-11", func(t *testing.T) {
		r := newRig(t, milli, 2, goma())
		failed, turn := 0, 0
		for step := range int64(100) {
			at := step * 99 // 100 requests within 10 s
			r.c.Poll(at * milli)
			for {
				turn++
				if !r.hosts[turn%2].Ejected() {
					break
				}
			}
			if turn%2 == 0 {
				failed++
				r.rec(at, 0, transport)
			} else {
				r.rec(at, 1, success)
			}
		}
		require.Equal(t, 2, failed)
		require.Equal(t, 1, r.hosts[0].Ejections())
	})
}

// goma is passive health checking of connections: two failures to connect in a
// row, ten seconds, then probation; whole pools may go, lone hosts may not.
func goma() outlier.Config {
	return outlier.Config{
		Consecutive: -1, ConsecutiveTransport: 2,
		Base: 10 * time.Second, Max: 10 * time.Second,
		MaxEjectedPercent: 100, Last: outlier.KeepSole, Return: outlier.Probation,
	}
}

// slowNode is three hosts of 5 ms and one of 100 ms under one request each
// 100 ms, which smooth weighted round robin gives out.
type slowNode struct {
	*rig
	w      wheel
	at     int64
	served int  // by the slow host
	quick  bool // the slow host is as fast as the others after its return
}

func newSlowNode(t *testing.T, keep bool) *slowNode {
	return &slowNode{
		rig: newRig(t, milli, 4, outlier.Config{
			Base: 2 * time.Second, Max: 2 * time.Second, Return: outlier.Ramp,
			Latency: outlier.Latency{
				On: true, Alpha: 500, Factor: 3000, Window: time.Second, MinSamples: 4,
				Baseline: outlier.BaselineAll, KeepScore: keep,
			},
		}),
		w: make(wheel, 4), quick: true,
	}
}

// run serves the requests up to and including at.
func (s *slowNode) run(at int64) {
	for ; s.at+100 <= at; s.at += 100 {
		now := s.at + 100
		i := s.w.pick(func(i int) int { return s.c.Weight(now*milli, s.hosts[i]) })
		d := 5 * time.Millisecond
		if i == 3 {
			s.served++
		}
		if i == 3 && (s.hosts[3].Ejections() == 0 || !s.quick) {
			d = 100 * time.Millisecond
		}
		s.slow(now, i, d)
	}
}

// scoreAndLine computes the line from the definition: three times the mean.
func (s *slowNode) scoreAndLine() (score, line int64) {
	for _, h := range s.hosts {
		v, _ := h.Score()
		line += v
	}
	score, _ = s.hosts[3].Score()
	return score, line / 4 * 3
}

// over tells whether the slow host has the samples to be judged and is above.
func (s *slowNode) over() bool {
	score, line := s.scoreAndLine()
	return score > line && s.served >= 4
}
