package sim

import "slices"

// kind is what an event does.
type kind uint8

const (
	evArrive   kind = iota // a: client, whose next open-loop request begins
	evUser                 // a: client, b: user, whose next request begins
	evAnswer               // a: attempt, with which the server is done
	evTimeout              // a: client, whose oldest time limit may be over
	evExpire               // a: attempt, b: generation; the request's deadline
	evRetry                // a: request, whose wait is over
	evScript               // the script's next boundary
	evProbe                // a: check, b: epoch; its next probe
	evProbeEnd             // a: check, b: epoch; a probe's deadline
)

// kindBits of an event's number are its kind. The 60 that are left would last for
// tens of thousands of years.
const kindBits = 4

// event is one entry of the queue of what is going to happen. Events at one
// instant happen in the order of seq, the order in which they were scheduled.
type event struct {
	at   int64
	seq  uint64 // seq<<kindBits | kind
	a, b uint32
}

func (e event) kind() kind { return kind(e.seq & (1<<kindBits - 1)) }

// heap is a 4-ary min-heap of events by (at, seq): half as deep as a binary one,
// and the four children share cache lines. Most events schedule another one, so
// a pop leaves a hole at the root, which the next push fills in one pass down
// instead of two. The zero heap is empty.
type heap struct {
	q    []event
	hole bool // q[0] has been popped
}

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (h *heap) len() int {
	if h.hole {
		return len(h.q) - 1
	}
	return len(h.q)
}

// all are the events, in no order.
func (h *heap) all() []event {
	if h.hole {
		return h.q[1:]
	}
	return h.q
}

func (h *heap) push(e event) {
	if h.hole {
		h.hole = false
		h.down(0, e)
		return
	}
	h.q = append(h.q, e)
	q := h.q
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !before(&e, &q[up]) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = e
}

// pop takes the first event. The heap must not be empty.
func (h *heap) pop() event {
	if h.hole {
		last := h.q[len(h.q)-1]
		h.q = h.q[:len(h.q)-1]
		h.down(0, last)
	}
	h.hole = true
	return h.q[0]
}

// take removes the events that which picks and appends them to out, in their
// order. It is for what a script turns over, not for every event. O(n), and for
// those that are taken O(n log n).
func (h *heap) take(out []event, which func(event) bool) []event {
	q := h.all()
	h.hole = false
	kept, from := h.q[:0], len(out)
	for _, e := range q {
		if which(e) {
			out = append(out, e)
		} else {
			kept = append(kept, e)
		}
	}
	h.q = kept
	for i := (len(kept) - 2) / 4; i >= 0 && len(kept) > 1; i-- {
		h.down(i, kept[i])
	}
	slices.SortFunc(out[from:], func(a, b event) int {
		if before(&a, &b) {
			return -1
		}
		return 1
	})
	return out
}

// down puts e into the free place i and moves it to where it belongs. O(log n),
// and much less where e comes soon, as the next arrival does.
func (h *heap) down(i int, e event) {
	q := h.q
	for {
		first := 4*i + 1
		if first >= len(q) {
			break
		}
		least, at := first, &q[first]
		for c := first + 1; c < min(first+4, len(q)); c++ {
			if k := &q[c]; k.at < at.at || k.at == at.at && k.seq < at.seq {
				least, at = c, k
			}
		}
		if !before(at, &e) {
			break
		}
		q[i] = *at
		i = least
	}
	q[i] = e
}
