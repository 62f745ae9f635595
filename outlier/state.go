package outlier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrState is wrapped by every error of [Core.RestoreState].
var ErrState = errors.New("outlier: invalid state")

// stateVersion is the first byte of a saved state.
const stateVersion = 1

// Bits of the second byte of a saved state, and of the first field of a host.
const (
	coreStarted = 1 << iota
	coreDirty

	hostSaved    = 1 // else not a member: nothing follows
	hostReturned = 2 // has returned from an ejection: since is meaningful
)

// AppendState appends the state of c to b and returns the extended slice. hosts
// are the members in the owner's order; members left out are not saved. Changes
// not yet popped are not part of the state, nor are the Config, the seed and
// Host.Index, which belong to the owner. It changes nothing, and costs O(n).
//
// The encoding is one byte of version (1), then varints of encoding/binary.
// Times are signed and relative to now, so that a state can move to another
// timeline; everything else is unsigned.
//
//	core:  bits (1 started, 2 counting in an interval); times of the latest
//	       input, of the grid's origin, of the end of the interval; time, hosts,
//	       mean, stdev and (signed) line of the last sweep; number of hosts
//	host:  bits (1 member, 2 has returned), and for a member: key, flags, spared
//	       rules, rule of the last ejection; streaks (all, gateway, transport);
//	       good, bad; samples, fresh samples, score; ejections, verdicts, count,
//	       weight; times of the last return, of the end of the ejection, of the
//	       start of the slow period, of the next step of the ramp, which a host
//	       that cannot serve has not
//
// The flags are 1 member, 2 usable, 4 out, 8 out only as if, 16 on probation, 32
// on a ramp, 64 slow. A time that means nothing in the host's state is written
// as 0.
func (c *Core) AppendState(b []byte, now int64, hosts []*Host) []byte {
	at := func(t int64) { b = binary.AppendVarint(b, shift(t, now)) }
	num := func(n uint64) { b = binary.AppendUvarint(b, n) }
	maybe := func(ok bool, t int64) {
		if ok {
			at(t)
		} else {
			num(0)
		}
	}

	b = append(b, stateVersion)
	var bits uint64
	if c.started {
		bits |= coreStarted
	}
	if c.dirty {
		bits |= coreDirty
	}
	num(bits)
	maybe(c.started, c.latest)
	maybe(c.started, c.origin)
	maybe(c.dirty, c.sweepAt)
	at(c.last.At)
	num(uint64(c.last.Hosts))
	num(uint64(c.last.Mean))
	num(uint64(c.last.Stdev))
	b = binary.AppendVarint(b, c.last.Line)

	num(uint64(len(hosts)))
	for _, h := range hosts {
		if h.flags&member == 0 {
			num(0)
			continue
		}
		returned := h.since != math.MinInt64
		if returned {
			num(hostSaved | hostReturned)
		} else {
			num(hostSaved)
		}
		num(h.key)
		num(uint64(h.flags &^ based))
		num(uint64(h.spared))
		num(uint64(h.rule))
		num(uint64(h.streak))
		num(uint64(h.gateway))
		num(uint64(h.transport))
		num(uint64(h.good))
		num(uint64(h.bad))
		num(uint64(h.samples))
		num(uint64(h.fresh))
		num(uint64(h.score))
		num(uint64(h.total))
		num(uint64(h.verdicts))
		num(uint64(h.count))
		num(uint64(h.weight))
		maybe(returned, h.since)
		maybe(h.flags&out != 0, h.until)
		maybe(h.flags&slow != 0, h.overAt)
		if climbs(h.flags) {
			at(c.plan[h.pos].at)
		} else {
			num(0)
		}
	}
	return b
}

// RestoreState gives c the state that [Core.AppendState] wrote to the front of
// b, with now in the place of the save's now, and returns the rest of b. hosts
// are the distinct records of the saved hosts, in the same order, added to c or
// not; afterwards exactly the saved members among them are c's members. c must
// have the Config and seed of the saved Core to go on as that one would have.
//
// The error wraps [ErrState] if b is cut short, of another version, for another
// number of hosts, or holds what no Core could have written; c and hosts are
// then unchanged. It costs O(n log n).
func (c *Core) RestoreState(b []byte, now int64, hosts []*Host) (rest []byte, err error) {
	d := decoder{b: b, now: now}
	if v := d.version(); d.err == nil && v != stateVersion {
		return b, fmt.Errorf("%w: version %d, want %d", ErrState, v, stateVersion)
	}
	var to Core
	bits := d.num("core bits", coreStarted|coreDirty)
	to.started = bits&coreStarted != 0
	to.dirty = bits&coreDirty != 0
	to.latest, to.origin, to.sweepAt = d.timeIf(to.started), d.timeIf(to.started), d.timeIf(to.dirty)
	if to.origin > to.latest || to.dirty && !to.started {
		d.fail("core times")
	}
	to.last.At = d.time()
	to.last.Hosts = int(d.num("sweep hosts", math.MaxInt32))
	to.last.Mean = int64(d.num("sweep mean", unit))
	to.last.Stdev = int64(d.num("sweep stdev", unit))
	to.last.Line = d.signed()
	if n := d.num("number of hosts", math.MaxInt32); d.err == nil && n != uint64(len(hosts)) {
		return b, fmt.Errorf("%w: %d hosts, want %d", ErrState, n, len(hosts))
	}
	saved := make([]Host, len(hosts))
	steps := make([]int64, len(hosts))
	for i := range saved {
		saved[i], steps[i] = d.host()
	}
	if d.err != nil {
		return b, d.err
	}
	c.adopt(&to, hosts, saved, steps)
	return d.b, nil
}

// adopt makes a decoded state that of c.
func (c *Core) adopt(to *Core, hosts []*Host, saved []Host, steps []int64) {
	// Members that the state does not know are members no more.
	for _, h := range c.hosts {
		h.flags, h.pos, h.med = 0, -1, 0
	}
	to.set, to.seed = c.set, c.seed
	*c = *to
	for i, h := range hosts {
		saved[i].Index, saved[i].owner = h.Index, h.owner
		*h = saved[i]
		if h.flags&member == 0 {
			continue
		}
		h.slot = int32(len(c.hosts))
		c.hosts = append(c.hosts, h)
		c.count(h, 1)
		switch {
		case h.flags&out != 0:
			c.plan.set(h, h.until)
		case climbs(h.flags):
			c.plan.set(h, steps[i])
		}
	}
	c.rebuild() // sums and halves follow from the scores
	c.replan()
}

// climbs tells whether a host has a step of a ramp planned.
func climbs(flags uint16) bool { return flags&(ramping|usable) == ramping|usable }

// decoder reads a saved state. After the first error it reads zeros.
type decoder struct {
	b   []byte
	now int64
	err error
}

// fail notes that what is not possible.
func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrState, what)
	}
}

// version reads the first byte.
func (d *decoder) version() byte {
	if len(d.b) == 0 {
		d.fail("cut short")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// num reads an unsigned number up to limit.
func (d *decoder) num(what string, limit uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	switch {
	case n == 0:
		d.fail("cut short")
		return 0
	case n < 0 || v > limit:
		d.fail(what)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// signed reads a signed number.
func (d *decoder) signed() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b)
	switch {
	case n == 0:
		d.fail("cut short")
		return 0
	case n < 0:
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// time reads a time, relative to now.
func (d *decoder) time() int64 { return unshift(d.signed(), d.now) }

// timeIf reads a time that means something only if ok.
func (d *decoder) timeIf(ok bool) int64 {
	if !ok {
		if d.signed() != 0 {
			d.fail("time without meaning")
		}
		return 0
	}
	return d.time()
}

// host reads one host and the time of its next step.
func (d *decoder) host() (h Host, step int64) {
	h = Host{since: math.MinInt64, pos: -1}
	bits := d.num("host bits", hostSaved|hostReturned)
	if bits&hostSaved == 0 {
		if bits != 0 {
			d.fail("host bits")
		}
		return h, 0
	}
	h.key = d.num("key", math.MaxUint64)
	h.flags = uint16(d.num("flags", knownFlags&^based))
	h.spared = uint8(d.num("spared rules", math.MaxUint8))
	h.rule = Rule(d.num("rule", rules-1))
	for _, n := range []*uint32{&h.streak, &h.gateway, &h.transport, &h.good, &h.bad, &h.samples, &h.fresh} {
		*n = uint32(d.num("counter", never-1))
	}
	h.score = int64(d.num("score", math.MaxInt64))
	h.total = int64(d.num("ejections", math.MaxInt64))
	h.verdicts = uint32(d.num("verdicts", math.MaxUint32))
	h.count = int32(d.num("count", math.MaxInt32))
	h.weight = int32(d.num("weight", 1000))
	if since := d.timeIf(bits&hostReturned != 0); bits&hostReturned != 0 {
		h.since = since
	}
	h.until = d.timeIf(h.flags&out != 0)
	h.overAt = d.timeIf(h.flags&slow != 0)
	step = d.timeIf(climbs(h.flags))

	// What no Core can be in: out only as if without being out, out and judged,
	// below full weight without a ramp.
	isOut, isRamping := h.flags&out != 0, h.flags&ramping != 0
	switch {
	case h.flags&member == 0,
		h.flags&shadowed != 0 && !isOut,
		isOut && h.flags&(ramping|probation|slow) != 0,
		h.weight == 0 || (h.weight < 1000) != isRamping:
		d.fail("flags")
	}
	return h, step
}

// shift returns t - now, as far as it fits.
func shift(t, now int64) int64 {
	d := t - now
	switch {
	case now < 0 && t > math.MaxInt64+now:
		return math.MaxInt64
	case now > 0 && t < math.MinInt64+now:
		return math.MinInt64
	}
	return d
}

// unshift returns d + now, as far as it fits.
func unshift(d, now int64) int64 {
	switch {
	case now > 0 && d > math.MaxInt64-now:
		return math.MaxInt64
	case now < 0 && d < math.MinInt64-now:
		return math.MinInt64
	}
	return d + now
}
