package breaker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrState is what errors.Is finds when a saved state cannot be restored.
var ErrState = errors.New("breaker: invalid saved state")

// stateVersion is the first byte of a saved state.
const stateVersion = 1

// AppendState appends the state of the core to b and returns the longer slice.
// RestoreState on a core of the same Config and seed continues from there with
// the same decisions, also on another timeline: every instant is stored relative
// to now. Tickets of calls in flight stay valid, see [Ticket.AppendState]. Reads
// nothing but the core and changes nothing.
//
// The encoding, version 1, is a sequence of bytes and of varints as encoding/binary
// writes them (u: unsigned, s: signed, zigzag). An instant is a byte, 0 for the
// smallest int64 (not yet), 1 for the largest (never) and 2 for others, which are
// followed by s(instant - now), saturated:
//
//	byte 1            version
//	byte              state
//	byte              mode: 0 ruled, 1 forced, 2 off
//	byte              rule that decided the state
//	byte              1 if flapping, else 0
//	instant           latest input
//	instant           end of the open period (not yet unless open)
//	u                 era
//	u                 failures in a row
//	byte              0: nothing else was needed yet, and the rest is absent; 1:
//	u, instants       length of the failure window, oldest first
//	byte              1 if the rate window has begun, else 0 and the next two are absent
//	instant           end of the current slice
//	10 x (u, u, u)    calls, failures, slow calls of each slice, oldest first
//	u, (u, instant)s  number of trials out; number and end of lease of each
//	u                 number of the last trial
//	u                 trials passed
//	instant           since when in this state
//	u                 planned length of the open period
//	u                 openings remembered for the growth
//	u, instants       length of the flap window, oldest first
//	instant           end of flapping (not yet unless flapping)
//	u, changes        number of changes not popped yet, oldest first
//	u, u, u, u        totals: opened, abandoned, lost, dropped
//
// where a change is the bytes kind, from, to, rule and suppressed (0 or 1), the
// instant At, u(OpenFor) and u of the seven Counts in the order of declaration.
//
// The cost grows with WindowFailures, Trials, FlapTransitions and the changes
// that wait. Not safe for concurrent use with inputs.
func (c *Core) AppendState(b []byte, now int64) []byte {
	b = append(b, stateVersion, byte(c.state), byte(c.mode), byte(c.why), flag(c.flap))
	b = appendInstant(b, now, c.latest)
	// What has no meaning in this state is left out, so that equal behaviour
	// gives equal bytes.
	until := int64(math.MinInt64)
	if c.state == Open {
		until = c.until
	}
	b = appendInstant(b, now, until)
	b = binary.AppendUvarint(b, uint64(c.era))
	b = binary.AppendUvarint(b, uint64(c.run))
	x := c.x
	if x == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = x.fails.append(b, now)
	b = append(b, flag(x.rates.live))
	if r := &x.rates; r.live {
		b = appendInstant(b, now, r.end)
		for i := range slices {
			s := r.slice[(r.cur+1+i)%slices]
			for _, v := range [...]uint64{s.calls, s.failed, s.slow} {
				b = binary.AppendUvarint(b, v)
			}
		}
	}
	b = binary.AppendUvarint(b, uint64(len(x.trials)))
	for _, t := range x.trials {
		b = binary.AppendUvarint(b, uint64(t.seq))
		b = appendInstant(b, now, t.due)
	}
	b = binary.AppendUvarint(b, uint64(x.seq))
	b = binary.AppendUvarint(b, uint64(x.passes))
	b = appendInstant(b, now, x.since)
	b = binary.AppendUvarint(b, uint64(x.length))
	b = binary.AppendUvarint(b, uint64(x.past))
	b = x.flaps.append(b, now)
	due := int64(math.MinInt64)
	if c.flap {
		due = x.flapDue
	}
	b = appendInstant(b, now, due)
	waiting := x.queue.buf[x.queue.head:]
	b = binary.AppendUvarint(b, uint64(len(waiting)))
	for i := range waiting {
		b = waiting[i].append(b, now)
	}
	for _, v := range [...]uint64{x.stats.Opened, x.stats.HalfOpenAbandoned, x.stats.HalfOpenLost, x.stats.Dropped} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// RestoreState replaces the state of the core with one that AppendState wrote,
// at the instant now of this core's timeline, and returns the bytes after it. The
// Config must be the one of the saved core; so should the seed, or the jitter of
// later openings differs. On an error, which wraps [ErrState], the core is
// unchanged: the bytes end too early, the version is unknown, or a value is out
// of the range that this Config allows. Not safe for concurrent use.
func (c *Core) RestoreState(b []byte, now int64) (rest []byte, err error) {
	d := decoder{b: b, now: now}
	if v := d.byte(math.MaxUint8); v != stateVersion && d.err == nil {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrState, v, stateVersion)
	}
	n := fresh(c.set, c.seed)
	n.state = State(d.byte(byte(HalfOpen)))
	n.mode = mode(d.byte(byte(off)))
	n.why = Rule(d.byte(byte(RuleReleased)))
	n.flap = d.flag()
	n.latest = d.instant()
	n.until = d.instant()
	n.era = uint32(d.uint(math.MaxUint32))
	n.run = uint32(d.uint(maxCount))
	if d.flag() {
		d.extra(&n)
	}
	if d.err == nil && !n.sound() {
		d.fail("the parts contradict each other")
	}
	if d.err != nil {
		return nil, d.err
	}
	n.plan()
	*c = n
	return d.b, nil
}

// extra decodes the part that a core has once something happened.
func (d *decoder) extra(c *Core) {
	x := c.need()
	d.ring(&x.fails)
	if r := &x.rates; d.flag() {
		r.live, r.end, r.cur = true, d.instant(), slices-1
		for i := range r.slice {
			s := &r.slice[i]
			// 2^59 keeps ten slices below 2^63.
			s.calls = d.uint(1 << 59)
			s.failed, s.slow = d.uint(s.calls), d.uint(s.calls)
			r.sum.calls += s.calls
			r.sum.failed += s.failed
			r.sum.slow += s.slow
		}
	}
	for range d.uint(uint64(c.set.trials)) {
		x.trials = append(x.trials, trial{uint32(d.uint(math.MaxUint32)), d.instant()})
	}
	x.seq = uint32(d.uint(math.MaxUint32))
	x.passes = int(d.uint(uint64(c.set.passes - 1)))
	x.since = d.instant()
	x.length = int64(d.uint(math.MaxInt64))
	x.past = uint32(d.uint(maxPast))
	d.ring(&x.flaps)
	x.flapDue = d.instant()
	for range d.uint(maxQueued) {
		if d.err != nil {
			return
		}
		x.queue.buf = append(x.queue.buf, d.change())
	}
	for _, p := range [...]*uint64{&x.stats.Opened, &x.stats.HalfOpenAbandoned, &x.stats.HalfOpenLost, &x.stats.Dropped} {
		*p = d.uint(math.MaxUint64)
	}
}

// sound reports whether a decoded state is one that inputs can lead to, as far
// as the methods rely on it: no state may be able to panic or to get stuck.
func (c *Core) sound() bool {
	x := c.x
	if c.era == 0 || (c.mode == off) != c.set.off {
		return false
	}
	if x == nil {
		return c.state == Closed && c.mode != forced && !c.flap
	}
	if c.mode == off || c.mode == forced && c.state == HalfOpen {
		return false
	}
	// A rate window without a rate, or a flap without detection, would be kept
	// up by nobody.
	if x.rates.live && !c.set.rates || c.flap && c.set.flapN == 0 || len(x.trials) > 0 && c.state != HalfOpen {
		return false
	}
	if x.rates.live && x.rates.end == math.MinInt64 || c.flap && x.flapDue == math.MinInt64 {
		return false
	}
	for i, t := range x.trials {
		if t.seq == 0 || i > 0 && (t.due < x.trials[i-1].due || t.seq == x.trials[i-1].seq) {
			return false
		}
	}
	return x.fails.sorted() && x.flaps.sorted()
}

// AppendState appends the ticket to b, with its time relative to now, and returns
// the longer slice: u(era and trial number) and an instant, as in
// [Core.AppendState]. Safe for concurrent use.
func (t Ticket) AppendState(b []byte, now int64) []byte {
	return appendInstant(binary.AppendUvarint(b, t.id), now, t.at)
}

// RestoreState replaces t by a ticket that AppendState wrote, for a core restored
// at the same instant now, and returns the bytes after it. On an error, which
// wraps [ErrState], t is unchanged: the bytes end too early. Not safe for
// concurrent use.
func (t *Ticket) RestoreState(b []byte, now int64) (rest []byte, err error) {
	d := decoder{b: b, now: now}
	n := Ticket{d.uint(math.MaxUint64), d.instant()}
	if d.err != nil {
		return nil, d.err
	}
	*t = n
	return d.b, nil
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// The first byte of an instant.
const (
	instantNotYet = iota
	instantNever
	instantAt
)

func appendInstant(b []byte, now, t int64) []byte {
	switch t {
	case math.MinInt64:
		return append(b, instantNotYet)
	case math.MaxInt64:
		return append(b, instantNever)
	}
	return binary.AppendVarint(append(b, instantAt), sub(t, now))
}

func (r *ring) append(b []byte, now int64) []byte {
	b = binary.AppendUvarint(b, uint64(r.n))
	for i := range r.n {
		b = appendInstant(b, now, r.at(i))
	}
	return b
}

func (r *ring) sorted() bool {
	for i := 1; i < r.n; i++ {
		if r.at(i) < r.at(i-1) {
			return false
		}
	}
	return true
}

// fields lists the fields of Counts in the order of the encoding.
func (n *Counts) fields() [7]*int {
	return [7]*int{&n.Consecutive, &n.WindowFailures, &n.Calls, &n.Failures, &n.Slow, &n.Passes, &n.Trials}
}

func (ch *Change) append(b []byte, now int64) []byte {
	b = append(b, byte(ch.Kind), byte(ch.From), byte(ch.To), byte(ch.Rule), flag(ch.Suppressed))
	b = appendInstant(b, now, ch.At)
	b = binary.AppendUvarint(b, uint64(ch.OpenFor))
	for _, p := range ch.Counts.fields() {
		b = binary.AppendUvarint(b, uint64(*p))
	}
	return b
}

// decoder reads a saved state. After the first error it returns zeros.
type decoder struct {
	b   []byte
	now int64
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrState, what)
	}
	d.b = nil
}

// byte reads a byte of at most limit.
func (d *decoder) byte(limit byte) byte {
	if len(d.b) == 0 {
		d.fail("truncated")
		return 0
	}
	v := d.b[0]
	if v > limit {
		d.fail(fmt.Sprintf("%d, want at most %d", v, limit))
		return 0
	}
	d.b = d.b[1:]
	return v
}

func (d *decoder) flag() bool { return d.byte(1) == 1 }

// uint reads an unsigned varint of at most limit.
func (d *decoder) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("truncated or overlong number")
		return 0
	}
	if v > limit {
		d.fail(fmt.Sprintf("%d, want at most %d", v, limit))
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) instant() int64 {
	switch d.byte(instantAt) {
	case instantNotYet:
		return math.MinInt64
	case instantNever:
		return math.MaxInt64
	}
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("truncated or overlong number")
		return 0
	}
	d.b = d.b[n:]
	if s := d.now + v; (s > d.now) == (v > 0) {
		return s
	}
	if v > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

func (d *decoder) ring(r *ring) {
	for range d.uint(uint64(len(r.buf))) {
		r.push(d.instant())
	}
}

func (d *decoder) change() Change {
	ch := Change{
		Kind: Kind(d.byte(byte(FlapEnded))),
		From: State(d.byte(byte(HalfOpen))), To: State(d.byte(byte(HalfOpen))),
		Rule: Rule(d.byte(byte(RuleReleased))), Suppressed: d.flag(),
		At: d.instant(), OpenFor: time.Duration(d.uint(math.MaxInt64)),
	}
	for _, p := range ch.Counts.fields() {
		*p = int(d.uint(math.MaxInt))
	}
	return ch
}
