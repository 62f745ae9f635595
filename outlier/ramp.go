package outlier

import "math"

// Weight returns the weight of h at now in thousandths: 0 while it is out, 1000
// in full service, less on a ramp. It is a pure read. It costs O(1), times the
// steps of a ramp that no input has made yet.
func (c *Core) Weight(now int64, h *Host) int {
	now = max(now, c.latest)
	switch {
	case c.EjectedAt(now, h):
		return 0
	case h.Ejected() && c.set.ret == Ramp:
		return c.rampAt(now, c.set.rampFrom, addSat(h.until, c.set.rampStep))
	case h.flags&ramping != 0:
		return c.rampAt(now, h.weight, c.plan[h.pos].at)
	}
	return 1000
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

// step makes one step of the ramp of h.
func (c *Core) step(at int64, h *Host) {
	h.weight = c.set.grow(h.weight)
	if h.weight < 1000 && at < math.MaxInt64 {
		c.plan.set(h, addSat(at, c.set.rampStep))
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
