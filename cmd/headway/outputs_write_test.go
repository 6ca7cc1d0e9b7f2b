package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// comment is what the sources say of a type or a field.
type comment struct{ text string }

// comment returns that of a field, or of the type itself for "". Go's names of fields become those of the JSON.
func (d *describer) comment(of reflect.Type, field string) comment {
	from := of.PkgPath()
	if from == "main" {
		from = "github.com/headway-rl/headway/cmd/headway"
	}
	folder := filepath.Join("../..", strings.TrimPrefix(from, "github.com/headway-rl/headway/"))
	if d.comments[folder] == nil {
		d.comments[folder] = d.read(folder)
	}
	found := d.comments[folder][of.Name()+"."+field]
	for i := range of.NumField() {
		f := of.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" || key == "-" {
			continue
		}
		pattern := `\b` + f.Name + `\b`
		if strings.ToUpper(f.Name) != f.Name && !regexp.MustCompile(`[a-z][A-Z0-9]`).MatchString(f.Name) {
			pattern = `(^|[,;] |\band )` + pattern // a plain word is a name where it begins a clause
			key = "${1}" + key
		}
		found.text = regexp.MustCompile(pattern).ReplaceAllString(found.text, key)
	}
	return found
}

// read collects the comments of a folder's types, by TYPE. and TYPE.FIELD.
func (d *describer) read(folder string) map[string]comment {
	found := map[string]comment{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, declared := range file.Decls {
			general, is := declared.(*ast.GenDecl)
			if !is || general.Tok != token.TYPE {
				continue
			}
			for _, spec := range general.Specs {
				named := spec.(*ast.TypeSpec)
				said := named.Doc
				if said == nil {
					said = general.Doc
				}
				found[named.Name.Name+"."] = comment{oneLine(said)}
				if structure, is := named.Type.(*ast.StructType); is {
					for _, f := range structure.Fields.List {
						text := oneLine(f.Doc)
						if text == "" {
							text = oneLine(f.Comment)
						}
						for _, name := range f.Names {
							found[named.Name.Name+"."+name.Name] = comment{text}
						}
					}
				}
			}
		}
	}
	return found
}

// links are those of Go's documentation, to names that readers of an output do not know.
var links = regexp.MustCompile(`(^|[ (])\[([A-Z][A-Za-z.]*)\]`)

func oneLine(said *ast.CommentGroup) string {
	text := links.ReplaceAllString(strings.Join(strings.Fields(said.Text()), " "), "$1$2")
	if text != "" && !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, ":") {
		text += "."
	}
	return text
}

// object is one JSON object of the schema, its keys in order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON keeps the order of keys.
func (o object) MarshalJSON() ([]byte, error) {
	var text strings.Builder
	text.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		var value strings.Builder
		encoder := json.NewEncoder(&value)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(m.value); err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%q:%s", m.key, strings.TrimSpace(value.String()))
	}
	text.WriteByte('}')
	return []byte(text.String()), nil
}

// schema is the JSON schema of all outputs.
func (d *describer) schema() string {
	var whole []string
	var definitions object
	for _, of := range d.order {
		description := of.doc
		if of.command != "" {
			whole = append(whole, of.name)
			description = "headway " + of.command + " --json. " + of.doc
		}
		var properties object
		required := []string{}
		for _, f := range of.fields {
			properties = append(properties, member{f.key, f.shape.schema(f.doc)})
			if !f.optional {
				required = append(required, f.key)
			}
		}
		definitions = append(definitions, member{of.name, object{{"description", description}, {"type", "object"},
			{"properties", properties}, {"required", required}, {"additionalProperties", false}}})
	}
	var any []object
	for _, name := range whole {
		any = append(any, object{{"$ref", "#/$defs/" + name}})
	}
	text, err := json.MarshalIndent(object{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "Documents that headway prints with --json"},
		{"description", "Generated from the program (make generate). Where a simulation has not settled, its staleness, pqs, iqs, token_staleness and period_s hold {\"mean\": null} alone."},
		{"anyOf", any}, {"$defs", definitions}}, "", " ")
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text) + "\n"
}

// schema of one value.
func (s shape) schema(doc string) object {
	var out object
	if doc != "" {
		out = object{{"description", doc}}
	}
	kind := func(name string) any {
		if s.nullable || s.list != nil {
			return []string{name, "null"}
		}
		return name
	}
	switch {
	case s.object != nil && s.nullable:
		return append(out, member{"anyOf", []object{{{"$ref", "#/$defs/" + s.object.name}}, {{"type", "null"}}}})
	case s.object != nil:
		return append(out, member{"$ref", "#/$defs/" + s.object.name})
	case s.list != nil:
		return append(out, member{"type", kind("array")}, member{"items", s.list.schema("")})
	case s.mapping != nil:
		return append(out, member{"type", kind("object")}, member{"additionalProperties", s.mapping.schema("")})
	case s.scalar != "":
		return append(out, member{"type", kind(s.scalar)})
	}
	return out
}

// python is the module of result types.
func (d *describer) python() string {
	var text strings.Builder
	text.WriteString(`"""The results of calls, with attributes in the names of the program's JSON.

Generated from the program (make generate): docs/reference/outputs.schema.json describes the same documents.
"""
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .view import Result, View

`)
	for _, of := range d.order {
		base := "View"
		if of.rows != "" {
			base = "Result"
		}
		fmt.Fprintf(&text, "\nclass %s(%s):\n    \"\"\"%s\"\"\"\n\n", of.name, base, of.pythonDoc())
		inner := of.inner()
		if inner != "" {
			fmt.Fprintf(&text, "    _inner: ClassVar[Mapping[str, type[View]]] = {%s}\n", inner)
		}
		if maps := of.maps(); maps != "" {
			fmt.Fprintf(&text, "    _maps: ClassVar[frozenset[str]] = frozenset({%s})\n", maps)
		}
		if of.rows != "" {
			fmt.Fprintf(&text, "    _rows: ClassVar[str] = %q\n", of.rows)
		}
		if inner != "" || of.rows != "" {
			text.WriteString("\n")
		}
		for _, f := range of.fields {
			fmt.Fprintf(&text, "    %s: %s\n", pythonName(f.key), f.python())
			if f.doc != "" {
				fmt.Fprintf(&text, "    \"\"\"%s\"\"\"\n", escaped(f.doc))
			}
		}
		text.WriteString("\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

func (o *outputType) pythonDoc() string {
	doc := escaped(o.doc)
	if o.command == "" {
		return doc
	}
	if doc != "" {
		doc = "\n\n    " + doc + "\n    "
	}
	return "The document of `headway " + o.command + " --json`." + doc
}

func escaped(doc string) string { return strings.ReplaceAll(doc, `\`, `\\`) }

// inner are the fields that hold objects, with their types.
func (o *outputType) inner() string {
	var parts []string
	for _, f := range o.fields {
		if of := f.shape.holds(); of != nil {
			parts = append(parts, fmt.Sprintf("%q: %s", f.key, of.name))
		}
	}
	return strings.Join(parts, ", ")
}

// maps are the fields that map names to objects.
func (o *outputType) maps() string {
	var parts []string
	for _, f := range o.fields {
		if f.shape.mapping != nil && f.shape.holds() != nil {
			parts = append(parts, fmt.Sprintf("%q", f.key))
		}
	}
	return strings.Join(parts, ", ")
}

// holds is the object within a shape, nil for none.
func (s shape) holds() *outputType {
	switch {
	case s.object != nil:
		return s.object
	case s.list != nil:
		return s.list.holds()
	case s.mapping != nil:
		return s.mapping.holds()
	}
	return nil
}

// reserved words of Python, and names that every result has; such a key gets an underscore behind it.
var reserved = map[string]bool{"from": true, "class": true, "async": true, "import": true, "with": true, "is": true, "in": true,
	"frame": true, "plot": true, "to_dict": true}

func pythonName(key string) string {
	if reserved[key] {
		return key + "_"
	}
	return key
}

func (f outputField) python() string {
	of := f.shape.python()
	several := f.shape.list != nil || f.shape.mapping != nil // one that is left out is empty
	if (f.shape.nullable || f.optional && !several) && of != "Any" {
		return of + " | None"
	}
	return of
}

func (s shape) python() string {
	switch {
	case s.object != nil:
		return s.object.name
	case s.list != nil:
		return "list[" + s.list.python() + "]"
	case s.mapping != nil:
		return "dict[str, " + s.mapping.python() + "]"
	}
	switch s.scalar {
	case "boolean":
		return "bool"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "string":
		return "str"
	}
	return "Any"
}
