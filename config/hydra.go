package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// hydra is a document of a framework that is configured by Hydra: its values by dotted key.
type hydra struct {
	file   string
	text   []byte
	keys   []string // in the order of the document
	leaves map[string]ast.Node
	// read are the keys whose values were asked for and are there.
	read map[string]bool
	errs Errors
}

// parseHydra reads a document's values. Lists are values too.
func parseHydra(file string, text []byte) (*hydra, error) {
	h := &hydra{file: file, text: text, leaves: map[string]ast.Node{}, read: map[string]bool{}}
	body, err := parseTree(file, text)
	if err != nil {
		return nil, err.(Errors).in(text)
	}
	if root := mappingOf(body); root != nil {
		h.section(root, "")
	} else {
		h.errs = append(h.errs, &Error{File: file, Problem: "is no document with keys", Allowed: "the .hydra/config.yaml of a run, or what its command prints with --cfg job"})
	}
	return h, h.errs.in(text).orNil()
}

// section collects the values below a section.
func (h *hydra) section(mapping *ast.MappingNode, path string) {
	for _, entry := range mapping.Values {
		name, ok := keyOf(entry.Key)
		if !ok {
			h.fail(entry.Key, path, "has a key that is not plain", "KEY: VALUE lines, as --cfg job prints them")
			continue
		}
		key := join(path, name)
		if inner := mappingOf(entry.Value); inner != nil && len(inner.Values) > 0 {
			h.section(inner, key)
			continue
		}
		if _, twice := h.leaves[key]; !twice {
			h.keys = append(h.keys, key)
		}
		h.leaves[key] = entry.Value
	}
}

// fail notes what is wrong with a value, at its place.
func (h *hydra) fail(node ast.Node, key, problem, allowed string) {
	err := &Error{File: h.file, Key: key, Value: written(node), Problem: problem, Allowed: allowed}
	if at := node.GetToken(); at != nil && at.Position != nil {
		err.Line, err.Column = at.Position.Line, at.Position.Column
	}
	h.errs = append(h.errs, err)
}

// has reports whether a key, or one below it, is there.
func (h *hydra) has(key string) bool {
	return slices.ContainsFunc(h.keys, func(known string) bool { return below(known, key) })
}

// interpolation is a value that is another one: ${key}, ${.key}, or ${oc.select:key,default}.
var interpolation = regexp.MustCompile(`^\$\{(oc\.select:)? *(\.*)([A-Za-z0-9_.]+) *(?:, *([^${}]*?) *)?\}$`)

// interpolationsMax bounds how many interpolations lead to a value.
const interpolationsMax = 16

// value returns the value of a key, nil where the document says none: null, and what is still to be given (???).
func (h *hydra) value(key string) ast.Node {
	node, there := h.leaves[key]
	if !there {
		return nil
	}
	h.read[key] = true
	return h.followed(node, node, key, key, 0)
}

// followed resolves interpolations. Problems are those of the value asked for.
func (h *hydra) followed(asked, node ast.Node, askedKey, key string, steps int) ast.Node {
	text, isText := textOf(node)
	switch {
	case isEmpty(node) || isText && text == "???":
		return nil
	case !strings.Contains(text, "${"):
		return node
	}
	const resolved = "a document without interpolations, as --cfg job --resolve prints it"
	parts := interpolation.FindStringSubmatch(text)
	if parts == nil || parts[1] == "" && strings.Contains(text, ",") || steps == interpolationsMax {
		h.fail(asked, askedKey, "is an interpolation that is not resolved here", resolved)
		return nil
	}
	target := parts[3]
	if dots := len(parts[2]); dots > 0 {
		section := key
		for range dots {
			section = parent(section)
		}
		target = join(section, target)
	}
	if next, there := h.leaves[target]; there {
		h.read[target] = true
		return h.followed(asked, next, askedKey, target, steps+1)
	}
	if parts[1] == "" {
		h.fail(asked, askedKey, "is the value of "+target+", which the document does not have", resolved)
		return nil
	}
	if parts[4] == "" {
		return nil
	}
	fallback, err := parseTree(h.file, []byte(parts[4]))
	if err != nil || isEmpty(fallback) {
		return nil
	}
	return fallback
}

// scalarOf asks for a value of one type.
func scalarOf[T any](h *hydra, key, expected string, of func(ast.Node) (T, bool)) (value T, given bool) {
	node := h.value(key)
	if node == nil {
		return value, false
	}
	value, ok := of(node)
	if !ok {
		h.fail(h.leaves[key], key, "is not what verl has there", expected)
	}
	return value, ok
}

// whole returns a whole number.
func (h *hydra) whole(key string) (int64, bool) {
	return scalarOf(h, key, "a whole number", integerOf)
}

// countMax bounds counts, of which three can be multiplied.
const countMax = 1 << 20

// count returns a whole number of at least 1, or a fallback where the document says none.
func (h *hydra) count(key string, fallback int64) int64 {
	n, given := h.whole(key)
	switch {
	case !given:
		return fallback
	case n < 1 || n > countMax:
		h.fail(h.leaves[key], key, "is no count", fmt.Sprintf("a whole number from 1 to %d", countMax))
		return fallback
	}
	return n
}

// number returns a number.
func (h *hydra) number(key string) (float64, bool) {
	return scalarOf(h, key, "a number", floatOf)
}

// word returns a text.
func (h *hydra) word(key string) (string, bool) {
	return scalarOf(h, key, "a text", textOf)
}

// yes returns a truth.
func (h *hydra) yes(key string) (bool, bool) {
	return scalarOf(h, key, "true, false", func(node ast.Node) (bool, bool) {
		truth, ok := node.(*ast.BoolNode)
		return ok && truth.Value, ok
	})
}

// unread are the keys that say something and were not asked for, in the order of the document.
func (h *hydra) unread() []string {
	return slices.DeleteFunc(slices.Clone(h.keys), func(key string) bool { return h.read[key] || isEmpty(h.leaves[key]) })
}

// said is the number of keys that say something.
func (h *hydra) said() int {
	n := 0
	for _, node := range h.leaves {
		if !isEmpty(node) {
			n++
		}
	}
	return n
}
