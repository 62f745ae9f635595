// Package clock is the source of time that the rest of the library is given.
//
// Nothing in this module reads the machine's clock on its own: whoever needs
// the time is handed a [Clock], and whoever has to wait a [Scheduler]. There
// are three kinds of them.
//
//   - [System] is real time, with a reading cheaper than [time.Now].
//   - [Manual] moves only when it is told to. Functions that fall due run on
//     the goroutine that moves it, in a fixed order, each at its own moment,
//     so a test or a simulation gives the same result every time.
//   - [Adapt] makes a Scheduler of a clock from another module, such as
//     github.com/benbjohnson/clock or github.com/jonboulle/clockwork, without
//     importing it. Where only a Clock is asked for, such clocks fit as they
//     are.
package clock

import "time"

// Clock tells the time. It is the smallest thing that the primitives' owners
// need, and most clocks of other modules satisfy it unadapted.
//
// Implementations must be safe for concurrent use. Readings may go backwards,
// as wall clocks do: callers treat an earlier time as no progress.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
}

// Scheduler is a Clock that can also call a function later. Backoffs and
// timeouts need one.
//
// Implementations must be safe for concurrent use.
type Scheduler interface {
	Clock

	// AfterFunc calls f once d has passed, unless the returned Timer is
	// stopped before. If d is zero or negative, f is due at once. On which
	// goroutine f runs is the implementation's choice, but never inside
	// AfterFunc itself. A nil f is a function that does nothing.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call of a [Scheduler]. [*time.Timer] is a Timer.
//
// Implementations must be safe for concurrent use.
type Timer interface {
	// Stop cancels the call. It reports whether it did: false means that
	// the function has been started or that the timer was stopped already.
	// It does not wait for a function that is running.
	Stop() bool

	// Reset arms the timer again, to call its function once d has passed
	// from now, whether or not the timer was pending. It reports whether
	// it was.
	Reset(d time.Duration) bool
}
