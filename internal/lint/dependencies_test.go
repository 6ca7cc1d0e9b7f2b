package lint

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const dependencies = "docs/dependencies.md"

// dependency is one row of the table of modules: its text and cells, and the modules that the first one names.
type dependency struct {
	text    string
	cells   []string
	modules []string
}

const (
	dependencyColumns = 5
	columnReplace     = 3
)

var (
	quotedWord = regexp.MustCompile("`([^`]+)`")
	// placePattern is a folder or a file of the repository.
	placePattern = regexp.MustCompile(`^[a-z]+(/[a-z0-9_.]+)+$`)
)

// dependencyRows are the rows of the table of modules.
func dependencyRows(text string) (rows []dependency) {
	for row := range strings.Lines(text) {
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		row = strings.TrimSpace(row)
		cells := strings.Split(strings.Trim(row, "|"), "|")
		d := dependency{text: row, cells: cells}
		for _, name := range quotedWord.FindAllStringSubmatch(cells[0], -1) {
			d.modules = append(d.modules, name[1])
		}
		rows = append(rows, d)
	}
	return rows
}

// The table has a row for every module that go.mod requires for the program, its tests and its tools, and for no other.
func TestDependenciesAreExplained(t *testing.T) {
	mod := goMod(t)
	wanted := map[string]bool{}
	for _, require := range mod.Require {
		if !require.Indirect {
			wanted[require.Mod.Path] = true
		}
	}
	for _, tool := range mod.Tool {
		wanted[owner(mod, tool.Path)] = true
	}
	imported := importers(t, mod)
	for module := range wanted {
		if len(imported[module]) == 0 && !slices.ContainsFunc(mod.Tool, func(tool *modfile.Tool) bool { return owner(mod, tool.Path) == module }) {
			t.Errorf("go.mod requires %s, which nothing imports: go mod tidy", module)
		}
	}
	for module := range imported {
		if !wanted[module] {
			t.Errorf("go.mod calls %s indirect, and %s imports it: go mod tidy", module, imported[module][0].path)
		}
	}
	for _, row := range dependencyRows(page(t, dependencies)) {
		for _, module := range row.modules {
			if !wanted[module] {
				t.Errorf("%s explains %s, which go.mod does not require directly, or twice", dependencies, module)
			}
			delete(wanted, module)
		}
	}
	for module := range wanted {
		t.Errorf("%s does not explain %s: what for, what else was considered, how to replace it", dependencies, module)
	}
}

// The last column says which rooms import the modules of a row, generated from the source. A file or folder that the
// column before it names is one that does.
func TestDependenciesNameTheirPlaces(t *testing.T) {
	mod, text := goMod(t), page(t, dependencies)
	imported := importers(t, mod)
	current := text
	for _, row := range dependencyRows(text) {
		if len(row.cells) != dependencyColumns {
			t.Errorf("%s: the row of %s has %d columns, want %d", dependencies, row.modules[0], len(row.cells), dependencyColumns)
			continue
		}
		var users []file
		for _, module := range row.modules {
			users = append(users, imported[module]...)
		}
		for _, word := range quotedWord.FindAllStringSubmatch(row.cells[columnReplace], -1) {
			if place := word[1]; placePattern.MatchString(place) && !slices.ContainsFunc(users, func(f file) bool { return within(f.path, place) }) {
				t.Errorf("%s: the row of %s names %s, which is not there or does not import it", dependencies, row.modules[0], place)
			}
		}
		cells := slices.Clone(row.cells)
		cells[dependencyColumns-1] = " " + importedBy(users) + " "
		current = strings.Replace(current, row.text, "|"+strings.Join(cells, "|")+"|", 1)
	}
	if current == text {
		return
	}
	if !*rewrite {
		t.Fatalf("%s does not say which rooms import what: go test ./internal/lint -rewrite", dependencies)
	}
	if err := os.WriteFile(filepath.Join(root, dependencies), []byte(current), 0o644); err != nil {
		t.Fatal(err)
	}
}

// importedBy says which rooms files are in: those of the program and the lab, else that they are tests, else that it is
// a tool.
func importedBy(users []file) string {
	rooms := map[string]bool{}
	for _, f := range users {
		if !f.test {
			rooms[f.room] = true
		}
	}
	switch {
	case len(users) == 0:
		return "a tool"
	case len(rooms) == 0:
		return "tests"
	}
	return "`" + strings.Join(slices.Sorted(maps.Keys(rooms)), "`, `") + "`"
}

// The table of the pages' libraries has the versions that are fetched.
func TestLibrariesOfPagesAreExplained(t *testing.T) {
	_, table, _ := strings.Cut(strings.ToLower(page(t, dependencies)), "## in the pages")
	fetched := regexp.MustCompile(`(?m)^fetch (\S+) (\S+)$`).FindAllStringSubmatch(page(t, "explain/dashboard/vendor.sh"), -1)
	if len(fetched) == 0 {
		t.Fatal("vendor.sh fetches nothing: is this test looking at it?")
	}
	for _, library := range fetched {
		if named := path.Base(library[1]) + " " + library[2]; !strings.Contains(table, named) {
			t.Errorf("%s does not explain %s", dependencies, named)
		}
	}
}

// goMod is the module's file.
func goMod(t *testing.T) *modfile.File {
	t.Helper()
	mod, err := modfile.Parse("go.mod", []byte(page(t, "go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// page is the text of a file of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// importers are the files that import each module.
func importers(t *testing.T, mod *modfile.File) map[string][]file {
	t.Helper()
	found := map[string][]file{}
	for _, f := range sources(t) {
		owners := map[string]bool{}
		for imported := range f.imports(t) {
			owners[owner(mod, imported)] = true
		}
		delete(owners, "")
		for module := range owners {
			found[module] = append(found[module], f)
		}
	}
	return found
}

// owner returns the required module a package is in, "" for none.
func owner(mod *modfile.File, imported string) string {
	best := ""
	for _, require := range mod.Require {
		if at := require.Mod.Path; (imported == at || strings.HasPrefix(imported, at+"/")) && len(at) > len(best) {
			best = at
		}
	}
	return best
}
