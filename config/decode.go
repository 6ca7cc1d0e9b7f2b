package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// documentBytesMax bounds a document: a larger one is no config.
const documentBytesMax = 1 << 18

// decoder turns a parsed document into a Config, noting every mistake it meets
// and carrying on behind it.
type decoder struct {
	file   string
	rank   rank
	origin *origin
	errs   Errors
	// recorded is the document as a whole where the program wrote it, maybe an earlier version of it; else nil.
	recorded *Config
	// hinted: an error about an old key has said what renames them all.
	hinted bool
}

// parseTree parses YAML into the body of its one document, nil when empty.
func parseTree(file string, text []byte) (body ast.Node, err error) {
	if len(text) > documentBytesMax {
		return nil, Errors{{File: file, Problem: "is too long for a document",
			Allowed: fmt.Sprintf("at most %d bytes", documentBytesMax)}}
	}
	if deep := nesting(text); deep > nestingMax {
		return nil, Errors{{File: file, Problem: fmt.Sprintf("is nested %d levels deep", deep),
			Allowed: fmt.Sprintf("at most %d levels", nestingMax)}}
	}
	// The parser is somebody else's code on the user's input: a panic in it is
	// reported as the bad document it was given.
	defer func() {
		if thrown := recover(); thrown != nil {
			body, err = nil, Errors{{File: file, Problem: fmt.Sprintf("cannot be parsed as YAML: %v", thrown)}}
		}
	}()
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, Errors{syntaxError(file, err)}
	}
	if len(tree.Docs) > 1 {
		return nil, Errors{{File: file, Problem: fmt.Sprintf("holds %d YAML documents", len(tree.Docs)), Allowed: "one"}}
	}
	if len(tree.Docs) == 0 {
		return nil, nil
	}
	return tree.Docs[0].Body, nil
}

// nestingMax bounds the nesting of a document. The schema needs a few levels;
// the parser's memory grows with the square of them.
const nestingMax = 64

// nesting bounds from above how deeply a document nests, without parsing it:
// open brackets, and block markers at the start of one line.
func nesting(text []byte) int {
	deepest, brackets, markers, atStart := 0, 0, 0, true
	for _, c := range text {
		switch c {
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(brackets-1, 0)
		}
		switch {
		case c == '\n':
			markers, atStart = 0, true
		case atStart && (c == '-' || c == '?'):
			markers++
		case c != ' ' && c != '\t' && c != ':':
			atStart = false
		}
		deepest = max(deepest, brackets+markers)
	}
	return deepest
}

// syntaxError keeps the place and the first line of what the parser says.
func syntaxError(file string, err error) *Error {
	found := &Error{File: file, Problem: "not YAML: " + err.Error(), Cause: err}
	if placed, is := errors.AsType[yaml.Error](err); is {
		found.Problem = "not YAML: " + placed.GetMessage()
		if at := placed.GetToken(); at != nil && at.Position != nil {
			found.Line, found.Column = at.Position.Line, at.Position.Column
		}
	}
	return found
}

// at returns the place of a node.
func (d *decoder) at(node ast.Node) place {
	found := place{file: d.file, rank: d.rank}
	// An override is one value on a command line: a line number in it says nothing.
	if at := node.GetToken(); at != nil && at.Position != nil && d.rank == rankDocument {
		found.line, found.column = at.Position.Line, at.Position.Column
	}
	return found
}

// fail notes a mistake at a node.
func (d *decoder) fail(node ast.Node, path, value, problem, allowed, near string) {
	at := d.at(node)
	d.errs = append(d.errs, &Error{File: at.file, Line: at.line, Column: at.column,
		Key: path, Value: value, Problem: problem, Allowed: allowed, Nearest: near})
}

// section decodes a mapping into a struct.
func (d *decoder) section(node ast.Node, fields []field, target reflect.Value, path string) {
	var entries []*ast.MappingValueNode
	switch mapping := node.(type) {
	case *ast.MappingNode:
		entries = mapping.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{mapping}
	default:
		d.fail(node, path, written(node), "is not a section", "KEY: VALUE lines with the keys "+strings.Join(keysOf(fields), ", "), "")
		return
	}
	for _, entry := range entries {
		key, ok := keyOf(entry.Key)
		if !ok {
			d.fail(entry.Key, path, written(entry.Key), "is not a plain key", "", "")
			continue
		}
		known, value, ok := within(fields, key, target)
		if !ok && d.migrated(entry.Value, join(path, key)) {
			continue
		}
		if !ok {
			d.unknown(entry.Key, key, fields, path)
			continue
		}
		d.value(entry.Value, known, value, join(path, key))
	}
}

// migrated decodes the value of a recorded document's old key where the key is now, and reports
// whether it did.
func (d *decoder) migrated(value ast.Node, path string) bool {
	if d.recorded == nil {
		return false
	}
	now, ok := NewKey(path)
	if !ok {
		return false
	}
	known, target, err := locate(now, reflect.ValueOf(d.recorded).Elem())
	if err != nil {
		return false
	}
	d.value(value, known, target, now)
	return true
}

// within returns the field of a key in a section. A dotted key, such as verl's
// rollout.n, is the key in the section it names.
func within(fields []field, key string, section reflect.Value) (field, reflect.Value, bool) {
	first, rest, dotted := strings.Cut(key, ".")
	known, ok := find(fields, first)
	switch {
	case !ok:
		return field{}, section, false
	case !dotted:
		return known, section.Field(known.index), true
	case known.kind.Kind() != reflect.Struct:
		return field{}, section, false
	}
	return within(known.fields, rest, section.Field(known.index))
}

// isEmpty reports whether a document says nothing.
func isEmpty(body ast.Node) bool {
	switch body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return true
	}
	return false
}

// keyOf returns a key's text. Anchors, aliases, merges and complex keys are not
// plain.
func keyOf(node ast.MapKeyNode) (string, bool) {
	switch key := node.(type) {
	case *ast.StringNode:
		return key.Value, true
	case *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		return node.GetToken().Value, true // never a known key; named as written
	}
	return "", false
}

// unknown reports a key that the section does not have.
func (d *decoder) unknown(node ast.Node, key string, fields []field, path string) {
	full := join(path, key)
	if problem := removedProblem(full); problem != "" {
		if d.recorded == nil {
			d.fail(node, full, "", problem, "", "")
		}
		return
	}
	if now, ok := NewKey(full); ok {
		problem := renamedProblem(now)
		if !d.hinted && d.rank == rankDocument {
			problem, d.hinted = problem+migrateHint, true
		}
		d.fail(node, full, "", problem, "", "")
		return
	}
	near, _ := meant(full, key, fields)
	d.fail(node, full, "", "unknown key", strings.Join(keysOf(fields), ", "), near)
}

// value decodes one key's value. null is as good as not giving the key.
func (d *decoder) value(node ast.Node, known field, target reflect.Value, path string) {
	// A section behind a dotted key of its own, in one document, gives more keys and takes none back.
	if d.rank != rankDocument || !isSection(node) {
		d.origin.forget(path)
	}
	if _, ok := node.(*ast.NullNode); ok {
		target.SetZero()
		return
	}
	at := d.at(node)
	if known.fields == nil {
		at.text = written(node)
	}
	d.origin.places[path] = at
	switch {
	case known.short != "" && !isSection(node):
		d.shortened(node, known, target, path)
	case target.Kind() == reflect.Struct:
		d.section(node, known.fields, target, path)
	case target.Kind() == reflect.Slice:
		d.list(node, known, target, path)
	default:
		d.scalar(node, known, target, path)
	}
}

// isSection reports whether a node is written as a section.
func isSection(node ast.Node) bool {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// shortened decodes the one value that stands for a section.
func (d *decoder) shortened(node ast.Node, known field, target reflect.Value, path string) {
	inner, _ := find(known.fields, known.short)
	d.value(node, inner, target.Field(inner.index), join(path, known.short))
}

// list decodes a sequence of sections, of numbers or of lists of numbers.
func (d *decoder) list(node ast.Node, known field, target reflect.Value, path string) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		d.fail(node, path, written(node), "is not a list", "a list", "")
		return
	}
	target.Set(reflect.MakeSlice(target.Type(), len(sequence.Values), len(sequence.Values)))
	for i, element := range sequence.Values {
		at, slot := join(path, strconv.Itoa(i)), target.Index(i)
		switch {
		case known.fields != nil:
			d.origin.places[at] = d.at(element)
			d.section(element, known.fields, slot, at)
		case slot.Kind() == reflect.Slice:
			d.list(element, known, slot, at)
		default:
			d.scalar(element, known, slot, at)
		}
	}
}

// scalar decodes a number, a word or a yes or no.
func (d *decoder) scalar(node ast.Node, known field, target reflect.Value, path string) {
	ok := false
	switch known.scalar().Kind() {
	case reflect.String:
		var text string
		if text, ok = textOf(node); ok {
			target.SetString(text)
		}
	case reflect.Bool:
		var flag *ast.BoolNode
		if flag, ok = node.(*ast.BoolNode); ok {
			target.SetBool(flag.Value)
		}
	case reflect.Float64:
		var value float64
		if value, ok = floatOf(node); ok {
			target.SetFloat(value)
		}
	case reflect.Int:
		var value int64
		if value, ok = integerOf(node); ok {
			target.SetInt(value)
		}
	case reflect.Uint64:
		var value uint64
		if value, ok = unsignedOf(node); ok {
			target.SetUint(value)
		}
	}
	if !ok {
		d.fail(node, path, written(node), "is not allowed here", known.allowedText(), "")
		d.origin.forget(path) // the default stands in, so that this is said once
	}
}

// textOf returns the text of a string node.
func textOf(node ast.Node) (string, bool) {
	switch text := node.(type) {
	case *ast.StringNode:
		// The parser drops tabs of a text without quotes.
		return text.Value, text.Token.Type != token.StringType || !strings.Contains(strings.Trim(text.Token.Origin, " \t\r\n"), "\t")
	case *ast.LiteralNode:
		return text.Value.Value, true
	}
	return "", false
}

// floatOf returns a finite number.
func floatOf(node ast.Node) (float64, bool) {
	switch n := node.(type) {
	case *ast.IntegerNode:
		switch value := n.Value.(type) {
		case int64:
			return float64(value), true
		case uint64:
			return float64(value), true
		}
	case *ast.FloatNode:
		return n.Value, !math.IsInf(n.Value, 0) && !math.IsNaN(n.Value)
	case *ast.StringNode:
		// YAML 1.2 has 1e-3 as a number; the parser takes it for text.
		if n.Token.Type == token.StringType && exponential.MatchString(n.Value) {
			value, err := strconv.ParseFloat(n.Value, 64)
			return value, err == nil
		}
	}
	return 0, false
}

// exponential is a number with an exponent as YAML 1.2 has it.
var exponential = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$`)

// integerOf returns a whole number; 1e3 is one too.
func integerOf(node ast.Node) (int64, bool) {
	value, ok := floatOf(node)
	if !ok || value != math.Trunc(value) || math.Abs(value) > 1<<53 {
		return 0, false
	}
	return int64(value), true
}

// unsignedOf returns a whole number from 0 to the largest seed.
func unsignedOf(node ast.Node) (uint64, bool) {
	if n, ok := node.(*ast.IntegerNode); ok {
		switch value := n.Value.(type) {
		case int64:
			return uint64(value), value >= 0
		case uint64:
			return value, true
		}
	}
	value, ok := integerOf(node)
	return uint64(value), ok && value >= 0
}

// allowedText says what a scalar field accepts.
func (f field) allowedText() string {
	switch f.scalar().Kind() {
	case reflect.String:
		if len(f.words) > 0 {
			return strings.Join(f.words, ", ")
		}
		return "text, in quotes if it looks like something else"
	case reflect.Bool:
		return "true, false"
	default:
		return f.rangeText()
	}
}

// writtenMax bounds how much of a value a message repeats.
const writtenMax = 60

// written returns a node as the user wrote it, on one line and shortened.
func written(node ast.Node) string {
	var text string
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
		if n.Token.Type != token.StringType || !exponential.MatchString(text) {
			text = strconv.Quote(text)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		return "an anchor, alias, merge or tag"
	default:
		if at := node.GetToken(); at != nil {
			text = strings.TrimSpace(at.Value)
		}
	}
	if len(text) > writtenMax {
		text = strings.ToValidUTF8(text[:writtenMax], "") + "…"
	}
	return strings.ReplaceAll(text, "\n", " ")
}
