package hashring

import (
	"cmp"
	"math/bits"
	"slices"
)

// quotas divides n among positive weights, whose sum fits 64 bits: to each its
// exact share rounded down, and the rest by largest remainder (Hamilton's
// method), ties to the earlier. Whoever would get nothing gets one, which the
// others pay for in proportion. n is at least the number of weights.
func quotas(weights []uint64, n uint64) []uint64 {
	q := make([]uint64, len(weights))
	open := make([]int, len(weights)) // those not fixed at one
	for k := range open {
		open[k] = k
	}
	var rest []share
	for {
		var sum uint64
		for _, k := range open {
			sum += weights[k]
		}
		rest = rest[:0]
		kept := open[:0]
		fixed := uint64(0)
		for _, k := range open {
			hi, lo := bits.Mul64(n, weights[k])
			whole, rem := bits.Div64(hi, lo, sum)
			if whole == 0 {
				q[k] = 1
				fixed++
				continue
			}
			q[k] = whole
			kept = append(kept, k)
			rest = append(rest, share{k, rem})
		}
		open = kept
		if fixed == 0 || len(open) == 0 {
			break
		}
		n -= fixed
	}
	slices.SortStableFunc(rest, func(a, b share) int { return cmp.Compare(b.rem, a.rem) })
	for _, s := range rest {
		n -= q[s.k]
	}
	for _, s := range rest[:n] {
		q[s.k]++
	}
	return q
}

// share is what rounding down cut off a member's quota.
type share struct {
	k   int
	rem uint64
}

// turns deals out turns in rounds: a member of quota q has its j-th turn,
// counted from 0, in round floor(j*max/q), where max is the largest quota. So
// all have a turn in the first round, the largest in every one, equal quotas
// alternate, and max rounds give each member exactly its quota.
//
// The members due in one round form a list; the work per turn is O(1) however
// uneven the quotas are.
type turns struct {
	quotas []uint64
	top    uint64
	taken  []uint64 // turns a member has had
	head   []int32  // by round: first member due, -1 if none
	tail   []int32  // by round: last member due
	link   []int32  // by member: the next one due in the same round
	round  int
}

func newTurns(quotas []uint64) *turns {
	top := slices.Max(quotas)
	t := &turns{
		quotas: quotas,
		top:    top,
		taken:  make([]uint64, len(quotas)),
		head:   make([]int32, top),
		tail:   make([]int32, top),
		link:   make([]int32, len(quotas)),
	}
	for i := range t.head {
		t.head[i] = -1
	}
	for k := range quotas {
		t.due(int32(k), 0)
	}
	return t
}

// due enters a member for a round, behind those already there.
func (t *turns) due(k int32, round uint64) {
	t.link[k] = -1
	if t.head[round] < 0 {
		t.head[round] = k
	} else {
		t.link[t.tail[round]] = k
	}
	t.tail[round] = k
}

// next returns the member whose turn it is. It is called once for each unit of
// quota.
func (t *turns) next() int32 {
	for t.head[t.round] < 0 {
		t.round++
	}
	k := t.head[t.round]
	t.head[t.round] = t.link[k]
	// The next turn is at least one round on, because no quota exceeds top. A
	// product of two table sizes fits 64 bits with room to spare.
	if t.taken[k]++; t.taken[k] < t.quotas[k] {
		t.due(k, t.taken[k]*t.top/t.quotas[k])
	}
	return k
}
