package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/headway-rl/headway/api/protocol"
)

// checkStrictly refuses what package json reads in silence. A null in a list would be a 0: a token that nobody
// sent, or a log-prob of certainty. Of a key that is repeated the last would count, and a key of other
// case would be taken for the field: two readers of one body could differ about a reward. A text would be
// bytes, in place of a list of numbers. The text is the JSON that was decoded into the message, no deeper than depthMax.
func checkStrictly(text []byte, message any) error {
	c := strictly{text: text}
	c.value(reflect.TypeOf(message), "", false)
	return c.err
}

// strictly walks over a text that is known to be JSON.
type strictly struct {
	text []byte
	at   int
	err  error // the first; it ends the walk
}

// fieldsOf has the types of a message's fields by their JSON names, by the message's type.
var fieldsOf sync.Map

func fieldTypes(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldsOf.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name = cmp.Or(name, field.Name); name != "-" && field.IsExported() {
			fields[name] = field.Type
		}
	}
	fieldsOf.Store(t, fields)
	return fields
}

// value passes over a value of the field given, or in a list of it. The type is nil where it is not known.
func (c *strictly) value(t reflect.Type, field string, listed bool) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		t = nil
	}
	c.space()
	switch c.text[c.at] {
	case '{':
		c.object(t)
	case '[':
		if t != nil && t.Kind() == reflect.Slice {
			t = t.Elem()
		} else {
			t = nil
		}
		c.members(']', func() { c.value(t, field, true) })
	case '"':
		if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			c.refuse(protocol.Refuse(protocol.CodeInvalid, "field %q at byte %d holds a text: want a list of numbers", field, c.at).With("field", field))
		}
		c.quoted()
	case 'n':
		if listed {
			c.refuse(protocol.Refuse(protocol.CodeInvalid, "a list has null at byte %d: want a value in every place, and every number finite", c.at))
		}
		c.at += len("null")
	default:
		for c.text[c.at] != ',' && c.text[c.at] != ']' && c.text[c.at] != '}' && c.text[c.at] > ' ' {
			c.at++
		}
	}
}

// object passes over an object, whose keys are fields where t is a struct.
func (c *strictly) object(t reflect.Type) {
	var fields map[string]reflect.Type
	var values reflect.Type
	switch {
	case t != nil && t.Kind() == reflect.Struct:
		fields = fieldTypes(t)
	case t != nil && t.Kind() == reflect.Map:
		values = t.Elem()
	}
	seen := map[string]bool{}
	c.members('}', func() {
		at := c.at
		key := c.key()
		if seen[key] {
			c.refuse(protocol.Refuse(protocol.CodeInvalid, "field %q is there again at byte %d: want every field once", clip(key), at).With("field", clip(key)))
		}
		seen[key] = true
		of, known := fields[key]
		if !known {
			of = values
		}
		if fields != nil && !known {
			c.refuseCase(key, fields, at)
		}
		c.space()
		c.at++ // the colon
		c.value(of, key, false)
	})
}

// refuseCase says how a field is written whose name was matched in another case.
func (c *strictly) refuseCase(key string, fields map[string]reflect.Type, at int) {
	for name := range fields {
		if strings.EqualFold(name, key) {
			c.refuse(protocol.Refuse(protocol.CodeInvalid, "unknown field %q at byte %d: it is written %q", clip(key), at, name).With("field", clip(key)).With("nearest", name))
		}
	}
}

// members passes over the members of a list or an object with each.
func (c *strictly) members(end byte, each func()) {
	c.at++
	c.space()
	for c.err == nil && c.text[c.at] != end {
		each()
		if c.err != nil {
			return
		}
		c.space()
		if c.text[c.at] == ',' {
			c.at++
			c.space()
		}
	}
	c.at++
}

// quoted passes over a text and returns it as it is written, with its quotes.
func (c *strictly) quoted() []byte {
	begin := c.at
	for c.at++; c.text[c.at] != '"'; c.at++ {
		if c.text[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
	return c.text[begin:c.at]
}

// key passes over a key and returns what it says.
func (c *strictly) key() (name string) {
	raw := c.quoted()
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	_ = json.Unmarshal(raw, &name) // it was decoded before
	return name
}

func (c *strictly) space() {
	for c.text[c.at] <= ' ' {
		c.at++
	}
}

func (c *strictly) refuse(err error) {
	if c.err == nil {
		c.err = err
	}
}
