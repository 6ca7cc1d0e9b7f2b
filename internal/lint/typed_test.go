package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// typed is one package of the repository without its tests, with the types of its expressions.
type typed struct {
	room  string // as in file
	files []file
	pkg   *types.Package
	info  *types.Info
}

// typedPackages are all packages of the repository's module by room, checked once.
var typedPackages = sync.OnceValues(func() (map[string]*typed, error) {
	all, err := files()
	if err != nil {
		return nil, err
	}
	c := checker{found: map[string]*typed{}}
	for _, f := range all {
		if f.test {
			continue
		}
		if ok, err := build.Default.MatchFile(filepath.Join(root, f.room), path.Base(f.path)); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		p := c.found[f.room]
		if p == nil {
			p = &typed{room: f.room}
			c.found[f.room] = p
		}
		p.files = append(p.files, f)
	}
	if c.others, err = compiled(c.found); err != nil {
		return nil, err
	}
	for _, room := range slices.Sorted(maps.Keys(c.found)) {
		if _, err := c.check(c.found[room]); err != nil {
			return nil, err
		}
	}
	return c.found, nil
})

// typedSources returns the repository's packages with their types, by room.
func typedSources(t *testing.T) map[string]*typed {
	t.Helper()
	all, err := typedPackages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checker gives types to the repository's packages, from their source, so that none has to be compiled first.
type checker struct {
	found  map[string]*typed // by room
	others types.Importer    // packages of the standard library and of other modules
}

// Import returns the types of an imported package.
func (c checker) Import(imported string) (*types.Package, error) {
	if room, own := strings.CutPrefix(imported, module+"/"); own {
		p, ok := c.found[room]
		if !ok {
			return nil, fmt.Errorf("no package %s", imported)
		}
		return c.check(p)
	}
	return c.others.Import(imported)
}

func (c checker) check(p *typed) (*types.Package, error) {
	if p.pkg != nil {
		return p.pkg, nil
	}
	var syntax []*ast.File
	for _, f := range p.files {
		syntax = append(syntax, f.syntax)
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: c}
	var err error
	p.pkg, err = config.Check(module+"/"+p.room, fileSet, syntax, p.info)
	return p.pkg, err
}

// compiled imports the packages that the repository does not have itself, from files of the build cache.
func compiled(own map[string]*typed) (types.Importer, error) {
	imported := map[string]bool{}
	for _, p := range own {
		for _, f := range p.files {
			for _, spec := range f.syntax.Imports {
				if name := strings.Trim(spec.Path.Value, `"`); name != "unsafe" && !within(name, module) {
					imported[name] = true
				}
			}
		}
	}
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "--"}, slices.Sorted(maps.Keys(imported))...)...)
	list.Dir = root
	var wrong bytes.Buffer
	list.Stderr = &wrong
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, wrong.String())
	}
	exports := map[string]string{}
	for said := range strings.Lines(string(text)) {
		name, at, _ := strings.Cut(strings.TrimSpace(said), " ")
		exports[name] = at
	}
	return importer.ForCompiler(fileSet, "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) }), nil
}
