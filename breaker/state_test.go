package breaker_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// step is one input of a random run; at is relative to the start of the run.
type step struct {
	op  int
	at  int64
	arg int64
	ok  bool
}

func drawSteps(t *rapid.T) []step {
	all := make([]step, rapid.IntRange(1, 80).Draw(t, "steps"))
	at := int64(0)
	for i := range all {
		at += int64(rapid.SampledFrom([]int{0, 0, 1, 2, 3, 10, 40}).Draw(t, "dt"))
		all[i] = step{
			op:  rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6}).Draw(t, "op"),
			at:  at,
			arg: int64(rapid.IntRange(0, 30).Draw(t, "arg")),
			ok:  rapid.Bool().Draw(t, "ok"),
		}
	}
	return all
}

// run applies the steps to c with every time multiplied by scale and moved by
// shift. It returns what c answered, with times changed back, and the tickets
// still out.
func run(c *breaker.Core, held []breaker.Ticket, steps []step, scale, shift int64) (log []any, out []breaker.Ticket) {
	note := func(v ...any) { log = append(log, v...) }
	rel := func(at int64) int64 {
		if at == math.MaxInt64 || at == math.MinInt64 {
			return at
		}
		return (at - shift) / scale
	}
	for _, st := range steps {
		now := st.at*scale + shift
		switch st.op {
		case 0:
			tk, why := c.Allow(now)
			note(why, tk.Trial())
			if why == breaker.Admitted {
				held = append(held, tk)
			}
		case 1, 2:
			if len(held) == 0 {
				break
			}
			i := int(st.arg) % len(held)
			tk := held[i]
			held = append(held[:i:i], held[i+1:]...)
			if st.op == 1 {
				note(c.Done(now, tk, st.ok))
			} else {
				c.Cancel(now, tk)
			}
		case 3:
			c.Poll(now)
		case 4:
			c.Trip(now, st.arg*scale)
		case 5:
			c.Force(now, breaker.State(st.arg%3))
		case 6:
			c.Release(now)
		}
		note(c.State(now), c.Ready(now), c.Counts(now), c.Stats(), c.Flapping(now), rel(c.NextChange()), rel(c.Until()), c.Idle(now))
		// Some changes stay in the queue, to be saved with the rest.
		for st.arg%2 == 0 && c.Changed() {
			ch, _ := c.Pop()
			ch.At = rel(ch.At)
			if ch.OpenFor != math.MaxInt64 {
				ch.OpenFor /= time.Duration(scale)
			}
			note(ch)
		}
	}
	return log, held
}

// A core that is saved anywhere and restored, also on another time line, goes on
// in the same way; and time itself has no meaning, only differences do.
func propRestore(t *rapid.T) {
	cfg := drawConfig(t)
	seed := rapid.Uint64().Draw(t, "seed")
	steps := drawSteps(t)
	cut := rapid.IntRange(0, len(steps)).Draw(t, "cut")
	shift := rapid.Int64Range(-1<<50, 1<<50).Draw(t, "shift")

	whole := breaker.NewCore(cfg, seed)
	want, _ := run(&whole, nil, steps, 1, 0)

	first := breaker.NewCore(cfg, seed)
	got, held := run(&first, nil, steps[:cut], 1, 0)
	at := rapid.Int64Range(-100, 4000).Draw(t, "saved at")
	saved := first.AppendState(nil, at)
	for _, tk := range held {
		saved = tk.AppendState(saved, at)
	}
	proto := breaker.NewCore(cfg, seed+1)
	second := proto.Fresh(seed)
	rest, err := second.RestoreState(saved, at+shift)
	if err != nil {
		t.Fatal(err)
	}
	for i := range held {
		if rest, err = held[i].RestoreState(rest, at+shift); err != nil {
			t.Fatal(err)
		}
	}
	if len(rest) != 0 {
		t.Fatalf("%d bytes left", len(rest))
	}
	more, _ := run(&second, held, steps[cut:], 1, shift)
	got = append(got, more...)
	sameAnswers(t, got, want)
	if a, b := whole.AppendState(nil, 0), second.AppendState(nil, shift); !bytes.Equal(a, b) {
		t.Fatalf("saved at the end:\n%x\n%x", a, b)
	}
}

func sameAnswers(t *rapid.T, got, want []any) {
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("answer %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

// Time has no unit: with every duration and every instant 1024 times as long, the
// same happens. (Where a length is rounded to the nanosecond, it may not be.)
func propScale(t *rapid.T) {
	const scale = 1024
	cfg := drawConfig(t)
	cfg.Window *= 10 // divides into tenths
	cfg.OpenJitter = 0
	cfg.OpenGrowth = float64(int(cfg.OpenGrowth))
	steps := drawSteps(t)
	one := breaker.NewCore(cfg, 0)
	want, _ := run(&one, nil, steps, 1, 0)
	for _, d := range []*time.Duration{
		&cfg.SlowAfter, &cfg.FailAfter, &cfg.Window, &cfg.OpenFor, &cfg.OpenMax, &cfg.FlapWindow,
	} {
		*d *= scale
	}
	for _, d := range []*time.Duration{&cfg.ForgetAfter, &cfg.TrialTimeout} {
		if *d > 0 {
			*d *= scale
		}
	}
	long := breaker.NewCore(cfg, 0)
	got, _ := run(&long, nil, steps, scale, 1<<40)
	sameAnswers(t, got, want)
}

func TestTimeHasNoUnit(t *testing.T) {
	deepen(t, 400)
	checkSeeded(t, 8, propScale)
}

func TestRestoreContinues(t *testing.T) {
	deepen(t, 800)
	checkSeeded(t, 4, propRestore)
}

// busy returns a core with something in every part of its state.
func busy(t *testing.T) (breaker.Core, breaker.Config) {
	cfg := breaker.Config{
		ConsecutiveFailures: 3, WindowFailures: 4, FailureRate: 0.9, SlowRate: 0.9, OpenGrowth: 2,
		Trials: 3, Passes: 3, FlapTransitions: 3,
	}
	x := newScript(t, cfg)
	x.calls(0, "FFF")
	x.c.Force(s, breaker.HalfOpen)
	x.c.Cancel(s, x.allow(s))
	x.call(s, true)
	x.allow(2 * s)
	x.allow(3 * s)
	return x.c, cfg
}

func TestRestoreRefusesWhatIsNoState(t *testing.T) {
	c, cfg := busy(t)
	closed := breaker.NewCore(cfg, 1)
	y := &script{t, closed}
	y.calls(0, "SFF")
	for _, c := range []*breaker.Core{&c, &y.c} {
		saved := c.AppendState(nil, 0)
		target := breaker.NewCore(cfg, 1)
		tk, _ := target.Allow(0)
		target.Done(0, tk, false)
		before := target.AppendState(nil, 0)

		for n := range saved {
			_, err := target.RestoreState(saved[:n], 0)
			require.ErrorIs(t, err, breaker.ErrState, "first %d bytes", n)
		}
		// Any byte changed: either an error, or a state that works.
		for i := range saved {
			for _, v := range []byte{0, 1, 2, 3, 4, 0x7f, 0x80, 0xff} {
				bad := bytes.Clone(saved)
				bad[i] = v
				got := breaker.NewCore(cfg, 1)
				if _, err := got.RestoreState(bad, 0); err != nil {
					require.ErrorIs(t, err, breaker.ErrState)
					continue
				}
				exercise(&got)
			}
		}
		// Trials, but closed.
		if bad := bytes.Clone(saved); bad[1] == byte(breaker.HalfOpen) {
			bad[1] = byte(breaker.Closed)
			_, err := target.RestoreState(bad, 0)
			require.ErrorIs(t, err, breaker.ErrState)
		}
		for _, bad := range []string{"", "\x00", "\x02\x00", "\x01\x01\x00\x00\x00\x00\x00\x01\x00\x00"} {
			_, err := target.RestoreState([]byte(bad), 0)
			require.ErrorIs(t, err, breaker.ErrState)
		}
		require.Equal(t, before, target.AppendState(nil, 0), "unchanged by errors")

		rest, err := target.RestoreState(append(saved, 7), 0)
		require.NoError(t, err)
		require.Equal(t, []byte{7}, rest)
		require.Equal(t, saved, target.AppendState(nil, 0))
	}

	// A state of another configuration.
	saved := c.AppendState(nil, 0)
	for _, other := range []breaker.Config{{}, {Off: true}} {
		target := breaker.NewCore(other, 1)
		_, err := target.RestoreState(saved, 0)
		require.ErrorIs(t, err, breaker.ErrState)
	}
	// A rate window or a flap that nobody would keep up, and half-open by force,
	// which Force does not hold.
	one := breaker.Config{ConsecutiveFailures: 1, OpenFor: time.Second}
	for name, with := range map[string]breaker.Config{
		"rates": {ConsecutiveFailures: 1, OpenFor: time.Second, FailureRate: 1},
		"flap":  {ConsecutiveFailures: 1, OpenFor: time.Second, FlapTransitions: 1},
	} {
		x := newScript(t, with)
		x.call(0, false)
		x.call(s, true)
		x.call(s, true) // closed, and a result in the window
		x.changes()
		target := breaker.NewCore(one, 1)
		_, err := target.RestoreState(x.c.AppendState(nil, 0), 0)
		require.ErrorIs(t, err, breaker.ErrState, name)
	}
	x := newScript(t, one)
	x.call(0, false)
	x.c.Poll(s)
	bad := x.c.AppendState(nil, 0)
	require.Equal(t, []byte{byte(breaker.HalfOpen), 0}, bad[1:3])
	bad[2] = 1
	_, err := x.c.RestoreState(bad, 0)
	require.ErrorIs(t, err, breaker.ErrState)

	var ticket breaker.Ticket
	_, err = ticket.RestoreState([]byte{1}, 0)
	require.ErrorIs(t, err, breaker.ErrState)
	_, err = ticket.RestoreState(nil, 0)
	require.ErrorIs(t, err, breaker.ErrState)
}

// exercise drives a core through everything; it must not panic.
func exercise(c *breaker.Core) {
	for now := int64(0); now < 100*s; now += 5 * s {
		tk, _ := c.Allow(now)
		c.Counts(now)
		c.Until()
		c.Idle(now)
		c.Done(now, tk, now%2 == 0)
		c.Flapping(now)
		for c.Changed() {
			c.Pop()
		}
	}
	c.Poll(math.MaxInt64)
	c.Trip(math.MaxInt64, 1)
	c.AppendState(nil, math.MinInt64)
}

func TestBreakerIsSavedAndRestored(t *testing.T) {
	a := breaker.New(three)
	fail(t, a, sec(0), 3)
	saved := a.AppendState(nil, sec(4))
	b := breaker.New(three)
	var got []time.Time
	b.Observe(func(at time.Time, _ breaker.Change) { got = append(got, at) })
	_, err := b.RestoreState(nil, sec(0))
	require.ErrorIs(t, err, breaker.ErrState)
	_, err = b.RestoreState(saved, sec(1000))
	require.NoError(t, err)
	require.False(t, b.Ready(sec(1006).Add(-1)))
	_, err = b.Allow(sec(1005))
	var rej *breaker.RejectedError
	require.ErrorAs(t, err, &rej)
	require.Equal(t, sec(1006), rej.Until)
	pass(t, b, sec(1006))
	require.Equal(t, []time.Time{sec(1006), sec(1006)}, got)
}

// Instants that would leave the range on the other time line saturate.
func TestRestoreSaturates(t *testing.T) {
	x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 100})
	tk := x.allow(0)
	x.call(0, false)
	saved := x.c.AppendState(nil, 0)
	ticket := tk.AppendState(nil, 10)

	y := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 100})
	_, err := y.c.RestoreState(saved, math.MaxInt64-50)
	require.NoError(t, err)
	require.EqualValues(t, int64(math.MaxInt64), y.c.NextChange())
	y.refused(math.MaxInt64, breaker.Opened)
	_, err = tk.RestoreState(ticket, math.MinInt64+5)
	require.NoError(t, err)
	require.EqualValues(t, int64(math.MinInt64), tk.At())
}

// However often a breaker has opened, what it remembers of that can be saved.
func TestManyOpeningsAreSaved(t *testing.T) {
	x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 10, OpenGrowth: 1.5, OpenMax: 20})
	x.reopen(0, 1500)
	_, err := x.c.RestoreState(x.c.AppendState(nil, 0), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1500, x.c.Stats().Opened)
}

// As many passes as close the breaker cannot stand in a state: it would be closed.
func TestRestoreRefusesEnoughPasses(t *testing.T) {
	x := newScript(t, breaker.Config{ConsecutiveFailures: 1, OpenFor: 10, Passes: 3})
	x.call(0, false)
	x.call(10, true)
	x.call(11, true)
	saved := x.c.AppendState(nil, 11)
	for passes, ok := range map[int]bool{3: true, 2: false} {
		c := breaker.NewCore(breaker.Config{ConsecutiveFailures: 1, OpenFor: 10, Passes: passes}, 1)
		_, err := c.RestoreState(saved, 0)
		if ok {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, breaker.ErrState)
		}
	}
}
