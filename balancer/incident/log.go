package incident

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
	"github.com/evenkeel-go/evenkeel/clock"
)

// ErrGap is the error of a [Log] that was flushed too rarely: records were
// overwritten before they could be written.
var ErrGap = errors.New("incident: records were lost between two flushes")

// ErrDetached is the error of a [Log] whose Pool was given to another recorder, or
// to none: what has happened since is not in the file.
var ErrDetached = errors.New("incident: another recording has taken the Pool")

// Log writes everything that happens to one Pool to a file as it happens: a
// recording of any length, in memory that does not grow. A [Recorder] keeps the
// latest instead, and is what a service has on.
//
// Somebody must call Flush: the requests only leave records, in memory, which a
// slow disk does not slow down. A disk that is slower than the requests come, or a
// Flush that comes too late, makes a gap, and the log ends with ErrGap.
//
// A number that the caller gave to a request is in use from the request's first
// Next to its end: another request under it meanwhile makes a file that does not
// verify. See balancer.Request.ID.
//
// The zero Log is not usable: see NewLog. Safe for concurrent use.
type Log struct {
	tape *balancer.Tape
	pool Pool
	from int64 // when the file begins, on the Pool's timeline

	mu      sync.Mutex // guards below
	w       *Writer
	trans   *translator
	records []balancer.Record
	lines   []Line
	err     error
}

// NewLog begins to record the Pool, from its present state on, calls in flight
// included, and writes the header. size is how many records there may be
// between two flushes, two or three for each attempt; if zero, 32768, and at most
// 2^24. What recorded the Pool before no longer does. The error is that of w, or
// says that the configuration cannot stand in a file, in which case the recording
// that there was goes on.
func NewLog(w io.Writer, p Pool, size int, opt Options) (*Log, error) {
	if size < 0 || size > maxSize {
		return nil, fmt.Errorf("incident: a log for %d records, want 0 to %d: %w", size, maxSize, balancer.ErrConfig)
	}
	cfg := p.Config()
	head := headerOf(balancer.Recording{Epoch: p.Epoch(), Members: p.Members()}, cfg, opt)
	if err := head.check(head.appendTo(nil)); err != nil {
		return nil, err
	}
	l := &Log{pool: p, tape: balancer.NewTape(Config{Size: size}.size())}
	p.Attach(l.tape)
	rec := l.tape.Start()
	head = headerOf(rec, cfg, opt)
	if isNew(rec, cfg) {
		head.State = nil
	}
	l.from = rec.At
	l.trans = newTranslator(rec.Members)
	l.trans.secret = opt.KeySecret
	var err error
	if l.w, err = NewWriter(w, head); err == nil {
		err = l.w.flush()
	}
	if err != nil {
		p.Detach(l.tape)
		return nil, err
	}
	return l, nil
}

// isNew tells whether the state at the start of a recording is that of a new
// Pool, which need not be written down.
func isNew(rec balancer.Recording, cfg balancer.Config) bool {
	// A policy of the caller's own is not called for this: it may keep count.
	if rec.At != 0 || !jsonline.BuiltIn(cfg.Policy) {
		return false
	}
	cfg.Clock, cfg.OnEvent = clock.NewManual(epoch), nil
	p, err := balancer.NewPool(cfg, rec.Members...)
	return err == nil && bytes.Equal(p.Save(), rec.Start)
}

// Flush writes what has happened since the latest one, and hands all of it to the
// io.Writer. The first error sticks and ends the recording: that of the io.Writer,
// ErrGap or ErrDetached; what had come before it is whole and has been handed on.
// Call it often enough for the size that the log was made with. The Pool is not
// held up meanwhile, however slow the io.Writer is.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flush()
}

func (l *Log) flush() error {
	if l.err != nil {
		return l.err
	}
	// Asked first, so that what is drained then is all that there is.
	replaced := l.tape.Replaced()
	l.records = l.tape.Drain(l.records[:0])
	err := ErrGap
	if !l.tape.Lost() {
		err = l.write()
	}
	if broken := l.w.flush(); err == nil {
		err = broken
	}
	if err == nil && replaced {
		err = ErrDetached
	}
	if l.err = err; err != nil {
		l.pool.Detach(l.tape)
	}
	return err
}

// write translates and writes the records at hand.
func (l *Log) write() error {
	for i := range l.records {
		shifted := l.records[i].Shift(-l.from)
		if l.lines = l.trans.lines(&shifted, l.lines[:0]); l.trans.err != nil {
			return l.trans.err
		}
		for j := range l.lines {
			if err := l.w.write(&l.lines[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close ends the recording, writes what is left and ends the file, unless there
// was an error: a file without an end is known to be cut off. It does not close
// the io.Writer. Later calls do nothing and return the same error.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pool.Detach(l.tape)
	if l.flush() == nil {
		l.err = l.w.Close()
	}
	return l.err
}
