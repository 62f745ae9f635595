package balancer

import (
	"math"
	"math/bits"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/ewma"
	"github.com/evenkeel-go/evenkeel/outlier"
)

// reasons is the set of causes that keep a host out of picks. Empty means
// selectable. What a single request excludes - the hosts it has tried - is not
// in here.
type reasons uint8

const (
	outUnhealthy reasons = 1 << iota
	outEjected
	outOpen
	outTrialing
	outFull
	outNoTraffic
	outReasons = iota
)

// never is the instant of what will not happen.
const never = math.MaxInt64

// nobody ends the lists of lease slots.
const nobody = int32(-1)

// host is all that a Pool knows of one upstream. It is created when an id joins
// and dies when the id leaves; leases keep it reachable until they end.
//
// With thousands of hosts each is out of the cache when its turn comes, so the
// fields stand in the order of who needs them, a line of 64 bytes at a time, and
// the whole fills a size class of the allocator that keeps to pairs of lines,
// since the hardware fetches them in pairs: a pick by load or latency reads the
// first line of two hosts, an attempt that succeeds touches four lines of one.
type host struct {
	// What a pick compares.
	inflight    int32
	weight      int32
	oldestSince int64 // when the oldest unanswered call began; never if none
	latency     ewma.Core
	why         reasons
	healthy     bool
	failed      bool // some of its answers were failures: failing does not read 0
	countable   bool // what the outlier detector was last told: whether it can serve
	limit       int32
	index       int32 // in its tier; -1 once the host has left
	pos         int32 // in the order of the latest Update

	breaker breaker.Core

	failing ewma.Core // share of failures, in 1/failUnit
	oldest  int32
	newest  int32
	tier    *tier
	due     int64
	served  uint64

	outlier outlier.Host

	heapAt   int32 // in the heap of due times; -1 if not in it
	priority int32
	failures uint64
	trips    uint64
	id       string
	scratch  [2]uint64
	note     *string // the reason given with the latest SetHealth; nil for none
	joined   int64
}

// key is the hash of the id, which keys the host's own draws.
func (h *host) key() uint64 { return hashID(h.id) }

// noted is the reason given with the latest SetHealth.
func (h *host) noted() string {
	if h.note == nil {
		return ""
	}
	return *h.note
}

// failUnit is the whole, where a share of failures is a part.
const failUnit = 1e9

// noteFailing keeps h.failed.
func (h *host) noteFailing() {
	share, _ := h.failing.Last()
	h.failed = share != 0
}

// failCost is what the failures to be expected of the next call cost: their
// share, as it has decayed by now, times the penalty of one. It stays far below
// the largest int64, since a penalty is at most maxPenalty.
func (h *host) failCost(now, penalty int64) int64 {
	if !h.failed {
		return 0 // the usual case, without the decay
	}
	share, _ := h.failing.Value(now)
	hi, lo := bits.Mul64(uint64(share), uint64(penalty))
	cost, _ := bits.Div64(hi, lo, failUnit)
	return int64(cost)
}

// waiting is the age of the oldest call that has not been answered yet.
func (h *host) waiting(now int64) int64 {
	if h.oldestSince == never || now <= h.oldestSince {
		return 0
	}
	return saturatingSub(now, h.oldestSince)
}

// tier is the set of hosts of one priority and the picker over them.
type tier struct {
	priority int
	view     View
	picker   Picker
	follower Follower // the picker, if it follows changes
	stale    bool     // the picker goes by members or ramps that have moved on
}

func (t *tier) setUsable(i int, on bool) {
	if t.view.usable.set(i, on) {
		t.changed(i)
	}
}

func (t *tier) changed(i int) {
	if t.follower != nil {
		t.follower.Changed(i)
	}
}

// dueHeap orders hosts by (due, position): a binary heap with back pointers.
type dueHeap []*host

func (q dueHeap) before(a, b *host) bool {
	return a.due < b.due || a.due == b.due && a.pos < b.pos
}

// next is the earliest due time, or never.
func (q dueHeap) next() int64 {
	if len(q) == 0 {
		return never
	}
	return q[0].due
}

// schedule gives h the due time at, never to take it out. O(log n).
func (q *dueHeap) schedule(h *host, at int64) {
	if h.heapAt < 0 {
		if at == never {
			return
		}
		h.heapAt = int32(len(*q))
		*q = append(*q, h)
	}
	if at == never {
		last := (*q)[len(*q)-1]
		i := h.heapAt
		(*q)[i], last.heapAt = last, i
		(*q)[len(*q)-1] = nil
		*q = (*q)[:len(*q)-1]
		h.heapAt, h.due = -1, never
		if last != h {
			q.sift(last)
		}
		return
	}
	h.due = at
	q.sift(h)
}

func (q dueHeap) sift(h *host) {
	i := int(h.heapAt)
	for i > 0 {
		up := (i - 1) / 2
		if !q.before(h, q[up]) {
			break
		}
		q[i], q[up].heapAt = q[up], int32(i)
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(q) {
			break
		}
		if down+1 < len(q) && q.before(q[down+1], q[down]) {
			down++
		}
		if !q.before(q[down], h) {
			break
		}
		q[i], q[down].heapAt = q[down], int32(i)
		i = down
	}
	q[i], h.heapAt = h, int32(i)
}
