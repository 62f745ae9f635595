package outlier

import "math"

// Weight returns the weight of h at now in thousandths: 0 while it is out, 1000
// in full service, less on a ramp, where it stands still while h cannot serve. It
// is a pure read. It costs O(1), times the steps of a ramp that no input has made
// yet.
func (c *Core) Weight(now int64, h *Host) int { return c.WeightSince(now, h, math.MaxInt64) }

// WeightSince is [Core.Weight] for an owner that knows something that no input has
// said yet: a host that cannot serve will be able to from the time since on.
func (c *Core) WeightSince(now int64, h *Host, since int64) int {
	now, since = max(now, c.latest), max(since, c.latest)
	weight := h.weight
	switch {
	case c.EjectedAt(now, h):
		return 0
	case h.Ejected() && c.set.ret == Ramp:
		weight = c.set.rampFrom
		if h.flags&usable != 0 {
			since = h.until
		}
		since = max(since, h.until)
	case h.flags&ramping == 0:
		return 1000
	case h.pos >= 0:
		return c.rampAt(now, weight, c.plan[h.pos].at)
	}
	if now < since || since == math.MaxInt64 {
		return int(weight)
	}
	return c.rampAt(now, weight, addSat(since, c.set.rampStep))
}

// rampAt follows a ramp at weight w, whose next step is due at step, to now.
func (c *Core) rampAt(now int64, w int32, step int64) int {
	for w < 1000 && step <= now {
		if step == math.MaxInt64 { // there is no step after this one
			return 1000
		}
		w = c.set.grow(w)
		step = addSat(step, c.set.rampStep)
	}
	return int(w)
}

// grow returns the weight one step after w.
func (s *settings) grow(w int32) int32 {
	return int32(min(1000, max(int64(w)+1, int64(w)*int64(s.rampGrowth)/1000)))
}

// climb plans the next step of the ramp of h, which is on one. While it cannot
// serve there is none: steps that it takes without a call would lead it back to
// full service, and to the whole of its traffic at once, without having shown
// that it can bear a part.
func (c *Core) climb(now int64, h *Host) {
	if h.flags&usable != 0 {
		c.plan.set(h, addSat(now, c.set.rampStep))
	} else {
		c.plan.drop(h)
	}
}

// step makes one step of the ramp of h.
func (c *Core) step(at int64, h *Host) {
	h.weight = c.set.grow(h.weight)
	if h.weight < 1000 && at < math.MaxInt64 {
		c.climb(at, h)
	} else {
		h.weight = 1000
		h.flags &^= ramping
	}
	c.report(at, h, Change{Kind: Stepped, Until: at})
}

// fullWeight ends the ramp of h.
func (c *Core) fullWeight(now int64, h *Host) {
	c.plan.drop(h)
	h.weight = 1000
	h.flags &^= ramping
	c.report(now, h, Change{Kind: Stepped, Cause: CauseForget, Until: now})
}
