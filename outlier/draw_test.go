package outlier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// TestDrawGolden freezes the mixer: recordings depend on it.
func TestDrawGolden(t *testing.T) {
	for _, c := range []struct{ seed, stream, n, want uint64 }{
		{0, 0, 0, 0x33fe8bd4f9c57863},
		{1, 0, 0, 0xa385ef24fa6a992},
		{0, 1, 0, 0xc8cad0da637712f0},
		{0, 0, 1, 0x568a9b0b1a2c05ec},
		{7, 3, 1000, 0xa872610ddf7cd683},
		{1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 0xf8b2085b47e6d3af},
	} {
		if got := outlier.Draw(c.seed, c.stream, c.n); got != c.want {
			t.Errorf("draw(%d, %d, %d) = %#x, want %#x", c.seed, c.stream, c.n, got, c.want)
		}
	}
}

// jitters ejects host i n times in a row and returns how long each lasted beyond
// min(base x count, max).
func jitters(r *rig, i, n int) (list []int64) {
	at := int64(0)
	for k := range int64(n) {
		for range 5 {
			r.c.Record(at, r.hosts[i], at, failure, -1)
		}
		list = append(list, r.hosts[i].Until()-at-min(30*(k+1), 300)*sec)
		at = r.hosts[i].Until()
		r.c.Poll(at)
	}
	return list
}

func TestJitter(t *testing.T) {
	cfg := outlier.Config{Jitter: 5 * time.Second, Forgive: -1}
	one := jitters(newRig(t, 1, 3, cfg), 0, 40)
	distinct := map[int64]bool{}
	for _, j := range one {
		require.True(t, 0 <= j && j <= 5*sec, "%d", j)
		distinct[j] = true
	}
	require.Len(t, distinct, 40)

	// Keyed: another host's ejections, before or between, change nothing.
	r := newRig(t, 1, 3, cfg)
	jitters(r, 1, 3)
	r.c.Remove(0, r.hosts[1])
	r = newRig(t, 1, 3, cfg)
	require.NotEqual(t, one, jitters(r, 1, 40))
	r = newRig(t, 1, 1, all(cfg))
	require.Equal(t, one, jitters(r, 0, 40))

	// The bounds of [0, jitter] are reached.
	cfg.Jitter = 1
	both := map[int64]bool{}
	for _, j := range jitters(newRig(t, 1, 2, cfg), 0, 40) {
		both[j] = true
	}
	require.Equal(t, map[int64]bool{0: true, 1: true}, both)
}

func TestEnforce(t *testing.T) {
	// Of 10000 verdicts each percentage is enforced, within 4 sigma.
	for percent, sigma := range map[int]float64{1: 9.95, 25: 43.3, 99: 9.95} {
		const n = 10_000
		enforced := 0
		r := newRig(t, 1, 2, outlier.Config{Enforce: percent, Base: 1, Max: 1})
		at := int64(0)
		for range n {
			for range 5 {
				r.c.Record(at, r.hosts[0], at, failure, -1)
			}
			ch := r.drain()
			last := ch[len(ch)-1]
			if last.Kind == outlier.Ejected {
				enforced++
			} else {
				want := outlier.Change{
					Host: r.hosts[0], Kind: outlier.WouldEject, Rule: outlier.RuleConsecutive,
					Cause: outlier.CauseUnenforced, At: at, Until: at + 1, Count: 1, Weight: 1000, Seen: 5, Limit: 5,
				}
				if last != want {
					t.Fatalf("%+v, want %+v", last, want)
				}
				if r.hosts[0].Streak() != 0 {
					t.Fatal("five more are needed")
				}
			}
			at += 2
			r.c.Poll(at)
		}
		require.InDelta(t, n*percent/100, enforced, 4*sigma)
	}

	for enforce, want := range map[int]int{-1: 0, 0: 1, 100: 1} {
		r := newRig(t, sec, 2, outlier.Config{Enforce: enforce})
		r.mixed(0, 0, 0, 5)
		require.Equal(t, want, r.c.EjectedCount())
	}
	// Each rule has its own percentage.
	r := newRig(t, sec, 4, outlier.Config{
		Consecutive: 3, SuccessRate: outlier.SuccessRate{On: true, MinHosts: 1, Factor: 1000, Enforce: -1},
		FailurePercentage: outlier.FailurePercentage{On: true, MinHosts: 1, Enforce: -1},
		Latency:           outlier.Latency{On: true, MinSamples: 1, Window: 1, Enforce: -1},
	})
	for n := range int64(200) {
		r.rec(1, 0, success, failure, failure)
		for i := 1; i < 4; i++ {
			r.slow(n/40, i, 1+1000*time.Duration(i/3))
		}
	}
	r.sweep(10)
	seen := map[string]bool{}
	for _, ch := range r.drain() {
		seen[fmt.Sprintf("%d %s %s", ch.Host.Index, ch.Kind, ch.Rule)] = true
	}
	require.Equal(t, map[string]bool{"0 would eject success rate": true, "3 would eject latency": true}, seen)
	r.mixed(11, 0, 0, 3)
	r.want(11, 0)
}

// TestUnenforcedProbation: a probation that was let pass is over.
func TestUnenforcedProbation(t *testing.T) {
	cfg := outlier.Config{Return: outlier.Probation}
	r := newRig(t, sec, 2, cfg)
	r.mixed(0, 0, 0, 5)
	r.want(30)
	r.drain()
	cfg.Enforce = -1
	r.c.Configure(30*sec, cfg)
	r.mixed(30, 0, 0, 5)
	ch := r.drain()
	require.Len(t, ch, 1)
	require.Equal(t, outlier.RuleProbation, ch[0].Rule)
	require.Equal(t, 4, r.hosts[0].Streak())
	r.rec(30, 0, failure)
	ch = r.drain()
	require.Len(t, ch, 1)
	require.Equal(t, outlier.RuleConsecutive, ch[0].Rule)
}
