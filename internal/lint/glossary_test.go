package lint

import (
	"encoding/json"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/quoted"
)

const glossaryPage = "docs/glossary.md"

// ownSymbols are texts that the glossary leaves out, by the beginning of their paths, with the reason.
var ownSymbols = map[string]string{
	"docs/theory":                "has a table of its symbols, which is for formulas alone",
	"docs/theory-accuracy.md":    "quotes formulas of docs/theory.md",
	"docs/queue-bound.md":        "derives a bound, and names its symbols",
	"docs/hardware.md":           "names the times of a schedule",
	"docs/schedules-accuracy.md": "names the times of a schedule",
	"docs/reproduce.md":          "has the symbols of the papers that it reproduces",
	"docs/simulate-accuracy.md":  "names a parameter of an autoregressive process",
	"docs/studies/":              "records what was measured, and names its own symbols",
	"predict/reproduce/":         "has the symbols of the papers that it reproduces",
	"predict/theory/constant.go": "says where the constants of formulas come from",
}

// symbol is a Greek letter with its index, or the name of a part of the staleness.
var symbol = regexp.MustCompile(`\p{Greek}(?:_[A-Za-z]+|\*)?|\b[A-Z]QS\b`)

// inFormulas are letters that mathematics names, and no quantity of ours.
var inFormulas = []string{"Σ", "π", "γ"}

// glossary reads the names that the page explains: of symbols those of the first column alone, of names all. A name is lower case.
func glossary(t *testing.T) (symbols, names []string) {
	t.Helper()
	text, err := os.ReadFile(root + "/" + glossaryPage)
	if err != nil {
		t.Fatal(err)
	}
	inSymbols := false
	for line := range strings.Lines(string(text)) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			inSymbols = strings.TrimSpace(heading) == "Symbols"
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for i := range 2 {
			for name := range strings.SplitSeq(cells[i+1], ", ") {
				name = strings.Trim(name, " `")
				if inSymbols && i == 0 {
					symbols = append(symbols, name)
				}
				if inSymbols || i == 0 {
					names = append(names, strings.ToLower(name))
				}
			}
		}
	}
	if len(symbols) < 15 || len(names) < 80 {
		t.Fatalf("%s has %d symbols and %d names: is its form read?", glossaryPage, len(symbols), len(names))
	}
	return symbols, names
}

// spoken lists the texts that people read, by path: pages, the strings of the program, and the dashboard.
func spoken(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	paths, err := quoted.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(root + "/explain/dashboard/assets/*/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts of the dashboard: %v", err)
	}
	for _, path := range append(paths, scripts...) {
		path = strings.TrimPrefix(path, root+"/")
		if path == glossaryPage || strings.Contains(path, "/vendor/") {
			continue
		}
		text, err := os.ReadFile(root + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		found[path] = string(text)
	}
	for _, f := range sources(t) {
		if f.test || strings.HasPrefix(f.room, "cmd/lab") {
			continue
		}
		var text strings.Builder
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if literal, is := node.(*ast.BasicLit); is {
				text.WriteString(literal.Value + "\n")
			}
			return true
		})
		found[f.path] = text.String()
	}
	return found
}

// TestSymbolsAreExplained: every symbol that a page, the program or the dashboard shows has an entry in the glossary, every
// entry is shown somewhere, and every allowance is used.
func TestSymbolsAreExplained(t *testing.T) {
	known, _ := glossary(t)
	shown, left := map[string]bool{}, map[string]bool{}
	for path, text := range spoken(t) {
		own := slices.ContainsFunc(slices.Collect(maps.Keys(ownSymbols)), func(prefix string) bool { return strings.HasPrefix(path, prefix) })
		for _, found := range symbol.FindAllString(text, -1) {
			shown[found] = true
			switch {
			case slices.Contains(known, found) || slices.Contains(inFormulas, found):
			case own:
				left[path] = true
			default:
				t.Errorf("%s: %s has no entry in %s", path, found, glossaryPage)
			}
		}
	}
	for prefix, why := range ownSymbols {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(path string) bool { return strings.HasPrefix(path, prefix) }) {
			t.Errorf("the glossary leaves nothing out of %s (it %s): take it out of ownSymbols", prefix, why)
		}
	}
	for _, entry := range known {
		if symbol.MatchString(entry) && !shown[entry] {
			t.Errorf("%s: nothing shows %s", glossaryPage, entry)
		}
	}
}

// labelled is the name of an input or a figure of the dashboard that ends with its symbol: "Tail multiplier M".
var labelled = regexp.MustCompile(`"[A-Za-z][a-z ]+ ([A-Zq])"`)

// emphasised is a term that a page introduces.
var emphasised = regexp.MustCompile(`\*\*([a-zA-Z ]+)\*\*`)

// TestWordsAreExplained: the glossary has the words that docs/concepts.md introduces, the letters of the dashboard, the sources
// of staleness, and the values of the keys whose values are rules.
func TestWordsAreExplained(t *testing.T) {
	symbols, names := glossary(t)
	texts := spoken(t)
	words := map[string]string{}
	for _, match := range emphasised.FindAllStringSubmatch(texts["docs/concepts.md"], -1) {
		words[strings.ToLower(match[1])] = "docs/concepts.md"
	}
	for _, view := range []string{"frontier_inputs.js", "findings.js"} {
		for _, match := range labelled.FindAllStringSubmatch(texts["explain/dashboard/assets/views/"+view], -1) {
			if !slices.Contains(symbols, match[1]) {
				t.Errorf("%s: %s has no entry among the symbols of %s", view, match[0], glossaryPage)
			}
		}
	}
	for _, source := range sourcesOfStaleness(t) {
		words[source] = "observe/attribution"
	}
	for _, key := range []string{"queue.policy", "queue.select", "sync.mode"} {
		for _, value := range valuesOf(t, key) {
			words[value] = key
		}
	}
	for word, from := range words {
		if !slices.Contains(names, strings.ReplaceAll(word, "inner steps", "inner_steps")) {
			t.Errorf("%s: %q has no entry in %s", from, word, glossaryPage)
		}
	}
	if len(words) < 30 {
		t.Errorf("only %d words were found: are pages and schema read?", len(words))
	}
}

// sourcesOfStaleness lists the names that package attribution gives its sources.
func sourcesOfStaleness(t *testing.T) (found []string) {
	t.Helper()
	for _, f := range sources(t) {
		if f.room != "observe/attribution" || f.test {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			spec, is := node.(*ast.ValueSpec)
			if is && spec.Names[0].Name == "sourceNames" {
				for _, value := range spec.Values[0].(*ast.CompositeLit).Elts {
					found = append(found, literals(value))
				}
			}
			return true
		})
	}
	if len(found) == 0 {
		t.Fatal("observe/attribution has no sourceNames")
	}
	return found
}

// valuesOf lists the values that the schema allows a key.
func valuesOf(t *testing.T, key string) []string {
	t.Helper()
	type node struct {
		Properties map[string]node
		Enum       []string
	}
	text, err := os.ReadFile(root + "/config/headway.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var at node
	if err := json.Unmarshal(text, &at); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(key, ".") {
		at = at.Properties[name]
	}
	if len(at.Enum) == 0 {
		t.Fatalf("the schema names no values of %s", key)
	}
	return at.Enum
}
