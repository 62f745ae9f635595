package balancer_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/stretchr/testify/require"
)

// attempt names an attempt that is out.
type attempt struct {
	request uint64
	number  int32
}

// replay feeds the inputs of a recording to a Pool restored from its start and
// returns what that Pool's own tape says, on the recording's timeline.
func replay(t *testing.T, cfg balancer.Config, r balancer.Recording) []balancer.Record {
	t.Helper()
	clk := clock.NewManual(time.Unix(1000, 0))
	cfg.Clock, cfg.OnEvent = clk, nil
	p, err := balancer.RestorePool(cfg, r.Start, r.Members...)
	require.NoError(t, err)
	tape := balancer.NewTape(len(r.Records) + 1)
	p.Attach(tape)
	leases := map[attempt]balancer.Lease[balancer.Member]{}
	for _, l := range p.Leases() {
		leases[attempt{l.Request(), int32(l.Attempt())}] = l
	}
	tries := map[uint64]*balancer.Try[balancer.Member]{}
	at := func(ns int64) time.Time { return time.Unix(1000, 0).Add(time.Duration(ns - r.At)) }
	try := func(rec balancer.Record) *balancer.Try[balancer.Member] {
		if x := tries[rec.Request]; x != nil {
			return x
		}
		var x balancer.Try[balancer.Member]
		if rec.Phase == 0 {
			req := balancer.Request{ID: rec.Request, Key: rec.Key}
			if rec.Own {
				req.ID = 0
			}
			if rec.Deadline != 1<<63-1 {
				req.Deadline = at(rec.Deadline)
			}
			x = p.Start(req)
		} else {
			x, err = p.Resume(rec.Shift(-r.At))
			require.NoError(t, err)
		}
		tries[rec.Request] = &x
		return &x
	}
	for _, rec := range r.Records {
		if rec.Kind != balancer.RecordEvent {
			clk.Set(at(rec.At))
		}
		switch rec.Kind {
		case balancer.RecordUpdate:
			require.NoError(t, p.Update(rec.Members...))
		case balancer.RecordHealth:
			_ = p.SetHealth(rec.Upstream, rec.Healthy, rec.Note)
		case balancer.RecordPoll:
			p.Poll()
		case balancer.RecordAcquire:
			req := balancer.Request{ID: rec.Request, Key: rec.Key}
			if rec.Own {
				req.ID = 0
			}
			if l, err := p.Acquire(req); err == nil {
				leases[attempt{l.Request(), 0}] = l
			}
		case balancer.RecordNext:
			step := try(rec).Next()
			if step.Kind == balancer.StepSend {
				leases[attempt{step.Lease.Request(), int32(step.Lease.Attempt())}] = step.Lease
			}
		case balancer.RecordDone:
			try(rec).Done(balancer.Report{Outcome: rec.Outcome, Latency: rec.Latency, Retry: rec.Verdict})
		case balancer.RecordStop:
			try(rec).Stop()
		case balancer.RecordAnswered:
			leases[attempt{rec.Request, rec.Attempt}].Answered()
		case balancer.RecordSettle:
			leases[attempt{rec.Request, rec.Attempt}].Settle(balancer.Report{Outcome: rec.Outcome, Latency: rec.Latency})
		}
	}
	got := tape.Dump()
	require.Equal(t, r.Start, got.Start, "the checkpoint restores to itself")
	for i := range got.Records {
		got.Records[i] = got.Records[i].Shift(r.At)
	}
	return got.Records
}

// equalRecords compares one by one, so that a failure shows the first
// divergence and not two walls of text.
func equalRecords(t *testing.T, want, got []balancer.Record) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if want[i].Kind == balancer.RecordUpdate {
			require.Equal(t, want[i].Members, got[i].Members)
		}
		require.Equal(t, want[i], got[i], "record %d of %d", i, len(want))
	}
	require.Len(t, got, len(want))
}

func tapeConfig(p balancer.Policy) balancer.Config {
	return balancer.Config{
		Policy: p, Seed: 11,
		Breaker: breaker.Config{ConsecutiveFailures: 4, OpenFor: 2 * time.Millisecond, OpenGrowth: 2, OpenJitter: 0.5},
		Outlier: outlier.Config{Consecutive: 3, Base: time.Millisecond, Jitter: time.Millisecond},
		Retry:   balancer.Retry{Max: 3, OnFailure: true, SameUpstream: 1, Backoff: balancer.Backoff{Base: 10 * time.Microsecond}},
	}
}

// What is recorded from a Pool that many goroutines use at once, from the middle
// of its life and with calls in flight, replays to the same decisions.
func TestTapeOfConcurrentRunReplays(t *testing.T) {
	seed, _ := seedOf(t, 7)
	for _, policy := range []balancer.Policy{balancer.PeakEWMA{}, balancer.LeastConn{Ties: balancer.TiesRandom}, balancer.WeightedRoundRobin{}, balancer.Hash{}} {
		t.Run(policy.Name(), func(t *testing.T) {
			cfg := tapeConfig(policy)
			members := func(n int) (out []balancer.Member) {
				for i := range n {
					out = append(out, balancer.Member{Name: fmt.Sprint("m", i), Share: 1 + i%3, Limit: 100 * (i % 2)})
				}
				return out
			}
			p, err := balancer.NewPool(cfg, members(40)...)
			require.NoError(t, err)
			tape := balancer.NewTape(opsOf(t, 4000) * 10)
			var wg sync.WaitGroup
			ops := opsOf(t, 4000) / 8
			for g := range uint64(8) {
				wg.Go(func() {
					var held []balancer.Lease[balancer.Member]
					for i := range uint64(ops) {
						if g == 0 && i == uint64(ops)/4 {
							p.Attach(tape)
						}
						x := mixed(seed + g<<32 + i)
						switch x % 30 {
						case 0:
							_ = p.Update(members(36 + int(x>>8%6))...)
						case 1:
							_ = p.SetHealth(fmt.Sprint("m", x>>8%40), x>>16%3 > 0, "drawn")
						case 2:
							p.Poll()
						case 3, 4, 5:
							if l, err := p.Acquire(balancer.Request{Key: balancer.HashKey(x)}); err == nil {
								held = append(held, l)
							}
						case 6, 7, 8:
							if len(held) > 0 {
								held[0].Answered()
								held[0].Settle(balancer.Report{Outcome: balancer.Outcome(x >> 8 % 4), Latency: time.Duration(x >> 16 % 3000)})
								held = held[1:]
							}
						case 9:
							// A Try that is given up.
							try := p.Start(balancer.Request{})
							try.Next()
							if x>>8%2 == 0 {
								try.Done(balancer.Report{Outcome: balancer.TransportFailure})
								try.Next()
							}
							try.Stop()
						default:
							ctx, cancel := context.WithTimeout(context.Background(), time.Second)
							_ = p.Do(ctx, balancer.Request{Key: balancer.HashKey(x)}, func(context.Context, balancer.Member) error {
								if x>>8%3 == 0 {
									return errDown
								}
								return nil
							})
							cancel()
						}
					}
					for _, l := range held {
						l.Release(balancer.Success)
					}
				})
			}
			wg.Wait()
			p.Attach(nil)
			rec := tape.Dump()
			require.False(t, tape.Lost())
			require.Greater(t, len(rec.Records), ops)
			equalRecords(t, rec.Records, replay(t, cfg, rec))
		})
	}
}

// A tape that has gone round begins at a checkpoint, and what it holds replays.
func TestTapeRing(t *testing.T) {
	cfg := tapeConfig(balancer.PeakEWMA{})
	cfg.Retry.Backoff = balancer.Backoff{}
	clk := clock.NewManual(time.Unix(0, 0))
	cfg.Clock = clk
	var members []balancer.Member
	for i := range 5 {
		members = append(members, balancer.Member{Name: fmt.Sprint("m", i), Share: 1})
	}
	p, err := balancer.NewPool(cfg, members...)
	require.NoError(t, err)
	tape := balancer.NewTape(100)
	require.Empty(t, tape.Dump().Records)
	p.Attach(tape)
	for i := range uint64(1000) {
		clk.Advance(time.Duration(mixed(i) % 1e6))
		_ = p.Do(context.Background(), balancer.Request{}, func(context.Context, balancer.Member) error {
			clk.Advance(time.Duration(mixed(i) % 1e6))
			if mixed(i+1e6)%4 == 0 {
				return errDown
			}
			return nil
		})
		if i%97 == 0 {
			rec := tape.Dump()
			require.LessOrEqual(t, len(rec.Records), 2*(100+20))
			equalRecords(t, rec.Records, replay(t, cfg, rec))
		}
	}
	require.True(t, tape.Lost())
}

// A record that is the first after a checkpoint replays whatever it is about.
func TestTapeCheckpointBeforeEachKind(t *testing.T) {
	for offset := range 16 {
		cfg := tapeConfig(balancer.LeastConn{})
		clk := clock.NewManual(time.Unix(0, 0))
		cfg.Clock = clk
		p, err := balancer.NewPool(cfg, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
		require.NoError(t, err)
		tape := balancer.NewTape(16)
		p.Attach(tape)
		for range offset {
			p.Poll()
		}
		for range 6 {
			clk.Advance(time.Millisecond)
			l, err := p.Acquire(balancer.Request{})
			require.NoError(t, err)
			clk.Advance(time.Millisecond)
			l.Answered()
			clk.Advance(time.Millisecond)
			l.Release(balancer.Success)
		}
		rec := tape.Dump()
		equalRecords(t, rec.Records, replay(t, cfg, rec))
	}
}

// Events that still wait for the hook when a tape is attached are not on it.
func TestTapeAttachedFromHook(t *testing.T) {
	cfg := tapeConfig(balancer.RoundRobin{First: true})
	clk := clock.NewManual(time.Unix(0, 0))
	cfg.Clock = clk
	tape := balancer.NewTape(100)
	var p *balancer.Pool[balancer.Member]
	attached := false
	cfg.OnEvent = func(e balancer.Event) {
		if e.Kind == balancer.UpstreamUnhealthy && e.Upstream == "a" && !attached {
			attached = true
			_ = p.SetHealth("b", false, "from the hook")
			p.Attach(tape)
		}
	}
	p, err := balancer.NewPool(cfg, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1}, balancer.Member{Name: "c", Share: 1})
	require.NoError(t, err)
	require.NoError(t, p.SetHealth("a", false, "test"))
	require.True(t, attached)
	require.NoError(t, p.SetHealth("b", true, "test"))
	rec := tape.Dump()
	require.Len(t, rec.Records, 2, "the input and its event")
	equalRecords(t, rec.Records, replay(t, cfg, rec))
}

// A tape may be dumped while the Pool is in use, and goes on after it; what was
// dumped is not overwritten.
func TestTapeDumpWhileRecording(t *testing.T) {
	cfg := tapeConfig(balancer.PeakEWMA{})
	p, err := balancer.NewPool(cfg, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
	require.NoError(t, err)
	tape := balancer.NewTape(64)
	p.Attach(tape)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range opsOf(t, 4000) / 8 {
				if l, err := p.Acquire(balancer.Request{}); err == nil {
					l.Release(balancer.Success)
				}
			}
		})
	}
	var dumps []balancer.Recording
	for range 10 {
		dumps = append(dumps, tape.Dump())
	}
	wg.Wait()
	for _, rec := range dumps {
		equalRecords(t, rec.Records, replay(t, cfg, rec))
	}
}

// Draining gives every record once, in order, and keeps none.
func TestTapeDrain(t *testing.T) {
	var none balancer.Tape
	require.Empty(t, none.Drain(nil))
	run := func(drain bool) (out []balancer.Record) {
		cfg := tapeConfig(balancer.RoundRobin{First: true})
		clk := clock.NewManual(time.Unix(0, 0))
		cfg.Clock = clk
		p, err := balancer.NewPool(cfg, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
		require.NoError(t, err)
		tape := balancer.NewTape(1000)
		if drain {
			tape = balancer.NewTape(16)
		}
		p.Attach(tape)
		for i := range 200 {
			clk.Advance(time.Millisecond)
			if l, err := p.Acquire(balancer.Request{}); err == nil {
				l.Release(balancer.Outcome(mixed(uint64(i)) % 4))
			}
			if drain && i%20 < 10 {
				out = tape.Drain(out)
			}
		}
		if drain {
			require.Empty(t, tape.Dump().Records)
			return tape.Drain(out)
		}
		return tape.Dump().Records
	}
	want, got := run(false), run(true)
	require.Equal(t, len(want), len(got))
	equalRecords(t, want, got)
}

// A tape begins where its older segment does.
func TestTapeStart(t *testing.T) {
	clk := clock.NewManual(time.Unix(0, 0))
	p, err := balancer.NewPool(balancer.Config{Seed: 1, Clock: clk}, balancer.Member{Name: "a", Share: 1})
	require.NoError(t, err)
	tape := balancer.NewTape(16)
	require.Zero(t, tape.Start())
	require.False(t, tape.Lost())
	p.Attach(tape)
	for i := range 60 {
		clk.Advance(time.Second)
		p.Poll()
		dump, start := tape.Dump(), tape.Start()
		dump.Records = nil
		require.Equal(t, dump, start)
		segments := []time.Duration{0, 17 * time.Second, 33 * time.Second, 49 * time.Second}
		require.Equal(t, segments[max(0, i/16-1)], time.Duration(start.At))
	}
	tape.Drain(nil)
	require.Zero(t, tape.Start())
}

// What a Drain has handed out stays as it is, and what it gives back is used
// again: in the end two segments are at work and two wait.
func TestTapeDrainSwaps(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 1}, balancer.Member{Name: "a", Share: 1})
	require.NoError(t, err)
	tape := balancer.NewTape(100)
	p.Attach(tape)
	var all, b []balancer.Record
	lap := func() {
		for range 75 {
			l, _ := p.Acquire(balancer.Request{})
			l.Release(balancer.Success)
		}
		b = tape.Drain(b[:0])
	}
	for range 10 {
		lap()
		all = append(all, b...)
	}
	require.False(t, tape.Lost())
	require.Len(t, all, 1500)
	for i := range all {
		require.EqualValues(t, i/2+1, all[i].Request)
	}
	require.Zero(t, testing.AllocsPerRun(100, lap))
}

// Whoever is not a member is not on the tape: there is nothing to feed back but
// the time.
func TestTapeOfUnknownHealth(t *testing.T) {
	cfg := balancer.Config{Seed: 1, Clock: clock.NewManual(time.Unix(0, 0))}
	p, err := balancer.NewPool(cfg, balancer.Member{Name: "a", Share: 1})
	require.NoError(t, err)
	tape := balancer.NewTape(100)
	p.Attach(tape)
	require.ErrorIs(t, p.SetHealth("\xff", false, "?"), balancer.ErrUnknownUpstream)
	require.NoError(t, p.SetHealth("a", false, "!"))
	rec := tape.Dump()
	require.Equal(t, balancer.Record{Kind: balancer.RecordPoll, Picked: -1, Latest: -1}, rec.Records[0])
	require.Equal(t, balancer.RecordHealth, rec.Records[1].Kind)
	equalRecords(t, rec.Records, replay(t, cfg, rec))
}

// Done tells whether it was the request's end.
func TestTapeOfDone(t *testing.T) {
	for _, c := range []struct {
		outcome balancer.Outcome
		verdict balancer.Verdict
		retry   bool // Config.Retry.OnFailure
		over    bool
	}{
		{outcome: balancer.Ignored, verdict: balancer.RetryAllowed, over: true},
		{outcome: balancer.Success, verdict: balancer.RetryAllowed, over: true},
		{outcome: balancer.Failure, over: true},
		{outcome: balancer.Failure, retry: true},
		{outcome: balancer.Failure, verdict: balancer.RetryAllowed},
		{outcome: balancer.TransportFailure},
		{outcome: balancer.TransportFailure, verdict: balancer.RetryForbidden, over: true},
	} {
		p, err := balancer.NewPool(balancer.Config{Seed: 1, Retry: balancer.Retry{OnFailure: c.retry}}, balancer.Member{Name: "a", Share: 1})
		require.NoError(t, err)
		tape := balancer.NewTape(100)
		p.Attach(tape)
		x := p.Start(balancer.Request{})
		x.Next()
		x.Done(balancer.Report{Outcome: c.outcome, Retry: c.verdict})
		got := tape.Dump().Records
		require.Equal(t, balancer.RecordDone, got[1].Kind)
		require.Equal(t, c.over, got[1].Over, "%+v", c)
	}
}

// Shift keeps what comes apart from what never does, as far as times go.
func TestShift(t *testing.T) {
	const never = math.MaxInt64
	for _, x := range []struct{ at, by, want int64 }{
		{10, -3, 7}, {10, 3, 13}, {math.MinInt64, -5, math.MinInt64}, {math.MinInt64 + 3, -5, math.MinInt64},
		{math.MinInt64, 5, math.MinInt64 + 5}, {never - 5, 4, never - 1}, {never - 5, 5, never - 1}, {never - 5, 6, never - 1},
		{never, 5, never}, {never, -5, never},
	} {
		r := balancer.Record{Kind: balancer.RecordNext, Until: x.at, Deadline: x.at}.Shift(x.by)
		require.Equal(t, x.want, r.Until, "%+v", x)
		require.Equal(t, x.want, r.Deadline, "%+v", x)
	}
	r := balancer.Record{Kind: balancer.RecordSettle, At: 7}.Shift(-7)
	require.Equal(t, balancer.Record{Kind: balancer.RecordSettle}, r, "no deadline and no end to move")
}

// Resume takes no record that it cannot follow.
func TestResumeRefuses(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 1}, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
	require.NoError(t, err)
	l, err := p.Acquire(balancer.Request{ID: 9})
	require.NoError(t, err)
	good := balancer.Record{Request: 9, Phase: 1, NTried: 1, Deadline: math.MaxInt64}
	_, err = p.Resume(good)
	require.NoError(t, err)
	for name, change := range map[string]func(*balancer.Record){
		"a phase after the last":             func(r *balancer.Record) { r.Phase = 4 },
		"another attempt than is out":        func(r *balancer.Record) { r.Retries = 1 },
		"another request than is out":        func(r *balancer.Record) { r.Request = 8 },
		"more tried than told":               func(r *balancer.Record) { r.NTried = 9 },
		"fewer tried than told":              func(r *balancer.Record) { r.More = []int32{0} },
		"fewer than none":                    func(r *balancer.Record) { r.NTried = -1 },
		"a position before the first":        func(r *balancer.Record) { r.Tried[0] = -2 },
		"a position after the last":          func(r *balancer.Record) { r.Tried[0] = 2 },
		"a latest position after the last":   func(r *balancer.Record) { r.Latest = 2 },
		"a latest position before the first": func(r *balancer.Record) { r.Latest = -2 },
	} {
		r := good
		change(&r)
		_, err := p.Resume(r)
		require.ErrorIs(t, err, balancer.ErrState, name)
	}
	l.Release(balancer.Success)
	settled := good
	_, err = p.Resume(settled)
	require.ErrorIs(t, err, balancer.ErrState, "nothing is out any more")
	settled.Settled = true
	_, err = p.Resume(settled)
	require.NoError(t, err)
}

// Recording costs an attempt no allocation once the ring has gone round.
func TestTapeAllocations(t *testing.T) {
	p, err := balancer.NewPool(balancer.Config{Seed: 1}, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
	require.NoError(t, err)
	p.Attach(balancer.NewTape(100_000))
	f := func() {
		l, _ := p.Acquire(balancer.Request{})
		l.Release(balancer.Success)
	}
	f()
	require.Zero(t, testing.AllocsPerRun(1000, f))
}

// mixed is a mixer of the test's own.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>29
}

// BenchmarkRecorder is an attempt with and without a tape that goes round: one
// of an Acquire, and one of a request that may be retried.
func BenchmarkRecorder(b *testing.B) {
	attempts := map[string]func(p *balancer.Pool[balancer.Member]){
		"acquire": func(p *balancer.Pool[balancer.Member]) {
			l, _ := p.Acquire(balancer.Request{})
			l.Release(balancer.Success)
		},
		"try": func(p *balancer.Pool[balancer.Member]) {
			t := p.Start(balancer.Request{})
			t.Next()
			t.Done(balancer.Report{Outcome: balancer.Success})
		},
	}
	for _, name := range []string{"acquire", "try"} {
		for _, armed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/armed=%v", name, armed), func(b *testing.B) {
				p, err := balancer.NewPool(balancer.Config{Seed: 1}, balancer.Member{Name: "a", Share: 1}, balancer.Member{Name: "b", Share: 1})
				require.NoError(b, err)
				if armed {
					p.Attach(balancer.NewTape(1 << 15))
				}
				attempt := attempts[name]
				b.ReportAllocs()
				for b.Loop() {
					attempt(p)
				}
			})
		}
	}
}
