package jsonline

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel-go/evenkeel/balancer"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	policyType   = reflect.TypeFor[balancer.Policy]()
)

// isData tells whether a field can stand in a file: all but functions and what
// is behind interfaces, of which a policy is known.
func isData(f reflect.StructField) bool {
	switch f.Type.Kind() {
	case reflect.Func:
		return false
	case reflect.Interface:
		return f.Type == policyType
	}
	return true
}

// AppendStruct appends what is data of a struct as an object with the names that
// Go has, in the order of the struct, without the fields that are zero and those
// in except. A type with a text form stands as that.
func AppendStruct(b []byte, v any, except ...string) []byte {
	return append(AppendFields(append(b, '{'), v, true, except...), '}')
}

// AppendFields is AppendStruct without the braces. first says that no comma is
// needed before the first field.
func AppendFields(b []byte, v any, first bool, except ...string) []byte {
	return appendFields(b, reflect.ValueOf(v), first, except)
}

func appendFields(b []byte, v reflect.Value, first bool, except []string) []byte {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !isData(f) || slices.Contains(except, f.Name) || v.Field(i).IsZero() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(AppendString(b, f.Name), ':')
		b = appendValue(b, v.Field(i))
	}
	return b
}

func appendValue(b []byte, v reflect.Value) []byte {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			text = fmt.Append(nil, v.Interface()) // it will not be read again
		}
		return AppendString(b, string(text))
	}
	switch v.Kind() {
	case reflect.Struct:
		return append(appendFields(append(b, '{'), v, true, nil), '}')
	case reflect.Pointer:
		return appendValue(b, v.Elem())
	case reflect.Slice:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, v.Index(i))
		}
		return append(b, ']')
	case reflect.Interface:
		return appendPolicy(b, v.Interface().(balancer.Policy))
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Type() == durationType {
			return append(AppendSeconds(append(b, '"'), time.Duration(v.Int())), '"')
		}
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.String:
		return AppendString(b, v.String())
	}
	panic(fmt.Sprintf("jsonline: a field of type %v", v.Type()))
}

// Struct reads into the struct that into points to what AppendStruct wrote of it.
// what names it in messages.
func (c *Cursor) Struct(what string, into any, except ...string) {
	c.Need('{')
	c.Fields(what, into, true, except...)
	c.Need('}')
}

// Fields is Struct without the braces. first says that no comma stands before
// the first field.
func (c *Cursor) Fields(what string, into any, first bool, except ...string) {
	c.fields(what, reflect.ValueOf(into).Elem(), first, except)
}

func (c *Cursor) fields(what string, v reflect.Value, first bool, except []string) {
	known := func(f reflect.StructField) bool { return isData(f) && !slices.Contains(except, f.Name) }
	next := 0
	for {
		k := c.Key(first)
		if k == "" {
			return
		}
		first = false
		at := next
		for at < v.NumField() && (v.Type().Field(at).Name != k || !known(v.Type().Field(at))) {
			at++
		}
		if at == v.NumField() {
			if f, ok := v.Type().FieldByName(k); ok && known(f) {
				c.Fail("%s: %q is out of order or given twice", what, k)
			} else {
				c.Fail("%s has no %q", what, k)
			}
			return
		}
		next = at + 1
		c.value(what+"."+k, v.Field(at))
	}
}

func (c *Cursor) value(what string, v reflect.Value) {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text := c.Text(what)
		if c.Msg != "" {
			return
		}
		if err := u.UnmarshalText(text); err != nil {
			c.Fail("%s is %q: %v", what, text, err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		c.Need('{')
		c.fields(what, v, true, nil)
		c.Need('}')
	case reflect.Pointer:
		own := reflect.New(v.Type().Elem())
		c.value(what, own.Elem())
		v.Set(own)
	case reflect.Slice:
		c.slice(what, v)
	case reflect.Interface:
		c.policy(what, v)
	case reflect.Bool:
		v.SetBool(c.Truth(what))
	case reflect.Float64:
		v.SetFloat(c.float(what))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Type() == durationType {
			v.SetInt(int64(c.Seconds(what)))
			return
		}
		n := c.Integer(what, math.MaxInt64)
		if v.OverflowInt(n) {
			c.Fail("%s is %d, which is too large", what, n)
			return
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := c.Number(what, math.MaxUint64)
		if v.OverflowUint(n) {
			c.Fail("%s is %d, which is too large", what, n)
			return
		}
		v.SetUint(n)
	case reflect.String:
		v.SetString(string(c.Text(what)))
	default:
		c.Fail("%s cannot stand in a file", what)
	}
}

func (c *Cursor) float(what string) float64 {
	c.Space()
	start := c.i
	for c.i < len(c.b) && (c.b[c.i]-'0' <= 9 || c.b[c.i] == '-' || c.b[c.i] == '+' || c.b[c.i] == '.' || c.b[c.i] == 'e') {
		c.i++
	}
	text := c.b[start:c.i]
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !json.Valid(text) {
		c.i = start
		c.Expect(what + " as a number")
		return 0
	}
	return f
}

func (c *Cursor) slice(what string, v reflect.Value) {
	c.Need('[')
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for c.Msg == "" && !c.Take(']') {
		if v.Len() > 0 {
			c.Need(',')
		}
		one := reflect.New(v.Type().Elem()).Elem()
		c.value(what+"["+strconv.Itoa(v.Len())+"]", one)
		v.Set(reflect.Append(v, one))
	}
}
