package config

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// YAML prints the document with every key that is set or was given, in the
// schema's order. It parses back to an equal Config. Defaults of the embedded
// engines' task and model are left out where engines are servers.
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
		if known.unset && value.IsZero() && !c.given(at) || c.idle(at) {
			continue
		}
		tree = append(tree, yaml.MapItem{Key: known.key, Value: c.branch(known, value, at)})
	}
	return tree
}

// embeddedKeys are read by embedded engines alone.
var embeddedKeys = map[string]func(c *Config) any{
	"model.layers":                 func(c *Config) any { return c.Model.Layers },
	"model.width":                  func(c *Config) any { return c.Model.Width },
	"model.heads":                  func(c *Config) any { return c.Model.Heads },
	"model.context":                func(c *Config) any { return c.Model.Context },
	"environment.task":             func(c *Config) any { return c.Environment.Task },
	"environment.letters_min":      func(c *Config) any { return c.Environment.LettersMin },
	"environment.letters_max":      func(c *Config) any { return c.Environment.LettersMax },
	"environment.held_out":         func(c *Config) any { return c.Environment.HeldOut },
	"environment.supervised_steps": func(c *Config) any { return c.Environment.SupervisedSteps },
}

// plainDefaults is the document of defaults alone.
var plainDefaults = sync.OnceValue(func() Config { return Config{}.WithDefaults() })

// idle reports whether a key is of embedded engines, of which there are none, and says no more than its default. A run
// that began when such keys were printed has them in its document, so that it does not matter whether it was given.
func (c *Config) idle(at string) bool {
	value := embeddedKeys[at]
	if value == nil || !c.External() {
		return false
	}
	standard := plainDefaults()
	return value(c) == value(&standard) || !c.given(at) && reflect.ValueOf(value(c)).IsZero()
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
	case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.String:
		list := make([]any, value.Len())
		for i := range list {
			list[i] = word(value.Index(i).String())
		}
		return list
	case value.Kind() == reflect.Float64:
		return plain(value.Float())
	case value.Kind() == reflect.String:
		return word(value.String())
	}
	return value.Interface()
}

// simple are texts that are printed as they are, and read as the same.
var simple = regexp.MustCompile(`^[A-Za-z0-9_/][A-Za-z0-9_./@=,-]*$`)

// word prints a text so that it is read as the same: between quotes where the parser takes what is printed for something
// else.
func word(text string) any {
	if text == "" || simple.MatchString(text) {
		return text
	}
	if printed, err := yaml.Marshal(yaml.MapSlice{{Key: "k", Value: text}}); err == nil {
		if file, err := parser.ParseBytes(printed, 0); err == nil && len(file.Docs) == 1 {
			if found, ok := file.Docs[0].Body.(*ast.MappingNode); ok && len(found.Values) == 1 {
				if again, ok := textOf(found.Values[0].Value); ok && again == text {
					return text
				}
			}
		}
	}
	return quoted(text)
}

// quoted is a text that is printed between quotes.
type quoted string

// MarshalYAML writes it as JSON, which YAML contains.
func (q quoted) MarshalYAML() ([]byte, error) { return json.Marshal(string(q)) }

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
