package jsonline_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/internal/jsonline"
	"github.com/stretchr/testify/require"
)

type colour uint8

func (c colour) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "colour-%d", uint8(c)), nil }

func (c *colour) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "colour-%d", (*uint8)(c))
	return err
}

type inner struct {
	Spans  []time.Duration
	Colour colour
}

type outer struct {
	Name      string
	Elsewhere int
	Count     int8
	Big       uint64
	Share     float64
	On        bool
	Inner     inner
	Other     *inner
	Many      []inner
	Policy    balancer.Policy
	Hook      func()
}

func read(t *testing.T, line string) (outer, string) {
	lines := jsonline.NewLines(strings.NewReader(line))
	b, err := lines.Next()
	require.NoError(t, err)
	c := lines.Cursor(b)
	var got outer
	c.Struct("outer", &got, "Elsewhere")
	return got, c.Msg
}

func TestStruct(t *testing.T) {
	for line, want := range map[string]outer{
		`{}`: {},
		`{"Name":"a\"b","Count":-3,"Big":18446744073709551615,"Share":0.1,"On":true}`: {
			Name: `a"b`, Count: -3, Big: math.MaxUint64, Share: .1, On: true,
		},
		`{"Inner":{"Spans":["0.001","never","-2"],"Colour":"colour-7"},"Other":{}}`: {
			Inner: inner{[]time.Duration{time.Millisecond, jsonline.Never, -2 * time.Second}, 7}, Other: &inner{},
		},
		`{"Many":[{"Colour":"colour-1"},{}],"Policy":{"name":"hash"}}`: {
			Many: []inner{{Colour: 1}, {}}, Policy: balancer.Hash{},
		},
		`{"Inner":{"Spans":[]}}`: {Inner: inner{Spans: []time.Duration{}}},
	} {
		require.Equal(t, line, string(jsonline.AppendStruct(nil, want, "Elsewhere")))
		got, msg := read(t, line)
		require.Empty(t, msg)
		require.Equal(t, want, got)
	}
}

func TestStructRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{"Nam":"a"}`:                                   `outer has no "Nam"`,
		`{"Elsewhere":1}`:                               `outer has no "Elsewhere"`,
		`{"Hook":1}`:                                    `outer has no "Hook"`,
		`{"Count":1,"Name":"a"}`:                        `outer: "Name" is out of order or given twice`,
		`{"Count":1,"Count":1}`:                         `outer: "Count" is out of order or given twice`,
		`{"Count":128}`:                                 `outer.Count is 128, which is too large`,
		`{"Share":x}`:                                   `want outer.Share as a number at column 10, got "x}"`,
		`{"Inner":{"Colour":"red"}}`:                    `outer.Inner.Colour is "red": input does not match format`,
		`{"Inner":{"Spans":["1" "2"]}}`:                 `want ',' at column 24, got "\"2\"]}}"`,
		`{"Inner":{"Spans":["1ms"]}}`:                   `outer.Inner.Spans[0] is "1ms", want seconds with up to nine decimals, such as "12.00012"`,
		`{"Inner":{"Spans":["1",]}}`:                    `want outer.Inner.Spans[1] as a string at column 24, got "]}}"`,
		`{"Inner":{"Spans":["1"`:                        `want ',', the line ends`,
		`{"Policy":{"name":"mine"}}`:                    `outer.Policy: want "custom":true with a policy that is not built in, "mine"`,
		`{"Policy":{"name":"hash","custom":1}}`:         `want custom as true or false at column 35, got "1}}"`,
		`{"Policy":{"custom":true}}`:                    `outer.Policy: want "name" first, got "custom"`,
		`{"Share":+1}`:                                  `want outer.Share as a number at column 10, got "+1}"`,
		`{"Share":01}`:                                  `want outer.Share as a number at column 10, got "01}"`,
		`{"Count":-0}`:                                  `outer.Count is minus zero`,
		`{"Name":"\udc00"}`:                             `outer.Name has a bad escape, or a character that needs one`,
		`{"Name":"\ud83d\u0041"}`:                       `outer.Name has a bad escape, or a character that needs one`,
		`{"Name":"\ud83d"}`:                             `outer.Name has a bad escape, or a character that needs one`,
		`{"Name":"\ud83"}`:                              `outer.Name has a bad escape, or a character that needs one`,
		`{"Inner":{"Spans":["-9223372036.854775809"]}}`: `outer.Inner.Spans[0] is "-9223372036.854775809", want seconds with up to nine decimals, such as "12.00012"`,
		`{"Share":xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}`:      `want outer.Share as a number at column 10, got "xxxxxxxxxxxxxxxxxxxxxxxx"`,
	} {
		_, msg := read(t, line)
		require.Equal(t, want, msg, line)
	}
}

// What has more than one spelling is read in each of them, and written in one.
func TestSpellings(t *testing.T) {
	for line, want := range map[string]string{
		`{"Name":"\/\u0041\b\f\n\t\r\ud83d\ude00"}`:     "{\"Name\":\"/A\\u0008\\u000c\\u000a\\u0009\\u000d\U0001f600\"}",
		` { "Share" : 5e-1 , "On":false } `:             `{"Share":0.5}`,
		`{"Inner":{"Spans":["0.500"]}}`:                 `{"Inner":{"Spans":["0.5"]}}`,
		`{"Policy":{"name":"hash","custom":false}}`:     `{"Policy":{"name":"hash"}}`,
		`{"Inner":{"Spans":["-9223372036.854775808"]}}`: `{"Inner":{"Spans":["-9223372036.854775808"]}}`,
	} {
		got, msg := read(t, line)
		require.Empty(t, msg, line)
		require.Equal(t, want, string(jsonline.AppendStruct(nil, got)))
	}
}

type wrapper struct{ balancer.Hash }

// A policy is known by its type, behind a pointer too; one that embeds it has its
// name and is another.
func TestPolicies(t *testing.T) {
	for _, x := range []struct {
		policy balancer.Policy
		line   string
		keyed  bool
	}{
		{&balancer.LeastConn{Ties: balancer.TiesIndex}, `{"Policy":{"name":"least_conn","Ties":2}}`, false},
		{wrapper{}, `{"Policy":{"name":"hash","custom":true}}`, true},
		{&balancer.Hash{Keyless: &balancer.Random{}}, `{"Policy":{"name":"hash","Keyless":{"name":"random"}}}`, true},
		{balancer.Hash{Keyless: wrapper{}}, `{"Policy":{"name":"hash","Keyless":{"name":"hash","custom":true}}}`, true},
	} {
		require.Equal(t, x.line, string(jsonline.AppendStruct(nil, outer{Policy: x.policy})))
		require.Equal(t, x.keyed, jsonline.Keyed(x.policy))
		got, msg := read(t, x.line)
		require.Empty(t, msg)
		p, err := jsonline.Resolve(got.Policy, wrapper{})
		require.NoError(t, err)
		require.Equal(t, x.line, string(jsonline.AppendStruct(nil, outer{Policy: p})))
	}
	got, _ := read(t, `{"Policy":{"name":"hash","Keyless":{"name":"mine","custom":true}}}`)
	_, err := jsonline.Resolve(got.Policy, wrapper{})
	require.EqualError(t, err, `the policy "mine" is not built in`)
	require.False(t, jsonline.Keyed(nil))

	// What is complete stays what it is.
	for _, p := range []balancer.Policy{&balancer.Hash{}, &balancer.LeastConn{}, &wrapper{}} {
		got, err := jsonline.Resolve(p)
		require.NoError(t, err)
		require.Same(t, p, got)
	}
}

// several are policies by turns.
type several struct {
	balancer.Random
	List  []balancer.Policy
	Pair  [2]any
	Named map[string]balancer.Policy
}

func TestKeyedInside(t *testing.T) {
	require.True(t, jsonline.Keyed(several{List: []balancer.Policy{balancer.Random{}, &balancer.Hash{}}}))
	require.True(t, jsonline.Keyed(&several{Pair: [2]any{nil, []any{several{List: []balancer.Policy{balancer.Hash{}}}}}}))
	require.False(t, jsonline.Keyed(several{List: []balancer.Policy{nil, balancer.Random{}}}))
	// Its owner may be writing to it.
	require.False(t, jsonline.Keyed(several{Named: map[string]balancer.Policy{"a": balancer.Hash{}}}))
}

func TestBuiltIn(t *testing.T) {
	for _, p := range []balancer.Policy{nil, balancer.Random{}, &balancer.LeastConn{}, balancer.Hash{}, balancer.Hash{Keyless: &balancer.Hash{Keyless: balancer.Random{}}}} {
		require.True(t, jsonline.BuiltIn(p), "%#v", p)
	}
	for _, p := range []balancer.Policy{wrapper{}, &wrapper{}, (*balancer.Hash)(nil), balancer.Hash{Keyless: wrapper{}}, &balancer.Hash{Keyless: balancer.Hash{Keyless: wrapper{}}}} {
		require.False(t, jsonline.BuiltIn(p), "%#v", p)
	}
}

// A name that comes again is made once, and a long text does not stay.
func TestNames(t *testing.T) {
	for n, once := range map[int]bool{1: true, 256: true, 257: false} {
		lines := jsonline.NewLines(strings.NewReader(""))
		name := func() string {
			c := lines.Cursor([]byte(`"` + strings.Repeat("x", n) + `"`))
			return c.Name("name")
		}
		a, b := name(), name()
		require.Equal(t, a, b)
		require.Len(t, a, n)
		require.Equal(t, once, unsafe.StringData(a) == unsafe.StringData(b), n)
	}
}

// Seconds have the decimals that they need.
func TestAppendSeconds(t *testing.T) {
	for ns := int64(1); ns < 1_000_000_000; ns = ns*7/3 + 1 {
		for _, d := range []time.Duration{time.Duration(ns), -time.Duration(ns), 5*time.Second + time.Duration(ns), time.Duration(ns / 10 * 10), time.Duration(ns / 1000 * 1000)} {
			s := string(jsonline.AppendSeconds([]byte("x"), d))
			want := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%09d", d/time.Second, (d%time.Second).Abs()), "0"), ".")
			if d == 0 {
				want = "0"
			}
			if d < 0 && d > -time.Second {
				want = "-" + want
			}
			require.Equal(t, "x"+want, s)
		}
	}
}

// However deep a file nests them, reading it costs no more than its length.
func TestNesting(t *testing.T) {
	nest := func(depth int) string {
		return `{"Policy":` + strings.Repeat(`{"name":"hash","Keyless":`, depth-1) + `{"name":"random"}` + strings.Repeat("}", depth)
	}
	_, msg := read(t, nest(8))
	require.Empty(t, msg)
	for _, depth := range []int{9, 100_000} {
		_, msg = read(t, nest(depth))
		require.Equal(t, "9 policies inside one another, want at most 8", msg)
	}
	// Side by side there may be more.
	policies := strings.Repeat(`{"Policy":`+`{"name":"hash","Keyless":{"name":"random"}}},`, 20)
	lines := jsonline.NewLines(strings.NewReader(`{"All":[` + strings.TrimSuffix(policies, ",") + `]}`))
	b, err := lines.Next()
	require.NoError(t, err)
	c := lines.Cursor(b)
	var all struct{ All []outer }
	c.Struct("all", &all)
	require.Empty(t, c.Msg)
	require.Len(t, all.All, 20)
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	r := jsonline.NewLines(strings.NewReader("# one\n\n two\r\n" + long + "\n \t# x\n" + long[1:] + "\nend"))
	for _, want := range []struct {
		line string
		n    int
	}{{" two", 3}, {long, 4}, {long[1:], 6}, {"end", 7}} {
		b, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want.line, string(b))
		require.Equal(t, want.n, r.N)
	}
	_, err := r.Next()
	require.ErrorContains(t, err, "EOF")
}

// A line without an end does not fill the memory.
func TestLongLine(t *testing.T) {
	for _, n := range []int{1 << 17, 1<<17 + 1} {
		r := jsonline.NewLines(strings.NewReader("one\n" + strings.Repeat("x", n-1) + "\nend"))
		r.Max = 1 << 17
		_, err := r.Next()
		require.NoError(t, err)
		_, err = r.Next()
		if n <= r.Max {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, jsonline.ErrLong)
		require.EqualError(t, err, "the line is too long: more than 131072 bytes")
		require.Equal(t, 2, r.N)
	}
}

func TestEnds(t *testing.T) {
	r := jsonline.NewLines(strings.NewReader(""))
	for _, line := range []string{`{"end":true}`, ` { "end" : true }`} {
		require.True(t, r.Ends([]byte(line)), line)
	}
	for _, line := range []string{`{"end":false}`, `{"end":true} x`, `{"end":true,"x":1}`, `{"t":"1"}`, `"end"`, `{`} {
		require.False(t, r.Ends([]byte(line)), line)
	}
}
