package sim

import "time"

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
