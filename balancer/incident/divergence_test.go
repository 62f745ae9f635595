package incident_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/stretchr/testify/require"
)

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
		d := divergence(t, change(file, 26, "", "")+"# the end\n\n")
		require.Equal(t, 26, d.Line, "where the file ends")
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
	t.Run("an event before an input is missing", func(t *testing.T) {
		d := divergence(t, change(file, 11, "", ""))
		require.Equal(t, 11, d.Line)
		require.Equal(t, `{"t":"1.03","in":"acquire","r":4}`, d.Want)
		require.Contains(t, d.Got, "half_open")
		require.Equal(t, "a: healthy, in, breaker open, 0 in flight, 2 served, 2 failed\n", d.Recorded)
		require.Equal(t, "a: healthy, in, breaker half_open, 0 in flight, 2 served, 2 failed\n", d.Replayed)
	})
	t.Run("both states are of one instant", func(t *testing.T) {
		d := divergence(t, change(file, 11, `"n":3`, `"n":9`))
		require.Equal(t, 11, d.Line)
		require.Equal(t, "a: healthy, in, breaker half_open, 0 in flight, 2 served, 2 failed\n", d.Recorded)
		require.Equal(t, d.Recorded, d.Replayed)
		require.Equal(t, 1, d.Snapshot.Upstreams[0].Inflight, "the Pool is further")
	})
	t.Run("a wrong event before an input that cannot be fed", func(t *testing.T) {
		bad := change(file, 12, `"in":"acquire","r":4`, `"in":"settle","r":99,"out":"success"`)
		d := divergence(t, change(bad, 11, `"n":3`, `"n":9`))
		require.Equal(t, 11, d.Line)
		require.NoError(t, d.Err)
		require.Contains(t, d.Got, `"n":3`)
		require.Contains(t, d.After[0], `"r":99`)
		// An event that is right does not hide it.
		d = divergence(t, bad)
		require.Equal(t, 12, d.Line)
		require.ErrorIs(t, d, incident.ErrInput)
		require.Contains(t, d.Before[4], "half_open")
		require.Equal(t, d.Recorded, d.Replayed)
		// Nor does one that is missing.
		d = divergence(t, change(bad, 11, "", ""))
		require.Equal(t, 11, d.Line)
		require.NoError(t, d.Err)
		require.Contains(t, d.Got, "half_open")
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

// A state at the start is part of both states: who was out, what was counted.
func TestDivergenceFromTheMiddle(t *testing.T) {
	rec, p, clk, fail := failing(t, 2, incident.Config{})
	for range 3 {
		fail()
	}
	held, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	require.Equal(t, "m1", held.Upstream().Name)
	clk.Advance(100 * time.Millisecond)
	rec.Attach(p)
	l, err := p.Acquire(balancer.Request{})
	require.NoError(t, err)
	l.Release(balancer.Success)
	held.Release(balancer.Failure)
	var b bytes.Buffer
	require.NoError(t, rec.Dump().Write(&b))
	d := divergence(t, strings.Replace(b.String(), `"ev":"pick","r":5,"b":"m1"`, `"ev":"pick","r":5,"b":"m0"`, 1))
	require.Equal(t, `m0: healthy, ejected, breaker closed, 1 in flight, 2 served, 2 failed
m1: healthy, in, breaker closed, 1 in flight, 1 served, 1 failed
`, d.Recorded)
	require.Equal(t, `m0: healthy, ejected, breaker closed, 0 in flight, 2 served, 2 failed
m1: healthy, in, breaker closed, 2 in flight, 1 served, 1 failed
`, d.Replayed)
	last := strings.LastIndex(b.String(), `{"t":"0.1"`)
	d = divergence(t, b.String()[:last]+`{"t":"0.1","ev":"none","r":9}`+"\n{\"end\":true}\n")
	require.Contains(t, d.Recorded, "m1: healthy, in, breaker closed, 1 in flight, 2 served, 1 failed")
}

// The times of the Snapshot are those of the file.
func TestDivergenceSnapshot(t *testing.T) {
	d := divergence(t, change(goldenText(t, "ejection-cap"), 33, `"n":6`, `"n":7`))
	start := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	require.Equal(t, start.Add(time.Second), d.Snapshot.At.UTC())
	require.Equal(t, start.Add(2900*time.Millisecond), d.Snapshot.Upstreams[0].Returns.UTC())
	require.True(t, d.Snapshot.Upstreams[2].Returns.IsZero())
}

// After an Update both states stand in one order.
func TestDivergenceOrder(t *testing.T) {
	file := replayed(t, scenario(`{"t":"1","in":"update","members":[{"b":"b"},{"b":"a"}]}`, `{"t":"2","in":"acquire","r":1}`))
	d := divergence(t, strings.Replace(string(file), `"ev":"pick","r":1,"b":"a"`, `"ev":"pick","r":1,"b":"b"`, 1))
	require.Equal(t, "a: healthy, in, breaker closed, 1 in flight, 0 served, 0 failed\nb: healthy, in, breaker closed, 0 in flight, 0 served, 0 failed\n", d.Replayed)
	require.Equal(t, "a: healthy, in, breaker closed, 0 in flight, 0 served, 0 failed\nb: healthy, in, breaker closed, 1 in flight, 0 served, 0 failed\n", d.Recorded)
}

// The state of one that leaves with a call in flight and comes back, unhealthy,
// and of calls that no connection was made for.
func TestDivergenceStates(t *testing.T) {
	file := replayed(t, []byte(strings.Replace(head, `"First":true}}`, `"First":true},"StartUnhealthy":true}`, 1)+`{"t":"0","in":"health","b":"a","up":true}
{"t":"1","in":"acquire","r":1}
{"t":"1","in":"acquire","r":2}
{"t":"2","in":"settle","r":2,"out":"transport_failure"}
{"t":"2","in":"time"}
{"t":"3","in":"update","members":[{"b":"b"}]}
{"t":"3","in":"update","members":[{"b":"a"},{"b":"b"}]}
{"t":"4","in":"settle","r":1,"out":"failure"}
{"t":"5","in":"acquire","r":3}
{"end":true}
`))
	const b = "b: unhealthy, in, breaker closed, 0 in flight, 0 served, 0 failed\n"
	for _, x := range []struct{ line, as, a string }{
		{`{"t":"2","in":"time"}`, `{"t":"2","ev":"none","r":7}`, "a: healthy, in, breaker closed, 1 in flight, 1 served, 1 failed\n"},
		{`{"t":"4","in":"settle","r":1,"out":"failure"}`, `{"t":"4","ev":"none","r":7}`, "a: unhealthy, in, breaker closed, 0 in flight, 0 served, 0 failed\n"},
		{`{"t":"5","ev":"none","r":3}`, `{"t":"5","ev":"none","r":7}`, "a: unhealthy, in, breaker closed, 0 in flight, 0 served, 0 failed\n"},
	} {
		require.Contains(t, string(file), x.line)
		d := divergence(t, strings.Replace(string(file), x.line, x.as, 1))
		require.Equal(t, x.as, d.Want)
		require.Equal(t, x.a+b, d.Recorded)
	}
}
