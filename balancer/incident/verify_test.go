package incident_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// Events without an input are read no further than that is told.
func TestVerifyEventsOnly(t *testing.T) {
	lines := &repeated{head: strings.NewReader(head + `{"t":"0","in":"time"}` + "\n"), line: `{"t":"1","ev":"none","r":1}` + "\n"}
	r, err := incident.NewReader(lines)
	require.NoError(t, err)
	cfg, err := r.Header().Config()
	require.NoError(t, err)
	var d *incident.Divergence
	require.ErrorAs(t, incident.Verify(r, cfg), &d)
	require.Equal(t, 3, d.Line)
	require.Equal(t, "", d.Got)
	require.Len(t, d.After, 5)
	require.Less(t, r.Line(), 200)

	// What time brings there may be much of, and is compared all the same.
	var b strings.Builder
	b.WriteString(strings.Replace(head, `"members":[{"b":"a"},{"b":"b"}]`, `"members":[]`, 1))
	b.WriteString(`{"t":"0","in":"update","members":[{"b":"m0"}`)
	for i := range 299 {
		fmt.Fprintf(&b, `,{"b":"m%d"}`, i+1)
	}
	b.WriteString("]}\n")
	for i := range 300 {
		fmt.Fprintf(&b, `{"t":"1","in":"acquire","r":%d}`+"\n", i+1)
	}
	for i := range 300 {
		fmt.Fprintf(&b, `{"t":"2","in":"settle","r":%d,"out":"failure"}`+"\n", i+1)
	}
	b.WriteString(`{"t":"90","in":"time"}` + "\n{\"end\":true}\n")
	scenario := strings.Replace(b.String(), `"First":true}}`, `"First":true},"Breaker":{"ConsecutiveFailures":1},"Outlier":{"Off":true}}`, 1)
	file := string(replayed(t, []byte(scenario)))
	require.Equal(t, 300, strings.Count(file, `"ev":"half_open"`))
	require.NoError(t, verify(t, []byte(file)))
	bad := strings.Replace(file, `"ev":"half_open","n":900,`, `"ev":"half_open","n":1,`, 1)
	require.NotEqual(t, file, bad)
	require.Contains(t, divergence(t, bad).Got, `"n":900,`)

	// One too many of very many is found where it stands.
	text := goldenText(t, "half-open-abort")
	at := strings.Index(text, `{"t":"1.03","in":"acquire"`)
	lines = &repeated{head: strings.NewReader(text[:at]), line: `{"t":"1.03","ev":"half_open","n":4,"b":"a","why":"timer"}` + "\n"}
	r, err = incident.NewReader(lines)
	require.NoError(t, err)
	cfg, err = r.Header().Config()
	require.NoError(t, err)
	require.ErrorAs(t, incident.Verify(r, cfg), &d)
	require.Equal(t, 12, d.Line)
	require.Equal(t, "", d.Got)
}

// repeated is a text without an end.
type repeated struct {
	head *strings.Reader
	line string
	left string
}

func (z *repeated) Read(b []byte) (int, error) {
	if z.head.Len() > 0 {
		return z.head.Read(b)
	}
	if z.left == "" {
		z.left = z.line
	}
	n := copy(b, z.left)
	z.left = z.left[n:]
	return n, nil
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
		{`{"t":"1","in":"request","r":5}`, "request 5 has an attempt out, and its number is in use"},
		{`{"t":"1","in":"acquire","r":5}`, "request 5 has an attempt out, and its number is in use"},
		{`{"t":"1","in":"acquire","r":6}`, "request 6 has an attempt out, and its number is in use"},
		{`{"t":"1","in":"next","r":5}`, "request 5 has an attempt out, which is to end first"},
		{`{"t":"1","in":"done","r":7,"out":"success"}`, "request 7 has no attempt 0 out"},
	} {
		var out bytes.Buffer
		before := []string{`{"t":"0","in":"request","r":5}`, `{"t":"0","in":"acquire","r":6}`, `{"t":"0","in":"request","r":7}`, `{"t":"0","in":"done","r":7,"out":"transport_failure"}`}
		err := incident.Replay(&out, reader(t, scenario(append(before, x.line)...)), balancer.Config{})
		require.ErrorContains(t, err, x.msg)
		require.ErrorContains(t, err, "line 6: ")
	}
	// When it is over, its number is free; so is that of one that waits for nothing
	// but its caller.
	for _, over := range []string{`{"t":"0","in":"stop","r":1}`, `{"t":"0","in":"done","r":1,"out":"transport_failure"}`} {
		require.NoError(t, verify(t, replayed(t, scenario(`{"t":"0","in":"request","r":1}`, over, `{"t":"1","in":"acquire","r":1}`))))
	}
}

// What is wrong with the header is told with its line, where nothing in it is
// wrong by itself.
func TestHeaderErrors(t *testing.T) {
	for _, x := range []struct{ from, to, msg string }{
		{`"b"}]}`, `"b"}],"state":"AQID"}`, "the Pool at the start: "},
		{`{"b":"b"}]`, `{"b":"a"}]`, "given twice"},
		{`"First":true}}`, `"First":true},"Retry":{"Max":-4}}`, "Max"},
		{`{"name":"round_robin","First":true}`, `{"name":"hash","Keyless":{"name":"z","custom":true}}`, `the policy "z" is not built in and was not given`},
		{`{"name":"round_robin","First":true}`, `{"name":"z","custom":true}`, `the policy "z" is not built in and was not given`},
	} {
		r := reader(t, append([]byte("# a comment\n\n"), strings.Replace(string(scenario()), x.from, x.to, 1)...))
		f, err := r.File()
		require.NoError(t, err)
		err = incident.Verify(r, r.Header().Settings)
		require.ErrorContains(t, err, "incident: line 3: ")
		require.ErrorContains(t, err, x.msg)
		require.ErrorContains(t, incident.Replay(io.Discard, f.Reader(), f.Header.Settings), x.msg)
	}
	r := reader(t, scenario())
	require.ErrorContains(t, incident.Verify(r, balancer.Config{Seed: 8}), "incident: line 1: the Config has seed 8, the file 7")
}

// A replay says by what it was made.
func TestReplayHeader(t *testing.T) {
	file := strings.Replace(string(scenario(`{"t":"1","in":"time"}`)), `"lib":"evenkeel/0"`, `"lib":"other/1"`, 1)
	var out bytes.Buffer
	require.NoError(t, incident.Replay(&out, reader(t, []byte(file)), balancer.Config{Policy: balancer.Random{}}))
	h := reader(t, out.Bytes()).Header()
	require.Equal(t, incident.Library, h.Library)
	require.Equal(t, balancer.Config{Policy: balancer.Random{}}, h.Settings)
	require.EqualValues(t, 7, h.Seed)
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
		return incident.FromRecording(tape.Dump(), p.Config(), incident.Options{KeySecret: []byte("secret")})
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
	for _, policy := range []balancer.Policy{balancer.Hash{}, &balancer.Hash{}, ownHash{}, &ownHash{}} {
		err := verify(t, text(t, record(policy)), policy)
		require.ErrorContains(t, err, "hashed under a secret")
	}
}

// ownHash is a policy of one's own that looks at keys.
type ownHash struct{ balancer.Hash }

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
