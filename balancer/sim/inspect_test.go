package sim

import (
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// More of the inside, for the tests of the books and of the numbers.

func Threshold(share float64) uint64         { return threshold(share) }
func Short(d time.Duration) time.Duration    { return short(d) }
func RankOf(q float64, n uint64) uint64      { return rankOf(q, n) }
func Add(s Sum, n, d int64) Sum              { s.add(n, d); return s }
func Over(s Sum, n uint64) time.Duration     { return s.over(n) }
func Noted(ds ...time.Duration) (out Spread) { note(&out, ds); return out }

func note(s *Spread, ds []time.Duration) {
	for _, d := range ds {
		s.note(d)
	}
}

// Taken is how many attempts have not been given back.
func (m *Machine) Taken() int {
	n := 0
	for i := range m.m.attempts {
		if m.m.attempts[i].place != placeFree {
			n++
		}
	}
	return n
}

// Watch calls each with every attempt that is settled from now on.
func (m *Machine) Watch(each func(Attempt)) { m.m.each = each }

// Open is how many requests are under way.
func (m *Machine) Open() int { return int(m.m.open) }

// RestorePools puts a Pool that is restored from what the present one saves in
// its place, for every client. No request may be under way.
func (m *Machine) RestorePools() error {
	q := m.m
	q.sync()
	for i := range q.clients {
		c := &q.clients[i]
		pool, err := balancer.RestorePool(c.pool.Config(), c.pool.Save(), c.members(q)...)
		if err != nil {
			return err
		}
		c.pool = pool
	}
	return nil
}

// Now is the time of the latest event.
func (m *Machine) Now() time.Duration { return time.Duration(m.m.now) }

// Load is how many attempts each server has, by its id.
func (m *Machine) Load() map[string]int {
	out := map[string]int{}
	for i := range m.m.attempts {
		if a := &m.m.attempts[i]; a.place != placeFree {
			out[m.m.nodes[a.server].id]++
		}
	}
	return out
}

// Waits is how many events and limits there is room for.
func (m *Machine) Waits() int {
	n := cap(m.m.events.q)
	for i := range m.m.clients {
		n += len(m.m.clients[i].limits.ring)
	}
	return n
}
