package incident

import (
	"math"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// line reads a line below the header into l.
func (c *cursor) line(l *Line) {
	*l = Line{}
	c.Need('{')
	if k := c.Key(true); k != "t" {
		c.Fail(`want "t" first, got %q`, k)
	}
	at := c.Seconds("t")
	if c.Msg == "" && (at < 0 || at == Never) {
		c.Fail("t is before the start or never")
	}
	side := c.Key(false)
	if side != "in" && side != "ev" {
		c.Fail(`want "in" or "ev" after "t", got %q`, side)
	}
	word := c.Name(side)
	kind, ok := words[word]
	if c.Msg == "" && (!ok || kind.Kind.In() != (side == "in")) {
		c.Fail("unknown %q %q", side, word)
	}
	*l = kind
	l.At = at
	fields := kinds[l.Kind].fields
	next, waits := 0, false
	for {
		k := c.Key(false)
		if k == "" {
			break
		}
		at := next
		for at < len(fields) && fieldNames[fields[at].field] != k {
			if fields[at].required {
				c.Fail("want %q, got %q", fieldNames[fields[at].field], k)
				return
			}
			at++
		}
		if at == len(fields) {
			c.stray(word, fields, k)
			return
		}
		next = at + 1
		waits = waits || fields[at].field == fWaitUntil
		c.field(l, fields[at].field)
	}
	for ; next < len(fields) && c.Msg == ""; next++ {
		if fields[next].required {
			c.Fail("%s without %q", word, fieldNames[fields[next].field])
		}
	}
	c.End()
	switch {
	case c.Msg != "":
	case l.HasKey && l.HasHash:
		c.Fail(`both "key" and "hash"`)
	case l.Kind == EvRetry && l.Try == 0:
		c.Fail(`retry with try 0, which is a pick`)
	case l.From != nil && (l.From.Phase == phases[3]) != waits:
		c.Fail(`want "wait_until" with phase "waiting" and with no other`)
	}
}

// stray explains a key that does not fit.
func (c *cursor) stray(word string, fields []slotOf, k string) {
	for _, s := range fields {
		if fieldNames[s.field] == k {
			c.Fail("%q is out of order or given twice", k)
			return
		}
	}
	c.Fail("%s has no %q", word, k)
}

func (c *cursor) field(l *Line, f field) {
	// What belongs to a request that began before the file.
	if l.From == nil && (l.Kind == InNext || l.Kind == InDone || l.Kind == InStop) {
		switch f {
		case fPhase:
			l.From = &Progress{}
		case fSettled, fRetries, fSame, fWaitUntil, fTried, fLatest, fKey, fHash, fDeadline:
			c.Fail(`%q without "phase"`, fieldNames[f])
			return
		}
	}
	name := fieldNames[f]
	switch f {
	case fMembers:
		l.Members = c.members()
	case fRequest:
		if l.Request = c.Number(name, math.MaxUint64); l.Request == 0 {
			c.Fail("r is 0, want the number of a request")
		}
	case fTry:
		l.Try = int(c.Number(name, math.MaxInt32))
	case fUpstream:
		l.Upstream = c.Name(name)
	case fHealthy:
		l.Healthy = c.Truth(name)
	case fKey:
		l.Key, l.HasKey = string(c.Text(name)), true
	case fHash:
		l.Hash, l.HasHash = c.hash(), true
	case fDeadline:
		if d := c.Seconds(name); d != Never {
			l.Deadline, l.HasDeadline = d, true
		}
	case fOutcome:
		l.Outcome = balancer.Outcome(c.choice(name, func(i int) string { return balancer.Outcome(i).String() }, 0, 3))
	case fLatency:
		l.Latency = c.Seconds(name)
	case fVerdict:
		l.Retry = balancer.Verdict(c.choice(name, func(i int) string { return verdicts[i] }, 0, 2))
	case fPhase:
		l.From.Phase = phases[c.choice(name, func(i int) string { return phases[i] }, 1, 3)]
	case fSettled:
		if l.From.Settled = c.Truth(name); l.From.Settled && l.From.Phase != phases[1] {
			c.Fail(`"settled" with phase %q, want "sent"`, l.From.Phase)
		}
	case fRetries:
		l.From.Retries = int(c.Number(name, math.MaxInt32))
	case fSame:
		l.From.Same = int(c.Number(name, math.MaxInt32))
	case fWaitUntil:
		l.From.Until = c.Seconds(name)
	case fTried:
		c.Need('[')
		for c.Msg == "" && !c.Take(']') {
			if len(l.From.Tried) > 0 {
				c.Need(',')
			}
			l.From.Tried = append(l.From.Tried, c.Name(name))
		}
	case fLatest:
		l.From.Latest = c.Name(name)
	case fFallback:
		l.Fallback = c.Truth(name)
	case fWait:
		l.Wait = c.Seconds(name)
	case fEnd:
		l.End = balancer.End(c.choice(name, func(i int) string { return balancer.End(i).String() }, 1, int(balancer.EndUnavailable)))
	case fSeq:
		l.Seq = c.Number(name, math.MaxUint64)
	case fUntil:
		l.Until = c.Seconds(name)
	case fWhy:
		l.Why = c.Name(name)
	case fCount:
		l.Count = int(c.Integer(name, math.MaxInt32))
	}
}

// choice reads one of the words of first to last.
func (c *cursor) choice(what string, word func(int) string, first, last int) int {
	s := c.Text(what)
	for i := first; i <= last; i++ {
		if string(s) == word(i) {
			return i
		}
	}
	all := ""
	for i := first; i <= last; i++ {
		all += ", " + word(i)
	}
	c.Fail("%s is %q, want one of %s", what, s, all[2:])
	return first
}

// hash reads 16 hexadecimal digits.
func (c *cursor) hash() uint64 {
	s := c.Text("hash")
	n := uint64(0)
	for _, ch := range s {
		switch {
		case ch-'0' <= 9:
			n = n<<4 | uint64(ch-'0')
		case ch-'a' <= 5:
			n = n<<4 | uint64(ch-'a'+10)
		default:
			s = nil
		}
	}
	if len(s) != 16 {
		c.Fail("hash is not 16 hexadecimal digits in lower case")
	}
	return n
}

// members reads the members of an update or of the header.
func (c *cursor) members() []balancer.Member {
	var out []balancer.Member
	c.Need('[')
	for c.Msg == "" && !c.Take(']') {
		if len(out) > 0 {
			c.Need(',')
		}
		c.Need('{')
		if k := c.Key(true); k != "b" {
			c.Fail(`want "b" first in a member, got %q`, k)
		}
		m := balancer.Member{Name: c.Name("b"), Share: 1}
		last := 0
		for c.Msg == "" {
			k := c.Key(false)
			if k == "" {
				break
			}
			at := 0
			switch k {
			case "weight":
				at, m.Share = 1, int(c.Number(k, balancer.MaxWeight))
			case "tier":
				at, m.Tier = 2, int(c.Integer(k, math.MaxInt32))
			case "limit":
				at, m.Limit = 3, int(c.Number(k, math.MaxInt32))
			default:
				c.Fail("a member has no %q", k)
			}
			if c.Msg == "" && at <= last {
				c.Fail("%q is out of order or given twice", k)
			}
			last = at
		}
		c.Need('}')
		out = append(out, m)
	}
	return out
}
