package incident_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/clock"
	"github.com/stretchr/testify/require"
)

func goldenText(t *testing.T, name string) string {
	b, err := os.ReadFile(golden(name))
	require.NoError(t, err)
	return string(b)
}

func divergence(t *testing.T, file string) *incident.Divergence {
	t.Helper()
	err := verify(t, []byte(file))
	require.ErrorIs(t, err, incident.ErrDivergence)
	var d *incident.Divergence
	require.ErrorAs(t, err, &d)
	return d
}

// change replaces line n of a file, from 1, or deletes it.
func change(file string, n int, from, to string) string {
	lines := strings.SplitAfter(file, "\n")
	if from == "" {
		lines[n-1] = to
	} else {
		lines[n-1] = strings.Replace(lines[n-1], from, to, 1)
	}
	return strings.Join(lines, "")
}

func TestDivergence(t *testing.T) {
	file := goldenText(t, "half-open-abort")
	require.NoError(t, verify(t, []byte(file)))

	t.Run("an event is another", func(t *testing.T) {
		d := divergence(t, change(file, 8, `"until":"1.03"`, `"until":"1.04"`))
		require.Equal(t, 8, d.Line)
		require.Equal(t, `{"t":"0.03","ev":"opened","n":2,"b":"a","until":"1.04","why":"consecutive","count":2}`, d.Want)
		require.Equal(t, `{"t":"0.03","ev":"opened","n":2,"b":"a","until":"1.03","why":"consecutive","count":2}`, d.Got)
		lines := strings.Split(file, "\n")
		require.Equal(t, lines[2:7], d.Before, "five lines before")
		require.Equal(t, lines[8:13], d.After, "and five after")
		state := "a: healthy, in, breaker open, 0 in flight, 2 served, 2 failed\n"
		require.Equal(t, state, d.Recorded)
		require.Equal(t, state, d.Replayed)
		require.Equal(t, "a", d.Snapshot.Upstreams[0].ID)
		text := d.Error()
		require.Contains(t, text, "diverges at line 8\n")
		require.Contains(t, text, "  - "+d.Want+"\n  + "+d.Got+"\n")
		require.Contains(t, text, "state as recorded:\n    "+state)
	})
	t.Run("an event is missing", func(t *testing.T) {
		d := divergence(t, change(file, 8, "", ""))
		require.Equal(t, 8, d.Line)
		require.Equal(t, `{"t":"0.03","in":"acquire","r":3}`, d.Want)
		require.Contains(t, d.Got, "opened")
		require.Equal(t, "a: healthy, in, breaker closed, 0 in flight, 2 served, 2 failed\n", d.Recorded)
		require.Equal(t, "a: healthy, in, breaker open, 0 in flight, 2 served, 2 failed\n", d.Replayed)
	})
	t.Run("the last event is missing", func(t *testing.T) {
		d := divergence(t, change(file, 26, "", ""))
		require.Equal(t, "", d.Want)
		require.Contains(t, d.Got, "closed")
		require.Empty(t, d.After)
	})
	t.Run("an event too many", func(t *testing.T) {
		d := divergence(t, change(file, 9, "", `{"t":"0.03","ev":"closed","n":3,"b":"a"}`+"\n"+`{"t":"0.03","in":"acquire","r":3}`+"\n"))
		require.Equal(t, 9, d.Line)
		require.Contains(t, d.Want, "closed")
		require.Equal(t, "{\"t\":\"0.03\",\"in\":\"acquire\",\"r\":3}", d.Got)
		require.Equal(t, d.Got, d.After[0])
	})
	t.Run("an event too many at the end", func(t *testing.T) {
		d := divergence(t, change(file, 27, "", `{"t":"2","ev":"returned","n":6,"b":"a"}`+"\n{\"end\":true}\n"))
		require.Equal(t, 27, d.Line)
		require.Contains(t, d.Want, "returned")
		require.Equal(t, "", d.Got)
	})
	t.Run("two events before an input are swapped", func(t *testing.T) {
		file := goldenText(t, "ejection-cap")
		lines := strings.SplitAfter(file, "\n")
		i := 0
		for !strings.Contains(lines[i], `"ev":"returned"`) {
			i++
		}
		lines[i] = strings.Replace(lines[i], `"b":"a"`, `"b":"d"`, 1)
		d := divergence(t, strings.Join(lines, ""))
		require.Equal(t, i+1, d.Line)
		require.Equal(t, strings.TrimSuffix(lines[i+1], "\n"), d.After[0], "what was read ahead stands after it")
	})
	t.Run("a time", func(t *testing.T) {
		d := divergence(t, change(file, 3, `"t":"0.01"`, `"t":"0.010000001"`))
		require.Equal(t, 3, d.Line)
	})
	t.Run("an input without its object", func(t *testing.T) {
		d := divergence(t, change(file, 4, `"r":1`, `"r":2`))
		require.Equal(t, 4, d.Line)
		require.ErrorIs(t, d, incident.ErrInput)
		require.Contains(t, d.Got, "request 2 has no attempt 0 out")
	})
	t.Run("another library", func(t *testing.T) {
		file := strings.Replace(file, `"lib":"evenkeel/0"`, `"lib":"other/1"`, 1)
		require.NoError(t, verify(t, []byte(file)), "what is the same is the same")
		d := divergence(t, change(file, 8, `"n":2`, `"n":9`))
		require.Contains(t, d.Error(), "recorded by other/1, replayed by evenkeel/0")
	})
	t.Run("another configuration", func(t *testing.T) {
		r := reader(t, []byte(file))
		cfg, err := r.Header().Config()
		require.NoError(t, err)
		cfg.Breaker.OpenFor++
		var d *incident.Divergence
		require.True(t, errors.As(incident.Verify(r, cfg), &d))
		require.Equal(t, 8, d.Line)
		require.Contains(t, d.Got, `"until":"1.030000001"`)
	})
}

// No field of an event is overlooked.
func TestEveryFieldCounts(t *testing.T) {
	changes := map[string]func(*incident.Line){
		"t": func(l *incident.Line) { l.At++ }, "r": func(l *incident.Line) { l.Request++ }, "try": func(l *incident.Line) { l.Try++ },
		"b": func(l *incident.Line) { l.Upstream += "x" }, "fallback": func(l *incident.Line) { l.Fallback = !l.Fallback },
		"for": func(l *incident.Line) { l.Wait++ }, "end": func(l *incident.Line) { l.End++ }, "n": func(l *incident.Line) { l.Seq++ },
		"until": func(l *incident.Line) { l.Until++ }, "why": func(l *incident.Line) { l.Why += "x" }, "count": func(l *incident.Line) { l.Count++ },
		"event": func(l *incident.Line) { l.Event++ },
	}
	fields := map[incident.Kind][]string{
		incident.EvPick: {"t", "r", "b", "fallback"}, incident.EvRetry: {"t", "r", "b", "try", "fallback"}, incident.EvNone: {"t", "r"},
		incident.EvWait: {"t", "r", "for"}, incident.EvEnd: {"t", "r", "end"}, incident.EvState: {"t", "event", "n", "b", "until", "why", "count"},
	}
	seen := map[incident.Kind]bool{}
	for _, x := range incidents {
		f, err := incident.Read(strings.NewReader(goldenText(t, x.name)))
		require.NoError(t, err)
		cfg, err := f.Header.Config()
		require.NoError(t, err)
		for i, l := range f.Lines {
			if l.Kind.In() || seen[l.Kind] {
				continue
			}
			seen[l.Kind] = true
			for _, name := range fields[l.Kind] {
				changes[name](&f.Lines[i])
				var d *incident.Divergence
				require.True(t, errors.As(incident.Verify(f.Reader(), cfg), &d), "%v with another %s", l, name)
				require.Equal(t, i+2, d.Line, name)
				f.Lines[i] = l
			}
		}
	}
	require.Len(t, seen, len(fields))
}

// Replay says which input has nothing to act on.
func TestReplayErrors(t *testing.T) {
	for _, x := range []struct{ line, msg string }{
		{`{"t":"1","in":"settle","r":9,"out":"success"}`, "request 9 has no attempt 0 out"},
		{`{"t":"1","in":"answered","r":9,"try":2}`, "request 9 has no attempt 2 out"},
		{`{"t":"1","in":"done","r":9,"out":"success"}`, "request 9 is not under way"},
		{`{"t":"1","in":"next","r":9}`, "request 9 is not under way"},
		{`{"t":"1","in":"next","r":9,"phase":"sent","latest":"a"}`, "request 9 has no attempt 0 out"},
		{`{"t":"1","in":"next","r":9,"phase":"failed","tried":["z"],"latest":"a"}`, `no upstream "z"`},
		{`{"t":"1","in":"update","members":[{"b":"a"},{"b":"a"}]}`, "given twice"},
	} {
		var out bytes.Buffer
		err := incident.Replay(&out, reader(t, scenario(`{"t":"0","in":"time"}`, x.line)), balancer.Config{})
		require.ErrorContains(t, err, x.msg)
		require.ErrorContains(t, err, "line 3: ")
	}
	r := reader(t, []byte(strings.Replace(head, `"b"}]}`, `"b"}],"state":"AQID"}`, 1)))
	require.ErrorIs(t, incident.Verify(r, balancer.Config{}), balancer.ErrState)
}

// Keys that were hashed under a secret are no longer the keys, equal ones are
// still equal, and a policy that looks at no key replays.
func TestHashedKeys(t *testing.T) {
	record := func(policy balancer.Policy) *incident.Reader {
		p, err := balancer.NewPool(balancer.Config{Seed: 1, Policy: policy, Clock: clock.NewManual(time.Unix(0, 0))}, members(5)...)
		require.NoError(t, err)
		tape := balancer.NewTape(100)
		p.Attach(tape)
		for i := range 12 {
			l, err := p.Acquire(balancer.Request{Key: balancer.StringKey(string(rune('a' + i%3)))})
			require.NoError(t, err)
			l.Release(balancer.Success)
		}
		return incident.FromRecording(tape.Dump(p), p.Config(), incident.Options{KeySecret: []byte("secret")})
	}
	file := text(t, record(balancer.LeastConn{}))
	require.NoError(t, verify(t, file))
	f, err := incident.Read(bytes.NewReader(file))
	require.NoError(t, err)
	seen := map[uint64]int{}
	for _, l := range f.Lines {
		if l.Kind == incident.InAcquire {
			require.True(t, l.HasHash)
			seen[l.Hash]++
		}
	}
	require.Len(t, seen, 3)
	for s := range 3 {
		h, _ := balancer.StringKey(string(rune('a' + s))).Hash()
		require.NotContains(t, seen, h)
	}
	require.ErrorContains(t, verify(t, text(t, record(balancer.Hash{}))), "hashed under a secret")
}

// Property 14: what comes later changes nothing before it, and a request that is
// left out changes no other one's picks where requests do not touch.
func TestCausality(t *testing.T) {
	seed, _ := seedOf(t, 5)
	f := &incident.File{Header: incident.Header{Seed: seed | 1, Settings: balancer.Config{Policy: balancer.TwoRandom{}}, Members: members(20)}}
	for i := range uint64(200) {
		at := time.Duration(i) * time.Millisecond
		f.Lines = append(f.Lines,
			incident.Line{Kind: incident.InRequest, At: at, Request: i + 1},
			incident.Line{Kind: incident.InDone, At: at + time.Microsecond, Request: i + 1, Outcome: balancer.Success})
	}
	whole := func(f *incident.File) string {
		b, err := f.Bytes()
		require.NoError(t, err)
		return string(replayed(t, b))
	}
	all := whole(f)
	end := "{\"end\":true}\n"
	for _, cut := range []int{0, 1, 100, 301} {
		prefix := *f
		prefix.Lines = f.Lines[:cut]
		require.True(t, strings.HasPrefix(all, strings.TrimSuffix(whole(&prefix), end)), "cut at %d", cut)
	}
	for _, gone := range []int{0, 77, 199} {
		less := *f
		less.Lines = append(append([]incident.Line{}, f.Lines[:2*gone]...), f.Lines[2*gone+2:]...)
		var rest []string
		for _, l := range strings.SplitAfter(all, "\n") {
			if !strings.Contains(l, `"r":`+strconv.Itoa(gone+1)+",") && !strings.Contains(l, `"r":`+strconv.Itoa(gone+1)+"}") {
				rest = append(rest, l)
			}
		}
		require.Equal(t, strings.Join(rest, ""), whole(&less), "without request %d", gone+1)
	}
}

// A million requests are verified in the memory of a few.
func TestVerifyIsFlat(t *testing.T) {
	rec, cfg := traffic(t, 1000)
	file := text(t, incident.FromRecording(rec, cfg, incident.Options{}))
	verifyIt := func() {
		require.NoError(t, incident.Verify(reader(t, file), cfg))
	}
	verifyIt()
	// Setting up takes some hundred allocations, each request none.
	require.Less(t, testing.AllocsPerRun(3, verifyIt), 1000.0)
}
