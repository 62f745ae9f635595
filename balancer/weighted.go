package balancer

import "math/bits"

// WeightedRoundRobin gives every host exactly its weight of each cycle of as
// many picks as the weights add up to, spread as evenly as that allows. Up to
// 32 hosts it is nginx's smooth weighted round robin, whose order it has too:
// weights 5, 1, 1 give A A B A C A A. Each usable host gains its weight in
// credit, the one with the most credit is picked and pays the sum. Above 32
// hosts it is a calendar wheel, on which a host of weight w has w places at
// equal distances and the places are visited in order: see the source of wheel.
// There a host is never more than about one and a half picks away from its
// ideal share while all hosts are up.
//
// The credit, or the places on the wheel, belong to the host: they survive
// updates and times out of rotation, and a host that leaves and joins again
// starts fresh. A change of weight keeps the share of the way to its next turn
// that the host has covered; an update to the same weight changes nothing. A ramp
// on the way back from an ejection is such changes of weight, in thousandths: of
// four equal hosts one at 250 gets one pick of each 13.
//
// Cost: O(hosts) up to 32 hosts. Above that O(1) amortised for any weights,
// with O(hosts) for single picks after most of the weight has gone down or come
// back, and for every pick while ejections are ignored. While somebody is on a
// ramp that holds as long as the weights over their greatest common divisor, times
// 1000 over that of 1000 and the ramps, add up to less than 2^32.
//
// The zero value begins each Pool somewhere in the cycle that its seed picks, so
// that many clients started at once do not all begin with the heaviest host.
// Safe for concurrent use.
type WeightedRoundRobin struct {
	// First begins at the start of the cycle, as nginx does.
	First bool
}

// Name implements Policy.
func (WeightedRoundRobin) Name() string { return "weighted_round_robin" }

// smoothMax is the number of hosts up to which scanning all credits is cheaper
// than the wheel.
const smoothMax = 32

// NewPicker implements Policy. It takes O(n) time.
func (p WeightedRoundRobin) NewPicker(v *View, prev Picker) Picker {
	seeded := prev == nil && !p.First
	if v.Len() <= smoothMax {
		s := newSmooth(v)
		if seeded {
			s.spin(draw(v.seed, streamStart, 1))
		}
		return s
	}
	w := newWheel(v)
	if seeded && w.spin(draw(v.seed, streamStart, 1)) {
		w = newWheel(v)
	}
	return w
}

// smooth is nginx's smooth weighted round robin.
type smooth struct {
	v       *View
	weights []int64 // by host: one array instead of a cache line for each
}

func newSmooth(v *View) *smooth {
	s := &smooth{v: v, weights: make([]int64, v.Len())}
	for i := range s.weights {
		s.weights[i] = v.pull(i)
	}
	return s
}

// Pick is one step over the usable hosts. Of equal credits the lowest index
// wins.
func (s *smooth) Pick(Call) int {
	v, best := s.v, -1
	var most, total int64
	for at, word := range v.set.words {
		for ; word != 0; word &= word - 1 {
			i := at<<6 + bits.TrailingZeros64(word)
			total += s.weights[i]
			own := &v.hosts[i].scratch[smoothCredit]
			credit := int64(*own) + s.weights[i]
			*own = uint64(credit)
			if best < 0 || credit > most {
				best, most = i, credit
			}
		}
	}
	if best >= 0 {
		v.hosts[best].scratch[smoothCredit] -= uint64(total)
	}
	return best
}

// spinMost bounds the picks that spin makes. A longer cycle begins somewhere in
// its first spinMost picks, which are spread like all of it.
const spinMost = 1 << 12

// spin makes as many picks, drawn by x, as brings a fresh cycle to a random
// place of it, over all hosts.
func (s *smooth) spin(x uint64) {
	var total, common int64
	for _, w := range s.weights {
		total += w
		common = gcd(common, w)
	}
	if total == 0 {
		return
	}
	for n := below(x, min(uint64(total/common), spinMost)); n > 0; n-- {
		best := 0
		for i, w := range s.weights {
			own := &s.v.hosts[i].scratch[smoothCredit]
			*own += uint64(w)
			if int64(*own) > int64(s.v.hosts[best].scratch[smoothCredit]) {
				best = i
			}
		}
		s.v.hosts[best].scratch[smoothCredit] -= uint64(total)
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Words of a host's scratch: the credit of the smooth order, in two's
// complement, and the place on the wheel.
const (
	smoothCredit = 0
	wheelPlace   = 1
)
