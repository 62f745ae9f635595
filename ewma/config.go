package ewma

import (
	"errors"
	"fmt"
	"time"
)

// ErrConfig is what every error of [Config.Validate] wraps.
var ErrConfig = errors.New("ewma: invalid configuration")

// defaultTau is the time constant of the zero Config, the one that Finagle's
// peak EWMA balancer uses.
const defaultTau = 10 * time.Second

// maxWarmup keeps the exact sum of the warm-up samples within its fields.
const maxWarmup = 1_000_000

// Config says how an average weighs its samples and how it ages. The zero
// Config is a plain average with a time constant of ten seconds that fades
// towards zero at the same pace while nothing is measured.
//
// A Config is plain data: it may be copied, compared with ==, and written out.
type Config struct {
	// Tau is the time constant of the average: a sample that follows the
	// one before after a time t leaves e^(-t/Tau) of the estimate and fills
	// the rest. If zero, 10s, unless HalfLife or AlphaMilli is set. Negative
	// is an error.
	Tau time.Duration

	// HalfLife is the other way to state Tau: the time after which half of
	// the estimate is left, Tau times ln(2). If zero, Tau counts. Negative
	// is an error, and so is setting both.
	HalfLife time.Duration

	// AlphaMilli weighs by number instead of by time: every sample fills
	// this many thousandths of the estimate, 250 being an alpha of 0.25,
	// whenever it comes. The result is rounded down to a whole unit. If
	// zero, the average is by time. Other than 0 to 1000 is an error, and so
	// is setting it together with Tau or HalfLife.
	AlphaMilli int

	// Peak makes a sample above the estimate the new estimate at once.
	// Samples below are averaged as usual, so the value goes up in a step
	// and comes down slowly. It holds after the warm-up.
	Peak bool

	// Warmup is the number of first samples during which the estimate is
	// their plain arithmetic mean. If zero, there is none: the first sample
	// is the estimate and the second is weighed. Other than 0 to 1000000 is
	// an error.
	Warmup int

	// IdleTau is the time constant with which a reading fades while nothing
	// is measured: t after the last sample, e^(-t/IdleTau) of the estimate
	// is read. It does not touch the estimate, into which the next sample is
	// weighed. If zero, the Tau or HalfLife of the average, and with
	// AlphaMilli no fading. If negative, readings do not fade.
	IdleTau time.Duration

	// IdleHalfLife is the other way to state IdleTau: the time after which
	// half of the estimate is read. If zero, IdleTau counts. Negative is an
	// error, and so is setting both.
	IdleHalfLife time.Duration

	// Floor is a value, in the unit of the samples, below which a reading
	// does not fade. An estimate below it is read as it is. If zero,
	// readings fade to zero. Negative is an error.
	Floor int64

	// Prior is the value, in the unit of the samples, that is read before
	// the first sample. It is not blended into the average: the first sample
	// replaces it. If zero, 0 is read. Negative is an error.
	Prior int64
}

// A ConfigError tells which field of a Config is wrong. It wraps [ErrConfig].
type ConfigError struct {
	Field string // name in Config
	Value string // its value
	Want  string // what it may be
}

// Error returns the field, its value and the allowed range.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("ewma: Config.%s is %s, want %s", e.Field, e.Value, e.Want)
}

// Unwrap returns [ErrConfig].
func (e *ConfigError) Unwrap() error { return ErrConfig }

// Validate reports the first field that is wrong as a [*ConfigError], or nil.
func (c Config) Validate() error {
	bad := func(field string, value any, want string) error {
		return &ConfigError{Field: field, Value: fmt.Sprint(value), Want: want}
	}
	switch {
	case c.Tau < 0:
		return bad("Tau", c.Tau, ">= 0")
	case c.HalfLife < 0:
		return bad("HalfLife", c.HalfLife, ">= 0")
	case c.HalfLife > 0 && c.Tau > 0:
		return bad("HalfLife", c.HalfLife, "0 while Tau is set")
	case c.AlphaMilli < 0 || c.AlphaMilli > 1000:
		return bad("AlphaMilli", c.AlphaMilli, "0 to 1000")
	case c.AlphaMilli > 0 && c.Tau > 0:
		return bad("AlphaMilli", c.AlphaMilli, "0 while Tau is set")
	case c.AlphaMilli > 0 && c.HalfLife > 0:
		return bad("AlphaMilli", c.AlphaMilli, "0 while HalfLife is set")
	case c.Warmup < 0 || c.Warmup > maxWarmup:
		return bad("Warmup", c.Warmup, fmt.Sprintf("0 to %d", maxWarmup))
	case c.IdleHalfLife < 0:
		return bad("IdleHalfLife", c.IdleHalfLife, ">= 0")
	case c.IdleHalfLife > 0 && c.IdleTau != 0:
		return bad("IdleHalfLife", c.IdleHalfLife, "0 while IdleTau is set")
	case c.Floor < 0:
		return bad("Floor", c.Floor, ">= 0")
	case c.Prior < 0:
		return bad("Prior", c.Prior, ">= 0")
	}
	return nil
}

// settings is a Config with its defaults applied and its constants computed.
// It is shared by the cores made from it and never written after compile.
type settings struct {
	fold   decay  // weight of the estimate against the next sample
	idle   decay  // weight of the estimate in a reading
	alpha  uint64 // thousandths; 0 to use fold
	warmup uint32
	peak   bool
	floor  int64
	prior  int64
}

// compile returns the settings for a valid c.
func (c Config) compile() *settings {
	s := &settings{
		fold:   c.foldDecay(),
		alpha:  uint64(c.AlphaMilli),
		warmup: uint32(c.Warmup),
		peak:   c.Peak,
		floor:  c.Floor,
		prior:  c.Prior,
	}
	switch {
	case c.IdleHalfLife > 0:
		s.idle = halving(c.IdleHalfLife)
	case c.IdleTau > 0:
		s.idle = fading(c.IdleTau)
	case c.IdleTau == 0:
		s.idle = s.fold
	default:
		s.idle = keeping()
	}
	return s
}

// foldDecay returns the decay of the average, which by number has none.
func (c Config) foldDecay() decay {
	switch {
	case c.AlphaMilli > 0:
		return keeping()
	case c.HalfLife > 0:
		return halving(c.HalfLife)
	case c.Tau > 0:
		return fading(c.Tau)
	}
	return fading(defaultTau)
}
