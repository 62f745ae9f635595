package incident

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
	"github.com/evenkeel-go/evenkeel/clock"
)

// ErrInput is what an error matches about an input that cannot be fed: it has
// nothing to act on, such as the outcome of an attempt that is not out, or begins
// a request under a number that is in use.
var ErrInput = errors.New("incident: not an input for this state")

// player feeds lines to a Pool on a clock that is moved by hand.
type player struct {
	clk     *clock.Manual
	pool    *balancer.Pool[balancer.Member]
	tape    *balancer.Tape
	members []balancer.Member
	leases  map[leaseID]balancer.Lease[balancer.Member]
	picked  balancer.Lease[balancer.Member] // by the input at hand, if it has picked
	before  map[uint64]int                  // the attempts that were out at the start, by request
	tries   map[uint64]*balancer.Try[balancer.Member]
	idle    []*balancer.Try[balancer.Member]
	records []balancer.Record
	trans   *translator
}

// leaseID names an attempt that is out.
type leaseID struct {
	request uint64
	try     int
}

// tapeSize is enough for what one input brings; the tape is drained after each.
const tapeSize = 64

// epoch is when a replay begins on its own clock: decisions do not depend on it,
// and from here on every time of a file can be reached.
var epoch = time.Unix(0, 0).UTC()

func newPlayer(h *Header, cfg balancer.Config) (*player, error) {
	p := &player{
		clk: clock.NewManual(epoch), tape: balancer.NewTape(tapeSize), members: h.Members,
		leases: map[leaseID]balancer.Lease[balancer.Member]{},
		before: map[uint64]int{},
		tries:  map[uint64]*balancer.Try[balancer.Member]{},
		trans:  newTranslator(h.Members),
	}
	p.trans.begun.forgotten = func(request uint64) { delete(p.tries, request) }
	_, missing := jsonline.Resolve(cfg.Policy)
	switch {
	case cfg.Seed != 0 && cfg.Seed != h.Seed:
		return nil, fmt.Errorf("the Config has seed %d, the file %d", cfg.Seed, h.Seed)
	case missing != nil:
		return nil, fmt.Errorf("%w and was not given: see Header.Config", missing)
	case h.HashedKeys && jsonline.Keyed(cfg.Policy):
		return nil, errors.New("the keys were hashed under a secret, and the policy looks at keys")
	}
	cfg.Clock, cfg.OnEvent, cfg.Seed = p.clk, nil, h.Seed
	var err error
	if len(h.State) > 0 {
		p.pool, err = balancer.RestorePool(cfg, h.State, h.Members...)
	} else {
		p.pool, err = balancer.NewPool(cfg, h.Members...)
	}
	if err != nil {
		return nil, fmt.Errorf("the Pool at the start: %w", err)
	}
	for _, l := range p.pool.Leases() {
		p.leases[leaseID{l.Request(), l.Attempt()}] = l
		p.before[l.Request()] = l.Attempt()
	}
	p.pool.Attach(p.tape)
	return p, nil
}

// snapshot is the Pool's, with the times of the file.
func (p *player) snapshot(h *Header) balancer.Snapshot {
	s := p.pool.Snapshot()
	s.At = h.Start.Add(s.At.Sub(epoch))
	for i := range s.Upstreams {
		if u := &s.Upstreams[i]; !u.Returns.IsZero() {
			u.Returns = h.Start.Add(u.Returns.Sub(epoch))
		}
	}
	return s
}

// feed gives one input to the Pool and appends what its tape says of it. One that
// cannot be fed leaves everything as it is: the Pool, its time, and what is known
// of the requests.
func (p *player) feed(l *Line, out []Line) ([]Line, error) {
	p.clk.Set(epoch.Add(l.At))
	t, err := p.input(l)
	if err != nil {
		return out, err
	}
	p.records = p.tape.Drain(p.records[:0])
	fed := false
	for i := range p.records {
		r := &p.records[i]
		out = p.trans.lines(r, out)
		if r.Kind != balancer.RecordEvent {
			fed = true
			p.follow(l, t, r)
		}
	}
	switch {
	case p.trans.err != nil:
		return out, p.trans.err
	case fed:
		return out, nil
	}
	try := l.Try
	if t != nil {
		try = max(try, t.Retries())
	}
	if l.Kind == InNext {
		return out, fmt.Errorf("%w: request %d has an attempt out, which is to end first", ErrInput, l.Request)
	}
	return out, fmt.Errorf("%w: request %d has no attempt %d out", ErrInput, l.Request, try)
}

// follow notes what an input has done, by the record of it. t is the request that
// it is about, if that may be retried.
func (p *player) follow(l *Line, t *balancer.Try[balancer.Member], r *balancer.Record) {
	switch r.Kind {
	case balancer.RecordUpdate:
		p.members = l.Members
	case balancer.RecordAcquire, balancer.RecordNext:
		if r.Picked >= 0 {
			p.leases[leaseID{l.Request, p.picked.Attempt()}] = p.picked
		}
	case balancer.RecordDone, balancer.RecordStop:
		delete(p.leases, leaseID{l.Request, t.Retries()})
	case balancer.RecordSettle:
		delete(p.leases, leaseID{l.Request, l.Try})
	}
	switch {
	case t == nil:
	case r.Over || r.Step == balancer.StepEnd || r.Kind == balancer.RecordStop:
		delete(p.tries, l.Request)
		p.idle = append(p.idle, t)
	case l.Kind == InRequest || l.From != nil:
		p.tries[l.Request] = t
	}
}

// busy tells whether a request of that number has an attempt out. Two of them at
// a time could not be told apart.
func (p *player) busy(request uint64) bool {
	latest := 0
	if t := p.tries[request]; t != nil {
		latest = t.Retries()
	}
	for _, try := range [...]int{0, latest, p.before[request]} {
		if _, out := p.leases[leaseID{request, try}]; out {
			return true
		}
	}
	return false
}

// input calls the Pool, and returns the request that the input is about, if that
// may be retried.
func (p *player) input(l *Line) (t *balancer.Try[balancer.Member], err error) {
	switch l.Kind {
	case InAcquire, InRequest:
		if p.busy(l.Request) {
			return nil, fmt.Errorf("%w: request %d has an attempt out, and its number is in use", ErrInput, l.Request)
		}
	case InNext, InDone, InStop:
		if t, err = p.try(l); err != nil {
			return nil, err
		}
	}
	switch l.Kind {
	case InUpdate:
		err = p.pool.Update(l.Members...)
	case InHealth:
		// An id that is not a member brings time and nothing else.
		_ = p.pool.SetHealth(l.Upstream, l.Healthy, l.Why)
	case InTime:
		p.pool.Poll()
	case InAcquire:
		p.picked, _ = p.pool.Acquire(p.request(l)) // its record has the error
	case InRequest:
		t = p.fresh()
		*t = p.pool.Start(p.request(l))
		p.picked = t.Next().Lease
	case InNext:
		p.picked = t.Next().Lease
	case InDone:
		t.Done(balancer.Report{Outcome: l.Outcome, Latency: l.Latency, Retry: l.Retry})
	case InStop:
		t.Stop()
	case InAnswered:
		p.leases[leaseID{l.Request, l.Try}].Answered()
	case InSettle:
		p.leases[leaseID{l.Request, l.Try}].Settle(balancer.Report{Outcome: l.Outcome, Latency: l.Latency})
	}
	return t, err
}

// fresh returns a Try to fill, one that is no longer needed if there is any.
func (p *player) fresh() *balancer.Try[balancer.Member] {
	if n := len(p.idle); n > 0 {
		t := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return t
	}
	return new(balancer.Try[balancer.Member])
}

func (p *player) request(l *Line) balancer.Request {
	req := balancer.Request{ID: l.Request, Key: keyOf(l)}
	if l.HasDeadline {
		req.Deadline = epoch.Add(l.Deadline)
	}
	return req
}

func keyOf(l *Line) balancer.Key {
	switch {
	case l.HasKey:
		return balancer.StringKey(l.Key)
	case l.HasHash:
		return balancer.HashKey(l.Hash)
	}
	return balancer.Key{}
}

// try is the request that a line goes on with.
func (p *player) try(l *Line) (*balancer.Try[balancer.Member], error) {
	from := l.From
	if from == nil {
		if t := p.tries[l.Request]; t != nil {
			return t, nil
		}
		return nil, fmt.Errorf("%w: request %d is not under way", ErrInput, l.Request)
	}
	r := balancer.Record{
		Request: l.Request, Key: keyOf(l), Deadline: math.MaxInt64,
		Retries: int32(from.Retries), Same: int32(from.Same), Until: int64(from.Until),
		NTried: int32(len(from.Tried)), Settled: from.Settled,
	}
	if l.HasDeadline {
		r.Deadline = int64(l.Deadline)
	}
	for i, name := range phases {
		if name == from.Phase {
			r.Phase = uint8(i)
		}
	}
	var err error
	if r.Latest, err = p.position(from.Latest); err != nil {
		return nil, err
	}
	for i, name := range from.Tried {
		pos, err := p.position(name)
		if err != nil {
			return nil, err
		}
		if i < len(r.Tried) {
			r.Tried[i] = pos
		} else {
			r.More = append(r.More, pos)
		}
	}
	t := p.fresh()
	if *t, err = p.pool.Resume(r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return t, nil
}

// position is the place of a member, -1 of the empty name.
func (p *player) position(name string) (int32, error) {
	if name == "" {
		return -1, nil
	}
	for i, m := range p.members {
		if m.Name == name {
			return int32(i), nil
		}
	}
	return 0, fmt.Errorf("%w: no upstream %q", ErrInput, name)
}

// at adds the place to an error about an input.
func at(line int, l *Line, err error) error {
	return fmt.Errorf("incident: line %d: %v: %w", line, *l, err)
}

// Replay feeds the inputs of a file to a new Pool and writes them with the
// events that come of them; events that the file has are not looked at. cfg is
// the configuration, such as Header.Config gives; its clock and its hook are not
// used. Memory does not grow with the file.
func Replay(out io.Writer, r *Reader, cfg balancer.Config) error {
	p, err := r.player(cfg)
	if err != nil {
		return err
	}
	h := r.head
	h.Settings, h.Library = data(cfg), Library
	w, err := NewWriter(out, h)
	if err != nil {
		return err
	}
	var l Line
	var got []Line
	for {
		err := r.read(&l)
		if err == io.EOF {
			return w.Close()
		}
		if err != nil {
			return err
		}
		if !l.Kind.In() {
			continue
		}
		if got, err = p.feed(&l, got[:0]); err != nil {
			return at(r.line, &l, err)
		}
		for i := range got {
			if got[i].Kind.In() {
				// As it was given: a key may be spelt out.
				got[i] = l
			}
			if err := w.write(&got[i]); err != nil {
				return err
			}
		}
	}
}
