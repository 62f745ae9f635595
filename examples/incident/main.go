// Incident plays two scripted incidents on a clock that is moved by hand and
// prints what the Pool does about them: every request's trail, every change of
// state, what is known of each upstream, and the whole incident as lanes. The
// same seed prints the same bytes, on every machine.
//
//	go run ./examples/incident
//	go run ./examples/incident -seed 42
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancertest"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/preset"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/hashring"
)

func main() {
	seed := flag.Uint64("seed", 7, "seed of every random draw; not 0")
	flag.Parse()
	if *seed == 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	if err := run(out, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "incident:", err)
		os.Exit(1)
	}
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "incident:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, seed uint64) error {
	if err := scripted(w, seed); err != nil {
		return err
	}
	return drawn(w, seed)
}

// stage is one incident: a clock, a Pool of scripted upstreams, and a writer.
type stage struct {
	w     io.Writer
	clk   *clock.Manual
	start time.Time
	pool  *balancer.Pool[*balancertest.Upstream]
	tape  *balancer.Tape
}

func newStage(w io.Writer, cfg balancer.Config, ups ...*balancertest.Upstream) (*stage, error) {
	s := &stage{w: w, start: time.Unix(0, 0).UTC()}
	s.clk = clock.NewManual(s.start)
	cfg.Clock = s.clk
	cfg.OnEvent = func(e balancer.Event) {
		if e.Kind == balancer.UpstreamJoined {
			return
		}
		what := fmt.Sprintf("%s %s", e.Upstream, e.Kind)
		if !e.Until.IsZero() {
			what += fmt.Sprintf(" until %d ms", e.Until.Sub(s.start).Milliseconds())
		}
		fmt.Fprintf(w, "  %5d ms  * %s\n", e.At.Sub(s.start).Milliseconds(), what)
	}
	pool, err := balancer.NewPool(cfg, ups...)
	if err != nil {
		return nil, err
	}
	s.pool, s.tape = pool, balancer.NewTape(1<<16)
	pool.Attach(s.tape)
	return s, nil
}

// lanes draws what has happened, a lane for each upstream.
func (s *stage) lanes(note string) error {
	rec := incident.FromRecording(s.tape.Dump(), s.pool.Config(), incident.Options{Note: note})
	if err := incident.Timeline(s.w, rec, incident.TimelineOptions{Captions: 8}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.w)
	return err
}

// send sends one request and prints its trail.
func (s *stage) send(path string) {
	at := s.clk.Now().Sub(s.start).Milliseconds()
	t := balancertest.Send(s.pool, balancer.Request{})
	fmt.Fprintf(s.w, "  %5d ms  %d %s -> shop  [%s]\n", at, t.Status(), path, t)
}

func (s *stage) table() {
	fmt.Fprintf(s.w, "\n  %-6s %8s %7s %10s %9s %8s\n", "node", "healthy", "in_fl", "breaker", "ejected", "served")
	for _, u := range s.pool.Snapshot().Upstreams {
		ejected := "no"
		if u.Ejected {
			ejected = "yes"
		}
		fmt.Fprintf(s.w, "  %-6s %8t %7d %10s %9s %8d\n", u.ID, u.Healthy, u.Inflight, u.Breaker, ejected, u.Served)
	}
	fmt.Fprintln(s.w)
}

// scripted is the demonstration of the Echofront engine, act by act: C answers
// three times, fails five times, and is well again.
func scripted(w io.Writer, seed uint64) error {
	cfg := preset.EchofrontDemo()
	cfg.Seed = seed
	c := balancertest.New("C")
	c.PushN(3, balancertest.Status(200))
	c.PushN(5, balancertest.Status(503))
	s, err := newStage(w, cfg, balancertest.New("A"), balancertest.New("B"), c)
	if err != nil {
		return err
	}
	acts := []struct {
		title string
		pause time.Duration
		path  string
		n     int
	}{
		{"1. Three upstreams share the traffic of 'shop' in turn.", 0, "/catalog?p=%d", 6},
		{"2. C starts to fail. Each failed request goes on to another upstream; the third failure in a row ejects C, its breaker still closed.", 0, "/checkout?o=%d", 15},
		{"3. The ejection is over and C gets traffic again, still failing: after five failures in a row the breaker opens.", 2600 * time.Millisecond, "/cart?i=%d", 15},
		{"4. The open time is over. C is well, two trials prove it, and the breaker closes.", 3100 * time.Millisecond, "/catalog?r=%d", 15},
	}
	for _, act := range acts {
		fmt.Fprintf(w, "%s\n\n", act.title)
		s.clk.Advance(act.pause)
		for i := range act.n {
			s.clk.Advance(50 * time.Millisecond)
			s.send(fmt.Sprintf(act.path, i))
		}
		s.table()
	}
	snap := s.pool.Snapshot()
	t := snap.Totals
	fmt.Fprintf(w, "  totals: requests %d, retries %d, failovers %d, retry tokens left %.1f\n\n", t.Requests, t.Retries, t.Failovers, snap.Tokens)
	return s.lanes("The four acts, seen from above.")
}

// drawn is a rougher incident under the zero Config: four upstreams under
// steady load, whose answers take 5 to 15 ms, drawn by the seed. B refuses
// every connection within a millisecond for ten seconds - to a balancer that
// looks at latency or load alone it would be the best of all - and later D
// takes twenty times as long.
func drawn(w io.Writer, seed uint64) error {
	fmt.Fprintf(w, "5. Under the zero Config, seed %d, 200 requests a second: B refuses connections from 10 s to 20 s, D is 20 times slower from 40 s to 50 s.\n\n", seed)
	d := &load{seed: seed, ups: []*balancertest.Upstream{
		balancertest.New("A"), balancertest.New("B"), balancertest.New("C"), balancertest.New("D"),
	}}
	s, err := newStage(w, balancer.Config{Seed: seed}, d.ups...)
	if err != nil {
		return err
	}
	const every = 5 * time.Millisecond
	for at := every; at <= 75*time.Second; at += every {
		s.clk.AdvanceTo(s.start.Add(at))
		d.request(s, at)
		if at%(5*time.Second) == 0 {
			snap := s.pool.Snapshot()
			fmt.Fprintf(w, "  %5d ms  answered by A %3d, B %3d, C %3d, D %3d; slower than 100 ms %2d; retried %2d; failed %d\n",
				at.Milliseconds(), d.sent[0], d.sent[1], d.sent[2], d.sent[3], d.slow, snap.Totals.Retries-d.retries, d.failed)
			d.sent, d.slow, d.retries, d.failed = [4]int{}, 0, snap.Totals.Retries, 0
		}
	}
	// Let the answers that are still on their way arrive.
	s.clk.Advance(time.Second)
	s.table()
	return s.lanes("B refuses connections, D slows down.")
}

// load is the traffic of the drawn incident and what came of it since the
// latest line.
type load struct {
	seed    uint64
	ups     []*balancertest.Upstream
	sent    [4]int
	slow    int
	failed  int
	retries uint64
	drawn   uint64
}

// request starts one request; its answers come by the clock.
func (d *load) request(s *stage, at time.Duration) {
	try := s.pool.Start(balancer.Request{})
	var next func()
	next = func() {
		step := try.Next()
		if step.Kind != balancer.StepSend {
			if step.End != balancer.EndAnswered {
				d.failed++
			}
			return
		}
		who := 0
		for d.ups[who] != step.Lease.Upstream() {
			who++
		}
		took, outcome := d.service(), balancer.Success
		switch {
		case who == 1 && at >= 10*time.Second && at < 20*time.Second:
			took, outcome = time.Millisecond, balancer.TransportFailure
		case who == 3 && at >= 40*time.Second && at < 50*time.Second:
			took *= 20
		}
		s.clk.AfterFunc(took, func() {
			if outcome == balancer.Success {
				d.sent[who]++
				if took > 100*time.Millisecond {
					d.slow++
				}
			}
			try.Done(balancer.Report{Outcome: outcome})
			next()
		})
	}
	next()
}

// service draws how long an answer takes: 5 to 15 ms.
func (d *load) service() time.Duration {
	d.drawn++
	x := hashring.KeyUint64(d.seed ^ hashring.KeyUint64(d.drawn))
	return 5*time.Millisecond + time.Duration(x%uint64(10*time.Millisecond))
}
