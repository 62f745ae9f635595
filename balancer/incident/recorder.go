package incident

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// Config sets up a Recorder. The zero value is complete, and records for dumps
// on demand.
type Config struct {
	// Size is the number of records in each of the ring's two segments: inputs
	// and changes of state, two or three for each attempt. What is kept is
	// between one and two segments. A record takes 64 bytes, a rare one about 300
	// more. If zero, 32768. Negative, or more than 2^24, is an error.
	Size int

	// Options say how dumps are written.
	Options Options

	// Triggers are the changes of state at which OnTrigger is called. If nil,
	// BreakerOpened and UpstreamEjected. If empty and not nil, none.
	Triggers []balancer.EventKind

	// OnTrigger, if not nil, receives a dump when a trigger has happened, and when
	// nothing is selectable any more. It is called on the goroutine that delivers
	// the Pool's events, which may be one that makes a request: a dump is cheap,
	// writing it is better done elsewhere. It may call the Pool.
	OnTrigger func(Incident)

	// Gap is the time, on the Pool's clock, in which the same change of the same
	// upstream is not a trigger again, nor that nothing is selectable, so that a
	// bad hour is not a thousand dumps. If zero, 30s. If negative, there is no gap.
	//
	// Up to 1024 gaps are kept apart. While that many are open, all upstreams share
	// one for each kind of change.
	Gap time.Duration
}

// Validate reports a bad setting. The error matches balancer.ErrConfig.
func (c Config) Validate() error {
	if c.Size < 0 || c.Size > maxSize {
		return fmt.Errorf("incident: Config.Size is %d, want 0 to %d: %w", c.Size, maxSize, balancer.ErrConfig)
	}
	return nil
}

// maxSize is the largest segment of a tape.
const maxSize = 1 << 24

func (c Config) size() int {
	if c.Size == 0 {
		return 1 << 15
	}
	return c.Size
}

func (c Config) gap() time.Duration {
	if c.Gap == 0 {
		return 30 * time.Second
	}
	return c.Gap
}

func (c Config) triggers() []balancer.EventKind {
	if c.Triggers == nil {
		return []balancer.EventKind{balancer.BreakerOpened, balancer.UpstreamEjected}
	}
	return c.Triggers
}

// Pool is what a Recorder needs of a [balancer.Pool].
type Pool interface {
	Attach(*balancer.Tape)      // begins to record
	Detach(*balancer.Tape)      // ends it
	Config() balancer.Config    // goes into the header
	Members() []balancer.Member // likewise
	Epoch() time.Time           // the instant from which records count
	Selectable() int            // whether 0 is a trigger
}

// ErrUnattached is the error of a [Recorder] that has never been attached to a
// Pool, and has nothing to write.
var ErrUnattached = errors.New("incident: the recorder was never attached")

// Recorder keeps the latest of one Pool's life. While it is attached, an attempt
// costs a few dozen nanoseconds more and no allocation; while it is not, nothing.
// What it has verifies if no two requests had one number at a time, each from its
// first Next to its end: see balancer.Request.ID.
// The zero Recorder is not usable: see NewRecorder. Safe for concurrent use.
type Recorder struct {
	cfg  Config
	tape *balancer.Tape

	mu         sync.Mutex // guards below
	pool       Pool
	closed     bool
	next       map[trigger]time.Time // before which it does not count
	suppressed uint64
}

// trigger is what has gaps of its own. The zero trigger is that nothing is
// selectable; one without an upstream stands for all of them.
type trigger struct {
	kind     balancer.EventKind
	upstream string
}

// maxGaps is how many gaps are kept apart.
const maxGaps = 1024

// NewRecorder returns a Recorder that is attached to nothing. It panics if cfg
// does not pass Validate.
func NewRecorder(cfg Config) *Recorder {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return &Recorder{cfg: cfg, tape: balancer.NewTape(cfg.size()), next: map[trigger]time.Time{}}
}

// Attach begins to record the Pool, from its present state on, calls in flight
// included. A Pool has one recorder at most: the one before is detached. A
// Recorder has one Pool in its life, and may be attached to it again. To have
// triggers, let the Pool's Config.OnEvent call [Recorder.OnEvent].
func (r *Recorder) Attach(p Pool) {
	r.mu.Lock()
	r.pool, r.closed = p, false
	r.mu.Unlock()
	p.Attach(r.tape)
}

// Close ends the recording. What was recorded can still be dumped.
func (r *Recorder) Close() {
	r.mu.Lock()
	p, was := r.pool, r.closed
	r.closed = true
	r.mu.Unlock()
	if p != nil && !was {
		p.Detach(r.tape)
	}
}

// Incident is a dump: what a Recorder had at one time, and why it was taken. The
// zero Incident is empty and cannot be written.
type Incident struct {
	Reason    string             // "demand", or what triggered it, such as "ejected b"
	Recording balancer.Recording // the records
	Config    balancer.Config    // the Pool's
	Options   Options            // the Recorder's
}

// Reader reads the dump as a file, for Verify and Timeline.
func (i Incident) Reader() *Reader { return FromRecording(i.Recording, i.Config, i.Options) }

// Write writes the dump as a file. It may be used on any goroutine.
func (i Incident) Write(w io.Writer) error { return Copy(w, i.Reader()) }

// Dump returns what the recorder has. The Pool is held up for an instant only.
func (r *Recorder) Dump() Incident { return r.dump("demand") }

func (r *Recorder) dump(reason string) Incident {
	r.mu.Lock()
	p := r.pool
	r.mu.Unlock()
	if p == nil {
		return Incident{Reason: reason}
	}
	opt := r.cfg.Options
	if opt.Note == "" {
		opt.Note = reason
	}
	return Incident{Reason: reason, Recording: r.tape.Dump(), Config: p.Config(), Options: opt}
}

// WriteFile writes what the recorder has to a file of that name, which is
// created or replaced, whole or not at all. Its owner alone may read it. The error
// is ErrUnattached or that of the file system.
func (r *Recorder) WriteFile(name string) error {
	d := r.Dump()
	if len(d.Recording.Start) == 0 {
		return ErrUnattached
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	if err = errors.Join(d.Write(f), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Suppressed is how many triggers came within the Gap of another one.
func (r *Recorder) Suppressed() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.suppressed
}

// OnEvent is for balancer.Config.OnEvent, by itself or called from there. Events
// that the Pool decided before it was attached are no triggers. Whether anything
// is selectable is asked when the event is delivered, which may be later than it
// happened: what was over by then goes unnoticed.
func (r *Recorder) OnEvent(e balancer.Event) {
	p := r.armed()
	if p == nil || e.Seq != 0 && e.Seq <= r.tape.Since() {
		return
	}
	if slices.Contains(r.cfg.triggers(), e.Kind) && r.due(trigger{e.Kind, e.Upstream}, e.At) {
		r.cfg.OnTrigger(r.dump(e.Kind.String() + " " + e.Upstream))
	}
	switch e.Kind {
	case balancer.UpstreamEjected, balancer.BreakerOpened, balancer.UpstreamUnhealthy, balancer.UpstreamLeft:
		if p.Selectable() == 0 && r.due(trigger{}, e.At) {
			r.cfg.OnTrigger(r.dump("nothing selectable"))
		}
	}
}

// OnError triggers a dump if err, from Do, Acquire or a Transport, says that
// nothing could be picked: also where no event tells, because all upstreams are
// at their limits.
func (r *Recorder) OnError(err error) {
	if !errors.Is(err, balancer.ErrNoneAvailable) && !errors.Is(err, balancer.ErrNoUpstreams) {
		return
	}
	if p := r.armed(); p != nil && r.due(trigger{}, p.Config().Clock.Now()) {
		r.cfg.OnTrigger(r.dump("nothing selectable"))
	}
}

// armed is the Pool if there is anything to trigger, else nil.
func (r *Recorder) armed() Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.OnTrigger == nil || r.closed {
		return nil
	}
	return r.pool
}

// due tells whether a trigger counts, and begins its gap.
func (r *Recorder) due(t trigger, at time.Time) bool {
	gap := r.cfg.gap()
	if gap < 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.next) >= maxGaps {
		maps.DeleteFunc(r.next, func(_ trigger, end time.Time) bool { return !at.Before(end) })
	}
	if _, known := r.next[t]; !known && len(r.next) >= maxGaps {
		t.upstream = ""
	}
	if at.Before(r.next[t]) {
		r.suppressed++
		return false
	}
	r.next[t] = at.Add(gap)
	return true
}
