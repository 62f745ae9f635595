// Package balancertest has upstreams that answer by script, for testing how a
// Pool's configuration behaves in an incident without a server in sight.
//
//	c := balancertest.New("c", balancertest.Status(200), balancertest.Fail(balancertest.ErrTimeout))
//	c.Send() // 200
//	c.Send() // a timeout
//	c.Send() // 200 from here on, the default
//
// Nothing here sleeps or reads a clock: an answer says how long it took, and
// the test moves its clock by that much if it wants to.
package balancertest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

var (
	// ErrTimeout is the answer of an upstream that did not answer in time.
	ErrTimeout = errors.New("timeout")

	// ErrConnection is the answer of an upstream that could not be reached.
	ErrConnection = errors.New("connection")
)

// Latency is how long an answer takes that does not say otherwise.
const Latency = 5 * time.Millisecond

// Step is one scripted answer: a status, or an error in its place.
type Step struct {
	Status  int           // HTTP status; ignored if Err is set
	Err     error         // no answer, and why
	Latency time.Duration // how long it took; if zero, Latency
}

// Status is the step that answers with a status.
func Status(status int) Step { return Step{Status: status} }

// Fail is the step that does not answer.
func Fail(err error) Step { return Step{Err: err} }

// After returns the step with another latency.
func (s Step) After(d time.Duration) Step {
	s.Latency = d
	return s
}

// Took is the step's latency, the default filled in.
func (s Step) Took() time.Duration {
	if s.Latency == 0 {
		return Latency
	}
	return s.Latency
}

// Outcome is the verdict on the step: a status of 500 or more is a Failure, an
// error a TransportFailure, anything else a Success.
func (s Step) Outcome() balancer.Outcome {
	switch {
	case s.Err != nil:
		return balancer.TransportFailure
	case s.Status >= 500:
		return balancer.Failure
	}
	return balancer.Success
}

// String is the step in a word or two: "200", "server error 503", "timeout".
func (s Step) String() string {
	switch {
	case s.Err != nil:
		return s.Err.Error()
	case s.Status >= 500:
		return fmt.Sprintf("server error %d", s.Status)
	}
	return fmt.Sprint(s.Status)
}

// Upstream is an upstream that answers by script: first the steps pushed, in
// order, then its default for ever. Its active checks have a script of their
// own. The zero Upstream is not usable: make one with New. Safe for concurrent
// use.
type Upstream struct {
	id       string
	weight   int
	priority int
	limit    int

	mu     sync.Mutex // guards below
	steps  []Step
	def    Step
	probes []bool
	calls  int
	probed int
}

// New returns an upstream of weight 1 that answers with the steps and then with
// status 200.
func New(id string, steps ...Step) *Upstream {
	return &Upstream{id: id, weight: 1, steps: steps, def: Status(200)}
}

// AlwaysFailing returns an upstream whose every answer is err.
func AlwaysFailing(id string, err error) *Upstream {
	u := New(id)
	u.def = Fail(err)
	return u
}

// WithWeight sets the weight that Pools see at their next Update, 0 included.
// It returns u.
func (u *Upstream) WithWeight(w int) *Upstream { u.weight = w; return u }

// WithPriority sets the tier that Pools see at their next Update. It returns u.
func (u *Upstream) WithPriority(p int) *Upstream { u.priority = p; return u }

// WithMaxInflight sets the limit that Pools see at their next Update. It
// returns u.
func (u *Upstream) WithMaxInflight(n int) *Upstream { u.limit = n; return u }

// ID implements balancer.Upstream.
func (u *Upstream) ID() string { return u.id }

// Weight is the weight.
func (u *Upstream) Weight() int { return u.weight }

// Priority is the tier.
func (u *Upstream) Priority() int { return u.priority }

// MaxInflight is the limit of calls at once.
func (u *Upstream) MaxInflight() int { return u.limit }

// Push adds steps to the script.
func (u *Upstream) Push(steps ...Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, steps...)
}

// PushN adds a step to the script n times.
func (u *Upstream) PushN(n int, s Step) {
	for range n {
		u.Push(s)
	}
}

// Default replaces what the upstream answers after its script.
func (u *Upstream) Default(s Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.def = s
}

// Send takes the next answer and counts the call.
func (u *Upstream) Send() Step {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	if len(u.steps) == 0 {
		return u.def
	}
	s := u.steps[0]
	u.steps = u.steps[1:]
	return s
}

// PushProbes adds results to the script of the active checks, which end in true
// for ever.
func (u *Upstream) PushProbes(ok ...bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.probes = append(u.probes, ok...)
}

// Probe takes the next result of an active check and counts it.
func (u *Upstream) Probe() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.probed++
	if len(u.probes) == 0 {
		return true
	}
	ok := u.probes[0]
	u.probes = u.probes[1:]
	return ok
}

// Calls is how often Send was called.
func (u *Upstream) Calls() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls
}

// Probes is how often Probe was called.
func (u *Upstream) Probes() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.probed
}

// Hop is one attempt of a Trail.
type Hop struct {
	Upstream string // id
	Step     Step   // what it answered
}

// Trail is what one request went through.
type Trail struct {
	Hops []Hop        // its attempts, in order
	End  balancer.End // why there were no more
	Err  error        // why there was no attempt
}

// Send drives one request through the Pool against scripted upstreams. All its
// attempts happen at the clock's present instant; a wait ends the request, since
// nothing here sleeps.
func Send(pool *balancer.Pool[*Upstream], req balancer.Request) Trail {
	try := pool.Start(req)
	var t Trail
	for {
		step := try.Next()
		switch step.Kind {
		case balancer.StepSend:
			u := step.Lease.Upstream()
			answer := u.Send()
			t.Hops = append(t.Hops, Hop{u.ID(), answer})
			try.Done(balancer.Report{Outcome: answer.Outcome(), Latency: answer.Took()})
		case balancer.StepWait:
			try.Stop()
			t.End = balancer.EndDeadline
			return t
		default:
			t.End, t.Err = step.End, step.Err
			return t
		}
	}
}

// OK tells whether the last attempt succeeded.
func (t Trail) OK() bool {
	return len(t.Hops) > 0 && t.Hops[len(t.Hops)-1].Step.Outcome() == balancer.Success
}

// Status is what a proxy would answer: the status of the last attempt if it
// succeeded, 502 if every attempt failed, 503 if there was none.
func (t Trail) Status() int {
	switch {
	case len(t.Hops) == 0:
		return 503
	case t.OK():
		return t.Hops[len(t.Hops)-1].Step.Status
	}
	return 502
}

// String is the trail in a line: C(server error 503 FAIL) retry->A(200 ok).
func (t Trail) String() string {
	s := ""
	for i, h := range t.Hops {
		mark, arrow := "ok", ""
		if h.Step.Outcome() != balancer.Success {
			mark = "FAIL"
		}
		if i > 0 {
			arrow = " retry->"
		}
		s += fmt.Sprintf("%s%s(%s %s)", arrow, h.Upstream, h.Step, mark)
	}
	return s
}
