package outlier

// verdict acts on the finding of rule that h is an outlier: it spares the host
// where a cap says so, lets it pass where enforcement says so, else ejects it.
func (c *Core) verdict(at int64, h *Host, rule Rule, seen, limit int64) {
	if cause := c.spare(h); cause != 0 {
		// Once per run of the same evidence, else every failure would be news.
		if cause != causeUnusable && h.spared&(1<<rule) == 0 {
			h.spared |= 1 << rule
			c.report(at, h, Change{Kind: Spared, Rule: rule, Cause: cause, Until: at, Seen: seen, Limit: limit})
		}
		return
	}
	h.verdicts++
	if !c.enforced(h, rule) {
		c.unenforced(at, h, rule, seen, limit)
		return
	}
	c.eject(at, h, rule, seen, limit)
}

// spare returns why h must stay in service, or 0 if it need not. The caps are
// tested as they would be after the ejection, on members that can serve.
func (c *Core) spare(h *Host) Cause {
	if h.flags&usable == 0 {
		return causeUnusable
	}
	// Percentage and last host are both asked about the pool as it would be, of
	// members that can serve: a drained member is no help to the rest.
	left := c.usable - c.outUsable - 1
	if left == 0 && (c.set.last == KeepLast || c.set.last == KeepSole && c.usable == 1) {
		return CauseLast
	}
	if 100*(c.outUsable+1) > c.set.percent*c.usable && !(c.set.ejectOne && c.outUsable == 0) {
		return CausePercent
	}
	return 0
}

// enforced draws whether the running verdict on h takes effect.
func (c *Core) enforced(h *Host, rule Rule) bool {
	percent := c.set.enforce[rule]
	// No draw at 100: the verdict's number is the key, so nothing shifts.
	if percent >= 100 {
		return true
	}
	x := draw(c.seed^h.key, streamEnforce+uint64(rule), uint64(h.verdicts))
	return below(x, 100) < uint64(percent)
}

// unenforced reports a verdict that does not take effect and starts the evidence
// afresh, so that the next verdict needs as much again.
func (c *Core) unenforced(at int64, h *Host, rule Rule, seen, limit int64) {
	switch rule {
	case RuleLatency:
		h.flags &^= slow
		h.spared &^= 1 << RuleLatency
	case RuleFailurePercentage:
		h.good, h.bad = 0, 0
		h.spared &^= 1 << RuleFailurePercentage
	case RuleConsecutive, RuleGateway, RuleTransport, RuleProbation:
		h.streak, h.gateway, h.transport = 0, 0, 0
		h.flags &^= probation
		h.spared &^= streakRules
	}
	count := c.nextCount(at, h)
	c.report(at, h, Change{
		Kind: WouldEject, Rule: rule, Cause: CauseUnenforced,
		Until: addSat(at, c.term(h, count)), Count: int(count), Seen: seen, Limit: limit,
	})
}

// Count returns the factor of h's ejection while it is out, else what
// forgiveness has left of it at now: the next ejection lasts Base times one
// more. It is a pure read.
func (c *Core) Count(now int64, h *Host) int {
	return int(c.countAt(max(now, c.latest), h))
}

func (c *Core) countAt(now int64, h *Host) int32 {
	since := h.since
	if h.flags&out != 0 {
		since = h.until // not forgiven before it ends
	}
	if h.count == 0 || c.set.forgive < 0 || now < since {
		return h.count
	}
	return int32(max(0, int64(h.count)-subSat(now, since)/c.set.forgive))
}

// nextCount returns the factor of an ejection of h that begins at at.
func (c *Core) nextCount(at int64, h *Host) int32 {
	// In 64 bits: a restored count may be the largest that there is.
	return int32(min(int64(c.countAt(at, h))+1, int64(c.set.maxCount)))
}

// term returns how long the ejection of the running verdict on h lasts:
// min(base x count, max) plus a drawn jitter.
func (c *Core) term(h *Host, count int32) int64 {
	d := min(mulSat(c.set.base, int64(count)), c.set.max)
	if c.set.jitter > 0 {
		x := draw(c.seed^h.key, streamJitter, uint64(h.verdicts))
		d = addSat(d, int64(below(x, uint64(c.set.jitter)+1)))
	}
	return d
}

// eject takes h out. The caller has tested the caps and that h is not out.
func (c *Core) eject(at int64, h *Host, rule Rule, seen, limit int64) {
	c.count(h, -1) // tallies are taken out and put in around every change of state
	h.count = c.nextCount(at, h)
	h.until = addSat(at, c.term(h, h.count))
	h.rule = rule
	h.total++
	kind := Ejected
	h.flags = h.flags&^ramping | out
	if c.set.shadow {
		h.flags |= shadowed
		kind = WouldEject
	}
	h.weight = 1000 // a ramp it was on is over
	c.count(h, 1)
	c.discard(h) // after out is set, so that the baseline lets go of it
	c.plan.set(h, h.until)
	c.replan() // not a minimum: a step of a ramp may have been the earliest
	c.report(at, h, Change{Kind: kind, Rule: rule, Until: h.until, Count: int(h.count), Seen: seen, Limit: limit})
}

// discard forgets the evidence against h, so that none outlives the ejection it
// led to.
func (c *Core) discard(h *Host) {
	h.streak, h.gateway, h.transport = 0, 0, 0
	h.good, h.bad = 0, 0
	h.flags &^= probation | slow
	h.spared = 0
	c.rebase(h) // while the old score still tells what to take from the sum
	if !c.set.lt.KeepScore {
		h.score, h.samples = 0, 0
	}
}

// restore brings h back at the time at. What was planned for it is dropped
// already.
func (c *Core) restore(at int64, h *Host, cause Cause) {
	kind := Returned
	if h.flags&shadowed != 0 {
		kind = WouldReturn
	}
	c.count(h, -1)
	h.flags &^= out | shadowed
	c.count(h, 1)
	h.since = at // from here on, only calls that began in this service count
	c.rebase(h)  // with a kept score it is compared again at once
	if cause != CauseForget {
		switch c.set.ret {
		case Probation:
			h.flags |= probation
		case Ramp:
			// In shadow mode the host has its full weight all along.
			if kind == Returned && c.set.rampFrom < 1000 {
				h.weight = c.set.rampFrom
				h.flags |= ramping
				c.climb(at, h)
			}
		}
	}
	c.report(at, h, Change{Kind: kind, Rule: h.rule, Cause: cause, Until: at, Count: int(h.count)})
}

// report queues a change of h at the time at.
func (c *Core) report(at int64, h *Host, ch Change) {
	ch.Host, ch.At = h, at
	if !h.Ejected() {
		ch.Weight = int(h.weight)
	}
	c.queue.push(ch)
}

// Uneject ends the ejection of h now, whatever the configuration says, and
// tells whether there was one. The host returns as it would have at the end; its
// count stands. It costs O(log n).
func (c *Core) Uneject(now int64, h *Host) bool {
	return c.uneject(now, h, CauseForced)
}

// Probed takes the result of an active probe of h. A successful one ends an
// ejection if [Config.ProbeEnds] is set; Probed tells whether it did. A failed
// probe never shortens one. Probes are not results: they move no counter. It
// costs O(log n).
func (c *Core) Probed(now int64, h *Host, ok bool) bool {
	if !ok || !c.set.probeEnds {
		c.advance(now)
		return false
	}
	return c.uneject(now, h, CauseProbe)
}

func (c *Core) uneject(now int64, h *Host, cause Cause) bool {
	now = c.advance(now) // which may have ended it by itself
	if h.flags&(member|out) != member|out {
		return false
	}
	c.plan.drop(h)
	c.restore(now, h, cause)
	c.replan()
	return true
}

// Forget ends every ejection and ramp and forgets every count, score and piece
// of evidence; the members stay. The returns are reported by Index. It costs
// O(n log n).
func (c *Core) Forget(now int64) {
	now = c.advance(now)
	// The baseline first, so that no return puts a host back into it.
	for _, h := range c.hosts {
		h.score, h.samples, h.fresh = 0, 0, 0
	}
	c.rebuild()
	c.arrange()
	for _, h := range c.hosts {
		c.plan.drop(h)
		if h.flags&out != 0 {
			c.restore(now, h, CauseForget)
		} else if h.flags&ramping != 0 {
			c.fullWeight(now, h)
		}
		c.discard(h)
		h.count = 0
	}
	c.dirty = false
	c.replan()
}

// Configure replaces the configuration from now on. It panics if cfg fails
// Validate. Members keep their counters, scores, counts and ejections, which end
// when they were going to; ramps and probations end if the new configuration has
// none. A change of Off or Shadow is a [Core.Forget]. The grid of intervals keeps its start. It
// costs O(n log n).
func (c *Core) Configure(now int64, cfg Config) {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	now = c.advance(now)
	set := cfg.compile()
	// An ejection in earnest and one in shadow mode are not the same promise, so
	// neither survives into the other.
	if set.off != c.set.off || set.shadow != c.set.shadow {
		c.Forget(now)
	}
	c.set = set
	c.arrange()
	for _, h := range c.hosts {
		if h.flags&ramping != 0 && set.ret != Ramp {
			c.fullWeight(now, h)
		}
		if set.ret != Probation {
			h.flags &^= probation
		}
		if !set.lt.On {
			h.score, h.samples, h.fresh = 0, 0, 0
			h.flags &^= slow
		}
		if !set.rates {
			h.good, h.bad = 0, 0
		}
	}
	c.rebuild()
	if !set.rates {
		c.dirty = false
	}
	if c.dirty {
		c.sweepAt = c.gridAfter(now)
	}
	c.replan()
}
