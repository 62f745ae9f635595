package incident

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
)

// Reader reads a file line by line, in memory that does not grow with the file,
// or a recording as if it were one. The zero Reader is not usable: see
// NewReader and FromRecording. Not safe for concurrent use.
type Reader struct {
	head Header
	next func(*Line) error

	in     *jsonline.Lines // nil of what is no text
	line   int
	headAt int // the line of the header
	last   time.Duration
	err    error
}

// NewReader reads the header of a file. Errors about the text are
// *SyntaxError; others are those of in.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: jsonline.NewLines(in)}
	r.next = r.parse
	b, err := r.text()
	if err == io.EOF {
		return nil, &SyntaxError{r.line + 1, "want a header, the file is empty"}
	}
	if err != nil {
		return nil, err
	}
	c := cursor{r.in.Cursor(b)}
	if c.header(&r.head); c.Msg != "" {
		return nil, &SyntaxError{r.line, c.Msg}
	}
	r.headAt = r.line
	return r, nil
}

// Header is the first line.
func (r *Reader) Header() Header { return r.head }

// Line is the number of the line that Next has returned, from 1, and after the
// last one that of {"end":true}; of a recording, the number that it has in the
// file that would be written.
func (r *Reader) Line() int { return r.line }

// Next returns the next line, and io.EOF after the last one.
func (r *Reader) Next() (Line, error) {
	var l Line
	err := r.read(&l)
	return l, err
}

// read is Next into a place of the caller's. The first error sticks.
func (r *Reader) read(l *Line) error {
	if r.err == nil {
		r.err = r.next(l)
	}
	return r.err
}

// text returns the next line that is neither empty nor a comment.
func (r *Reader) text() ([]byte, error) {
	b, err := r.in.Next()
	if r.line = r.in.N; errors.Is(err, jsonline.ErrLong) {
		err = &SyntaxError{r.line, err.Error()}
	}
	return b, err
}

func (r *Reader) parse(l *Line) error {
	b, err := r.text()
	if err == io.EOF {
		return &SyntaxError{r.line + 1, "want " + lastLine + ", the file is cut off"}
	}
	if err != nil {
		return err
	}
	if r.in.Ends(b) {
		end := r.line
		if _, err = r.text(); err == io.EOF {
			r.line = end
			return io.EOF
		} else if err != nil {
			return err
		}
		return &SyntaxError{r.line, "want nothing after " + lastLine}
	}
	c := cursor{r.in.Cursor(b)}
	c.line(l)
	if c.Msg == "" && l.At < r.last {
		c.Fail("time goes back from %s to %s", jsonline.AppendSeconds(nil, r.last), jsonline.AppendSeconds(nil, l.At))
	}
	if c.Msg != "" {
		return &SyntaxError{r.line, c.Msg}
	}
	r.last = l.At
	return nil
}

// player begins a replay of the file.
func (r *Reader) player(cfg balancer.Config) (*player, error) {
	p, err := newPlayer(&r.head, cfg)
	if err != nil {
		return nil, fmt.Errorf("incident: line %d: %w", r.headAt, err)
	}
	return p, nil
}

// File is a whole file in memory, for files that are made or changed by a
// program. The zero File is not valid: its header has no seed.
type File struct {
	Header Header // the first line
	Lines  []Line // the others
}

// Read reads a whole file.
func Read(in io.Reader) (*File, error) {
	r, err := NewReader(in)
	if err != nil {
		return nil, err
	}
	return r.File()
}

// File reads what is left.
func (r *Reader) File() (*File, error) {
	f := &File{Header: r.head}
	for {
		l, err := r.Next()
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
		f.Lines = append(f.Lines, l)
	}
}

// Inputs returns the file without its events: the scenario of a recording.
func (f *File) Inputs() *File {
	out := &File{Header: f.Header}
	for _, l := range f.Lines {
		if l.Kind.In() {
			out.Lines = append(out.Lines, l)
		}
	}
	return out
}

// Reader reads the file from its beginning. The file must not change meanwhile.
func (f *File) Reader() *Reader {
	r := &Reader{head: f.Header, line: 1, headAt: 1}
	i := 0
	r.next = func(l *Line) error {
		if r.line++; i == len(f.Lines) {
			return io.EOF
		}
		if *l = f.Lines[i]; l.Kind == 0 || l.Kind > EvState {
			return fmt.Errorf("incident: a line of kind %d", l.Kind)
		}
		i++
		return nil
	}
	return r
}

// Bytes is the file's text. Errors name what cannot be written.
func (f *File) Bytes() ([]byte, error) {
	var b bytes.Buffer
	err := Copy(&b, f.Reader())
	return b.Bytes(), err
}

// Copy writes all that r has left, with r's header, as one file.
func Copy(out io.Writer, r *Reader) error {
	w, err := NewWriter(out, r.head)
	if err != nil {
		return err
	}
	var l Line
	for {
		err := r.read(&l)
		if err == io.EOF {
			return w.Close()
		}
		if err == nil {
			err = w.write(&l)
		}
		if err != nil {
			return err
		}
	}
}
