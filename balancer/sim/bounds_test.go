package sim_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// Both sides of every bound: the last value that is taken, and the first that is
// not.
func TestBounds(t *testing.T) {
	const day = 24 * time.Hour
	type scenario = sim.Scenario
	server := func(s *scenario) *sim.Server { return &s.Servers[0] }
	client := func(s *scenario) *sim.Client { return &s.Clients[0] }
	change := func(s *scenario) *sim.Change { return &s.Script[0] }
	durations := func(field string, set func(*scenario, time.Duration), good, bad []time.Duration) {
		t.Run(field, func(t *testing.T) { bounds(t, field, set, good, bad) })
	}
	times := []time.Duration{0, 1, 2 * day}
	beyond := []time.Duration{-1, 2*day + 1, math.MaxInt64}
	durations("Scenario.Duration", func(s *scenario, d time.Duration) { s.Duration, s.Interval = d, d }, []time.Duration{1, 2 * day}, []time.Duration{0, -1, 2*day + 1})
	durations("Scenario.WarmUp", func(s *scenario, d time.Duration) { s.WarmUp = d }, []time.Duration{0, 1, time.Second}, []time.Duration{-1, time.Second + 1})
	durations("Scenario.Interval", func(s *scenario, d time.Duration) { s.Interval = d }, []time.Duration{0, time.Microsecond, time.Hour}, []time.Duration{-1, time.Microsecond - 1})
	durations("Scenario.Servers[0].Service.Mean", func(s *scenario, d time.Duration) { server(s).Service.Mean = d }, times, beyond)
	durations("Scenario.Servers[0].Service.Spread", func(s *scenario, d time.Duration) {
		server(s).Service = sim.Dist{Shape: sim.ShapeNormal, Spread: d}
	}, times, beyond)
	durations("Scenario.Servers[0].Service.Spread", func(s *scenario, d time.Duration) {
		server(s).Service = sim.Dist{Shape: sim.ShapeUniform, Mean: 5, Spread: d}
	}, []time.Duration{0, 5}, []time.Duration{6})
	durations("Scenario.Servers[0].Service.Mean", func(s *scenario, d time.Duration) {
		server(s).Service = sim.Dist{Shape: sim.ShapeLogNormal, Mean: d, Spread: 1}
	}, []time.Duration{1}, []time.Duration{0, -1})
	durations("Scenario.Servers[0].Service.Samples[1]", func(s *scenario, d time.Duration) {
		server(s).Service = sim.Recorded([]time.Duration{1, d})
	}, times, beyond)
	durations("Scenario.Clients[0].Timeout", func(s *scenario, d time.Duration) { client(s).Timeout = d }, times, beyond)
	durations("Scenario.Clients[0].Deadline", func(s *scenario, d time.Duration) { client(s).Deadline = d }, times, beyond)
	durations("Scenario.Clients[0].Target", func(s *scenario, d time.Duration) { client(s).Target = d }, append(times, math.MaxInt64), []time.Duration{-1})
	durations("Scenario.Clients[0].Times[1]", func(s *scenario, d time.Duration) {
		*client(s) = sim.Client{Times: []time.Duration{5, d}}
	}, []time.Duration{5, math.MaxInt64}, []time.Duration{4, -1})
	durations("Scenario.Clients[0].Times[0]", func(s *scenario, d time.Duration) {
		*client(s) = sim.Client{Times: []time.Duration{d}}
	}, []time.Duration{0}, []time.Duration{-1})
	durations("Scenario.Script[0].At", func(s *scenario, d time.Duration) { change(s).At = d }, times, beyond)
	durations("Scenario.Script[0].For", func(s *scenario, d time.Duration) { change(s).For = d }, times, beyond)
	for _, k := range []sim.Kind{sim.ColdStart, sim.Roll} {
		durations("Scenario.Script[0].For", func(s *scenario, d time.Duration) { change(s).Kind, change(s).For = k, d }, []time.Duration{1, 2 * day}, []time.Duration{0, 2*day + 1})
	}

	ints := func(field string, set func(*scenario, int), good, bad []int) {
		t.Run(field, func(t *testing.T) { bounds(t, field, set, good, bad) })
	}
	ints("Scenario.Servers[0].Count", func(s *scenario, n int) { server(s).Count = n }, []int{0, 1, 1000}, []int{-1, 1<<20 + 1})
	ints("Scenario.Servers[0].Weight", func(s *scenario, n int) { server(s).Weight = n }, []int{-1, 0, 1<<19 + 1, 1 << 20}, []int{1<<20 + 1})
	ints("Scenario.Servers[0].Priority", func(s *scenario, n int) { server(s).Priority = n }, []int{0, 7, 1 << 30}, []int{-1, 1<<30 + 1})
	ints("Scenario.Servers[0].MaxInflight", func(s *scenario, n int) { server(s).MaxInflight = n }, []int{0, 1, 1 << 30}, []int{-1, 1<<30 + 1})
	ints("Scenario.Clients[0].Count", func(s *scenario, n int) { client(s).Count = n }, []int{0, 1, 10}, []int{-1, 1<<20 + 1})
	ints("Scenario.Clients[0].Users", func(s *scenario, n int) { *client(s) = sim.Client{Users: n} }, []int{1, 1 << 20}, []int{-1, 1<<20 + 1})
	ints("Scenario.Clients[0].Sees", func(s *scenario, n int) { client(s).Sees = n }, []int{0, 1, 3}, []int{-1, 4})
	ints("Scenario.Clients[0].Keys", func(s *scenario, n int) { client(s).Keys = n }, []int{0, 1, math.MaxInt}, []int{-1})
	ints("Scenario.Script[0].First", func(s *scenario, n int) { change(s).First = n }, []int{0, 1, 99}, []int{-1})
	ints("Scenario.Script[0].Kind", func(s *scenario, n int) { *change(s) = sim.Change{Kind: sim.Kind(n), For: 1} }, []int{int(sim.Brownout), int(sim.Surge)}, []int{0, int(sim.Surge) + 1, 255})

	floats := func(field string, set func(*scenario, float64), good, bad []float64) {
		t.Run(field, func(t *testing.T) { bounds(t, field, set, good, bad) })
	}
	shares, none := []float64{0, 1e-9, 1}, []float64{-1e-9, math.Nextafter(1, 2), math.NaN(), math.Inf(1)}
	floats("Scenario.Servers[0].Errors", func(s *scenario, x float64) { server(s).Errors = x }, shares, none)
	floats("Scenario.Servers[0].FastFails", func(s *scenario, x float64) { server(s).FastFails = x }, shares, none)
	floats("Scenario.Script[0].Share", func(s *scenario, x float64) { change(s).Kind, change(s).Share = sim.Errors, x }, shares, none)
	factors, wild := []float64{0, 1e-9, 1e6}, []float64{-1e-9, math.Nextafter(1e6, 2e6), math.NaN(), math.Inf(1)}
	floats("Scenario.Servers[0].SlowDown", func(s *scenario, x float64) { server(s).SlowDown = x }, factors, wild)
	floats("Scenario.Script[0].Factor", func(s *scenario, x float64) { change(s).Kind, change(s).Factor = sim.Surge, x }, factors, wild)
	floats("Scenario.Clients[0].Rate", func(s *scenario, x float64) { *client(s) = sim.Client{Rate: x} },
		[]float64{1e-5, 1, 1e9}, []float64{math.Nextafter(1e-5, 0), 1e-9, -1, math.Nextafter(1e9, 2e9), math.NaN()})
}

// bounds sets one field of a good scenario to each value, and wants the bad ones
// refused by its name.
func bounds[T any](t *testing.T, field string, set func(*sim.Scenario, T), good, bad []T) {
	t.Helper()
	scenario := func(v T) sim.Scenario {
		s := sim.Scenario{
			Duration: time.Second,
			Servers:  []sim.Server{{Name: "x"}, {Name: "y", Count: 2}},
			Clients:  []sim.Client{{Rate: 1}},
			Script:   []sim.Change{{Kind: sim.Down}},
		}
		set(&s, v)
		return s
	}
	for _, v := range good {
		require.NoError(t, scenario(v).Validate(), "%v", v)
	}
	for _, v := range bad {
		err := scenario(v).Validate()
		require.Error(t, err, "%v", v)
		var ce *sim.ConfigError
		require.True(t, errors.As(err, &ce))
		require.Equal(t, field, ce.Field, "%v: %v", v, err)
	}
}

// A name is of one thing: not of a server and of a group, or of a server and of a
// zone. A Change names what there is.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		names string // with a number of servers where there are several
		which string
		field string // empty: valid
	}{
		{"a*2 b", "a-1", ""},
		{"a*2 b", "zone:west", ""},
		{"a*2 a-1", "a", "Scenario.Servers[1].Name"},
		{"a*2 a-1*2", "a", "Scenario.Servers[1].Name"},
		{"a-1*3 a*2", "a", "Scenario.Servers[0].Name"},
		{"a-1*3 a", "a-1", ""},
		{"a zone:west", "a", "Scenario.Servers[1].Name"},
		{"a zone", "zone", ""},
		{"a b", "zone:", "Scenario.Script[0].Servers"},
		{"a b", "zone:east", "Scenario.Script[0].Servers"},
		{"a b", "c", "Scenario.Script[0].Servers"},
		{"a b", "A", "Scenario.Script[0].Servers"},
	} {
		s := sim.Scenario{Duration: time.Second, Clients: []sim.Client{{Rate: 1}}, Script: []sim.Change{{Kind: sim.Down, Servers: c.which}}}
		for name := range strings.FieldsSeq(c.names) {
			name, several, _ := strings.Cut(name, "*")
			v := sim.Server{Name: name}
			if several != "" {
				v.Count = int(several[0] - '0')
			}
			if len(s.Servers) == 0 && c.which == "zone:west" {
				v.Zone = "west"
			}
			s.Servers = append(s.Servers, v)
		}
		err := s.Validate()
		if c.field == "" {
			require.NoError(t, err, c.names)
			continue
		}
		var ce *sim.ConfigError
		require.True(t, errors.As(err, &ce), "%s, %s", c.names, c.which)
		require.Equal(t, c.field, ce.Field, "%s, %s", c.names, c.which)
	}
}

// One server has the name of its group for an id, several have numbers.
func TestIDs(t *testing.T) {
	r := run(t, sim.Scenario{
		Duration: time.Second,
		Servers:  []sim.Server{{}, {Name: "a", Count: 1}, {Name: "b", Count: 2}},
		Clients:  []sim.Client{at(0)},
		Pool:     bare(nil),
	})
	var ids []string
	for _, v := range r.Servers {
		ids = append(ids, v.ID)
	}
	require.Equal(t, []string{"s", "a", "b-0", "b-1"}, ids)
}

// A setting that its kind of Change does not know is an error, not silence.
func TestStraySettings(t *testing.T) {
	uses := map[string]string{
		"Servers": "brownout errors sinkhole black_hole cold_start down flapping roll stall refusals",
		"First":   "brownout errors sinkhole black_hole cold_start down flapping roll stall refusals",
		"Factor":  "brownout cold_start surge",
		"Share":   "errors sinkhole refusals",
		"Service": "brownout sinkhole refusals",
		"Every":   "cold_start flapping roll",
	}
	for k := sim.Brownout; k <= sim.Surge; k++ {
		for field, kinds := range uses {
			c := sim.Change{Kind: k, For: time.Second}
			switch field {
			case "Servers":
				c.Servers = "x"
			case "First":
				c.First = 1
			case "Factor":
				c.Factor = 2
			case "Share":
				c.Share = .5
			case "Service":
				c.Service = fixed(1)
			case "Every":
				c.Every = time.Second
			}
			err := sim.Scenario{
				Duration: time.Second, Servers: []sim.Server{{Name: "x"}}, Clients: []sim.Client{{Rate: 1}}, Script: []sim.Change{c},
			}.Validate()
			if strings.Contains(kinds, k.String()) {
				require.NoError(t, err, "%v", c)
				continue
			}
			var ce *sim.ConfigError
			require.True(t, errors.As(err, &ce), "%v takes %s", k, field)
			require.Equal(t, "Scenario.Script[0]."+field, ce.Field)
		}
	}
	// A brownout is by a factor or to a time.
	err := sim.Scenario{
		Duration: time.Second, Servers: []sim.Server{{}}, Clients: []sim.Client{{Rate: 1}},
		Script: []sim.Change{{Kind: sim.Brownout, Factor: 2, Service: fixed(1)}},
	}.Validate()
	require.ErrorContains(t, err, "Scenario.Script[0].Factor")
}
