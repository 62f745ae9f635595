package sim

import (
	"errors"
	"fmt"
)

// ErrConfig is what every error about a Scenario matches with errors.Is. The
// error itself is a [*ConfigError].
var ErrConfig = errors.New("sim: bad scenario")

// ConfigError says which setting of a Scenario is wrong, what it was and what is
// allowed. It matches [ErrConfig].
type ConfigError struct {
	Field string // the setting, as it is written in Go
	Value string // its value
	Want  string // the values allowed
	Err   error  // the cause, where the setting's own package found it; else nil
}

// Error implements error.
func (e *ConfigError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("sim: %s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("sim: %s is %s, want %s", e.Field, e.Value, e.Want)
}

// Is makes the error match ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

func bad(field string, value any, want string) error {
	return &ConfigError{Field: field, Value: fmt.Sprint(value), Want: want}
}
