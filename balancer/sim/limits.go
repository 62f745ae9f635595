package sim

// minTidy is how many events are too few to be tidied up.
const minTidy = 256

// limits is a ring of time limits. All attempts of a client have the same
// timeout, so they end in the order in which they began, and one event for the
// oldest is enough.
type limits struct {
	ring     []limit
	at, size int
}

type limit struct {
	at       int64
	seq      uint64
	attempt  uint32
	attemptG uint32
}

func (l *limits) first() *limit { return &l.ring[l.at] }

func (l *limits) drop() {
	l.at = (l.at + 1) & (len(l.ring) - 1)
	l.size--
}

// limit notes until when a client waits for an attempt.
func (m *machine) limit(c *client, at int64, ai uint32) {
	x := limit{at: at, seq: m.number(), attempt: ai, attemptG: m.attempts[ai].gen}
	l := &c.limits
	if l.size == len(l.ring) {
		m.makeRoom(l)
	}
	l.ring[(l.at+l.size)&(len(l.ring)-1)] = x
	l.size++
	if !c.armed {
		c.armed = true
		m.pushSeq(x.at, x.seq, evTimeout, c.index, 0)
	}
}

// makeRoom leaves out the limits of attempts that are settled, but for the first,
// whose event may be in the queue. A ring that only grew would have room for all
// attempts of a timeout's length, most of which are long over. It doubles where
// half of it is still needed, so that an attempt is looked at twice at most.
func (m *machine) makeRoom(l *limits) {
	kept, mask := 0, len(l.ring)-1
	for i := range l.size {
		if x := l.ring[(l.at+i)&mask]; i == 0 || m.waits(x) {
			l.ring[(l.at+kept)&mask] = x
			kept++
		}
	}
	l.size = kept
	if 2*kept < len(l.ring) {
		return
	}
	bigger := make([]limit, max(16, 2*len(l.ring)))
	for i := range kept {
		bigger[i] = l.ring[(l.at+i)&mask]
	}
	l.ring, l.at = bigger, 0
}

// timeouts ends the client's oldest attempt, if it still waits, and schedules
// the next limit that matters. Each limit keeps the number that it was given when
// its attempt began, so that the order of events is the one that an event for
// each of them would have.
func (m *machine) timeouts(ci uint32) {
	c := &m.clients[ci]
	x := *c.limits.first()
	c.limits.drop()
	// A retry may push a limit of its own: armed stays set until this is over.
	if m.waits(x) {
		m.giveUp(x.attempt)
	}
	c.armed = false
	for c.limits.size > 0 {
		x := c.limits.first()
		if m.waits(*x) {
			c.armed = true
			m.pushSeq(x.at, x.seq, evTimeout, ci, 0)
			return
		}
		c.limits.drop()
	}
}

// waits tells whether the attempt of a limit has not been settled yet. The slot
// may have a new tenant since, which the generation tells apart.
func (m *machine) waits(x limit) bool {
	a := &m.attempts[x.attempt]
	return a.gen == x.attemptG && a.request != nobody
}

// expireAt schedules the end of an attempt that its request's deadline cuts short.
// Such events lie in the queue until they are due, though the attempt is long
// settled: whenever there are twice as many events as there were after the last
// time, those are thrown out.
func (m *machine) expireAt(at int64, ai uint32) {
	if m.events.len() >= m.tidyAt {
		m.stale = m.events.take(m.stale[:0], func(e event) bool {
			return e.kind() == evExpire && !m.waits(limit{attempt: e.a, attemptG: e.b})
		})
		m.tidyAt = max(minTidy, 2*m.events.len())
	}
	m.push(at, evExpire, ai, m.attempts[ai].gen)
}
