package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// Counts is what became of some requests. Once a run is over, Requests = OK +
// Failed + Hung, Attempts = Requests + Retries - Unsent, and Failed is the sum of
// the fields that begin with End. It is plain data.
type Counts struct {
	Requests uint64 // begun
	OK       uint64 // whose last attempt was a Success
	Good     uint64 // of those, within the client's Target
	Failed   uint64 // ended otherwise
	Hung     uint64 // never ended: swallowed, and the client has no timeout

	Attempts uint64 // sent
	Retries  uint64 // of those, not the first of their request
	Timeouts uint64 // of those, given up by the client
	Wasted   uint64 // of those, answered when nobody waited any longer

	Unsent         uint64 // requests without a single attempt
	EndAnswered    uint64 // requests that failed in a way that is not retried
	EndAttempts    uint64 // that failed with all retries used up
	EndNoTarget    uint64 // that failed with no server left to try
	EndBudget      uint64 // that failed since the retry budget refused
	EndDeadline    uint64 // that failed since their deadline had come
	EndUnavailable uint64 // that failed since no server could be picked at all
}

func (c *Counts) end(ok, good bool, attempts uint32, end balancer.End) {
	if attempts == 0 {
		c.Unsent++
	}
	if ok {
		c.OK++
		if good {
			c.Good++
		}
		return
	}
	c.Failed++
	switch end {
	case balancer.EndAnswered:
		c.EndAnswered++
	case balancer.EndAttempts:
		c.EndAttempts++
	case balancer.EndNoTarget:
		c.EndNoTarget++
	case balancer.EndBudget:
		c.EndBudget++
	case balancer.EndDeadline:
		c.EndDeadline++
	case balancer.EndUnavailable:
		c.EndUnavailable++
	}
}

// Amplification is the number of attempts per request, 0 if there were no
// requests.
func (c Counts) Amplification() float64 { return ratio(c.Attempts, c.Requests) }

// OKShare is the share of requests that ended well, 0 if there were none.
func (c Counts) OKShare() float64 { return ratio(c.OK, c.Requests) }

// GoodShare is the share that did so within their Target, 0 if there were none.
func (c Counts) GoodShare() float64 { return ratio(c.Good, c.Requests) }

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Result is what a run has shown. Counts, Latency, FailLatency and Servers
// speak of the requests that arrived after the warm-up. It is plain data and safe
// for concurrent use while nobody writes to it.
type Result struct {
	Seed     uint64        // of the scenario
	Duration time.Duration // of the scenario
	WarmUp   time.Duration // of the scenario
	Interval time.Duration // of Series
	Elapsed  time.Duration // when the last request ended, or began if that hangs
	Events   uint64        // that were simulated

	Counts                // after the warm-up
	Total       Counts    // of the whole run
	Latency     Histogram // from arrival to end, of requests that ended well
	FailLatency Histogram // of those that did not

	Servers []ServerResult // in the order of the scenario
	Changes []ChangeResult // in the order of the script
	Series  []Column       // one for each Interval of Duration

	// Area is the number of requests under way, added up over the nanoseconds up to
	// Elapsed, and Sojourn the time that all requests took. By Little's law
	// they are equal if none hung.
	Area, Sojourn Sum
}

// ServerResult is what one server did for the requests after the warm-up. It is
// plain data.
type ServerResult struct {
	ID        string        // as the Pools know it
	Attempts  uint64        // received
	Successes uint64        // of those, as the clients settled them
	Failures  uint64        // the others, timeouts included
	Busy      time.Duration // workers' time for them, also if nobody waited; not that of a stall
	// LongestQueue is of the whole run; so are Ejections and Trips, of all
	// clients together.
	LongestQueue int
	Ejections    int
	Trips        int

	// Probes is how many probes the checks of all clients have sent in the whole
	// run, and ProbeFailures how many of those failed, were slow or timed out. Deep
	// ones are in Busy and LongestQueue too, and in no other figure.
	Probes        uint64
	ProbeFailures uint64
}

// Column counts the requests that arrived in one interval, and the attempts
// that were sent in it. It is plain data.
type Column struct {
	Requests uint64 // arrived
	OK       uint64 // of them, ended with a success
	Good     uint64 // of those, within the client's Target
	Attempts uint64 // sent
}

// ChangeResult is how the clients and servers took a Change. It is plain data.
type ChangeResult struct {
	Kind    Kind          // of the Change
	At, For time.Duration // when it began and how long it lasted
	Servers int           // how many it concerned

	// Ejected has, for each pair of a client and a server concerned, how long
	// after its beginning and before its end the client's Pool first took the
	// server out, by ejection or by its breaker.
	Ejected Spread
	// Unhealthy is the same for the client's checks.
	Unhealthy Spread
	// FirstSuccess has, for each server concerned, how long after its end the
	// first success came of an attempt that was sent after it. One stray attempt is
	// enough: it says when the server was tried again, not when it had its share.
	FirstSuccess Spread
}

// Spread sums up some durations. The zero Spread has none. It is plain data.
type Spread struct {
	Count       int           // how many
	First, Last time.Duration // the shortest and the longest
	Sum         time.Duration // all together; if that is longer than a Duration can be, the longest
}

func (s *Spread) note(d time.Duration) {
	if s.Count == 0 || d < s.First {
		s.First = d
	}
	s.Last = max(s.Last, d)
	s.Count++
	s.Sum = time.Duration(satAdd(int64(s.Sum), int64(d)))
}

// Mean is the mean, 0 if there are none.
func (s Spread) Mean() time.Duration {
	if s.Count == 0 {
		return 0
	}
	return s.Sum / time.Duration(s.Count)
}

// Goodput is the number of good requests per second of the measured part.
func (r Result) Goodput() float64 {
	d := r.Duration - r.WarmUp
	if d == 0 {
		return 0
	}
	return float64(r.Good) / d.Seconds()
}

// Share is the share of all attempts that server i received.
func (r Result) Share(i int) float64 { return ratio(r.Servers[i].Attempts, r.Attempts) }

// Recovery is how long after the instant at every column of Series was good
// again for good: of the requests in it, and in every later one, a share of at
// least least was good. A column without requests says nothing. It returns false
// if that never came, or if no request came after it to show that it had: where
// everything hangs nothing fails, and nothing has recovered.
// O(len(Series)).
func (r Result) Recovery(at time.Duration, least float64) (time.Duration, bool) {
	since, proven := len(r.Series), false
	for i := len(r.Series) - 1; i >= 0; i-- {
		c := r.Series[i]
		if float64(c.Good) < float64(least*float64(c.Requests)) {
			break
		}
		since = i
		// A column that has ended by then is no proof of what came after.
		proven = proven || c.Requests > 0 && time.Duration(i+1)*r.Interval > at
	}
	if !proven || at >= r.Duration {
		return 0, false
	}
	return max(0, time.Duration(since)*r.Interval-at), true
}

// String is a summary on a few lines, the same on every architecture.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "requests %d  ok %d (%.3f %%)  good %d  failed %d  hung %d\n",
		r.Requests, r.OK, 100*r.OKShare(), r.Good, r.Failed, r.Hung)
	fmt.Fprintf(&b, "attempts %d (x%.3f)  retries %d  timeouts %d  wasted %d\n",
		r.Attempts, r.Amplification(), r.Retries, r.Timeouts, r.Wasted)
	l := &r.Latency
	fmt.Fprintf(&b, "latency  mean %v  p50 %v  p99 %v  p99.9 %v  max %v\n", short(l.Mean()),
		short(l.Quantile(.5)), short(l.Quantile(.99)), short(l.Quantile(.999)), short(l.Max()))
	for i, s := range r.Servers {
		if i == 20 && len(r.Servers) > 24 {
			fmt.Fprintf(&b, "... and %d more servers\n", len(r.Servers)-i)
			break
		}
		fmt.Fprintf(&b, "%-8s attempts %d (%.2f %%)  failures %d  longest queue %d  ejections %d  trips %d",
			s.ID, s.Attempts, 100*r.Share(i), s.Failures, s.LongestQueue, s.Ejections, s.Trips)
		if s.Probes > 0 {
			fmt.Fprintf(&b, "  probes %d, %d failed", s.Probes, s.ProbeFailures)
		}
		b.WriteByte('\n')
	}
	for _, c := range r.Changes {
		fmt.Fprintf(&b, "%s at %v", c.Kind, c.At)
		if c.Ejected.Count > 0 {
			fmt.Fprintf(&b, "  taken out %d times, first after %v", c.Ejected.Count, short(c.Ejected.First))
		}
		if c.Unhealthy.Count > 0 {
			fmt.Fprintf(&b, "  found unhealthy %d times, first after %v", c.Unhealthy.Count, short(c.Unhealthy.First))
		}
		if c.FirstSuccess.Count > 0 {
			fmt.Fprintf(&b, "  %d of %d served again, the last after %v", c.FirstSuccess.Count, c.Servers, short(c.FirstSuccess.Last))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// short rounds to three digits or so.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// Attempt is one attempt as its client has settled it, for [Watch]. It is plain data.
type Attempt struct {
	Client  int              // index, in the order of the scenario
	Request uint64           // its number: 1, 2, ... of an open loop; user+1 in the upper 32 bits of a closed one
	Attempt int              // 0 for the first
	Server  string           // its id
	Begun   time.Duration    // when the request arrived, since the start
	Sent    time.Duration    // when the attempt was sent
	Took    time.Duration    // until the client had an answer or gave up
	Outcome balancer.Outcome // as it was reported to the Pool
}
