// Command rows reads what go test -json printed and holds it against the
// conformance table: every test named there must have run and passed.
//
//	go test -json ./... | go run ./.ci/rows balancer/testdata/behaviours.tsv
//
// It prints the output of failed tests, names every skipped one, and ends with
// the counts. It fails if a test failed, if a row is not proven, or if the
// table has no rows.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const modulePath = "github.com/evenkeel-go/evenkeel"

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

type name struct{ pkg, test string }

// results is what became of every test and package.
type results struct {
	action map[name]string // the last of pass, fail, skip
	output map[name][]string
	broken []string // lines that belong to no test: build errors, panics outside tests
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rows table.tsv < events.json")
		os.Exit(2)
	}
	table, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(2)
	}
	res, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(2)
	}
	if !report(os.Stdout, string(table), res) {
		os.Exit(1)
	}
}

func read(r io.Reader) (*results, error) {
	res := &results{action: map[name]string{}, output: map[name][]string{}}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			res.broken = append(res.broken, sc.Text()+"\n")
			continue
		}
		n := name{e.Package, e.Test}
		switch e.Action {
		case "pass", "fail", "skip":
			res.action[n] = e.Action
			if e.Action != "fail" {
				delete(res.output, n)
			}
		case "output":
			res.output[n] = append(res.output[n], e.Output)
		case "build-output":
			res.broken = append(res.broken, e.Output)
		case "build-fail":
			res.broken = append(res.broken, e.ImportPath+" does not build\n")
		}
	}
	return res, sc.Err()
}

// report prints the verdict and tells whether all is well.
func report(w io.Writer, table string, res *results) bool {
	ok := len(res.broken) == 0
	for _, line := range res.broken {
		fmt.Fprint(w, line)
	}
	names := make([]name, 0, len(res.action))
	for n := range res.action {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int {
		return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test)
	})
	packages, tests, top, skipped := 0, 0, 0, 0
	for _, n := range names {
		switch act := res.action[n]; {
		case act == "fail":
			ok = false
			fmt.Fprint(w, strings.Join(res.output[n], ""))
		case n.test == "":
			if act == "pass" {
				packages++
			}
		case act == "skip":
			skipped++
			fmt.Fprintf(w, "skipped: %s %s\n", n.pkg, n.test)
		default:
			tests++
			if !strings.Contains(n.test, "/") {
				top++
			}
		}
	}
	rows, unproven := 0, 0
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cols := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cols) != 4 {
			ok = false
			fmt.Fprintf(w, "not a row: %q\n", line)
			continue
		}
		rows++
		pkg := modulePath
		if cols[2] != "." {
			pkg += "/" + cols[2]
		}
		if act := res.action[name{pkg, cols[3]}]; act != "pass" {
			if act == "" {
				act = "did not run"
			}
			unproven++
			fmt.Fprintf(w, "unproven: %s: %s %s: %s\n", cols[0], cols[2], cols[3], act)
		}
	}
	fmt.Fprintf(w, "%d packages, %d tests and %d subtests passed, %d skipped; %d of %d rows proven\n",
		packages, top, tests-top, skipped, rows-unproven, rows)
	return ok && unproven == 0 && rows > 0 && packages > 0
}
