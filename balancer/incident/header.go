package incident

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
)

// Version is the version of the format that this package writes, and the only
// one that it reads.
const Version = 1

// Library names the decisions: a file recorded under another value may not
// replay.
const Library = "evenkeel/0"

// Header is the first line of a file: the Pool before anything happened. The zero
// Header is not valid: it has no seed.
type Header struct {
	// Library is that of the recording; if empty when written, the constant.
	Library string
	// Seed is the Pool's. It must not be 0.
	Seed uint64
	// Start is the instant from which the times of the lines count.
	Start time.Time
	// Note says in words what the file is about.
	Note string
	// HashedKeys says that the affinity keys were replaced by keyed hashes of
	// them: equal keys are still equal, and a policy that looks at keys picks
	// otherwise.
	HashedKeys bool
	// Settings are the Pool's, without what is not data: clock, functions, and a
	// policy that is not built in. See Config.
	Settings balancer.Config
	// Members are the upstreams at the start.
	Members []balancer.Member
	// State is the saved state at the start. If empty, the Pool is new.
	State []byte
}

// Config returns the configuration to replay with. A policy that is not built
// in, by itself or inside a balancer.Hash, is taken from policies, by its name. An
// error names what is missing.
func (h Header) Config(policies ...balancer.Policy) (balancer.Config, error) {
	cfg := h.Settings
	var err error
	if cfg.Policy, err = jsonline.Resolve(cfg.Policy, policies...); err != nil {
		return cfg, fmt.Errorf("incident: %w and was not given", err)
	}
	cfg.Seed = h.Seed
	return cfg, nil
}

// String is the header as it stands in a file.
func (h Header) String() string { return string(h.appendTo(nil)) }

func (h *Header) appendTo(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"incident":`...), Version, 10)
	lib := h.Library
	if lib == "" {
		lib = Library
	}
	b = jsonline.AppendString(append(b, `,"lib":`...), lib)
	b = strconv.AppendUint(append(b, `,"seed":`...), h.Seed, 10)
	b = append(b, `,"start":"`...)
	b = append(h.Start.UTC().AppendFormat(b, time.RFC3339Nano), '"')
	if h.Note != "" {
		b = jsonline.AppendString(append(b, `,"note":`...), h.Note)
	}
	if h.HashedKeys {
		b = append(b, `,"keys":"hashed"`...)
	}
	b = jsonline.AppendStruct(append(b, `,"config":`...), h.Settings, "Seed") // which stands above
	b = appendMembers(append(b, `,"members":`...), h.Members)
	if len(h.State) > 0 {
		b = append(b, `,"state":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, h.State), '"')
	}
	return append(b, '}')
}

// header reads the first line.
func (c *cursor) header(h *Header) {
	c.Need('{')
	if k := c.Key(true); k != "incident" {
		c.Fail(`want a header, {"incident":%d,...}, got %q`, Version, k)
	}
	if v := c.Number("incident", math.MaxInt32); c.Msg == "" && v != Version {
		c.Fail("the file has version %d, this library reads version %d", v, Version)
	}
	key := func(want string) {
		if k := c.Key(false); k != want {
			c.Fail("want %q, got %q", want, k)
		}
	}
	key("lib")
	h.Library = string(c.Text("lib"))
	key("seed")
	if h.Seed = c.Number("seed", math.MaxUint64); h.Seed == 0 {
		c.Fail("seed is 0, want the seed that the Pool had")
	}
	key("start")
	start, err := time.Parse(time.RFC3339Nano, string(c.Text("start")))
	if h.Start = start.UTC(); err != nil {
		c.Fail("start is not a time as RFC 3339 has it")
	}
	k := c.Key(false)
	if k == "note" {
		h.Note = string(c.Text(k))
		k = c.Key(false)
	}
	if k == "keys" {
		switch word := string(c.Text(k)); word {
		case "":
		case "hashed":
			h.HashedKeys = true
		default:
			c.Fail(`keys is %q, want "hashed"`, word)
		}
		k = c.Key(false)
	}
	if k == "config" {
		c.Struct(k, &h.Settings, "Seed")
		k = c.Key(false)
	}
	if k != "members" {
		c.Fail(`want "members", got %q`, k)
	}
	h.Members = c.members()
	if k = c.Key(false); k == "state" {
		state, err := base64.StdEncoding.Strict().DecodeString(string(c.Text(k)))
		if err != nil {
			c.Fail("state is not base64")
		} else if len(state) > 0 {
			h.State = state
		}
		k = c.Key(false)
	}
	if k != "" {
		c.Fail("unknown, repeated or out of order: %q", k)
	}
	c.End()
}

// check returns what keeps a header, of which line is the text, from being
// written.
func (h *Header) check(line []byte) error {
	if h.Seed == 0 {
		return fmt.Errorf("incident: a header without a seed")
	}
	if err := tooLong(line); err != nil {
		return err
	}
	l := Line{Kind: InUpdate, Members: h.Members}
	if err := l.check(); err != nil {
		return err
	}
	// A Config has too many fields to name what each of them may be.
	c := cursor{jsonline.NewCursor(line)}
	if c.header(new(Header)); c.Msg != "" {
		return fmt.Errorf("incident: a header that cannot be read again: %s", c.Msg)
	}
	return nil
}

// tooLong returns what keeps a line from being read again that has the length of
// this one, and a line feed.
func tooLong(line []byte) error {
	if len(line) >= jsonline.MaxLine {
		return fmt.Errorf("incident: a line of %d bytes, want less than %d", len(line), jsonline.MaxLine)
	}
	return nil
}

// ErrClosed is the error of a write to a [Writer] that was closed.
var ErrClosed = errors.New("incident: the file was ended")

// Writer writes a file line by line. It must be closed. The zero Writer is not
// usable: see NewWriter. Not safe for concurrent use.
type Writer struct {
	w      io.Writer
	b      []byte
	last   time.Duration
	err    error
	closed bool
}

// NewWriter begins a file with its header. What is written reaches w in pieces of
// some 32 kB, the last of them with Close.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	line := h.appendTo(nil)
	if err := h.check(line); err != nil {
		return nil, err
	}
	return &Writer{w: w, b: append(line, '\n')}, nil
}

// flushAt is the size at which what was written is handed on.
const flushAt = 1 << 15

// Write writes one line. Times must not decrease. An error says what is wrong
// with the line, or is that of the io.Writer, or ErrClosed; the first of them
// sticks.
func (w *Writer) Write(l Line) error { return w.write(&l) }

func (w *Writer) write(l *Line) error {
	if w.closed {
		return ErrClosed
	}
	if w.err == nil {
		w.err = l.check()
	}
	if w.err == nil && (l.At < w.last || l.At == Never) {
		w.err = fmt.Errorf("incident: time goes back from %s to %s", jsonline.AppendSeconds(nil, w.last), jsonline.AppendSeconds(nil, l.At))
	}
	if w.err != nil {
		return w.err
	}
	w.last = l.At
	begin := len(w.b)
	w.b = l.appendTo(w.b)
	if w.err = tooLong(w.b[begin:]); w.err != nil {
		w.b = w.b[:begin]
		return w.err
	}
	if w.b = append(w.b, '\n'); len(w.b) >= flushAt {
		return w.flush()
	}
	return nil
}

// flush hands on the lines that were written, and returns the first error so far.
func (w *Writer) flush() error {
	if len(w.b) > 0 {
		_, err := w.w.Write(w.b)
		if w.b = w.b[:0]; w.err == nil {
			w.err = err
		}
	}
	return w.err
}

// Close ends the file. It does not close the io.Writer. Later calls do nothing
// and return the same error.
func (w *Writer) Close() error {
	if w.err == nil && !w.closed {
		w.b = append(w.b, lastLine...)
		w.b = append(w.b, '\n')
		w.err = w.flush()
	}
	w.closed = true
	return w.err
}

// lastLine ends every file, so that a file that was cut off is noticed.
const lastLine = `{"end":true}`
