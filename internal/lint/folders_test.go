package lint

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// folder is a top folder of the repository and the question that it answers.
type folder struct {
	name     string
	question string
	may      []string // the folders it may import; "*" for all of them
}

// folders are in the order in which a reader meets them: from the command line
// down to the machine that decides, then what stands around it.
// docs/ARCHITECTURE.md prints the table, generated from here.
var folders = []folder{
	{"cmd", "What can I type? And how do we know?", []string{"*"}},
	{"app", "How does a document become running parts?", []string{"api", "config", "drive", "engine", "env", "examples", "explain", "internal", "loop", "observe", "predict", "store", "train"}},
	{"explain", "Why did it happen, and what instead?", []string{"config", "drive", "internal", "loop", "observe", "predict"}},
	{"predict", "What will happen?", []string{"config", "drive", "internal", "loop", "observe"}},
	{"engine", "With which engine?", []string{"api", "internal", "loop", "store"}},
	{"train", "With which trainer?", []string{"api", "internal", "loop", "store"}},
	{"env", "With which environment?", []string{"api", "internal", "loop"}},
	{"store", "Where do log, payloads and weights lie?", []string{"api", "internal", "loop"}},
	{"api", "How do others speak to it?", []string{"internal", "loop", "observe"}},
	{"drive", "By which clock?", []string{"loop", "observe"}},
	{"observe", "What happened?", []string{"loop"}},
	{"config", "What can be set?", []string{"internal", "loop"}},
	{"loop", "What is decided?", nil},
	{"examples", "What does a use of it look like?", nil},
	{"internal", "Which tools serve several folders?", nil},
}

// others are the top folders without Go of the product.
var others = []string{"clients", "deploy", "docs"}

// foldersMax is how many top folders a reader can hold in mind.
const foldersMax = 20

// folderOf is the top folder of a path inside the repository.
func folderOf(room string) string { return strings.Split(room, "/")[0] }

// ours returns the room that an import path names, and whether it is of this repository.
func ours(imported string) (room string, ok bool) { return strings.CutPrefix(imported, module+"/") }

// borders returns which folders each folder's production files import.
func borders(t *testing.T) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		from := folderOf(f.room)
		if found[from] == nil {
			found[from] = map[string]string{}
		}
		for imported, spec := range f.imports(t) {
			if room, ok := ours(imported); ok && folderOf(room) != from {
				found[from][folderOf(room)] = fmt.Sprintf("%s:%d imports %s", f.path, line(spec.Pos()), room)
			}
		}
	}
	return found
}

// The folders import one another in one direction, as the table says.
func TestFolders(t *testing.T) {
	found := borders(t)
	for from, to := range found {
		i := slices.IndexFunc(folders, func(f folder) bool { return f.name == from })
		if i < 0 {
			if !slices.Contains(others, from) {
				t.Errorf("the folder %s answers no question: add it to folders, or move its files", from)
			}
			continue
		}
		for name, where := range to {
			if may := folders[i].may; !slices.Contains(may, "*") && !slices.Contains(may, name) {
				t.Errorf("%s: %s may import %v", where, from, may)
			}
		}
	}
}

// An allowance that no file uses would let the next arrow in unseen.
func TestFoldersUseWhatTheyMay(t *testing.T) {
	found := borders(t)
	for _, f := range folders {
		if found[f.name] == nil {
			t.Errorf("the folder %s has no Go files: take it out of folders", f.name)
		}
		for _, name := range f.may {
			if name != "*" && found[f.name][name] == "" {
				t.Errorf("%s may import %s and does not: take the allowance out", f.name, name)
			}
		}
	}
}

func TestFoldersAreFew(t *testing.T) {
	entries := topFolders(t)
	if len(entries) > foldersMax {
		t.Errorf("%d folders at the root, more than %d: %v", len(entries), foldersMax, entries)
	}
	for _, name := range entries {
		if !slices.Contains(others, name) && !slices.ContainsFunc(folders, func(f folder) bool { return f.name == name }) {
			t.Errorf("the top folder %s is in no table: name its question in folders", name)
		}
	}
}

// No folder imports one that stands above it, so the table can be read from the top.
func TestFoldersAreOrdered(t *testing.T) {
	for i, f := range folders {
		for _, name := range f.may {
			if at := slices.IndexFunc(folders, func(g folder) bool { return g.name == name }); name != "*" && at <= i {
				t.Errorf("%s may import %s, which stands above it", f.name, name)
			}
		}
	}
}

// The map of folders in docs/ARCHITECTURE.md is the table above.
func TestArchitectureFoldersAreCurrent(t *testing.T) {
	var table strings.Builder
	table.WriteString("| folder | the question it answers | may import |\n|---|---|---|\n")
	for _, f := range folders {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", f.name, f.question, allowed(f.may))
	}
	generated(t, "docs/ARCHITECTURE.md", "folders", table.String())
}

// topFolders are the folders at the root, without those that tools keep.
func topFolders(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() && !strings.HasPrefix(name, ".") && !slices.Contains([]string{"runs", "bin", "dist"}, name) {
			names = append(names, name)
		}
	}
	return names
}
