package lincheck_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	clients  = 6               // goroutines of a history
	calls    = 50              // of each of them
	patience = 2 * time.Second // for one history
)

// base is instant 0 of every history.
var base = time.Unix(1_000_000_000, 0)

// at returns an instant for the types that take a time.Time.
func at(now int64) time.Time { return base.Add(time.Duration(now)) }

// client is one goroutine of a history.
type client struct {
	*rand.Rand
	id      int
	steps   *atomic.Int64 // orders starts and returns
	instant *atomic.Int64 // the time that the clients share
	ops     []porcupine.Operation
}

// now returns an instant near the shared time, which moves on at times: a bit
// ahead of it or behind, as clocks are that were read before a lock was taken.
func (c *client) now(unit int64) int64 {
	if c.IntN(3) == 0 {
		c.instant.Add(c.Int64N(2*unit) + 1)
	}
	return max(0, c.instant.Load()+c.Int64N(2*unit+1)-unit)
}

// call does one call and records it. The yields make calls overlap that would
// not, on a machine with few processors.
func (c *client) call(in any, do func() any) any {
	c.yield()
	op := porcupine.Operation{ClientId: c.id, Input: in, Call: c.steps.Add(1)}
	c.yield()
	op.Output = do()
	c.yield()
	op.Return = c.steps.Add(1)
	c.ops = append(c.ops, op)
	return op.Output
}

func (c *client) yield() {
	if c.IntN(4) == 0 {
		runtime.Gosched()
	}
}

// schedule says how a history is taken.
type schedule struct {
	seed   uint64
	calls  int  // of each client
	serial bool // by turns in one goroutine, not all at once
}

// run lets each client do its steps and returns the history.
func (how schedule) run(step func(c *client)) []porcupine.Operation {
	var steps, instant atomic.Int64
	all := make([]*client, clients)
	for i := range all {
		all[i] = &client{Rand: rand.New(rand.NewPCG(how.seed, uint64(i))), id: i, steps: &steps, instant: &instant}
	}
	if how.serial {
		for range how.calls {
			for _, c := range all {
				step(c)
			}
		}
	} else {
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for _, c := range all {
			wg.Go(func() {
				<-gate
				for range how.calls {
					step(c)
				}
			})
		}
		close(gate)
		wg.Wait()
	}
	var ops []porcupine.Operation
	for _, c := range all {
		ops = append(ops, c.ops...)
	}
	return ops
}

// model makes a porcupine model of a step function with types.
func model[S comparable, I, O any](initial S, step func(S, I, O) (S, bool)) porcupine.Model {
	key := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return initial },
		Hash: func(state any) uint64 { return maphash.Comparable(key, state.(S)) },
		Step: func(state, in, out any) (bool, any) {
			s, ok := step(state.(S), in.(I), out.(O))
			return ok, s
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v: %v", in, out) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// right takes histories of a type and wants every one to be linearizable. To
// decide takes a time that is exponential in what overlaps, so a few may stay
// undecided.
func right(t *testing.T, def uint64, m porcupine.Model, take func(schedule) []porcupine.Operation) {
	t.Helper()
	seed, _ := seedOf(t, def)
	overlap, undecided := 0, 0
	rounds := opsOf(t, 50)
	for i := range rounds {
		ops := take(schedule{seed: seed + uint64(i), calls: calls, serial: i == 0})
		if i > 0 {
			overlap += overlaps(ops)
		}
		switch porcupine.CheckOperationsTimeout(m, ops, patience) {
		case porcupine.Illegal:
			t.Fatalf("history %d is not linearizable; see %s", i, draw(t, m, ops))
		case porcupine.Unknown:
			undecided++
		}
	}
	t.Logf("%d histories of %d calls, each of which overlaps with %.1f others; %d undecided",
		rounds, clients*calls, float64(overlap)/float64(rounds*clients*calls), undecided)
	switch {
	case 10*undecided > rounds:
		t.Errorf("%d of %d histories were not decided in %v each", undecided, rounds, patience)
	case overlap == 0 && rounds > 1:
		t.Errorf("no two calls overlapped, so nothing was checked")
	}
}

// wrong takes histories of a wrong copy and wants one to be found out: for what
// happens between its steps, since by itself it does nothing wrong.
func wrong(t *testing.T, def uint64, m porcupine.Model, take func(schedule) []porcupine.Operation) {
	t.Helper()
	seed, _ := seedOf(t, def)
	const tries = 100
	for i := range uint64(20) {
		ops := take(schedule{seed: seed + i, calls: calls, serial: true})
		if porcupine.CheckOperationsTimeout(m, ops, patience) != porcupine.Ok {
			t.Fatalf("the copy is wrong even without concurrency, which proves nothing; see %s", draw(t, m, ops))
		}
	}
	for i := range uint64(tries) {
		// Short ones: to be sure that nothing explains a history takes long.
		ops := take(schedule{seed: seed + i, calls: 10})
		if porcupine.CheckOperationsTimeout(m, ops, patience) == porcupine.Illegal {
			t.Logf("found out by history %d", i)
			return
		}
	}
	t.Errorf("%d histories of a copy that is wrong were all taken for right", tries)
}

// overlaps counts the pairs of calls of which neither returned before the other
// began.
func overlaps(ops []porcupine.Operation) (n int) {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for i, a := range ops {
		for _, b := range ops[i+1:] {
			if b.Call > a.Return {
				break
			}
			n++
		}
	}
	return 2 * n
}

// draw writes the page of a history that failed and returns its path.
func draw(t *testing.T, m porcupine.Model, ops []porcupine.Operation) string {
	dir := os.TempDir()
	// The directory of the test is kept only where -artifacts asks for it.
	if a, ok := any(t).(interface{ ArtifactDir() string }); ok {
		if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
			dir = a.ArtifactDir()
		}
	}
	_, info := porcupine.CheckOperationsVerbose(m, ops, patience)
	f, err := os.CreateTemp(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-*.html")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if err := porcupine.Visualize(m, info, f); err != nil {
		return err.Error()
	}
	path, err := filepath.Abs(f.Name())
	if err != nil {
		return f.Name()
	}
	return path
}
