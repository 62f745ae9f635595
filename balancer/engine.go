package balancer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/ewma"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// engine is the Pool without its type parameter. Times are nanoseconds since
// the epoch, which is the clock's time at construction.
type engine struct {
	clk           clock.Clock
	since         sincer // clk, if it is the system's
	epoch         time.Time
	seed          uint64
	pickSalt      uint64 // of draw(seed, streamPick, n), what does not depend on n
	policy        Policy
	protoBreaker  breaker.Core
	protoLatency  ewma.Core
	protoFailing  ewma.Core
	penalty       int64
	retry         Retry
	maxRetries    int
	whenNone      WhenNone
	ignoreWeights bool
	startOut      bool
	ramps         bool // Config.Outlier.Return is a ramp
	hook          func(Event)
	cfg           Config

	mu         sync.Mutex // guards below
	now        int64      // the latest time that an input brought
	due        int64      // when state next changes by time alone
	requests   uint64     // numbers given out
	slots      []slot
	free       int32
	tiers      []*tier
	hosts      []*host // in the order of the latest Update
	byID       map[string]*host
	changes    dueHeap // breakers
	outliers   *outlier.Core
	budget     retrybudget.Core
	stale      bool // a tier is stale
	selectable int  // hosts without a reason to be out
	onlyFull   int  // hosts that are out for no other reason than their limit
	counts     [outReasons]int
	masked     []*host // taken out of the tiers for the request at hand
	picking    uint8   // what is under way while a Picker runs
	none       *UnavailableError
	totals     Totals
	seq        uint64
	queue      []queued
	taped      int // how many of the queue are on the tape
	delivering bool
	tape       *Tape
}

func (e *engine) init(cfg Config) error {
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Seed == 0 {
		seed, err := entropy()
		if err != nil {
			return fmt.Errorf("balancer: no entropy for a seed: %w", err)
		}
		cfg.Seed = seed
	}
	e.cfg = cfg
	e.clk, e.epoch, e.seed = cfg.Clock, cfg.Clock.Now(), cfg.Seed
	if clock.IsSystem(cfg.Clock) {
		e.since, _ = cfg.Clock.(sincer)
	}
	e.pickSalt = salt(e.seed, streamPick)
	e.policy = cfg.policy()
	e.protoBreaker = breaker.NewCore(cfg.breaker(), 0)
	e.protoLatency = ewma.NewCore(cfg.latency())
	e.protoFailing = ewma.NewCore(ewma.Config{})
	e.penalty = cfg.penalty()
	e.retry, e.maxRetries = cfg.Retry, cfg.Retry.max()
	e.whenNone = cfg.WhenNone
	e.ignoreWeights, e.startOut = cfg.IgnoreWeights, cfg.StartUnhealthy
	e.ramps = cfg.Outlier.Return == outlier.Ramp
	e.hook = cfg.OnEvent
	e.due, e.free = never, nobody
	e.byID = map[string]*host{}
	e.outliers = outlier.NewCore(cfg.Outlier, draw(e.seed, streamOutlier, 0))
	e.budget = retrybudget.NewCore(cfg.Budget)
	return nil
}

// read asks the clock. It is called outside the lock; advance clamps what it
// returned to the latest time of the inputs before.
func (e *engine) read() int64 {
	if e.since != nil {
		return int64(e.since.Since(e.epoch))
	}
	return int64(e.clk.Now().Sub(e.epoch))
}

// sincer is a clock that knows how much time has passed without working out
// what time it is, as the system's does: half the cost of a reading.
type sincer interface{ Since(time.Time) time.Duration }

// time is the instant of a number of nanoseconds since the epoch.
func (e *engine) time(at int64) time.Time { return e.epoch.Add(time.Duration(at)) }

// instant is the inverse of time; the zero Time is never.
func (e *engine) instant(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return int64(t.Sub(e.epoch))
}

// advance moves time to now, which it returns, or to the latest time if that is
// later, and first lets everything happen that time alone brings until then.
func (e *engine) advance(now int64) int64 {
	if now > e.now {
		e.now = now
	}
	if e.now >= e.due {
		e.runDue(e.now)
	}
	return e.now
}

// runDue applies the changes due by now, in the order of (due, host).
func (e *engine) runDue(now int64) {
	// The end of the timeline is itself never reached.
	for e.due <= now && e.due != never {
		at, mark := e.due, len(e.queue)
		if e.outliers.NextChange() <= at {
			e.outliers.Poll(at)
			e.drainOutlier()
		}
		for len(e.changes) > 0 && e.changes[0].due <= at {
			h := e.changes[0]
			h.breaker.Poll(at)
			e.drainBreaker(h)
			e.judge(h, at)
			if h.due <= at {
				e.changes.schedule(h, never)
			}
		}
		if mark < len(e.queue) {
			e.sortQueue(mark)
		}
		if e.reschedule(); e.due <= at {
			// A core that does not move on must not stop the Pool.
			e.due = saturatingAdd(now, 1)
		}
	}
}

// sortQueue orders what one instant has queued by host and renumbers it.
func (e *engine) sortQueue(mark int) {
	part := e.queue[mark:]
	first := part[0].Seq
	slices.SortStableFunc(part, func(a, b queued) int { return int(a.pos - b.pos) })
	for i := range part {
		part[i].Seq = first + uint64(i)
	}
}

func (e *engine) reschedule() {
	e.due = min(e.changes.next(), e.outliers.NextChange())
}

// drainBreaker turns what h's breaker has to tell into events.
func (e *engine) drainBreaker(h *host) {
	for h.breaker.Changed() {
		c, ok := h.breaker.Pop()
		if !ok {
			return
		}
		rule := c.Rule.String()
		switch {
		case c.Kind == breaker.TrialLost:
			e.emit(TrialLost, h, c.At, 0, "expired", 0)
		case c.Kind == breaker.TrialAbandoned:
			e.emit(TrialLost, h, c.At, 0, "abandoned", 0)
		case c.Kind == breaker.FlapStarted:
			e.emit(BreakerFlapping, h, c.At, 0, "", 0)
		case c.Kind == breaker.FlapEnded:
			e.emit(BreakerSteady, h, c.At, 0, "", 0)
		case c.To == breaker.Open:
			h.trips++
			e.totals.Trips++
			until := c.At + int64(c.OpenFor)
			if until < c.At {
				until = never
			}
			count := c.Counts.Failures
			switch c.Rule {
			case breaker.RuleConsecutive:
				count = c.Counts.Consecutive
			case breaker.RuleWindow:
				count = c.Counts.WindowFailures
			case breaker.RuleSlowRate:
				count = c.Counts.Slow
			}
			e.emit(BreakerOpened, h, c.At, until, rule, count)
		case c.To == breaker.HalfOpen:
			e.emit(BreakerHalfOpen, h, c.At, 0, rule, 0)
		default:
			e.emit(BreakerClosed, h, c.At, 0, rule, c.Counts.Passes)
			h.forgetLatency(e)
		}
	}
}

// forgetLatency starts the latency score again: what was measured before an
// outage says nothing about the host that comes back, and an unmeasured host is
// tried by one request at a time.
func (h *host) forgetLatency(e *engine) {
	h.latency, h.failing, h.failed = e.protoLatency.Fresh(), e.protoFailing.Fresh(), false
}

// drainOutlier turns what the detector has to tell into events and eligibility.
func (e *engine) drainOutlier() {
	for e.outliers.Changed() {
		c, ok := e.outliers.Pop()
		if !ok {
			return
		}
		h := e.hosts[c.Host.Index]
		e.followRamp(h)
		switch c.Kind {
		case outlier.Ejected:
			e.totals.Ejections++
			e.emit(UpstreamEjected, h, c.At, c.Until, c.Rule.String(), int(c.Seen))
		case outlier.Returned:
			e.emit(UpstreamReturned, h, c.At, 0, causeOf(c.Cause), 0)
			h.forgetLatency(e)
		case outlier.WouldEject, outlier.Spared:
			e.emit(EjectionWithheld, h, c.At, 0, c.Rule.String(), int(c.Seen))
		default:
			continue
		}
		e.judge(h, c.At)
	}
}

// causeOf names what ended an ejection early, "" for nothing: its time was over.
func causeOf(c outlier.Cause) string {
	if c == 0 {
		return ""
	}
	return c.String()
}

// judge finds out anew whether h is selectable and when that next changes.
func (e *engine) judge(h *host, now int64) {
	if h.index < 0 {
		return
	}
	var why reasons
	open := false
	if !h.healthy {
		why |= outUnhealthy
	}
	if h.outlier.Ejected() {
		why |= outEjected
	}
	if !h.breaker.Ready(now) {
		if h.breaker.State(now) == breaker.HalfOpen {
			why |= outTrialing
		} else {
			why |= outOpen
			open = true
		}
	}
	if h.limit > 0 && h.inflight >= h.limit {
		why |= outFull
	}
	if h.weight == 0 {
		why |= outNoTraffic
	}
	e.exclude(h, why)
	if at := h.breaker.NextChange(); at != h.due {
		e.changes.schedule(h, at)
		e.reschedule()
	}
	// Members that cannot serve count neither for the cap nor as the last one.
	if countable := h.healthy && h.weight > 0 && !open; countable != h.countable {
		h.countable = countable
		e.outliers.SetUsable(now, &h.outlier, countable)
		e.drainOutlier()
		e.reschedule()
	}
}

// exclude replaces the reasons that keep h out.
func (e *engine) exclude(h *host, why reasons) {
	old := h.why
	if old == why {
		return
	}
	h.why = why
	e.none = nil
	for bit := range outReasons {
		e.counts[bit] += int(why>>bit&1) - int(old>>bit&1)
	}
	e.onlyFull += b2i(why == outFull) - b2i(old == outFull)
	e.selectable += b2i(why == 0) - b2i(old == 0)
	h.tier.view.spare.set(int(h.index), why == outEjected)
	h.tier.setUsable(int(h.index), why == 0)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (e *engine) setHealth(now int64, id string, healthy bool, reason string) error {
	h := e.byID[id]
	if h == nil {
		e.open(RecordPoll, 0) // time has moved, and nothing else
		return fmt.Errorf("%w: %q", ErrUnknownUpstream, id)
	}
	if rec := e.open(RecordHealth, 0); rec != nil {
		rec.Upstream, rec.Healthy, rec.Note = id, healthy, reason
	}
	h.note = &reason
	if h.healthy != healthy {
		h.healthy = healthy
		kind := UpstreamUnhealthy
		if healthy {
			kind = UpstreamHealthy
		}
		e.emit(kind, h, now, 0, reason, 0)
		e.judge(h, now)
	}
	if e.outliers.Probed(now, &h.outlier, healthy) {
		e.drainOutlier()
		e.reschedule()
	}
	return nil
}

// distinct refuses a set with two members of one id.
func distinct(set []traits) error {
	seen := make(map[string]bool, len(set))
	for _, t := range set {
		if seen[t.id] {
			return &ConfigError{Field: fmt.Sprintf("upstream id %q", t.id), Value: "given twice", Want: "distinct ids"}
		}
		seen[t.id] = true
	}
	return nil
}

// update replaces the members.
func (e *engine) update(now int64, set []traits) {
	if rec := e.open(RecordUpdate, 0); rec != nil {
		rec.Members = make([]Member, len(set))
		for i, t := range set {
			rec.Members[i] = Member{Name: t.id, Share: t.weight, Tier: t.priority, Limit: t.maxInflight}
		}
	}
	keep := make(map[string]bool, len(set))
	for _, t := range set {
		keep[t.id] = true
	}
	for _, h := range e.hosts {
		if !keep[h.id] {
			e.leave(h, now)
		}
	}
	old := e.tiers
	marks := make([][]*host, len(old))
	for i, t := range old {
		marks[i] = t.fromMark()
	}
	hosts := make([]*host, len(set))
	for i, t := range set {
		h := e.byID[t.id]
		if h == nil {
			h = e.join(now, t)
		}
		h.pos, h.outlier.Index = int32(i), i
		h.weight, h.limit, h.priority = int32(t.weight), int32(t.maxInflight), int32(t.priority)
		hosts[i] = h
	}
	e.hosts = hosts
	e.arrange(old, marks)
	e.settleIn(now)
}

// settleIn judges the members anew after an update.
func (e *engine) settleIn(now int64) {
	// Positions have changed, and with them the order of equal due times.
	due := e.changes
	e.changes = nil
	for _, h := range due {
		h.heapAt = -1
		e.changes.schedule(h, h.due)
	}
	for _, h := range e.hosts {
		e.judge(h, now)
	}
	e.reschedule()
}

func (e *engine) join(now int64, t traits) *host {
	h := &host{
		id: t.id, index: -1, heapAt: -1, due: never, joined: now,
		oldest: nobody, newest: nobody, oldestSince: never,
		healthy: !e.startOut,
	}
	h.forgetLatency(e)
	h.breaker = e.protoBreaker.Fresh(draw(e.seed, streamBreaker, h.key()))
	h.weight = int32(t.weight)
	e.byID[h.id] = h
	e.emit(UpstreamJoined, h, now, 0, "", 0)
	return h
}

func (e *engine) leave(h *host, now int64) {
	e.exclude(h, outUnhealthy)
	e.outliers.Remove(now, &h.outlier)
	e.drainOutlier()
	e.changes.schedule(h, never)
	h.index = -1
	delete(e.byID, h.id)
	e.emit(UpstreamLeft, h, now, 0, "", 0)
}

// fromMark lists the tier's hosts from the marked one on, going round.
func (t *tier) fromMark() []*host {
	n := len(t.view.hosts)
	if n == 0 {
		return nil
	}
	at := int(t.view.mark) % n
	return append(append(make([]*host, 0, n), t.view.hosts[at:]...), t.view.hosts[:at]...)
}

// arrange builds the tiers over e.hosts. A tier whose priority existed before
// keeps its shared state and its mark, by identity, and hands its picker to the
// one that follows, which the end of the input makes.
func (e *engine) arrange(old []*tier, marks [][]*host) {
	e.selectable, e.onlyFull, e.counts, e.none = 0, 0, [outReasons]int{}, nil
	var tiers []*tier
	for _, h := range e.hosts {
		at, found := slices.BinarySearchFunc(tiers, int(h.priority), func(t *tier, p int) int { return cmp.Compare(t.priority, p) })
		if !found {
			tiers = slices.Insert(tiers, at, &tier{priority: int(h.priority)})
		}
		tiers[at].view.hosts = append(tiers[at].view.hosts, h)
	}
	for _, t := range tiers {
		v := &t.view
		n := len(v.hosts)
		v.usable, v.spare, v.seed, v.penalty = newBitmap(n), newBitmap(n), e.seed, e.penalty
		v.set, v.fine = &v.usable, e.ramps
		v.mark = int32(below(draw(e.seed, streamStart, uint64(t.priority)), uint64(n)))
		for i, h := range v.hosts {
			if h.tier == nil { // it has just joined
				e.outliers.Add(e.now, &h.outlier, h.key())
				h.countable = true
			}
			// Every host is judged after this; until then it is out.
			h.tier, h.index = t, int32(i)
			h.why = outUnhealthy
			e.counts[0]++
		}
		t.stale = true
		for i, o := range old {
			if o.priority != t.priority {
				continue
			}
			v.shared, t.picker = o.view.shared, o.picker
			for _, h := range marks[i] {
				if h.index >= 0 && h.tier == t {
					v.mark = h.index
					break
				}
			}
		}
	}
	e.tiers, e.stale = tiers, len(tiers) > 0
}

// equip makes the picker of a tier over its hosts as they are now.
func (e *engine) equip(t *tier) {
	prev := t.picker
	if _, ok := prev.(standIn); ok {
		prev = nil
	}
	t.stale = false
	t.picker, t.follower = standIn{roundRobin{&t.view}}, nil
	t.view.follow(e.rampsOf(t.view.hosts))
	t.picker = e.policy.NewPicker(&t.view, prev)
	t.follower, _ = t.picker.(Follower)
}

// standIn serves a tier whose NewPicker has panicked, until the next one is made.
type standIn struct{ roundRobin }

// unavailable says why nothing can be picked, as a shared value.
func (e *engine) unavailable() error {
	if len(e.hosts) == 0 {
		return ErrNoUpstreams
	}
	if e.none == nil {
		e.none = &UnavailableError{
			Upstreams: len(e.hosts),
			Unhealthy: e.counts[0],
			Ejected:   e.counts[1],
			Open:      e.counts[2],
			Trialing:  e.counts[3],
			Full:      e.counts[4],
			NoTraffic: e.counts[5],
		}
	}
	return e.none
}

// saturatingSub subtracts two times, staying in range.
func saturatingSub(a, b int64) int64 {
	switch d := a - b; {
	case b < 0 && d < a:
		return math.MaxInt64
	case b > 0 && d > a:
		return math.MinInt64
	default:
		return d
	}
}

// saturatingAdd adds two times, staying in range.
func saturatingAdd(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
