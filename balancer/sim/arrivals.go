package sim

import (
	"math"
	"math/bits"
)

// q40 is the unit of loads, which go from a billionth to a million.
const q40 = 1 << 40

// begin schedules the first requests of a client. Users begin at different points
// of their first pause: started together they would stay in step for as long as
// the answers take the same time.
func (m *machine) begin(ci uint32) {
	c := &m.clients[ci]
	if c.Users == 0 {
		m.scheduleArrival(c)
		return
	}
	for u := range c.users {
		at := int64(0)
		if !c.Think.isZero() {
			first := uint64(u+1) << 32
			pause := c.think.sample(draw(c.salt, streamThink, first))
			at = int64(below(draw(c.salt, streamBegin, first), uint64(pause)))
		}
		if at < m.endAt {
			m.push(at, evUser, ci, uint32(u))
		}
	}
}

// scheduleArrival schedules the client's next open-loop request, if there is one
// before the end. Arrivals are added up with 16 binary places, so that a gap that
// is no whole number of nanoseconds does not drift. One arrival at a time is in
// the queue, however many are to come.
func (m *machine) scheduleArrival(c *client) {
	var at int64
	switch {
	case len(c.Times) > 0:
		if c.sent >= uint64(len(c.Times)) {
			return
		}
		at = int64(c.Times[c.sent])
	default:
		x := mix(c.arrivals + c.sent*golden)
		switch {
		case !c.Even:
			c.left = times(c.gap, m.tables.exponential(x))
		case c.sent == 0:
			c.left = below(x, c.gap)
		default:
			c.left = c.gap
		}
		c.from = c.nextAt
		at = c.await(m.load)
	}
	if at < m.endAt {
		m.push(at, evArrive, c.index, 0)
	}
}

// await says when the client's next arrival comes, at a load that stays as it is.
func (c *client) await(load uint64) int64 {
	gap := c.left
	if load != q40 {
		gap = atLoad(gap, load)
	}
	next, beyond := bits.Add64(c.from, gap, 0)
	if beyond != 0 {
		next = math.MaxUint64
	}
	c.nextAt = next
	return int64(next >> 16)
}

// reload changes the load. What a client still had to wait for its next arrival
// changes by the same ratio, also if it would have come after the end: the
// process is the one of the old load up to now, and from now on that of the new
// one.
func (m *machine) reload(load uint64) {
	was := m.load
	m.load = load
	if m.now == 0 || m.now >= m.endAt {
		return // nothing is scheduled yet, or will be any more
	}
	m.stale = m.events.take(m.stale[:0], func(e event) bool {
		return e.kind() == evArrive && m.clients[e.a].Rate > 0
	})
	now := uint64(m.now) << 16
	for i := range m.clients {
		c := &m.clients[i]
		if c.Rate == 0 {
			continue
		}
		// The arrival is still to come, so that this is less than what is left, up to
		// the rounding, and fits.
		hi, lo := bits.Mul64(now-c.from, was)
		c.left -= min(c.left, hi<<24|lo>>40)
		c.from = now
		if at := c.await(load); at < m.endAt {
			m.push(at, evArrive, c.index, 0)
		}
	}
}

// arrive begins an open-loop request.
func (m *machine) arrive(ci uint32) {
	c := &m.clients[ci]
	c.sent++
	id := c.sent
	// The next arrival goes first: it fills the hole that this one has left at
	// the top of the heap, and rarely sinks far.
	m.scheduleArrival(c)
	m.request(ci, 0, id)
}

// userSends begins a request of a user. Its number has the user in it: numbers
// counted over all users would depend on who was answered first, and a request
// that is left out would change all that follow.
func (m *machine) userSends(ci, user uint32) {
	c := &m.clients[ci]
	c.users[user]++
	m.request(ci, user, uint64(user+1)<<32|c.users[user])
}

// userThinks schedules the next request of a user, after a pause of at least
// that much.
func (m *machine) userThinks(c *client, user uint32, id uint64, least int64) {
	pause := least
	if !c.Think.isZero() {
		pause = max(pause, c.think.sample(draw(c.salt, streamThink, id)))
	}
	if at := satAdd(m.now, pause); at < m.endAt {
		m.push(at, evUser, c.index, user)
	}
}

// loadOf is the factor of a Surge in q40.
func (c Change) loadOf() uint64 {
	if c.Factor == 0 {
		return 10 * q40
	}
	return max(1, uint64(math.Floor(float64(c.Factor*q40)+0.5)))
}

// times is d times a factor in q32, saturating.
func times(d, factor uint64) uint64 {
	hi, lo := bits.Mul64(d, factor)
	if hi>>32 != 0 {
		return math.MaxUint64
	}
	return hi<<32 | lo>>32
}

// atLoad is how long a gap becomes at a load in q40, saturating. It is never
// nothing, so that time goes on at any load.
func atLoad(gap, load uint64) uint64 {
	hi, lo := gap>>24, gap<<40
	if hi >= load {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, load)
	return max(1, q)
}
