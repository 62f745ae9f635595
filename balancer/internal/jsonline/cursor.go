package jsonline

import (
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Cursor reads one line. The first mistake sticks, and everything after it reads
// as zero. Not safe for concurrent use.
type Cursor struct {
	b      []byte
	i      int
	names  map[string]string
	nested int // policies that are being read

	// Msg is the first mistake, empty if there is none.
	Msg string
}

// Fail notes a mistake.
func (c *Cursor) Fail(format string, args ...any) {
	if c.Msg == "" {
		c.Msg = fmt.Sprintf(format, args...)
	}
	c.i = len(c.b)
}

// Expect fails with what stands here instead of want.
func (c *Cursor) Expect(want string) {
	rest := c.b[c.i:]
	if len(rest) == 0 {
		c.Fail("want %s, the line ends", want)
		return
	}
	if len(rest) > 24 {
		rest = rest[:24]
	}
	c.Fail("want %s at column %d, got %q", want, c.i+1, rest)
}

// Space skips blanks.
func (c *Cursor) Space() {
	for c.i < len(c.b) && (c.b[c.i] == ' ' || c.b[c.i] == '\t' || c.b[c.i] == '\r') {
		c.i++
	}
}

// Take takes one punctuation mark, if it is the next thing.
func (c *Cursor) Take(mark byte) bool {
	c.Space()
	if c.i < len(c.b) && c.b[c.i] == mark {
		c.i++
		return true
	}
	return false
}

// Need takes a punctuation mark that must be the next thing.
func (c *Cursor) Need(mark byte) {
	if !c.Take(mark) {
		c.Expect(strconv.QuoteRune(rune(mark)))
	}
}

// End takes the closing brace of the line and wants nothing after it.
func (c *Cursor) End() {
	c.Need('}')
	if c.Space(); c.Msg == "" && c.i < len(c.b) {
		c.Expect("the end of the line")
	}
}

// Text reads a JSON string. The result is valid until the line is.
func (c *Cursor) Text(what string) []byte {
	if !c.Take('"') {
		c.Expect(what + " as a string")
		return nil
	}
	start := c.i
	for c.i < len(c.b) {
		switch ch := c.b[c.i]; {
		case ch == '"':
			s := c.b[start:c.i]
			if c.i++; !utf8.Valid(s) {
				c.Fail("%s is not valid UTF-8", what)
				return nil
			}
			return s
		case ch == '\\':
			return c.escaped(what, start)
		case ch < ' ':
			c.Fail("%s has a control character in it", what)
			return nil
		}
		c.i++
	}
	c.Fail("%s has no closing quote", what)
	return nil
}

// escaped goes on with a string that has a backslash in it.
func (c *Cursor) escaped(what string, start int) []byte {
	for end := c.i; end < len(c.b); end++ {
		switch c.b[end] {
		case '\\':
			end++
		case '"':
			s, ok := unescape(c.b[start:end])
			if c.i = end + 1; !ok || !utf8.Valid(s) {
				c.Fail("%s has a bad escape, or a character that needs one", what)
				return nil
			}
			return s
		}
	}
	c.Fail("%s has no closing quote", what)
	return nil
}

func unescape(s []byte) ([]byte, bool) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			if s[i] < ' ' {
				return nil, false
			}
			out = append(out, s[i])
			continue
		}
		if i++; i >= len(s) {
			return nil, false
		}
		switch s[i] {
		case '"', '\\', '/':
			out = append(out, s[i])
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'u':
			r, ok := unit(s[i+1:])
			if i += 4; ok && utf16.IsSurrogate(r) {
				// Halves of a pair stand for no character of their own.
				low, half := rune(0), false
				if i+2 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
					low, half = unit(s[i+3:])
				}
				r = utf16.DecodeRune(r, low)
				i, ok = i+6, half && r != utf8.RuneError
			}
			if !ok {
				return nil, false
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, false
		}
	}
	return out, true
}

// unit reads the four digits of an escape, a UTF-16 unit.
func unit(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	r, err := strconv.ParseUint(string(s[:4]), 16, 16)
	return rune(r), err == nil
}

// A Reader remembers so many different strings, none of them longer than that.
const (
	maxNames = 1 << 16
	maxName  = 256
)

// Name reads a string that will come again.
func (c *Cursor) Name(what string) string {
	return c.intern(c.Text(what))
}

func (c *Cursor) intern(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(c.names) < maxNames && len(s) <= maxName {
		c.names[s] = s
	}
	return s
}

// digits reads an unsigned number of at most limit, without leading zeros.
func (c *Cursor) digits(what string, limit uint64) uint64 {
	start, n := c.i, uint64(0)
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		d := uint64(c.b[c.i] - '0')
		if n > (math.MaxUint64-d)/10 {
			c.Fail("%s is too large", what)
			return 0
		}
		n = n*10 + d
		c.i++
	}
	switch {
	case c.i == start:
		c.Expect(what + " as digits")
		return 0
	case c.b[start] == '0' && c.i > start+1:
		c.Fail("%s has leading zeros", what)
		return 0
	case n > limit:
		c.Fail("%s is %d, want at most %d", what, n, limit)
		return 0
	}
	return n
}

// Number reads an unsigned number of at most limit.
func (c *Cursor) Number(what string, limit uint64) uint64 {
	c.Space()
	return c.digits(what, limit)
}

// Integer is Number with a sign.
func (c *Cursor) Integer(what string, limit uint64) int64 {
	if c.Take('-') {
		n := c.digits(what, limit+1) // there is one more below zero
		if n == 0 {
			c.Fail("%s is minus zero", what)
		}
		return -int64(n)
	}
	return int64(c.Number(what, limit))
}

// Truth reads true or false.
func (c *Cursor) Truth(what string) bool {
	c.Space()
	for _, v := range [...]bool{true, false} {
		word := strconv.FormatBool(v)
		if len(c.b)-c.i >= len(word) && string(c.b[c.i:c.i+len(word)]) == word {
			c.i += len(word)
			return v
		}
	}
	c.Expect(what + " as true or false")
	return false
}

// Seconds reads an exact time such as "12.00012".
func (c *Cursor) Seconds(what string) time.Duration {
	s := c.Text(what)
	if c.Msg != "" {
		return 0
	}
	d, ok := ParseSeconds(s)
	if !ok {
		c.Fail(`%s is %q, want seconds with up to nine decimals, such as "12.00012"`, what, s)
	}
	return d
}

// ParseSeconds is the inverse of AppendSeconds. It returns false for anything
// else.
func ParseSeconds(s []byte) (time.Duration, bool) {
	if string(s) == "never" {
		return Never, true
	}
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	i, n := 0, uint64(0)
	for ; i < len(s) && s[i]-'0' <= 9; i++ {
		if n = n*10 + uint64(s[i]-'0'); n > math.MaxInt64/1_000_000_000 {
			return 0, false
		}
	}
	if i == 0 || i > 1 && s[0] == '0' {
		return 0, false
	}
	n *= 1e9
	if i < len(s) {
		frac := s[i+1:]
		if s[i] != '.' || len(frac) == 0 || len(frac) > 9 {
			return 0, false
		}
		unit := uint64(1e8)
		for _, ch := range frac {
			if ch-'0' > 9 {
				return 0, false
			}
			n += uint64(ch-'0') * unit
			unit /= 10
		}
	}
	// The largest Duration is Never, and has its own word.
	if neg && (n == 0 || n > math.MaxInt64+1) || !neg && n >= math.MaxInt64 {
		return 0, false
	}
	if neg {
		n = -n
	}
	return time.Duration(n), true
}

// Key reads the next key of an object, and the colon. first says that no comma
// stands before it. It returns "" at the closing brace, which it leaves.
func (c *Cursor) Key(first bool) string {
	c.Space()
	if c.Msg != "" || c.i < len(c.b) && c.b[c.i] == '}' {
		return ""
	}
	if !first {
		c.Need(',')
	}
	k := ""
	switch b := c.Text("a key"); string(b) {
	case "t": // the usual ones, without making a string
		k = "t"
	case "in":
		k = "in"
	case "ev":
		k = "ev"
	case "r":
		k = "r"
	case "b":
		k = "b"
	case "try":
		k = "try"
	case "out":
		k = "out"
	case "lat":
		k = "lat"
	case "hash":
		k = "hash"
	default:
		k = c.intern(b)
	}
	c.Need(':')
	if c.Msg == "" && k == "" {
		c.Fail("an empty key")
	}
	return k
}
