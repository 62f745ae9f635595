package incident

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/clock"
)

// ErrGap is the error of a [Log] that was flushed too rarely: records were
// overwritten before they could be written.
var ErrGap = errors.New("incident: records were lost between two flushes")

// Log writes everything that happens to one Pool to a file as it happens: a
// recording of any length, in memory that does not grow. A [Recorder] keeps the
// latest instead, and is what a service has on. The zero Log is not usable: see
// NewLog. Safe for concurrent use.
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
	closed  bool
}

// NewLog begins to record the Pool, from its present state on, calls in flight
// included, and writes the header. size is how many records there may be
// between two flushes, two or three for each attempt; if zero, 32768. What
// recorded the Pool before no longer does. The error is that of w, or says that
// the configuration cannot stand in a file.
func NewLog(w io.Writer, p Pool, size int, opt Options) (*Log, error) {
	if size < 0 {
		return nil, fmt.Errorf("incident: a log for %d records, want >= 0: %w", size, balancer.ErrConfig)
	}
	l := &Log{pool: p, tape: balancer.NewTape(Config{Size: size}.size())}
	cfg := p.Config()
	p.Attach(l.tape)
	rec := l.tape.Start()
	head := FromRecording(rec, cfg, opt).head
	if isNew(rec, cfg) {
		head.State = nil
	}
	l.from = rec.At
	l.trans = newTranslator(rec.Members, cfg.Retry.OnFailure)
	l.trans.secret = opt.KeySecret
	if l.w, l.err = NewWriter(w, head); l.err != nil {
		p.Detach(l.tape)
		return nil, l.err
	}
	return l, nil
}

// isNew tells whether the state at the start of a recording is that of a new
// Pool, which need not be written down.
func isNew(rec balancer.Recording, cfg balancer.Config) bool {
	if rec.At != 0 {
		return false
	}
	cfg.Clock, cfg.OnEvent = clock.NewManual(epoch), nil
	p, err := balancer.NewPool(cfg, rec.Members...)
	return err == nil && bytes.Equal(p.Save(), rec.Start)
}

// Flush writes what has happened since the latest one. The first error sticks:
// that of the io.Writer, or ErrGap. Call it often enough for the size that the
// log was made with.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flush()
}

func (l *Log) flush() error {
	if l.err != nil || l.closed {
		return l.err
	}
	l.records = l.tape.Drain(l.records[:0])
	if l.tape.Lost() {
		l.err = ErrGap
		return l.err
	}
	for i := range l.records {
		shifted := l.records[i].Shift(-l.from)
		l.lines = l.trans.lines(&shifted, l.lines[:0])
		for j := range l.lines {
			if err := l.w.write(&l.lines[j]); err != nil {
				l.err = err
				return err
			}
		}
	}
	l.err = l.trans.err
	return l.err
}

// Close ends the recording, writes what is left and ends the file. It does not
// close the io.Writer. Later calls do nothing and return the same error.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.err
	}
	l.pool.Detach(l.tape)
	if l.flush() == nil {
		l.err = l.w.Close()
	}
	l.closed = true
	return l.err
}
