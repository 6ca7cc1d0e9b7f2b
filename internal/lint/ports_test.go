package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"testing"
)

// The interfaces of loop/port that a part must have whole; the others there are optional.
var (
	ports    = []string{"Engine", "Environment", "Trainer", "Weights", "Store"}
	required = append([]string{"Sampler", "Fleet", "Wrapper"}, ports...)
)

// portTypes are interfaces of loop/port by name.
func portTypes(t *testing.T, wanted func(name string) bool) map[string]*types.Interface {
	t.Helper()
	found := map[string]*types.Interface{}
	scope := typedSources(t)["loop/port"].pkg.Scope()
	for _, name := range scope.Names() {
		if of, ok := scope.Lookup(name).(*types.TypeName); ok && wanted(name) {
			if declared, ok := of.Type().Underlying().(*types.Interface); ok {
				found[name] = declared
			}
		}
	}
	return found
}

func isOptional(name string) bool { return token.IsExported(name) && !slices.Contains(required, name) }

// A type assertion asks the outermost port alone, so that a wrapper would hide what the port behind it offers.
func TestOptionalPortsAreAskedByAs(t *testing.T) {
	asked := 0
	for _, p := range typedSources(t) {
		if p.room == "loop/port" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(node ast.Node) bool {
				var of ast.Expr
				switch node := node.(type) {
				case *ast.TypeAssertExpr:
					of = node.Type // nil in a type switch
				case *ast.CaseClause:
					for _, one := range node.List {
						if name, ok := optionalOf(p, one); ok {
							t.Errorf("%s:%d: a type switch sees no port.%s behind a wrapper: use port.As", f.path, line(one.Pos()), name)
						}
					}
				case *ast.IndexExpr:
					if _, ok := optionalOf(p, node.Index); ok {
						asked++
					}
				}
				if name, ok := optionalOf(p, of); ok {
					t.Errorf("%s:%d: a type assertion sees no port.%s behind a wrapper: use port.As", f.path, line(node.Pos()), name)
				}
				return true
			})
		}
	}
	if asked < 8 {
		t.Errorf("found %d questions by port.As: is this test looking at them?", asked)
	}
}

// optionalOf is the optional interface that an expression names.
func optionalOf(p *typed, of ast.Expr) (name string, ok bool) {
	if of == nil || !p.info.Types[of].IsType() {
		return "", false
	}
	named, ok := p.info.Types[of].Type.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != module+"/loop/port" || !types.IsInterface(named) {
		return "", false
	}
	return named.Obj().Name(), isOptional(named.Obj().Name())
}

// A port that holds another one of its kind says so by Inner, or has the optional interfaces of the other itself.
func TestWrappersOfPortsSayWhatTheyWrap(t *testing.T) {
	kinds := portTypes(t, func(name string) bool { return slices.Contains(ports, name) })
	optional := portTypes(t, isOptional)
	wrapper := portTypes(t, func(name string) bool { return name == "Wrapper" })["Wrapper"]
	wrappers := 0
	for _, p := range typedSources(t) {
		for _, defined := range p.info.Defs {
			declared, ok := defined.(*types.TypeName)
			if !ok || declared.IsAlias() {
				continue
			}
			for kind, methods := range kinds {
				for _, field := range wrapped(declared.Type(), methods) {
					wrappers++
					if hides(declared.Type(), field.Type(), optional, wrapper) {
						t.Errorf("%s.%s is a port.%s before another one, its field %s, and hides what that offers besides: give it the method Inner (port.Wrapper)",
							p.room, declared.Name(), kind, field.Name())
					}
				}
			}
		}
	}
	if wrappers < 3 {
		t.Errorf("found %d wrappers: is this test looking at them?", wrappers)
	}
}

// wrapped are the fields of a port that are ports of the same kind.
func wrapped(outer types.Type, methods *types.Interface) (inner []*types.Var) {
	section, ok := outer.Underlying().(*types.Struct)
	if !ok || !offers(outer, methods) {
		return nil
	}
	for field := range section.Fields() {
		if offers(field.Type(), methods) {
			inner = append(inner, field)
		}
	}
	return inner
}

// offers reports whether a type or a pointer to it has the methods of an interface.
func offers(of types.Type, methods *types.Interface) bool {
	if types.Implements(of, methods) {
		return true
	}
	return !types.IsInterface(of) && types.Implements(types.NewPointer(of), methods)
}

// hides reports whether an outer port lacks something that the inner one has, or may have where it is an interface.
func hides(outer, inner types.Type, optional map[string]*types.Interface, wrapper *types.Interface) bool {
	if offers(outer, wrapper) {
		return false
	}
	for _, methods := range optional {
		if !offers(outer, methods) && (types.IsInterface(inner) || offers(inner, methods)) {
			return true
		}
	}
	return false
}
