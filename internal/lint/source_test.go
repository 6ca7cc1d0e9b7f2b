package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the import path of the repository's root.
const module = "github.com/headway-rl/headway"

// root is the repository's root, seen from this package's folder.
const root = "../.."

// file is one Go file of the repository.
type file struct {
	path   string // slash-separated, from the root
	room   string // the folder it is in: loop, cmd/headway
	test   bool
	syntax *ast.File
	text   []byte
}

// files are all Go files of the repository, parsed once.
var files = sync.OnceValues(func() ([]file, error) {
	var found []file
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			name := entry.Name()
			if at != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "runs") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(at, ".go") {
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fileSet, at, text, parser.ParseComments)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		found = append(found, file{
			path: relative, room: path.Dir(relative), test: strings.HasSuffix(at, "_test.go"), syntax: syntax, text: text})
		return nil
	})
	return found, err
})

var fileSet = token.NewFileSet()

// sources returns the repository's Go files.
func sources(t *testing.T) []file {
	t.Helper()
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found: is root right?")
	}
	return all
}

// line is the line of a position.
func line(at token.Pos) int { return fileSet.Position(at).Line }

// imports lists what a file imports.
func (f file) imports(t *testing.T) map[string]*ast.ImportSpec {
	t.Helper()
	specs := map[string]*ast.ImportSpec{}
	for _, spec := range f.syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		specs[name] = spec
	}
	return specs
}

// names maps the identifier an import has in this file to its path.
func (f file) names(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for imported, spec := range f.imports(t) {
		name := path.Base(imported)
		if isMajor(name) {
			name = path.Base(path.Dir(imported))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	return names
}

// isMajor reports whether the last element of an import path is a version.
func isMajor(element string) bool {
	_, err := strconv.Atoi(strings.TrimPrefix(element, "v"))
	return err == nil && strings.HasPrefix(element, "v")
}

// within reports whether a room is one of the given ones or inside one.
func within(room string, rooms ...string) bool {
	for _, around := range rooms {
		if room == around || strings.HasPrefix(room, around+"/") {
			return true
		}
	}
	return false
}
