// Client shows what a caller notices of a server that breaks: nothing.
//
// It starts three HTTP servers on loopback and sends requests to them through
// an http.Client whose Transport is a balancerhttp.Transport. Then server B
// begins to answer 503, then to close connections without an answer, and then
// it is mended. For each phase a table says how many requests each server was
// sent, how many of them failed, how many were sent again elsewhere, and what
// the caller saw. The requests are GETs and PUTs, which may be sent twice; if
// the caller sees one of them fail, the exit status is 1.
//
//	go run ./examples/client
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

func main() {
	opt := options{}
	flag.Uint64Var(&opt.seed, "seed", 1, "seed of the balancer's random draws")
	flag.IntVar(&opt.requests, "requests", 90, "requests per phase")
	flag.DurationVar(&opt.ejection, "ejection", 300*time.Millisecond, "how long a server's first ejection lasts")
	flag.Parse()
	if err := run(os.Stdout, opt); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

type options struct {
	seed     uint64
	requests int
	ejection time.Duration
}

// phases are what becomes of server B, one after the other.
var phases = []struct {
	name string
	mode mode
}{
	{"all is well", healthy},
	{"B answers 503", unavailable},
	{"B hangs up", closing},
	{"B is mended", healthy},
}

func run(out io.Writer, opt options) error {
	servers := make([]*server, 3)
	urls := make([]string, len(servers))
	for i := range servers {
		s, err := start(string(rune('A' + i)))
		if err != nil {
			return err
		}
		defer s.stop()
		servers[i], urls[i] = s, s.url
	}

	var ev events
	transport, err := balancerhttp.NewTransport(balancerhttp.Config{
		// A service would leave nearly all of this at its default. Here everybody
		// takes turns and ejections are short, so that the table is easy to read and
		// soon there.
		Pool: balancer.Config{
			Policy:  balancer.RoundRobin{First: true},
			Seed:    opt.seed,
			Outlier: outlier.Config{Base: opt.ejection},
			Breaker: breaker.Config{ConsecutiveFailures: 10, OpenFor: opt.ejection},
			OnEvent: ev.add,
		},
	}, urls...)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	ev.expect(servers)
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}

	b := servers[1]
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "phase\tserver\tsent\tfailed\tsent again\tejected\tthe caller saw")
	bad, last := 0, 0
	for _, p := range phases {
		// A phase begins when B is in use, whatever the phase before has done to it.
		if err := await(transport.Pool(), b.url, 10*time.Second); err != nil {
			return err
		}
		b.mode.Store(int32(p.mode))
		ev.phase(p.name)
		t := tally{sent: map[string]int{}, failed: map[string]int{}, again: map[string]int{}}
		for i := range opt.requests {
			t.request(client, i)
		}
		for i, s := range servers {
			phase, saw := "", ""
			if i == 0 {
				phase, saw = p.name, fmt.Sprintf("%d of %d answered", opt.requests-t.bad, opt.requests)
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n",
				phase, s.name, t.sent[s.url], t.failed[s.url], t.again[s.url], times(ev.ejections(s)), saw)
		}
		bad, last = bad+t.bad, t.sent[b.url]
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nWhat happened to the servers:\n%s", ev.text())

	switch {
	case bad > 0:
		return fmt.Errorf("%d requests failed that could have been sent again", bad)
	case last == 0:
		return fmt.Errorf("server B is mended and gets nothing")
	}
	return nil
}

// tally counts one phase: attempts by server, and requests that failed for the
// caller.
type tally struct {
	sent, failed, again map[string]int
	bad                 int
}

// request makes one request, every third of which is a PUT.
func (t *tally) request(client *http.Client, i int) {
	var res balancer.Result
	ctx := balancerhttp.WithRequest(context.Background(), balancer.Request{Result: &res})
	method, text := http.MethodGet, ""
	if i%3 == 2 {
		method, text = http.MethodPut, fmt.Sprintf("document %d", i)
	}
	// The host stands for the service; the Transport knows the servers.
	req, err := http.NewRequestWithContext(ctx, method, "http://documents/", strings.NewReader(text))
	if err == nil {
		err = expect(client, req, text)
	}
	if err != nil {
		t.bad++
	}
	for n, a := range res.Attempts {
		t.sent[a.Upstream]++
		if a.Outcome != balancer.Success {
			t.failed[a.Upstream]++
		}
		if n+1 < len(res.Attempts) {
			t.again[a.Upstream]++
		}
	}
}

// expect sends a request and wants its body back.
func expect(client *http.Client, req *http.Request, text string) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %s", resp.Status)
	case string(got) != text:
		return fmt.Errorf("got %q back", got)
	}
	return nil
}

// await waits until the upstream may be picked. Nothing in a Pool runs by
// itself: it says when time will next change something, and Poll has it happen.
func await(pool *balancer.Pool[*balancerhttp.Upstream], id string, most time.Duration) error {
	for end := time.Now().Add(most); time.Now().Before(end); {
		pool.Poll()
		for _, u := range pool.Snapshot().Upstreams {
			if u.ID == id && u.Selectable {
				return nil
			}
		}
		next, ok := pool.NextChange()
		if !ok {
			break
		}
		time.Sleep(min(max(time.Until(next), time.Millisecond), time.Until(end)))
	}
	return fmt.Errorf("%s does not come back", id)
}

// mode is how a server behaves.
type mode int32

const (
	healthy mode = iota
	unavailable
	closing
)

// server is a real HTTP server that can be told to misbehave.
type server struct {
	name, url string
	mode      atomic.Int32
	http      http.Server
}

func start(name string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{name: name, url: "http://" + l.Addr().String()}
	s.http.Handler = s
	go s.http.Serve(l) // until stop
	return s, nil
}

func (s *server) stop() { s.http.Close() }

// ServeHTTP sends the body back, or does what the mode says.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch mode(s.mode.Load()) {
	case unavailable:
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	case closing:
		panic(http.ErrAbortHandler) // the connection is closed, without a word in the log
	default:
		io.Copy(w, r.Body)
	}
}

// events collects what the Pool reports.
type events struct {
	mu      sync.Mutex
	names   map[string]string // of the servers, by URL
	lines   []string
	ejected map[string]int // in this phase, by URL
}

// expect tells the servers' names and forgets what there was before.
func (e *events) expect(servers []*server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names, e.lines = map[string]string{}, nil
	for _, s := range servers {
		e.names[s.url] = s.name
	}
}

func (e *events) phase(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, name)
	e.ejected = map[string]int{}
}

func (e *events) add(ev balancer.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.Kind == balancer.UpstreamEjected {
		e.ejected[ev.Upstream]++
	}
	line := fmt.Sprintf("  %s %s", e.names[ev.Upstream], ev.Kind)
	if ev.Rule != "" && ev.Rule != "none" {
		line += " (" + ev.Rule + ")"
	}
	if !ev.Until.IsZero() {
		line += fmt.Sprintf(" for %v", ev.Until.Sub(ev.At).Round(time.Millisecond))
	}
	e.lines = append(e.lines, line)
}

func (e *events) ejections(s *server) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ejected[s.url]
}

func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.lines, "\n") + "\n"
}

// times writes a count, none as a dash.
func times(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
