package jsonline

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Lines reads the lines of a file, without those that are empty or begin with #.
// Memory does not grow with the file, only with its longest line. Not safe for
// concurrent use.
type Lines struct {
	in    *bufio.Reader
	long  []byte
	names map[string]string

	// N is the number of the latest line, from 1; 0 before the first.
	N int
}

// NewLines reads from in.
func NewLines(in io.Reader) *Lines {
	return &Lines{in: bufio.NewReaderSize(in, 1<<16), names: map[string]string{}}
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
		if len(b) > 0 && b[0] != '#' {
			return b, nil
		}
	}
}

// Cursor returns a cursor at the beginning of a line of this file.
func (r *Lines) Cursor(line []byte) Cursor { return Cursor{b: line, names: r.names} }
