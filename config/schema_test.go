package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const schemaFile = "headway.schema.json"

// TestSchemaFileIsCurrent regenerates the JSON schema for editors from the
// structs and compares it with the file; with -rewrite it writes the file.
func TestSchemaFileIsCurrent(t *testing.T) {
	want := schemaText(t)
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not what the structs say: go test ./config -run Schema -rewrite", schemaFile)
	}
}

// schemaText is the JSON schema that the structs say.
func schemaText(t *testing.T) []byte {
	defaults, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	g := schemaGenerator{t: t, comments: fieldComments(t)}
	root := g.section(document, reflect.ValueOf(defaults), "Config")
	root = append(yaml.MapSlice{
		{Key: "$schema", Value: "http://json-schema.org/draft-07/schema#"},
		{Key: "title", Value: "Headway config"},
		{Key: "description", Value: "One document for headway run, simulate and predict."},
	}, root...)
	plain, err := json.Marshal(ordered(root))
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Indent(&want, plain, "", "  "); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	return want.Bytes()
}

// schemaGenerator turns the schema of the structs into a JSON schema.
type schemaGenerator struct {
	t        *testing.T
	comments map[string]string // Type.Field to its comment
}

func (g schemaGenerator) section(fields []field, defaults reflect.Value, typeName string) yaml.MapSlice {
	properties := yaml.MapSlice{}
	for _, known := range fields {
		properties = append(properties, yaml.MapItem{Key: known.key, Value: g.property(known, defaults.Field(known.index), typeName)})
	}
	return yaml.MapSlice{
		{Key: "type", Value: "object"},
		{Key: "additionalProperties", Value: false},
		{Key: "properties", Value: properties},
	}
}

func (g schemaGenerator) property(known field, fallback reflect.Value, typeName string) yaml.MapSlice {
	description := g.comments[typeName+"."+known.goName]
	if description == "" {
		g.t.Errorf("%s.%s has no description in the schema: comment the field, and name its file in fieldComments", typeName, known.goName)
	}
	property := yaml.MapSlice{{Key: "description", Value: description}}
	switch {
	case known.kind.Kind() == reflect.Struct:
		section := g.section(known.fields, fallback, known.kind.Name())
		if short, is := find(known.fields, known.short); is { // its bounds hold for a plain number, and say nothing of a section
			plain := scalarSchema(short)
			section[0].Value = []string{"object", plain[0].Value.(string)}
			section = append(section, plain[1:]...)
		}
		return append(property, section...)
	case known.fields != nil:
		element := known.kind.Elem()
		return append(property, yaml.MapItem{Key: "type", Value: "array"},
			yaml.MapItem{Key: "items", Value: g.section(known.fields, reflect.Zero(element), element.Name())})
	}
	value := scalarSchema(known)
	if known.kind.Kind() == reflect.Slice {
		for kind := known.kind; kind.Kind() == reflect.Slice; kind = kind.Elem() {
			value = yaml.MapSlice{{Key: "type", Value: "array"}, {Key: "items", Value: value}}
		}
	} else if !known.unset && !fallback.IsZero() {
		value = append(value, yaml.MapItem{Key: "default", Value: fallback.Interface()})
	}
	return append(property, value...)
}

func scalarSchema(known field) yaml.MapSlice {
	var schema yaml.MapSlice
	add := func(key string, value any) { schema = append(schema, yaml.MapItem{Key: key, Value: value}) }
	switch kind := known.scalar(); {
	case kind.Kind() == reflect.String:
		add("type", "string")
		if len(known.words) > 0 {
			add("enum", known.words)
		}
	case kind.Kind() == reflect.Bool:
		add("type", "boolean")
	case isInteger(kind):
		add("type", "integer")
	default:
		add("type", "number")
	}
	for _, end := range []struct {
		bound                *bound
		inclusive, exclusive string
	}{{known.low, "minimum", "exclusiveMinimum"}, {known.high, "maximum", "exclusiveMaximum"}} {
		switch {
		case end.bound == nil:
		case end.bound.exclusive:
			add(end.exclusive, end.bound.value)
		default:
			add(end.inclusive, end.bound.value)
		}
	}
	return schema
}

// fieldComments reads the comment on every field of the config structs, the
// one description there is.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	visit := func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if section, ok := spec.Type.(*ast.StructType); ok {
			for _, member := range section.Fields.List {
				for _, name := range member.Names {
					text := strings.Join(strings.Fields(member.Doc.Text()), " ")
					comments[spec.Name.Name+"."+name.Name] = text
					if name.IsExported() && text == "" {
						t.Errorf("%s.%s has no comment: it is the description in the schema", spec.Name.Name, name.Name)
					}
				}
			}
		}
		return true
	}
	for _, name := range []string{"config.go", "control.go", "engines.go", "environments.go", "fleet.go", "modelled.go", "planning.go", "server.go", "scoring.go", "sinks.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, visit)
	}
	return comments
}
