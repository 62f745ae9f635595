package lincheck_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// A bucket of three tokens. What it drips is no whole number of billionths per
// nanosecond, and the instants are odd, so that there are fractions to carry.
var budgetConfig = retrybudget.Config{Capacity: 3, Initial: 1, PerSuccess: 0.3, PerSecond: 0.7}

const (
	budgetUnit = 99_999_989 // nanoseconds, a tenth of a second or so

	// The model keeps 1e-18 of a token, in which the drip of any number of
	// nanoseconds is whole.
	attoToken    = 1_000_000_000_000_000_000
	budgetFull   = 3 * attoToken
	budgetOnDone = 3 * attoToken / 10
	budgetDrip   = 7 * attoToken / 10 / 1_000_000_000 // per nanosecond
)

type budgetIn struct {
	op  string
	now int64
}

func (in budgetIn) String() string { return fmt.Sprintf("%s at %d", in.op, in.now) }

// budgetOut is the answer of any method; those that return nothing give zero.
type budgetOut struct {
	ok     bool
	tokens float64
	count  uint64
}

type budgetState struct {
	latest           int64
	atto             int64
	out              int // granted, neither refunded nor ended
	granted, refused uint64
}

func (s budgetState) advance(now int64) budgetState {
	if now > s.latest {
		dt := min(now-s.latest, budgetFull/budgetDrip+1) // full by then
		s.atto = min(s.atto+dt*budgetDrip, budgetFull)
		s.latest = now
	}
	return s
}

// budgetModel is the bucket of the documentation: a retry is granted while there
// is a token for it, a success is worth PerSuccess, time drips, and there is
// never more than the capacity.
func budgetModel(s budgetState, in budgetIn, out budgetOut) (budgetState, bool) {
	next := s.advance(in.now)
	var want budgetOut
	switch in.op {
	case "Request":
	case "Success":
		next.atto = min(next.atto+budgetOnDone, budgetFull)
	case "Withdraw":
		if want.ok = next.atto >= attoToken; want.ok {
			next.atto -= attoToken
			next.out++
			next.granted++
		} else {
			next.refused++
		}
	case "Refund":
		if next.out > 0 {
			next.out--
			next.atto = min(next.atto+attoToken, budgetFull)
		}
	case "EndRetry":
		next.out = max(0, next.out-1)
	case "CanWithdraw":
		want.ok = next.atto >= attoToken
		next = s
	case "Balance":
		want.tokens = float64(next.atto/1_000_000_000) / 1e9
		next = s
	case "NextGrant":
		// In nanoseconds, rounded up.
		want.ok = true
		want.count = uint64(next.latest + (max(0, attoToken-next.atto)+budgetDrip-1)/budgetDrip)
		next = s
	case "Granted":
		want.count = s.granted
		next = s
	case "Refused":
		want.count = s.refused
		next = s
	}
	return next, out == want
}

// budget is what the histories are taken of.
type budget interface {
	do(in budgetIn) budgetOut
}

type realBudget struct{ *retrybudget.Budget }

func (b realBudget) do(in budgetIn) (out budgetOut) {
	now := at(in.now)
	switch in.op {
	case "Request":
		b.Request(now)
	case "Success":
		b.Success(now)
	case "Withdraw":
		out.ok = b.Withdraw(now)
	case "Refund":
		b.Refund(now)
	case "EndRetry":
		b.EndRetry(now, false)
	case "CanWithdraw":
		out.ok = b.CanWithdraw(now)
	case "Balance":
		out.tokens = b.Balance(now)
	case "NextGrant":
		t, ok := b.NextGrant(now)
		out.count, out.ok = uint64(t.Sub(base)), ok
	case "Granted":
		out.count = b.Granted()
	case "Refused":
		out.count = b.Refused()
	}
	return out
}

// tornBudget takes a copy of the budget, works on that, and puts it back: what
// happens in between is lost.
type tornBudget struct {
	mu   sync.Mutex
	core retrybudget.Core
}

func (b *tornBudget) do(in budgetIn) (out budgetOut) {
	b.mu.Lock()
	c := b.core
	b.mu.Unlock()
	runtime.Gosched()
	switch in.op {
	case "Success":
		c.Success(in.now)
	case "Withdraw":
		out.ok = c.Withdraw(in.now)
	case "Balance":
		out.tokens = c.Balance(in.now)
	}
	b.mu.Lock()
	b.core = c
	b.mu.Unlock()
	return out
}

// doubleBudget asks first and takes later, the one step after the other.
type doubleBudget struct{ realBudget }

func (b doubleBudget) do(in budgetIn) (out budgetOut) {
	if in.op != "Withdraw" {
		return b.realBudget.do(in)
	}
	out.ok = b.CanWithdraw(at(in.now))
	runtime.Gosched()
	b.Withdraw(at(in.now))
	return out
}

func budgetHistory(how schedule, b budget, ops ...string) []porcupine.Operation {
	return how.run(func(c *client) {
		in := budgetIn{op: ops[c.IntN(len(ops))], now: c.now(budgetUnit)}
		c.call(in, func() any { return b.do(in) })
	})
}

func TestBudget(t *testing.T) {
	initial := budgetState{atto: attoToken}
	m := model(initial, budgetModel)
	started := func() realBudget {
		b := realBudget{retrybudget.New(budgetConfig)}
		b.Request(base) // begins the time line
		return b
	}
	t.Run("linearizable", func(t *testing.T) {
		right(t, 1, m, func(how schedule) []porcupine.Operation {
			return budgetHistory(how, started(), "Request", "Success", "Success", "Withdraw", "Withdraw", "Withdraw",
				"Refund", "EndRetry", "CanWithdraw", "Balance", "NextGrant", "Granted", "Refused")
		})
	})
	t.Run("a lost update is seen", func(t *testing.T) {
		wrong(t, 2, m, func(how schedule) []porcupine.Operation {
			b := &tornBudget{core: retrybudget.NewCore(budgetConfig)}
			b.core.Request(0)
			return budgetHistory(how, b, "Success", "Withdraw", "Withdraw", "Balance")
		})
	})
	t.Run("asking before taking is seen", func(t *testing.T) {
		wrong(t, 3, m, func(how schedule) []porcupine.Operation {
			return budgetHistory(how, doubleBudget{started()}, "Success", "Withdraw", "Withdraw", "Withdraw")
		})
	})
}
