package lint

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"testing"
)

// handling are the functions of package config that read, complete, check, copy and print documents. A field that is
// read for these alone changes nothing.
var handling = []string{"Load", "LoadWith", "Read", "Parse", "Presets", "Config.Set", "Config.SetWith", "Config.Resolve", "Config.Validate",
	"Config.WithDefaults", "Config.Warnings", "Config.YAML", "Config.Public", "Config.clone"}

// moving are the functions among them that give a key its effect by another key, with what they do.
var moving = map[string]string{
	"Config.replicateEngines": "the entries of engines become as many engines as they stand for",
	"Config.readVerlKeys":     "keys in verl's words become Headway's own",
	"Config.verlWarnings":     "keys that verl ignores are read, and warned of",
}

// unread are fields of the schema that no part reads by themselves, with the reason. An allowance that is not used fails.
var unread = map[string]string{
	"Curriculum.Low":  "the band of filter.solve_rate follows it",
	"Curriculum.High": "the band of filter.solve_rate follows it",
}

// A key of the config that no part reads would be a promise that the program does not keep: every field of the schema
// is read outside of package config, or by a function that translates the document for the parts outside.
func TestConfigKeysHaveAnEffect(t *testing.T) {
	all := typedSources(t)
	fields := schemaFields(all["config"].pkg)
	if len(fields) < 480 {
		t.Fatalf("found %d fields of the schema: is this test looking at all of it?", len(fields))
	}
	inside, read := usesOf(all["config"]), map[types.Object]bool{}
	for _, p := range all {
		if p.room == "config" {
			continue
		}
		for _, f := range p.files {
			for used := range usesIn(p, f.syntax) {
				read[used] = true
				follow(inside, used, read)
			}
		}
	}
	for name, what := range moving {
		before := maps.Clone(read)
		follow(inside, functionOf(t, inside, name), read)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(field *types.Var) bool { return read[field] && !before[field] }) {
			t.Errorf("%s reads no key that is not read elsewhere, so it needs no allowance: %s", name, what)
		}
	}
	for _, name := range handling {
		functionOf(t, inside, name)
	}
	checkRead(t, fields, read)
}

// checkRead holds fields against what is read and what may be unread.
func checkRead(t *testing.T, fields map[*types.Var]string, read map[types.Object]bool) {
	t.Helper()
	known := map[string]bool{}
	for field, name := range fields {
		known[name] = true
		if !read[field] && unread[name] == "" {
			t.Errorf("nothing reads %s: a key without an effect has no place in the schema", name)
		}
		if read[field] && unread[name] != "" {
			t.Errorf("%s is read: it needs no allowance", name)
		}
	}
	for name := range unread {
		if !known[name] {
			t.Errorf("the schema has no field %s: it needs no allowance", name)
		}
	}
}

// schemaFields are the exported fields of Config and of all structs of its package inside it, as Type.Name.
func schemaFields(pkg *types.Package) map[*types.Var]string {
	fields := map[*types.Var]string{}
	var visit func(types.Type)
	visit = func(of types.Type) {
		switch of := of.(type) {
		case *types.Slice:
			visit(of.Elem())
		case *types.Pointer:
			visit(of.Elem())
		case *types.Map:
			visit(of.Elem())
		case *types.Named:
			section, ok := of.Underlying().(*types.Struct)
			if !ok || of.Obj().Pkg() != pkg {
				return
			}
			for field := range section.Fields() {
				if field.Exported() && fields[field] == "" {
					fields[field] = of.Obj().Name() + "." + field.Name()
					visit(field.Type())
				}
			}
		}
	}
	visit(pkg.Scope().Lookup("Config").Type())
	return fields
}

// usesIn are the fields that a part of a file reads, and the functions and variables that it mentions. A field that is
// assigned alone is not read.
func usesIn(p *typed, part ast.Node) map[types.Object]bool {
	uses, assigned := map[types.Object]bool{}, map[*ast.Ident]bool{}
	ast.Inspect(part, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			for _, to := range node.Lhs {
				if member, ok := to.(*ast.SelectorExpr); ok {
					assigned[member.Sel] = true
				}
			}
		case *ast.CompositeLit: // its keys are written
			for _, element := range node.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if name, ok := pair.Key.(*ast.Ident); ok {
						assigned[name] = true
					}
				}
			}
		case *ast.Ident:
			if used := p.info.Uses[node]; used != nil && !assigned[node] {
				uses[used] = true
			}
		}
		return true
	})
	return uses
}

// usesOf are the uses in each function and variable that a package declares.
func usesOf(p *typed) map[types.Object]map[types.Object]bool {
	uses := map[types.Object]map[types.Object]bool{}
	for _, f := range p.files {
		for _, declared := range f.syntax.Decls {
			switch declared := declared.(type) {
			case *ast.FuncDecl:
				uses[p.info.Defs[declared.Name]] = usesIn(p, declared)
			case *ast.GenDecl:
				for _, spec := range declared.Specs {
					if values, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range values.Names {
							uses[p.info.Defs[name]] = usesIn(p, values)
						}
					}
				}
			}
		}
	}
	return uses
}

// follow adds to read what a function uses, and what the functions of its package that it uses do.
func follow(uses map[types.Object]map[types.Object]bool, from types.Object, read map[types.Object]bool) {
	walked := map[types.Object]bool{}
	var walk func(types.Object)
	walk = func(from types.Object) {
		if walked[from] || uses[from] == nil || slices.Contains(handling, nameOf(from)) {
			return
		}
		walked[from] = true
		maps.Copy(read, uses[from])
		for used := range uses[from] {
			walk(used)
		}
	}
	walk(from)
}

// functionOf is the declared function of a name.
func functionOf(t *testing.T, uses map[types.Object]map[types.Object]bool, name string) types.Object {
	t.Helper()
	for declared := range uses {
		if nameOf(declared) == name {
			return declared
		}
	}
	t.Fatalf("package config has no function %s", name)
	return nil
}

// nameOf is a function's name, a method's with its type before it.
func nameOf(of types.Object) string {
	function, ok := of.(*types.Func)
	if !ok || function.Signature().Recv() == nil {
		return of.Name()
	}
	receiver := function.Signature().Recv().Type()
	if pointer, ok := receiver.(*types.Pointer); ok {
		receiver = pointer.Elem()
	}
	if named, ok := receiver.(*types.Named); ok {
		return named.Obj().Name() + "." + function.Name()
	}
	return function.Name()
}
