package incident

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

// policies are the policies that a file can describe: the built-in ones.
func policies() []balancer.Policy {
	return []balancer.Policy{
		balancer.RoundRobin{}, balancer.WeightedRoundRobin{}, balancer.Random{}, balancer.LeastConn{},
		balancer.TwoRandom{}, balancer.PeakEWMA{}, balancer.Hash{},
	}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	policyType   = reflect.TypeFor[balancer.Policy]()
)

// custom stands for a policy that is not built in: its name is known.
type custom struct{ name string }

// Name implements balancer.Policy.
func (c custom) Name() string { return c.name }

// NewPicker implements balancer.Policy. A Config with it is never used.
func (c custom) NewPicker(*balancer.View, balancer.Picker) balancer.Picker { return nil }

// skipped tells whether a field of a Config is not data, or stands elsewhere in
// the header.
func skipped(t reflect.Type, f reflect.StructField) bool {
	switch f.Type.Kind() {
	case reflect.Func:
		return true
	case reflect.Interface:
		return f.Type != policyType
	}
	return t == reflect.TypeFor[balancer.Config]() && f.Name == "Seed"
}

// appendConfig appends what is data of a Config as an object with the names that
// Go has, in the order of the struct, without the fields that are zero.
func appendConfig(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Struct:
		return append(appendFields(append(b, '{'), v, true), '}')
	case reflect.Interface:
		p := v.Interface().(balancer.Policy)
		b = appendString(append(b, `{"name":`...), p.Name())
		for _, known := range policies() {
			if reflect.TypeOf(p) == reflect.TypeOf(known) {
				return append(appendFields(b, v.Elem(), false), '}')
			}
		}
		return append(b, `,"custom":true}`...)
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Type() == durationType {
			return append(appendSeconds(append(b, '"'), time.Duration(v.Int())), '"')
		}
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.String:
		return appendString(b, v.String())
	}
	panic(fmt.Sprintf("incident: a Config with a field of type %v", v.Type()))
}

func appendFields(b []byte, v reflect.Value, first bool) []byte {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if skipped(v.Type(), f) || v.Field(i).IsZero() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, f.Name), ':')
		b = appendConfig(b, v.Field(i))
	}
	return b
}

// config reads into v what appendConfig wrote.
func (c *cursor) config(what string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		c.need('{')
		c.fields(what, v, true)
		c.need('}')
	case reflect.Interface:
		c.policy(what, v)
	case reflect.Bool:
		v.SetBool(c.truth(what))
	case reflect.Float64:
		c.space()
		start := c.i
		for c.i < len(c.b) && (c.b[c.i]-'0' <= 9 || c.b[c.i] == '-' || c.b[c.i] == '+' || c.b[c.i] == '.' || c.b[c.i] == 'e') {
			c.i++
		}
		f, err := strconv.ParseFloat(string(c.b[start:c.i]), 64)
		if err != nil {
			c.i = start
			c.expect(what + " as a number")
			return
		}
		v.SetFloat(f)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Type() == durationType {
			v.SetInt(int64(c.seconds(what)))
			return
		}
		n := c.integer(what, math.MaxInt64)
		if v.OverflowInt(n) {
			c.fail("%s is %d, which is too large", what, n)
			return
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := c.number(what, math.MaxUint64)
		if v.OverflowUint(n) {
			c.fail("%s is %d, which is too large", what, n)
			return
		}
		v.SetUint(n)
	case reflect.String:
		v.SetString(string(c.text(what)))
	default:
		c.fail("%s cannot stand in a file", what)
	}
}

// fields reads the members of an object into the struct v, in the struct's order.
func (c *cursor) fields(what string, v reflect.Value, first bool) {
	next := 0
	for {
		k := c.key(first)
		if k == "" {
			return
		}
		first = false
		at := next
		for at < v.NumField() && (v.Type().Field(at).Name != k || skipped(v.Type(), v.Type().Field(at))) {
			at++
		}
		if at == v.NumField() {
			if f, ok := v.Type().FieldByName(k); ok && !skipped(v.Type(), f) {
				c.fail("%s: %q is out of order or given twice", what, k)
			} else {
				c.fail("%s has no %q", what, k)
			}
			return
		}
		next = at + 1
		c.config(what+"."+k, v.Field(at))
	}
}

// policy reads a policy: a name, then the settings of a built-in one.
func (c *cursor) policy(what string, v reflect.Value) {
	c.need('{')
	if k := c.key(true); k != "name" {
		c.fail(`%s: want "name" first, got %q`, what, k)
	}
	name := string(c.text("name"))
	for _, p := range policies() {
		if p.Name() != name {
			continue
		}
		own := reflect.New(reflect.TypeOf(p)).Elem()
		c.fields(what, own, false)
		c.need('}')
		v.Set(own)
		return
	}
	if k := c.key(false); k != "custom" || !c.truth("custom") {
		c.fail(`%s: want "custom":true with a policy that is not built in, %q`, what, name)
	}
	c.need('}')
	v.Set(reflect.ValueOf(custom{name}))
}
