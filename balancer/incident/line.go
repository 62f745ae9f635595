package incident

import (
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
)

// Kind says what a Line is.
type Kind uint8

const (
	// InUpdate replaces the members.
	InUpdate Kind = iota + 1
	// InHealth sets the health bit of an upstream.
	InHealth
	// InTime moves time and does nothing else.
	InTime
	// InAcquire is a request of one attempt.
	InAcquire
	// InRequest is the first decision of a request that may be retried.
	InRequest
	// InNext is a later one.
	InNext
	// InDone is the outcome of the attempt that such a request has out.
	InDone
	// InStop gives such a request up.
	InStop
	// InAnswered is the first byte of an answer.
	InAnswered
	// InSettle is the outcome of the attempt of an InAcquire, or of one that was
	// settled by its lease.
	InSettle

	// EvPick is the upstream picked for a request's first attempt.
	EvPick
	// EvRetry is the upstream picked for a later one.
	EvRetry
	// EvNone is that nothing could be picked for an InAcquire.
	EvNone
	// EvWait is a wait before a retry.
	EvWait
	// EvEnd is the end of a request.
	EvEnd
	// EvState is a change of an upstream's state, the one in Line.Event.
	EvState
)

// In tells whether the line is an input, which a replay feeds; otherwise it is
// an event, which a replay must reproduce.
func (k Kind) In() bool { return k >= InUpdate && k <= InSettle }

// String returns the word that stands for the kind in a file; for EvState, which
// has a word per state, "state".
func (k Kind) String() string {
	if int(k) >= len(kinds) {
		return "unknown"
	}
	return kinds[k].word
}

// Never is a time that does not come: a request without a deadline, a state
// without an end.
const Never = jsonline.Never

// Line is one line of a file below the header. Times count from Header.Start.
// Which fields count depends on Kind; package documentation has the list. The
// zero Line is not valid.
type Line struct {
	// Kind says which of the fields below count.
	Kind Kind
	// At is when it happened.
	At time.Duration

	// Event is the state of an EvState.
	Event balancer.EventKind
	// Request is the number of the request, in use until the request's end.
	Request uint64
	// Try is 0 for a request's first attempt.
	Try int
	// Upstream is an id.
	Upstream string
	// Key is the affinity key as it was written by hand, if HasKey.
	Key    string
	HasKey bool
	// Hash is the hash of the affinity key, if HasHash.
	Hash    uint64
	HasHash bool
	// Deadline is that of an InRequest, if HasDeadline.
	Deadline    time.Duration
	HasDeadline bool
	// Outcome, Latency and Retry are what was reported of an attempt.
	Outcome balancer.Outcome
	Latency time.Duration
	Retry   balancer.Verdict
	// Healthy is the bit of an InHealth.
	Healthy bool
	// Members are those of an InUpdate.
	Members []balancer.Member
	// From says how far a request had come that began before the file.
	From *Progress

	// Fallback says that the pick ignored ejections.
	Fallback bool
	// Wait is how long an EvWait is.
	Wait time.Duration
	// End is the reason of an EvEnd.
	End balancer.End
	// Seq is the number of an EvState.
	Seq uint64
	// Until is when a state ends, 0 for open end and Never for none.
	Until time.Duration
	// Why is the reason of an InHealth and the rule of an EvState.
	Why string
	// Count is what the rule had counted.
	Count int
}

// Progress is how far a request has come that began before the file did. The
// zero Progress is not valid.
type Progress struct {
	// Phase is "sent", "failed" or "waiting".
	Phase string
	// Settled says of "sent" that the lease was released before, by itself.
	Settled bool
	// Retries is how many retries were begun, Same how many of them in a row went
	// to the same upstream.
	Retries, Same int
	// Until is when the wait of phase "waiting" ends.
	Until time.Duration
	// Tried are the upstreams tried, "" for one that has left since.
	Tried []string
	// Latest is the upstream of the latest attempt.
	Latest string
}

// phases are the names of balancer.Record.Phase.
var phases = [...]string{"", "sent", "failed", "waiting"}

// field is a key of a line.
type field uint8

const (
	fMembers field = iota
	fRequest
	fTry
	fUpstream
	fHealthy
	fKey
	fHash
	fDeadline
	fOutcome
	fLatency
	fVerdict
	fPhase
	fSettled
	fRetries
	fSame
	fWaitUntil
	fTried
	fLatest
	fFallback
	fWait
	fEnd
	fSeq
	fUntil
	fWhy
	fCount
)

var fieldNames = [...]string{
	fMembers: "members", fRequest: "r", fTry: "try", fUpstream: "b", fHealthy: "up", fKey: "key", fHash: "hash",
	fDeadline: "deadline", fOutcome: "out", fLatency: "lat", fVerdict: "retry", fPhase: "phase", fSettled: "settled", fRetries: "retries",
	fSame: "same", fWaitUntil: "wait_until", fTried: "tried", fLatest: "latest", fFallback: "fallback",
	fWait: "for", fEnd: "why", fSeq: "n", fUntil: "until", fWhy: "why", fCount: "count",
}

// slotOf is a place for a field in a kind of line.
type slotOf struct {
	field    field
	required bool
}

func must(f field) slotOf { return slotOf{f, true} }
func may(f field) slotOf  { return slotOf{f, false} }

// kinds is the grammar: for each kind its word and its fields in their order.
// Reading and writing both go by it.
var kinds = [...]struct {
	word   string
	fields []slotOf
}{
	0:          {"", nil},
	InUpdate:   {"update", []slotOf{must(fMembers)}},
	InHealth:   {"health", []slotOf{must(fUpstream), must(fHealthy), may(fWhy)}},
	InTime:     {"time", nil},
	InAcquire:  {"acquire", []slotOf{must(fRequest), may(fKey), may(fHash)}},
	InRequest:  {"request", []slotOf{must(fRequest), may(fKey), may(fHash), may(fDeadline)}},
	InNext:     {"next", append([]slotOf{must(fRequest)}, progress...)},
	InDone:     {"done", append([]slotOf{must(fRequest), must(fOutcome), may(fLatency), may(fVerdict)}, progress...)},
	InStop:     {"stop", append([]slotOf{must(fRequest)}, progress...)},
	InAnswered: {"answered", []slotOf{must(fRequest), may(fTry)}},
	InSettle:   {"settle", []slotOf{must(fRequest), may(fTry), must(fOutcome), may(fLatency)}},
	EvPick:     {"pick", []slotOf{must(fRequest), must(fUpstream), may(fFallback)}},
	EvRetry:    {"retry", []slotOf{must(fRequest), must(fTry), must(fUpstream), may(fFallback)}},
	EvNone:     {"none", []slotOf{must(fRequest)}},
	EvWait:     {"wait", []slotOf{must(fRequest), must(fWait)}},
	EvEnd:      {"end", []slotOf{must(fRequest), must(fEnd)}},
	EvState:    {"state", []slotOf{must(fSeq), must(fUpstream), may(fUntil), may(fWhy), may(fCount)}},
}

// progress are the fields of a request that began before the file. All but the
// phase need the phase.
var progress = []slotOf{
	may(fPhase), may(fSettled), may(fRetries), may(fSame), may(fWaitUntil), may(fTried), may(fLatest),
	may(fKey), may(fHash), may(fDeadline),
}

// word is what stands in the line for its kind.
func (l *Line) word() string {
	if l.Kind == EvState {
		return l.Event.String()
	}
	return l.Kind.String()
}

// words finds the kind of a word.
var words = func() map[string]Line {
	m := map[string]Line{}
	for k := InUpdate; k < EvState; k++ {
		m[kinds[k].word] = Line{Kind: k}
	}
	for e := balancer.UpstreamJoined; e <= balancer.TrialLost; e++ {
		m[e.String()] = Line{Kind: EvState, Event: e}
	}
	return m
}()

// sameEvent tells whether two events are equal, field by field.
func sameEvent(a, b *Line) bool {
	return a.Kind == b.Kind && a.At == b.At && a.Event == b.Event && a.Request == b.Request && a.Try == b.Try &&
		a.Upstream == b.Upstream && a.Fallback == b.Fallback && a.Wait == b.Wait && a.End == b.End &&
		a.Seq == b.Seq && a.Until == b.Until && a.Why == b.Why && a.Count == b.Count
}
