// Replay records an incident of real HTTP traffic and replays it.
//
// It starts three HTTP servers on loopback and sends them requests, several at
// once, through a balancerhttp.Transport whose Pool is recorded. Server B then
// answers 503 for a while and is mended. The recording is written to a file, read
// back and verified: a new Pool, on a clock moved by hand, is fed what the real
// one was fed and must decide the same, event by event. At last the file is drawn,
// a lane for each server. If the replay differs anywhere, the exit status is 1.
//
//	go run ./examples/replay
//	go run ./examples/replay -file incident.jsonl
//
// With -verify it records nothing: it verifies and draws a file that is there.
//
//	go run ./examples/replay -verify balancer/incident/testdata/fallback.jsonl
//
// With -shrink it leaves out of that file what did not matter for a change of
// state and prints the rest, a file again:
//
//	go run ./examples/replay -verify pool.jsonl -shrink "ejected west-1"
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/balancerhttp"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/outlier"
)

func main() {
	opt := options{}
	flag.StringVar(&opt.file, "file", "", "where to write the recording; by default in a new temporary directory")
	flag.DurationVar(&opt.phase, "phase", time.Second, "how long each of the three phases lasts")
	flag.IntVar(&opt.workers, "workers", 4, "requests at once")
	verify := flag.String("verify", "", "a recording to verify and draw, instead of making one")
	event := flag.String("shrink", "", "of the recording to verify, print only what it takes for this event, such as ejected or \"opened b\"")
	flag.Parse()
	act := func() error { return run(os.Stdout, opt) }
	switch {
	case *event != "":
		act = func() error { return shrink(os.Stdout, *verify, *event) }
	case *verify != "":
		act = func() error { return check(os.Stdout, *verify) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

type options struct {
	file    string
	phase   time.Duration
	workers int
}

func run(out io.Writer, opt options) error {
	servers := make([]*server, 3)
	urls := make([]string, len(servers))
	for i := range servers {
		s, err := start()
		if err != nil {
			return err
		}
		defer s.http.Close()
		servers[i], urls[i] = s, s.url
		fmt.Fprintf(out, "server %c is %s\n", 'A'+i, s.url)
	}

	// A dump is at hand when something goes wrong; a service would write it away.
	var first atomic.Pointer[incident.Incident]
	recorder := incident.NewRecorder(incident.Config{
		Options:   incident.Options{Note: "server B answers 503 for a while"},
		OnTrigger: func(i incident.Incident) { first.CompareAndSwap(nil, &i) },
	})
	transport, err := balancerhttp.NewTransport(balancerhttp.Config{
		Pool: balancer.Config{
			// Everybody takes turns and ejections are short, so that much is to be seen
			// and soon over.
			Policy:  balancer.RoundRobin{},
			Outlier: outlier.Config{Base: opt.phase / 3},
			Breaker: breaker.Config{ConsecutiveFailures: 10, OpenFor: opt.phase / 3},
			OnEvent: recorder.OnEvent,
		},
	}, urls...)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()

	// The recorder comes in while requests are in flight.
	var group sync.WaitGroup
	var stop atomic.Bool
	var sent, failed atomic.Int64
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	for range opt.workers {
		group.Go(func() {
			for !stop.Load() {
				sent.Add(1)
				if err := get(client); err != nil {
					failed.Add(1)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	time.Sleep(opt.phase / 10)
	recorder.Attach(transport.Pool())
	for _, broken := range []bool{false, true, false} {
		servers[1].broken.Store(broken)
		time.Sleep(opt.phase)
	}
	recorder.Close()
	stop.Store(true)
	group.Wait()

	name := opt.file
	if name == "" {
		// A name that others could guess, in a directory that is theirs too, might be
		// a link of theirs.
		dir, err := os.MkdirTemp("", "evenkeel-")
		if err != nil {
			return err
		}
		name = filepath.Join(dir, "incident.jsonl")
	}
	if err := recorder.WriteFile(name); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d requests, %d failed for their caller; recorded in %s\n", sent.Load(), failed.Load(), name)
	if i := first.Load(); i != nil {
		fmt.Fprintf(out, "the first trigger was %q\n", i.Reason)
	}
	return check(out, name)
}

// check verifies a file and draws it.
func check(out io.Writer, name string) error {
	file, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	r, err := incident.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	// The configuration, too, is in the file.
	cfg, err := r.Header().Config()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := incident.Verify(r, cfg); err != nil {
		return err
	}
	fmt.Fprintf(out, "verified: %d lines replay to the same decisions, in %v\n\n", r.Line(), time.Since(began).Round(time.Millisecond))
	if r, err = incident.NewReader(bytes.NewReader(file)); err != nil {
		return err
	}
	return incident.Timeline(out, r, incident.TimelineOptions{})
}

// shrink prints the smallest file like that one in which the event still happens.
func shrink(out io.Writer, name, event string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	file, err := incident.Read(in)
	if err != nil {
		return err
	}
	cfg, err := file.Header.Config()
	if err != nil {
		return err
	}
	kind, upstream, _ := strings.Cut(event, " ")
	small, err := incident.Shrink(context.Background(), file, cfg, func(f *incident.File) bool {
		return slices.ContainsFunc(f.Lines, func(l incident.Line) bool {
			return l.Kind == incident.EvState && l.Event.String() == kind && (upstream == "" || upstream == l.Upstream)
		})
	})
	if err != nil {
		return err
	}
	return incident.Copy(out, small.Reader())
}

func get(client *http.Client) error {
	// The host stands for the service; the Transport knows the servers.
	resp, err := client.Get("http://documents/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// server is a real HTTP server that can be broken.
type server struct {
	url    string
	broken atomic.Bool
	http   http.Server
}

func start() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String()}
	s.http.Handler = s
	go s.http.Serve(l) // until Close
	return s, nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if s.broken.Load() {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "a document")
}
