package incident

import (
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
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
// in is taken from policies, by its name. An error names what is missing.
func (h Header) Config(policies ...balancer.Policy) (balancer.Config, error) {
	cfg := h.Settings
	if c, ok := cfg.Policy.(custom); ok {
		cfg.Policy = nil
		for _, p := range policies {
			if p.Name() == c.name {
				cfg.Policy = p
			}
		}
		if cfg.Policy == nil {
			return cfg, fmt.Errorf("incident: the policy %q is not built in and was not given", c.name)
		}
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
	b = appendString(append(b, `,"lib":`...), lib)
	b = strconv.AppendUint(append(b, `,"seed":`...), h.Seed, 10)
	b = append(b, `,"start":"`...)
	b = append(h.Start.UTC().AppendFormat(b, time.RFC3339Nano), '"')
	if h.Note != "" {
		b = appendString(append(b, `,"note":`...), h.Note)
	}
	if h.HashedKeys {
		b = append(b, `,"keys":"hashed"`...)
	}
	b = appendConfig(append(b, `,"config":`...), reflect.ValueOf(h.Settings))
	b = appendMembers(append(b, `,"members":`...), h.Members)
	if len(h.State) > 0 {
		b = append(b, `,"state":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, h.State), '"')
	}
	return append(b, '}')
}

// header reads the first line.
func (c *cursor) header(h *Header) {
	c.need('{')
	if k := c.key(true); k != "incident" {
		c.fail(`want a header, {"incident":%d,...}, got %q`, Version, k)
	}
	if v := c.number("incident", math.MaxInt32); c.msg == "" && v != Version {
		c.fail("the file has version %d, this library reads version %d", v, Version)
	}
	key := func(want string) {
		if k := c.key(false); k != want {
			c.fail("want %q, got %q", want, k)
		}
	}
	key("lib")
	h.Library = string(c.text("lib"))
	key("seed")
	if h.Seed = c.number("seed", math.MaxUint64); h.Seed == 0 {
		c.fail("seed is 0, want the seed that the Pool had")
	}
	key("start")
	start, err := time.Parse(time.RFC3339Nano, string(c.text("start")))
	if h.Start = start.UTC(); err != nil {
		c.fail("start is not a time as RFC 3339 has it")
	}
	k := c.key(false)
	if k == "note" {
		h.Note = string(c.text(k))
		k = c.key(false)
	}
	if k == "keys" {
		if string(c.text(k)) != "hashed" {
			c.fail(`keys is not "hashed"`)
		}
		h.HashedKeys = true
		k = c.key(false)
	}
	if k == "config" {
		c.config(k, reflect.ValueOf(&h.Settings).Elem())
		k = c.key(false)
	}
	if k != "members" {
		c.fail(`want "members", got %q`, k)
	}
	h.Members = c.members()
	if k = c.key(false); k == "state" {
		state, err := base64.StdEncoding.Strict().DecodeString(string(c.text(k)))
		if h.State = state; err != nil || len(state) == 0 {
			c.fail("state is not base64")
		}
		k = c.key(false)
	}
	if k != "" {
		c.fail("unknown, repeated or out of order: %q", k)
	}
	c.end()
}

// check returns what keeps a header from being written.
func (h *Header) check() error {
	if h.Seed == 0 {
		return fmt.Errorf("incident: a header without a seed")
	}
	if y := h.Start.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("incident: a start in the year %d", y)
	}
	l := Line{Kind: InUpdate, Members: h.Members}
	return l.check()
}

// Writer writes a file line by line. It must be closed. The zero Writer is not
// usable: see NewWriter. Not safe for concurrent use.
type Writer struct {
	w    io.Writer
	b    []byte
	last time.Duration
	err  error
}

// NewWriter begins a file with its header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	x := &Writer{w: w, b: append(h.appendTo(nil), '\n')}
	return x, nil
}

// flushAt is the size at which what was written is handed on.
const flushAt = 1 << 15

// Write writes one line. Times must not decrease. The first error sticks.
func (w *Writer) Write(l Line) error { return w.write(&l) }

func (w *Writer) write(l *Line) error {
	if w.err == nil {
		w.err = l.check()
	}
	if w.err == nil && (l.At < w.last || l.At == Never) {
		w.err = fmt.Errorf("incident: time goes back from %s to %s", appendSeconds(nil, w.last), appendSeconds(nil, l.At))
	}
	if w.err != nil {
		return w.err
	}
	w.last = l.At
	w.b = append(l.appendTo(w.b), '\n')
	if len(w.b) >= flushAt {
		w.flush()
	}
	return w.err
}

func (w *Writer) flush() {
	if w.err == nil {
		_, w.err = w.w.Write(w.b)
	}
	w.b = w.b[:0]
}

// Close ends the file. It does not close the io.Writer.
func (w *Writer) Close() error {
	if w.err == nil {
		w.b = append(w.b, lastLine...)
		w.b = append(w.b, '\n')
		w.flush()
	}
	return w.err
}

// lastLine ends every file, so that a file that was cut off is noticed.
const lastLine = `{"end":true}`
