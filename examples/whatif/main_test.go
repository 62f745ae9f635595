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
