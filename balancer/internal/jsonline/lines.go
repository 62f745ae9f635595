package jsonline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is how long a line may be, in bytes: a header with the state of some
// hundred thousand upstreams fits in.
const MaxLine = 64 << 20

// ErrLong is the error of a line that is longer than allowed.
var ErrLong = errors.New("the line is too long")

// Lines reads the lines of a file, without those that are blank or whose first
// character is #.
// Memory does not grow with the file, only with its longest line. Not safe for
// concurrent use.
type Lines struct {
	in    *bufio.Reader
	long  []byte
	names map[string]string

	// N is the number of the latest line, from 1; 0 before the first. With ErrLong
	// it is that of the long one.
	N int
	// Max is how long a line may be: MaxLine, if it is not changed.
	Max int
}

// NewLines reads from in.
func NewLines(in io.Reader) *Lines {
	return &Lines{in: bufio.NewReaderSize(in, 1<<16), names: map[string]string{}, Max: MaxLine}
}

// Next returns the next line, which is valid until the one after is read, and
// io.EOF after the last one.
func (r *Lines) Next() ([]byte, error) {
	for {
		b, err := r.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			r.long = append(r.long[:0], b...)
			for errors.Is(err, bufio.ErrBufferFull) {
				b, err = r.in.ReadSlice('\n')
				if len(r.long)+len(b) > r.Max {
					r.N++
					return nil, fmt.Errorf("%w: more than %d bytes", ErrLong, r.Max)
				}
				r.long = append(r.long, b...)
			}
			b = r.long
		}
		if len(b) == 0 {
			return nil, err // io.EOF, most of the time
		}
		r.N++
		if err != nil && err != io.EOF {
			return nil, err
		}
		b = bytes.TrimRight(b, " \t\r\n")
		if text := bytes.TrimLeft(b, " \t"); len(text) > 0 && text[0] != '#' {
			return b, nil
		}
	}
}

// NewCursor returns a cursor at the beginning of a line by itself.
func NewCursor(line []byte) Cursor { return Cursor{b: line, names: map[string]string{}} }

// Cursor returns a cursor at the beginning of a line of this file.
func (r *Lines) Cursor(line []byte) Cursor { return Cursor{b: line, names: r.names} }

// Ends tells whether a line is the last one of a file, {"end":true}.
func (r *Lines) Ends(line []byte) bool {
	c := r.Cursor(line)
	return c.Take('{') && c.Key(true) == "end" && c.Truth("end") && c.Take('}') && c.i == len(line)
}
