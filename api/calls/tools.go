package calls

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Tools are the tools that a request offers, by name. The zero value offers none.
type Tools map[string]Tool

// Tool is what arguments between tags are typed by.
type Tool struct {
	params map[string]kind
}

// kind is what a schema says of one argument. Its zero value: nothing, or that it need be no text.
type kind int

const (
	// onlyText: a text and nothing else.
	onlyText kind = 1 + iota
	// truth: true or false, or what else is no text.
	truth
)

// schema is the part of a JSON schema that says whether a value is a text.
type schema struct {
	Type       json.RawMessage   `json:"type"`
	Enum       []json.RawMessage `json:"enum"`
	AnyOf      []schema          `json:"anyOf"`
	OneOf      []schema          `json:"oneOf"`
	Properties map[string]schema `json:"properties"`
}

// ReadTool reads a tool's parameters, a JSON schema. One that cannot be read says nothing of them.
func ReadTool(parameters []byte) Tool {
	var s schema
	if len(parameters) == 0 || json.Unmarshal(parameters, &s) != nil {
		return Tool{}
	}
	t := Tool{params: make(map[string]kind, len(s.Properties))}
	for name, p := range s.Properties {
		t.params[name] = p.kind()
	}
	return t
}

func (s schema) kind() kind {
	switch types := s.types(nil); {
	case s.onlyText():
		return onlyText
	case slices.Contains(types, "boolean") && !slices.Contains(types, "string"):
		return truth
	}
	return 0
}

// types adds all types that the schema names for the value.
func (s schema) types(to []string) []string {
	var one string
	var many []string
	if json.Unmarshal(s.Type, &one) == nil {
		to = append(to, one)
	} else if json.Unmarshal(s.Type, &many) == nil {
		to = append(to, many...)
	}
	for _, c := range slices.Concat(s.AnyOf, s.OneOf) {
		to = c.types(to)
	}
	return to
}

func (s schema) onlyText() bool {
	var one string
	if json.Unmarshal(s.Type, &one) == nil {
		return one == "string"
	}
	var many []string
	if json.Unmarshal(s.Type, &many) == nil && len(many) > 0 {
		return len(many) == 1 && many[0] == "string"
	}
	for _, choices := range [][]schema{s.AnyOf, s.OneOf} {
		if len(choices) == 0 {
			continue
		}
		for _, c := range choices {
			if !c.onlyText() {
				return false
			}
		}
		return true
	}
	return false
}

// typed writes the text of an argument as JSON.
func typed(line, text []byte, how typing, of kind) []byte {
	if how == asText || how == bySchema && of == onlyText {
		return appendString(line, text)
	}
	if word := string(text); how == bySchema && of == truth && (word == "True" || word == "False") {
		return append(line, strings.ToLower(word)...) // templates in Jinja show policies Python's words
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) == nil && json.Valid(text) {
		return append(line, compact.Bytes()...)
	}
	return appendString(line, text)
}

// appendString writes a text as JSON, without escapes that it does not need.
func appendString(line, text []byte) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(text)); err != nil {
		panic("calls: a text is no JSON: " + err.Error())
	}
	return append(line, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
