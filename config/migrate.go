package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Migrate rewrites a document of an earlier version with the present keys and keeps its comments.
// It returns the keys that it moved, by their old and new path; New is empty for a removed key. A document without old keys
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
	root := mappingOf(tree.Docs[0].Body)
	if root == nil {
		return text, nil, nil
	}
	tree.Docs[0].Body = root
	m := migration{file: name, root: root}
	m.section(root, document, "", true)
	if len(m.moved) == 0 && len(m.errs) == 0 {
		return text, nil, nil
	}
	m.place()
	if err := m.errs.orNil(); err != nil {
		return nil, nil, err
	}
	now = append([]byte(strings.TrimRight(tree.String(), "\n")), '\n')
	return now, m.moved, sameDocument(name, text, now)
}

// MigrateFile is [Migrate] of a file's text.
func MigrateFile(path string) (now []byte, moved []Renamed, err error) {
	text, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	return Migrate(path, text)
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
	root  *ast.MappingNode
	moved []Renamed
	cut   []cutEntry
	errs  Errors
}

// cutEntry is an entry on its way to another section.
type cutEntry struct {
	entry *ast.MappingValueNode
	path  string
	// flow: the section that it leaves is written in brackets.
	flow bool
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
				if entryOf(mapping, within) != nil {
					m.twice(now)
				}
				rename(entry, within)
				left = append(left, entry)
				continue
			}
			m.cut = append(m.cut, cutEntry{entry, now, mapping.IsFlowStyle})
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
	for _, from := range []*ast.CommentGroupNode{section.Value.GetComment(), section.Key.GetComment(), section.GetComment()} {
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
func (m *migration) place() {
	if len(m.root.Values) == 0 {
		m.root.Start.Position.Column = 1
	}
	for _, c := range m.cut {
		parts := strings.Split(c.path, ".")
		into, at := m.root, ""
		for _, part := range parts[:len(parts)-1] {
			// A section below another keeps the brackets of the one that its entries come from.
			flow := c.flow && at != "" && c.entry.GetComment() == nil && c.entry.Value.GetComment() == nil
			into, at = m.sectionOf(into, part, flow), join(at, part)
			if into == nil {
				m.errs = append(m.errs, &Error{File: m.file, Key: at, Problem: "is not written as a section", Allowed: "KEY: VALUE lines"})
				return
			}
		}
		last := parts[len(parts)-1]
		if entryOf(into, last) != nil {
			m.twice(c.path)
			continue
		}
		rename(c.entry, last)
		put(into, len(into.Values), c.entry)
	}
}

// twice says that a document has a key by its old name and its new one.
func (m *migration) twice(key string) {
	m.errs = append(m.errs, &Error{File: m.file, Key: key, Problem: "is given by its old key, too", Allowed: "one of the two"})
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
func (m *migration) sectionOf(around *ast.MappingNode, key string, flow bool) *ast.MappingNode {
	if entry := entryOf(around, key); entry != nil {
		mapping := mappingOf(entry.Value)
		if mapping != nil {
			entry.Value = mapping
		}
		return mapping
	}
	form := ":\n  x: 0\n"
	if flow {
		form = ": {x: 0}\n"
	}
	made, err := parser.ParseBytes([]byte(key+form), 0)
	if err != nil {
		return nil
	}
	entry := mappingOf(made.Docs[0].Body).Values[0]
	mapping := mappingOf(entry.Value)
	mapping.Values = nil
	entry.Value = mapping
	at := len(around.Values)
	if around == m.root {
		at = placeFor(around, key)
	}
	put(around, at, entry)
	if !flow {
		mapping.Start.Position.Column = entry.Key.GetToken().Position.Column + indent
	}
	return mapping
}

// placeFor returns where a section that is made belongs in a document: before the first section
// that follows it in the schema.
func placeFor(root *ast.MappingNode, key string) int {
	order := keysOf(document)
	own := slices.Index(order, key)
	for i, entry := range root.Values {
		text, _ := keyOf(entry.Key)
		if slices.Index(order, text) > own {
			return i
		}
	}
	return len(root.Values)
}

// put inserts an entry into a section, at its column and in its style.
func put(section *ast.MappingNode, at int, entry *ast.MappingValueNode) {
	column := section.Start.Position.Column // of a section that sectionOf made
	if len(section.Values) > 0 {
		column = section.Values[0].Key.GetToken().Position.Column
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
	section.Values = slices.Insert(section.Values, at, entry)
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
