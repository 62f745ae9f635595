package incident_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/breaker"
	"github.com/evenkeel-go/evenkeel/hashring"
	"github.com/evenkeel-go/evenkeel/outlier"
	"github.com/evenkeel-go/evenkeel/retrybudget"
	"github.com/stretchr/testify/require"
)

// head is a header that stands before the lines of a test.
const head = `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","config":{"Policy":{"name":"round_robin","First":true}},"members":[{"b":"a"},{"b":"b"}]}` + "\n"

// scenario is a file of inputs without their events.
func scenario(lines ...string) []byte {
	return []byte(head + strings.Join(append(lines, `{"end":true}`), "\n") + "\n")
}

func TestHandWrittenFile(t *testing.T) {
	file := []byte("# What happens to b.\n\n" + head + `
# Spaces, blank lines and comments do no harm.
  {"t": "0.500", "in": "health", "b": "b", "up": false, "why": "a \"test\"\n\u00e4"}
{"t":"0.5","in":"request","r":1,"key":"user-1","deadline":"2"}
{"t":"0.75","in":"done","r":1,"out":"transport_failure"}
{"t":"0.75","in":"next","r":1}
{"t":"1","in":"update","members":[{"b":"b","weight":2},{"b":"c","weight":0,"tier":-1,"limit":3}]}
{"t":"1","in":"time"}
{"end":true}`)
	f, err := incident.Read(bytes.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, "a \"test\"\nä", f.Lines[0].Why)
	require.Equal(t, []balancer.Member{{Name: "b", Share: 2}, {Name: "c", Tier: -1, Limit: 3}}, f.Lines[4].Members)
	got := string(replayed(t, file))
	require.Equal(t, head+`{"t":"0.5","in":"health","b":"b","up":false,"why":"a \"test\"\u000aä"}
{"t":"0.5","ev":"unhealthy","n":3,"b":"b","why":"a \"test\"\u000aä"}
{"t":"0.5","in":"request","r":1,"key":"user-1","deadline":"2"}
{"t":"0.5","ev":"pick","r":1,"b":"a"}
{"t":"0.75","in":"done","r":1,"out":"transport_failure"}
{"t":"0.75","in":"next","r":1}
{"t":"0.75","ev":"end","r":1,"why":"no_target"}
{"t":"1","in":"update","members":[{"b":"b","weight":2},{"b":"c","weight":0,"tier":-1,"limit":3}]}
{"t":"1","ev":"left","n":4,"b":"a"}
{"t":"1","ev":"joined","n":5,"b":"c"}
{"t":"1","in":"time"}
{"end":true}
`, got)
	require.NoError(t, verify(t, []byte(got)))
}

func TestSyntaxErrors(t *testing.T) {
	good := string(scenario(`{"t":"1","in":"acquire","r":1}`))
	for _, x := range []struct {
		name, file string
		line       int
		msg        string
	}{
		{"empty", "", 1, "the file is empty"},
		{"no header", `{"t":"1","in":"time"}`, 1, "want a header"},
		{"future", strings.Replace(good, `"incident":1`, `"incident":2`, 1), 1, "version 2, this library reads version 1"},
		{"seed 0", strings.Replace(good, `"seed":7`, `"seed":0`, 1), 1, "seed is 0"},
		{"header order", strings.Replace(good, `"lib":"evenkeel/0","seed":7`, `"seed":7,"lib":"evenkeel/0"`, 1), 1, `want "lib", got "seed"`},
		{"header key", strings.Replace(good, `"members"`, `"upstreams"`, 1), 1, `want "members", got "upstreams"`},
		{"start", strings.Replace(good, `2026-01`, `2026-13`, 1), 1, "RFC 3339"},
		{"config key", strings.Replace(good, `"First"`, `"Last"`, 1), 1, `config.Policy has no "Last"`},
		{"state", strings.Replace(good, `"b"}]}`, `"b"}],"state":"?"}`, 1), 1, "state is not base64"},
		{"cut in a line", good[:len(head)+20], 2, "no closing quote"},
		{"cut between lines", strings.TrimSuffix(good, "{\"end\":true}\n"), 3, `want {"end":true}, the file is cut off`},
		{"after the end", good + "{}\n", 4, "nothing after"},
		{"not JSON", string(scenario(`hello`)), 2, `want '{' at column 1, got "hello"`},
		{"no t", string(scenario(`{"in":"time","t":"1"}`)), 2, `want "t" first, got "in"`},
		{"no kind", string(scenario(`{"t":"1"}`)), 2, `want "in" or "ev" after "t"`},
		{"unknown kind", string(scenario(`{"t":"1","in":"explode"}`)), 2, `unknown "in" "explode"`},
		{"wrong side", string(scenario(`{"t":"1","ev":"acquire","r":1}`)), 2, `unknown "ev" "acquire"`},
		{"missing", string(scenario(`{"t":"1","in":"settle","r":1}`)), 2, `settle without "out"`},
		{"missing before", string(scenario(`{"t":"1","in":"settle","out":"success"}`)), 2, `want "r", got "out"`},
		{"order", string(scenario(`{"t":"1","in":"settle","r":1,"lat":"1","out":"success"}`)), 2, `want "out", got "lat"`},
		{"order of optional", string(scenario(`{"t":"1","in":"request","r":1,"deadline":"2","key":"x"}`)), 2, `"key" is out of order or given twice`},
		{"twice", string(scenario(`{"t":"1","in":"acquire","r":1,"r":1}`)), 2, `"r" is out of order or given twice`},
		{"unknown key", string(scenario(`{"t":"1","in":"time","r":1}`)), 2, `time has no "r"`},
		{"float", string(scenario(`{"t":1.5,"in":"time"}`)), 2, "want t as a string"},
		{"exponent", string(scenario(`{"t":"1e3","in":"time"}`)), 2, "want seconds with up to nine decimals"},
		{"ten decimals", string(scenario(`{"t":"0.0123456789","in":"time"}`)), 2, "want seconds with up to nine decimals"},
		{"leading zero", string(scenario(`{"t":"01","in":"time"}`)), 2, "want seconds"},
		{"beyond", string(scenario(`{"t":"9223372036.854775808","in":"time"}`)), 2, "want seconds"},
		{"never in digits", string(scenario(`{"t":"1","ev":"wait","r":1,"for":"9223372036.854775807"}`)), 2, "for is \"9223372036.854775807\", want seconds"},
		{"before the start", string(scenario(`{"t":"-1","in":"time"}`)), 2, "t is before the start"},
		{"time goes back", string(scenario(`{"t":"1","in":"time"}`, `{"t":"0.999999999","in":"time"}`)), 3, "time goes back from 1 to 0.999999999"},
		{"request 0", string(scenario(`{"t":"1","in":"acquire","r":0}`)), 2, "r is 0"},
		{"huge request", string(scenario(`{"t":"1","in":"acquire","r":18446744073709551616}`)), 2, "too large"},
		{"outcome", string(scenario(`{"t":"1","in":"settle","r":1,"out":"good"}`)), 2, `out is "good", want one of ignored, success, failure, transport_failure`},
		{"hash", string(scenario(`{"t":"1","in":"acquire","r":1,"hash":"12"}`)), 2, "16 hexadecimal digits"},
		{"two keys", string(scenario(`{"t":"1","in":"acquire","r":1,"key":"x","hash":"0123456789abcdef"}`)), 2, `both "key" and "hash"`},
		{"weight", string(scenario(`{"t":"1","in":"update","members":[{"b":"a","weight":99999999}]}`)), 2, "weight is 99999999, want at most 1048576"},
		{"member order", string(scenario(`{"t":"1","in":"update","members":[{"b":"a","tier":1,"weight":1}]}`)), 2, `"weight" is out of order`},
		{"retry 0", string(scenario(`{"t":"1","ev":"retry","r":1,"try":0,"b":"a"}`)), 2, "retry with try 0"},
		{"progress", string(scenario(`{"t":"1","in":"next","r":1,"retries":1}`)), 2, `"retries" without "phase"`},
		{"wait", string(scenario(`{"t":"1","in":"next","r":1,"phase":"waiting"}`)), 2, `want "wait_until" with phase "waiting"`},
		{"UTF-8", string(scenario("{\"t\":\"1\",\"in\":\"health\",\"b\":\"\xff\",\"up\":true}")), 2, "not valid UTF-8"},
		{"hash in capitals", string(scenario(`{"t":"1","in":"acquire","r":1,"hash":"0123456789abcdeF"}`)), 2, "16 hexadecimal digits in lower case"},
		{"hash beyond f", string(scenario(`{"t":"1","in":"acquire","r":1,"hash":"0123456789abcdeg"}`)), 2, "16 hexadecimal digits in lower case"},
		{"t never", string(scenario(`{"t":"never","in":"time"}`)), 2, "t is before the start or never"},
		{"end of a stop", string(scenario(`{"t":"1","ev":"end","r":1,"why":"stopped"}`)), 2, `why is "stopped", want one of`},
		{"member key twice", string(scenario(`{"t":"1","in":"update","members":[{"b":"a","weight":2,"weight":2}]}`)), 2, `"weight" is out of order or given twice`},
		{"excerpt", string(scenario(`xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx`)), 2, `want '{' at column 1, got "xxxxxxxxxxxxxxxxxxxxxxxx"`},
		{"wait with another phase", string(scenario(`{"t":"1","in":"next","r":1,"phase":"failed","wait_until":"1"}`)), 2, `want "wait_until" with phase "waiting"`},
		{"keys", strings.Replace(good, `"config"`, `"keys":"plain","config"`, 1), 1, `keys is "plain", want "hashed"`},
		{"lax base64", strings.Replace(good, `"b"}]}`, `"b"}],"state":"AR=="}`, 1), 1, "state is not base64"},
		{"end is false", strings.Replace(good, `{"end":true}`, `{"end":false}`, 1), 3, `want "t" first, got "end"`},
		{"escape", string(scenario(`{"t":"1","in":"health","b":"\ud800","up":true}`)), 2, "bad escape"},
		{"rest of line", string(scenario(`{"t":"1","in":"time"} x`)), 2, "want the end of the line"},
		{"two on a line", string(scenario(`{"t":"1","in":"time"}{"t":"1","in":"time"}`)), 2, "want the end of the line"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := incident.Read(strings.NewReader(x.file))
			var bad *incident.SyntaxError
			require.ErrorAs(t, err, &bad)
			require.ErrorIs(t, err, incident.ErrSyntax)
			require.Equal(t, x.line, bad.Line, bad.Msg)
			require.Contains(t, bad.Msg, x.msg)
		})
	}
}

// A file that is cut off anywhere is refused, however much of it is left.
func TestTruncation(t *testing.T) {
	file, err := os.ReadFile(golden("half-open-abort"))
	require.NoError(t, err)
	for n := range len(file) - 1 {
		_, err := incident.Read(bytes.NewReader(file[:n]))
		require.ErrorIs(t, err, incident.ErrSyntax, "cut at %d", n)
	}
}

// Times keep every nanosecond.
func TestExactTimes(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 999_999_999, 1e9, 1e9 + 1, 12_000_120_000, math.MaxInt64 - 1, math.MaxInt64, -1, math.MinInt64 + 1, math.MinInt64} {
		l := incident.Line{Kind: incident.EvState, Event: balancer.BreakerOpened, Seq: 1, Upstream: "a", Until: d}
		f := &incident.File{Header: incident.Header{Seed: 1}, Lines: []incident.Line{l}}
		b, err := f.Bytes()
		require.NoError(t, err)
		back, err := incident.Read(bytes.NewReader(b))
		require.NoError(t, err, string(b))
		require.Equal(t, d, back.Lines[0].Until)
	}
}

// fill sets every field of a Config that is data to something.
func fill(v reflect.Value, n *int) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch *n++; f.Kind() {
		case reflect.Struct:
			fill(f, n)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Float64:
			f.SetFloat(float64(*n) / 7)
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			f.SetInt(int64(*n) - 20)
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			f.SetUint(uint64(*n))
		case reflect.String:
			f.SetString("text")
		case reflect.Func, reflect.Interface:
		default:
			panic("a Config has a field that a file cannot hold: " + v.Type().Field(i).Name)
		}
	}
}

// Every field of a Config that is data comes back from a file.
func TestConfigIsData(t *testing.T) {
	var cfg balancer.Config
	n := 0
	fill(reflect.ValueOf(&cfg).Elem(), &n)
	cfg.Seed = 9
	for _, p := range []balancer.Policy{
		nil, balancer.RoundRobin{IndexCursor: true}, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{Ties: balancer.TiesIndex},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{Ring: hashring.RingConfig{VirtualNodes: 3, Seed: math.MaxUint64}, Keyless: balancer.LeastConn{}},
	} {
		cfg.Policy = p
		f := &incident.File{Header: incident.Header{Seed: 9, Settings: cfg, Library: "x", Note: "n", State: []byte{1, 2}, HashedKeys: true, Start: time.Unix(5, 7).UTC()}}
		b, err := f.Bytes()
		require.NoError(t, err)
		back, err := incident.Read(bytes.NewReader(b))
		require.NoError(t, err, string(b))
		got, err := back.Header.Config()
		require.NoError(t, err)
		require.Equal(t, cfg, got)
		f.Header.Settings.Seed = 0 // stands in the header itself
		require.Equal(t, f.Header, back.Header)
	}
	// What presets use.
	cfg = balancer.Config{Breaker: breaker.Config{TrialTimeout: -1}, Outlier: outlier.Config{Forgive: -1}, Budget: retrybudget.Finagle()}
	f := &incident.File{Header: incident.Header{Seed: 9, Settings: cfg}}
	b, err := f.Bytes()
	require.NoError(t, err)
	back, err := incident.Read(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, cfg, back.Header.Settings)
}

// A policy that is not built in is given anew.
func TestCustomPolicy(t *testing.T) {
	h := incident.Header{Seed: 1, Settings: balancer.Config{Policy: firstUsable{}}}
	b, err := (&incident.File{Header: h}).Bytes()
	require.NoError(t, err)
	require.Contains(t, string(b), `"Policy":{"name":"first_usable","custom":true}`)
	r := reader(t, b)
	_, err = r.Header().Config()
	require.ErrorContains(t, err, `"first_usable" is not built in`)
	cfg, err := r.Header().Config(firstUsable{})
	require.NoError(t, err)
	require.NoError(t, incident.Verify(r, cfg))
	require.Error(t, incident.Verify(reader(t, b), balancer.Config{Seed: 2}), "another seed")
}

type firstUsable struct{}

func (firstUsable) Name() string                                                  { return "first_usable" }
func (firstUsable) NewPicker(v *balancer.View, _ balancer.Picker) balancer.Picker { return first{v} }

type first struct{ v *balancer.View }

func (f first) Pick(balancer.Call) int { return f.v.NextUsable(0) }

// What Write accepts is read as it was, and what would not be it refuses.
func TestWriterRefuses(t *testing.T) {
	_, err := incident.NewWriter(&bytes.Buffer{}, incident.Header{})
	require.ErrorContains(t, err, "without a seed")
	next := func(p incident.Progress) incident.Line {
		return incident.Line{Kind: incident.InNext, Request: 1, From: &p}
	}
	member := func(m balancer.Member) incident.Line {
		return incident.Line{Kind: incident.InUpdate, Members: []balancer.Member{m}}
	}
	for name, lines := range map[string][]incident.Line{
		"a line of kind 0":           {{}},
		"a line of kind 200":         {{Kind: 200}},
		"change of state of kind 0":  {{Kind: incident.EvState}},
		"change of state of kind 99": {{Kind: incident.EvState, Event: 99}},
		"time goes back from":        {{Kind: incident.InTime, At: 2}, {Kind: incident.InTime, At: 1}},
		"back from 0 to -1":          {{Kind: incident.InTime, At: -1e9}},
		"from 0 to never":            {{Kind: incident.InTime, At: incident.Never}},
		`"health" with b "\xff"`:     {{Kind: incident.InHealth, Upstream: "\xff"}},
		`a member "\xfe"`:            {member(balancer.Member{Name: "\xfe"})},
		`key "\xfd"`:                 {{Kind: incident.InAcquire, Request: 1, Key: "\xfd", HasKey: true}},
		`latest "\xfc"`:              {next(incident.Progress{Phase: "sent", Latest: "\xfc"})},
		`tried "\xfb"`:               {next(incident.Progress{Phase: "sent", Tried: []string{"a", "\xfb"}})},
		`"acquire" with r 0`:         {{Kind: incident.InAcquire}},
		"try 0 of a retry":           {{Kind: incident.EvRetry, Request: 1, Upstream: "a"}},
		"both a key and its hash":    {{Kind: incident.InAcquire, Request: 1, HasKey: true, HasHash: true}},
		"without a From":             {{Kind: incident.InNext, Request: 1, HasKey: true}},
		`phase ""`:                   {next(incident.Progress{})},
		`phase "lost"`:               {next(incident.Progress{Phase: "lost"})},
		`phase "failed", settled`:    {next(incident.Progress{Phase: "failed", Settled: true})},
		"which has no end":           {next(incident.Progress{Phase: "failed", Until: 1})},
		"retries -1":                 {next(incident.Progress{Phase: "failed", Retries: -1})},
		"same -1":                    {next(incident.Progress{Phase: "failed", Same: -1})},
		"try -1":                     {{Kind: incident.InSettle, Request: 1, Try: -1}},
		"Share:-1":                   {member(balancer.Member{Name: "a", Share: -1})},
		"Share:1048577":              {member(balancer.Member{Name: "a", Share: balancer.MaxWeight + 1})},
		"Limit:-1":                   {member(balancer.Member{Name: "a", Limit: -1})},
		"Tier:-2147483648":           {member(balancer.Member{Name: "a", Tier: math.MinInt32})},
		"end 0":                      {{Kind: incident.EvEnd, Request: 1}},
		"end 200":                    {{Kind: incident.EvEnd, Request: 1, End: 200}},
		"count -2147483648":          {{Kind: incident.EvState, Event: balancer.UpstreamLeft, Count: math.MinInt32}},
	} {
		_, err := (&incident.File{Header: incident.Header{Seed: 1}, Lines: lines}).Bytes()
		require.ErrorContains(t, err, name)
		for _, l := range lines {
			require.Contains(t, l.String(), `{"t":`, "to look at, all the same")
		}
	}
	_, err = (&incident.File{Header: incident.Header{Seed: 1, Members: []balancer.Member{{Name: "a", Share: -1}}}}).Bytes()
	require.ErrorContains(t, err, "Share:-1")
	for _, h := range []incident.Header{
		{Seed: 1, Start: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Seed: 1, Start: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Seed: 1, Settings: balancer.Config{Breaker: breaker.Config{FailureRate: math.NaN()}}},
		{Seed: 1, Settings: balancer.Config{Breaker: breaker.Config{FailureRate: math.Inf(1)}}},
	} {
		_, err := incident.NewWriter(&bytes.Buffer{}, h)
		require.ErrorContains(t, err, "a header that cannot be read again: ")
	}
	// No deadline is what a deadline that does not come is.
	l := incident.Line{Kind: incident.InRequest, Request: 1, HasDeadline: true, Deadline: incident.Never}
	require.Equal(t, `{"t":"0","in":"request","r":1}`, l.String())
}

// breaking fails once, with its n-th call, and counts the bytes before.
type breaking struct{ n, bytes int }

func (b *breaking) Write(p []byte) (int, error) {
	if b.n--; b.n == 0 {
		return 0, errDown
	}
	b.bytes += len(p)
	return len(p), nil
}

func TestWriter(t *testing.T) {
	line := incident.Line{Kind: incident.InTime}
	t.Run("in pieces", func(t *testing.T) {
		out := &breaking{}
		w, err := incident.NewWriter(out, incident.Header{Seed: 1})
		require.NoError(t, err)
		for range 40_000 / len(line.String()) {
			require.NoError(t, w.Write(line))
		}
		require.Greater(t, out.bytes, 32_000, "memory does not grow with the file")
	})
	t.Run("an error sticks", func(t *testing.T) {
		out := &breaking{n: 1}
		w, err := incident.NewWriter(out, incident.Header{Seed: 1})
		require.NoError(t, err)
		for err == nil {
			err = w.Write(line)
		}
		require.ErrorIs(t, err, errDown)
		require.ErrorIs(t, w.Write(line), errDown)
		require.ErrorIs(t, w.Close(), errDown)
		require.ErrorIs(t, w.Close(), errDown)
		require.Zero(t, out.bytes, "a file has no hole")
	})
	t.Run("it ends once", func(t *testing.T) {
		var b bytes.Buffer
		w, err := incident.NewWriter(&b, incident.Header{Seed: 1})
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.ErrorIs(t, w.Write(line), incident.ErrClosed)
		require.NoError(t, w.Close())
		_, err = incident.Read(&b)
		require.NoError(t, err)
	})
}

// What has more than one spelling is read in each of them, and a default may be
// given; it is written in one way.
func TestSpellings(t *testing.T) {
	for given, want := range map[string]string{
		`{"t":"1.500","in":"acquire","r":1}`:                                                                     `{"t":"1.5","in":"acquire","r":1}`,
		"\t{ \"t\" : \"1\" , \"in\" : \"time\" } ":                                                               `{"t":"1","in":"time"}`,
		`{"t":"1","in":"health","b":"\u0061\/","up":true,"why":""}`:                                              `{"t":"1","in":"health","b":"a/","up":true}`,
		`{"t":"1","in":"request","r":1,"deadline":"never"}`:                                                      `{"t":"1","in":"request","r":1}`,
		`{"t":"1","in":"done","r":1,"out":"ignored","lat":"0","retry":"default"}`:                                `{"t":"1","in":"done","r":1,"out":"ignored"}`,
		`{"t":"1","in":"settle","r":1,"try":0,"out":"success"}`:                                                  `{"t":"1","in":"settle","r":1,"out":"success"}`,
		`{"t":"1","ev":"pick","r":1,"b":"a","fallback":false}`:                                                   `{"t":"1","ev":"pick","r":1,"b":"a"}`,
		`{"t":"1","ev":"left","n":1,"b":"a","until":"0","why":"","count":0}`:                                     `{"t":"1","ev":"left","n":1,"b":"a"}`,
		`{"t":"1","in":"next","r":1,"phase":"sent","settled":false,"retries":0,"same":0,"tried":[],"latest":""}`: `{"t":"1","in":"next","r":1,"phase":"sent"}`,
		`{"t":"1","in":"update","members":[{"b":"a","weight":1,"tier":0,"limit":0}]}`:                            `{"t":"1","in":"update","members":[{"b":"a"}]}`,
		`{"t":"1","in":"next","r":1,"phase":"waiting","wait_until":"-9223372036.854775808"}`:                     `{"t":"1","in":"next","r":1,"phase":"waiting","wait_until":"-9223372036.854775808"}`,
		`{"t":"1","in":"next","r":1,"phase":"waiting","wait_until":"0"}`:                                         `{"t":"1","in":"next","r":1,"phase":"waiting","wait_until":"0"}`,
		`{"t":"1","in":"acquire","r":1,"hash":"0123456789abcdef"}`:                                               `{"t":"1","in":"acquire","r":1,"hash":"0123456789abcdef"}`,
	} {
		f, err := incident.Read(bytes.NewReader(scenario(given)))
		require.NoError(t, err, given)
		require.Equal(t, want, f.Lines[0].String())
		require.False(t, f.Lines[0].HasDeadline)
	}
	plain := `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05Z","config":{},"members":[{"b":"a"}]}`
	lax := `{"incident":1,"lib":"evenkeel/0","seed":7,"start":"2026-01-02T15:04:05.000Z","note":"","keys":"","config":{},"members":[{"b":"a"}],"state":""}`
	f, err := incident.Read(strings.NewReader("  # first\n" + lax + "\n \t# then\n { \"end\": true }\n# at last"))
	require.NoError(t, err)
	b, err := f.Bytes()
	require.NoError(t, err)
	require.Equal(t, plain+"\n{\"end\":true}\n", string(b))
}

// A line that goes on for ever is refused before it fills the memory.
func TestLongLine(t *testing.T) {
	in := io.MultiReader(strings.NewReader(head+`{"t":"`), endless{})
	_, err := incident.Read(in)
	var bad *incident.SyntaxError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 2, bad.Line)
	require.ErrorContains(t, err, "more than 67108864 bytes")
}

// What is too long to be read again is not written, and a line that is leaves the
// ones before it whole.
func TestWriterLongLine(t *testing.T) {
	long := strings.Repeat("x", 64<<20-8)
	_, err := incident.NewWriter(io.Discard, incident.Header{Seed: 1, Note: long})
	require.ErrorContains(t, err, "a line of 671")
	require.ErrorContains(t, err, "want less than 67108864")
	w, err := incident.NewWriter(io.Discard, incident.Header{Seed: 1})
	require.NoError(t, err)
	err = w.Write(incident.Line{Kind: incident.InHealth, Upstream: "a", Why: long})
	require.ErrorContains(t, err, "a line of 671")
	require.Equal(t, err, w.Close())
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}
