package outlier

import (
	"math"
	"time"
)

// settings is a Config with every default in place, in the units that the
// decisions use.
type settings struct {
	off, shadow         bool
	ejectOne, probeEnds bool
	rates               bool // some rule needs the counts of the interval
	streaks             bool // some consecutive rule is on
	last                LastRule
	ret                 ReturnMode

	consecutive, gateway, transport uint32 // MaxUint32: off (see Core.fail)
	percent                         int

	interval, base, max, jitter, forgive int64
	maxCount                             int32

	rampFrom, rampGrowth int32
	rampStep             int64

	enforce [rules]int32 // percent, by rule

	sr SuccessRate
	fp FailurePercentage
	lt Latency
}

// orDefault returns v, or def where v is zero.
func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// orNone is orDefault for fields whose negatives mean none.
func orNone(v, def int) int {
	return max(orDefault(v, def), 0)
}

// compile fills the defaults of a valid Config.
func (c Config) compile() settings {
	s := settings{
		off:         c.Off,
		shadow:      c.Shadow,
		ejectOne:    c.EjectOne,
		probeEnds:   c.ProbeEnds,
		rates:       c.SuccessRate.On || c.FailurePercentage.On,
		last:        c.Last,
		ret:         c.Return,
		consecutive: limit(orDefault(c.Consecutive, 5)),
		gateway:     limit(c.ConsecutiveGateway),
		transport:   limit(c.ConsecutiveTransport),
		percent:     orDefault(c.MaxEjectedPercent, 50),
		interval:    int64(orDefault(c.Interval, 10*time.Second)),
		base:        int64(orDefault(c.Base, 30*time.Second)),
		jitter:      int64(c.Jitter),
		rampFrom:    int32(orDefault(c.RampFrom, 250)),
		rampGrowth:  int32(orDefault(c.RampGrowth, 2000)),
		rampStep:    int64(orDefault(c.RampStep, time.Second)),
		sr:          c.SuccessRate,
		fp:          c.FailurePercentage,
		lt:          c.Latency,
	}
	s.streaks = s.consecutive&s.gateway&s.transport != never
	s.max = int64(orDefault(c.Max, max(300*time.Second, time.Duration(s.base))))
	s.maxCount = int32(min((s.max-1)/s.base+1, math.MaxInt32))
	s.forgive = int64(orDefault(c.Forgive, time.Duration(s.interval)))

	s.sr.Factor = orDefault(s.sr.Factor, 1900)
	s.sr.MinHosts = orDefault(s.sr.MinHosts, 5)
	s.sr.MinRequests = orDefault(s.sr.MinRequests, 100)
	s.sr.MinFailures = orNone(s.sr.MinFailures, 5)
	s.sr.Tolerate = orDefault(s.sr.Tolerate, 950)
	if s.sr.Tolerate < 0 {
		s.sr.Tolerate = 1001 // above every rate
	}
	s.sr.Dead = orDefault(s.sr.Dead, 100)

	s.fp.Threshold = orDefault(s.fp.Threshold, 85)
	s.fp.MinHosts = orDefault(s.fp.MinHosts, 5)
	s.fp.MinRequests = orDefault(s.fp.MinRequests, 50)

	s.lt.Alpha = orDefault(s.lt.Alpha, 250)
	s.lt.Factor = orDefault(s.lt.Factor, 3000)
	s.lt.Window = orDefault(s.lt.Window, 2*time.Second)
	s.lt.MinSamples = orDefault(s.lt.MinSamples, 8)
	s.lt.MinHosts = orDefault(s.lt.MinHosts, 2)

	streak := int32(orNone(c.Enforce, 100))
	s.enforce = [rules]int32{
		RuleConsecutive:       streak,
		RuleGateway:           streak,
		RuleTransport:         streak,
		RuleProbation:         streak,
		RuleSuccessRate:       int32(orNone(c.SuccessRate.Enforce, 100)),
		RuleFailurePercentage: int32(orNone(c.FailurePercentage.Enforce, 100)),
		RuleLatency:           int32(orNone(c.Latency.Enforce, 100)),
	}
	return s
}

// never is the limit of a streak rule that is off. Streaks stop counting one
// below it.
const never = math.MaxUint32

// limit turns a configured streak length into a comparable one.
func limit(n int) uint32 {
	if n <= 0 {
		return never
	}
	return uint32(n)
}
