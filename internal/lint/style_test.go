package lint

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite generated documents")

// linesMax is the longest file: past it a reader loses the thread.
const linesMax = 600

func TestFilesAreShort(t *testing.T) {
	for _, f := range sources(t) {
		if lines := bytes.Count(f.text, []byte("\n")); lines > linesMax {
			t.Errorf("%s has %d lines, more than %d: split it where its story turns", f.path, lines, linesMax)
		}
	}
}

// vague are package names that say nothing about what is in them.
var vague = []string{"base", "common", "core", "helper", "helpers", "lib", "manager", "misc", "pkg", "shared", "src", "types", "util", "utils"}

func TestPackagesAreNouns(t *testing.T) {
	for _, f := range sources(t) {
		for _, element := range strings.Split(f.room, "/") {
			if slices.Contains(vague, element) {
				t.Errorf("%s: a folder named %s says nothing about what is in it", f.path, element)
			}
		}
		name := f.syntax.Name.Name
		if slices.Contains(vague, name) {
			t.Errorf("%s: a package named %s says nothing about what is in it", f.path, name)
		}
		if want := path.Base(f.room); name != want && name != want+"_test" && name != "main" {
			t.Errorf("%s: package %s in a folder named %s: one name for one thing", f.path, name, want)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range sources(t) {
		if !f.test {
			documented[f.room] = documented[f.room] || f.syntax.Doc != nil
		}
	}
	for room, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment: say what the room is and what must hold in it", room)
		}
	}
}

// wellKnown methods mean what the interface they implement says.
var wellKnown = []string{"Error", "String", "Unwrap", "Len", "Less", "Swap", "Push", "Pop"}

func TestExportedIdentifiersAreDocumented(t *testing.T) {
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		missing := func(node ast.Node, name string) {
			t.Errorf("%s:%d: %s has no comment: say what it means, its unit, its zero value", f.path, line(node.Pos()), name)
		}
		for _, declaration := range f.syntax.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !slices.Contains(wellKnown, d.Name.Name) {
					missing(d, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					undocumented(d, spec, missing)
				}
			}
		}
	}
}

// exportedReceiver reports whether a function is one, or is a method of an
// exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.IsExported()
		default:
			return false
		}
	}
}

// undocumented reports exported names of a declaration that lack a comment: a
// comment on a group covers its constants and variables, but not its types.
func undocumented(d *ast.GenDecl, spec ast.Spec, missing func(ast.Node, string)) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				missing(s, name.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
			missing(s, s.Name.Name)
		}
	}
}

// The index lists every decision record, by its own title.
func TestDecisionsAreIndexed(t *testing.T) {
	const folder = root + "/docs/decisions/"
	index, err := os.ReadFile(folder + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	records, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		name := record.Name()
		if name == "README.md" || strings.HasPrefix(name, "0000-") {
			continue
		}
		text, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		title, ok := strings.CutPrefix(strings.SplitN(string(text), "\n", 2)[0], "# "+name[:4]+": ")
		if !ok {
			t.Errorf("docs/decisions/%s does not begin with \"# %s: \" and the decision", name, name[:4])
		}
		if row := fmt.Sprintf("| [%s](%s) | %s |", name[:4], name, title); !bytes.Contains(index, []byte(row)) {
			t.Errorf("docs/decisions/README.md lacks the row\n%s", row)
		}
	}
}
