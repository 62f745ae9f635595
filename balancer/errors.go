package balancer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrConfig is what every configuration error of this package matches with
	// errors.Is. The error itself is a [*ConfigError].
	ErrConfig = errors.New("balancer: bad configuration")

	// ErrNoUpstreams means that the Pool has no upstream at all. A later Update
	// may mend it.
	ErrNoUpstreams = errors.New("balancer: no upstreams")

	// ErrNoneAvailable means that the Pool has upstreams and none of them may be
	// picked now. The error itself is an [*UnavailableError], which says why.
	ErrNoneAvailable = errors.New("balancer: no upstream is available")

	// ErrState is what every error about saved state matches: truncated, of an
	// unknown version, or out of range.
	ErrState = errors.New("balancer: bad saved state")

	// ErrUnknownUpstream means that an id names no upstream of the Pool.
	ErrUnknownUpstream = errors.New("balancer: unknown upstream")
)

// ConfigError says which setting is wrong, what it was and what is allowed. It
// matches [ErrConfig].
type ConfigError struct {
	Field string // the setting, as it is written in Go
	Value string // its value
	Want  string // the values allowed
	Err   error  // the cause, where a part's own Validate found it; else nil
}

// Error implements error.
func (e *ConfigError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("balancer: %s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("balancer: %s is %s, want %s", e.Field, e.Value, e.Want)
}

// Is makes the error match ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// UnavailableError says why nothing could be picked: how many upstreams there
// are and how many each reason keeps out. An upstream with several reasons
// counts under each. It matches [ErrNoneAvailable]. The value is shared while
// the reasons stay the same, so a total outage allocates nothing per request;
// it must not be modified.
type UnavailableError struct {
	Upstreams int // members of the Pool
	Unhealthy int // called unhealthy by SetHealth
	Ejected   int // ejected by the outlier detector
	Open      int // breaker open
	Trialing  int // breaker half-open, all its trials taken
	Full      int // at MaxInflight
	NoTraffic int // weight 0
}

// Error implements error.
func (e *UnavailableError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "balancer: none of %d upstreams is available", e.Upstreams)
	sep := ": "
	for _, r := range []struct {
		n    int
		what string
	}{{e.Unhealthy, "unhealthy"}, {e.Ejected, "ejected"}, {e.Open, "circuit open"}, {e.Trialing, "on trial"}, {e.Full, "full"}, {e.NoTraffic, "without traffic"}} {
		if r.n > 0 {
			fmt.Fprintf(&b, "%s%d %s", sep, r.n, r.what)
			sep = ", "
		}
	}
	return b.String()
}

// Is makes the error match ErrNoneAvailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrNoneAvailable }
