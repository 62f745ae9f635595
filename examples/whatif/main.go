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
// What -record writes can be verified and drawn again:
//
//	go run ./examples/replay -verify pool.jsonl
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
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
	flag.StringVar(&o.policy, "policy", "", "a policy to try, such as round_robin or p2c_ewma")
	flag.StringVar(&o.without, "without", "", "what to switch off, with commas between: breaker, ejection, retry, budget")
	flag.IntVar(&o.client, "client", 0, "the client whose Pool is drawn")
	flag.StringVar(&o.record, "record", "", "where to write what that Pool did")
	flag.Parse()
	if err := run(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "whatif:", err)
		os.Exit(1)
	}
}

type options struct {
	scenario, policy, without, record string
	client                            int
}

func run(out io.Writer, o options) error {
	text := checkout
	if o.scenario != "" {
		var err error
		if text, err = os.ReadFile(o.scenario); err != nil {
			return err
		}
	}
	written, err := sim.Read(bytes.NewReader(text))
	if err != nil {
		return err
	}
	changed, title, err := change(written, o)
	if err != nil {
		return err
	}
	var pool bytes.Buffer
	names, results := []string{"as written"}, make([]sim.Result, 1)
	if title == "" {
		results[0], err = sim.Record(written, o.client, &pool)
	} else {
		if results[0], err = sim.Run(written); err != nil {
			return err
		}
		var r sim.Result
		r, err = sim.Record(changed, o.client, &pool)
		names, results = append(names, title), append(results, r)
	}
	if err != nil {
		return err
	}
	if err := compare(out, names, results); err != nil {
		return err
	}
	if o.record != "" {
		if err := os.WriteFile(o.record, pool.Bytes(), 0o666); err != nil {
			return err
		}
	}
	r, err := incident.NewReader(&pool)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nclient %d, %s:\n", o.client, names[len(names)-1])
	return incident.Timeline(out, r, incident.TimelineOptions{Captions: 20})
}

// change returns the scenario as the flags want it, and what was changed.
func change(s sim.Scenario, o options) (sim.Scenario, string, error) {
	var done []string
	if o.policy != "" {
		p, err := balancer.ParsePolicy(o.policy)
		if err != nil {
			return s, "", err
		}
		s.Pool.Policy = p
		done = append(done, p.Name())
	}
	for name := range strings.SplitSeq(o.without, ",") {
		switch strings.TrimSpace(name) {
		case "":
			continue
		case "breaker":
			s.Pool.Breaker.Off = true
		case "ejection":
			s.Pool.Outlier.Off = true
		case "retry":
			s.Pool.Retry.Off = true
		case "budget":
			s.Pool.Budget.Off = true
		default:
			return s, "", fmt.Errorf("-without %s: want breaker, ejection, retry or budget", name)
		}
		done = append(done, "no "+strings.TrimSpace(name))
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
	row("failed", func(r *sim.Result) string { return fmt.Sprintf("%.3f %%", 100-100*r.OKShare()) })
	row("too slow or failed", func(r *sim.Result) string {
		return fmt.Sprintf("%.3f %%", 100*float64(r.Requests-r.Good)/float64(max(1, r.Requests)))
	})
	row("median, p99, p99.9", func(r *sim.Result) string {
		return fmt.Sprintf("%s, %s, %s", millis(r, .5), millis(r, .99), millis(r, .999))
	})
	row("attempts per request", func(r *sim.Result) string { return fmt.Sprintf("%.4f", r.Amplification()) })
	for i, c := range results[0].Changes {
		row(fmt.Sprintf("%s at %v", strings.ReplaceAll(c.Kind.String(), "_", " "), c.At), func(r *sim.Result) string {
			c := r.Changes[i]
			if c.Ejected.Count == 0 {
				return "nobody is taken out"
			}
			return fmt.Sprintf("%d taken out, the first after %v", c.Ejected.Count, c.Ejected.First.Round(time.Millisecond))
		})
	}
	return w.Flush()
}

func millis(r *sim.Result, q float64) string {
	return r.Latency.Quantile(q).Round(time.Millisecond).String()
}
