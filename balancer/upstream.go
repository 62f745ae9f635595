package balancer

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Upstream is one backend as the Pool sees it: an identity. What else it is - a
// URL, a connection, a shard - is the caller's business and reaches the call
// through the type parameter of [Pool].
//
// An implementation may also have any of these methods. They are looked up and
// called once per [Pool.Update], never on a request:
//
//	Weight() int       share of the traffic; absent = 1, 0 = no traffic
//	Priority() int     tier, lower is preferred; absent = 0
//	MaxInflight() int  calls at once; absent or 0 = no limit
//
// A type that wraps another Upstream and should keep those properties has
// Unwrap() Upstream. A near miss - one of these names with another signature or
// in another spelling (MaxInFlight), a method on the pointer when the value was
// given, a wrapper that hides the methods of what it embeds and has no Unwrap -
// is an error of Update, since silence would mean that a weight is ignored.
type Upstream interface {
	// ID identifies the upstream in its Pool, across updates and in saved state.
	// It must not be empty and must not change.
	ID() string
}

// MaxWeight is the largest weight that an upstream may have. Weights are
// relative: divide larger ones by a common factor.
const MaxWeight = 1 << 20

// maxWraps bounds the wrappers that are looked through. A chain of them that
// never ends is a mistake of the caller's; this is far beyond any real one.
const maxWraps = 16

type (
	weighted    interface{ Weight() int }
	prioritised interface{ Priority() int }
	limited     interface{ MaxInflight() int }
	wrapper     interface{ Unwrap() Upstream }
)

// optional lists the method names looked up on an Upstream and the type each
// must have. Constant data.
var optional = [...]struct {
	name string
	typ  reflect.Type
}{
	{"Weight", reflect.TypeFor[func() int]()},
	{"Priority", reflect.TypeFor[func() int]()},
	{"MaxInflight", reflect.TypeFor[func() int]()},
	{"Unwrap", reflect.TypeFor[func() Upstream]()},
}

// traits is what an Upstream says of itself, read once per update.
type traits struct {
	id          string
	weight      int
	priority    int
	maxInflight int
}

// describe reads an upstream's identity and optional properties, looking
// through Unwrap: the outermost answer counts.
func describe(u Upstream) (traits, error) {
	if isNil(u) {
		return traits{}, &ConfigError{Field: "upstream", Value: "nil", Want: "an Upstream"}
	}
	t := traits{id: u.ID(), weight: 1}
	if t.id == "" {
		return t, &ConfigError{Field: "upstream id", Value: `""`, Want: "a name"}
	}
	if !utf8.ValidString(t.id) {
		return t, &ConfigError{Field: "upstream id", Value: strconv.Quote(t.id), Want: "valid UTF-8, so that it can stand in a file"}
	}
	var w, p, m bool
	for depth := 0; u != nil && depth < maxWraps; depth++ {
		if err := nearMiss(u); err != nil {
			return t, &ConfigError{Field: fmt.Sprintf("upstream %q", t.id), Value: err.Error(), Want: "the signature that Upstream documents"}
		}
		if v, ok := u.(weighted); ok && !w {
			t.weight, w = v.Weight(), true
		}
		if v, ok := u.(prioritised); ok && !p {
			t.priority, p = v.Priority(), true
		}
		if v, ok := u.(limited); ok && !m {
			t.maxInflight, m = v.MaxInflight(), true
		}
		v, ok := u.(wrapper)
		if !ok {
			break
		}
		if u = v.Unwrap(); isNil(u) {
			break
		}
	}
	if t.weight < 0 || t.weight > MaxWeight {
		return t, &ConfigError{Field: fmt.Sprintf("upstream %q weight", t.id), Value: fmt.Sprint(t.weight), Want: fmt.Sprintf("0 to %d", MaxWeight)}
	}
	if t.maxInflight < 0 || t.maxInflight > 1<<30 {
		return t, &ConfigError{Field: fmt.Sprintf("upstream %q max inflight", t.id), Value: fmt.Sprint(t.maxInflight), Want: "0 (no limit) to 2^30"}
	}
	if t.priority < -1<<30 || t.priority > 1<<30 {
		return t, &ConfigError{Field: fmt.Sprintf("upstream %q priority", t.id), Value: fmt.Sprint(t.priority), Want: "-2^30 to 2^30"}
	}
	return t, nil
}

func isNil(u Upstream) bool {
	if u == nil {
		return true
	}
	switch v := reflect.ValueOf(u); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Slice, reflect.Chan, reflect.Interface:
		return v.IsNil()
	}
	return false
}

// nearMiss reports an optional method that the author surely meant and that
// the type does not have in the form looked up.
func nearMiss(u Upstream) error {
	v := reflect.ValueOf(u)
	t := v.Type()
	for _, o := range optional {
		if m, ok := t.MethodByName(o.name); ok {
			if got := v.Method(m.Index).Type(); got != o.typ {
				return fmt.Errorf("%s has %s %v, not %v", t, o.name, got, o.typ)
			}
			continue
		}
		if t.Kind() != reflect.Pointer {
			if m, ok := reflect.PointerTo(t).MethodByName(o.name); ok && m.Type.NumIn() == 1 {
				return fmt.Errorf("%s is a method of *%s, but a %s was given", o.name, t, t)
			}
		}
		for m := range t.NumMethod() {
			if name := t.Method(m).Name; strings.EqualFold(name, o.name) {
				return fmt.Errorf("%s has %s, not %s", t, name, o.name)
			}
		}
	}
	if _, ok := u.(wrapper); ok {
		return nil
	}
	return hidden(t, v, maxWraps)
}

// hidden reports an optional method that t does not have because it embeds an
// interface: that has the interface's methods only, and the others of the value
// inside are hidden. v is a value of t or of something it embeds.
func hidden(t reflect.Type, v reflect.Value, depth int) error {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || depth == 0 {
		return nil
	}
	for i := range v.NumField() {
		if !v.Type().Field(i).Anonymous {
			continue
		}
		f := v.Field(i)
		if f.Kind() == reflect.Interface {
			if f = f.Elem(); !f.IsValid() {
				continue
			}
			for _, o := range optional {
				_, has := t.MethodByName(o.name)
				if _, inside := f.Type().MethodByName(o.name); inside && !has {
					return fmt.Errorf("%s embeds a %s and hides its %s: it needs Unwrap() Upstream", t, f.Type(), o.name)
				}
			}
		}
		if err := hidden(t, f, depth-1); err != nil {
			return err
		}
	}
	return nil
}
