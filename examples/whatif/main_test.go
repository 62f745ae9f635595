package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pool.jsonl")
	var out, again bytes.Buffer
	require.NoError(t, run(&out, options{without: "breaker, ejection", policy: "rr", record: file}))
	text := out.String()
	require.Contains(t, text, "as written")
	require.Contains(t, text, "round_robin, no breaker, no ejection")
	require.Regexp(t, `(?m)^sinkhole at 45s +2 taken out, the first after \d+ms +nobody is taken out$`, text)
	require.Contains(t, text, "client 0, round_robin")
	require.Equal(t, 6, strings.Count(text, "\neast-")+strings.Count(text, "\nwest-"), "a lane for each server")

	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	r, err := incident.NewReader(in)
	require.NoError(t, err)
	cfg, err := r.Header().Config()
	require.NoError(t, err)
	require.True(t, cfg.Breaker.Off && cfg.Outlier.Off)
	require.NoError(t, incident.Verify(r, cfg))

	require.NoError(t, run(&again, options{without: "breaker,ejection", policy: "rr"}))
	require.Equal(t, text, again.String(), "the same again")
}

// The figures are those of the configuration that their column names, also where a
// client has one of its own.
func TestChangeReachesEveryClient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(`{"scenario":1,"Duration":"20","Pool":{"Policy":{"name":"round_robin"}}}
{"server":{"Name":"a"}}
{"server":{"Name":"b"}}
{"client":{"Rate":20,"Pool":{"Policy":{"name":"round_robin"}}}}
{"client":{"Rate":20,"Timeout":"0.1","Checks":{"Probe":{"Interval":"1","Fall":1}}}}
{"change":{"Kind":"down","At":"5","For":"10","Servers":"a"}}
{"end":true}
`), 0o666))
	var out bytes.Buffer
	require.NoError(t, run(&out, options{scenario: file, without: "breaker,ejection,retry"}))
	// 400 requests each on average; without the others' help checks take a out for
	// the second client only, and half of the first one's 200 fail.
	require.Regexp(t, `(?m)^failed +0\.\d+ % +1[2345]\.\d+ %$`, out.String())
	require.Regexp(t, `(?m)^down at 5s .* taken out, the first after .*; 1 by checks, the first after [^;]* +1 by checks, the first after`, out.String())
	require.NotRegexp(t, `(?m)^a .*E`, out.String(), "nobody is ejected")
}

// What was recorded is traffic to try a configuration on.
func TestRecording(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pool.jsonl")
	var out, again bytes.Buffer
	require.NoError(t, run(&out, options{without: "breaker,ejection,retry", policy: "rr", record: file}))
	require.NoError(t, run(&again, options{recording: file, policy: "p2c_ewma"}))
	text := again.String()
	require.Regexp(t, `(?m)^failed +\d\.\d+ % +\d\.\d+ %$`, text)
	require.Contains(t, text, "other changes")
	require.Contains(t, text, "client 0, p2c_ewma")
	require.ErrorContains(t, run(&again, options{recording: file, scenario: file}), "either")
	require.ErrorIs(t, run(&again, options{recording: file + "x"}), os.ErrNotExist)
}

func TestRunErrors(t *testing.T) {
	var out bytes.Buffer
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("{}\n"), 0o666))
	require.ErrorIs(t, run(&out, options{scenario: bad}), sim.ErrSyntax)
	require.ErrorIs(t, run(&out, options{scenario: bad + "x"}), os.ErrNotExist)
	require.ErrorIs(t, run(&out, options{client: 2}), sim.ErrConfig)
	require.ErrorContains(t, run(&out, options{policy: "best"}), "round_robin")
	require.ErrorContains(t, run(&out, options{without: "luck"}), "want breaker")
	require.Empty(t, out.String())
}
