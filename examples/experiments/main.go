// Experiments runs the published experiments of load balancing, retrying and
// hashing against this library and prints what came out beside what was
// published, and whether the goal was reached.
//
//	go run ./examples/experiments              # all of them, a minute on two cores
//	go run ./examples/experiments -card E22    # one; several with commas
//	go run ./examples/experiments -seeds 10 -json
//
// The figure printed is the mean over the seeds, the spread the least and the
// greatest of them. Rules of other systems are variants: random, round robin,
// least loaded, and the retry budgets of Finagle, gRPC and the AWS SDKs. A goal
// that was not reached is printed as "no"; the exit status is 0 all the same.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
)

func main() {
	var o options
	flag.StringVar(&o.cards, "card", "", "cards to run, with commas between; all if empty")
	flag.IntVar(&o.seeds, "seeds", 3, "number of seeds")
	flag.Uint64Var(&o.first, "seed", 1, "the first of them")
	flag.IntVar(&o.shrink, "shrink", 1, "divide the size of each experiment by this, for a quick look")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.Parse()
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		o.progress = os.Stderr
	}
	if err := run(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "experiments:", err)
		os.Exit(2)
	}
}

type options struct {
	cards    string
	seeds    int
	first    uint64
	shrink   int
	json     bool
	progress io.Writer
}

// card is one experiment. run does it for one seed and returns its figures,
// the same ones in the same order for every seed.
type card struct {
	id, title string
	run       func(x *lab) []figure
}

// lab is what an experiment is given.
type lab struct {
	seed   uint64
	shrink int
}

// scale is a size divided as the user asked for.
func (x *lab) scale(n int) int { return max(1, n/x.shrink) }

// figure is one number that an experiment yields, with what it should be.
type figure struct {
	variant   string
	measure   string
	value     float64
	published string
	goal      string
	met       func(mean, least, most float64) bool // nil if there is no goal
	note      string                               // what explains a difference from what was published
}

func fig(variant, measure string, value float64) figure {
	return figure{variant: variant, measure: measure, value: value}
}

func (f figure) pub(s string) figure { f.published = s; return f }

func (f figure) why(note string) figure { f.note = note; return f }

func (f figure) atLeast(x float64) figure {
	f.goal = fmt.Sprintf(">= %v", x)
	f.met = func(mean, _, _ float64) bool { return mean >= x }
	return f
}

func (f figure) atMost(x float64) figure {
	f.goal = fmt.Sprintf("<= %v", x)
	f.met = func(mean, _, _ float64) bool { return mean <= x }
	return f
}

// always is atMost for every seed.
func (f figure) always(x float64) figure {
	f.goal = fmt.Sprintf("<= %v always", x)
	f.met = func(_, _, most float64) bool { return most <= x }
	return f
}

// below is always, exclusive.
func (f figure) below(x float64) figure {
	f.goal = fmt.Sprintf("< %v always", x)
	f.met = func(_, _, most float64) bool { return most < x }
	return f
}

func (f figure) exactly(x float64) figure {
	f.goal = fmt.Sprintf("= %v always", x)
	f.met = func(_, least, most float64) bool { return least == x && most == x }
	return f
}

// never is exactly, of a time that must not come.
func (f figure) never() figure {
	f = f.exactly(math.Inf(1))
	f.goal = "never"
	return f
}

func (f figure) within(percent, of float64) figure {
	f.goal = fmt.Sprintf("%.4g +- %v %%", of, percent)
	f.met = func(mean, _, _ float64) bool { return math.Abs(mean/of-1) <= percent/100 }
	return f
}

// row is a figure over all seeds, as it is printed.
type row struct {
	Card      string `json:"card"`
	Title     string `json:"title"`
	Variant   string `json:"variant"`
	Measure   string `json:"measure"`
	Mean      num    `json:"mean"`
	Least     num    `json:"least"`
	Most      num    `json:"most"`
	Values    []num  `json:"values"`
	Published string `json:"published,omitempty"`
	Note      string `json:"note,omitempty"`
	Goal      string `json:"goal,omitempty"`
	Met       *bool  `json:"met,omitempty"`
}

// num is a number that JSON can hold: null if it is not finite, as the time of
// what never came.
type num float64

func (n num) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsInf(f, 0) || math.IsNaN(f) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func run(w io.Writer, o options) error {
	chosen, err := choose(o.cards)
	if err != nil {
		return err
	}
	if o.seeds < 1 || o.shrink < 1 {
		return fmt.Errorf("-seeds and -shrink must be at least 1")
	}
	rows := work(chosen, o)
	if o.json {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	return table(w, rows, o)
}

func choose(ids string) ([]card, error) {
	if ids == "" {
		return cards, nil
	}
	var out []card
next:
	for id := range strings.SplitSeq(ids, ",") {
		for _, c := range cards {
			if strings.EqualFold(c.id, strings.TrimSpace(id)) {
				out = append(out, c)
				continue next
			}
		}
		var known []string
		for _, c := range cards {
			known = append(known, c.id)
		}
		return nil, fmt.Errorf("no card %q; there are %s", id, strings.Join(known, " "))
	}
	return out, nil
}

// work runs every card with every seed, on all processors.
func work(chosen []card, o options) []row {
	results := make([][][]figure, len(chosen))
	type job struct{ card, seed int }
	jobs := make(chan job)
	var mu sync.Mutex // guards below
	done := 0
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range jobs {
				figures := chosen[j.card].run(&lab{seed: o.first + uint64(j.seed), shrink: o.shrink})
				mu.Lock()
				results[j.card][j.seed] = figures
				done++
				if o.progress != nil {
					fmt.Fprintf(o.progress, "\r%3d of %d done, %-4s", done, len(chosen)*o.seeds, chosen[j.card].id)
				}
				mu.Unlock()
			}
		}()
	}
	for c := range chosen {
		results[c] = make([][]figure, o.seeds)
	}
	for c := range chosen {
		for s := range o.seeds {
			jobs <- job{c, s}
		}
	}
	close(jobs)
	wg.Wait()
	if o.progress != nil {
		fmt.Fprintf(o.progress, "\r%30s\r", "")
	}
	var rows []row
	for c, of := range results {
		for i, f := range of[0] {
			r := row{
				Card: chosen[c].id, Title: chosen[c].title, Variant: f.variant, Measure: f.measure,
				Published: f.published, Goal: f.goal, Note: f.note,
			}
			mean, least, most := 0.0, math.Inf(1), math.Inf(-1)
			for _, figures := range of {
				v := figures[i].value
				r.Values = append(r.Values, num(v))
				mean += v
				least, most = min(least, v), max(most, v)
			}
			mean /= float64(len(of))
			r.Mean, r.Least, r.Most = num(mean), num(least), num(most)
			if f.met != nil {
				met := f.met(mean, least, most)
				r.Met = &met
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func table(w io.Writer, rows []row, o options) error {
	fmt.Fprintf(w, "seeds %d to %d", o.first, o.first+uint64(o.seeds)-1)
	if o.shrink > 1 {
		fmt.Fprintf(w, ", sizes divided by %d: goals are for the full size", o.shrink)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "card\tvariant\tmeasure\tours\tspread\tpublished\tgoal\tmet")
	last := ""
	goals, reached := 0, 0
	for _, r := range rows {
		if r.Card != last {
			fmt.Fprintf(t, "%s\t%s\t\t\t\t\t\t\n", r.Card, r.Title)
			last = r.Card
		}
		met := "-"
		if r.Met != nil {
			goals++
			if met = "no"; *r.Met {
				met = "yes"
				reached++
			}
		}
		spread := number(r.Least) + " .. " + number(r.Most)
		if r.Least == r.Most {
			spread = "same"
		}
		fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Variant, r.Measure, number(r.Mean), spread, dash(r.Published), dash(r.Goal), met)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := notes(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d of %d goals met\n", reached, goals)
	return err
}

// notes prints each note once, under the first figure that has it.
func notes(w io.Writer, rows []row) error {
	seen := map[string]bool{}
	for _, r := range rows {
		if r.Note == "" || seen[r.Note] {
			continue
		}
		seen[r.Note] = true
		if _, err := fmt.Fprintf(w, "%s, %s: %s\n", r.Card, r.Variant, r.Note); err != nil {
			return err
		}
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// number prints a figure with the digits that it deserves.
func number[T ~float64](n T) string {
	x := float64(n)
	switch {
	case math.IsInf(x, 1):
		return "never"
	case x == math.Trunc(x) && math.Abs(x) < 1e9:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 90 && math.Abs(x) < 100: // shares near the whole
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.4g", x)
}
