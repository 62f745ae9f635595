package lincheck_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/evenkeel-go/evenkeel/breaker"
)

const (
	tripAfter    = 2
	openFor      = 9
	trialTimeout = 7
	trials       = 2
	passes       = 3

	breakerUnit = 2
	hands       = 3 // permits that a goroutine holds at most
)

var breakerConfig = breaker.Config{
	ConsecutiveFailures: tripAfter, OpenFor: openFor, Trials: trials, Passes: passes, TrialTimeout: trialTimeout,
}

type breakerIn struct {
	op   string
	now  int64
	slot int // where the permit is kept: a goroutine has some of its own
}

func (in breakerIn) String() string {
	switch in.op {
	case "Allow", "Done ok", "Done failed", "Cancel":
		return fmt.Sprintf("%s p%d at %d", in.op, in.slot, in.now)
	}
	return fmt.Sprintf("%s at %d", in.op, in.now)
}

// breakerOut is the answer of any method.
type breakerOut struct {
	ok     bool           // admitted, counted, ready
	state  breaker.State  // also of a refusal
	reason breaker.Reason // of a refusal
	until  int64          // of a refusal
	run    int            // Counts.Consecutive
	passes int            // Counts.Passes
	trials int            // Counts.Trials
}

func (out breakerOut) String() string {
	if out.reason != breaker.Admitted {
		return fmt.Sprintf("%v until %d", out.reason, out.until)
	}
	return fmt.Sprintf("%v %v run %d passes %d trials %d", out.ok, out.state, out.run, out.passes, out.trials)
}

// permit is what the model knows of a call that is out. One that was admitted in
// an earlier period, and a trial that is lost, is as good as none.
type permit struct {
	live bool
	due  int64 // of a trial: when it is lost
}

type breakerState struct {
	latest  int64
	state   breaker.State
	run     int
	until   int64
	passes  int
	permits [clients * hands]permit
}

// enter begins a period: all counters start again, and the results of the calls
// that are out count no more.
func (s breakerState) enter(state breaker.State) breakerState {
	return breakerState{latest: s.latest, state: state}
}

func (s breakerState) open() breakerState {
	s = s.enter(breaker.Open)
	s.until = s.latest + openFor
	return s
}

// advance is what time alone does: an open period ends, trials are lost.
func (s breakerState) advance(now int64) breakerState {
	s.latest = max(s.latest, now)
	if s.state == breaker.Open && s.latest >= s.until {
		s = s.enter(breaker.HalfOpen)
	}
	if s.state == breaker.HalfOpen {
		for i, p := range s.permits {
			if p.live && p.due <= s.latest {
				s.permits[i] = permit{}
			}
		}
	}
	return s
}

// trials returns how many are out, and when the first of them is lost.
func (s breakerState) trials() (n int, due int64) {
	due = math.MaxInt64
	if s.state == breaker.HalfOpen {
		for _, p := range s.permits {
			if p.live {
				n, due = n+1, min(due, p.due)
			}
		}
	}
	return n, due
}

// breakerModel is the breaker of the documentation, with the consecutive rule.
// All of it happens after what time has brought; a read answers for that too,
// and leaves no trace.
func breakerModel(s breakerState, in breakerIn, out breakerOut) (breakerState, bool) {
	next := s.advance(in.now)
	n, due := next.trials()
	var want breakerOut
	switch in.op {
	case "Allow":
		switch {
		case next.state == breaker.Open:
			want = breakerOut{state: breaker.Open, reason: breaker.Opened, until: next.until}
		case next.state == breaker.HalfOpen && n == trials:
			want = breakerOut{state: breaker.HalfOpen, reason: breaker.TrialsFull, until: due}
		default:
			want.ok = true
			next.permits[in.slot] = permit{live: true}
			if next.state == breaker.HalfOpen {
				next.permits[in.slot].due = next.latest + trialTimeout
			}
		}
	case "Done ok", "Done failed":
		want.ok = next.permits[in.slot].live
		next.permits[in.slot] = permit{}
		if !want.ok {
			break
		}
		switch ok := in.op == "Done ok"; {
		case next.state == breaker.Closed && ok:
			next.run = 0
		case next.state == breaker.Closed:
			if next.run++; next.run == tripAfter {
				next = next.open()
			}
		case ok:
			if next.passes++; next.passes == passes {
				next = next.enter(breaker.Closed)
			}
		default:
			next = next.open()
		}
	case "Cancel":
		next.permits[in.slot] = permit{}
	case "Poll":
	case "State":
		want.state = next.state
		next = s
	case "Ready":
		want.ok = next.state == breaker.Closed || next.state == breaker.HalfOpen && n < trials
		next = s
	case "Counts":
		want.run, want.passes, want.trials = next.run, next.passes, n
		next = s
	}
	return next, out == want
}

// breakers is what the histories are taken of.
type breakers interface {
	do(in breakerIn) breakerOut
}

type realBreaker struct {
	*breaker.Breaker
	permits [clients * hands]breaker.Permit
}

func newBreaker() *realBreaker {
	b := &realBreaker{Breaker: breaker.New(breakerConfig)}
	b.Poll(base) // begins the time line
	return b
}

func (b *realBreaker) do(in breakerIn) (out breakerOut) {
	now := at(in.now)
	switch in.op {
	case "Allow":
		var err error
		b.permits[in.slot], err = b.Allow(now)
		var refused *breaker.RejectedError
		if out.ok = !errors.As(err, &refused); !out.ok {
			out.state, out.reason, out.until = refused.State, refused.Reason, int64(refused.Until.Sub(base))
		}
	case "Done ok", "Done failed":
		out.ok = b.permits[in.slot].Done(now, in.op == "Done ok")
	case "Cancel":
		b.permits[in.slot].Cancel(now)
	case "Poll":
		b.Poll(now)
	case "State":
		out.state = b.State(now)
	case "Ready":
		out.ok = b.Ready(now)
	case "Counts":
		n := b.Counts(now)
		out.run, out.passes, out.trials = n.Consecutive, n.Passes, n.Trials
	}
	return out
}

// hastyBreaker asks whether a call is admitted, and takes the slot later.
type hastyBreaker struct{ *realBreaker }

func (b hastyBreaker) do(in breakerIn) (out breakerOut) {
	if in.op != "Allow" || !b.Ready(at(in.now)) {
		return b.realBreaker.do(in)
	}
	runtime.Gosched()
	b.permits[in.slot], _ = b.Allow(at(in.now))
	return breakerOut{ok: true}
}

// lateBreaker counts the failures beside the core, and trips it in a second
// step.
type lateBreaker struct {
	mu      sync.Mutex
	core    breaker.Core
	run     int
	tickets [clients * hands]breaker.Ticket
}

func (b *lateBreaker) do(in breakerIn) (out breakerOut) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch in.op {
	case "Allow":
		b.tickets[in.slot], out.reason = b.core.Allow(in.now)
		if out.ok = out.reason == breaker.Admitted; !out.ok {
			out.state, out.until = b.core.State(in.now), b.core.Until()
		}
	case "Done ok", "Done failed":
		closed := b.core.State(in.now) == breaker.Closed
		out.ok = b.core.Done(in.now, b.tickets[in.slot], in.op == "Done ok")
		switch {
		case !closed || !out.ok:
			return out
		case in.op == "Done ok":
			b.run = 0
			return out
		}
		b.run++
		trip := b.run == tripAfter
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
		if trip {
			b.run = 0
			b.core.Trip(in.now, openFor)
		}
	}
	return out
}

// breakerHistory lets each client hold some permits at a time: a slot is asked
// for where it is free, and settled where it is not.
func breakerHistory(how schedule, b breakers, free, held []string) []porcupine.Operation {
	var busy [clients * hands]bool // each entry belongs to one client
	return how.run(func(c *client) {
		in := breakerIn{slot: c.id*hands + c.IntN(hands), now: c.now(breakerUnit)}
		if busy[in.slot] {
			in.op = held[c.IntN(len(held))]
		} else {
			in.op = free[c.IntN(len(free))]
		}
		out := c.call(in, func() any { return b.do(in) }).(breakerOut)
		switch in.op {
		case "Allow":
			busy[in.slot] = out.ok
		case "Done ok", "Done failed", "Cancel":
			busy[in.slot] = false
		}
	})
}

func TestBreaker(t *testing.T) {
	m := model(breakerState{}, breakerModel)
	t.Run("linearizable", func(t *testing.T) {
		right(t, 4, m, func(how schedule) []porcupine.Operation {
			return breakerHistory(how, newBreaker(), []string{"Allow", "Allow", "Allow", "Allow", "State", "Ready", "Counts", "Poll"},
				[]string{"Done ok", "Done ok", "Done failed", "Done failed", "Cancel", "Ready", "Counts"})
		})
	})
	t.Run("asking before taking is seen", func(t *testing.T) {
		halfOpen := model(breakerState{state: breaker.HalfOpen}, breakerModel)
		wrong(t, 5, halfOpen, func(how schedule) []porcupine.Operation {
			b := hastyBreaker{newBreaker()}
			b.Force(base, breaker.Open)
			b.Release(base)
			return breakerHistory(how, b, []string{"Allow"}, []string{"Done ok", "Done failed", "Ready"})
		})
	})
	t.Run("tripping after counting is seen", func(t *testing.T) {
		never := breakerConfig
		never.ConsecutiveFailures = 1 << 20
		wrong(t, 6, m, func(how schedule) []porcupine.Operation {
			b := &lateBreaker{core: breaker.NewCore(never, 0)}
			b.core.Poll(0)
			return breakerHistory(how, b, []string{"Allow"}, []string{"Done ok", "Done failed", "Done failed"})
		})
	})
}
