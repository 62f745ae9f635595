package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer/incident"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	file := filepath.Join(t.TempDir(), "incident.jsonl")
	require.NoError(t, run(&out, options{file: file, phase: 200 * time.Millisecond, workers: 3}), out.String())
	require.Contains(t, out.String(), "verified")
	// The second server is the one that broke: in words, and in its lane.
	_, after, _ := strings.Cut(out.String(), "server B is http://")
	address, _, _ := strings.Cut(after, "\n")
	address = regexp.QuoteMeta(address)
	require.Regexp(t, `(?m)^ +[0-9.]+  http://`+address+` ejected \(consecutive`, out.String())
	require.Regexp(t, `(?m)^http://`+address+`  .*E`, out.String())
}

// Without a name the file is nowhere where anyone would expect it.
func TestRunInNewDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	var out strings.Builder
	require.NoError(t, run(&out, options{phase: 50 * time.Millisecond, workers: 1}), out.String())
	files, err := filepath.Glob(filepath.Join(dir, "evenkeel-*", "incident.jsonl"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, out.String(), files[0])
}

// A file in which one decision is not what was decided does not pass.
func TestCheckFails(t *testing.T) {
	var out strings.Builder
	file := filepath.Join(t.TempDir(), "incident.jsonl")
	require.NoError(t, run(&out, options{file: file, phase: 50 * time.Millisecond, workers: 1}), out.String())
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	s := string(b)
	at := strings.LastIndex(s, `"ev":"pick"`)
	require.Positive(t, at)
	s = s[:at] + strings.Replace(s[at:], `"b":"`, `"b":"x`, 1)
	require.NoError(t, os.WriteFile(file, []byte(s), 0o600))
	require.ErrorContains(t, check(&out, file), "diverges at line")
}

// What is left of a file is a file, with the event in it.
func TestShrink(t *testing.T) {
	const whole = "../../balancer/incident/testdata/echofront-demo.jsonl"
	var small, out strings.Builder
	require.NoError(t, shrink(&small, whole, "ejected C"))
	require.Contains(t, small.String(), `"ev":"ejected"`)
	text, err := os.ReadFile(whole)
	require.NoError(t, err)
	require.Less(t, strings.Count(small.String(), "\n"), strings.Count(string(text), "\n"))
	file := filepath.Join(t.TempDir(), "small.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(small.String()), 0o600))
	require.NoError(t, check(&out, file))
	require.ErrorIs(t, shrink(&small, whole, "opened nobody"), incident.ErrShrink)
}
