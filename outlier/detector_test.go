package outlier_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/outlier"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// break5 records five failures at an instant.
func break5(h *outlier.Handle, now time.Time) {
	for range 5 {
		h.Record(now, now, failure, -1)
	}
}

func TestDetector(t *testing.T) {
	d := outlier.New(outlier.Config{ProbeEnds: true, Return: outlier.Ramp, Latency: outlier.Latency{On: true}}, 1)
	_, planned := d.NextChange()
	require.False(t, planned)
	a, b := d.Add(epoch, "a"), d.Add(epoch, "b")
	require.Equal(t, "a", a.ID())
	require.False(t, a.Ejected(epoch))
	a.Record(after(1), after(1), success, 3*time.Millisecond)
	break5(a, after(1))
	break5(b, after(1))
	require.Equal(t, outlier.Status{
		Usable: true, Ejected: true, Until: after(31), Rule: outlier.RuleConsecutive, Ejections: 1, Count: 1,
	}, a.Status(after(2)))
	require.Equal(t, outlier.Status{Usable: true, Streak: 5, Weight: 1000}, b.Status(after(2)))
	next, planned := d.NextChange()
	require.True(t, planned)
	require.Equal(t, after(31), next)
	require.Equal(t, []int{1, 2}, []int{d.EjectedCount(), d.UsableCount()})

	require.True(t, a.Ejected(after(31).Add(-1)))
	require.False(t, a.Ejected(after(31)))
	require.Equal(t, 1, d.EjectedCount(), "a read changes nothing")
	require.Equal(t, 250, a.Weight(after(31)))
	a.Record(after(31), after(0), failure, -1)
	require.Zero(t, a.Status(after(31)).Streak, "began before the ejection")
	a.Record(after(31), after(31), success, 8*time.Millisecond)
	s := a.Status(after(31))
	require.True(t, s.Measured)
	require.Equal(t, 8*time.Millisecond, s.Latency)

	break5(a, after(40))
	require.False(t, a.Probed(after(41), false))
	require.True(t, a.Probed(after(41), true))
	break5(a, after(42))
	require.True(t, a.Uneject(after(43)))
	b.SetUsable(after(44), false)
	require.Equal(t, 1, d.UsableCount())
	d.Forget(after(45))
	d.Configure(after(45), outlier.Config{Off: true})
	break5(a, after(46))
	require.Zero(t, d.EjectedCount())
	a.Remove(after(47))
	a.Remove(after(47))
	require.Equal(t, outlier.Status{}, a.Status(after(47)))
	d.Poll(after(48))
}

// TestDetectorShared: who adds the same name shares the host.
func TestDetectorShared(t *testing.T) {
	d := outlier.New(outlier.Config{}, 1)
	one, two := d.Add(epoch, "10.0.0.1:80"), d.Add(epoch, "10.0.0.1:80")
	d.Add(epoch, "10.0.0.2:80")
	require.Same(t, one, two)
	break5(one, epoch)
	require.True(t, two.Ejected(epoch))
	one.Remove(epoch)
	require.True(t, two.Ejected(epoch), "one user left")
	two.Remove(epoch)
	require.Zero(t, d.EjectedCount())
	again := d.Add(epoch, "10.0.0.1:80")
	require.NotSame(t, one, again)
	require.False(t, again.Ejected(epoch))
}

func TestObserver(t *testing.T) {
	d := outlier.New(outlier.Config{MaxEjectedPercent: 90}, 1)
	var hosts []*outlier.Handle
	for i := range 4 {
		hosts = append(hosts, d.Add(epoch, fmt.Sprint(i)))
	}
	var got []string
	d.Observe(func(e outlier.Event) {
		got = append(got, fmt.Sprintf("%d %s %s %s", e.At.Sub(epoch)/time.Second, e.ID, e.Kind, e.Until.Sub(epoch)))
		require.Equal(t, e.ID, e.Handle.ID())
		switch {
		case e.ID == "0" && e.Kind == outlier.Ejected:
			break5(hosts[1], after(2)) // calls back in; delivered after this one
			require.True(t, hosts[1].Ejected(after(2)))
			require.Len(t, got, 1)
		case e.ID == "1" && e.Kind == outlier.Ejected:
			panic("observer")
		}
	})
	break5(hosts[0], after(1))
	d.Poll(after(100))
	require.Equal(t, []string{
		"1 0 ejected 31s", "2 1 ejected 32s", "31 0 returned 31s", "32 1 returned 32s",
	}, got)
	require.Equal(t, 1, d.Panics())
	d.Observe(nil)
	break5(hosts[2], after(101))
	require.Len(t, got, 4)

	// An observer that ends its goroutine leaves the rest to the next input.
	var seen []string
	d.Observe(func(e outlier.Event) {
		seen = append(seen, e.ID+" "+e.Kind.String())
		if len(seen) == 1 {
			runtime.Goexit()
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Poll(after(200))
	}()
	<-done
	d.Poll(after(200))
	break5(hosts[3], after(201))
	require.Equal(t, []string{"2 returned", "3 ejected"}, seen)
}

// TestConcurrent: results, reads, membership and settings at once; run by the
// race detector. Each kind of change of a host alternates.
func TestConcurrent(t *testing.T) {
	d := outlier.New(outlier.Config{MaxEjectedPercent: 100}, 1)
	last := map[string]outlier.Kind{}
	inside := 0
	d.Observe(func(e outlier.Event) {
		inside++ // no lock: events come one at a time
		if inside != 1 {
			t.Error("two events at once")
		}
		if e.Kind == outlier.Ejected && last[e.ID] == outlier.Ejected ||
			e.Kind == outlier.Returned && last[e.ID] != outlier.Ejected {
			t.Errorf("%s: %s after %s", e.ID, e.Kind, last[e.ID])
		}
		if e.Kind != outlier.Spared {
			last[e.ID] = e.Kind
		}
		inside--
	})
	var hosts []*outlier.Handle
	for i := range 4 {
		hosts = append(hosts, d.Add(epoch, fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range 500 {
				now := after(n)
				h := hosts[(g+n)%4]
				break5(h, now)
				h.Ejected(now)
				h.Status(now)
				switch {
				case n%50 == 0:
					d.Configure(now, outlier.Config{MaxEjectedPercent: 60 + 10*g, Off: n%100 == 0 && g == 0})
				case n%7 == 0:
					extra := d.Add(now, "extra")
					extra.Record(now, now, success, 1)
					extra.Remove(now)
				}
			}
		}()
	}
	wg.Wait()
	d.Configure(after(1000), outlier.Config{Off: true})
	require.Zero(t, d.EjectedCount())
}
