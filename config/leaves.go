package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Leaf is one value of a printed document.
type Leaf struct {
	// Key is dotted, with the index of a section in a list, such as engines.0.slots.
	Key string
	// Value is as JSON has it, a text without its quotes.
	Value string
}

// Leaves are the values that [Config.YAML] prints, in its order.
func (c Config) Leaves() []Leaf { return leaves("", c.tree(document, reflect.ValueOf(c), "")) }

func leaves(path string, value any) (all []Leaf) {
	switch v := value.(type) {
	case yaml.MapSlice:
		for _, item := range v {
			all = append(all, leaves(join(path, item.Key.(string)), item.Value)...)
		}
		return all
	case []any:
		for i, section := range v {
			all = append(all, leaves(join(path, strconv.Itoa(i)), section)...)
		}
		return all
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic("config: printing: " + err.Error()) // as [Config.YAML]
	}
	return []Leaf{{path, strings.Trim(string(text), `"`)}}
}

// Unplaced is the Config without where its keys were given, so that equal values have equal Leaves.
func (c Config) Unplaced() Config {
	c.origin = nil
	return c
}
