package incident

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// ErrDivergence is what a [*Divergence] matches.
var ErrDivergence = errors.New("incident: the replay diverges")

// Divergence is the first place where a replay is not what was recorded.
type Divergence struct {
	// Line is the number of the line in the file, from 1.
	Line int
	// Want is what was recorded there and Got what the replay did; "" is nothing.
	Want, Got string
	// Before and After are up to five lines around it, as recorded.
	Before, After []string
	// Recorded is the state of the upstreams up to and with Want, and Replayed up
	// to and with Got, as the lines tell it; in the order of their appearance.
	Recorded, Replayed string
	// Snapshot is all that the replaying Pool knows, after the whole of the input
	// that it was fed last.
	Snapshot balancer.Snapshot
	// Err is why an input could not be fed, else nil.
	Err error
	// Library is that of the recording, if it is another one.
	Library string
}

// Error implements error: a report of several lines.
func (d *Divergence) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "incident: the replay diverges at line %d\n", d.Line)
	if d.Library != "" {
		fmt.Fprintf(&b, "recorded by %s, replayed by %s\n", d.Library, Library)
	}
	for _, s := range d.Before {
		fmt.Fprintf(&b, "    %s\n", s)
	}
	fmt.Fprintf(&b, "  - %s\n  + %s\n", orNothing(d.Want), orNothing(d.Got))
	for _, s := range d.After {
		fmt.Fprintf(&b, "    %s\n", s)
	}
	fmt.Fprintf(&b, "state as recorded:\n%sstate as replayed:\n%s", indent(d.Recorded), indent(d.Replayed))
	return b.String()
}

// Is makes the error match ErrDivergence.
func (d *Divergence) Is(target error) bool { return target == ErrDivergence }

// Unwrap returns why an input could not be fed.
func (d *Divergence) Unwrap() error { return d.Err }

func orNothing(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return s
}

func indent(s string) string {
	if s == "" {
		return "    (no upstreams)\n"
	}
	return "    " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n    ") + "\n"
}

// contextLines is how many lines a Divergence shows on either side.
const contextLines = 5

// verifier compares the lines of a file with those of a replay.
type verifier struct {
	r      *Reader
	p      *player
	ledger *ledger
	recent [contextLines]Line // lines that agree, a ring
	agreed int
	got    []Line // what the replay did and the file has not yet said
	next   int    // of got
	want   []Line // events that the file has and the replay will do before its next input
	at     []int  // their line numbers
	input  *Line  // that was read after these, nil once they have been compared
}

// ahead is how many events may stand before an input: more than time can bring
// to that many upstreams without one. A file that has more diverges, and need not
// be read into memory to see it.
func ahead(upstreams int) int { return 64 + 16*upstreams }

// Verify replays the inputs of a file in a new Pool and compares the events that
// come of them with those of the file, one by one. It returns nil if they are
// the same, and a *Divergence at the first that is not; other errors are about
// the file or the configuration. cfg is that of the recorded Pool, such as
// Header.Config gives; its clock and its hook are not used. Memory does not grow
// with the file: a million requests take seconds.
func Verify(r *Reader, cfg balancer.Config) error {
	p, err := r.player(cfg)
	if err != nil {
		return err
	}
	v := &verifier{r: r, p: p, ledger: newLedger(&r.head)}
	v.ledger.begin(p.pool.Snapshot(), p.pool.Leases())
	var l Line
	for {
		err := r.read(&l)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = v.line(&l)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case len(v.want) > 0:
		return v.diverge(v.at[0], &v.want[0], nil, nil)
	case v.next < len(v.got):
		return v.diverge(r.line, nil, &v.got[v.next], nil)
	}
	return nil
}

// line takes the next line of the file.
func (v *verifier) line(l *Line) error {
	if !l.Kind.In() {
		if v.next < len(v.got) {
			return v.compare(v.r.line, l)
		}
		v.want, v.at = append(v.want, *l), append(v.at, v.r.line)
		if len(v.want) > ahead(len(v.p.members)) {
			return v.excess(l)
		}
		return nil
	}
	if v.next < len(v.got) {
		return v.diverge(v.r.line, l, &v.got[v.next], nil)
	}
	line := v.r.line
	var cause error
	v.got, cause = v.p.feed(l, v.got[:0])
	if v.next, v.input = 0, l; cause != nil {
		v.due(l.At)
	}
	for i := range v.want {
		if err := v.compare(v.at[i], &v.want[i]); err != nil {
			return err
		}
	}
	v.want, v.at, v.input = v.want[:0], v.at[:0], nil
	var in *Line
	if v.next < len(v.got) {
		in = &v.got[v.next]
	}
	switch {
	case in != nil && !in.Kind.In():
		return v.diverge(line, l, in, nil)
	case cause != nil:
		return v.diverge(line, l, nil, cause)
	}
	v.next++
	v.agree(l)
	return nil
}

// excess finds the first event that is wrong where there are too many of them
// before an input.
func (v *verifier) excess(l *Line) error {
	v.got, v.next = v.got[:0], 0
	v.due(l.At)
	for i := range v.want {
		if err := v.compare(v.at[i], &v.want[i]); err != nil {
			return err
		}
	}
	return v.diverge(v.r.line, l, nil, nil)
}

// due adds what time brings until then, without the input that is missing. After
// it the replay is no longer that of the file.
func (v *verifier) due(at time.Duration) {
	v.got, _ = v.p.feed(&Line{Kind: InTime, At: at}, v.got)
	v.got = slices.DeleteFunc(v.got, func(l Line) bool { return l.Kind.In() })
}

// compare holds an event of the file against the next line of the replay.
func (v *verifier) compare(line int, want *Line) error {
	if v.next == len(v.got) || !sameEvent(want, &v.got[v.next]) {
		var got *Line
		if v.next < len(v.got) {
			got = &v.got[v.next]
		}
		return v.diverge(line, want, got, nil)
	}
	v.next++
	v.agree(want)
	return nil
}

func (v *verifier) agree(l *Line) {
	v.recent[v.agreed%contextLines] = *l
	v.agreed++
	v.ledger.follow(l)
}

func (v *verifier) diverge(line int, want, got *Line, cause error) error {
	d := &Divergence{Line: line, Err: cause, Snapshot: v.p.snapshot(&v.r.head)}
	if v.r.head.Library != Library {
		d.Library = v.r.head.Library
	}
	for i := max(0, v.agreed-contextLines); i < v.agreed; i++ {
		d.Before = append(d.Before, v.recent[i%contextLines].String())
	}
	// All lines before these agree, and so do both states.
	replayed := v.ledger.clone()
	if want != nil {
		d.Want = want.String()
		v.ledger.follow(want)
	}
	switch {
	case got != nil:
		d.Got = got.String()
		replayed.follow(got)
	case cause != nil:
		d.Got = cause.Error()
	}
	// What the file says next: events that were read ahead, then the rest.
	for i := range v.want {
		if v.at[i] > line && len(d.After) < contextLines {
			d.After = append(d.After, v.want[i].String())
		}
	}
	if v.input != nil && len(d.After) < contextLines {
		d.After = append(d.After, v.input.String())
	}
	for len(d.After) < contextLines {
		l, err := v.r.Next()
		if err != nil {
			break
		}
		d.After = append(d.After, l.String())
	}
	d.Recorded, d.Replayed = v.ledger.String(), replayed.String()
	return d
}
