// Whatif asks what a configuration would do in an incident: it runs a scenario
// from a file in the simulator, once as it is written and once with the change
// that the flags ask for, prints both beside each other, and draws what the Pool
// of one client saw.
//
//	go run ./examples/whatif                          # the incident in checkout.jsonl
//	go run ./examples/whatif -policy round_robin      # and with that policy
//	go run ./examples/whatif -without breaker,ejection,retry,budget
//	go run ./examples/whatif -scenario my.jsonl -record pool.jsonl
//
// What -record writes can be verified and drawn again, and so can what a
// Recorder wrote of a real Pool. Either may be the traffic of a scenario:
//
//	go run ./examples/replay -verify pool.jsonl
//	go run ./examples/whatif -recording pool.jsonl -policy round_robin
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

//go:embed checkout.jsonl
var checkout []byte

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "", "the file of the scenario; if empty, one that comes with the program")
	flag.StringVar(&o.recording, "recording", "", "a file of package incident to make the scenario of, instead")
	flag.StringVar(&o.policy, "policy", "", "a policy to try, such as round_robin or p2c_ewma")
	flag.StringVar(&o.without, "without", "", "what to switch off, with commas between: breaker, ejection, retry, budget")
	flag.IntVar(&o.client, "client", 0, "the client whose Pool is drawn")
	flag.StringVar(&o.record, "record", "", "where to write what that Pool did")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "whatif: %q: see -help for the flags\n", flag.Args())
		os.Exit(2)
	}
	if err := run(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "whatif:", err)
		os.Exit(1)
	}
}

type options struct {
	scenario, recording, policy, without, record string
	client                                       int
}

func run(out io.Writer, o options) error {
	written, err := scenario(o)
	if err != nil {
		return err
	}
	changed, title, err := change(written, o)
	if err != nil {
		return err
	}
	// What is drawn comes first: it knows of every mistake.
	var pool bytes.Buffer
	drawn, err := sim.Record(changed, o.client, &pool)
	if err != nil {
		return err
	}
	if o.record != "" {
		if err := os.WriteFile(o.record, pool.Bytes(), 0o666); err != nil {
			return err
		}
	}
	names, results := []string{"as written"}, []sim.Result{drawn}
	if title != "" {
		r, err := sim.Run(written)
		if err != nil {
			return err
		}
		names, results = append(names, title), []sim.Result{r, drawn}
	}
	if err := compare(out, names, results); err != nil {
		return err
	}
	r, err := incident.NewReader(&pool)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nclient %d, %s:\n", o.client, names[len(names)-1])
	return incident.Timeline(out, r, incident.TimelineOptions{Captions: 20})
}

// scenario is what the flags name.
func scenario(o options) (sim.Scenario, error) {
	switch {
	case o.scenario != "" && o.recording != "":
		return sim.Scenario{}, errors.New("either -scenario or -recording")
	case o.recording != "":
		in, err := os.Open(o.recording)
		if err != nil {
			return sim.Scenario{}, err
		}
		defer in.Close()
		r, err := incident.NewReader(in)
		if err != nil {
			return sim.Scenario{}, err
		}
		return sim.Fit(r, sim.FitConfig{})
	case o.scenario != "":
		in, err := os.Open(o.scenario)
		if err != nil {
			return sim.Scenario{}, err
		}
		defer in.Close()
		return sim.Read(in)
	}
	return sim.Read(bytes.NewReader(checkout))
}

// change returns the scenario as the flags want it, and what was changed. A
// client with a configuration of its own is changed too.
func change(s sim.Scenario, o options) (sim.Scenario, string, error) {
	var done []string
	var set []func(*balancer.Config)
	if o.policy != "" {
		p, err := balancer.ParsePolicy(o.policy)
		if err != nil {
			return s, "", err
		}
		set = append(set, func(c *balancer.Config) { c.Policy = p })
		done = append(done, p.Name())
	}
	off := map[string]func(*balancer.Config){
		"breaker":  func(c *balancer.Config) { c.Breaker.Off = true },
		"ejection": func(c *balancer.Config) { c.Outlier.Off = true },
		"retry":    func(c *balancer.Config) { c.Retry.Off = true },
		"budget":   func(c *balancer.Config) { c.Budget.Off = true },
	}
	for name := range strings.SplitSeq(o.without, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if off[name] == nil {
			return s, "", fmt.Errorf("-without %s: want breaker, ejection, retry or budget", name)
		}
		set = append(set, off[name])
		done = append(done, "no "+name)
	}
	s.Clients = slices.Clone(s.Clients)
	for _, f := range set {
		f(&s.Pool)
		for i := range s.Clients {
			if c := &s.Clients[i]; c.Pool != nil {
				own := *c.Pool
				c.Pool = &own
				f(c.Pool)
			}
		}
	}
	return s, strings.Join(done, ", "), nil
}

// compare prints what is worth comparing, a column for each result.
func compare(out io.Writer, names []string, results []sim.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(title string, cell func(r *sim.Result) string) {
		fmt.Fprint(w, title)
		for i := range results {
			fmt.Fprint(w, "\t", cell(&results[i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "\t"+strings.Join(names, "\t"))
	row("requests", func(r *sim.Result) string { return fmt.Sprint(r.Requests) })
	row("failed", func(r *sim.Result) string { return share(r.Requests-r.OK, r.Requests) })
	row("too slow or failed", func(r *sim.Result) string { return share(r.Requests-r.Good, r.Requests) })
	row("median, p99, p99.9", func(r *sim.Result) string {
		return fmt.Sprintf("%s, %s, %s", millis(r, .5), millis(r, .99), millis(r, .999))
	})
	row("attempts per request", func(r *sim.Result) string { return fmt.Sprintf("%.4f", r.Amplification()) })
	// A scenario made of a recording has a change for each stretch of time.
	many, quiet := len(results[0].Changes) > 12, 0
	for i, c := range results[0].Changes {
		if many && !slices.ContainsFunc(results, func(r sim.Result) bool {
			return r.Changes[i].Ejected.Count+r.Changes[i].Unhealthy.Count > 0
		}) {
			quiet++
			continue
		}
		row(fmt.Sprintf("%s at %v", strings.ReplaceAll(c.Kind.String(), "_", " "), c.At), func(r *sim.Result) string {
			var text []string
			for _, x := range []struct {
				spread sim.Spread
				by     string
			}{{r.Changes[i].Ejected, "taken out"}, {r.Changes[i].Unhealthy, "by checks"}} {
				if x.spread.Count > 0 {
					text = append(text, fmt.Sprintf("%d %s, the first after %v", x.spread.Count, x.by, x.spread.First.Round(time.Millisecond)))
				}
			}
			if len(text) == 0 {
				return "nobody is taken out"
			}
			return strings.Join(text, "; ")
		})
	}
	if quiet > 0 {
		fmt.Fprintf(w, "%d other changes\n", quiet)
	}
	return w.Flush()
}

func share(part, whole uint64) string {
	return fmt.Sprintf("%.3f %%", 100*float64(part)/float64(max(1, whole)))
}

func millis(r *sim.Result, q float64) string {
	return r.Latency.Quantile(q).Round(time.Millisecond).String()
}
