package retrybudget_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/retrybudget"
)

// An op is one input to a budget.
type op struct {
	kind opKind
	at   int64
}

type opKind uint8

const (
	opRequest opKind = iota
	opEnd
	opSuccess
	opFailure
	opWithdraw
	opRefund
	opRetryOK
	opRetryFailed
	opKinds
)

func (o op) String() string {
	return fmt.Sprintf("%s@%d", [...]string{
		"request", "end", "success", "failure", "withdraw", "refund", "retry ok", "retry failed",
	}[o.kind], o.at)
}

// apply feeds the op to a core and returns what it answered.
func (o op) apply(c *retrybudget.Core) bool {
	switch o.kind {
	case opRequest:
		c.Request(o.at)
	case opEnd:
		c.End(o.at)
	case opSuccess:
		c.Success(o.at)
	case opFailure:
		c.Failure(o.at)
	case opWithdraw:
		return c.Withdraw(o.at)
	case opRefund:
		c.Refund(o.at)
	case opRetryOK:
		c.EndRetry(o.at, true)
	case opRetryFailed:
		c.EndRetry(o.at, false)
	}
	return false
}

// entry is one deposit, withdrawal, request, success or retry in the ledger of
// the model, with the slot of time that it fell in.
type entry struct {
	slot   *big.Int
	amount *big.Int
}

// history is the model: the log of all inputs, and the rules of a budget
// written from their definition. It keeps no state between questions. Each is
// answered by reading the log from the start, with every entry by itself, in
// integers of unlimited size that count 1e-18 of a token.
type history struct {
	cfg retrybudget.Config
	log []op
}

// verdict is what the rules say at the end of the log.
type verdict struct {
	grants  []bool   // of each input
	allowed bool     // would one more be granted?
	balance *big.Int // in 1e-18 of a token, at least 0
}

var (
	nano  = big.NewInt(1e9)
	token = big.NewInt(1e18)
)

// exact returns v tokens, rounded to billionths, in 1e-18 of a token.
func exact(v, def float64) *big.Int {
	switch {
	case v == 0:
		v = def
	case v < 0:
		v = 0
	}
	n := big.NewInt(int64(math.Round(v * 1e9)))
	return n.Mul(n, nano)
}

// judge reads the log, and then lets the time be now.
func (h *history) judge(now int64) verdict {
	var (
		cfg       = h.cfg
		hasBucket = cfg.Capacity >= 0
		capacity  = exact(cfg.Capacity, 10)
		cost      = exact(cfg.Cost, 1)
		perSecond = exact(cfg.PerSecond, 0.1)
		reserve   = new(big.Int)
		shared    = cfg.Share.Rate > 0 || cfg.Share.Burst > 0 || cfg.Share.Min > 0
		ttl       = cfg.TTL > 0
		window    = cfg.Share.Window
	)
	if window == 0 {
		window = 10 * time.Second
	}
	tenth := func(d time.Duration) *big.Int { return big.NewInt((int64(d) + 9) / 10) }
	if int64(cfg.TTL) > math.MaxInt64-9 || int64(window) > math.MaxInt64-9 {
		panic("the model does not do centuries")
	}
	if ttl {
		reserve.Mul(perSecond, big.NewInt(int64(cfg.TTL)))
		reserve.Quo(reserve, token) // whole billionths of a token
		reserve.Mul(reserve, nano)
		if capacity.Cmp(reserve) < 0 {
			capacity = reserve
		}
	}

	var (
		v        verdict
		in, out  []entry
		start    int64
		latest   int64
		seen     bool
		drip     = new(big.Int) // without TTL: the balance
		requests []entry
		success  []entry
		retries  []entry
		active   int
		retrying int
	)
	slotOf := func(d time.Duration, at int64) *big.Int {
		age := new(big.Int).Sub(big.NewInt(at), big.NewInt(start))
		return age.Quo(age, tenth(d))
	}
	live := func(e entry, d time.Duration) bool {
		age := new(big.Int).Sub(slotOf(d, latest), e.slot)
		return age.Cmp(big.NewInt(10)) < 0
	}
	balance := func() *big.Int {
		if !ttl {
			return drip
		}
		sum := new(big.Int).Set(reserve)
		for _, e := range in {
			if live(e, cfg.TTL) {
				sum.Add(sum, e.amount)
			}
		}
		for _, e := range out {
			if live(e, cfg.TTL) {
				sum.Sub(sum, e.amount)
			}
		}
		return sum
	}
	floor := func() *big.Int { // whole billionths, which is what can be spent
		b := new(big.Int).Set(balance())
		if b.Sign() < 0 {
			return b
		}
		return b.Sub(b, new(big.Int).Rem(b, nano))
	}
	// lapse drops the oldest deposits above the capacity.
	lapse := func() {
		for i := range in {
			over := new(big.Int).Sub(balance(), capacity)
			if over.Sign() <= 0 {
				return
			}
			if live(in[i], cfg.TTL) {
				if over.Cmp(in[i].amount) > 0 {
					over = in[i].amount
				}
				in[i].amount = new(big.Int).Sub(in[i].amount, over)
			}
		}
	}
	deposit := func(n *big.Int) {
		if !hasBucket {
			return
		}
		// A drip below a billionth does not keep a whole deposit out.
		room := new(big.Int).Sub(capacity, floor())
		if n.Cmp(room) > 0 {
			n = room
		}
		if ttl {
			in = append(in, entry{slotOf(cfg.TTL, latest), n})
			return
		}
		drip.Add(drip, n)
		if drip.Cmp(capacity) > 0 {
			drip.Set(capacity)
		}
	}
	take := func(n *big.Int) {
		if ttl {
			out = append(out, entry{slotOf(cfg.TTL, latest), new(big.Int).Set(n)})
			return
		}
		drip.Sub(drip, n)
	}
	advance := func(at int64) {
		if !seen {
			seen, start, latest = true, at, at
			return
		}
		if at <= latest {
			return
		}
		if ttl {
			// A boundary at a time, for deposits lapse in the order of events;
			// after ten of them nothing is left.
			from, to := slotOf(cfg.TTL, latest), slotOf(cfg.TTL, at)
			last := new(big.Int).Add(from, big.NewInt(10))
			for k := from.Add(from, big.NewInt(1)); k.Cmp(to) <= 0 && k.Cmp(last) <= 0; k.Add(k, big.NewInt(1)) {
				b := new(big.Int).Mul(k, tenth(cfg.TTL))
				latest = b.Add(b, big.NewInt(start)).Int64()
				lapse()
			}
		} else {
			gain := new(big.Int).Sub(big.NewInt(at), big.NewInt(latest))
			gain.Mul(gain, perSecond)
			gain.Quo(gain, nano) // exact: perSecond is in whole billionths
			drip.Add(drip, gain)
			if drip.Cmp(capacity) > 0 {
				drip.Set(capacity)
			}
		}
		latest = at
	}
	count := func(list []entry) int64 {
		if window < 0 {
			return int64(len(list))
		}
		n := int64(0)
		for _, e := range list {
			if live(e, window) {
				n++
			}
		}
		return n
	}
	allowed := func() bool {
		if cfg.Off {
			return true
		}
		if hasBucket {
			b := floor()
			if b.Cmp(cost) < 0 || b.Cmp(exact(cfg.Threshold, 0)) <= 0 {
				return false
			}
		}
		if !shared {
			return true
		}
		var used, base int64
		switch cfg.Share.Of {
		case retrybudget.Active:
			used, base = int64(retrying), int64(active)
		case retrybudget.Successes:
			if len(success) == 0 {
				return true
			}
			used, base = count(retries), count(success)
		default:
			used, base = count(retries), count(requests)
		}
		one := new(big.Int).Mul(big.NewInt(used+1), token)
		if one.Cmp(exact(cfg.Share.Min, 0)) <= 0 {
			return true
		}
		cap := exact(cfg.Share.Rate, 0)
		cap.Mul(cap, big.NewInt(base))
		return one.Cmp(cap.Add(cap, exact(cfg.Share.Burst, 0))) <= 0
	}
	mark := func() entry {
		d := window
		if d < 0 {
			d = time.Second // never looked at
		}
		return entry{slot: slotOf(d, latest)}
	}

	// The start.
	switch {
	case !ttl && cfg.Initial == 0:
		drip.Set(capacity)
	case !ttl:
		deposit(exact(cfg.Initial, 0))
	}
	first := ttl && cfg.Initial > 0
	open := func(at int64) {
		if first && !seen {
			advance(at)
			deposit(exact(cfg.Initial, 0))
		}
		advance(at)
	}

	for _, o := range h.log {
		open(o.at)
		granted := false
		switch o.kind {
		case opRequest:
			active++
			requests = append(requests, mark())
			deposit(exact(cfg.PerRequest, 0))
		case opEnd:
			active = max(active-1, 0)
		case opSuccess:
			success = append(success, mark())
			deposit(exact(cfg.PerSuccess, 0.1))
		case opFailure:
			n := exact(cfg.PerFailure, 0)
			if b := floor(); b.Cmp(n) < 0 {
				n = b
			}
			if hasBucket && n.Sign() > 0 {
				take(n)
			}
		case opWithdraw:
			if granted = allowed(); granted {
				take(cost)
				retrying++
				retries = append(retries, mark())
			}
		case opRefund:
			if retrying == 0 {
				break
			}
			retrying--
			for i, e := range retries {
				if window < 0 || live(e, window) {
					retries = append(retries[:i:i], retries[i+1:]...)
					break
				}
			}
			if !ttl {
				deposit(cost)
				break
			}
			left := new(big.Int).Set(cost)
			for _, e := range out {
				if live(e, cfg.TTL) && left.Sign() > 0 {
					n := new(big.Int).Set(left)
					if n.Cmp(e.amount) > 0 {
						n.Set(e.amount)
					}
					e.amount.Sub(e.amount, n)
					left.Sub(left, n)
				}
			}
			lapse()
		case opRetryOK, opRetryFailed:
			if retrying > 0 {
				retrying--
				if o.kind == opRetryOK {
					deposit(exact(cfg.RetrySuccess, 0))
				}
			}
		}
		v.grants = append(v.grants, granted)
	}
	open(now)
	v.allowed = allowed()
	v.balance = floor()
	if v.balance.Sign() < 0 || !hasBucket {
		v.balance = new(big.Int)
	}
	return v
}

// drawConfig draws a valid configuration: a ready one, or fields from values
// that meet each other's edges.
func drawConfig(t *rapid.T) retrybudget.Config {
	ready := []retrybudget.Config{
		{}, retrybudget.Finagle(), retrybudget.GRPC(), retrybudget.AWS(), retrybudget.Envoy(),
		retrybudget.Ferron(), retrybudget.FerronStrict(), retrybudget.Echofront(),
	}
	if i := rapid.IntRange(0, 3*len(ready)).Draw(t, "ready"); i < len(ready) {
		return ready[i]
	}
	pick := func(name string, values ...float64) float64 {
		return rapid.SampledFrom(values).Draw(t, name)
	}
	cfg := retrybudget.Config{
		Capacity:     pick("Capacity", 0, 3, 3, 1, 5.5, 20, -1),
		Initial:      pick("Initial", 0, -1, 1, 2.5),
		Cost:         pick("Cost", 0, 0, -1, 0.7, 3),
		Threshold:    pick("Threshold", 0, 0, 0.5, 2),
		PerRequest:   pick("PerRequest", 0, 0.2, 1.0/3, 1),
		PerSuccess:   pick("PerSuccess", 0, -1, 0.6, 1, 4),
		RetrySuccess: pick("RetrySuccess", 0, 0, 0.9),
		PerFailure:   pick("PerFailure", 0, 0, 1, 0.25),
		PerSecond:    pick("PerSecond", 0, -1, 1, 2, 1.0/3, 1e-9, 1e6),
		TTL: rapid.SampledFrom([]time.Duration{
			0, 0, time.Second, 10 * time.Second, 37, 1,
		}).Draw(t, "TTL"),
	}
	if rapid.Bool().Draw(t, "shared") || cfg.Capacity < 0 {
		cfg.Share = retrybudget.Share{
			Rate:  pick("Rate", 0.1, 0.6, 1.0/3, 0, 1),
			Of:    rapid.SampledFrom([]retrybudget.Base{retrybudget.Requests, retrybudget.Successes, retrybudget.Active}).Draw(t, "Of"),
			Burst: pick("Burst", 0, 0, 1, 2.5),
			Min:   pick("Min", 0, 0, 1, 2.5),
			Window: rapid.SampledFrom([]time.Duration{
				0, -1, time.Second, 41,
			}).Draw(t, "Window"),
		}
	}
	if cfg.Validate() != nil {
		t.Skip("invalid")
	}
	return cfg
}

// drawTime draws the next instant: mostly the same, or near a boundary.
func drawTime(t *rapid.T, c *retrybudget.Core, cfg retrybudget.Config, now int64) int64 {
	step := func(n int64) int64 {
		if n > 0 && now > math.MaxInt64-n || n < 0 && now < math.MinInt64-n {
			return now
		}
		return now + n
	}
	slot := func(d time.Duration) int64 { return (int64(max(d, 1)) + 9) / 10 }
	switch rapid.IntRange(0, 11).Draw(t, "step") {
	case 0, 1, 2, 3:
		return now
	case 4, 5: // when the next retry is due
		if at, ok := c.NextGrant(now); ok && at < math.MaxInt64 {
			return at
		}
		return now
	case 6: // and just before
		if at, ok := c.NextGrant(now); ok && at > now && at < math.MaxInt64 {
			return at - 1
		}
		return now
	case 7:
		return step(slot(cfg.TTL))
	case 8:
		return step(slot(cfg.Share.Window))
	case 9:
		return step(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "some"))
	case 10:
		return step(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "more"))
	default: // back
		return step(-rapid.Int64Range(0, int64(time.Second)).Draw(t, "back"))
	}
}

// drawKinds draws which inputs a run uses at all: a run without successes or
// without refunds reaches other states than one with all of them.
func drawKinds(t *rapid.T) []opKind {
	mask := rapid.IntRange(1, 1<<opKinds-1).Draw(t, "inputs")
	kinds := []opKind{opWithdraw}
	for k := range opKinds {
		if mask&(1<<k) != 0 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// modelProp holds a core to the history.
func modelProp(t *rapid.T) {
	cfg := drawConfig(t)
	kinds := drawKinds(t)
	c := retrybudget.NewCore(cfg)
	h := &history{cfg: cfg}
	now := rapid.SampledFrom([]int64{0, 1, -5 * sec, math.MaxInt64 - 30*sec, math.MinInt64 + 2*sec}).Draw(t, "origin")
	t.Repeat(map[string]func(*rapid.T){
		"input": func(t *rapid.T) {
			now = drawTime(t, &c, cfg, now)
			o := op{rapid.SampledFrom(kinds).Draw(t, "kind"), now}
			h.log = append(h.log, o)
			got := o.apply(&c)
			want := h.judge(now)
			if last := want.grants[len(want.grants)-1]; got != last {
				t.Fatalf("%v answered %v, want %v\nconfig %+v\nlog %v", o, got, last, cfg, h.log)
			}
		},
		"": func(t *rapid.T) {
			before := c
			want := h.judge(now)
			if got := c.CanWithdraw(now); got != want.allowed {
				t.Fatalf("CanWithdraw(%d) is %v, want %v\nconfig %+v\nlog %v", now, got, want.allowed, cfg, h.log)
			}
			balance := new(big.Int).Quo(want.balance, nano).Int64()
			if got, want := c.Balance(now), float64(balance)/1e9; got != want {
				t.Fatalf("Balance(%d) is %v, want %v\nconfig %+v\nlog %v", now, got, want, cfg, h.log)
			}
			if len(h.log) == 0 {
				return // nothing has started
			}
			at, ok := c.NextGrant(now)
			if !ok || at == math.MaxInt64 {
				at = math.MaxInt64
			} else if !h.judge(at).allowed {
				t.Fatalf("NextGrant(%d) is %d, which grants nothing\nconfig %+v\nlog %v", now, at, cfg, h.log)
			}
			// Nothing earlier grants: just before, and anywhere.
			from := now
			for _, o := range h.log {
				from = max(from, o.at)
			}
			if ok && at < from {
				t.Fatalf("NextGrant(%d) is %d, before the latest input %d", now, at, from)
			}
			if at > from {
				some := from + int64(rapid.Uint64Range(0, min(uint64(at)-uint64(from)-1, 1<<40)).Draw(t, "earlier"))
				for _, early := range []int64{at - 1, some} {
					if h.judge(early).allowed {
						t.Fatalf("NextGrant(%d) is %d, but %d grants\nconfig %+v\nlog %v", now, at, early, cfg, h.log)
					}
				}
			}
			c.RetryAfter(now)
			if c != before {
				t.Fatalf("a read changed the budget")
			}
		},
	})
}

func TestModel(t *testing.T) { checkSeeded(t, 1, modelProp) }

// mark is the state of the accounts at an instant.
type mark struct {
	at              int64
	spent, deposits float64
}

// boundProp checks, on long random runs, that what is granted was paid for.
func boundProp(t *rapid.T) {
	cfg := drawConfig(t)
	if cfg.Capacity < 0 {
		t.Skip("no bucket")
	}
	kinds := drawKinds(t)
	c := retrybudget.NewCore(cfg)
	full := func(v, def float64) float64 {
		if v == 0 {
			return def
		}
		return max(v, 0)
	}
	var (
		cost      = full(cfg.Cost, 1)
		perSecond = full(cfg.PerSecond, 0.1)
		capacity  = max(full(cfg.Capacity, 10), perSecond*cfg.TTL.Seconds())
		spent     float64
		deposits  float64
		now       int64
		first     int64
		marks     []mark
	)
	n := rapid.IntRange(1, 400).Draw(t, "n")
	for i := range n {
		now = max(now, drawTime(t, &c, cfg, now))
		if i == 0 {
			first = now
		}
		o := op{rapid.SampledFrom(kinds).Draw(t, "kind"), now}
		switch granted := o.apply(&c); {
		case granted:
			spent += cost
		case o.kind == opRequest:
			deposits += cfg.PerRequest
		case o.kind == opSuccess:
			deposits += full(cfg.PerSuccess, 0.1)
		case o.kind == opRetryOK:
			deposits += cfg.RetrySuccess
		case o.kind == opRefund:
			deposits += cost
		}
		elapsed := float64(now-first) / 1e9
		if bound := capacity + deposits + perSecond*elapsed; spent > bound*(1+1e-12)+1e-9 {
			t.Fatalf("spent %v, more than %v + %v + %v * %vs\nconfig %+v", spent, capacity, deposits, perSecond, elapsed, cfg)
		}
		if b := c.Balance(now); b < 0 || b > capacity+1e-9 {
			t.Fatalf("balance %v, want 0 to %v\nconfig %+v", b, capacity, cfg)
		}
		// Without expiry the same holds from any instant on.
		for _, m := range marks {
			bound := capacity + deposits - m.deposits + perSecond*float64(now-m.at)/1e9
			if got := spent - m.spent; cfg.TTL == 0 && got > bound*(1+1e-12)+1e-9 {
				t.Fatalf("spent %v since %d, more than %v\nconfig %+v", got, m.at, bound, cfg)
			}
		}
		marks = append(marks, mark{now, spent, deposits})
	}
}

// TestShareWindow checks the share by a naive recount of every window.
func TestShareWindow(t *testing.T) {
	checkSeeded(t, 3, func(t *rapid.T) {
		const window = int64(100)
		cfg := retrybudget.Config{Capacity: -1, Share: retrybudget.Share{
			Rate:   rapid.SampledFrom([]float64{0.1, 0.25, 0.5, 1}).Draw(t, "rate"),
			Burst:  rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "burst"),
			Window: time.Duration(window),
		}}
		c := retrybudget.NewCore(cfg)
		var requests, grants []int64
		now := int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "n") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 3, 9, 10, 11, 40}).Draw(t, "step")
			if rapid.Bool().Draw(t, "request") {
				c.Request(now)
				requests = append(requests, now)
			} else if c.Withdraw(now) {
				grants = append(grants, now)
			}
		}
		within := func(list []int64, from, to int64) (n int) {
			for _, at := range list {
				if from <= at && at <= to {
					n++
				}
			}
			return n
		}
		// Any nine tenths of a window up to a grant hold at most the share of the
		// whole window before it.
		for _, at := range grants {
			used := within(grants, at-window*9/10+1, at)
			base := within(requests, at-window+1, at)
			require.LessOrEqual(t, float64(used), cfg.Share.Rate*float64(base)+cfg.Share.Burst)
		}
	})
}
