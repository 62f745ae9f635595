package sim

import (
	"fmt"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/health"
)

// defaultAnswer is how long a shallow probe takes to pass.
const defaultAnswer = time.Millisecond

// Checks are the active health checks of a client: it probes each server that it
// sees, judges the answers by a health.Core for each of them, and tells its Pool
// by SetHealth whenever a verdict changes. If Config.Outlier.ProbeEnds of its
// Pool is set, it also does so for every probe that a healthy server passes,
// which is what ends an ejection early.
//
// The Pool's StartUnhealthy follows Probe.StartHealthy, whatever it was: a check
// that begins without a verdict begins with the server out.
//
// What a probe of number n of a client and a server draws depends on those three
// alone, and no request draws any of it. Shallow probes change nothing but the
// verdicts; deep ones are work for the servers too. A server that the script
// takes out of the Pools is not probed meanwhile, and is a new one when it is
// back.
//
// The zero Checks is ready to use. It is plain data and safe for concurrent use
// while nobody writes to it.
type Checks struct {
	// Probe says when the probes are due and how the answers are judged; its
	// times are at most 48h. If zero, as the zero health.Config says: every 10s,
	// three failures to go out, two passes to come back.
	Probe health.Config

	// Spread begins each grid of probes at a point of its own within the first
	// Probe.Interval, at random. If false, all of a client's servers are probed
	// at the same instants.
	Spread bool

	// Deep sends the probe through the server as a request is sent: it may find a
	// queue, takes a worker, and ends as a request would. A shallow probe asks
	// only whether somebody is there. It is refused by a server that is down,
	// after the server's FailTime, or fails when the server goes down; it has no
	// answer from one that is a black hole, nor from one that has stalled until that
	// is over; and it passes in all other cases.
	Deep bool

	// Answer is how long a shallow probe takes to pass. If zero, constant 1ms. With
	// Deep it must be zero.
	Answer Dist
}

func (c *Checks) validate(field string) error {
	if err := c.Probe.Validate(); err != nil {
		return &ConfigError{Field: field + ".Probe", Err: err}
	}
	p := &c.Probe
	switch {
	case p.Interval > maxTime:
		return bad(field+".Probe.Interval", p.Interval, "0 to 48h")
	case p.Timeout > maxTime:
		return bad(field+".Probe.Timeout", p.Timeout, "0 to 48h")
	case p.SlowAfter > maxTime:
		return bad(field+".Probe.SlowAfter", p.SlowAfter, "0 to 48h")
	case c.Deep && !c.Answer.isZero():
		return bad(field+".Answer", c.Answer, "none for deep probes")
	}
	return c.Answer.validate(field + ".Answer")
}

// check is what one client knows of the health of one server. Between its probes
// one event of it is in the queue, the next probe.
type check struct {
	core     health.Core
	probe    health.Probe // the latest
	key      uint64       // of the draws: probe n draws from mix(key + n*golden)
	sent     uint64       // probes so far, in all lives of the server
	failures uint64       // of this life's, that are counted
	client   uint32
	server   uint32
	epoch    uint32 // grows when the server is taken out, and voids what was scheduled
	attempt  uint32 // of the probe that is out, or nobody
	on       bool   // the server is in the Pool
}

// addChecks makes the checks of a client, which begin with followRoll.
func (m *machine) addChecks(c *client) {
	c.checks = len(m.checks)
	if c.Checks == nil {
		return
	}
	c.answer = newSampler(c.Checks.Answer, Constant(defaultAnswer))
	salt := saltOf(c.salt, streamProbe)
	for _, si := range c.sees {
		m.checks = append(m.checks, check{
			key: mix(salt ^ m.servers[si].key), client: c.index, server: uint32(si), attempt: nobody,
		})
	}
}

// followRoll begins the checks of servers that are in the client's Pool and ends
// those of servers that have been taken out.
func (m *machine) followRoll(c *client) {
	if c.Checks == nil {
		return
	}
	for i := range c.sees {
		ki := uint32(c.checks + i)
		k := &m.checks[ki]
		switch out := m.effects[k.server].out; {
		case out && k.on:
			k.on = false
			k.epoch++
			m.forget(k)
		case !out && !k.on:
			k.on, k.failures = true, 0
			from := m.now
			if c.Checks.Spread {
				// Probes count from 1, so the draw of 0 is free for this.
				from += int64(below(mix(k.key), uint64(gridOf(c.Checks.Probe))))
			}
			k.core = health.NewCore(c.Checks.Probe, from)
			m.pushProbe(k.core.NextProbe(), evProbe, ki)
		}
	}
}

// gridOf is the interval between probes. What it is by default only a health.Core
// knows, so one is asked.
func gridOf(cfg health.Config) int64 {
	cfg.First = health.AfterInterval
	k := health.NewCore(cfg, 0)
	return k.NextProbe()
}

// pushProbe schedules an event that no request waits for.
func (m *machine) pushProbe(at int64, kd kind, ki uint32) {
	m.quiet++
	m.push(at, kd, ki, m.checks[ki].epoch)
}

// probe sends a probe. It is due: a check has one evProbe at a time in the queue,
// and none while a probe is out.
func (m *machine) probe(ki uint32) {
	k := &m.checks[ki]
	c := &m.clients[k.client]
	k.probe, _, _, _ = k.core.Begin(m.now)
	k.sent++
	m.out.Servers[k.server].Probes++
	// The limit goes first: an answer at the deadline itself is too late.
	m.pushProbe(k.probe.Deadline, evProbeEnd, ki)
	ai := m.newAttempt()
	k.attempt = ai
	a := &m.attempts[ai]
	a.sent, a.request, a.server, a.measured = m.now, ki, k.server, m.now >= m.warm
	a.probe, a.shallow = true, !c.Checks.Deep
	a.key = mix(k.key + k.sent*golden)
	m.receive(ai)
}

// endProbe is the deadline of a probe. Its event stays in the queue when the probe
// is answered, and finds none out, or a later one.
func (m *machine) endProbe(ki uint32) {
	k := &m.checks[ki]
	if k.attempt != nobody && m.now >= k.probe.Deadline {
		m.forget(k)
		m.judge(ki, false)
	}
}

// forget ends a check's interest in the probe that is out. The server goes
// on with it, as with a request that was given up.
func (m *machine) forget(k *check) {
	if k.attempt == nobody {
		return
	}
	a := &m.attempts[k.attempt]
	a.request = nobody
	if a.place == placeHole {
		m.release(k.attempt)
	}
	k.attempt = nobody
}

// probed ends a probe with what the server made of it, if anybody waits for that.
func (m *machine) probed(ai uint32, o balancer.Outcome) {
	a := &m.attempts[ai]
	ki := a.request
	if ki == nobody {
		return
	}
	a.request = nobody
	m.checks[ki].attempt = nobody
	m.judge(ki, o == balancer.Success)
}

// judge records how the probe that was out has ended, tells the Pool, and
// schedules the next one.
func (m *machine) judge(ki uint32, ok bool) {
	k := &m.checks[ki]
	c := &m.clients[k.client]
	change, changed := k.core.Record(m.now, k.probe, ok)
	failures := k.core.Counts(m.now).Failures
	failed := failures > k.failures
	m.out.Servers[k.server].ProbeFailures += failures - k.failures
	k.failures = failures
	healthy := k.core.Healthy(m.now)
	reason := ""
	switch {
	case changed:
		reason = fmt.Sprintf("probe %v", change.Last)
	case c.probeEnds && healthy && !failed:
		reason = "probe passed"
	}
	if reason != "" {
		m.sync()
		// A server that is checked is a member.
		if err := c.pool.SetHealth(m.nodes[k.server].id, healthy, reason); err != nil {
			panic(err)
		}
	}
	m.pushProbe(k.core.NextProbe(), evProbe, ki)
}

// over tells whether nothing is left that a request could wait for, where only
// events of checks are in the queue: a request that waits behind a deep probe
// is served when that has ended, also if its client has given up.
func (m *machine) over() bool {
	for i := range m.servers {
		if m.effects[i].stalled {
			continue
		}
		for ai := m.servers[i].line.head; ai != nobody; ai = m.attempts[ai].next {
			if !m.attempts[ai].probe {
				return false
			}
		}
	}
	return true
}
