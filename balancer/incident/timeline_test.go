package incident_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/stretchr/testify/require"
)

func drawn(t *testing.T, file []byte, opt incident.TimelineOptions) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, incident.Timeline(&b, reader(t, file), opt))
	return b.String()
}

// The lanes of the golden incidents are golden too.
func TestTimelineGolden(t *testing.T) {
	for _, x := range incidents {
		t.Run(x.name, func(t *testing.T) {
			file, err := os.ReadFile(golden(x.name))
			require.NoError(t, err)
			got := []byte(drawn(t, file, incident.TimelineOptions{}))
			name := strings.TrimSuffix(golden(x.name), ".jsonl") + ".txt"
			if os.Getenv("EVENKEEL_UPDATE") != "" {
				require.NoError(t, os.WriteFile(name, got, 0o644))
			}
			want, err := os.ReadFile(name)
			require.NoError(t, err)
			equalText(t, want, got)
		})
	}
}

func lane(text, name string) string {
	for _, l := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(l, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// The lanes say what the definition says: a cell for each stretch of time.
func TestTimelineCells(t *testing.T) {
	// Ten seconds in 34 cells, and in the last instant nothing.
	lines := []string{}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	r := 0
	call := func(at, b, out string) {
		r++
		add(`{"t":"%s","in":"acquire","r":%d}`, at, r)
		add(`{"t":"%s","ev":"pick","r":%d,"b":"%s"}`, at, r, b)
		add(`{"t":"%s","in":"settle","r":%d,"out":"%s"}`, at, r, out)
	}
	call("0", "a", "success")
	call("0", "b", "failure")
	for range 3 {
		call("1", "a", "success")
	}
	call("1", "a", "transport_failure") // one in four
	call("1", "b", "ignored")
	add(`{"t":"3","ev":"ejected","n":1,"b":"b","until":"5"}`)
	add(`{"t":"5","ev":"returned","n":2,"b":"b"}`)
	add(`{"t":"6","ev":"opened","n":3,"b":"a","until":"never"}`)
	add(`{"t":"6.000000001","ev":"closed","n":4,"b":"a"}`)
	add(`{"t":"8","ev":"left","n":5,"b":"b"}`)
	call("9", "a", "success")
	call("9", "a", "failure") // half
	add(`{"t":"9.999999999","in":"time"}`)
	got := drawn(t, scenario(lines...), incident.TimelineOptions{Width: 40})
	require.Equal(t, "   s  |0               |5", strings.Split(got, "\n")[2])
	require.Equal(t, ".--!----------------O---------x---", lane(got, "a"))
	require.Equal(t, "x--.------EEEEEEE----------", lane(got, "b"))
	require.Contains(t, got, "9 attempts, 3 failed")
}

func TestTimelineFits(t *testing.T) {
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf(`{"t":"%d","ev":"ejected","n":%d,"b":"http://a-very-long-name.example:%d","until":"never"}`, i, i+1, i))
	}
	for _, width := range []int{40, 80, 100, 200} {
		got := drawn(t, scenario(lines...), incident.TimelineOptions{Width: width, Captions: 3})
		for _, l := range strings.Split(got, "\n") {
			if strings.Contains(l, "…") {
				require.LessOrEqual(t, utf8.RuneCountInString(l), width)
			}
		}
		require.Contains(t, got, "and 97 more")
	}
	require.Contains(t, drawn(t, scenario(lines...), incident.TimelineOptions{Captions: -1}), "http://a-very-long-name.example:99 ejected until never")
	require.Error(t, incident.Timeline(&bytes.Buffer{}, reader(t, scenario()), incident.TimelineOptions{Width: 39}))
	// Nothing, and times at the end of all time.
	require.Contains(t, drawn(t, scenario(), incident.TimelineOptions{}), "0 requests")
	for _, end := range []string{"0.000000001", "0.00000003", "9223372036.854775806"} {
		require.Contains(t, drawn(t, scenario(`{"t":"0","ev":"pick","r":1,"b":"a"}`, `{"t":"`+end+`","ev":"pick","r":2,"b":"a"}`), incident.TimelineOptions{}), "2 attempts")
	}
}

// A recording that begins in the middle shows how things stood.
func TestTimelineFromTheMiddle(t *testing.T) {
	rec, p, clk, fail := failing(t, 2, incident.Config{})
	for range 3 {
		fail()
	}
	rec.Attach(p)
	clk.Advance(400 * time.Millisecond)
	fail()
	clk.Advance(2 * time.Second)
	p.Poll()
	var b bytes.Buffer
	require.NoError(t, incident.Timeline(&b, rec.Dump().Reader(), incident.TimelineOptions{Width: 66}))
	require.True(t, strings.HasPrefix(lane(b.String(), "m0"), "EEEEEEEEE"), b.String())
	require.True(t, strings.HasPrefix(lane(b.String(), "m1"), "-"), b.String())
}
