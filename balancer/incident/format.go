package incident

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
)

// String is the line as it stands in a file, without the line feed.
func (l Line) String() string { return string(l.appendTo(nil)) }

// check returns what keeps the line from being written: it would not be read as
// it is.
func (l *Line) check() error {
	if l.Kind == 0 || l.Kind > EvState {
		return fmt.Errorf("incident: a line of kind %d", l.Kind)
	}
	wrong := ""
	switch begun := l.Kind == InNext || l.Kind == InDone || l.Kind == InStop; {
	case l.Kind == EvState && (l.Event < balancer.UpstreamJoined || l.Event > balancer.TrialLost):
		return fmt.Errorf("incident: a change of state of kind %d", l.Event)
	case l.HasKey && l.HasHash:
		wrong = "both a key and its hash"
	case begun && l.From == nil && (l.HasKey || l.HasHash || l.HasDeadline):
		wrong = "a key, a hash or a deadline without a From"
	case l.Kind == EvRetry && l.Try < 1:
		wrong = fmt.Sprintf("try %d of a retry", l.Try)
	}
	fields := checked[l.Kind].fields
	if l.From != nil {
		fields = checked[l.Kind].all
	}
	for _, f := range fields {
		if wrong == "" {
			wrong = l.wrong(f)
		}
	}
	if wrong != "" {
		return fmt.Errorf("incident: a line %q with %s", l.word(), wrong)
	}
	return nil
}

// checked are the fields of each kind of which not every value can be read again:
// without those of a request that began before the file, and all of them. Most
// lines have one or two.
var checked = func() (out [len(kinds)]struct{ fields, all []field }) {
	for k := range kinds {
		c := &out[k]
		for _, s := range kinds[k].fields {
			switch s.field {
			case fMembers, fRequest, fTry, fUpstream, fKey, fEnd, fCount:
				c.fields = append(c.fields, s.field)
			}
			c.all = append(c.all, s.field)
		}
	}
	return out
}()

// wrong is what keeps a field from being written, "" if nothing does.
func (l *Line) wrong(f field) string {
	text := func(s string) string {
		if !utf8.ValidString(s) {
			return fmt.Sprintf("%s %q, which is not valid UTF-8", fieldNames[f], s)
		}
		return ""
	}
	number := func(n, least, most int) string {
		if n < least || n > most {
			return fmt.Sprintf("%s %d", fieldNames[f], n)
		}
		return ""
	}
	switch f {
	case fMembers:
		for _, m := range l.Members {
			if !utf8.ValidString(m.Name) {
				return fmt.Sprintf("a member %q, which is not valid UTF-8", m.Name)
			}
			if m.Share < 0 || m.Share > balancer.MaxWeight || m.Tier < -math.MaxInt32 || m.Tier > math.MaxInt32 || m.Limit < 0 || m.Limit > math.MaxInt32 {
				return fmt.Sprintf("a member out of range, %+v", m)
			}
		}
	case fRequest:
		if l.Request == 0 {
			return "r 0, which is no request"
		}
	case fTry:
		return number(l.Try, 0, math.MaxInt32)
	case fUpstream:
		return text(l.Upstream)
	case fKey:
		return text(l.Key)
	case fEnd:
		if l.End < 1 || l.End > balancer.EndUnavailable {
			return fmt.Sprintf("end %d", l.End)
		}
	case fCount:
		return number(l.Count, -math.MaxInt32, math.MaxInt32)
	}
	if l.From == nil {
		return ""
	}
	switch p := l.From; f {
	case fPhase:
		switch {
		case p.Phase == "" || !slices.Contains(phases[:], p.Phase):
			return fmt.Sprintf("phase %q", p.Phase)
		case p.Settled && p.Phase != phases[1]:
			return fmt.Sprintf("phase %q, settled", p.Phase)
		case p.Until != 0 && p.Phase != phases[3]:
			return fmt.Sprintf("phase %q, which has no end", p.Phase)
		}
	case fRetries:
		return number(p.Retries, 0, math.MaxInt32)
	case fSame:
		return number(p.Same, 0, math.MaxInt32)
	case fTried:
		for _, s := range p.Tried {
			if wrong := text(s); wrong != "" {
				return wrong
			}
		}
	case fLatest:
		return text(p.Latest)
	}
	return ""
}

// appendTo appends the line, without the line feed. Fields that have their
// default are left out, unless the grammar requires them.
func (l *Line) appendTo(b []byte) []byte {
	b = append(b, `{"t":"`...)
	b = jsonline.AppendSeconds(b, l.At)
	if l.Kind.In() {
		b = append(b, `","in":"`...)
	} else {
		b = append(b, `","ev":"`...)
	}
	b = append(b, l.word()...)
	b = append(b, '"')
	if l.Kind > EvState {
		return append(b, '}')
	}
	for _, s := range kinds[l.Kind].fields {
		if !s.required && !l.has(s.field) {
			continue
		}
		b = append(b, `,"`...)
		b = append(b, fieldNames[s.field]...)
		b = append(b, `":`...)
		b = l.appendField(b, s.field)
	}
	return append(b, '}')
}

// has tells whether an optional field has anything but its default.
func (l *Line) has(f field) bool {
	switch f {
	case fTry:
		return l.Try != 0
	case fKey:
		return l.HasKey
	case fHash:
		return l.HasHash
	case fDeadline:
		return l.HasDeadline && l.Deadline != Never
	case fLatency:
		return l.Latency != 0
	case fVerdict:
		return l.Retry != balancer.RetryDefault
	case fFallback:
		return l.Fallback
	case fUntil:
		return l.Until != 0
	case fWhy:
		return l.Why != ""
	case fCount:
		return l.Count != 0
	}
	p := l.From
	if p == nil {
		return false
	}
	switch f {
	case fPhase:
		return true
	case fSettled:
		return p.Settled
	case fRetries:
		return p.Retries != 0
	case fSame:
		return p.Same != 0
	case fWaitUntil:
		return p.Phase == phases[3]
	case fTried:
		return len(p.Tried) > 0
	case fLatest:
		return p.Latest != ""
	}
	return false
}

func (l *Line) appendField(b []byte, f field) []byte {
	quoted := func(s string) []byte { return append(append(append(b, '"'), s...), '"') }
	number := func(n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
	seconds := func(d time.Duration) []byte { return append(jsonline.AppendSeconds(append(b, '"'), d), '"') }
	switch f {
	case fMembers:
		return appendMembers(b, l.Members)
	case fRequest:
		return strconv.AppendUint(b, l.Request, 10)
	case fTry:
		return number(l.Try)
	case fUpstream:
		return jsonline.AppendString(b, l.Upstream)
	case fHealthy:
		return strconv.AppendBool(b, l.Healthy)
	case fKey:
		return jsonline.AppendString(b, l.Key)
	case fHash:
		b = append(b, '"')
		for shift := 60; shift >= 0; shift -= 4 {
			b = append(b, "0123456789abcdef"[l.Hash>>shift&15])
		}
		return append(b, '"')
	case fDeadline:
		return seconds(l.Deadline)
	case fOutcome:
		return quoted(outcomeOf(l.Outcome).String())
	case fLatency:
		return seconds(l.Latency)
	case fVerdict:
		return quoted(verdicts[verdictOf(l.Retry)])
	case fPhase:
		return quoted(l.From.Phase)
	case fSettled:
		return strconv.AppendBool(b, l.From.Settled)
	case fRetries:
		return number(l.From.Retries)
	case fSame:
		return number(l.From.Same)
	case fWaitUntil:
		return seconds(l.From.Until)
	case fTried:
		b = append(b, '[')
		for i, s := range l.From.Tried {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonline.AppendString(b, s)
		}
		return append(b, ']')
	case fLatest:
		return jsonline.AppendString(b, l.From.Latest)
	case fFallback:
		return append(b, "true"...)
	case fWait:
		return seconds(l.Wait)
	case fEnd:
		return quoted(l.End.String())
	case fSeq:
		return strconv.AppendUint(b, l.Seq, 10)
	case fUntil:
		return seconds(l.Until)
	case fWhy:
		return jsonline.AppendString(b, l.Why)
	default: // fCount
		return number(l.Count)
	}
}

// verdicts are the names of balancer.Verdict.
var verdicts = [...]string{"default", "allowed", "forbidden"}

// verdictOf and outcomeOf give a value that is not defined its meaning.
func verdictOf(v balancer.Verdict) balancer.Verdict {
	if int(v) >= len(verdicts) {
		return balancer.RetryDefault
	}
	return v
}

func outcomeOf(o balancer.Outcome) balancer.Outcome {
	if o > balancer.TransportFailure {
		return balancer.Ignored
	}
	return o
}

func appendMembers(b []byte, members []balancer.Member) []byte {
	b = append(b, '[')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonline.AppendString(append(b, `{"b":`...), m.Name)
		if m.Share != 1 {
			b = strconv.AppendInt(append(b, `,"weight":`...), int64(m.Share), 10)
		}
		if m.Tier != 0 {
			b = strconv.AppendInt(append(b, `,"tier":`...), int64(m.Tier), 10)
		}
		if m.Limit != 0 {
			b = strconv.AppendInt(append(b, `,"limit":`...), int64(m.Limit), 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
