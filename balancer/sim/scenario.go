package sim

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// maxTime bounds every time of a scenario, so that no sum of a few can overflow.
// Where any number of them add up, a Sum holds them.
const maxTime = 48 * time.Hour

// zonePrefix begins what a Change calls a zone by.
const zonePrefix = "zone:"

const (
	maxCount  = 1 << 20 // of servers, of clients, of users
	maxPairs  = 1 << 24 // of a client and a server or a user
	maxSmall  = 1 << 30 // of what an upstream may have
	maxFactor = 1e6
	maxRate   = 1e9
)

// Scenario is a fleet, its load, what happens to it, and the balancer under
// test. It is plain data and safe for concurrent use while nobody writes to it.
type Scenario struct {
	// Seed keys every draw. 0 is a seed like any other.
	Seed uint64

	// Duration is how long requests keep arriving; the run then goes on until
	// the last one has ended. It must be positive, and at most 48h.
	Duration time.Duration

	// WarmUp excludes the requests that arrive earlier from the statistics. If
	// zero, none.
	WarmUp time.Duration

	// Interval is the width of the columns of Result.Series. If zero, 1s. At
	// least a millionth of Duration.
	Interval time.Duration

	// Servers is the fleet, in groups of equals. There must be at least one.
	Servers []Server

	// Clients is who sends, in groups of equals. There must be at least one.
	Clients []Client

	// Script is what happens to the servers. If empty, nothing.
	Script []Change

	// Pool sets up the Pool of every client. Its Clock must be nil: it is the
	// simulation's. If its Seed is zero, every client has a seed of its own, drawn
	// from the scenario's; else the first client with this Config has that one, and
	// the others have seeds drawn from it; so it is with Client.Pool. For a client
	// with Checks, its StartUnhealthy follows them. Its OnEvent is called on the
	// simulation's goroutine.
	Pool balancer.Config
}

// Server is a group of equal servers. The zero Server is one with one worker
// that takes 10ms. It is plain data and safe for concurrent use while nobody
// writes to it.
type Server struct {
	// Name is the group's name. One server has it as its id; several are Name-0,
	// Name-1 and so on. If empty, "s". Ids must be distinct, the name of several
	// must be no server's id, and none may begin with "zone:".
	Name string
	// Count is the number of servers. If zero, 1.
	Count int
	// Zone is what the script may call several groups by. If empty, none.
	Zone string

	// Weight is the server's share of the traffic. If zero, 1. If negative, no
	// traffic.
	Weight int
	// Priority is the tier, lower is preferred.
	Priority int
	// MaxInflight bounds a client's calls at once. If zero, unbounded.
	MaxInflight int

	// Workers is how many requests are served at once. If zero, 1. If negative,
	// any number: the server never queues.
	Workers int
	// Queue is how many requests may wait for a worker; one more is answered
	// with a Failure after FailTime. If zero, any number. If negative, none.
	Queue int
	// Service is how long a request keeps its worker. If zero, constant 10ms.
	Service Dist
	// SlowDown makes a service that begins with n others in service longer by n
	// times this share: 0.1 with five others is half as long again. From 0, the
	// default, to 1e6.
	SlowDown float64
	// DropExpired skips requests in the queue whose client has given up.
	DropExpired bool

	// Errors is the share of services that end in a Failure, 0 to 1.
	Errors float64
	// FastFails is the share of requests that are not served and answered with a
	// Failure after FailTime, 0 to 1.
	FastFails float64
	// FailTime is how long a refusal takes. If zero, constant 500µs.
	FailTime Dist
}

// Client is a group of equal clients, each with a Pool of its own. A client is
// open-loop, sending at a rate or at given times whatever the answers are, or
// closed-loop, a number of users of whom each waits for an answer before the
// next request. Exactly one of Rate, Times and Users must be set. A Client is plain
// data and safe for concurrent use while nobody writes to it.
type Client struct {
	// Count is the number of clients. If zero, 1.
	Count int

	// Rate is the number of requests per second of each client, up to 1e9.
	Rate float64
	// Even spaces the requests of Rate evenly, from a random start; otherwise
	// they are a Poisson process.
	Even bool
	// Times are recorded arrivals, counted from the start, in order, such as
	// ReadSamples reads. Those at Duration or later do not happen.
	Times []time.Duration
	// Users makes each client a closed loop of that many users. They begin at
	// a random point of their first Think.
	Users int
	// Think is the pause of a user between an answer and the next request. If
	// zero, none; but a user whose request could not be sent at all waits for a
	// millisecond at least.
	Think Dist

	// Timeout is how long a client waits for one attempt, which then counts as a
	// TransportFailure. If zero, for ever.
	Timeout time.Duration
	// Deadline is how long a client waits for one request, all attempts
	// included. If zero, for ever.
	Deadline time.Duration
	// Target is how fast a success must be to be good. If zero, any success is.
	Target time.Duration

	// Sees is how many of the servers each client knows, a random choice of its
	// own. If zero, all.
	Sees int
	// Keys is the number of affinity keys: each request has one of them, at
	// random. If zero, requests have no key.
	Keys int

	// Skip lists requests that do not happen, by Attempt.Request, in any order:
	// what would have been different without them? Their arrivals pass in silence
	// and all other requests keep their numbers and draws.
	Skip []uint64

	// Checks, if not nil, are the client's active health checks.
	Checks *Checks

	// Pool, if not nil, is used instead of Scenario.Pool.
	Pool *balancer.Config
}

func (s Server) name() string {
	if s.Name == "" {
		return "s"
	}
	return s.Name
}

func (s Server) id(i int) string {
	if s.Count <= 1 {
		return s.name()
	}
	return fmt.Sprintf("%s-%d", s.name(), i)
}

func atLeastOne(n int) int { return max(1, n) }

func (s Scenario) interval() time.Duration {
	if s.Interval == 0 {
		return time.Second
	}
	return s.Interval
}

// Validate reports the first bad setting as a *ConfigError, which names it.
func (s Scenario) Validate() error {
	switch {
	case s.Duration <= 0 || s.Duration > maxTime:
		return bad("Scenario.Duration", s.Duration, "more than 0, at most 48h")
	case s.WarmUp < 0 || s.WarmUp > s.Duration:
		return bad("Scenario.WarmUp", s.WarmUp, "0 to Duration")
	case s.Interval < 0 || s.Duration/s.interval() > 1e6:
		return bad("Scenario.Interval", s.Interval, "0, or at least a millionth of Duration")
	case len(s.Servers) == 0:
		return bad("Scenario.Servers", "empty", "at least one")
	case len(s.Clients) == 0:
		return bad("Scenario.Clients", "empty", "at least one")
	}
	if err := validatePool("Scenario.Pool", s.Pool); err != nil {
		return err
	}
	servers := 0
	for i, v := range s.Servers {
		field := fmt.Sprintf("Scenario.Servers[%d]", i)
		if err := v.validate(field); err != nil {
			return err
		}
		if servers += atLeastOne(v.Count); servers > maxCount {
			return bad("Scenario.Servers", servers, "at most 1048576 in all")
		}
	}
	names, err := newNames(s.Servers)
	if err != nil {
		return err
	}
	pairs := int64(0)
	for i, c := range s.Clients {
		if err := c.validate(fmt.Sprintf("Scenario.Clients[%d]", i), servers); err != nil {
			return err
		}
		// Each client has a Pool, which has something of each server that it sees.
		sees := servers
		if c.Sees > 0 {
			sees = c.Sees
		}
		if pairs += int64(atLeastOne(c.Count)) * int64(max(sees, c.Users)); pairs > maxPairs {
			return bad("Scenario.Clients", pairs, "at most 16777216 pairs of a client and a server or a user of it")
		}
	}
	for i, c := range s.Script {
		field := fmt.Sprintf("Scenario.Script[%d]", i)
		if err := c.validate(field, s.Duration, names); err != nil {
			return err
		}
		if err := c.stray(field); err != nil {
			return err
		}
	}
	return nil
}

// stray reports a setting that means nothing for the Change's kind: who wrote it
// expects something else of it.
func (c Change) stray(field string) error {
	none := "for a " + c.Kind.String()
	k := c.Kind
	switch {
	case k == Surge && c.Servers != "":
		return bad(field+".Servers", fmt.Sprintf("%q", c.Servers), "empty "+none)
	case k == Surge && c.First != 0:
		return bad(field+".First", c.First, "0 "+none)
	case k == Brownout && c.Factor != 0 && !c.Service.isZero():
		return bad(field+".Factor", c.Factor, "0 beside a Service")
	case k != Brownout && k != ColdStart && k != Surge && c.Factor != 0:
		return bad(field+".Factor", c.Factor, "0 "+none)
	case k != Errors && k != Sinkhole && k != Refusals && c.Share != 0:
		return bad(field+".Share", c.Share, "0 "+none)
	case k != Brownout && k != Sinkhole && k != Refusals && !c.Service.isZero():
		return bad(field+".Service", c.Service, "none "+none)
	case k != Flapping && k != Roll && k != ColdStart && c.Every != 0:
		return bad(field+".Every", c.Every, "0 "+none)
	}
	return nil
}

func validatePool(field string, c balancer.Config) error {
	if c.Clock != nil {
		return bad(field+".Clock", fmt.Sprintf("%T", c.Clock), "nil: the simulation has its own")
	}
	// A back-off needs a clock with timers, which the simulation's is.
	c.Clock = zeroClock
	if err := c.Validate(); err != nil {
		return &ConfigError{Field: field, Err: err}
	}
	return nil
}

func (s Server) validate(field string) error {
	switch {
	case !utf8.ValidString(s.Name):
		return bad(field+".Name", fmt.Sprintf("%q", s.Name), "valid UTF-8")
	case strings.HasPrefix(s.Name, zonePrefix):
		return bad(field+".Name", fmt.Sprintf("%q", s.Name), "another beginning: that is how a Change names a zone")
	case !utf8.ValidString(s.Zone):
		return bad(field+".Zone", fmt.Sprintf("%q", s.Zone), "valid UTF-8")
	case s.Count < 0 || s.Count > maxCount:
		return bad(field+".Count", s.Count, "0 to 1048576")
	case s.Weight > 1<<20:
		return bad(field+".Weight", s.Weight, "at most 1048576")
	case s.Priority < 0 || s.Priority > maxSmall:
		return bad(field+".Priority", s.Priority, "0 to 1073741824")
	case s.MaxInflight < 0 || s.MaxInflight > maxSmall:
		return bad(field+".MaxInflight", s.MaxInflight, "0 to 1073741824")
	case !(s.SlowDown >= 0 && s.SlowDown <= maxFactor):
		return bad(field+".SlowDown", s.SlowDown, "0 to 1e6")
	case !(s.Errors >= 0 && s.Errors <= 1):
		return bad(field+".Errors", s.Errors, "0 to 1")
	case !(s.FastFails >= 0 && s.FastFails <= 1):
		return bad(field+".FastFails", s.FastFails, "0 to 1")
	}
	if err := s.Service.validate(field + ".Service"); err != nil {
		return err
	}
	return s.FailTime.validate(field + ".FailTime")
}

func (c Client) validate(field string, servers int) error {
	kinds := 0
	for _, set := range []bool{c.Rate != 0, len(c.Times) > 0, c.Users != 0} {
		if set {
			kinds++
		}
	}
	switch {
	case c.Count < 0 || c.Count > maxCount:
		return bad(field+".Count", c.Count, "0 to 1048576")
	case !(c.Rate >= 0 && c.Rate <= maxRate):
		return bad(field+".Rate", c.Rate, "0 to 1e9")
	case c.Rate > 0 && c.Rate < 1e-5:
		return bad(field+".Rate", c.Rate, "at least 1e-5")
	case c.Users < 0 || c.Users > maxCount:
		return bad(field+".Users", c.Users, "0 to 1048576")
	case kinds != 1:
		return bad(field, fmt.Sprintf("a client with %d of Rate, Times and Users", kinds), "exactly one")
	case c.Timeout < 0 || c.Timeout > maxTime:
		return bad(field+".Timeout", c.Timeout, "0 to 48h")
	case c.Deadline < 0 || c.Deadline > maxTime:
		return bad(field+".Deadline", c.Deadline, "0 to 48h")
	case c.Target < 0:
		return bad(field+".Target", c.Target, ">= 0")
	case c.Sees < 0 || c.Sees > servers:
		return bad(field+".Sees", c.Sees, fmt.Sprintf("0 to the number of servers, %d", servers))
	case c.Keys < 0:
		return bad(field+".Keys", c.Keys, ">= 0")
	}
	for i, t := range c.Times {
		if t < 0 || i > 0 && t < c.Times[i-1] {
			return bad(fmt.Sprintf("%s.Times[%d]", field, i), t, ">= 0 and in order")
		}
	}
	if c.Pool != nil {
		if err := validatePool(field+".Pool", *c.Pool); err != nil {
			return err
		}
	}
	if c.Checks != nil {
		if err := c.Checks.validate(field + ".Checks"); err != nil {
			return err
		}
	}
	return c.Think.validate(field + ".Think")
}
