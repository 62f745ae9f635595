package sim_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

const sinkhole = `# One of ten servers answers at once, and always with an error.
{"scenario":1,"Seed":1,"Duration":"60","Pool":{"Policy":{"name":"two_random"}}}
{"server":{"Count":10,"Workers":4,"Service":{"Shape":"exponential","Mean":"0.01"}}}

{"client":{"Rate":2500.5,"Timeout":"1"}}
 {"change": {"Kind":"sinkhole", "At":"20", "For":"20", "Servers":"s-3"}}
{"end":true}
`

func TestReadScenario(t *testing.T) {
	s, err := sim.Read(strings.NewReader(sinkhole))
	require.NoError(t, err)
	require.Equal(t, sim.Scenario{
		Seed: 1, Duration: time.Minute,
		Servers: []sim.Server{{Count: 10, Workers: 4, Service: sim.Exponential(10 * ms)}},
		Clients: []sim.Client{{Rate: 2500.5, Timeout: time.Second}},
		Script:  []sim.Change{{Kind: sim.Sinkhole, At: 20 * time.Second, For: 20 * time.Second, Servers: "s-3"}},
		Pool:    balancer.Config{Policy: balancer.TwoRandom{}},
	}, s)
	var b bytes.Buffer
	require.NoError(t, s.Write(&b))
	require.Equal(t, `{"scenario":1,"Seed":1,"Duration":"60","Pool":{"Policy":{"name":"two_random"}}}
{"server":{"Count":10,"Workers":4,"Service":{"Shape":"exponential","Mean":"0.01"}}}
{"client":{"Rate":2500.5,"Timeout":"1"}}
{"change":{"Kind":"sinkhole","At":"20","For":"20","Servers":"s-3"}}
{"end":true}
`, b.String())
}

// What is written is read as the same scenario, and is written as the same bytes.
func TestFileRoundTrip(t *testing.T) {
	checkSeeded(t, 2, func(t *rapid.T) {
		s := fleet(t)
		if rapid.Bool().Draw(t, "own") {
			s.Clients[0].Pool, s.Clients[0].Skip = &balancer.Config{Seed: 3}, []uint64{1, 1 << 63}
		}
		var b bytes.Buffer
		require.NoError(t, s.Write(&b))
		again, err := sim.Read(bytes.NewReader(b.Bytes()))
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

func TestReadRefuses(t *testing.T) {
	const head = `{"scenario":1,"Duration":"1"}` + "\n"
	const server, client = `{"server":{}}` + "\n", `{"client":{"Rate":1}}` + "\n"
	const end = `{"end":true}` + "\n"
	for file, want := range map[string]string{
		"":                                  `line 1: want a header, the file is empty`,
		"# only\n":                          `line 2: want a header, the file is empty`,
		`{"incident":1,"lib":"evenkeel/0"}`: `line 1: want a header, {"scenario":1,...}, got "incident"`,
		`{"scenario":2}`:                    `line 1: the file has version 2, this library reads version 1`,
		`{"scenario":1,"Duration":1}`:       `line 1: want scenario.Duration as a string at column 26, got "1}"`,
		`{"scenario":1,"Servers":[]}`:       `line 1: scenario has no "Servers"`,
		`{"scenario":1,"Seed":1,"Seed":1}`:  `line 1: scenario: "Seed" is out of order or given twice`,
		`{"scenario":1} x`:                  `line 1: want the end of the line at column 16, got "x"`,
		`{"scenario":1,"Pool":{"Policy":{"name":"x","custom":true}}}`: `line 1: the policy "x" is not built in`,
		head:                                 `line 2: want {"end":true}, the file is cut off`,
		head + server + client:               `line 4: want {"end":true}, the file is cut off`,
		head + server + client + end + end:   `line 5: want nothing after {"end":true}`,
		head + `{"sever":{}}`:                `line 2: want "server", "client" or "change", got "sever"`,
		head + client + server:               `line 3: a "server" after a "client"`,
		head + `{"change":{"Kind":"brown"}}`: `line 2: change.Kind is "brown": want one of brownout, errors, sinkhole, black_hole, cold_start, down, flapping, roll, stall, refusals, surge`,
		head + `{"server":{"Service":{"Shape":"gamma"}}}`:                                      `line 2: server.Service.Shape is "gamma": want one of constant, exponential, uniform, normal, lognormal, samples`,
		head + `{"server":{}} {"client":{}}`:                                                   `line 2: want the end of the line at column 15, got "{\"client\":{}}"`,
		head + "# a\n" + server + `{"server":{"Name":"b","Errors":1.5}}` + "\n" + client + end: `line 4: Scenario.Servers[1].Errors is 1.5, want 0 to 1`,
		head + server + `{"client":{}}` + "\n" + end:                                           `line 3: Scenario.Clients[0] is a client with 0 of Rate, Times and Users, want exactly one`,
		head + server + client + `{"change":{"Kind":"down","Servers":"x"}}` + "\n" + end:       `line 4: Scenario.Script[0].Servers is "x", want the id of a server, the name of a group, or zone:NAME`,
		`{"scenario":1}` + "\n" + server + client + end:                                        `line 1: Scenario.Duration is 0s, want more than 0, at most 48h`,
		head + server + `{"client":{"Rate":1,"Pool":{"Policy":{"name":"x","custom":true}}}}`:   `line 3: the policy "x" is not built in`,
	} {
		_, err := sim.Read(strings.NewReader(file))
		require.EqualError(t, err, "sim: "+want, "%s", file)
		require.ErrorIs(t, err, sim.ErrSyntax)
		require.Equal(t, strings.Contains(want, "Scenario."), errors.Is(err, sim.ErrConfig), "%s", want)
	}
	// An error of the reader is passed on, also from the middle.
	broken := errors.New("broken")
	// A line without an end is an error about the text, wherever it stands.
	for _, before := range []string{"", head, head + server + client + end} {
		long := io.LimitReader(endless{}, 65<<20)
		_, err := sim.Read(io.MultiReader(strings.NewReader(before+"#"), long))
		require.ErrorIs(t, err, sim.ErrSyntax)
	}
	_, err := sim.Read(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
	_, err = sim.Read(io.MultiReader(strings.NewReader(sinkhole), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

type mine struct{ balancer.RoundRobin }

func (mine) Name() string { return "mine" }

func TestWriteRefuses(t *testing.T) {
	s, err := sim.Read(strings.NewReader(sinkhole))
	require.NoError(t, err)
	var b bytes.Buffer
	own := s
	own.Pool.Policy = mine{}
	require.ErrorContains(t, own.Write(&b), `the policy "mine" is not built in`)
	own = s
	own.Servers = []sim.Server{{Name: "\xff"}}
	require.ErrorIs(t, own.Write(&b), sim.ErrConfig)
	var ce *sim.ConfigError
	own.Pool.Policy, own.Servers = mine{}, s.Servers
	require.ErrorAs(t, own.Write(&b), &ce)
	require.ErrorIs(t, ce.Err, sim.ErrSyntax)
	// The least of numbers can be written and read.
	own = s
	own.Servers = []sim.Server{{Name: "s-3", Workers: math.MinInt, Queue: math.MinInt, Weight: math.MinInt}}
	var file bytes.Buffer
	require.NoError(t, own.Write(&file))
	again, err := sim.Read(&file)
	require.NoError(t, err)
	require.Equal(t, own, again)
	own = s
	own.Duration = 0
	require.ErrorIs(t, own.Write(&b), sim.ErrConfig)
	require.Empty(t, b.String())
	broken := errors.New("broken")
	require.ErrorIs(t, s.Write(failing{broken}), broken)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzRead reads anything, and writes what it could read.
func FuzzRead(f *testing.F) {
	f.Add(sinkhole)
	f.Add(`{"scenario":1,"Duration":"1","Pool":{"Breaker":{"Off":true}}}` + "\n" + `{"server":{"Service":{"Shape":"samples","Samples":["1"]}}}` + "\n" + `{"client":{"Times":["0"],"Pool":{}}}` + "\n" + `{"end":true}`)
	f.Fuzz(func(t *testing.T, file string) {
		s, err := sim.Read(strings.NewReader(file))
		if err != nil {
			if !errors.Is(err, sim.ErrSyntax) {
				t.Fatalf("%v is no syntax error", err)
			}
			return
		}
		var first, second bytes.Buffer
		if err := s.Write(&first); err != nil {
			t.Fatal(err)
		}
		again, err := sim.Read(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Write(&second); err != nil || first.String() != second.String() {
			t.Fatalf("%v\n%s%s", err, &first, &second)
		}
	})
}
