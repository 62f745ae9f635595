package ewma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrState is what every error of RestoreState wraps.
var ErrState = errors.New("ewma: invalid state")

// stateVersion is the first byte of a saved state.
const stateVersion = 1

// AppendState appends the average to b and returns the extended slice. The
// configuration is not part of it. The encoding is
//
//	byte     1, the version
//	uvarint  number of samples, up to 2^31-1; if 0, nothing follows
//	varint   now minus the time of the last sample
//	uvarint  estimate, whole units
//	uvarint  rest of the estimate: in 2^-32 of a unit, but during the warm-up
//	         the remainder of the sum of samples divided by their number
//
// with the varints of encoding/binary. It is not safe for use concurrent with
// Observe.
func (c *Core) AppendState(b []byte, now int64) []byte {
	b = append(b, stateVersion)
	b = binary.AppendUvarint(b, uint64(c.n))
	if c.n == 0 {
		return b
	}
	b = binary.AppendVarint(b, subSat(now, c.last))
	b = binary.AppendUvarint(b, uint64(c.est))
	return binary.AppendUvarint(b, uint64(c.rest))
}

// RestoreState replaces the average by the one at the start of b, as AppendState
// wrote it, and returns what follows in b. The Core must have the configuration
// of the one that was saved. now stands for the now of the save: if it is
// another, the average goes on as if all its times were shifted by the
// difference. If b is cut short, of another version or impossible, the error
// wraps [ErrState] and the Core is unchanged. It is not safe for concurrent use.
func (c *Core) RestoreState(b []byte, now int64) (rest []byte, err error) {
	set := c.set
	if set == nil {
		set = Config{}.compile()
	}
	if len(b) == 0 || b[0] != stateVersion {
		return b, stateError("version")
	}
	d := decoder{b: b[1:]}
	next := Core{set: set}
	n := d.uvarint(maxSamples)
	if n > 0 {
		next.n = uint32(n)
		next.last = subSat(now, d.varint())
		next.est = int64(d.uvarint(math.MaxInt64))
		next.rest = uint32(d.uvarint(set.maxRest(n)))
	}
	if d.bad {
		return b, stateError("contents")
	}
	*c = next
	return d.b, nil
}

// maxRest returns the greatest rest that n samples can leave.
func (s *settings) maxRest(n uint64) uint64 {
	switch {
	case n < uint64(s.warmup):
		return n - 1
	case s.alpha > 0:
		return 0
	}
	return math.MaxUint32
}

// stateError says what is wrong with a saved state.
func stateError(what string) error {
	return fmt.Errorf("%w: %s", ErrState, what)
}

// decoder reads varints until one is cut short or out of range, and zeros from
// then on.
type decoder struct {
	b   []byte
	bad bool
}

// uvarint reads a number that must not exceed limit.
func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit || d.bad {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// varint reads a signed number.
func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 || d.bad {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// subSat returns a-b, or the nearest int64 if that does not fit.
func subSat(a, b int64) int64 {
	d := a - b
	// It has overflowed if a and b differ in sign and d does not have a's.
	if (a^b)&(a^d) < 0 {
		if a < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return d
}
