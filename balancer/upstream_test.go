package balancer_test

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/balancer"
	"github.com/stretchr/testify/require"
)

// bare has an identity and nothing else.
type bare string

func (p bare) ID() string { return string(p) }

// heavy has every optional property.
type heavy struct{ id string }

func (h heavy) ID() string       { return h.id }
func (h heavy) Weight() int      { return 7 }
func (h heavy) Priority() int    { return 3 }
func (h heavy) MaxInflight() int { return 5 }

// Wrappers that keep the properties of what they wrap.
type (
	opened   struct{ balancer.Upstream }
	promoted struct{ heavy }
	pointed  struct{ *heavy }
	override struct{ balancer.Upstream }
	generic  [1]string
)

func (o opened) Unwrap() balancer.Upstream   { return o.Upstream }
func (o override) Unwrap() balancer.Upstream { return o.Upstream }
func (override) Weight() int                 { return 2 }
func (g generic) ID() string                 { return g[0] }

// Near misses.
type (
	wide       struct{ bare }
	paired     struct{ bare }
	asks       struct{ bare }
	ptr        struct{ bare }
	other      struct{ bare }
	camel      struct{ bare }
	hides      struct{ balancer.Upstream }
	hidesDeep  struct{ hides }
	hidesByPtr struct{ *hides }
	alias      interface{ balancer.Upstream }
	hidesNamed struct{ alias }
	opaque     struct{ balancer.Upstream }
)

func (wide) Weight() int64              { return 1 }
func (paired) Priority() (int, error)   { return 0, nil }
func (asks) MaxInflight(string) int     { return 0 }
func (*ptr) Weight() int                { return 1 }
func (o other) Unwrap() bare            { return o.bare }
func (camel) MaxInFlight() int          { return 1 }
func (opaque) Weight() int              { return 2 }
func (opaque) Priority() int            { return 1 }
func (opaque) MaxInflight() int         { return 0 }
func (o opaque) Unwrap() opaqueUpstream { return o.Upstream }

type opaqueUpstream interface{ ID() string }

// What an upstream says of itself is found where it is meant, and a near miss is
// an error that names it, at any depth of wrapping.
func TestUpstreamTraits(t *testing.T) {
	for name, c := range map[string]struct {
		up                      balancer.Upstream
		weight, priority, limit int
	}{
		"nothing":           {bare("a"), 1, 0, 0},
		"array":             {generic{"a"}, 1, 0, 0},
		"all":               {heavy{"a"}, 7, 3, 5},
		"all, by pointer":   {&heavy{"a"}, 7, 3, 5},
		"pointer receiver":  {&ptr{"a"}, 1, 0, 0},
		"embedded":          {promoted{heavy{"a"}}, 7, 3, 5},
		"embedded pointer":  {pointed{&heavy{"a"}}, 7, 3, 5},
		"unwrapped":         {opened{heavy{"a"}}, 7, 3, 5},
		"unwrapped twice":   {opened{&opened{heavy{"a"}}}, 7, 3, 5},
		"outermost counts":  {override{opened{heavy{"a"}}}, 2, 3, 5},
		"embeds a bare one": {hides{bare("a")}, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := balancer.NewPool(balancer.Config{Seed: 1}, c.up)
			require.NoError(t, err)
			s := p.Snapshot().Upstreams[0]
			require.Equal(t, []int{c.weight, c.priority}, []int{s.Weight, s.Priority})
			n := 0
			for ; n < 8; n++ {
				if _, err := p.Acquire(balancer.Request{}); err != nil {
					break
				}
			}
			if c.limit == 0 {
				require.Equal(t, 8, n)
			} else {
				require.Equal(t, c.limit, n)
			}
		})
	}
	for name, c := range map[string]struct {
		up   balancer.Upstream
		says string
	}{
		"another result":           {wide{"a"}, "Weight"},
		"two results":              {paired{"a"}, "Priority"},
		"a parameter":              {asks{"a"}, "MaxInflight"},
		"pointer receiver":         {ptr{"a"}, "*balancer_test.ptr"},
		"Unwrap to another type":   {other{"a"}, "Unwrap"},
		"Unwrap to a like type":    {opaque{bare("a")}, "Unwrap"},
		"another spelling":         {camel{"a"}, "MaxInFlight"},
		"hidden":                   {hides{heavy{"a"}}, "hides its Weight"},
		"hidden behind a pointer":  {hides{&heavy{"a"}}, "hides its Weight"},
		"hidden, wrapper pointer":  {&hides{heavy{"a"}}, "hides its Weight"},
		"hidden Unwrap":            {hides{opened{heavy{"a"}}}, "hides its Unwrap"},
		"hidden by an alias":       {hidesNamed{heavy{"a"}}, "hides its Weight"},
		"hidden one struct down":   {hidesDeep{hides{heavy{"a"}}}, "hides its Weight"},
		"hidden by a pointer":      {hidesByPtr{&hides{heavy{"a"}}}, "hides its Weight"},
		"hidden twice":             {hides{hides{heavy{"a"}}}, "hides its Weight"},
		"hidden, then unwrapped":   {opened{hides{heavy{"a"}}}, "hides its Weight"},
		"near miss that is hidden": {hides{wide{"a"}}, "hides its Weight"},
	} {
		t.Run("near miss/"+name, func(t *testing.T) {
			_, err := balancer.NewPool(balancer.Config{Seed: 1}, c.up)
			require.ErrorIs(t, err, balancer.ErrConfig)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, `"a"`)
		})
	}
}

// endless wraps itself.
type endless struct{ bare }

func (e endless) Unwrap() balancer.Upstream { return e }

func TestUnwrapThatNeverEnds(t *testing.T) {
	_, err := balancer.NewPool(balancer.Config{Seed: 1}, endless{"a"})
	require.NoError(t, err)
}
