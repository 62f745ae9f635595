package breaker

import "math"

// ring holds the last len(buf) instants, for rules of the form "n of them inside
// a window". Nothing else about the past is needed to decide such a rule
// exactly.
type ring struct {
	buf  []int64
	head int // where the next instant goes; the oldest one once full
	n    int
}

// push adds t and returns the oldest instant, and whether the ring is full, so
// that the oldest is the len(buf)-th youngest.
func (r *ring) push(t int64) (oldest int64, full bool) {
	r.buf[r.head] = t
	if r.head++; r.head == len(r.buf) {
		r.head = 0
	}
	if r.n < len(r.buf) {
		r.n++
	}
	return r.buf[r.head], r.n == len(r.buf)
}

// clear forgets everything.
func (r *ring) clear() { r.head, r.n = 0, 0 }

// at returns the i-th oldest instant.
func (r *ring) at(i int) int64 {
	i += r.head - r.n
	if i < 0 {
		i += len(r.buf)
	}
	return r.buf[i]
}

// younger returns how many instants are less than window old at now.
func (r *ring) younger(now, window int64) int {
	n := 0
	for i := r.n - 1; i >= 0 && sub(now, r.at(i)) < window; i-- {
		n++
	}
	return n
}

// slices is the number of slices of the rate window.
const slices = 10

// tally counts results.
type tally struct{ calls, failed, slow uint64 }

// rates is a time window over results in ten slices with running sums. The first
// result starts the first slice; from then on slices follow each other without a
// gap, so that the k-th result at time t lies in slice (t-first)/slice. The
// window is the current slice and the nine before it.
type rates struct {
	end   int64 // end of the current slice
	live  bool  // the first result has been seen
	cur   int
	sum   tally // over all slices
	slice [slices]tally
}

// add counts one result at now.
func (r *rates) add(now, slice int64, failed, slow bool) {
	if !r.live {
		r.live, r.end = true, deadline(now, slice)
	} else if now >= r.end {
		r.roll(now, slice)
	}
	b := &r.slice[r.cur]
	b.calls++
	r.sum.calls++
	if failed {
		b.failed++
		r.sum.failed++
	}
	if slow {
		b.slow++
		r.sum.slow++
	}
}

// steps returns how many slices end between the current one and now.
func (r *rates) steps(now, slice int64) uint64 {
	if now < r.end || r.end == math.MaxInt64 {
		return 0
	}
	// The unsigned difference of two int64 is exact even where the signed one
	// would overflow.
	return (uint64(now)-uint64(r.end))/uint64(slice) + 1
}

// roll moves to the slice of now and drops what has left the window.
func (r *rates) roll(now, slice int64) {
	n := r.steps(now, slice)
	if n == 0 {
		return
	}
	end := uint64(r.end) + n*uint64(slice)
	if r.end = int64(end); r.end <= now {
		r.end = math.MaxInt64 // wrapped: the last slice never ends
	}
	if n >= slices {
		r.slice, r.sum = [slices]tally{}, tally{}
		return
	}
	for ; n > 0; n-- {
		if r.cur++; r.cur == slices {
			r.cur = 0
		}
		b := &r.slice[r.cur]
		r.sum.calls -= b.calls
		r.sum.failed -= b.failed
		r.sum.slow -= b.slow
		*b = tally{}
	}
}

// at returns the sums as roll(now) would leave them, and changes nothing.
func (r *rates) at(now, slice int64) tally {
	sum := r.sum
	n := r.steps(now, slice)
	if n >= slices {
		return tally{}
	}
	for i := r.cur; n > 0; n-- {
		if i++; i == slices {
			i = 0
		}
		sum.calls -= r.slice[i].calls
		sum.failed -= r.slice[i].failed
		sum.slow -= r.slice[i].slow
	}
	return sum
}
