package clock

// entry is one armed timer in the queue. The key is kept beside the pointer so
// that comparisons do not follow it.
type entry struct {
	when uint64 // due, on the timeline of Manual.elapsed
	seq  uint64 // number of the arming, unique
	t    *manualTimer
}

// before orders entries by due time, then by arming.
func (e entry) before(o entry) bool {
	if e.when != o.when {
		return e.when < o.when
	}
	return e.seq < o.seq
}

// queue is a binary heap of armed timers. Invariant: q[i].t.pos == i+1 for
// every i, so that a timer is found, and removed, in O(log n); a timer that is
// not in the queue has pos 0.
type queue []entry

// push adds e in O(log n).
func (q *queue) push(e entry) {
	*q = append(*q, e)
	q.up(len(*q)-1, e)
}

// remove takes out the entry at i in O(log n) and returns it.
func (q *queue) remove(i int) entry {
	h := *q
	out := h[i]
	out.t.pos = 0
	last := h[len(h)-1]
	h[len(h)-1] = entry{} // let the timer go
	h = h[:len(h)-1]
	*q = h
	if i == len(h) {
		return out
	}
	// The moved entry may belong above i when i was in another branch.
	if i > 0 && last.before(h[(i-1)/2]) {
		q.up(i, last)
	} else {
		q.down(i, last)
	}
	return out
}

// up places e at i or above.
func (q *queue) up(i int, e entry) {
	h := *q
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].t.pos = i + 1
		i = parent
	}
	h[i] = e
	e.t.pos = i + 1
}

// down places e at i or below.
func (q *queue) down(i int, e entry) {
	h := *q
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(e) {
			break
		}
		h[i] = h[child]
		h[i].t.pos = i + 1
		i = child
	}
	h[i] = e
	e.t.pos = i + 1
}
