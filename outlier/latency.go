package outlier

import "math"

// observe folds a measured success into the score of h and judges it. A score
// is judged at the host's own samples only: the evidence is that each of them,
// for the whole window, was above the line of its moment.
func (c *Core) observe(now int64, h *Host, latency int64) {
	lt := &c.set.lt
	sample := mulSat(latency, 1000)
	if h.samples == 0 {
		c.rescore(h, sample)
	} else {
		c.rescore(h, fold(h.score, sample, int64(lt.Alpha)))
	}
	// A score of few samples is noise: neither judged nor part of the baseline.
	if int64(h.samples) < int64(lt.MinSamples) {
		return
	}
	base, ok := c.baseline(h)
	line := max(mulDiv(base, int64(lt.Factor), 1000), mulSat(int64(lt.Floor), 1000))
	if !ok || h.score <= line {
		h.flags &^= slow
		h.spared &^= 1 << RuleLatency
		return
	}
	if h.flags&slow == 0 {
		// The sample that starts the period is the first witness, not evidence that
		// it lasts.
		h.flags |= slow
		h.overAt, h.fresh = now, 0
		return
	}
	if now > h.overAt { // newer than the start of the slow period
		bump(&h.fresh)
	}
	if int64(h.fresh) >= int64(lt.MinSamples) && subSat(now, h.overAt) >= int64(lt.Window) {
		c.verdict(now, h, RuleLatency, h.score, line)
	}
}

// fold returns (alpha x sample + (1000-alpha) x score) / 1000, rounded down.
func fold(score, sample, alpha int64) int64 {
	const small = math.MaxInt64 / 1000
	if score <= small && sample <= small {
		return (sample*alpha + score*(1000-alpha)) / 1000
	}
	// Two products and their sum need 74 bits.
	var w wide
	w = w.addProduct(uint64(sample), uint64(alpha)).addProduct(uint64(score), uint64(1000-alpha))
	return w.mean(1000)
}

// rescore gives h its next score and keeps the baseline in step.
func (c *Core) rescore(h *Host, score int64) {
	bump(&h.samples)
	if h.flags&based == 0 {
		h.score = score
		c.rebase(h)
		return
	}
	c.sum = c.sum.sub(uint64(h.score)).add(uint64(score))
	if c.set.lt.Baseline == BaselineMedian {
		c.median.remove(h)
		h.score = score
		c.median.insert(h)
		return
	}
	h.score = score
}

// rebase puts h into the baseline or takes it out, whichever its state asks for.
// The baseline holds the members that can serve, are in service and have enough
// samples: what a host must be compared with is what its traffic could go to.
func (c *Core) rebase(h *Host) {
	want := h.flags&(member|usable|out) == member|usable &&
		c.set.lt.On && int64(h.samples) >= int64(c.set.lt.MinSamples)
	if want == (h.flags&based != 0) {
		return
	}
	h.flags ^= based
	if want {
		c.sum = c.sum.add(uint64(h.score))
		c.warm++
	} else {
		c.sum = c.sum.sub(uint64(h.score))
		c.warm--
	}
	if c.set.lt.Baseline != BaselineMedian {
		return
	}
	if want {
		c.median.insert(h)
	} else {
		c.median.remove(h)
	}
}

// rebuild makes the baseline anew, for settings or hosts that have changed.
func (c *Core) rebuild() {
	c.sum, c.warm = wide{}, 0
	c.median.reset(c.hosts)
	for _, h := range c.hosts {
		h.flags &^= based
		c.rebase(h)
	}
}

// baseline returns what the score of h is compared with, and false where there
// is nothing to compare it with: too few hosts, or h is not one of them.
func (c *Core) baseline(h *Host) (int64, bool) {
	if c.warm < c.set.lt.MinHosts || h.flags&based == 0 {
		return 0, false
	}
	switch c.set.lt.Baseline {
	case BaselineAll:
		return c.sum.mean(uint64(c.warm)), true
	case BaselineMedian:
		return c.median.value(), true
	}
	if c.warm < 2 { // MinHosts may be 1
		return 0, false
	}
	return c.sum.sub(uint64(h.score)).mean(uint64(c.warm - 1)), true
}
