package balancer

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/evenkeel-go/evenkeel/ewma"
)

// PeakEWMA draws two distinct usable hosts and picks the one with the lower
// cost per unit of weight, where
//
//	cost = (latency + share of failures * Config.FailurePenalty) * (in-flight + 1)
//
// and latency is the host's peak-sensitive moving average (Finagle's PeakEwma,
// com.twitter.finagle.loadbalancer.p2c): a slower answer counts at once, a
// faster one as time passes. Costs are compared exactly, as products of 128
// bits; of equals the first drawn wins. O(1). It adds what Finagle leaves open:
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
// A host on its way back from an ejection is drawn as often as its ramp says, and
// each of its calls in flight counts as so many more: at 250 thousandths as four.
// The call to come counts as one, else an idle host would lose to any other until
// its ramp is over.
//
// The zero value is the default policy of a Pool. Safe for concurrent use.
type PeakEWMA struct {
	// ActivePenalty makes the cost what is in the parentheses plus in-flight *
	// ActivePenalty instead, as Ferron does (500 ms there). If zero, the cost is
	// the product above. Negative is an error.
	ActivePenalty time.Duration

	// Unmeasured is the latency that a host without a measurement is taken to
	// have when it joins, for a pool that shall not try newcomers at once. If
	// zero, the Prior of Config.Latency; if that is zero too, see above. Negative
	// is an error.
	Unmeasured time.Duration

	// Fade is the time constant with which that assumption fades, from the time
	// the host joined and while it is idle, so that every host is tried in the
	// end. If zero, 10s. If negative, it does not fade, as in Ferron, where it is
	// 100 ms.
	Fade time.Duration
}

// defaultFade is the time constant of the zero ewma.Config too.
const defaultFade = 10 * time.Second

// Name implements Policy.
func (PeakEWMA) Name() string { return "p2c_ewma" }

// Validate reports a bad setting as a *ConfigError.
func (p PeakEWMA) Validate() error {
	switch {
	case p.ActivePenalty < 0:
		return &ConfigError{Field: "PeakEWMA.ActivePenalty", Value: fmt.Sprint(p.ActivePenalty), Want: ">= 0"}
	case p.Unmeasured < 0:
		return &ConfigError{Field: "PeakEWMA.Unmeasured", Value: fmt.Sprint(p.Unmeasured), Want: ">= 0"}
	}
	return nil
}

// NewPicker implements Policy.
func (p PeakEWMA) NewPicker(v *View, _ Picker) Picker {
	q := &peakEWMA{v: v, active: uint64(p.ActivePenalty), unmeasured: int64(p.Unmeasured)}
	fade := p.Fade
	if fade == 0 {
		fade = defaultFade
	}
	q.fade = ewma.NewCore(ewma.Config{IdleTau: fade})
	return q
}

type peakEWMA struct {
	v          *View
	active     uint64
	unmeasured int64
	fade       ewma.Core // has seen nothing; its copies age the assumption
}

// unknown is the latency, in nanoseconds, of a host that never answered while a
// call to it is out: about 18 minutes, beyond any measured one.
const unknown = 1 << 40

func (p *peakEWMA) Pick(c Call) int {
	a, b := p.v.drawPair(c)
	if a == b {
		return a
	}
	x, y := p.v.hosts[a], p.v.hosts[b]
	if p.v.ramps != nil {
		xh, xl := p.onRamp(a, b, c.now)
		yh, yl := p.onRamp(b, a, c.now)
		if xh > yh || xh == yh && xl > yl {
			return b
		}
		return a
	}
	// cost(x)/x.weight > cost(y)/y.weight
	xh, xl := p.scaled(x, y.weight, c.now)
	yh, yl := p.scaled(y, x.weight, c.now)
	if xh > yh || xh == yh && xl > yl {
		return b
	}
	return a
}

// scaled is h's cost times a weight. The cost is positive and grows strictly
// with the in-flight count: it has 64 bits of latency and 32 of in-flight, and a
// weight 21, so that the product is exact.
func (p *peakEWMA) scaled(h *host, weight int32, now int64) (hi, lo uint64) {
	latency, known := p.latency(h, now)
	if p.active == 0 || !known {
		// Beside a latency that stands for the unknown a penalty would vanish.
		return bits.Mul64(latency, (uint64(h.inflight)+1)*uint64(weight))
	}
	hi, lo = bits.Mul64(p.active, uint64(h.inflight)*uint64(weight))
	h2, l2 := bits.Mul64(latency, uint64(weight))
	lo, carry := bits.Add64(lo, l2, 0)
	hi, _ = bits.Add64(hi, h2, carry)
	return hi, lo
}

// maxOnRamp bounds the calls in flight that count where ramps do: beyond it a
// product would have more than 64 bits.
const maxOnRamp = 1 << 23

// onRamp is scaled where some hosts are on a ramp: i's cost with inflight * 1000
// / ramp for its in-flight count, times 1000 / ramp and the weight and ramp of j.
func (p *peakEWMA) onRamp(i, j int, now int64) (hi, lo uint64) {
	h, ramp, factor := p.v.hosts[i], uint64(p.v.Ramp(i)), uint64(p.v.pull(j))
	latency, known := p.latency(h, now)
	inflight := min(uint64(h.inflight), maxOnRamp) * fullRamp
	if p.active == 0 || !known {
		return bits.Mul64(latency, (inflight+ramp)*factor)
	}
	hi, lo = bits.Mul64(p.active, inflight*factor)
	h2, l2 := bits.Mul64(latency, ramp*factor)
	lo, carry := bits.Add64(lo, l2, 0)
	hi, _ = bits.Add64(hi, h2, carry)
	return hi, lo
}

// latency is what h's next answer is expected to take, or to cost if it is a
// failure, at least 1, and whether there is any ground for the time.
func (p *peakEWMA) latency(h *host, now int64) (_ uint64, known bool) {
	idle := h.inflight == 0
	var d int64
	if idle {
		d, known = h.latency.Value(now)
	} else {
		d, known = h.latency.Last()
	}
	if !known {
		if p.unmeasured > 0 {
			d = p.unmeasured
		}
		switch known = d > 0; {
		case known && idle:
			faded := p.fade
			faded.Observe(h.joined, d)
			d, _ = faded.Value(now)
		case !known && !idle:
			d = unknown
		}
	}
	return uint64(max(1, d, h.waiting(now))) + uint64(h.failCost(now, p.v.penalty)), known
}
