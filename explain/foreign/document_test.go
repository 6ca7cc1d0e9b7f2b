package foreign

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/import.md and docs/reference/import.md anew")

// The tables of docs/import.md and docs/reference/import.md are what the rules say.
func TestDocument(t *testing.T) {
	for _, part := range []struct{ page, name, table string }{
		{"../../docs/import.md", "figures", overviewTable()},
		{"../../docs/reference/import.md", "frameworks", frameworkSections()},
	} {
		data, err := os.ReadFile(part.page)
		if err != nil {
			t.Fatal(err)
		}
		document := replaced(t, part.page, string(data), part.name, part.table)
		switch {
		case document == string(data):
		case *rewrite:
			if err := os.WriteFile(part.page, []byte(document), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not what the rules say: make generate", part.page)
		}
	}
}

// replaced puts a generated part of a page between its marks.
func replaced(t *testing.T, page, document, name, text string) string {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->"
	before, rest, found := strings.Cut(document, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no marks for %s", page, name)
	}
	return before + begin + text + end + after
}

// overviewTable says of the figures that a diagnosis leans on how each framework's logs give them.
func overviewTable() string {
	var b strings.Builder
	b.WriteString("| figure |")
	for _, f := range frameworks {
		b.WriteString(" " + f.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(frameworks)) + "\n")
	for _, s := range wantedSettings {
		b.WriteString("| " + s.Words + " |")
		for _, f := range frameworks {
			b.WriteString(" " + f.settingOrigins(s) + " |")
		}
		b.WriteString("\n")
	}
	for _, n := range wantedNotions {
		b.WriteString("| " + n.Words + " |")
		for _, f := range frameworks {
			b.WriteString(" " + f.stepOrigins(n) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (f *Framework) settingOrigins(s Setting) string {
	var words []string
	for _, rule := range f.Settings {
		if rule.Setting.Name == s.Name {
			words = append(words, string(rule.origin()))
		}
	}
	return origins(words)
}

func (f *Framework) stepOrigins(n Notion) string {
	var words []string
	for _, rule := range f.Steps {
		if rule.Notion.Name == n.Name {
			words = append(words, rule.origin())
		}
	}
	if n.Name == Period.Name { // the clock, where there is one
		words = append(words, string(Inferred))
	}
	if n.Name == Tail.Name || n.Name == PreQueue.Name && f.Lacks[n.Name].Get != "" {
		for _, own := range f.Files {
			if own.Rollouts {
				words = append(words, "from single rollouts")
			}
		}
	}
	return origins(words)
}

func (r StepRule) origin() string {
	if r.Formula != "" {
		return string(Inferred)
	}
	return string(Logged)
}

func origins(words []string) string {
	if len(words) == 0 {
		return "–"
	}
	return strings.Join(unique(words), ", ")
}

// frameworkSections are a section for each framework: definition, what comes from where, quirks, what is not known.
func frameworkSections() string {
	var b strings.Builder
	for _, f := range frameworks {
		fmt.Fprintf(&b, "### %s\n\n`--from %s`", f.Title, f.Name)
		for _, alias := range f.Aliases {
			fmt.Fprintf(&b, ", `%s`", alias)
		}
		fmt.Fprintf(&b, "; found by `%s`.\n\n%s\n\n| figure | from |\n|---|---|\n", strings.Join(append(append([]string(nil), f.Marks...), f.MarkSettings...), "`, `"), f.Definition)
		var rows sources
		for _, rule := range f.Settings {
			rows.add(rule.Setting.Words, sourceText(rule.Formula, append(append([]string(nil), rule.Settings...), rule.Keys...)))
		}
		for _, rule := range f.Steps {
			rows.add(rule.Notion.Words, sourceText(rule.Formula, rule.Keys))
		}
		for _, own := range f.Files {
			rows.add("files of its own", "`"+own.Match+"` ("+own.What+")")
		}
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", row.figure, strings.Join(row.from, "; else "))
		}
		b.WriteString("\n")
		for _, note := range f.Notes {
			fmt.Fprintf(&b, "- %s\n", note)
		}
		for _, name := range lackNames(f) {
			lack := f.Lacks[name]
			fmt.Fprintf(&b, "- `%s` may be missing: %s", name, lack.Why)
			if lack.Get != "" {
				fmt.Fprintf(&b, "; %s", lack.Get)
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// sources are a table's rows: figures, each with what it comes from in the order in which that is tried.
type sources []struct {
	figure string
	from   []string
}

func (s *sources) add(figure, from string) {
	for i := range *s {
		if row := &(*s)[i]; row.figure == figure {
			row.from = append(row.from, from)
			return
		}
	}
	*s = append(*s, struct {
		figure string
		from   []string
	}{figure, []string{from}})
}

// lackNames are the figures that may be missing, in the order of settings and notions. One that names no figure
// would never be shown.
func lackNames(f *Framework) (names []string) {
	for _, s := range SettingsKnown {
		if _, there := f.Lacks[s.Name]; there {
			names = append(names, s.Name)
		}
	}
	for _, n := range Notions {
		if _, there := f.Lacks[n.Name]; there {
			names = append(names, n.Name)
		}
	}
	return names
}

// sourceText is a formula, or keys, as a table's cell.
func sourceText(formula string, keys []string) string {
	if formula != "" {
		return formula
	}
	return "`" + strings.Join(keys, "`, `") + "`"
}

// What a framework's table names must be of use: rules without a key, names that are no figure's, keys that no rule needs.
func TestFrameworksAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, f := range frameworks {
		for _, name := range append([]string{f.Name}, f.Aliases...) {
			if names[name] {
				t.Errorf("two frameworks are called %s", name)
			}
			names[name] = true
		}
		if len(f.Marks) == 0 && f != verlSync || f.Definition == "" || f.Title == "" { // which is known by what is not there
			t.Errorf("%s lacks marks, a definition or a title", f.Name)
		}
		if got := len(lackNames(f)); got != len(f.Lacks) {
			t.Errorf("%s: of %d lacks %d are of a figure", f.Name, len(f.Lacks), got)
		}
		for _, rule := range f.Steps {
			if len(rule.Keys) == 0 && rule.Of == nil {
				t.Errorf("%s: %s follows from nothing", f.Name, rule.Notion.Name)
			}
			if rule.Of == nil && len(rule.Keys) != 1 && rule.Formula != "" {
				t.Errorf("%s: %s has a formula over %d keys and nothing computes it", f.Name, rule.Notion.Name, len(rule.Keys))
			}
		}
		for _, rule := range f.Settings {
			if len(rule.Settings)+len(rule.Keys) == 0 && rule.Of == nil {
				t.Errorf("%s: %s follows from nothing", f.Name, rule.Setting.Name)
			}
		}
	}
}
