package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Migrate rewrites a document of an earlier version with the present keys, its comments kept,
// and returns the keys that it moved, by their old and new path; of one that is gone New is empty. A document without old keys
// comes back as it is. Blanks before comments and within flow sections may become one.
func Migrate(name string, text []byte) (now []byte, moved []Renamed, err error) {
	if _, err = parseTree(name, text); err != nil { // its limits, and its words for what is no YAML
		return nil, nil, err
	}
	defer func() { // as in parseTree: the printer is somebody else's code, too
		if thrown := recover(); thrown != nil {
			now, moved, err = nil, nil, Errors{{File: name, Problem: fmt.Sprintf("cannot be printed anew: %v", thrown)}}
		}
	}()
	tree, err := parser.ParseBytes(text, parser.ParseComments)
	if err != nil || len(tree.Docs) == 0 || isEmpty(tree.Docs[0].Body) {
		return text, nil, err
	}
	m := migration{file: name}
	root := mappingOf(tree.Docs[0].Body)
	if root == nil {
		return text, nil, nil
	}
	tree.Docs[0].Body = root
	m.section(root, document, "", true)
	if len(m.moved) == 0 && len(m.errs) == 0 {
		return text, nil, nil
	}
	m.place(root)
	if err := m.errs.orNil(); err != nil {
		return nil, nil, err
	}
	now = append([]byte(strings.TrimRight(tree.String(), "\n")), '\n')
	return now, m.moved, sameDocument(name, text, now)
}

// sameDocument checks that a rewritten document says what the old one said.
func sameDocument(name string, old, now []byte) error {
	meant, wrong := parse(name, old, true)
	written, bad := parse(name, now, false)
	if len(wrong) != len(bad) || !meant.Equal(written) {
		return Errors{{File: name, Problem: "cannot be rewritten as it stands: the keys that its errors name have to be changed by hand"}}
	}
	return nil
}

// migration collects what moves within a document.
type migration struct {
	file  string
	moved []Renamed
	cut   []cutEntry
	errs  Errors
}

// cutEntry is an entry on its way to another section.
type cutEntry struct {
	entry *ast.MappingValueNode
	path  string
}

// mappingOf returns a section as a mapping, nil of what is none.
func mappingOf(node ast.Node) *ast.MappingNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n
	case *ast.MappingValueNode:
		return ast.Mapping(n.Start, false, n)
	}
	return nil
}

// section renames the old keys of a section in place where the section stays, and cuts out
// the others. keep holds for a section that stays even without entries.
func (m *migration) section(mapping *ast.MappingNode, fields []field, path string, keep bool) (empty bool) {
	var left []*ast.MappingValueNode
	for _, entry := range mapping.Values {
		key, ok := keyOf(entry.Key)
		if !ok {
			left = append(left, entry)
			continue
		}
		full := join(path, key)
		if removedProblem(full) != "" {
			m.moved = append(m.moved, Renamed{Kind: kindKey, Old: full})
			continue
		}
		now, renamed := NewKey(full)
		switch {
		case renamed:
			m.moved = append(m.moved, Renamed{Kind: kindKey, Old: full, New: now})
			if within, ok := strings.CutPrefix(now, path+"."); ok || path == "" && strings.Contains(key, ".") {
				rename(entry, within)
				left = append(left, entry)
				continue
			}
			m.cut = append(m.cut, cutEntry{entry, now})
		case m.inside(entry, fields, key, full):
			left = append(left, entry)
		}
	}
	if len(left) == 0 && !keep && len(mapping.Values) > 0 {
		return true
	}
	mapping.Values = left
	return false
}

// inside migrates what an entry holds, and reports whether the entry stays.
func (m *migration) inside(entry *ast.MappingValueNode, fields []field, key, path string) (stays bool) {
	known, ok := fieldAt(fields, key)
	if !ok || known.fields == nil {
		return true
	}
	if list, ok := entry.Value.(*ast.SequenceNode); ok {
		for i, element := range list.Values {
			if mapping := mappingOf(element); mapping != nil {
				m.section(mapping, known.fields, join(path, strconv.Itoa(i)), true)
			}
		}
		return true
	}
	mapping := mappingOf(entry.Value)
	if mapping == nil {
		return true
	}
	before := len(m.cut)
	if m.section(mapping, known.fields, path, false) {
		m.handComment(entry, before)
		return false
	}
	entry.Value = mapping
	return true
}

// fieldAt is find for a key that may be dotted.
func fieldAt(fields []field, key string) (known field, ok bool) {
	for part := range strings.SplitSeq(key, ".") {
		if known, ok = find(fields, part); !ok {
			return field{}, false
		}
		fields = known.fields
	}
	return known, true
}

// handComment gives the comments of a section that goes to the first entry that left it.
func (m *migration) handComment(section *ast.MappingValueNode, first int) {
	if first == len(m.cut) {
		return
	}
	to := m.cut[first].entry
	for _, from := range []*ast.CommentGroupNode{section.GetComment(), section.Key.GetComment(), section.Value.GetComment()} {
		if from == nil {
			continue
		}
		if have := to.GetComment(); have != nil {
			from.Comments = append(slices.Clone(from.Comments), have.Comments...)
		}
		_ = to.SetComment(from) // the error is of nodes that can have none
	}
}

// rename changes the text of a key where it stands: a new token would be printed on another line.
func rename(entry *ast.MappingValueNode, key string) {
	at := entry.Key.GetToken()
	at.Origin = strings.Replace(at.Origin, at.Value, key, 1)
	at.Value = key
	if text, ok := entry.Key.(*ast.StringNode); ok {
		text.Value = key
	}
}

// indent is how far a section that migration makes stands within the one around it, in columns.
const indent = 2

// place puts the entries that were cut out where their keys are now, making sections as needed.
func (m *migration) place(root *ast.MappingNode) {
	for _, c := range m.cut {
		parts := strings.Split(c.path, ".")
		into, at := root, ""
		for _, part := range parts[:len(parts)-1] {
			into, at = m.sectionOf(into, part), join(at, part)
			if into == nil {
				m.errs = append(m.errs, &Error{File: m.file, Key: at, Problem: "is not written as a section", Allowed: "KEY: VALUE lines"})
				return
			}
		}
		last := parts[len(parts)-1]
		if entryOf(into, last) != nil {
			m.errs = append(m.errs, &Error{File: m.file, Key: c.path, Problem: "is given by its old key, too", Allowed: "one of the two"})
			continue
		}
		rename(c.entry, last)
		put(into, c.entry)
	}
}

// entryOf returns the entry of a key, nil where the section has none.
func entryOf(section *ast.MappingNode, key string) *ast.MappingValueNode {
	for _, entry := range section.Values {
		if text, ok := keyOf(entry.Key); ok && text == key {
			return entry
		}
	}
	return nil
}

// sectionOf returns the section of a key, made where it is not there; nil where it is no section.
func (m *migration) sectionOf(around *ast.MappingNode, key string) *ast.MappingNode {
	if entry := entryOf(around, key); entry != nil {
		mapping := mappingOf(entry.Value)
		if mapping != nil {
			entry.Value = mapping
		}
		return mapping
	}
	made, err := parser.ParseBytes([]byte(key+":\n  x: 0\n"), 0)
	if err != nil {
		return nil
	}
	entry := mappingOf(made.Docs[0].Body).Values[0]
	mapping := mappingOf(entry.Value)
	mapping.Values = nil
	entry.Value = mapping
	put(around, entry)
	return mapping
}

// put appends an entry to a section, at its column and in its style.
func put(section *ast.MappingNode, entry *ast.MappingValueNode) {
	column := 1
	switch {
	case len(section.Values) > 0:
		column = section.Values[0].Key.GetToken().Position.Column
	case section.Start != nil:
		column = section.Start.Position.Column
	}
	flow := isFlow(entry.Value)
	entry.AddColumn(column - entry.Key.GetToken().Position.Column)
	if section.IsFlowStyle {
		entry.SetIsFlowStyle(true)
	} else if entry.IsFlowStyle {
		entry.SetIsFlowStyle(false)
		if flow {
			setFlow(entry.Value)
		}
	}
	section.Values = append(section.Values, entry)
}

// isFlow reports whether a value is written in brackets.
func isFlow(value ast.Node) bool {
	switch v := value.(type) {
	case *ast.MappingNode:
		return v.IsFlowStyle
	case *ast.SequenceNode:
		return v.IsFlowStyle
	}
	return false
}

// setFlow has a value printed in brackets.
func setFlow(value ast.Node) {
	switch v := value.(type) {
	case *ast.MappingNode:
		v.SetIsFlowStyle(true)
	case *ast.SequenceNode:
		v.SetIsFlowStyle(true)
	}
}
