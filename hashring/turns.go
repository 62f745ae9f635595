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

// turnOrder returns whose turn it is, n turns in all, where the quotas sum to
// n: a member of quota q has its j-th turn, counted from 0, in round
// floor(j*max/q), where max is the largest quota, and within a round the turns
// are in the order of the members. So all have a turn in the first round, the
// largest in every one, equal quotas alternate, and max rounds give each member
// exactly its quota.
//
// It takes O(n) time however uneven the quotas are: a counting sort by round.
func turnOrder(quotas []uint64, n uint64) []int32 {
	top := slices.Max(quotas)
	starts := make([]int32, top+1)
	for _, q := range quotas {
		for j := range q {
			// Two table sizes multiply to far less than 64 bits.
			starts[j*top/q+1]++
		}
	}
	for r := range top {
		starts[r+1] += starts[r]
	}
	order := make([]int32, n)
	for k, q := range quotas {
		for j := range q {
			r := j * top / q
			order[starts[r]] = int32(k)
			starts[r]++
		}
	}
	return order
}
