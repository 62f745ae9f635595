package outlier

import (
	"sync"
	"time"
)

// A Detector is a [Core] behind a lock, with hosts by name and time.Time in its
// API. Times should carry a monotonic reading or come from one injected clock;
// they are measured from the first one seen, and saturate 292 years from it.
//
// Each host is a [Handle] that the caller keeps, so recording a result looks
// nothing up and allocates nothing.
//
// The zero Detector is not usable; see [New]. A Detector is safe for concurrent
// use.
type Detector struct {
	mu       sync.Mutex // guards below
	core     Core
	base     time.Time // first time seen
	seen     bool
	byID     map[string]*Handle
	numbers  int // Index of the next handle
	notify   func(Event)
	draining bool // some goroutine delivers events
	panics   int
}

// A Handle is one host of a [Detector], for as long as it is added. A Handle is
// safe for concurrent use; there is no use for a zero one.
type Handle struct {
	d    *Detector
	id   string
	host Host // guarded by d.mu
	uses int  // guarded by d.mu
}

// An Event is a [Change] as the observer of a [Detector] sees it. The zero value
// is no event. It is a plain value, safe to share.
type Event struct {
	ID     string    // name of the host
	Handle *Handle   // the host; it may have been removed since
	Kind   Kind      // what happened
	Rule   Rule      // as in Change
	Cause  Cause     // as in Change
	At     time.Time // when it took effect
	Until  time.Time // end of the ejection, for Ejected and WouldEject; else At
	Count  int       // as in Change
	Weight int       // as in Change

	Seen, Limit int64 // as in Change: what was compared
}

// A Status is what a [Detector] knows of one host at one instant. The zero value
// is that of a host never added. It is a plain value, safe to share.
type Status struct {
	Usable    bool          // as last set by SetUsable
	Ejected   bool          // out at this instant
	Until     time.Time     // end of the ejection, if Ejected
	Rule      Rule          // of the last ejection
	Ejections int           // ever
	Count     int           // factor of the ejection time, after forgiveness
	Streak    int           // failures in a row
	Weight    int           // in thousandths; 0 if Ejected
	Measured  bool          // some latency was recorded
	Latency   time.Duration // smoothed, if Measured
}

// New returns a Detector without hosts. It panics if cfg fails Validate. The
// seed keys every draw.
func New(cfg Config, seed uint64) *Detector {
	d := &Detector{byID: make(map[string]*Handle)}
	d.core = *NewCore(cfg, seed)
	return d
}

// Observe makes f the observer of every event that is delivered from now on, or
// nobody if f is nil. Without an observer events are dropped. Events are delivered
// in order, one at a time, with no lock held, by whichever goroutine is at it -
// possibly after the call that caused them has returned. f may call the Detector;
// a panic in f is recovered and counted, and the next events are delivered.
func (d *Detector) Observe(f func(Event)) {
	d.mu.Lock()
	d.notify = f
	d.mu.Unlock()
}

// Panics returns how many events made the observer panic.
func (d *Detector) Panics() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.panics
}

// Add returns the handle of the host id, adding it if it is new. Whoever adds an
// id that is there already shares the handle, and with it all counts and the
// ejection; each Add wants its own [Handle.Remove]. Draws for the host are keyed
// by a hash of id (FNV-1a, mixed).
func (d *Detector) Add(now time.Time, id string) *Handle {
	d.mu.Lock()
	defer d.unlock()
	h := d.byID[id]
	if h == nil {
		h = &Handle{d: d, id: id}
		h.host.Index = d.numbers
		h.host.owner = h
		d.numbers++
		d.byID[id] = h
		d.core.Add(d.ns(now), &h.host, hashID(id))
	}
	h.uses++
	return h
}

// Poll makes the changes that have fallen due by now, for observers that want
// them promptly.
func (d *Detector) Poll(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	d.core.Poll(d.ns(now))
}

// NextChange returns when the next change by time alone falls due, and false if
// none is planned.
func (d *Detector) NextChange() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.core.NextChange()
	if !d.core.planned() {
		return time.Time{}, false
	}
	return d.time(next), true
}

// EjectedCount returns how many hosts were out at the latest input.
func (d *Detector) EjectedCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.EjectedCount()
}

// UsableCount returns how many hosts can serve apart from ejection.
func (d *Detector) UsableCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.UsableCount()
}

// Configure is [Core.Configure]. It panics if cfg fails Validate.
func (d *Detector) Configure(now time.Time, cfg Config) {
	d.mu.Lock()
	defer d.unlock()
	d.core.Configure(d.ns(now), cfg)
}

// Forget is [Core.Forget].
func (d *Detector) Forget(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	d.core.Forget(d.ns(now))
}

// ID returns the name the host was added by.
func (h *Handle) ID() string { return h.id }

// Remove undoes one Add. The last one removes the host from the Detector with
// all its state; later results are ignored, and a host of the same name is new.
func (h *Handle) Remove(now time.Time) {
	h.d.mu.Lock()
	defer h.d.unlock()
	if h.uses == 0 {
		return
	}
	if h.uses--; h.uses == 0 {
		delete(h.d.byID, h.id)
		h.d.core.Remove(h.d.ns(now), &h.host)
	}
}

// SetUsable is [Core.SetUsable].
func (h *Handle) SetUsable(now time.Time, can bool) {
	h.d.mu.Lock()
	defer h.d.unlock()
	h.d.core.SetUsable(h.d.ns(now), &h.host, can)
}

// Record is [Core.Record]: the result of a call that began at start and ended at
// now. A negative latency was not measured.
func (h *Handle) Record(now, start time.Time, o Outcome, latency time.Duration) {
	d := h.d
	d.mu.Lock()
	t := d.ns(now) // first: it may set the base
	d.core.Record(t, &h.host, int64(start.Sub(d.base)), o, int64(latency))
	d.unlock()
}

// Probed is [Core.Probed].
func (h *Handle) Probed(now time.Time, ok bool) bool {
	h.d.mu.Lock()
	defer h.d.unlock()
	return h.d.core.Probed(h.d.ns(now), &h.host, ok)
}

// Uneject is [Core.Uneject].
func (h *Handle) Uneject(now time.Time) bool {
	h.d.mu.Lock()
	defer h.d.unlock()
	return h.d.core.Uneject(h.d.ns(now), &h.host)
}

// Ejected tells whether the host is out at now. It is a read: it changes nothing.
func (h *Handle) Ejected(now time.Time) bool {
	d := h.d
	d.mu.Lock()
	yes := d.core.EjectedAt(int64(now.Sub(d.base)), &h.host)
	d.mu.Unlock()
	return yes
}

// Weight is [Core.Weight]: thousandths of the host's own weight at now.
func (h *Handle) Weight(now time.Time) int {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.d.core.Weight(int64(now.Sub(h.d.base)), &h.host)
}

// Status returns what is known of the host at now. It is a read: it changes
// nothing.
func (h *Handle) Status(now time.Time) Status {
	d := h.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.uses == 0 {
		return Status{}
	}
	t := int64(now.Sub(d.base))
	s := Status{
		Usable:    h.host.flags&usable != 0,
		Ejected:   d.core.EjectedAt(t, &h.host),
		Rule:      h.host.rule,
		Ejections: h.host.Ejections(),
		Count:     d.core.Count(t, &h.host),
		Streak:    h.host.Streak(),
		Weight:    d.core.Weight(t, &h.host),
	}
	if s.Ejected {
		s.Until = d.time(h.host.until)
	}
	if milli, ok := h.host.Score(); ok {
		s.Measured, s.Latency = true, time.Duration(milli/1000)
	}
	return s
}

// ns converts an input's time to the Core's timeline, which starts at the first
// one. d.mu held.
func (d *Detector) ns(now time.Time) int64 {
	if !d.seen {
		d.seen, d.base = true, now
	}
	return int64(now.Sub(d.base))
}

// time converts back.
func (d *Detector) time(ns int64) time.Time { return d.base.Add(time.Duration(ns)) }

// unlock releases d.mu after an input and delivers what it changed, unless
// another goroutine - or a caller further up this one's stack - is at it.
func (d *Detector) unlock() {
	if !d.core.Changed() {
		d.mu.Unlock()
		return
	}
	if d.notify == nil {
		for d.core.Changed() {
			d.core.Pop()
		}
		d.mu.Unlock()
		return
	}
	busy := d.draining
	d.draining = true
	d.mu.Unlock()
	if !busy {
		d.drain()
	}
}

// drain delivers queued events until there are none. d.draining is set by the
// caller, d.mu not held.
func (d *Detector) drain() {
	empty := false
	defer func() {
		// The observer ended the goroutine: let the next one deliver.
		if !empty {
			d.mu.Lock()
			d.draining = false
			d.mu.Unlock()
		}
	}()
	for {
		d.mu.Lock()
		ch, ok := d.core.Pop()
		if !ok {
			empty, d.draining = true, false
			d.mu.Unlock()
			return
		}
		e, f := d.event(ch), d.notify
		d.mu.Unlock()
		if f != nil {
			d.deliver(f, e)
		}
	}
}

// deliver calls f and survives its panic.
func (d *Detector) deliver(f func(Event), e Event) {
	defer func() {
		if recover() != nil {
			d.mu.Lock()
			d.panics++
			d.mu.Unlock()
		}
	}()
	f(e)
}

// event gives a change its names and times.
func (d *Detector) event(ch Change) Event {
	h := ch.Host.owner
	return Event{
		ID: h.id, Handle: h, Kind: ch.Kind, Rule: ch.Rule, Cause: ch.Cause,
		At: d.time(ch.At), Until: d.time(ch.Until), Count: ch.Count, Weight: ch.Weight,
		Seen: ch.Seen, Limit: ch.Limit,
	}
}

// hashID is 64-bit FNV-1a (Fowler, Noll, Vo) with a finaliser, because the last
// bytes of a name hardly reach FNV's upper bits.
func hashID(id string) uint64 {
	x := uint64(14695981039346656037)
	for i := range len(id) {
		x = (x ^ uint64(id[i])) * 1099511628211
	}
	return mix(x)
}
