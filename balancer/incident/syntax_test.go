package incident_test

import (
	"bytes"
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

func TestWriterRefuses(t *testing.T) {
	ok := incident.Header{Seed: 1}
	_, err := incident.NewWriter(&bytes.Buffer{}, incident.Header{})
	require.ErrorContains(t, err, "without a seed")
	for name, lines := range map[string][]incident.Line{
		"kind 0":            {{}},
		"change of state":   {{Kind: incident.EvState}},
		"time goes back":    {{Kind: incident.InTime, At: 2}, {Kind: incident.InTime, At: 1}},
		"not valid UTF-8":   {{Kind: incident.InHealth, Upstream: "\xff"}},
		`"\xfe" is not`:     {{Kind: incident.InUpdate, Members: []balancer.Member{{Name: "\xfe"}}}},
		`key "\xfd" is not`: {{Kind: incident.InAcquire, Request: 1, Key: "\xfd", HasKey: true}},
		"back from 0 to -1": {{Kind: incident.InTime, At: -1e9}},
		"from 0 to never":   {{Kind: incident.InTime, At: incident.Never}},
	} {
		_, err := (&incident.File{Header: ok, Lines: lines}).Bytes()
		require.ErrorContains(t, err, name)
	}
}
