package incident_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/clock"
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
	require.Equal(t, "|0               |5", lane(got, "   s"))
	require.Equal(t, ".--!----------------O---------x---", lane(got, "a"))
	require.Equal(t, "x--.------EEEEEEE----------", lane(got, "b"))
	require.Contains(t, got, "9 attempts, 3\nfailed")
}

// requireFits holds every line of a drawing against its width.
func requireFits(t *testing.T, text string, width int) {
	t.Helper()
	for _, l := range strings.Split(text, "\n") {
		n := utf8.RuneCountInString(l)
		for _, r := range l {
			n += len(string(r)) / 3 // of what is used here, just the wide ones
			if r == '…' {
				n--
			}
		}
		require.LessOrEqual(t, n, width, l)
	}
}

func TestTimelineFits(t *testing.T) {
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf(`{"t":"%d","ev":"ejected","n":%d,"b":"http://a-very-long-name.example:%d","until":"never","why":"%s"}`, i, i+1, i, strings.Repeat("long_", i%20)))
	}
	note := strings.Replace(string(scenario(lines...)), `"config"`, `"note":"What it is about: `+strings.Repeat("日本", 30)+` and so on, and on, and on, and on, and on","config"`, 1)
	for _, width := range []int{40, 41, 80, 87, 93, 100, 200} {
		got := drawn(t, []byte(note), incident.TimelineOptions{Width: width, Captions: 50})
		requireFits(t, got, width)
		require.Contains(t, got, "and 50 more")
		if width == 40 {
			// A third of the width is the name's, from its end.
			require.Contains(t, got, "\n…me.example:7  \n")
		}
	}
	for _, x := range incidents {
		for _, width := range []int{40, 80} {
			requireFits(t, drawn(t, []byte(goldenText(t, x.name)), incident.TimelineOptions{Width: width}), width)
		}
	}
	require.Contains(t, drawn(t, scenario(lines...), incident.TimelineOptions{Captions: -1}), "http://a-very-long-name.example:40 ejected until never")
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

// Names and reasons come from a file, and a terminal obeys what it gets.
func TestTimelineSpellsOut(t *testing.T) {
	file := strings.Replace(string(scenario(`{"t":"1","in":"health","b":"a\nE","up":false,"why":"x\u001b[2Jy\nz\u202e"}`, `{"t":"2","in":"time"}`)), `{"b":"a"},{"b":"b"}`, `{"b":"a\nE"},{"b":"日本e\u0301"},{"b":"日日日日日日日日日日日日日日日日日日日日日日"}`, 1)
	file = strings.Replace(file, `"config"`, `"note":"bell\u0007","config"`, 1)
	got := drawn(t, replayed(t, []byte(file)), incident.TimelineOptions{Width: 60})
	require.Contains(t, got, `bell\a`+"\n")
	require.Contains(t, got, `a\nE unhealthy (x\x1b[2Jy\nz\u202e)`+"\n")
	lines := strings.Split(got, "\n")
	require.Equal(t, `a\nE                  -------------------UUUUUUUUUUUUUUUUUUU`, lines[5])
	require.Equal(t, "日本e\u0301                 --------------------------------------", lines[6], "five columns")
	require.Equal(t, "…日日日日日日日日日   --------------------------------------", lines[7])
	for _, r := range got {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q", r)
	}
}

// How things stood at the start is found without the keys and without a policy
// that is not built in; a state that is none is an error.
func TestTimelineStart(t *testing.T) {
	for _, policy := range []balancer.Policy{balancer.Hash{}, firstUsable{}, balancer.Hash{Keyless: firstUsable{}}} {
		clk := clock.NewManual(time.Unix(0, 0))
		p, err := balancer.NewPool(balancer.Config{Seed: 3, Policy: policy, Clock: clk}, members(2)...)
		require.NoError(t, err)
		require.NoError(t, p.SetHealth("m1", false, "test"))
		rec := incident.NewRecorder(incident.Config{Options: incident.Options{KeySecret: []byte("secret")}})
		rec.Attach(p)
		clk.Advance(time.Second)
		p.Poll()
		var b bytes.Buffer
		require.NoError(t, rec.Dump().Write(&b))
		got := drawn(t, b.Bytes(), incident.TimelineOptions{Width: 40})
		require.Equal(t, strings.Repeat("-", 34), lane(got, "m0"))
		require.Equal(t, strings.Repeat("U", 34), lane(got, "m1"))
	}
	file := strings.Replace(head, `"b"}]}`, `"b"}],"state":"AQID"}`, 1) + `{"end":true}`
	err := incident.Timeline(&bytes.Buffer{}, reader(t, []byte("# first\n"+file)), incident.TimelineOptions{})
	require.ErrorIs(t, err, balancer.ErrState)
	require.ErrorContains(t, err, "incident: line 2: the Pool at the start: ")
}

// Under StartUnhealthy those that join are unhealthy too.
func TestTimelineStartUnhealthy(t *testing.T) {
	file := strings.Replace(string(scenario(`{"t":"5","in":"update","members":[{"b":"a"},{"b":"b"},{"b":"c"}]}`, `{"t":"10","in":"time"}`)), `"First":true}}`, `"First":true},"StartUnhealthy":true}`, 1)
	got := drawn(t, replayed(t, []byte(file)), incident.TimelineOptions{Width: 40})
	require.Equal(t, strings.Repeat("U", 34), lane(got, "a"))
	require.Equal(t, strings.Repeat("U", 17), lane(got, "c"))
}
