package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
)

// FileVersion is the version of the files that Write writes, and the only one
// that Read reads.
const FileVersion = 1

// ErrSyntax is what every error about the text of a file matches. The error
// itself is a [*SyntaxError].
var ErrSyntax = errors.New("sim: bad file")

// SyntaxError says in which line a file is wrong and what was expected there.
type SyntaxError struct {
	Line int    // from 1
	Msg  string // what is wrong
	Err  error  // the *ConfigError of a line that reads well and cannot be run, else nil
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("sim: line %d: %s", e.Line, e.Msg) }

// Is makes the error match ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// Unwrap returns Err.
func (e *SyntaxError) Unwrap() error { return e.Err }

// The kinds of lines below the header, in the order in which they stand.
const (
	lineServer = iota
	lineClient
	lineChange
)

var lineNames = [...]string{lineServer: "server", lineClient: "client", lineChange: "change"}

// lastLine ends every file, so that a file that was cut off is noticed.
const lastLine = `{"end":true}`

// Read reads a scenario from a file, in the form that the package documentation
// has, and validates it. Errors about the text are *SyntaxError and name the
// line; others are those of in.
func Read(in io.Reader) (Scenario, error) {
	f := fileReader{lines: jsonline.NewLines(in)}
	if err := f.read(); err != nil {
		return Scenario{}, err
	}
	return f.s, nil
}

// fileReader is a Read under way.
type fileReader struct {
	lines *jsonline.Lines
	s     Scenario
	at    [len(lineNames)][]int // the numbers of the lines of each kind
	stage int                   // the latest kind
}

func (f *fileReader) fail(line int, msg string) error { return &SyntaxError{Line: line, Msg: msg} }

// next returns the next line. One that is too long is an error about the text.
func (f *fileReader) next() ([]byte, error) {
	b, err := f.lines.Next()
	if errors.Is(err, jsonline.ErrLong) {
		err = f.fail(f.lines.N, err.Error())
	}
	return b, err
}

func (f *fileReader) read() error {
	b, err := f.next()
	if err == io.EOF {
		return f.fail(f.lines.N+1, "want a header, the file is empty")
	}
	if err != nil {
		return err
	}
	head := f.lines.N
	c := f.lines.Cursor(b)
	if f.header(&c); c.Msg != "" {
		return f.fail(head, c.Msg)
	}
	for {
		b, err := f.next()
		switch {
		case err == io.EOF:
			return f.fail(f.lines.N+1, "want "+lastLine+", the file is cut off")
		case err != nil:
			return err
		case f.lines.Ends(b):
			switch _, err := f.next(); err {
			case io.EOF:
				return f.validate(head)
			case nil:
				return f.fail(f.lines.N, "want nothing after "+lastLine)
			default:
				return err
			}
		}
		c := f.lines.Cursor(b)
		if f.line(&c); c.Msg != "" {
			return f.fail(f.lines.N, c.Msg)
		}
	}
}

// elsewhere are the fields of a Scenario that have lines of their own.
var elsewhere = []string{"Servers", "Clients", "Script"}

func (f *fileReader) header(c *jsonline.Cursor) {
	c.Need('{')
	if k := c.Key(true); k != "scenario" {
		c.Fail(`want a header, {"scenario":%d,...}, got %q`, FileVersion, k)
	}
	if v := c.Number("scenario", 1<<31-1); c.Msg == "" && v != FileVersion {
		c.Fail("the file has version %d, this library reads version %d", v, FileVersion)
	}
	c.Fields("scenario", &f.s, false, elsewhere...)
	c.End()
	builtIn(c, f.s.Pool)
}

// builtIn refuses a policy that cannot be made from its name.
func builtIn(c *jsonline.Cursor, cfg balancer.Config) {
	if _, err := jsonline.Resolve(cfg.Policy); err != nil {
		c.Fail("%v", err)
	}
}

func (f *fileReader) line(c *jsonline.Cursor) {
	c.Need('{')
	k := c.Key(true)
	kind := len(lineNames)
	for i, name := range lineNames {
		if k == name {
			kind = i
		}
	}
	switch {
	case kind == len(lineNames):
		c.Fail(`want "server", "client" or "change", got %q`, k)
		return
	case kind < f.stage:
		c.Fail("a %q after a %q", k, lineNames[f.stage])
		return
	}
	f.stage = kind
	f.at[kind] = append(f.at[kind], f.lines.N)
	switch kind {
	case lineServer:
		var v Server
		c.Struct(k, &v)
		f.s.Servers = append(f.s.Servers, v)
	case lineClient:
		var v Client
		c.Struct(k, &v)
		if v.Pool != nil {
			builtIn(c, *v.Pool)
		}
		f.s.Clients = append(f.s.Clients, v)
	case lineChange:
		var v Change
		c.Struct(k, &v)
		f.s.Script = append(f.s.Script, v)
	}
	c.End()
}

// validate is Scenario.Validate with the line of what is wrong.
func (f *fileReader) validate(head int) error {
	err := f.s.Validate()
	if err == nil {
		return nil
	}
	out := &SyntaxError{Line: head, Msg: strings.TrimPrefix(err.Error(), "sim: "), Err: err}
	var bad *ConfigError
	if errors.As(err, &bad) {
		for kind, field := range elsewhere {
			rest, ok := strings.CutPrefix(bad.Field, "Scenario."+field+"[")
			if !ok {
				continue
			}
			number, _, _ := strings.Cut(rest, "]")
			if i, err := strconv.Atoi(number); err == nil {
				out.Line = f.at[kind][i]
			}
		}
	}
	return out
}

// Write writes the scenario as a file that Read reads: the same bytes for equal
// scenarios. Functions of a Pool's configuration are left out: they decide
// nothing here. The error is that of Validate, a *ConfigError about a policy
// that is not built in, or that of out.
func (s Scenario) Write(out io.Writer) error {
	if err := s.Validate(); err != nil {
		return err
	}
	b := strconv.AppendInt([]byte(`{"scenario":`), FileVersion, 10)
	b = append(jsonline.AppendFields(b, s, false, elsewhere...), "}\n"...)
	line := func(kind int, v any) {
		b = append(append(append(b, `{"`...), lineNames[kind]...), `":`...)
		b = append(jsonline.AppendStruct(b, v), "}\n"...)
	}
	for _, v := range s.Servers {
		line(lineServer, v)
	}
	for _, v := range s.Clients {
		line(lineClient, v)
	}
	for _, v := range s.Script {
		line(lineChange, v)
	}
	b = append(b, lastLine...)
	b = append(b, '\n')
	// Reading it back is how a custom policy shows.
	if _, err := Read(bytes.NewReader(b)); err != nil {
		return &ConfigError{Field: "Scenario in a file", Err: err}
	}
	_, err := out.Write(b)
	return err
}
