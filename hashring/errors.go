package hashring

import (
	"errors"
	"fmt"
)

// ErrConfig is wrapped by every error about a field of a configuration struct;
// test for it with errors.Is, and take the field from a [ConfigError] with
// errors.As.
var ErrConfig = errors.New("hashring: invalid configuration")

// ErrMembers is wrapped by every error about a list of members; test for it
// with errors.Is, and take the member from a [MemberError] with errors.As.
var ErrMembers = errors.New("hashring: invalid members")

// A ConfigError names one configuration field that is out of range. It wraps
// [ErrConfig].
//
// The zero value describes nothing and is of no use. A ConfigError is not
// modified after it is returned and is safe for concurrent use.
type ConfigError struct {
	// Field is the struct and field, such as "RingConfig.VirtualNodes".
	Field string
	// Value is the rejected value.
	Value any
	// Want says which values are accepted, such as ">= 0".
	Want string
}

// Error returns the field, its value and the values accepted, in one line.
// It is safe for concurrent use.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("hashring: %s is %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap returns [ErrConfig]. It is safe for concurrent use.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// A MemberError names the first member of a list that cannot be placed: its id
// is empty or was seen before, or its weight is negative. It wraps
// [ErrMembers].
//
// The zero value describes nothing and is of no use. A MemberError is not
// modified after it is returned and is safe for concurrent use.
type MemberError struct {
	// Index is the member's place in the list.
	Index int
	// Member is a copy of the member.
	Member Member
	// Reason is "empty id", "duplicate id" or "negative weight".
	Reason string
}

// Error returns the member's place, id and weight, and what is wrong with it.
// It is safe for concurrent use.
func (e *MemberError) Error() string {
	return fmt.Sprintf("hashring: member %d (id %q, weight %d): %s",
		e.Index, e.Member.ID, e.Member.Weight, e.Reason)
}

// Unwrap returns [ErrMembers]. It is safe for concurrent use.
func (e *MemberError) Unwrap() error { return ErrMembers }

// notNegative is the check most fields need.
func notNegative(field string, v int) error {
	if v < 0 {
		return &ConfigError{Field: field, Value: v, Want: ">= 0"}
	}
	return nil
}
