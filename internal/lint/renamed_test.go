package lint

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// renamedPage is the table of names that changed, which package config writes.
const renamedPage = "docs/reference/renamed.md"

// oldNamesKept are files that may have old names, with the reason. Those that end in / are folders.
var oldNamesKept = map[string]string{
	"config/renamed_table.go":         "it is the table",
	renamedPage:                       "it is the table as a page",
	"CHANGELOG.md":                    "it says what changed",
	"docs/decisions/":                 "a decision keeps the names of its day",
	"config/migrate_test.go":          "it migrates old documents",
	"internal/lint/renamed_test.go":   "it tries its own patterns",
	"cmd/lab/bench/simulator/main.go": "it writes documents for earlier commits",
	"cmd/headway/plan.go":             "it refuses an old flag",
	"cmd/headway/receive.go":          "it refuses an old flag",
	"cmd/headway/main_test.go":        "it holds that old flags are refused",
	"env/episode/record.go":           "it reads records of earlier versions",
	"env/episode/record_test.go":      "it reads records of earlier versions",
	"app/player/":                     "it takes over a file of earlier versions",
	"app/plane/":                      "it takes over a file of earlier versions",
}

// oldName is a name that changed, and what finds it in a text.
type oldName struct {
	kind, old, now string
	// within is a part that every text with the name has: expressions are slow.
	within  string
	pattern *regexp.Regexp
}

// oldNames reads the table. Rows whose old name means something else elsewhere have no pattern and
// are left out: a command (TestQuotedCommands reads those), and JSON names of a single plain word.
func oldNames(t *testing.T) (names []oldName) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, renamedPage))
	if err != nil {
		t.Fatal(err)
	}
	longest := regexp.MustCompile(`\w+`)
	row := regexp.MustCompile("(?m)^\\| (\\w+) \\| `(.+?)` \\| `(.+?)` \\|")
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		name := oldName{kind: found[1], old: found[2], now: found[3]}
		if pattern := oldPattern(name.kind, name.old); pattern != "" {
			name.pattern = regexp.MustCompile(pattern)
			name.within = longest.FindString(name.old[strings.LastIndexAny(name.old, " .-]")+1:])
			names = append(names, name)
		}
	}
	return names
}

// oldPattern is the expression that finds a name of a kind, "" for one that cannot be told from other words.
func oldPattern(kind, old string) string {
	const before, after = `(?:^|[^\w.\]/-])`, `(?:[^\w-]|$)`
	quote := regexp.QuoteMeta
	switch kind {
	case "key":
		return before + strings.ReplaceAll(quote(old), `\[\]`, `(?:\[\w*\]|\.\w+)`) + after
	case "flag":
		command, flag, _ := strings.Cut(old, " ")
		return `\b` + command + `\b[^|\n]*` + quote(flag) + after
	case "json":
		leaf := old[strings.LastIndex(old, ".")+1:]
		switch {
		case strings.Contains(leaf, "_"):
			return before + `(?:[\w.]+\.)?` + quote(leaf) + after
		case strings.Contains(old, "."):
			return before + quote(old) + after
		}
	case "value":
		words := old
		if _, value, ok := strings.Cut(old, ": "); ok {
			words = value
		}
		return "[\"`](?:" + strings.ReplaceAll(quote(words), ", ", "|") + ")[\"`]"
	case "label":
		return quote(old)
	case "file":
		return before + `(?:[\w.]+/)*` + quote(old) + after
	}
	return ""
}

// TestNoOldNames: no file of the tree has a name that changed, apart from those that speak of earlier versions.
func TestNoOldNames(t *testing.T) {
	names, used, read := oldNames(t), map[string]bool{}, 0
	if len(names) < 40 {
		t.Fatalf("only %d names: is %s read right?", len(names), renamedPage)
	}
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if at != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "runs" || name == "vendor") {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".md", ".yaml", ".yml", ".js", ".ts", ".py", ".json", ".tmpl", ".sbatch"}, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		read++
		path := filepath.ToSlash(strings.TrimPrefix(at, root+string(filepath.Separator)))
		for _, wrong := range oldNamesIn(names, string(text)) {
			if kept := keptUnder(path); kept != "" {
				used[kept] = true
				continue
			}
			t.Errorf("%s:%s", path, wrong)
		}
		return nil
	})
	if err != nil || read < 1000 {
		t.Fatalf("%d files were read, %v", read, err)
	}
	for kept := range oldNamesKept {
		if !used[kept] && kept != "CHANGELOG.md" && kept != "docs/decisions/" {
			t.Errorf("%s has no old name: take it out of oldNamesKept", kept)
		}
	}
}

// keptUnder is the entry of oldNamesKept that a file is under, "" for none.
func keptUnder(path string) string {
	for kept := range maps.Keys(oldNamesKept) {
		if path == kept || strings.HasSuffix(kept, "/") && strings.HasPrefix(path, kept) {
			return kept
		}
	}
	return ""
}

// oldNamesIn are the old names in a text, each as LINE: what it is.
func oldNamesIn(names []oldName, text string) (found []string) {
	for _, name := range names {
		if !strings.Contains(text, name.within) {
			continue
		}
		for _, at := range name.pattern.FindAllStringIndex(text, -1) {
			line := strings.Count(text[:at[1]-1], "\n") + 1
			found = append(found, fmt.Sprintf("%d: the %s %s is now %s", line, name.kind, name.old, name.now))
		}
	}
	return found
}

func TestOldNamesAreFound(t *testing.T) {
	names := oldNames(t)
	for text, want := range map[string]string{
		"--set rollout.length.kind=fixed": "rollout.length", "`train.step_s`": "train.step_s", "modelled.train.step_s": "", "trainer.step_s": "",
		"train.step_by": "train.step_by", "train.step_s_x": "", "engines.0.speed": "engines[].speed", "engines[1].speed": "engines[].speed", "engines.0.speedy": "",
		"headway plan x --calibrate r": "plan --calibrate", "headway calibrate": "", "receive --sync u": "receive --sync", "predict --sync-time": "",
		"`json:\"judge_s\"`": "judge_s", "latency.judge_s": "judge_s", "runs/r/tasks.book": "tasks.book", "case \"judge\":": "judge", "`judge_wait`": "judge_wait", "judge": "",
		"sender.groups": "sender.groups", `headway_binding{side="judge"}`: "headway_binding",
	} {
		found := strings.Join(oldNamesIn(names, text), "; ")
		if (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("%q: found %q, want %q", text, found, want)
		}
	}
}
