package incident

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// ErrSyntax is what every error about the text of a file matches. The error
// itself is a [*SyntaxError].
var ErrSyntax = errors.New("incident: bad file")

// SyntaxError says in which line a file is wrong and what was expected there.
type SyntaxError struct {
	Line int    // from 1
	Msg  string // what is wrong
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("incident: line %d: %s", e.Line, e.Msg) }

// Is makes the error match ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// cursor reads one line. The first mistake sticks, and everything after it reads
// as zero.
type cursor struct {
	b     []byte
	i     int
	msg   string
	names map[string]string
}

func (c *cursor) fail(format string, args ...any) {
	if c.msg == "" {
		c.msg = fmt.Sprintf(format, args...)
	}
	c.i = len(c.b)
}

// expect fails with what stands here instead of want.
func (c *cursor) expect(want string) {
	rest := c.b[c.i:]
	if len(rest) == 0 {
		c.fail("want %s, the line ends", want)
		return
	}
	if len(rest) > 24 {
		rest = rest[:24]
	}
	c.fail("want %s at column %d, got %q", want, c.i+1, rest)
}

func (c *cursor) space() {
	for c.i < len(c.b) && (c.b[c.i] == ' ' || c.b[c.i] == '\t' || c.b[c.i] == '\r') {
		c.i++
	}
}

// take takes one punctuation mark, if it is the next thing.
func (c *cursor) take(mark byte) bool {
	c.space()
	if c.i < len(c.b) && c.b[c.i] == mark {
		c.i++
		return true
	}
	return false
}

func (c *cursor) need(mark byte) {
	if !c.take(mark) {
		c.expect(strconv.QuoteRune(rune(mark)))
	}
}

// end takes the closing brace of the line and wants nothing after it.
func (c *cursor) end() {
	c.need('}')
	if c.space(); c.msg == "" && c.i < len(c.b) {
		c.expect("the end of the line")
	}
}

// text reads a JSON string. The result is valid until the line is.
func (c *cursor) text(what string) []byte {
	if !c.take('"') {
		c.expect(what + " as a string")
		return nil
	}
	start := c.i
	for c.i < len(c.b) {
		switch ch := c.b[c.i]; {
		case ch == '"':
			s := c.b[start:c.i]
			if c.i++; !utf8.Valid(s) {
				c.fail("%s is not valid UTF-8", what)
				return nil
			}
			return s
		case ch == '\\':
			return c.escaped(what, start)
		case ch < ' ':
			c.fail("%s has a control character in it", what)
			return nil
		}
		c.i++
	}
	c.fail("%s has no closing quote", what)
	return nil
}

// escaped goes on with a string that has a backslash in it.
func (c *cursor) escaped(what string, start int) []byte {
	for end := c.i; end < len(c.b); end++ {
		switch c.b[end] {
		case '\\':
			end++
			if end < len(c.b) && c.b[end] == '/' {
				c.fail("%s has a needless escape", what)
				return nil
			}
		case '"':
			s, ok := unescape(c.b[start:end])
			if c.i = end + 1; !ok || !utf8.Valid(s) {
				c.fail("%s has a bad escape, or a character that needs one", what)
				return nil
			}
			return s
		}
	}
	c.fail("%s has no closing quote", what)
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
		case '"', '\\':
			out = append(out, s[i])
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'u':
			if i+4 >= len(s) {
				return nil, false
			}
			r, err := strconv.ParseUint(string(s[i+1:i+5]), 16, 16)
			// Halves of a pair stand for no character of their own.
			if err != nil || r >= 0xd800 && r < 0xe000 {
				return nil, false
			}
			out = utf8.AppendRune(out, rune(r))
			i += 4
		default:
			return nil, false
		}
	}
	return out, true
}

// maxNames bounds how many different strings a Reader remembers.
const maxNames = 1 << 16

// name reads a string that will come again.
func (c *cursor) name(what string) string {
	return c.intern(c.text(what))
}

func (c *cursor) intern(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(c.names) < maxNames {
		c.names[s] = s
	}
	return s
}

// digits reads an unsigned number of at most limit, without leading zeros.
func (c *cursor) digits(what string, limit uint64) uint64 {
	start, n := c.i, uint64(0)
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		d := uint64(c.b[c.i] - '0')
		if n > (math.MaxUint64-d)/10 {
			c.fail("%s is too large", what)
			return 0
		}
		n = n*10 + d
		c.i++
	}
	switch {
	case c.i == start:
		c.expect(what + " as digits")
		return 0
	case c.b[start] == '0' && c.i > start+1:
		c.fail("%s has leading zeros", what)
		return 0
	case n > limit:
		c.fail("%s is %d, want at most %d", what, n, limit)
		return 0
	}
	return n
}

func (c *cursor) number(what string, limit uint64) uint64 {
	c.space()
	return c.digits(what, limit)
}

// integer is number with a sign.
func (c *cursor) integer(what string, limit uint64) int64 {
	if c.take('-') {
		n := c.digits(what, limit)
		if n == 0 {
			c.fail("%s is minus zero", what)
		}
		return -int64(n)
	}
	return int64(c.number(what, limit))
}

func (c *cursor) truth(what string) bool {
	c.space()
	for _, v := range [...]bool{true, false} {
		word := strconv.FormatBool(v)
		if len(c.b)-c.i >= len(word) && string(c.b[c.i:c.i+len(word)]) == word {
			c.i += len(word)
			return v
		}
	}
	c.expect(what + " as true or false")
	return false
}

// seconds reads an exact time such as "12.00012".
func (c *cursor) seconds(what string) time.Duration {
	s := c.text(what)
	if c.msg != "" {
		return 0
	}
	d, ok := parseSeconds(s)
	if !ok {
		c.fail(`%s is %q, want seconds with up to nine decimals, such as "12.00012"`, what, s)
	}
	return d
}

func parseSeconds(s []byte) (time.Duration, bool) {
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

// key reads the next key of an object, and the colon. first says that no comma
// stands before it. It returns "" at the closing brace, which it leaves.
func (c *cursor) key(first bool) string {
	c.space()
	if c.msg != "" || c.i < len(c.b) && c.b[c.i] == '}' {
		return ""
	}
	if !first {
		c.need(',')
	}
	k := ""
	switch b := c.text("a key"); string(b) {
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
	c.need(':')
	if c.msg == "" && k == "" {
		c.fail("an empty key")
	}
	return k
}
