package health

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	lowStatus  = 100 // HTTP status codes are 100 to 599 (RFC 9110, section 15)
	highStatus = 599
)

// StatusSet is the set of HTTP status codes that pass a probe. It is a
// comparable value. The zero StatusSet holds 200 to 399. It is safe for
// concurrent use as long as nobody assigns to it.
type StatusSet struct {
	// bits holds one bit a code, from lowStatus up. ParseStatusSet makes no
	// empty set, so that all bits clear can stand for the default.
	bits [(highStatus - lowStatus + 64) / 64]uint64
}

// ParseStatusSet reads a list of one or more items separated by commas: a class
// (2xx), a code (204), a range with both ends in it (200-299), or a bound that
// is not in it (<500). Spaces around an item are ignored. An error wraps
// [ErrStatusSet] and names the item: another form, a code outside 100 to 599, or
// a range that holds nothing.
func ParseStatusSet(text string) (StatusSet, error) {
	var set StatusSet
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		low, high, ok := parseItem(item)
		if !ok || low < lowStatus || high > highStatus || low > high {
			return StatusSet{}, fmt.Errorf("%w: %q in %q, want a class like 2xx, a code, a range like 200-299 or a bound like <500, within 100 to 599", ErrStatusSet, item, text)
		}
		for code := low; code <= high; code++ {
			set.add(code)
		}
	}
	return set, nil
}

// parseItem returns the ends of the range that one item names.
func parseItem(item string) (low, high int, ok bool) {
	if class, found := strings.CutSuffix(item, "xx"); found {
		n, ok := parseCode(class, 1)
		return n * 100, n*100 + 99, ok
	}
	if bound, found := strings.CutPrefix(item, "<"); found {
		n, ok := parseCode(bound, 3)
		return lowStatus, n - 1, ok
	}
	first, last, found := strings.Cut(item, "-")
	if !found {
		last = first
	}
	low, okLow := parseCode(first, 3)
	high, okHigh := parseCode(last, 3)
	return low, high, okLow && okHigh
}

// parseCode reads exactly so many digits; strconv alone would take a sign.
func parseCode(s string, digits int) (int, bool) {
	if len(s) != digits || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func (s *StatusSet) add(code int) {
	s.bits[(code-lowStatus)/64] |= 1 << ((code - lowStatus) % 64)
}

// Contains tells whether a status code is in the set. Codes outside 100 to 599
// are in no set, 0 for "no answer" among them.
func (s StatusSet) Contains(status int) bool {
	if status < lowStatus || status > highStatus {
		return false
	}
	if s == (StatusSet{}) {
		return status >= 200 && status < 400
	}
	return s.bits[(status-lowStatus)/64]>>((status-lowStatus)%64)&1 != 0
}

// String returns the shortest list of codes and ranges that ParseStatusSet
// reads as the same set, as in "200-299,304".
func (s StatusSet) String() string {
	var b strings.Builder
	for low := lowStatus; low <= highStatus; low++ {
		if !s.Contains(low) {
			continue
		}
		high := low
		for s.Contains(high + 1) {
			high++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(low))
		if high > low {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(high))
		}
		low = high
	}
	return b.String()
}

// MarshalText returns the form of String. It never fails.
func (s StatusSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form of [ParseStatusSet] and leaves the set unchanged
// on its error.
func (s *StatusSet) UnmarshalText(text []byte) error {
	set, err := ParseStatusSet(string(text))
	if err == nil {
		*s = set
	}
	return err
}
