package ewma

import (
	"math"
	"sync"
	"time"
)

// Meter is an average of durations behind a mutex: a [Core] whose unit is the
// nanosecond, for use on its own.
//
// Times count from the first one that the Meter sees, by the monotonic clock
// where both have a reading of it, and saturate 292 years from there.
//
// The zero Meter is ready to use and behaves as NewMeter(Config{}). A Meter must
// not be copied after first use.
//
// A Meter is safe for concurrent use. All methods are O(1), and those that
// neither save nor are a zero Meter's first call allocate nothing.
type Meter struct {
	mu   sync.Mutex // guards below
	core Core
	base time.Time // first time seen
	seen bool
}

// NewMeter returns an average that has seen nothing. It panics if cfg does not
// pass [Config.Validate]. The result is safe for concurrent use.
func NewMeter(cfg Config) *Meter {
	return &Meter{core: NewCore(cfg)}
}

// Observe adds a duration measured at now. A negative one is ignored, and a now
// before that of the last sample counts as that. It is safe for concurrent use.
func (m *Meter) Observe(now time.Time, d time.Duration) {
	if d < 0 {
		return
	}
	m.mu.Lock()
	m.core.Observe(m.nanos(now), int64(d))
	m.mu.Unlock()
}

// ObserveSeconds is Observe for a number of seconds, rounded to the nearest
// nanosecond. NaN, infinities and negative numbers are ignored; more than a
// [time.Duration] holds counts as its maximum. It is safe for concurrent use.
func (m *Meter) ObserveSeconds(now time.Time, seconds float64) {
	// A comparison with NaN is false.
	if !(seconds >= 0 && seconds <= math.MaxFloat64) {
		return
	}
	d := time.Duration(math.MaxInt64)
	// Converting a float outside the range gives a different result on every
	// architecture. 2^63 is the first float outside.
	if ns := math.Round(float64(seconds * 1e9)); ns < 1<<63 {
		d = time.Duration(ns)
	}
	m.Observe(now, d)
}

// Value returns the average as it reads at now, faded as [Config] says. It
// stores nothing. Before the first sample it returns the configured prior and
// false. It is safe for concurrent use.
func (m *Meter) Value(now time.Time) (d time.Duration, ok bool) {
	m.mu.Lock()
	v, ok := m.core.Value(m.offset(now))
	m.mu.Unlock()
	return time.Duration(v), ok
}

// Last returns the estimate as the last sample left it, not faded. Before the
// first sample it returns the configured prior and false. It is safe for
// concurrent use.
func (m *Meter) Last() (d time.Duration, ok bool) {
	m.mu.Lock()
	v, ok := m.core.Last()
	m.mu.Unlock()
	return time.Duration(v), ok
}

// Samples returns the number of samples that counted, up to [math.MaxInt32]. It
// is safe for concurrent use.
func (m *Meter) Samples() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.Samples()
}

// Warm reports whether there were as many samples as the warm-up takes, and at
// least one. It is safe for concurrent use.
func (m *Meter) Warm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.Warm()
}

// LastAt returns the time of the last sample, or the zero time if there was
// none. It is safe for concurrent use.
func (m *Meter) LastAt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.core.Samples() == 0 {
		return time.Time{}
	}
	return m.base.Add(time.Duration(m.core.LastAt()))
}

// AppendState appends the average to b, in the encoding of [Core.AppendState],
// and returns the extended slice. It is safe for concurrent use.
func (m *Meter) AppendState(b []byte, now time.Time) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.AppendState(b, m.offset(now))
}

// RestoreState replaces the average by the one at the start of b and returns
// what follows in b, as [Core.RestoreState] does, with the same errors. It is
// safe for concurrent use.
func (m *Meter) RestoreState(b []byte, now time.Time) (rest []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest, err = m.core.RestoreState(b, 0)
	if err != nil {
		return rest, err
	}
	// The restored average starts a timeline of its own at now.
	m.base, m.seen = now, true
	return rest, nil
}

// nanos returns now on the core's timeline, which it starts if need be. m.mu is
// held.
func (m *Meter) nanos(now time.Time) int64 {
	if !m.seen {
		m.base, m.seen = now, true
	}
	return int64(now.Sub(m.base))
}

// offset is nanos for reads, which start nothing. m.mu is held.
func (m *Meter) offset(now time.Time) int64 {
	if !m.seen {
		return 0
	}
	return int64(now.Sub(m.base))
}
