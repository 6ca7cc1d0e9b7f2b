package lint

import (
	"fmt"
	"go/types"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// storedFile lists the names by which fields are stored, a line each.
const storedFile = "stored.txt"

// storedTypes are documents that runs keep and later versions read: the header of a trace, the three parts of a snapshot, and a
// type in one that another writes as its own JSON (loop.waiting).
var storedTypes = [][2]string{{"loop/trace", "Header"}, {"loop", "snapshot"}, {"loop", "retry"}, {"observe/attribution", "kept"}, {"drive/live", "state"}}

// TestStoredFieldsKeepTheirNames: JSON without tags stores a field by its Go name. Whoever renames one makes every stored run
// unreadable, without a test that fails: recordings have no snapshots.
func TestStoredFieldsKeepTheirNames(t *testing.T) {
	names := map[string]bool{}
	for _, root := range storedTypes {
		declared := typedSources(t)[root[0]].pkg.Scope().Lookup(root[1])
		if declared == nil {
			t.Fatalf("%s has no type %s any more: name its successor in storedTypes", root[0], root[1])
		}
		storedFields(declared.Type(), names, map[string]bool{})
	}
	var lines []string
	for name := range names {
		lines = append(lines, name)
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	want, err := os.ReadFile(storedFile)
	if string(want) == text {
		return
	}
	if *rewrite {
		if err := os.WriteFile(storedFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		if !names[line] {
			t.Errorf("%s is not stored by this name any more: give the field a tag with its old name, or raise the document's version", line)
		}
	}
	t.Errorf("%s is not what the types say (%v): if stored runs stay readable, go test ./internal/lint -run Stored -rewrite", storedFile, err)
}

// storedFields notes the fields that JSON writes of a type and of all that it holds.
func storedFields(of types.Type, names, seen map[string]bool) {
	switch of := types.Unalias(of).(type) {
	case *types.Pointer:
		storedFields(of.Elem(), names, seen)
	case *types.Slice:
		storedFields(of.Elem(), names, seen)
	case *types.Array:
		storedFields(of.Elem(), names, seen)
	case *types.Map:
		storedFields(of.Elem(), names, seen)
	case *types.Named:
		pkg := of.Obj().Pkg()
		name := types.TypeString(of, func(p *types.Package) string { return strings.TrimPrefix(p.Path(), module+"/") })
		if pkg == nil || !strings.HasPrefix(pkg.Path(), module) || seen[name] || encodesItself(of) {
			return
		}
		seen[name] = true
		if body, ok := of.Underlying().(*types.Struct); ok {
			structFields(name, body, names, seen)
			return
		}
		storedFields(of.Underlying(), names, seen)
	case *types.Struct:
		structFields("struct", of, names, seen)
	}
}

func structFields(owner string, body *types.Struct, names, seen map[string]bool) {
	for i := range body.NumFields() {
		field := body.Field(i)
		tag, _, _ := strings.Cut(reflect.StructTag(body.Tag(i)).Get("json"), ",")
		if tag == "-" || !field.Exported() && !field.Embedded() {
			continue
		}
		if !field.Embedded() {
			stored := field.Name()
			if tag != "" {
				stored = tag
			}
			names[fmt.Sprintf("%s %s", owner, stored)] = true
		}
		storedFields(field.Type(), names, seen)
	}
}

// encodesItself reports whether a type says how it is written.
func encodesItself(of *types.Named) bool {
	methods := types.NewMethodSet(types.NewPointer(of))
	return methods.Lookup(of.Obj().Pkg(), "MarshalJSON") != nil || methods.Lookup(of.Obj().Pkg(), "MarshalText") != nil
}
