package lint

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/quoted"
)

// pages are the repository's pages and its Makefile, with what they quote.
func pages(t *testing.T) map[string]quoted.Page {
	t.Helper()
	paths, err := quoted.Pages(root)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	found := map[string]quoted.Page{}
	for _, at := range append(paths, "Makefile") {
		if found[at], err = quoted.Read(root, at); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestLinksLeadSomewhere: every relative link of a page is to a file or a folder.
func TestLinksLeadSomewhere(t *testing.T) {
	for at, page := range pages(t) {
		for _, link := range page.Links {
			target, _, _ := strings.Cut(link.Text, "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			if !exists(path.Join(path.Dir(at), target)) {
				t.Errorf("%s:%d: links to %s, which is not there", at, link.Line, link.Text)
			}
		}
	}
}

// elsewhere are quoted words that look like paths of the repository and are none of its files, with what they are.
var elsewhere = map[string]string{
	"examples/hf_grpo/model":   "a model that a command of the example makes",
	"examples/moe_grpo/model":  "a model that a command of the example makes",
	"examples/distill/student": "a model that a command of the example makes",
	"examples/distill/teacher": "a model that a command of the example makes",
	"api/v1/view/":             "the path of a URL",
}

// foreignKeys is the page whose tables quote keys of other frameworks' logs, of which many begin with train/.
const foreignKeys = "docs/reference/import.md"

// TestQuotedPathsExist: a path that a page quotes and that begins with a top folder of the repository is there,
// so that a move leaves no old path behind.
func TestQuotedPathsExist(t *testing.T) {
	top, err := quoted.Folders(root)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for at, page := range pages(t) {
		if at == "Makefile" {
			continue // make says itself what is missing
		}
		for _, quote := range page.Code {
			for word := range strings.FieldsSeq(quote.Text) {
				for _, quotedPath := range quoted.Paths(word, top) {
					if at == foreignKeys && strings.HasPrefix(quotedPath, "train/") {
						continue
					}
					if elsewhere[quotedPath] != "" {
						used[quotedPath] = true
					} else if !exists(quotedPath) && !declares(quotedPath) {
						t.Errorf("%s:%d: quotes %s, which is not there: %s", at, quote.Line, quotedPath, quote.Text)
					}
				}
			}
		}
	}
	for known := range elsewhere {
		if !used[known] {
			t.Errorf("%s is quoted no longer: take it out of elsewhere", known)
		}
	}
}

// TestQuotedVerbsExist: every make VERB that a page quotes is one of the Makefile.
func TestQuotedVerbsExist(t *testing.T) {
	verbs := verbsOf(t)
	for at, page := range pages(t) {
		for _, quote := range page.Code {
			for _, words := range quoted.Commands(quote.Text) {
				if wrong := wrongVerb(words, verbs); wrong != "" {
					t.Errorf("%s:%d: the Makefile has no verb %s: %s", at, quote.Line, wrong, quote.Text)
				}
			}
		}
	}
}

// wrongVerb is the first target of a make command that is no verb, "" for none.
func wrongVerb(words, verbs []string) string {
	if words[0] != "make" {
		return ""
	}
	for _, word := range words[1:] {
		if !strings.HasPrefix(word, "-") && !strings.ContainsAny(word, "=$…") && !quoted.Placeholder(word) && !slices.Contains(verbs, word) {
			return word
		}
	}
	return ""
}

// verbsOf lists the verbs of the Makefile.
func verbsOf(t *testing.T) (verbs []string) {
	t.Helper()
	text, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(text), -1) {
		verbs = append(verbs, match[1])
	}
	return verbs
}

// TestQuotedGoCommands: the packages of every go run and go test that is quoted have Go files, the tests that -run and
// -bench ask for are there, and so are the flags of our own.
func TestQuotedGoCommands(t *testing.T) {
	for at, page := range pages(t) {
		for _, quote := range page.Code {
			for _, words := range quoted.Commands(quote.Text) {
				if wrong := wrongGo(sources(t), words); wrong != "" {
					t.Errorf("%s:%d: %s: %s", at, quote.Line, quote.Text, wrong)
				}
			}
		}
	}
}

// goFlags are the flags of go run and go test that commands in pages use, true for those whose value may be the next word.
var goFlags = map[string]bool{"bench": true, "benchmem": false, "benchtime": true, "count": true, "cpu": true, "o": true, "race": false, "run": true,
	"short": false, "tags": true, "timeout": true, "v": false, "vet": true}

// wrongGo says what a go run or go test names that is not there, "" for nothing.
func wrongGo(all []file, words []string) string {
	if len(words) < 3 || words[0] != "go" || words[1] != "run" && words[1] != "test" {
		return ""
	}
	var packages []string
	asked, ours := map[string]string{}, []string(nil)
	for i := 2; i < len(words); i++ {
		name, value, joined := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		takes, known := goFlags[name]
		switch {
		case strings.HasPrefix(words[i], "./"):
			packages = append(packages, strings.TrimPrefix(words[i], "./"))
			if words[1] == "run" && slices.Contains([]string{"./cmd/headway", "./cmd/lab", "./cmd/lab/world"}, words[i]) { // their own tests read the rest
				return foundIn(all, packages[0], func(file) bool { return true }, "there are no Go files in ")
			}
		case !strings.HasPrefix(words[i], "-"):
		case !known:
			ours = append(ours, name)
		case takes && !joined && i+1 < len(words):
			i++
			value = words[i]
			fallthrough
		default:
			asked[name] = value
		}
	}
	for _, at := range packages {
		if wrong := foundIn(all, at, func(file) bool { return true }, "there are no Go files in "); wrong != "" {
			return wrong
		}
	}
	if len(packages) == 0 {
		return ""
	}
	for flag, prefixes := range map[string][]string{"run": {"Test", "Example"}, "bench": {"Benchmark"}} {
		if pattern := asked[flag]; pattern != "" && pattern != "^$" && pattern != "xxx" && pattern != "." && !quoted.Placeholder(pattern) {
			if wrong := untested(all, packages, pattern, prefixes); wrong != "" {
				return wrong
			}
		}
	}
	for _, name := range ours {
		declared := func(f file) bool { return strings.Contains(string(f.text), "("+strconv.Quote(name)) }
		if !slices.ContainsFunc(packages, func(at string) bool { return foundIn(all, at, declared, "-") == "" }) {
			return "no file there declares the flag -" + name
		}
	}
	return ""
}

// foundIn says "" if a file below a package pattern is as wanted, else the complaint with the pattern.
func foundIn(all []file, at string, wanted func(file) bool, complaint string) string {
	folder, below := strings.CutSuffix(at, "/...")
	for _, f := range all {
		if (f.room == folder || below && within(f.room, folder) || at == "...") && wanted(f) {
			return ""
		}
	}
	return complaint + at
}

// untested says which alternative of a pattern no test matches, "" for none. Only what stands before the first slash counts.
func untested(all []file, packages []string, pattern string, prefixes []string) string {
	pattern, _, _ = strings.Cut(pattern, "/")
	for alternative := range strings.SplitSeq(strings.Trim(pattern, "()"), "|") {
		matcher, err := regexp.Compile(alternative)
		if err != nil {
			return err.Error()
		}
		has := func(f file) bool {
			return slices.ContainsFunc(f.syntax.Decls, func(declared ast.Decl) bool {
				function, is := declared.(*ast.FuncDecl)
				return is && f.test && function.Recv == nil && matcher.MatchString(function.Name.Name) &&
					slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(function.Name.Name, prefix) })
			})
		}
		if !slices.ContainsFunc(packages, func(at string) bool { return foundIn(all, at, has, "-") == "" }) {
			return "no test there matches " + alternative
		}
	}
	return ""
}

// exists reports whether a path from the root is there.
func exists(at string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(at)))
	return err == nil
}

// declares reports whether a path is a package with a name of it: engine/upstream.Dialect.
func declares(at string) bool {
	name := path.Base(at)
	room, identifier, has := strings.Cut(name, ".")
	return has && identifier != "" && ast.IsExported(identifier) && exists(path.Join(path.Dir(at), room))
}

// What is wrong is found, and what is right is not.
func TestQuotesAreHeld(t *testing.T) {
	verbs := verbsOf(t)
	for line, want := range map[string]string{"make test": "", "make -n bench AGAINST=HEAD": "", "make tests": "tests"} {
		if got := wrongVerb(quoted.Commands(line)[0], verbs); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for line, right := range map[string]bool{
		"go test ./loop/...":                                         true,
		"go test ./gone":                                             false,
		"go run ./cmd/lab/bench/simulator -runs 3":                   true,
		"go run ./cmd/lab/bench/simulator -laps 3":                   false,
		"go test ./internal/lint -run Architecture -rewrite":         true,
		"go test ./internal/lint -run 'Architecture|Nonsense'":       false,
		"go test ./internal/lint -run Architecture -write":           false,
		"HEADWAY_LONG=1 go test -race ./internal/lint -run=Traps -v": true,
	} {
		if got := wrongGo(sources(t), quoted.Commands(line)[0]); (got == "") != right {
			t.Errorf("%s: %q, want right %v", line, got, right)
		}
	}
}
