package outlier_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/outlier"
)

// TestBaseline holds the running sums and the two halves of the median against a
// sorted list, through everything that changes who is compared.
func TestBaseline(t *testing.T) {
	enlarge(t, 200, 60)
	checkSeeded(t, 3, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "hosts")
		var cores []*outlier.Core
		hosts := make([][]outlier.Host, 3)
		for b := range 3 {
			c := outlier.NewCore(outlier.Config{
				Consecutive: 1, MaxEjectedPercent: 100,
				Latency: outlier.Latency{
					On: true, Alpha: 1000, MinSamples: 1, MinHosts: 1, Window: time.Hour, Baseline: outlier.Baseline(b),
				},
			}, 1)
			cores = append(cores, c)
			hosts[b] = make([]outlier.Host, n)
			for i := range hosts[b] {
				hosts[b][i].Index = i
				c.Add(0, &hosts[b][i], uint64(i))
			}
		}
		score := map[int]int64{}
		usable, out := make([]bool, n), make([]bool, n)
		for i := range usable {
			usable[i] = true
		}
		host := func() int { return rapid.IntRange(0, n-1).Draw(t, "host") }
		all := func(f func(c *outlier.Core, h *outlier.Host), i int) {
			for b, c := range cores {
				f(c, &hosts[b][i])
			}
		}
		sample := func(t *rapid.T) {
			i, d := host(), rapid.Int64Range(0, 20).Draw(t, "latency")
			all(func(c *outlier.Core, h *outlier.Host) { c.Record(0, h, 0, success, d) }, i)
			if !out[i] {
				score[i] = d * 1000
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"sample": sample, "sample2": sample, "sample3": sample,
			"usable": func(t *rapid.T) {
				i := host()
				usable[i] = rapid.Bool().Draw(t, "yes")
				all(func(c *outlier.Core, h *outlier.Host) { c.SetUsable(0, h, usable[i]) }, i)
			},
			"again": func(t *rapid.T) {
				i := host()
				all(func(c *outlier.Core, h *outlier.Host) { c.Remove(0, h); c.Add(0, h, uint64(i)) }, i)
				delete(score, i)
				usable[i], out[i] = true, false
			},
			"eject": func(t *rapid.T) {
				i := host()
				all(func(c *outlier.Core, h *outlier.Host) { c.Record(0, h, 0, failure, -1) }, i)
				if now := hosts[0][i].Ejected(); now && !out[i] {
					delete(score, i)
					out[i] = true
				}
			},
			"return": func(t *rapid.T) {
				i := host()
				all(func(c *outlier.Core, h *outlier.Host) { c.Uneject(0, h) }, i)
				out[i] = false
			},
			"": func(t *rapid.T) {
				var list []int64
				var sum int64
				for i := range n {
					if v, ok := score[i]; ok && usable[i] && !out[i] {
						list = append(list, v)
						sum += v
					}
				}
				slices.Sort(list)
				for i := range n {
					v, measured := score[i]
					in := measured && usable[i] && !out[i]
					size := int64(len(list))
					check := func(b outlier.Baseline, ok bool, want func() int64) {
						got, is := outlier.BaselineOf(cores[b], &hosts[b][i])
						if is != ok || ok && got != want() {
							t.Fatalf("baseline %d of host %d: %d %v, want %v of %v", b, i, got, is, ok, list)
						}
					}
					check(outlier.BaselineOthers, in && size > 1, func() int64 { return (sum - v) / (size - 1) })
					check(outlier.BaselineAll, in, func() int64 { return sum / size })
					check(outlier.BaselineMedian, in, func() int64 { return list[(size-1)/2] })
				}
			},
		})
	})
}

// TestFloor: up to the floor no host is slow, whatever the others do.
func TestFloor(t *testing.T) {
	for latency, want := range map[time.Duration]int{20: 0, 21: 1} {
		r := newRig(t, 1, 3, outlier.Config{Latency: outlier.Latency{On: true, MinSamples: 1, Window: 1, Floor: 20}})
		for at := range int64(5) {
			r.slow(at, 1, 2)
			r.slow(at, 2, 2)
			r.slow(at, 0, latency)
		}
		require.Equal(t, want, r.hosts[0].Ejections(), latency)
	}
}

// TestSlowStreakBreaks: one sample on the line ends a slow period.
func TestSlowStreakBreaks(t *testing.T) {
	r := newRig(t, sec, 2, outlier.Config{Latency: outlier.Latency{On: true, Alpha: 1000, MinSamples: 2, Window: 3 * time.Second}})
	r.slow(0, 1, 10)
	r.slow(0, 1, 10)
	for _, step := range []struct {
		at      int64
		latency time.Duration
	}{{0, 31}, {0, 31}, {1, 31}, {2, 31}, {3, 30}, {4, 31}, {5, 31}, {6, 31}} {
		r.slow(step.at, 0, step.latency)
		r.want(step.at)
		// A save in the middle keeps the witnesses.
		_, err := r.c.RestoreState(r.c.AppendState(nil, step.at*sec, r.hosts), step.at*sec, r.hosts)
		require.NoError(t, err)
	}
	r.slow(7, 0, 31)
	r.want(7, 0)
	ch := r.drain()
	require.Equal(t, []int64{31_000, 30_000}, []int64{ch[0].Seen, ch[0].Limit})
}
