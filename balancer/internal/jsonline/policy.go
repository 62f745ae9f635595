package jsonline

import (
	"fmt"
	"reflect"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// policies are the policies that a file can describe: the built-in ones.
func policies() []balancer.Policy {
	return []balancer.Policy{
		balancer.RoundRobin{}, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{},
	}
}

// maxNested is how many policies may stand inside one another. Two are in use, a
// hash and what it does without a key; the limit is for files made to exhaust.
const maxNested = 8

// Custom stands for a policy that is not built in: its name is known, and it
// cannot pick.
type Custom struct{ name string }

// Name implements balancer.Policy.
func (c Custom) Name() string { return c.name }

// NewPicker implements balancer.Policy. Its Picker finds nobody. A Config with a
// Custom in it is to be completed first: see Resolve.
func (c Custom) NewPicker(*balancer.View, balancer.Picker) balancer.Picker { return nobody{} }

type nobody struct{}

func (nobody) Pick(balancer.Call) int { return -1 }

// builtIn returns the settings of a policy that a file can describe, of a
// pointer what it points to. A type that embeds a built-in one has its name, and
// is another.
func builtIn(p balancer.Policy) (reflect.Value, bool) {
	v := reflect.ValueOf(p)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	for _, known := range policies() {
		if v.Type() == reflect.TypeOf(known) {
			return v, true
		}
	}
	return v, false
}

// BuiltIn tells whether a file can describe a policy, and those in it. That of a
// Config without one it can.
func BuiltIn(p balancer.Policy) bool {
	if p == nil {
		return true
	}
	v, ok := builtIn(p)
	for i := 0; ok && i < v.NumField(); i++ {
		if f := v.Field(i); f.Type() == policyType && !f.IsNil() {
			ok = BuiltIn(f.Interface().(balancer.Policy))
		}
	}
	return ok
}

// Resolve puts policies in the place of each Custom, by their names: p itself
// may be one, or a setting of p. The error names what is missing.
func Resolve(p balancer.Policy, given ...balancer.Policy) (balancer.Policy, error) {
	if p == nil {
		return nil, nil
	}
	if c, ok := p.(Custom); ok {
		for _, g := range given {
			if g.Name() == c.name {
				return g, nil
			}
		}
		return p, fmt.Errorf("the policy %q is not built in", c.name)
	}
	v, ok := builtIn(p)
	if !ok {
		return p, nil
	}
	own := reflect.New(v.Type()).Elem()
	own.Set(v)
	changed := false
	for i := range own.NumField() {
		if f := own.Field(i); f.Type() == policyType && !f.IsNil() {
			inner, err := Resolve(f.Interface().(balancer.Policy), given...)
			if err != nil {
				return p, err
			}
			f.Set(reflect.ValueOf(inner))
			changed = true
		}
	}
	if !changed {
		return p, nil // as it was given, pointer or not
	}
	return own.Interface().(balancer.Policy), nil
}

// Keyed tells whether a policy looks at affinity keys, as far as one can see from
// outside: it is a balancer.Hash, or has one in a field or in a list. Maps are left
// alone: whose they are may write to them meanwhile.
func Keyed(p balancer.Policy) bool {
	return p != nil && keyed(reflect.ValueOf(p), maxNested)
}

func keyed(v reflect.Value, depth int) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem() // not valid of nil
	}
	if depth == 0 {
		return false
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if keyed(v.Index(i), depth-1) {
				return true
			}
		}
		return false
	case reflect.Struct:
	default:
		return false
	}
	if v.Type() == reflect.TypeFor[balancer.Hash]() {
		return true
	}
	for i := range v.NumField() {
		if keyed(v.Field(i), depth-1) {
			return true
		}
	}
	return false
}

// appendPolicy appends a policy: its name, then the settings of a built-in one.
func appendPolicy(b []byte, p balancer.Policy) []byte {
	b = AppendString(append(b, `{"name":`...), p.Name())
	if v, ok := builtIn(p); ok {
		return append(appendFields(b, v, false, nil), '}')
	}
	return append(b, `,"custom":true}`...)
}

// policy reads what appendPolicy wrote. That a policy is custom goes before its
// name, which may be that of a built-in one that it wraps.
func (c *Cursor) policy(what string, v reflect.Value) {
	if c.nested++; c.nested > maxNested {
		c.Fail("%d policies inside one another, want at most %d", c.nested, maxNested)
	}
	defer func() { c.nested-- }()
	c.Need('{')
	if k := c.Key(true); k != "name" {
		c.Fail(`%s: want "name" first, got %q`, what, k)
	}
	name := string(c.Text("name"))
	at := c.i
	if c.Key(false) == "custom" {
		if c.Truth("custom") {
			c.Need('}')
			v.Set(reflect.ValueOf(Custom{name}))
			return
		}
		at = c.i
	}
	if c.Msg != "" {
		return
	}
	c.i = at
	for _, p := range policies() {
		if p.Name() != name {
			continue
		}
		own := reflect.New(reflect.TypeOf(p)).Elem()
		c.fields(what, own, false, nil)
		c.Need('}')
		v.Set(own)
		return
	}
	c.Fail(`%s: want "custom":true with a policy that is not built in, %q`, what, name)
}
