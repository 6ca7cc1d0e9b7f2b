package lint

import (
	"go/ast"
	"testing"
)

// A key of the config that nothing reads would be a promise nobody keeps: every
// field of the schema is read somewhere outside the package that parses it, or
// where it is translated for the loop and the workload.
func TestConfigKeysHaveAnEffect(t *testing.T) {
	read := map[string]bool{}
	fields := map[string]string{} // name to Type.Name
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		if f.path == "config/config.go" || f.path == "config/engines.go" || f.path == "config/server.go" {
			for name, owner := range schemaFields(f.syntax) {
				fields[name] = owner
			}
			continue
		}
		if f.room == "config" && f.path != "config/loop.go" {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if member, ok := node.(*ast.SelectorExpr); ok {
				read[member.Sel.Name] = true
			}
			return true
		})
	}
	if len(fields) < 40 {
		t.Fatalf("found %d fields of the schema: is this test looking at it?", len(fields))
	}
	for name, owner := range fields {
		// What is not available yet is refused, not read.
		if !read[name] && name != "Preset" && name != "Hold" {
			t.Errorf("nothing reads %s.%s: a key without an effect has no place in the schema", owner, name)
		}
	}
}

// schemaFields maps the exported fields of a file's structs to their struct.
func schemaFields(file *ast.File) map[string]string {
	fields := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if section, ok := spec.Type.(*ast.StructType); ok {
			for _, member := range section.Fields.List {
				for _, name := range member.Names {
					if name.IsExported() {
						fields[name.Name] = spec.Name.Name
					}
				}
			}
		}
		return true
	})
	return fields
}
