package jsonline

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Never is a time that does not come. It stands as "never".
const Never = time.Duration(1<<63 - 1)

// AppendSeconds appends a time or a span in seconds, exactly, with as many
// decimals as it takes.
func AppendSeconds(b []byte, d time.Duration) []byte {
	if d == Never {
		return append(b, "never"...)
	}
	ns := uint64(d)
	if d < 0 {
		b = append(b, '-')
		ns = -ns
	}
	b = strconv.AppendUint(b, ns/1e9, 10)
	frac := ns % 1e9
	if frac == 0 {
		return b
	}
	digits, n := [...]byte{'.', 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1
	for i := len(digits) - 1; i > 0; i-- {
		digits[i] = byte('0' + frac%10)
		if n == 1 && digits[i] != '0' {
			n = i + 1
		}
		frac /= 10
	}
	return append(b, digits[:n]...)
}

// AppendString appends a JSON string. What is not valid UTF-8 is replaced.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			if r == utf8.RuneError {
				_, n := utf8.DecodeRuneInString(s[i:])
				if n == 1 {
					b = append(b, "\uFFFD"...)
					continue
				}
			}
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
