package config

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"

	"github.com/goccy/go-yaml"
)

// YAML prints the document with every key that is set or was given, in the
// schema's order. It parses back to an equal Config.
func (c Config) YAML() []byte {
	text, err := yaml.Marshal(c.tree(document, reflect.ValueOf(c), ""))
	if err != nil {
		// Only numbers, words and lists of them are in a Config.
		panic("config: printing: " + err.Error())
	}
	return text
}

// MarshalJSON prints the same document as one JSON object.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(ordered(c.tree(document, reflect.ValueOf(c), "")))
}

// Equal reports whether two Configs print alike, which is all there is to them
// but where their keys were given.
func (c Config) Equal(other Config) bool { return bytes.Equal(c.YAML(), other.YAML()) }

// tree turns a section into keys and values in the schema's order.
func (c Config) tree(fields []field, section reflect.Value, path string) yaml.MapSlice {
	tree := yaml.MapSlice{}
	for _, known := range fields {
		value, at := section.Field(known.index), join(path, known.key)
		if known.unset && value.IsZero() && !c.given(at) {
			continue
		}
		tree = append(tree, yaml.MapItem{Key: known.key, Value: c.branch(known, value, at)})
	}
	return tree
}

// branch turns one value into what the printers understand.
func (c Config) branch(known field, value reflect.Value, path string) any {
	switch {
	case value.Kind() == reflect.Struct:
		return c.tree(known.fields, value, path)
	case value.Kind() == reflect.Slice && known.fields != nil:
		list := make([]any, value.Len())
		for i := range list {
			list[i] = c.tree(known.fields, value.Index(i), join(path, strconv.Itoa(i)))
		}
		return list
	case value.Kind() == reflect.Float64:
		return plain(value.Float())
	}
	return value.Interface()
}

// plain prints 1400.0 as 1400, as a person writes it.
func plain(value float64) any {
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		return int64(value)
	}
	return value
}

// ordered prints a tree as a JSON object with its keys in order.
type ordered yaml.MapSlice

// MarshalJSON writes the keys one after another.
func (o ordered) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i, item := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		for j, part := range []any{item.Key, inOrder(item.Value)} {
			if j > 0 {
				text.WriteByte(':')
			}
			encoded, err := json.Marshal(part)
			if err != nil {
				return nil, err
			}
			text.Write(encoded)
		}
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// inOrder marks the sections within a value.
func inOrder(value any) any {
	switch value := value.(type) {
	case yaml.MapSlice:
		return ordered(value)
	case []any:
		list := make([]any, len(value))
		for i, element := range value {
			list[i] = inOrder(element)
		}
		return list
	}
	return value
}
