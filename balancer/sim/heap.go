package sim

// kind is what an event does.
type kind uint8

const (
	evArrive  kind = iota // a: client, whose next open-loop request begins
	evUser                // a: client, b: user, whose next request begins
	evAnswer              // a: attempt, which the server has finished
	evTimeout             // a: client, whose oldest time limit may be over
	evExpire              // a: attempt, b: generation; the request's deadline
	evRetry               // a: request, whose wait is over
	evScript              // the script's next boundary
)

// event is one entry of the queue of what is going to happen. Events at one
// instant happen in the order of seq, the order in which they were scheduled.
type event struct {
	at   int64
	seq  uint64 // seq<<3 | kind
	a, b uint32
}

func (e event) kind() kind { return kind(e.seq & 7) }

// heap is a 4-ary min-heap of events by (at, seq): half as deep as a binary one,
// and the four children share cache lines.
type heap []event

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (h *heap) push(e event) {
	*h = append(*h, e)
	q := *h
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

func (h *heap) pop() event {
	q := *h
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	if len(q) == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= len(q) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(q)); c++ {
			if before(&q[c], &q[least]) {
				least = c
			}
		}
		if !before(&q[least], &last) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = last
	return top
}
