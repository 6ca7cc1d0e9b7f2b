package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// A deferred function may change a result of its function only by the result's name. An assignment to a
// local variable comes after the return statement has copied it: the value, mostly an error of closing, is lost.
func TestDeferredAssignmentsReachAResult(t *testing.T) {
	for _, f := range sources(t) {
		for _, name := range lostInDefers(f.syntax) {
			t.Errorf("%s:%d: the deferred function assigns %s, which is no named result: the value is lost", f.path, line(name.Pos()), name.Name)
		}
	}
}

// lostInDefers finds the names to which deferred functions of a file assign in vain: variables of the deferring
// function that are no results of it and that no other function in it reads.
func lostInDefers(file *ast.File) (lost []*ast.Ident) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch function := node.(type) {
		case *ast.FuncDecl:
			if function.Body != nil {
				lost = append(lost, lostInBody(function.Body)...)
			}
		case *ast.FuncLit:
			lost = append(lost, lostInBody(function.Body)...)
		}
		return true
	})
	return lost
}

// lostInBody looks at the defers of one function, not at those of the functions inside it.
func lostInBody(body *ast.BlockStmt) (lost []*ast.Ident) {
	ast.Inspect(body, func(node ast.Node) bool {
		if _, inner := node.(*ast.FuncLit); inner {
			return false
		}
		deferred, ok := node.(*ast.DeferStmt)
		if !ok {
			return true
		}
		function, ok := deferred.Call.Fun.(*ast.FuncLit)
		if !ok {
			return false
		}
		ast.Inspect(function.Body, func(node ast.Node) bool {
			if assigned, ok := node.(*ast.AssignStmt); ok && assigned.Tok == token.ASSIGN {
				for _, to := range assigned.Lhs {
					if name, ok := to.(*ast.Ident); ok && localOf(name, body, function) && !readElsewhere(name, body, function) {
						lost = append(lost, name)
					}
				}
			}
			return true
		})
		return false
	})
	return lost
}

// localOf reports whether a name is declared in a body, outside of the deferred function.
func localOf(name *ast.Ident, body *ast.BlockStmt, deferred *ast.FuncLit) bool {
	if name.Obj == nil {
		return false
	}
	at := name.Obj.Pos()
	return body.Pos() <= at && at < body.End() && (at < deferred.Pos() || deferred.End() <= at)
}

// readElsewhere reports whether another function inside the body mentions the variable: it may run after the defer.
func readElsewhere(name *ast.Ident, body *ast.BlockStmt, deferred *ast.FuncLit) (read bool) {
	ast.Inspect(body, func(node ast.Node) bool {
		function, ok := node.(*ast.FuncLit)
		if !ok || function == deferred {
			return !ok
		}
		ast.Inspect(function, func(node ast.Node) bool {
			if other, ok := node.(*ast.Ident); ok && other.Obj == name.Obj {
				read = true
			}
			return true
		})
		return false
	})
	return read
}

// TestLostInDefers holds the lint itself to programs with and without the fault.
func TestLostInDefers(t *testing.T) {
	for _, c := range []struct {
		name, program string
		lost          int
	}{
		{"a local", `func f() error { err := g(); defer func() { err = g() }(); return err }`, 1},
		{"a result", `func f() (err error) { defer func() { err = g() }(); return g() }`, 0},
		{"a local that shadows the result", `func f() (err error) { if err := g(); err == nil { defer func() { err = g() }() }; return nil }`, 1},
		{"a local of a function inside", `var f = func() error { err := g(); defer func() { err = g() }(); return err }`, 1},
		{"a variable of the function around", `func f() error { var err error; func() { defer func() { err = g() }() }(); return err }`, 0},
		{"a variable of the deferred function", `func f() { defer func() { var err error; err = g(); _ = err }() }`, 0},
		{"read by another deferred function", `func f() { var err error; defer func() { h(err) }(); defer func() { err = g() }() }`, 0},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", "package p\n"+c.program, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(lostInDefers(file)); got != c.lost {
			t.Errorf("%s: found %d, want %d", c.name, got, c.lost)
		}
	}
}
