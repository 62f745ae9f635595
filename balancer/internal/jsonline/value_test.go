package jsonline_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

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
		`{"Nam":"a"}`:                              `outer has no "Nam"`,
		`{"Elsewhere":1}`:                          `outer has no "Elsewhere"`,
		`{"Hook":1}`:                               `outer has no "Hook"`,
		`{"Count":1,"Name":"a"}`:                   `outer: "Name" is out of order or given twice`,
		`{"Count":1,"Count":1}`:                    `outer: "Count" is out of order or given twice`,
		`{"Count":128}`:                            `outer.Count is 128, which is too large`,
		`{"Share":x}`:                              `want outer.Share as a number at column 10, got "x}"`,
		`{"Inner":{"Colour":"red"}}`:               `outer.Inner.Colour is "red": input does not match format`,
		`{"Inner":{"Spans":["1" "2"]}}`:            `want ',' at column 24, got "\"2\"]}}"`,
		`{"Inner":{"Spans":["1ms"]}}`:              `outer.Inner.Spans[0] is "1ms", want seconds with up to nine decimals, such as "12.00012"`,
		`{"Inner":{"Spans":["1",]}}`:               `want outer.Inner.Spans[1] as a string at column 24, got "]}}"`,
		`{"Inner":{"Spans":["1"`:                   `want ',', the line ends`,
		`{"Policy":{"name":"mine"}}`:               `outer.Policy: want "custom":true with a policy that is not built in, "mine"`,
		`{"Policy":{"name":"hash","custom":true}}`: `outer.Policy has no "custom"`,
	} {
		_, msg := read(t, line)
		require.Equal(t, want, msg, line)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	r := jsonline.NewLines(strings.NewReader("# one\n\n two\r\n" + long + "\n#\nend"))
	for _, want := range []struct {
		line string
		n    int
	}{{" two", 3}, {long, 4}, {"end", 6}} {
		b, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want.line, string(b))
		require.Equal(t, want.n, r.N)
	}
	_, err := r.Next()
	require.ErrorContains(t, err, "EOF")
}
