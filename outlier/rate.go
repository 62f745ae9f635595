package outlier

import (
	"cmp"
	"slices"
)

// unit is a success rate of one.
const unit = 1_000_000_000

// A Summary is what the last sweep computed for the success-rate rule, in units
// of 1e-9. The zero value is no sweep yet. It is a plain value, safe to share.
type Summary struct {
	At    int64 // when the interval ended
	Hosts int   // hosts with enough results

	// Mean and Stdev are the mean and the population standard deviation of the
	// hosts' rates, Line = Mean - Factor x Stdev / 1000: negative where no rate
	// can be below. They are zero with fewer hosts than MinHosts.
	Mean, Stdev, Line int64
}

// LastSweep returns what the last sweep found. Intervals in which nothing was
// counted have no sweep.
func (c *Core) LastSweep() Summary { return c.last }

// finding is one host at a sweep: what it did in the interval and which rules
// object.
type finding struct {
	h         *Host
	rate      int64
	good, bad uint32
	rules     uint8 // bits
}

// sweep judges the interval that ends at at. One snapshot of the counters feeds
// every rule, and each host gets at most one verdict: the rules are alternatives,
// not stages. Where the cap does not allow all, the worst go first.
func (c *Core) sweep(at int64) {
	c.dirty = false
	c.arrange()
	found := c.scratch[:0]
	for _, h := range c.hosts {
		if n := int64(h.good) + int64(h.bad); n > 0 && h.flags&(usable|out) == usable {
			found = append(found, finding{
				h: h, good: h.good, bad: h.bad,
				rate: int64(uint64(h.good) * unit / uint64(n)),
			})
		}
		h.good, h.bad = 0, 0
		h.spared &^= 1<<RuleSuccessRate | 1<<RuleFailurePercentage
	}
	c.last = Summary{At: at}
	if c.set.sr.On {
		c.judgeRates(found)
	}
	if c.set.fp.On && !c.set.fp.Inline {
		c.judgePercentages(found)
	}
	objected := slices.DeleteFunc(found, func(f finding) bool { return f.rules == 0 })
	// Stable: hosts that did equally badly keep the order of their Index.
	slices.SortStableFunc(objected, func(a, b finding) int { return cmp.Compare(a.rate, b.rate) })
	mark := len(c.queue.waiting())
	for _, f := range objected {
		c.sentence(at, f)
	}
	slices.SortStableFunc(c.queue.waiting()[mark:], func(a, b Change) int { return byIndex(a.Host, b.Host) })
	clear(found) // hosts may be removed and collected
	c.scratch = found[:0]
}

// arrange puts the members in the order of their Index.
func (c *Core) arrange() {
	if slices.IsSortedFunc(c.hosts, byIndex) {
		return
	}
	slices.SortFunc(c.hosts, byIndex)
	for i, h := range c.hosts {
		h.slot = int32(i)
	}
}

// judgeRates marks the outliers by success rate. Hosts below the minimum volume
// are neither in the mean nor judged.
func (c *Core) judgeRates(found []finding) {
	sr := &c.set.sr
	enough := func(f *finding) bool { return int64(f.good)+int64(f.bad) >= int64(sr.MinRequests) }
	var n uint64
	var sum, squares wide
	for i := range found {
		if enough(&found[i]) {
			n++
			sum = sum.add(uint64(found[i].rate))
		}
	}
	c.last.Hosts = int(n)
	if n == 0 || int64(n) < int64(sr.MinHosts) {
		return
	}
	mean := sum.mean(n)
	// Squares of differences below 1e9 fit in 64 bits, their sum in 128; the mean
	// is rounded by less than a billionth, which is what the line is good to.
	for i := range found {
		if enough(&found[i]) {
			d := found[i].rate - mean
			squares = squares.add(uint64(d * d))
		}
	}
	stdev := int64(isqrt(uint64(squares.mean(n))))
	line := mean - stdev*int64(sr.Factor)/1000
	c.last.Mean, c.last.Stdev, c.last.Line = mean, stdev, line

	const permille = unit / 1000
	for i := range found {
		f := &found[i]
		if !enough(f) || int64(f.bad) < int64(sr.MinFailures) {
			continue
		}
		// Strictly below, as gRFC A50 has it: equal hosts have no deviation.
		outlier := f.rate < line && f.rate < int64(sr.Tolerate)*permille
		dead := sr.Dead >= 0 && f.rate <= int64(sr.Dead)*permille && 2*f.rate < mean
		if outlier || dead {
			f.rules |= 1 << RuleSuccessRate
		}
	}
}

// judgePercentages marks the hosts with too large a share of failures.
func (c *Core) judgePercentages(found []finding) {
	fp := &c.set.fp
	n := 0
	for _, f := range found {
		if int64(f.good)+int64(f.bad) >= int64(fp.MinRequests) {
			n++
		}
	}
	if n < fp.MinHosts {
		return
	}
	for i := range found {
		f := &found[i]
		if c.set.overThreshold(f.good, f.bad) {
			f.rules |= 1 << RuleFailurePercentage
		}
	}
}

// tooManyFailures is the failure-percentage rule on the running interval of h.
func (s *settings) tooManyFailures(h *Host) bool {
	return s.overThreshold(h.good, h.bad)
}

// overThreshold tells whether there are enough results and 100 x bad / all >=
// threshold.
func (s *settings) overThreshold(good, bad uint32) bool {
	all := int64(good) + int64(bad)
	return all >= int64(s.fp.MinRequests) && 100*int64(bad) >= int64(s.fp.Threshold)*all
}

// sentence is the verdict on one host of a sweep, on behalf of all rules that
// object: the first of them that is enforced ejects.
func (c *Core) sentence(at int64, f finding) {
	numbers := func(r Rule) (seen, limit int64) {
		if r == RuleSuccessRate {
			return f.rate, c.last.Line
		}
		return int64(f.bad), int64(f.good) + int64(f.bad)
	}
	first := RuleFailurePercentage
	if f.rules&(1<<RuleSuccessRate) != 0 {
		first = RuleSuccessRate
	}
	if c.spare(f.h) != 0 { // reported for the first rule only
		seen, limit := numbers(first)
		c.verdict(at, f.h, first, seen, limit)
		return
	}
	f.h.verdicts++
	for r := first; r <= RuleFailurePercentage; r++ {
		if f.rules&(1<<r) != 0 && c.enforced(f.h, r) {
			seen, limit := numbers(r)
			c.eject(at, f.h, r, seen, limit)
			return
		}
	}
	seen, limit := numbers(first)
	c.unenforced(at, f.h, first, seen, limit)
}
