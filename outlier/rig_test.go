package outlier_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

const (
	milli = int64(time.Millisecond)
	sec   = int64(time.Second)

	success   = outlier.Success
	failure   = outlier.Failure
	gateway   = outlier.GatewayFailure
	transport = outlier.TransportFailure
)

// rig drives a Core with hosts numbered from 0, in a unit of time of the test's
// choice.
type rig struct {
	testing.TB
	c     *outlier.Core
	hosts []*outlier.Host
	unit  int64
}

func newRig(tb testing.TB, unit int64, n int, cfg outlier.Config) *rig {
	tb.Helper()
	require.NoError(tb, cfg.Validate())
	r := &rig{TB: tb, c: outlier.NewCore(cfg, 1), unit: unit}
	for range n {
		r.add(0)
	}
	return r
}

func (r *rig) add(at int64) int {
	h := &outlier.Host{Index: len(r.hosts)}
	r.hosts = append(r.hosts, h)
	r.c.Add(at*r.unit, h, uint64(h.Index)+100)
	return h.Index
}

// rec records results of calls to host i that begin and end at at.
func (r *rig) rec(at int64, i int, outcomes ...outlier.Outcome) {
	for _, o := range outcomes {
		r.late(at, i, at, o)
	}
}

// late records the result of a call that began at start.
func (r *rig) late(at int64, i int, start int64, o outlier.Outcome) {
	r.c.Record(at*r.unit, r.hosts[i], start*r.unit, o, -1)
}

// mixed records good successes and bad failures, the successes first.
func (r *rig) mixed(at int64, i, good, bad int) {
	for range good {
		r.rec(at, i, success)
	}
	for range bad {
		r.rec(at, i, failure)
	}
}

// slow records a success that took d.
func (r *rig) slow(at int64, i int, d time.Duration) {
	r.c.Record(at*r.unit, r.hosts[i], at*r.unit, success, int64(d))
}

// want asserts which hosts are out at an instant, by a read and, after an input
// at that instant, by the stored state.
func (r *rig) want(at int64, out ...int) {
	r.Helper()
	var read, stored []int
	for i, h := range r.hosts {
		if r.c.EjectedAt(at*r.unit, h) {
			read = append(read, i)
		}
	}
	r.c.Poll(at * r.unit)
	for i, h := range r.hosts {
		if h.Ejected() {
			stored = append(stored, i)
		}
	}
	require.Equal(r, out, read, "read at %d", at)
	require.Equal(r, out, stored, "stored at %d", at)
	require.Equal(r, len(out), r.c.EjectedCount(), "count at %d", at)
}

// sweep is want after an input at that instant: a read does not foresee what a
// sweep that no input has made yet will find.
func (r *rig) sweep(at int64, out ...int) {
	r.Helper()
	r.c.Poll(at * r.unit)
	r.want(at, out...)
}

// drain pops all changes.
func (r *rig) drain() (list []outlier.Change) {
	for {
		ch, ok := r.c.Pop()
		if !ok {
			return list
		}
		list = append(list, ch)
	}
}

// kinds pops all changes of one kind and returns the hosts they are of.
func (r *rig) kinds(k outlier.Kind) (list []int) {
	for _, ch := range r.drain() {
		if ch.Kind == k {
			list = append(list, ch.Host.Index)
		}
	}
	return list
}

// fixed is a configuration with one ejection time.
func fixed(consecutive int, d time.Duration) outlier.Config {
	return outlier.Config{Consecutive: consecutive, Base: d, Max: d}
}

// all lifts every cap.
func all(cfg outlier.Config) outlier.Config {
	cfg.MaxEjectedPercent, cfg.Last = 100, outlier.EjectLast
	return cfg
}

// wheel is smooth weighted round robin in nginx's order: every member gains its
// weight, the first of the greatest is picked and pays the total.
type wheel []int

func (w wheel) pick(weight func(i int) int) int {
	best, total := -1, 0
	for i := range w {
		n := weight(i)
		if n == 0 {
			continue
		}
		w[i] += n
		total += n
		if best < 0 || w[i] > w[best] {
			best = i
		}
	}
	if best >= 0 {
		w[best] -= total
	}
	return best
}
