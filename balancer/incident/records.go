package incident

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// Options say how a recording is written. The zero value is complete.
type Options struct {
	// Note goes into the header.
	Note string

	// KeySecret, if not empty, replaces the affinity keys, which the Pool has as
	// hashes that anyone can compute, by hashes under this secret (HMAC-SHA-256,
	// its first 64 bits). Equal keys stay equal. A recording of a policy that looks
	// at keys does not replay then.
	KeySecret []byte
}

// FromRecording reads a recording as the file that Copy would write. cfg is the
// Config of the recorded Pool, as Pool.Config returns it. Times count from the
// recording's start.
func FromRecording(rec balancer.Recording, cfg balancer.Config, opt Options) *Reader {
	r := &Reader{head: headerOf(rec, cfg, opt), line: 1, headAt: 1}
	t := newTranslator(rec.Members)
	t.secret = opt.KeySecret
	var queue []Line
	i, at := 0, 0
	r.next = func(l *Line) error {
		for at == len(queue) {
			if i == len(rec.Records) {
				r.line++
				return io.EOF
			}
			shifted := rec.Records[i].Shift(-rec.At)
			queue, at = t.lines(&shifted, queue[:0]), 0
			if i++; t.err != nil {
				return t.err
			}
		}
		*l = queue[at]
		at++
		r.line++
		return nil
	}
	return r
}

func headerOf(rec balancer.Recording, cfg balancer.Config, opt Options) Header {
	h := Header{
		Library: Library, Seed: cfg.Seed, Start: rec.Epoch.Add(time.Duration(rec.At)).UTC().Round(0), Note: opt.Note,
		HashedKeys: len(opt.KeySecret) > 0, Settings: data(cfg), Members: rec.Members, State: rec.Start,
	}
	if h.Seed == 0 && len(rec.Start) >= 9 {
		h.Seed = binary.LittleEndian.Uint64(rec.Start[1:])
	}
	return h
}

// data is what of a Config can stand in a file, as a file gives it back.
func data(cfg balancer.Config) balancer.Config {
	cfg.Clock, cfg.Classify, cfg.OnEvent, cfg.Seed = nil, nil, nil, 0
	return cfg
}

// translator turns records into lines. It knows the members, by which positions
// become names, and the requests that have begun since the file did.
type translator struct {
	members []balancer.Member
	begun   roster
	secret  []byte
	err     error
}

func newTranslator(members []balancer.Member) *translator {
	return &translator{members: members, begun: newRoster()}
}

// name is the id of a position; "" of one that has left.
func (t *translator) name(pos int32) string {
	switch {
	case pos == -1:
		return ""
	case pos < 0 || int(pos) >= len(t.members):
		t.err = fmt.Errorf("incident: a record names position %d of %d", pos, len(t.members))
		return ""
	}
	return t.members[pos].Name
}

// lines appends the lines of a record: an input and what came of it, or an
// event.
func (t *translator) lines(r *balancer.Record, out []Line) []Line {
	l := Line{At: time.Duration(r.At), Request: r.Request}
	switch r.Kind {
	case balancer.RecordEvent:
		return append(out, Line{
			Kind: EvState, Event: r.Event, At: l.At, Seq: r.Seq, Upstream: r.Upstream,
			Until: time.Duration(r.Until), Why: r.Note, Count: r.Count,
		})
	case balancer.RecordUpdate:
		t.members = r.Members
		l.Kind, l.Members = InUpdate, r.Members
	case balancer.RecordHealth:
		l.Kind, l.Upstream, l.Healthy, l.Why = InHealth, r.Upstream, r.Healthy, r.Note
	case balancer.RecordPoll:
		l.Kind = InTime
	case balancer.RecordAcquire:
		l.Kind = InAcquire
		t.key(&l, r)
		return t.decided(append(out, l), r)
	case balancer.RecordNext:
		if r.Phase == 0 {
			l.Kind = InRequest
			t.key(&l, r)
			t.deadline(&l, r)
			t.begun.add(r.Request)
		} else {
			l.Kind = InNext
			t.from(&l, r)
		}
		if r.Step == balancer.StepEnd {
			t.begun.drop(r.Request)
		}
		return t.decided(append(out, l), r)
	case balancer.RecordDone:
		l.Kind = InDone
		t.report(&l, r)
		t.from(&l, r)
		if r.Over {
			t.begun.drop(r.Request)
		}
	case balancer.RecordStop:
		l.Kind = InStop
		t.from(&l, r)
		t.begun.drop(r.Request)
	case balancer.RecordAnswered:
		l.Kind, l.Try = InAnswered, int(r.Attempt)
	case balancer.RecordSettle:
		l.Kind, l.Try = InSettle, int(r.Attempt)
		t.report(&l, r)
	default:
		t.err = fmt.Errorf("incident: a record of kind %d", r.Kind)
		return out
	}
	return append(out, l)
}

func (t *translator) report(l *Line, r *balancer.Record) {
	l.Outcome, l.Latency, l.Retry = outcomeOf(r.Outcome), r.Latency, verdictOf(r.Verdict)
}

func (t *translator) key(l *Line, r *balancer.Record) {
	l.Hash, l.HasHash = r.Key.Hash()
	if !l.HasHash {
		l.Hash = 0
	}
	if l.HasHash && len(t.secret) > 0 {
		mac := hmac.New(sha256.New, t.secret)
		mac.Write(binary.BigEndian.AppendUint64(nil, l.Hash))
		l.Hash = binary.BigEndian.Uint64(mac.Sum(nil))
	}
}

func (t *translator) deadline(l *Line, r *balancer.Record) {
	if l.HasDeadline = r.Deadline != math.MaxInt64; l.HasDeadline {
		l.Deadline = time.Duration(r.Deadline)
	}
}

// from says how far a request has come that began before the file, or was
// forgotten since.
func (t *translator) from(l *Line, r *balancer.Record) {
	if t.begun.has(r.Request) {
		return
	}
	if int(r.Phase) >= len(phases) {
		t.err = fmt.Errorf("incident: request %d is in phase %d", r.Request, r.Phase)
		return
	}
	p := &Progress{Phase: phases[r.Phase], Settled: r.Settled, Retries: int(r.Retries), Same: int(r.Same), Latest: t.name(r.Latest)}
	if r.Phase == 3 {
		p.Until = time.Duration(r.Until)
	}
	for _, pos := range slices.Concat(r.Tried[:min(int(r.NTried), len(r.Tried))], r.More) {
		p.Tried = append(p.Tried, t.name(pos))
	}
	l.From = p
	t.key(l, r)
	t.deadline(l, r)
	// What follows can be told from this.
	t.begun.add(r.Request)
}

// decided appends what came of an acquire, a request or a next.
func (t *translator) decided(out []Line, r *balancer.Record) []Line {
	l := Line{At: time.Duration(r.At), Request: r.Request}
	switch {
	case r.Picked >= 0:
		l.Kind, l.Try, l.Upstream, l.Fallback = EvPick, int(r.Attempt), t.name(r.Picked), r.Fallback
		if l.Try > 0 {
			l.Kind = EvRetry
		}
	case r.Step == balancer.StepWait:
		l.Kind, l.Wait = EvWait, time.Duration(r.Wait)
	case r.Step == balancer.StepEnd:
		l.Kind, l.End = EvEnd, r.End
	default:
		l.Kind = EvNone
	}
	return append(out, l)
}
