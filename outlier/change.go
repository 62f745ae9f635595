package outlier

// A Kind says what a [Change] is. The zero value is no change. It is a plain
// value, safe to share.
type Kind uint8

const (
	// Ejected: the host is out until Change.Until.
	Ejected Kind = 1 + iota
	// Returned: the host is back in service.
	Returned
	// Stepped: the weight of a returned host has grown to Change.Weight.
	Stepped
	// Spared: a rule found the host to be an outlier, but a cap keeps it in;
	// Change.Cause says which. Reported once per run of failures, slow period or
	// sweep. The evidence stands: the next failure (slow sample, sweep) asks again.
	Spared
	// WouldEject: in shadow mode, the host would now be out until Change.Until;
	// or the enforcement percentage let this verdict pass (CauseUnenforced), and
	// the evidence starts again from nothing.
	WouldEject
	// WouldReturn: in shadow mode, the host would now be back.
	WouldReturn
)

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	return name(int(k), "none", "ejected", "returned", "stepped", "spared", "would eject", "would return")
}

// A Rule names what found a host to be an outlier. The zero value is no rule.
// It is a plain value, safe to share.
type Rule uint8

const (
	// RuleConsecutive: failures of any kind in a row.
	RuleConsecutive Rule = 1 + iota
	// RuleGateway: gateway or transport failures in a row.
	RuleGateway
	// RuleTransport: transport failures in a row.
	RuleTransport
	// RuleProbation: a failure on probation.
	RuleProbation
	// RuleSuccessRate: a success rate far below the others'.
	RuleSuccessRate
	// RuleFailurePercentage: too large a share of failures.
	RuleFailurePercentage
	// RuleLatency: slower than the others for too long.
	RuleLatency

	rules = 1 + iota // number of rules, zero included
)

// String returns the name of the rule in lower case.
func (r Rule) String() string {
	return name(int(r), "none", "consecutive", "gateway", "transport", "probation",
		"success rate", "failure percentage", "latency")
}

// A Cause completes a [Change] that is not simply the work of a rule or of the
// clock. The zero value is no cause. It is a plain value, safe to share.
type Cause uint8

const (
	// CausePercent: the ejection would exceed MaxEjectedPercent.
	CausePercent Cause = 1 + iota
	// CauseLast: the ejection would break the [LastRule].
	CauseLast
	// CauseUnenforced: the enforcement percentage let the verdict pass.
	CauseUnenforced
	// CauseProbe: a successful active probe ended the ejection.
	CauseProbe
	// CauseForced: a call of Uneject ended the ejection.
	CauseForced
	// CauseForget: Forget, or a new Config, ended the ejection.
	CauseForget

	// causeUnusable: the host serves nobody, so there is nothing to eject. Never
	// reported.
	causeUnusable
)

// String returns the name of the cause in lower case.
func (c Cause) String() string {
	return name(int(c), "none", "percent", "last", "unenforced", "probe", "forced", "forget", "unusable")
}

// name returns names[i], or "unknown".
func name(i int, names ...string) string {
	if i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// A Change is one thing that happened to one host, with the numbers that caused
// it. Its zero value is no change. It is a plain value, safe to share as long as
// Host is only read.
type Change struct {
	Host  *Host // the record that the owner added
	Kind  Kind  // what happened
	Rule  Rule  // what found the host to be an outlier; for Returned, what had
	Cause Cause // why, where the rule or the clock is not the reason

	At    int64 // when it took effect: its due time, not the time it was noticed
	Until int64 // end of the ejection, for Ejected and WouldEject; else At

	Count  int // the factor of the ejection time; for Returned, as it was
	Weight int // weight of the host in thousandths after the change

	// Seen and Limit are what was compared: failures in a row and their limit
	// (consecutive rules, probation); success rates in units of 1e-9 (success
	// rate); failures and results of the interval (failure percentage); score and
	// line in thousandths of a nanosecond (latency). Zero for the other kinds.
	Seen, Limit int64
}

// changes is a queue of what happened, oldest first.
type changes struct {
	list []Change
	head int
}

// push appends c.
func (q *changes) push(c Change) {
	// Moving down before growing keeps the storage at twice the most that waited,
	// even if the queue is never quite empty.
	if q.head > len(q.list)/2 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, c)
}

// waiting returns what no one has popped yet.
func (q *changes) waiting() []Change { return q.list[q.head:] }

// pop removes the oldest change. The storage is reused once the queue is empty.
func (q *changes) pop() (Change, bool) {
	if q.head == len(q.list) {
		return Change{}, false
	}
	c := q.list[q.head]
	q.list[q.head] = Change{} // let the host go
	q.head++
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return c, true
}
