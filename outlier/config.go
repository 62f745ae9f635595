package outlier

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrConfig is wrapped by every error of [Config.Validate].
var ErrConfig = errors.New("outlier: invalid config")

// A ConfigError names the field that [Config.Validate] refuses, its value and
// the values that are allowed. It wraps [ErrConfig]. Its zero value names
// nothing. It is a plain value, safe to share.
type ConfigError struct {
	Field string // path of the field, as in "Latency.Alpha"
	Value any    // the value found there
	Want  string // the values allowed, as in ">= 0"
}

// Error returns "outlier: Config.<Field> is <Value>, want <Want>".
func (e *ConfigError) Error() string {
	return fmt.Sprintf("outlier: Config.%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap returns [ErrConfig].
func (e *ConfigError) Unwrap() error { return ErrConfig }

// Config describes a detector. The zero Config is a complete one: five
// consecutive failures eject a host for 30 s, 60 s, 90 s ... up to 300 s; never
// more than half of the usable hosts are out, and never the last one; every
// other rule is off. Config is plain data: it may be copied, compared, printed
// and written into a recording. Changing a Config after it was used has no
// effect on the detector made from it.
type Config struct {
	// Off switches everything off: nothing is counted, nobody is ejected, and
	// [Core.Configure] with Off set ends every ejection and forgets every count.
	Off bool

	// Shadow runs the whole machine - counts, caps, ejection times, returns -
	// but takes no host out: [Host.Ejected] stays false and the changes are
	// [WouldEject] and [WouldReturn].
	Shadow bool

	// Consecutive is how many failures of any kind in a row eject a host at
	// once. A success starts the run again. If zero, 5. If negative, the rule
	// is off. At most 2^31-1, as every number below that names no other bound.
	Consecutive int

	// ConsecutiveGateway is how many [GatewayFailure] or [TransportFailure]
	// results in a row eject a host at once; any other result starts the run
	// again. If zero, the rule is off.
	ConsecutiveGateway int

	// ConsecutiveTransport is how many [TransportFailure] results in a row eject
	// a host at once; any answer, even a bad one, starts the run again. If zero,
	// the rule is off.
	ConsecutiveTransport int

	// Enforce is the percentage of verdicts of the consecutive rules, and of
	// probation, that eject; the others are reported as [WouldEject]. Each
	// verdict is drawn by (seed, host key, number of the verdict). If zero, 100.
	// If negative, none. At most 100.
	Enforce int

	// SuccessRate compares each host's success rate with the others' once per
	// Interval.
	SuccessRate SuccessRate

	// FailurePercentage compares each host's share of failures with a fixed
	// limit.
	FailurePercentage FailurePercentage

	// Latency compares each host's smoothed latency with the others'.
	Latency Latency

	// Interval is the time between two sweeps, which judge the results of the
	// interval that ends. Sweeps lie on a grid that starts at the first input.
	// If zero, 10 s.
	Interval time.Duration

	// Base is the length of a first ejection; the n-th lasts n times Base. If
	// zero, 30 s.
	Base time.Duration

	// Max bounds Base times n, before Jitter. The count n stops growing where the
	// bound is reached, so that forgiveness is felt at once. If zero, 300 s or
	// Base, whichever is longer. Otherwise at least Base.
	Max time.Duration

	// Jitter is the longest time added to an ejection, drawn uniformly from
	// [0, Jitter] by (seed, host key, number of the verdict), so that hosts that
	// left together do not return together. If zero, none.
	Jitter time.Duration

	// Forgive is the time in service that takes one off a host's count. If zero,
	// Interval. If negative, counts never fall.
	Forgive time.Duration

	// MaxEjectedPercent bounds the share of usable hosts that are out, tested as
	// it would be after the ejection: 100 x (ejected+1) <= MaxEjectedPercent x
	// usable. If zero, 50. At most 100. To eject nobody set Off or Shadow.
	MaxEjectedPercent int

	// EjectOne lets one host be ejected where MaxEjectedPercent of a small pool
	// allows none.
	EjectOne bool

	// Last says whether the last usable host may be ejected. If zero, [KeepLast].
	Last LastRule

	// Return says how a host comes back. If zero, [Clean].
	Return ReturnMode

	// RampFrom is the weight, in thousandths, of a host that has just returned
	// under [Ramp]. If zero, 250. At most 1000, which is no ramp.
	RampFrom int

	// RampStep is the time between two steps of a ramp. If zero, 1 s.
	RampStep time.Duration

	// RampGrowth is the factor of one step of a ramp, in thousandths. If zero,
	// 2000: the weight doubles. Otherwise from 1100 to 1000000.
	RampGrowth int

	// ProbeEnds lets a successful active probe end an ejection early; see
	// [Core.Probed].
	ProbeEnds bool
}

// SuccessRate configures the statistical rule of gRFC A50 ("success rate
// algorithm") and Envoy: a host is an outlier when its success rate in the
// interval is below mean - Factor x stdev, over the hosts with enough requests.
//
// The bare rule has two gaps: one failure in a thousand among perfect hosts is
// an outlier, and when more than about a fifth of the hosts are dead the line
// falls below zero and nobody is. MinFailures and Tolerate close the first,
// Dead the second. The zero value is off. It is plain data, safe to share.
type SuccessRate struct {
	// On switches the rule on.
	On bool

	// Factor is the number of standard deviations, in thousandths. If zero, 1900.
	// At most 1000000.
	Factor int

	// MinHosts is how many hosts need MinRequests results for a verdict on any
	// of them. If zero, 5.
	MinHosts int

	// MinRequests is how many results a host needs in the interval to be judged
	// and to enter the mean. If zero, 100.
	MinRequests int

	// MinFailures is how many failures in the interval a host needs to be an
	// outlier. If zero, 5. If negative, none.
	MinFailures int

	// Tolerate is the success rate, in thousandths, from which a host is never
	// an outlier, however good the others are. If zero, 950. If negative, no
	// rate is too good. At most 1000.
	Tolerate int

	// Dead is the success rate, in thousandths, up to which a host is an outlier
	// whatever the standard deviation says, if it is also below half of the mean
	// (so equal hosts are never outliers). If zero, 100. If negative, the rule
	// is the bare mean - Factor x stdev. At most 1000.
	Dead int

	// Enforce is as [Config.Enforce], for this rule. If zero, 100. If negative,
	// none.
	Enforce int
}

// FailurePercentage configures an absolute rule: a host is an outlier when at
// least Threshold percent of its results in the interval are failures (Envoy;
// gRFC A50 asks for more than Threshold). The zero value is off. It is plain
// data, safe to share.
type FailurePercentage struct {
	// On switches the rule on.
	On bool

	// Inline judges a host at each of its failures instead of at the sweep. A
	// success never ejects. MinHosts does not apply.
	Inline bool

	// Threshold is the percentage of failures from which a host is an outlier.
	// If zero, 85. At most 100.
	Threshold int

	// MinHosts is how many hosts need MinRequests results for a verdict on any
	// of them at a sweep. If zero, 5.
	MinHosts int

	// MinRequests is how many results a host needs in the interval. If zero, 50.
	MinRequests int

	// Enforce is as [Config.Enforce], for this rule. If zero, 100. If negative,
	// none.
	Enforce int
}

// Latency configures the rule for slow hosts: a host is an outlier when its
// score has been above Factor times the baseline at every one of its samples
// for Window, at least MinSamples of which came after the first that was above.
// The score is an average with a fixed weight per sample, in thousandths of a
// nanosecond: score' = (Alpha x sample + (1000-Alpha) x score) / 1000, and the
// first sample is the score. Failures and unmeasured successes do not touch it.
// The zero value is off. It is plain data, safe to share.
type Latency struct {
	// On switches the rule on.
	On bool

	// Alpha is the weight of a new sample, in thousandths. If zero, 250. At most
	// 1000: the score is the last sample.
	Alpha int

	// Factor is the multiple of the baseline above which a host is slow, in
	// thousandths. If zero, 3000. Otherwise from 1001 to 1000000.
	Factor int

	// Window is how long a host must have been slow. If zero, 2 s.
	Window time.Duration

	// MinSamples is how many samples a score needs to be judged and to enter the
	// baseline, and how many samples since a host became slow are needed to
	// eject it. If zero, 8.
	MinSamples int

	// MinHosts is how many hosts with MinSamples are needed for a verdict, the
	// judged one included. If zero, 2.
	MinHosts int

	// Floor is the latency up to which no host is slow, whatever the baseline.
	// If zero, none.
	Floor time.Duration

	// Baseline says what a score is compared with. If zero, [BaselineOthers].
	Baseline Baseline

	// KeepScore keeps the score of an ejected host for its return. By default
	// the score is forgotten with the other evidence, and the first sample after
	// the return starts a new one.
	KeepScore bool

	// Enforce is as [Config.Enforce], for this rule. If zero, 100. If negative,
	// none.
	Enforce int
}

// Baseline says what the latency of a host is compared with. Only usable hosts
// in service with [Latency.MinSamples] samples take part. The zero value is
// BaselineOthers. It is a plain value, safe to share.
type Baseline uint8

const (
	// BaselineOthers is the mean score of the other hosts. O(1) per sample.
	BaselineOthers Baseline = iota
	// BaselineAll is the mean score of all hosts, the judged one included: with
	// a factor of 3 a pool of three or fewer can never eject. O(1) per sample.
	BaselineAll
	// BaselineMedian is the median score of all hosts (the lower one of two).
	// O(log n) per sample.
	BaselineMedian
)

// LastRule says whether an ejection may leave no usable host in service. The
// zero value is KeepLast. It is a plain value, safe to share.
type LastRule uint8

const (
	// KeepLast refuses an ejection that would leave no usable host in service.
	KeepLast LastRule = iota
	// KeepSole refuses only the ejection of a host that is the only usable
	// member; in a larger pool all may be out at once, if the percentage allows.
	KeepSole
	// EjectLast refuses nothing; only MaxEjectedPercent applies.
	EjectLast
)

// ReturnMode says how a host comes back from an ejection. The zero value is
// Clean. It is a plain value, safe to share.
type ReturnMode uint8

const (
	// Clean returns a host as if nothing had happened, its counters at zero.
	Clean ReturnMode = iota
	// Probation returns a host on probation: one more failure ejects it again,
	// one success makes it Clean. A failure that no consecutive rule counts (an
	// answer under a transport-only configuration) is such a success; where no
	// consecutive rule is on, every failure ejects.
	Probation
	// Ramp returns a host at a reduced weight that grows in steps, as long as it
	// can serve: see [Core.SetUsable].
	Ramp
)

// Validate returns nil for a usable Config, else a [*ConfigError] for the first
// field that is out of range. Every zero is in range.
func (c Config) Validate() error {
	whole := func(field string, v, lo, hi int, want string) error {
		if v < lo || v > hi {
			return &ConfigError{Field: field, Value: v, Want: want}
		}
		return nil
	}
	span := func(field string, v time.Duration) error {
		if v < 0 {
			return &ConfigError{Field: field, Value: v, Want: ">= 0"}
		}
		return nil
	}
	enum := func(field string, v, max uint8, want string) error {
		if v > max {
			return &ConfigError{Field: field, Value: v, Want: want}
		}
		return nil
	}
	const (
		any32   = math.MaxInt32
		percent = "<= 100, or negative for none"
	)
	for _, err := range []error{
		whole("Consecutive", c.Consecutive, math.MinInt32, any32, "<= 2147483647, or negative for off"),
		whole("ConsecutiveGateway", c.ConsecutiveGateway, 0, any32, "0 to 2147483647"),
		whole("ConsecutiveTransport", c.ConsecutiveTransport, 0, any32, "0 to 2147483647"),
		whole("Enforce", c.Enforce, math.MinInt32, 100, percent),
		whole("SuccessRate.Factor", c.SuccessRate.Factor, 0, 1_000_000, "0 to 1000000"),
		whole("SuccessRate.MinHosts", c.SuccessRate.MinHosts, 0, any32, "0 to 2147483647"),
		whole("SuccessRate.MinRequests", c.SuccessRate.MinRequests, 0, any32, "0 to 2147483647"),
		whole("SuccessRate.MinFailures", c.SuccessRate.MinFailures, math.MinInt32, any32, "<= 2147483647, or negative for none"),
		whole("SuccessRate.Tolerate", c.SuccessRate.Tolerate, math.MinInt32, 1000, "<= 1000, or negative for none"),
		whole("SuccessRate.Dead", c.SuccessRate.Dead, math.MinInt32, 1000, "<= 1000, or negative for off"),
		whole("SuccessRate.Enforce", c.SuccessRate.Enforce, math.MinInt32, 100, percent),
		whole("FailurePercentage.Threshold", c.FailurePercentage.Threshold, 0, 100, "0 to 100"),
		whole("FailurePercentage.MinHosts", c.FailurePercentage.MinHosts, 0, any32, "0 to 2147483647"),
		whole("FailurePercentage.MinRequests", c.FailurePercentage.MinRequests, 0, any32, "0 to 2147483647"),
		whole("FailurePercentage.Enforce", c.FailurePercentage.Enforce, math.MinInt32, 100, percent),
		whole("Latency.Alpha", c.Latency.Alpha, 0, 1000, "0 to 1000"),
		span("Latency.Window", c.Latency.Window),
		whole("Latency.MinSamples", c.Latency.MinSamples, 0, any32, "0 to 2147483647"),
		whole("Latency.MinHosts", c.Latency.MinHosts, 0, any32, "0 to 2147483647"),
		span("Latency.Floor", c.Latency.Floor),
		enum("Latency.Baseline", uint8(c.Latency.Baseline), uint8(BaselineMedian), "BaselineOthers, BaselineAll or BaselineMedian"),
		whole("Latency.Enforce", c.Latency.Enforce, math.MinInt32, 100, percent),
		span("Interval", c.Interval),
		span("Base", c.Base),
		span("Max", c.Max),
		span("Jitter", c.Jitter),
		whole("MaxEjectedPercent", c.MaxEjectedPercent, 0, 100, "0 to 100"),
		enum("Last", uint8(c.Last), uint8(EjectLast), "KeepLast, KeepSole or EjectLast"),
		enum("Return", uint8(c.Return), uint8(Ramp), "Clean, Probation or Ramp"),
		whole("RampFrom", c.RampFrom, 0, 1000, "0 to 1000"),
		span("RampStep", c.RampStep),
	} {
		if err != nil {
			return err
		}
	}
	if f := c.Latency.Factor; f != 0 && (f <= 1000 || f > 1_000_000) {
		return &ConfigError{Field: "Latency.Factor", Value: f, Want: "0, or 1001 to 1000000"}
	}
	if g := c.RampGrowth; g != 0 && (g < 1100 || g > 1_000_000) {
		return &ConfigError{Field: "RampGrowth", Value: g, Want: "0, or 1100 to 1000000"}
	}
	if c.Max != 0 && c.Max < orDefault(c.Base, 30*time.Second) {
		return &ConfigError{Field: "Max", Value: c.Max, Want: "0, or >= Base"}
	}
	return nil
}
