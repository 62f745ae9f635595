package balancer

import (
	"math/bits"
	"time"
)

// PeakEWMA draws two distinct usable hosts and picks the one with the lower
// cost per unit of weight, where
//
//	cost = (latency + share of failures * Config.FailurePenalty) * (in-flight + 1)
//
// and latency is the host's peak-sensitive moving average (Finagle's PeakEwma):
// a slower answer counts at once, a faster one as time passes. Of equals the
// first drawn wins. O(1). It adds what Finagle leaves open:
//
//   - A call that has not been answered yet is evidence: the age of the oldest
//     one is a lower bound of the latency, so a host that hangs is left at once.
//   - A failure never looks fast: it costs Config.FailurePenalty, by its share of
//     the answers, and never lowers the latency.
//   - A host without a measurement costs next to nothing while it is idle and
//     more than any measured one while a call is out, so it is tried by one
//     request at a time. The same holds for a host whose average has faded: the
//     average fades only while the host is idle.
//
// The zero value is the default policy of a Pool.
type PeakEWMA struct {
	// ActivePenalty, if positive, makes the cost latency + in-flight *
	// ActivePenalty instead, as Ferron does (500 ms there).
	ActivePenalty time.Duration

	// Unmeasured, if positive, is the latency of a host that was never measured,
	// idle or not. Ferron has 100 ms. If zero, see above.
	Unmeasured time.Duration
}

// Name implements Policy.
func (PeakEWMA) Name() string { return "p2c_ewma" }

// NewPicker implements Policy.
func (p PeakEWMA) NewPicker(v *View, _ Picker) Picker {
	return peakEWMA{v: v, active: int64(p.ActivePenalty), unmeasured: int64(p.Unmeasured)}
}

type peakEWMA struct {
	v                  *View
	active, unmeasured int64
}

// unknown is the latency, in nanoseconds, of a host that never answered while a
// call to it is out: about 18 minutes, beyond any measured one, and small
// enough that the in-flight count still tells two such hosts apart.
const unknown = 1 << 40

func (p peakEWMA) Pick(c Call) int {
	a, b := p.v.drawPair(c)
	if a == b {
		return a
	}
	x, y := p.v.hosts[a], p.v.hosts[b]
	// x/wx > y/wy as exact products of 128 bits.
	xh, xl := bits.Mul64(uint64(p.cost(x, c.now)), uint64(y.weight))
	yh, yl := bits.Mul64(uint64(p.cost(y, c.now)), uint64(x.weight))
	if xh > yh || xh == yh && xl > yl {
		return b
	}
	return a
}

// cost is positive and grows strictly with the in-flight count.
func (p peakEWMA) cost(h *host, now int64) int64 {
	latency, measured := h.latency.Last()
	switch {
	case !measured && p.unmeasured > 0:
		latency = p.unmeasured
	case !measured && h.inflight > 0:
		latency = unknown
	case h.inflight == 0 && measured:
		latency, _ = h.latency.Value(now)
	}
	latency = max(1, latency, h.waiting(now))
	if latency += h.failCost(now, p.v.penalty); latency < 0 {
		return saturated
	}
	if p.active > 0 {
		more := saturatingMul(int64(h.inflight), p.active)
		if latency+more < latency {
			return saturated
		}
		return latency + more
	}
	return saturatingMul(latency, int64(h.inflight)+1)
}

// saturated is the largest cost.
const saturated = 1<<63 - 1
