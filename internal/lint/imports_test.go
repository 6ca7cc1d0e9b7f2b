package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// testModules are what tests may import beyond their room's rule.
var testModules = []string{"github.com/cockroachdb/datadriven", "gonum.org/v1/gonum", "github.com/goccy/go-yaml", "github.com/klauspost/compress", "github.com/coder/websocket", "github.com/nats-io/nats-server/v2"}

// ruleOf returns the rule of a room.
func ruleOf(room string) (rule, bool) {
	best, found := rule{}, false
	for _, candidate := range rules {
		if within(room, candidate.room) && (!found || len(candidate.room) > len(best.room)) {
			best, found = candidate, true
		}
	}
	return best, found
}

func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		rule, ok := ruleOf(f.room)
		if !ok {
			t.Errorf("%s: the room %s has no import rule: add one, with its reason, to rules", f.path, f.room)
			continue
		}
		for imported, spec := range f.imports(t) {
			if why := refused(rule, f, imported); why != "" {
				t.Errorf("%s:%d: imports %s: %s", f.path, line(spec.Pos()), imported, why)
			}
		}
	}
}

// refused says why a file may not import a package, "" when it may.
func refused(r rule, f file, imported string) string {
	inside, own := ours(imported)
	switch {
	case own && within(inside, "cmd/headway", "internal/lint"):
		return "nothing imports a command or the lint"
	case own && within(inside, "cmd/lab") && !within(f.room, "cmd/lab"):
		return "nothing outside cmd/lab imports the lab: the user's program is without studies and benchmarks"
	case own && f.test:
		return "" // a test may set up what it needs around its room
	case own && (inside == f.room || slices.Contains(r.may, "*") || slices.Contains(r.may, inside)):
		return ""
	case own:
		return fmt.Sprintf("%s may import of this repository %v, because %s", r.room, r.may, r.why)
	case imported == "C":
		return "the project builds without cgo"
	case !strings.Contains(strings.Split(imported, "/")[0], "."):
		if r.standard != nil && !f.test && !slices.Contains(r.standard, imported) {
			return fmt.Sprintf("%s may import of the standard library %v, because %s", r.room, r.standard, r.why)
		}
		return ""
	}
	for _, allowed := range r.modules {
		if strings.HasPrefix(imported, allowed) {
			return ""
		}
	}
	for _, allowed := range testModules {
		if f.test && strings.HasPrefix(imported, allowed) {
			return ""
		}
	}
	return fmt.Sprintf("%s may import of other modules %v; a dependency is a decision: docs/dependencies.md", r.room, r.modules)
}

// An allowance that no file uses would let the next import in unseen.
func TestRulesUseWhatTheyAllow(t *testing.T) {
	used := map[string]bool{} // room and what it imports
	for _, f := range sources(t) {
		r, ok := ruleOf(f.room)
		if !ok {
			continue
		}
		for imported := range f.imports(t) {
			room, own := ours(imported)
			if own && !f.test {
				used[r.room+" "+room] = true
			}
			for _, allowed := range r.modules {
				if !own && strings.HasPrefix(imported, allowed) {
					used[r.room+" "+allowed] = true
				}
			}
			if !f.test && slices.Contains(r.standard, imported) {
				used[r.room+" "+imported] = true
			}
		}
	}
	for _, r := range rules {
		for _, allowed := range slices.Concat(r.may, r.modules, r.standard) {
			if allowed != "*" && !used[r.room+" "+allowed] {
				t.Errorf("%s may import %s and does not: take the allowance out", r.room, allowed)
			}
		}
	}
}

// testRoom reports whether a room has tests alone, whose imports are then what the rule is about.
func testRoom(r rule) bool {
	all, err := files()
	return err == nil && !slices.ContainsFunc(all, func(f file) bool {
		own, ok := ruleOf(f.room)
		return ok && own.room == r.room && !f.test && path.Base(f.path) != "doc.go"
	})
}

// A rule for a room that is gone would rot.
func TestRulesHaveRooms(t *testing.T) {
	for _, r := range rules {
		if !slices.ContainsFunc(sources(t), func(f file) bool { return within(f.room, r.room) }) {
			t.Errorf("the rule for %s has no files: take it out until there are some", r.room)
		}
	}
}

// The rules refuse what they are there for.
func TestRefusals(t *testing.T) {
	tests := []struct {
		room, imported string
		test, allowed  bool
	}{
		{"loop", "time", false, false},
		{"loop", "time", true, true},
		{"loop", module + "/loop/trace", false, false},
		{"loop", "strings", false, true},
		{"train/embedded", module + "/engine/embedded", false, false},
		{"train/embedded", module + "/train/grpo", false, true},
		{"drive/live", module + "/store/file", false, false},
		{"drive/sim", module + "/drive/live", false, false},
		{"predict/theory", module + "/drive/sim", false, false},
		{"predict/theory", module + "/drive/sim", true, true},
		{"observe/report", "github.com/alecthomas/kong", false, false},
		{"observe/report", module + "/cmd/headway", true, false},
		{"cmd/headway", module + "/cmd/lab/study", false, false},
		{"cmd/headway", module + "/cmd/lab/study", true, false},
		{"cmd/lab", module + "/cmd/lab/study", false, true},
		{"cmd/lab", module + "/cmd/headway", true, false},
		{"internal/transformer", "C", false, false},
	}
	for _, test := range tests {
		r, ok := ruleOf(test.room)
		if !ok {
			t.Fatalf("no rule for %s", test.room)
		}
		why := refused(r, file{room: test.room, test: test.test}, test.imported)
		if (why == "") != test.allowed {
			t.Errorf("%s importing %s (test %v): allowed %v, want %v: %s", test.room, test.imported, test.test, why == "", test.allowed, why)
		}
	}
}

// The map of rooms in docs/ARCHITECTURE.md is the rules above.
func TestArchitectureIsCurrent(t *testing.T) {
	var table strings.Builder
	table.WriteString("| room | what it is | claim | may import | because |\n|---|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", r.room, r.what, r.claim, allowed(r.may), r.why)
	}
	generated(t, "docs/ARCHITECTURE.md", "rooms", table.String())
}

// allowed prints what a table allows.
func allowed(may []string) string {
	switch {
	case len(may) == 0:
		return "–"
	case slices.Contains(may, "*"):
		return "everything"
	}
	return strings.Join(may, " ")
}

// between replaces what stands between the markers of a generated part.
func between(text, name, part string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	i, j := strings.Index(text, begin), strings.Index(text, end)
	if i < 0 || j < i {
		return "", fmt.Errorf("lacks the lines %q and %q", begin, end)
	}
	return text[:i+len(begin)] + part + text[j:], nil
}
