package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel-go/evenkeel/balancer/sim"
)

// What a name means is what a look at every id and every zone says.
func TestNamesModel(t *testing.T) {
	checkSeeded(t, 17, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"", "a", "a-1", "a-01", "a-1-0", "a--1", "a-2", "a-3", "b", "s-2", "-0", "a-9223372036854775808"})
		s := sim.Scenario{Duration: time.Second, Clients: []sim.Client{{Users: 1}}}
		type server struct{ id, group, zone string }
		var all []server
		fine := true
		for range rapid.IntRange(1, 4).Draw(t, "groups") {
			g := sim.Server{Name: names.Draw(t, "name"), Count: rapid.IntRange(0, 3).Draw(t, "count"), Zone: rapid.SampledFrom([]string{"", "x"}).Draw(t, "zone")}
			s.Servers = append(s.Servers, g)
			if g.Name == "" {
				g.Name = "s"
			}
			for k := range max(1, g.Count) {
				id := g.Name
				if g.Count > 1 {
					id = fmt.Sprintf("%s-%d", g.Name, k)
				}
				fine = fine && !slices.ContainsFunc(all, func(o server) bool { return o.id == id })
				all = append(all, server{id, g.Name, g.Zone})
			}
		}
		for _, v := range all {
			// Whoever names a group of several must not mean one other server too.
			fine = fine && !slices.ContainsFunc(all, func(o server) bool { return v.id != v.group && o.id == v.group })
		}
		require.Equal(t, fine, s.Validate() == nil, "%+v: %v", s.Servers, s.Validate())
		if !fine {
			return
		}
		target := rapid.OneOf(names, rapid.SampledFrom([]string{"a-0", "s", "s-0", "a-2", "a-3", "b-2", "b-3", "zone:", "zone:x", "zone:y", "-0-1"})).Draw(t, "target")
		var want []string
		for _, v := range all {
			if target == "" || target == v.id || target == v.group || v.zone != "" && target == "zone:"+v.zone {
				want = append(want, v.id)
			}
		}
		s.Script = []sim.Change{{Kind: sim.Down, Servers: target}}
		if len(want) == 0 {
			require.ErrorIs(t, s.Validate(), sim.ErrConfig)
			return
		}
		r, err := sim.Run(s)
		require.NoError(t, err)
		require.Equal(t, len(want), r.Changes[0].Servers)
		_, err = sim.Watch(s, func(a sim.Attempt) {
			require.Equal(t, slices.Contains(want, a.Server), a.Outcome.String() == "transport_failure", a.Server)
		})
		require.NoError(t, err)
	})
}
