package health

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Probe names one probe in flight. It is a value that may be copied: whichever
// copy is recorded first settles the probe, and the others do nothing. The zero
// Probe names none.
type Probe struct {
	// Deadline is when the probe has failed if it is not answered before, in
	// nanoseconds on the owner's timeline.
	Deadline int64

	id uint64
}

// Counts is how many probes ended in each way since construction.
type Counts struct {
	// Passes is the number of probes that passed.
	Passes uint64
	// Failures is the number of probes that failed, were slow, or timed out.
	Failures uint64
}

// Core is the verdict on one host and the schedule of its probes. Instants are
// nanoseconds on any one timeline. Begin, Record, Cancel and Poll are inputs:
// they never let time run backwards, and an earlier instant counts as the
// latest one seen. The other methods read and store nothing. Every method is
// O(1) and allocates nothing, AppendState excepted.
//
// The zero Core is not ready to use; see [NewCore]. It is not safe for
// concurrent use.
type Core struct {
	interval, timeout, slow int64
	fall, rise              int

	state  State
	run    int   // probes in a row against the state; below its threshold
	latest int64 // latest instant of any input
	next   int64 // next grid point at which a probe may begin; MaxInt64 is never

	flying   bool
	id       uint64 // of the probe in flight, or of the last one
	began    int64
	deadline int64
	counts   Counts
}

// NewCore returns the state of a host seen for the first time at now, which is
// also the first point of the grid of probes. It panics with the error of
// [Config.Validate] where that returns one.
func NewCore(cfg Config, now int64) Core {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := Core{
		interval: int64(cfg.interval()),
		timeout:  int64(cfg.timeout()),
		slow:     int64(cfg.SlowAfter),
		fall:     cfg.fall(),
		rise:     cfg.rise(),
		latest:   now,
		next:     now,
	}
	if cfg.SlowAfter == 0 {
		c.slow = math.MaxInt64
	}
	if cfg.StartHealthy {
		c.state = Healthy
	}
	if cfg.First == AfterInterval {
		c.next = addSat(now, c.interval)
	}
	return c
}

// Due tells whether Begin would start a probe at now: the next grid point has
// come and no probe is in flight. A probe past its deadline counts as ended.
func (c *Core) Due(now int64) bool {
	now = max(now, c.latest)
	next := c.next
	if c.flying {
		if now < c.deadline {
			return false
		}
		next = c.resume(c.deadline)
	}
	return next != math.MaxInt64 && now >= next
}

// NextProbe returns the instant from which Due holds if nothing but time
// happens: an unanswered probe ends at its deadline. It is math.MaxInt64 for
// never.
func (c *Core) NextProbe() int64 {
	if c.flying {
		return c.resume(c.deadline)
	}
	return c.next
}

// NextChange returns the instant at which time alone may change the state: the
// deadline of the probe in flight, or math.MaxInt64.
func (c *Core) NextChange() int64 {
	if c.flying {
		return c.deadline
	}
	return math.MaxInt64
}

// State returns the verdict at now.
func (c *Core) State(now int64) State {
	if c.expired(max(now, c.latest)) {
		state, _ := c.judge(false)
		return state
	}
	return c.state
}

// Healthy tells whether the host is in at now.
func (c *Core) Healthy(now int64) bool { return c.State(now) == Healthy }

// Counts returns how many probes ended in each way until now.
func (c *Core) Counts(now int64) Counts {
	n := c.counts
	if c.expired(max(now, c.latest)) {
		n.Failures++
	}
	return n
}

// Begin starts a probe if one is due and tells whether it did. The caller then
// asks the host and reports with Record or Cancel; if it does neither, the probe
// fails at its deadline. The next grid point is the first one after now: those
// that nobody looked at are skipped.
//
// Where a probe in flight is past its deadline, its failure comes first, and
// change holds what it did, if changed is true.
func (c *Core) Begin(now int64) (p Probe, begun bool, change Change, changed bool) {
	change, changed = c.Poll(now)
	now = c.latest
	if c.flying || c.next == math.MaxInt64 || now < c.next {
		return Probe{}, false, change, changed
	}
	c.flying = true
	c.id++
	c.began = now
	c.deadline = addSat(now, c.timeout)
	c.next = c.resume(addSat(now, 1))
	return Probe{Deadline: c.deadline, id: c.id}, true, change, changed
}

// Record ends a probe with its answer and returns the change of the verdict it
// made, if changed is true. An answer at or after the deadline is a failure at
// the deadline, whatever it says. A probe that has ended already, and the zero
// Probe, change nothing.
func (c *Core) Record(now int64, p Probe, ok bool) (change Change, changed bool) {
	change, changed = c.Poll(now)
	if !c.flying || p.id != c.id {
		return change, changed
	}
	result := Passed
	switch {
	case !ok:
		result = Failed
	case subSat(c.latest, c.began) > c.slow:
		result = Slow
	}
	return c.settle(c.latest, result)
}

// Cancel ends a probe that says nothing about the host: the prober was stopped,
// or never sent it. Nothing is counted, a run of answers goes on after it, and
// the next probe is due at the next grid point. At or after the deadline the
// probe has failed before, and change holds what that did, if changed is true.
func (c *Core) Cancel(now int64, p Probe) (change Change, changed bool) {
	change, changed = c.Poll(now)
	if c.flying && p.id == c.id {
		c.flying = false
		c.next = c.resume(c.latest)
	}
	return change, changed
}

// Poll lets time do what it does alone: it fails the probe in flight if its
// deadline has come. It returns the change of the verdict this made, if changed
// is true.
func (c *Core) Poll(now int64) (change Change, changed bool) {
	c.latest = max(now, c.latest)
	if !c.expired(c.latest) {
		return Change{}, false
	}
	return c.settle(c.deadline, TimedOut)
}

func (c *Core) expired(now int64) bool {
	// A deadline beyond the timeline is none.
	return c.flying && now >= c.deadline && c.deadline != math.MaxInt64
}

// settle ends the probe in flight at the given instant.
func (c *Core) settle(at int64, r Result) (Change, bool) {
	c.flying = false
	c.next = c.resume(at)
	if r == Passed {
		c.counts.Passes++
	} else {
		c.counts.Failures++
	}
	was := c.state
	before := c.run
	c.state, c.run = c.judge(r == Passed)
	if c.state == was {
		return Change{}, false
	}
	return Change{From: was, To: c.state, At: at, Last: r, Run: before + 1}, true
}

// judge returns the state and the run after one more answer. "Consecutive"
// means it: an answer that agrees with the state ends the run against it.
func (c *Core) judge(ok bool) (State, int) {
	switch {
	case c.state == Unknown && ok:
		return Healthy, 0
	case c.state == Unknown:
		return Unhealthy, 0
	case ok == (c.state == Healthy):
		return c.state, 0
	case c.state == Healthy && c.run+1 >= c.fall:
		return Unhealthy, 0
	case c.state == Unhealthy && c.run+1 >= c.rise:
		return Healthy, 0
	}
	return c.state, c.run + 1
}

// resume returns the first grid point at or after an instant, the next one at
// the earliest.
func (c *Core) resume(at int64) int64 {
	if c.next >= at || c.next == math.MaxInt64 {
		return c.next
	}
	// Distances fit uint64 even where they do not fit int64.
	gap, step := uint64(at)-uint64(c.next), uint64(c.interval)
	if rest := gap % step; rest != 0 {
		gap += step - rest
		if gap < step-rest {
			return math.MaxInt64
		}
	}
	if gap > uint64(math.MaxInt64)-uint64(c.next) {
		return math.MaxInt64
	}
	return int64(uint64(c.next) + gap)
}

// stateVersion is the first byte of the encoding.
const stateVersion = 1

const (
	flagFlying = 1 << iota
	flagNever  // no further grid point
	flagOpen   // the probe in flight has no deadline
)

// AppendState appends the state at now to b and returns the longer slice, for
// [Core.RestoreState] under the same Config. Instants are stored relative to
// now, so that the timeline may be another one.
//
// The encoding, version 1, is the byte 1, a byte with the State, a byte of flags
// (1: a probe is in flight, 2: no further grid point, 4: that probe has no
// deadline), and varints as in encoding/binary: unsigned the run, the number of
// the last probe, the passes and the failures; signed the latest instant; signed
// the next grid point unless flag 2; signed the begin if flag 1, and signed the
// deadline if flag 1 and not 4.
func (c *Core) AppendState(b []byte, now int64) []byte {
	now = max(now, c.latest)
	flags := byte(0)
	if c.flying {
		flags |= flagFlying
		if c.deadline == math.MaxInt64 {
			flags |= flagOpen
		}
	}
	if c.next == math.MaxInt64 {
		flags |= flagNever
	}
	b = append(b, stateVersion, byte(c.state), flags)
	b = binary.AppendUvarint(b, uint64(c.run))
	b = binary.AppendUvarint(b, c.id)
	b = binary.AppendUvarint(b, c.counts.Passes)
	b = binary.AppendUvarint(b, c.counts.Failures)
	b = binary.AppendVarint(b, subSat(c.latest, now))
	if flags&flagNever == 0 {
		b = binary.AppendVarint(b, subSat(c.next, now))
	}
	if flags&flagFlying != 0 {
		b = binary.AppendVarint(b, subSat(c.began, now))
		if flags&flagOpen == 0 {
			b = binary.AppendVarint(b, subSat(c.deadline, now))
		}
	}
	return b
}

// RestoreState replaces the state with one that AppendState wrote, placed so
// that the instant of the save is now, and returns what follows it in b. A probe
// that was in flight is in flight again, and its Probe stays good apart from the
// Deadline. On an error, which wraps [ErrState], the receiver is unchanged: the
// encoding is cut short or of another version, or it holds what this Config
// cannot reach.
func (c *Core) RestoreState(b []byte, now int64) (rest []byte, err error) {
	if len(b) < 3 {
		return nil, fmt.Errorf("%w: cut short", ErrState)
	}
	if b[0] != stateVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrState, b[0], stateVersion)
	}
	state, flags := State(b[1]), b[2]
	if state > Unhealthy || flags > flagFlying|flagNever|flagOpen || flags&flagOpen != 0 && flags&flagFlying == 0 {
		return nil, fmt.Errorf("%w: state %d with flags %d", ErrState, state, flags)
	}
	r := reader{b: b[3:], now: now}
	n := *c
	run := r.uvarint()
	n.state = state
	n.id = r.uvarint()
	n.counts = Counts{Passes: r.uvarint(), Failures: r.uvarint()}
	n.latest = r.instant()
	n.next = math.MaxInt64
	if flags&flagNever == 0 {
		n.next = r.instant()
	}
	n.flying, n.began, n.deadline = flags&flagFlying != 0, 0, 0
	if n.flying {
		n.began, n.deadline = r.instant(), math.MaxInt64
		if flags&flagOpen == 0 {
			n.deadline = r.instant()
		}
	}
	if r.bad {
		return nil, fmt.Errorf("%w: cut short", ErrState)
	}
	limit := uint64(1)
	switch state {
	case Healthy:
		limit = uint64(n.fall)
	case Unhealthy:
		limit = uint64(n.rise)
	}
	switch {
	case run >= limit:
		return nil, fmt.Errorf("%w: a run of %d while %v, want < %d", ErrState, run, state, limit)
	case n.latest > now:
		return nil, fmt.Errorf("%w: the latest instant is after the save", ErrState)
	case n.next != math.MaxInt64 && n.next > addSat(n.latest, n.interval):
		return nil, fmt.Errorf("%w: a grid point at %d, latest %d", ErrState, n.next, n.latest)
	case n.flying && (n.began > n.latest || n.id == 0):
		return nil, fmt.Errorf("%w: probe %d begun at %d, latest %d", ErrState, n.id, n.began, n.latest)
	case flags&(flagFlying|flagOpen) == flagFlying &&
		(n.deadline <= n.latest || uint64(n.deadline)-uint64(n.began) > uint64(n.timeout)):
		return nil, fmt.Errorf("%w: a probe from %d to %d, latest %d", ErrState, n.began, n.deadline, n.latest)
	}
	n.run = int(run)
	*c = n
	return r.b, nil
}

// reader takes varints off a slice; bad is set once one is missing.
type reader struct {
	b   []byte
	now int64
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) instant() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return addSat(r.now, v)
}

// addSat returns a+b, held to the ends of the timeline.
func addSat(a, b int64) int64 {
	s := a + b
	if (s > a) == (b > 0) {
		return s
	}
	if b > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

// subSat returns a-b, held to the ends of the timeline.
func subSat(a, b int64) int64 {
	d := a - b
	if (d < a) == (b > 0) {
		return d
	}
	if b > 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}
