package incident

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable is a text as a terminal may get it: what does not print, such as a
// line feed or an escape sequence, is spelt out. Names and reasons are whatever a
// file says.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// wide are the blocks whose characters take two columns: the larger ones of East
// Asian Width W and F, and emoji (Unicode Standard Annex 11).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1}, {Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

// columns is how wide a character is.
func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// columnsOf is how wide a text is.
func columnsOf(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// tail is the end of a text that fits: it tells hosts apart better than the
// beginning.
func tail(s string, width int) string {
	if columnsOf(s) <= width {
		return s
	}
	n, i := 1, len(s)
	for i > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n += columns(r); n > width {
			break
		}
		i -= size
	}
	return "…" + s[i:]
}

// wrap writes pieces one after another, with a gap in between, in lines of at
// most width columns. The first begins at column indent, where the caller has
// written that far, the others with indent blanks. A piece that is longer than a
// line is broken between words, and a word where the line ends.
func wrap(b *bytes.Buffer, pieces []string, gap string, width, indent int) {
	at, begun := indent, false
	feed := func() {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(" ", indent))
		at, begun = indent, false
	}
	word := func(s, gap string) {
		if begun && at+len(gap)+columnsOf(s) > width {
			feed()
		}
		if begun {
			b.WriteString(gap)
			at += len(gap)
		}
		for _, r := range s {
			if at+columns(r) > width {
				feed()
			}
			b.WriteRune(r)
			at += columns(r)
		}
		begun = true
	}
	for _, s := range pieces {
		before := gap
		if columnsOf(s) <= width-indent {
			word(s, before)
			continue
		}
		for w := range strings.SplitSeq(s, " ") {
			word(w, before)
			before = " "
		}
	}
	b.WriteByte('\n')
}
