package taskset

import (
	"encoding/json"
	"maps"
	"slices"
)

// Field is one field of a file, by its dotted path.
type Field struct {
	Path string `json:"path"`
	// Rows is how many rows have it, Kinds how many have it as what: text, number, object, list, boolean.
	Rows  int            `json:"rows"`
	Kinds map[string]int `json:"kinds"`
	// Example is a value of the first row that has it, cut to some dozen bytes.
	Example string `json:"example"`
}

// Schema says what fields the files of a set have, by their paths, and how many rows there are: for
// choosing a Mapping. It reads at most rowsMax rows, 0 for all. What is no object a line is an error
// as of Load; fields may be any.
func Schema(rowsMax int, paths ...string) (fields []Field, rows int, err error) {
	opt := Options{Paths: paths}
	if err := opt.validate(); err != nil {
		return nil, 0, err
	}
	l := &loader{opt: opt.withDefaults()}
	found := map[string]*Field{}
	l.look = func(raw json.RawMessage) bool {
		describe(found, "", raw, 0)
		return rowsMax == 0 || l.rows < rowsMax
	}
	for _, path := range paths {
		l.path(path)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fields = append(fields, *found[name])
	}
	return fields, l.rows, l.found.err()
}

// depthMax bounds how deep fields are named, namesMax how many.
const (
	depthMax   = 4
	namesMax   = 2000
	exampleMax = 60
)

func describe(found map[string]*Field, prefix string, object json.RawMessage, depth int) {
	members(object, func(name []byte, value json.RawMessage) bool {
		path := prefix + string(name)
		f := found[path]
		if f == nil && len(found) < namesMax {
			f = &Field{Path: path, Kinds: map[string]int{}, Example: string(value[:min(len(value), exampleMax)])}
			found[path] = f
		}
		if f == nil || string(value) == "null" {
			return true
		}
		f.Rows++
		f.Kinds[kind(value)]++
		if value[0] == '{' && depth+1 < depthMax {
			describe(found, path+".", value, depth+1)
		}
		return true
	})
}

// fieldNames are the dotted paths of one object, in its order.
func fieldNames(object json.RawMessage) []string {
	var names []string
	addNames(&names, "", object, 0)
	return names
}

func addNames(names *[]string, prefix string, object json.RawMessage, depth int) {
	members(object, func(name []byte, value json.RawMessage) bool {
		*names = append(*names, prefix+string(name))
		if value[0] == '{' && depth+1 < depthMax {
			addNames(names, prefix+string(name)+".", value, depth+1)
		}
		return len(*names) < namesMax
	})
}
