package outlier_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// TestRestoreBisimulation: a Core restored at a random cut, on another timeline,
// does to the last bit what the saved one does - drawn percentages, jitter and
// shadow mode included, which the model does not cover.
func TestRestoreBisimulation(t *testing.T) {
	enlarge(t, 300, 30)
	checkSeeded(t, 2, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.Shadow = rapid.Bool().Draw(t, "shadow")
		cfg.Enforce = rapid.SampledFrom([]int{30, 100}).Draw(t, "enforce")
		cfg.Latency.Enforce, cfg.SuccessRate.Enforce = cfg.Enforce, cfg.Enforce
		cfg.Jitter = rapid.SampledFrom([]time.Duration{0, 3, 50}).Draw(t, "jitter")
		cfg.ProbeEnds = true
		n := rapid.IntRange(1, 6).Draw(t, "hosts")
		type side struct {
			c     *outlier.Core
			hosts []*outlier.Host
			off   int64
		}
		fresh := func(added bool) side {
			s := side{c: outlier.NewCore(cfg, 9)}
			for i := range n {
				h := &outlier.Host{Index: i}
				s.hosts = append(s.hosts, h)
				if added {
					s.c.Add(0, h, uint64(i))
				}
			}
			return s
		}
		now := int64(0)
		sides := []side{fresh(true)}
		step := func() {
			now += rapid.SampledFrom([]int64{0, 0, 1, 4, 30}).Draw(t, "wait")
			if next := sides[0].c.NextChange(); rapid.IntRange(0, 4).Draw(t, "due") == 0 && next < now+500 {
				now = max(now, next)
			}
			i := rapid.IntRange(0, n-1).Draw(t, "host")
			what := rapid.IntRange(0, 11).Draw(t, "what")
			o := rapid.SampledFrom([]outlier.Outcome{success, failure, gateway, transport}).Draw(t, "outcome")
			latency := rapid.SampledFrom([]int64{-1, 5, 6, 100}).Draw(t, "latency")
			start := now - rapid.SampledFrom([]int64{0, 0, 0, 10}).Draw(t, "age")
			for _, s := range sides {
				at, h := now+s.off, s.hosts[i]
				switch what {
				case 0:
					s.c.Remove(at, h)
				case 1:
					s.c.Add(at, h, uint64(i))
				case 2:
					s.c.SetUsable(at, h, o == success)
				case 3:
					s.c.Probed(at, h, o == success)
				default:
					s.c.Record(at, h, start+s.off, o, latency)
				}
			}
		}
		drain := func(s side) (list []outlier.Change) {
			for ch, ok := s.c.Pop(); ok; ch, ok = s.c.Pop() {
				list = append(list, ch)
			}
			return list
		}
		for range rapid.IntRange(0, 60).Draw(t, "before") {
			step()
		}
		drain(sides[0])
		twin := fresh(rapid.Bool().Draw(t, "added"))
		twin.off = rapid.SampledFrom([]int64{0, -12345, 1 << 60, -1 << 60}).Draw(t, "off")
		saved := sides[0].c.AppendState(nil, now, sides[0].hosts)
		rest, err := twin.c.RestoreState(saved, now+twin.off, twin.hosts)
		if err != nil || len(rest) != 0 {
			t.Fatalf("restore: rest %d, error %v", len(rest), err)
		}
		sides = append(sides, twin)
		for range rapid.IntRange(1, 60).Draw(t, "after") {
			step()
			a, b := drain(sides[0]), drain(sides[1])
			if len(a) != len(b) {
				t.Fatalf("%d changes, want %d", len(b), len(a))
			}
			for k := range a {
				x, y := a[k], b[k]
				if x.Host.Index != y.Host.Index {
					t.Fatalf("host %d, want %d", y.Host.Index, x.Host.Index)
				}
				x.Host, y.Host = nil, nil
				y.At, y.Until = y.At-twin.off, y.Until-twin.off
				if x != y {
					t.Fatalf("%+v, want %+v", y, x)
				}
			}
			x := string(sides[0].c.AppendState(nil, now, sides[0].hosts))
			y := string(sides[1].c.AppendState(nil, now+twin.off, sides[1].hosts))
			if x != y {
				t.Fatalf("states differ after the restore")
			}
		}
	})
}

// busy returns a rig with something of everything in its state.
func busy(t testing.TB) *rig {
	r := newRig(t, sec, 6, outlier.Config{
		Return: outlier.Ramp, MaxEjectedPercent: 90,
		FailurePercentage: outlier.FailurePercentage{On: true},
		Latency:           outlier.Latency{On: true, MinSamples: 1, Baseline: outlier.BaselineMedian},
	})
	r.mixed(0, 0, 0, 5)
	r.mixed(30, 1, 0, 5)
	r.mixed(30, 2, 3, 4)
	for i := 2; i < 6; i++ {
		r.slow(30, i, time.Duration(1+1000*(i/5)))
	}
	r.slow(30, 5, 1000)
	r.c.Remove(30*sec, r.hosts[3])
	r.drain()
	return r
}

func TestRestoreRefuses(t *testing.T) {
	r := busy(t)
	saved := r.c.AppendState(nil, 30*sec, r.hosts)
	into := newRig(t, sec, 6, outlier.Config{Consecutive: 2})
	into.mixed(0, 0, 0, 2)
	into.drain()
	before := string(into.c.AppendState(nil, 0, into.hosts))
	refuse := func(b []byte, hosts []*outlier.Host) {
		t.Helper()
		rest, err := into.c.RestoreState(b, 0, hosts)
		require.ErrorIs(t, err, outlier.ErrState)
		require.Equal(t, len(b), len(rest))
		require.Equal(t, before, string(into.c.AppendState(nil, 0, into.hosts)), "changed by a refused state")
	}
	for n := range saved {
		refuse(saved[:n:n], into.hosts)
	}
	refuse(append([]byte{2}, saved[1:]...), into.hosts)
	refuse(saved, into.hosts[:5])
	refuse(append([]byte{1, 4}, saved[2:]...), into.hosts)

	rest, err := into.c.RestoreState(append(saved, 1, 2, 3), 30*sec, into.hosts)
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3}, rest)
	require.Equal(t, 5, into.c.Len())
	require.True(t, into.hosts[1].Ejected())
	require.Equal(t, 1, into.c.EjectedCount())
}

// TestRestoreCount: the greatest count that a saved state may hold is not passed,
// as it would be refused the next time.
func TestRestoreCount(t *testing.T) {
	r := newRig(t, 1, 2, outlier.Config{Base: 1, Max: math.MaxInt64, Forgive: -1})
	outlier.SetCount(r.hosts[0], math.MaxInt32)
	for range 2 {
		saved := r.c.AppendState(nil, 0, r.hosts)
		_, err := r.c.RestoreState(saved, 0, r.hosts)
		require.NoError(t, err)
		require.Equal(t, math.MaxInt32, r.c.Count(0, r.hosts[0]))
		r.rec(0, 0, failure, failure, failure, failure, failure)
		require.Equal(t, int64(math.MaxInt32), r.hosts[0].Until())
	}
}

// TestRestoreFar: times at the ends of the range saturate rather than wrap.
func TestRestoreFar(t *testing.T) {
	r := newRig(t, 1, 2, outlier.Config{})
	for range 5 {
		r.c.Record(math.MaxInt64-5, r.hosts[0], 0, failure, -1)
	}
	saved := r.c.AppendState(nil, math.MaxInt64-5, r.hosts)
	twin := newRig(t, 1, 2, outlier.Config{})
	_, err := twin.c.RestoreState(saved, -10, twin.hosts)
	require.NoError(t, err)
	require.Equal(t, int64(-5), twin.hosts[0].Until(), "five before the end of time is five after")
	_, err = twin.c.RestoreState(saved, math.MaxInt64, twin.hosts)
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), twin.hosts[0].Until())
	_, err = twin.c.RestoreState(saved, math.MinInt64, twin.hosts)
	require.NoError(t, err)
}
