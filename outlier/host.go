package outlier

// State bits of a Host.
const (
	member    = 1 << iota // added, not removed
	usable                // can serve, but for ejection
	out                   // ejected, in shadow mode as if
	shadowed              // out only as if
	probation             // next failure ejects
	ramping               // weight below 1000, steps planned
	slow                  // above the latency line since overAt
	based                 // part of the latency baseline

	knownFlags = 1<<iota - 1
)

// A Host is the detector's record of one host. The owner embeds it by value in
// its own record of the host, sets Index, and passes its address to the Core;
// it must not be copied or moved after Add, and belongs to one Core. The zero
// value is ready for [Core.Add]. A Host is guarded by whatever guards its Core.
type Host struct {
	// Index orders changes that fall on one instant, and hosts that are equally
	// bad. It belongs to the owner, who may rewrite it at any time and keeps it
	// unique within the Core.
	Index int

	// What every result touches comes first.
	since  int64 // last return; results of calls that began before do not count
	flags  uint16
	spared uint8 // rules whose refusal was reported, by bit
	rule   Rule  // of the last ejection

	streak, gateway, transport uint32 // failures in a row, by kind
	good, bad                  uint32 // results of this interval

	score          int64 // latency, in thousandths of a nanosecond
	overAt         int64 // when the slow period began
	samples, fresh uint32

	key      uint64
	until    int64   // end of the ejection
	total    int64   // ejections ever
	verdicts uint32  // numbers the draws
	count    int32   // factor of the last ejection, before forgiveness
	weight   int32   // thousandths, while in service
	pos      int32   // in the agenda; -1: nothing planned
	slot     int32   // in Core.hosts
	med      int32   // place in the median; see median
	owner    *Handle // of a Detector's hosts
}

// Ejected tells whether the host was out at the Core's latest input. For another
// instant see [Core.EjectedAt].
func (h *Host) Ejected() bool { return h.flags&(out|shadowed) == out }

// Ramp returns what the ramp it is on leaves of the host's weight, in thousandths,
// as of the Core's latest input: 1000 without one, also while it is ejected. For
// another instant see [Core.Weight].
func (h *Host) Ramp() int {
	if h.flags&ramping == 0 {
		return 1000
	}
	return int(h.weight)
}

// Until returns the end of the ejection, in the nanoseconds of the Core's
// timeline; it means nothing unless [Host.Ejected].
func (h *Host) Until() int64 { return h.until }

// Ejections returns how often the host was ejected since it was added; in
// shadow mode, how often it would have been.
func (h *Host) Ejections() int { return int(h.total) }

// Streak returns the failures in a row so far.
func (h *Host) Streak() int { return int(h.streak) }

// Score returns the smoothed latency in thousandths of a nanosecond, and false
// where nothing was measured yet.
func (h *Host) Score() (milli int64, ok bool) { return h.score, h.samples > 0 }
