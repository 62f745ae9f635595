package lincheck_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/evenkeel-go/evenkeel/outlier"
)

const (
	members      = 4 // names of hosts
	failuresOut  = 2
	ejectBase    = 6
	ejectLongest = 3 // times the base
	maxEjected   = 50

	detectorUnit = 2
)

var detectorConfig = outlier.Config{
	Consecutive: failuresOut, Base: ejectBase, Max: ejectLongest * ejectBase, Forgive: -1, MaxEjectedPercent: maxEjected,
}

// handle is what Add returned: a name that only equality is asked of.
type handle any

type detectorIn struct {
	op         string
	host       int // which name; a handle may be of an earlier host of that name
	handle     handle
	now, start int64
}

func (in detectorIn) String() string {
	switch in.op {
	case "EjectedCount", "UsableCount":
		return in.op
	case "Success", "Failure":
		return fmt.Sprintf("%s of h%d (%p), %d to %d", in.op, in.host, in.handle, in.start, in.now)
	}
	return fmt.Sprintf("%s h%d (%p) at %d", in.op, in.host, in.handle, in.now)
}

// detectorOut is the answer of any method.
type detectorOut struct {
	handle handle
	ok     bool // ejected
	count  int
	streak int
	until  int64
}

func (out detectorOut) String() string {
	if out.handle != nil {
		return fmt.Sprintf("%p", out.handle)
	}
	return fmt.Sprintf("%v %d streak %d until %d", out.ok, out.count, out.streak, out.until)
}

type detectorHost struct {
	handle handle // nil: no such host
	uses   int
	streak int
	out    bool
	until  int64
	since  int64 // last return
	count  int64 // ejections that the length of the next one remembers
}

type detectorState struct {
	latest int64
	hosts  [members]detectorHost
}

func (s detectorState) advance(now int64) detectorState {
	s.latest = max(s.latest, now)
	for i := range s.hosts {
		if h := &s.hosts[i]; h.out && h.until <= s.latest {
			h.out, h.since = false, h.until
		}
	}
	return s
}

// tally returns how many hosts there are, and how many of them are out.
func (s detectorState) tally() (all, out int) {
	for _, h := range s.hosts {
		if h.handle != nil {
			all++
			if h.out {
				out++
			}
		}
	}
	return all, out
}

// detectorModel is the detector of the documentation with the consecutive rule.
// To share a host, or to let go of a shared one, is no input: time stands still.
func detectorModel(s detectorState, in detectorIn, out detectorOut) (detectorState, bool) {
	next := s.advance(in.now)
	h := &next.hosts[in.host]
	known := h.handle != nil && h.handle == in.handle
	var want detectorOut
	switch in.op {
	case "Add":
		if h.handle != nil {
			s.hosts[in.host].uses++
			return s, out == detectorOut{handle: h.handle}
		}
		if out.handle == nil {
			return s, false
		}
		*h = detectorHost{handle: out.handle, uses: 1, since: math.MinInt64}
		want = out
	case "Remove":
		if !known {
			next = s
		} else if h.uses > 1 {
			s.hosts[in.host].uses--
			next = s
		} else {
			*h = detectorHost{}
		}
	case "Success":
		if known && !h.out && in.start >= h.since {
			h.streak = 0
		}
	case "Failure":
		if !known || h.out || in.start < h.since {
			break
		}
		h.streak++
		// The caps are tested as it would be after the ejection.
		all, gone := next.tally()
		if h.streak >= failuresOut && gone+1 < all && 100*(gone+1) <= maxEjected*all {
			h.count = min(h.count+1, ejectLongest)
			h.out, h.until, h.streak = true, next.latest+ejectBase*h.count, 0
		}
	case "Ejected":
		want.ok = known && h.out
		next = s
	case "Status":
		if known {
			want.ok, want.count, want.streak = h.out, int(h.count), h.streak
			if h.out {
				want.until = h.until
			}
		}
		next = s
	case "EjectedCount":
		// As of the latest input: it is not told the time.
		_, want.count = s.tally()
		next = s
	case "UsableCount":
		want.count, _ = s.tally()
		next = s
	}
	return next, out == want
}

// detector is what the histories are taken of.
type detector interface {
	do(in detectorIn) detectorOut
}

type realDetector struct{ *outlier.Detector }

func newDetector() realDetector {
	d := realDetector{outlier.New(detectorConfig, 1)}
	d.Poll(base) // begins the time line
	return d
}

func (d realDetector) do(in detectorIn) (out detectorOut) {
	now := at(in.now)
	h, _ := in.handle.(*outlier.Handle)
	switch in.op {
	case "Add":
		out.handle = d.Add(now, fmt.Sprint("h", in.host))
	case "Remove":
		h.Remove(now)
	case "Success":
		h.Record(now, at(in.start), outlier.Success, -1)
	case "Failure":
		h.Record(now, at(in.start), outlier.Failure, -1)
	case "Ejected":
		out.ok = h.Ejected(now)
	case "Status":
		s := h.Status(now)
		if out.ok, out.count, out.streak = s.Ejected, s.Count, s.Streak; out.ok {
			out.until = int64(s.Until.Sub(base))
		}
	case "EjectedCount":
		out.count = d.EjectedCount()
	case "UsableCount":
		out.count = d.UsableCount()
	}
	return out
}

// cappedDetector keeps to the cap by itself: it counts who is out before it
// records what may eject one more.
type cappedDetector struct {
	mu     sync.Mutex
	core   *outlier.Core
	hosts  [members]*outlier.Host
	forked bool // Add looks and adds in two steps
}

func newCappedDetector() *cappedDetector {
	cfg := detectorConfig
	cfg.MaxEjectedPercent, cfg.Last = 100, outlier.EjectLast
	d := &cappedDetector{core: outlier.NewCore(cfg, 1)}
	d.core.Poll(0)
	return d
}

func (d *cappedDetector) pause() {
	d.mu.Unlock()
	runtime.Gosched()
	d.mu.Lock()
}

func (d *cappedDetector) do(in detectorIn) (out detectorOut) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, _ := in.handle.(*outlier.Host)
	switch in.op {
	case "Add":
		known := d.hosts[in.host]
		if d.forked {
			d.pause()
		}
		if known == nil {
			known = &outlier.Host{Index: in.host}
			d.core.Add(in.now, known, uint64(in.host))
			d.hosts[in.host] = known
		}
		out.handle = known
	case "Success":
		d.core.Record(in.now, h, in.start, outlier.Success, -1)
	case "Failure":
		d.core.Poll(in.now)
		gone, all := d.core.EjectedCount()+1, d.core.UsableCount()
		// Without the record the streak stands, and the next failure asks again.
		allowed := h.Streak()+1 < failuresOut || gone < all && 100*gone <= maxEjected*all
		if !d.forked {
			d.pause()
		}
		if allowed {
			d.core.Record(in.now, h, in.start, outlier.Failure, -1)
		}
	case "Ejected":
		out.ok = d.core.EjectedAt(in.now, h)
	case "EjectedCount":
		out.count = d.core.EjectedCount()
	}
	for d.core.Changed() {
		d.core.Pop()
	}
	return out
}

// detectorHistory lets each client add hosts and use the handles that it got,
// now and then also one that it has removed. Status shows much of the state; with
// few such answers the checker has too many orders to think of.
func detectorHistory(how schedule, d detector, free, held []string) []porcupine.Operation {
	var handles, gone [clients][members]handle // each row belongs to one client
	return how.run(func(c *client) {
		in := detectorIn{host: c.IntN(members), now: c.now(detectorUnit)}
		in.start = max(0, in.now-c.Int64N(3*detectorUnit))
		mine, old := &handles[c.id][in.host], &gone[c.id][in.host]
		switch {
		case *mine == nil && (*old == nil || c.IntN(4) > 0):
			in.op = free[c.IntN(len(free))]
		case *mine == nil:
			in.op, in.handle = held[c.IntN(len(held))], *old
		default:
			in.op, in.handle = held[c.IntN(len(held))], *mine
		}
		switch in.op {
		case "Add", "EjectedCount", "UsableCount":
			in.handle = nil
		}
		out := c.call(in, func() any { return d.do(in) }).(detectorOut)
		switch in.op {
		case "Add":
			*mine = out.handle
		case "Remove":
			*mine, *old = nil, in.handle
		}
	})
}

func TestDetector(t *testing.T) {
	m := model(detectorState{}, detectorModel)
	t.Run("linearizable", func(t *testing.T) {
		right(t, 7, m, func(how schedule) []porcupine.Operation {
			return detectorHistory(how, newDetector(), []string{"Add"}, []string{"Failure", "Failure", "Failure", "Failure",
				"Failure", "Success", "Remove", "Ejected", "Status", "Status", "Status", "EjectedCount", "UsableCount"})
		})
	})
	t.Run("a cap beside the lock is seen", func(t *testing.T) {
		wrong(t, 8, m, func(how schedule) []porcupine.Operation {
			return detectorHistory(how, newCappedDetector(), []string{"Add"}, []string{"Failure", "Failure", "Ejected", "EjectedCount"})
		})
	})
	t.Run("adding after looking is seen", func(t *testing.T) {
		wrong(t, 9, m, func(how schedule) []porcupine.Operation {
			d := newCappedDetector()
			d.forked = true
			return detectorHistory(how, d, []string{"Add"}, []string{"Failure", "Success", "EjectedCount"})
		})
	})
}
