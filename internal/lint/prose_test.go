package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/quoted"
)

// counts are the sentences of one class of text that a reader trips over.
type counts struct {
	// Long counts the sentences of more than wordsMax words, Subjectless those whose subject is a clause or nobody.
	Long, Subjectless int
}

// ratchetFile holds how many such sentences each class may have. It only goes down.
const ratchetFile = "prose.json"

// piece is a text with the place that it stands at.
type piece struct{ at, text string }

// TestProse: no class of text gets harder to read than it is. docs/decisions and pages that a command writes are left out.
func TestProse(t *testing.T) {
	saved, err := os.ReadFile(ratchetFile)
	if err != nil {
		t.Fatal(err)
	}
	var allowed map[string]counts
	if err := json.Unmarshal(saved, &allowed); err != nil {
		t.Fatal(err)
	}
	now := map[string]counts{}
	for class, pieces := range prose(t) {
		count := count(t, class, pieces)
		now[class] = count
		may := allowed[class]
		if count.Long > may.Long || count.Subjectless > may.Subjectless {
			t.Errorf("%s: %d sentences of more than %d words and %d without a named subject, %d and %d are allowed: "+
				"go test ./internal/lint -run 'TestProse$' -v lists them; shorten the ones that you wrote", class, count.Long, wordsMax, count.Subjectless, may.Long, may.Subjectless)
			now[class] = counts{min(count.Long, may.Long), min(count.Subjectless, may.Subjectless)}
		}
	}
	if !*rewrite {
		return
	}
	text, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ratchetFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// count counts a class's sentences, and logs the hard ones under -v, the longest first.
func count(t *testing.T, class string, pieces []piece) (found counts) {
	type offender struct {
		sentence
		at string
	}
	var offenders []offender
	for _, p := range pieces {
		for _, s := range sentences(p.text) {
			if s.long() {
				found.Long++
			}
			if s.subjectless() {
				found.Subjectless++
			}
			if s.long() || s.subjectless() {
				offenders = append(offenders, offender{s, p.at})
			}
		}
	}
	if testing.Verbose() {
		slices.SortStableFunc(offenders, func(a, b offender) int { return cmp.Compare(b.words, a.words) })
		for _, o := range offenders {
			mark := ""
			if o.subjectless() {
				mark = ", subject"
			}
			fmt.Printf("%s\t%s\t%d words%s\t%s\n", class, o.at, o.words, mark, o.text)
		}
	}
	return found
}

// prose collects the texts that readers meet, by class.
func prose(t *testing.T) map[string][]piece {
	t.Helper()
	found := map[string][]piece{}
	pagesOfProse(t, found)
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		add := func(class string, node ast.Node, text string) {
			found[class] = append(found[class], piece{fmt.Sprintf("%s:%d", f.path, line(node.Pos())), text})
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				for _, text := range message(n) {
					add("errors", n, text)
				}
			case *ast.Field:
				if text := help(n); text != "" {
					add("help", n, text)
				}
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "Help" && n.Type.Params.NumFields() == 0 && n.Body != nil {
					for text := range strings.SplitSeq(literals(n.Body), "\n\n") {
						if !strings.HasPrefix(text, "  ") { // examples
							add("help", n, strings.ReplaceAll(text, "\n", " "))
						}
					}
				}
			}
			return true
		})
		documented(f, func(comment *ast.CommentGroup) {
			for _, text := range paragraphs(undented(comment.Text())) {
				add("comments", comment, text)
			}
		})
	}
	return found
}

// written are the pages that a command writes: their words are in its code, or are its output.
var written = regexp.MustCompile(`^docs/(decisions/|reference/|reproduce\.md|theory-accuracy\.md|accuracy-runs\.md)`)

// pagesOfProse adds README and its like, and the pages of docs.
func pagesOfProse(t *testing.T, found map[string][]piece) {
	t.Helper()
	paths, err := quoted.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range append(paths, "CHANGELOG.md") {
		class := "readme"
		if strings.HasPrefix(at, "docs/") {
			class = "docs"
		} else if strings.Contains(at, "/") {
			continue
		}
		text, err := os.ReadFile(root + "/" + at)
		if os.IsNotExist(err) || written.MatchString(at) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paragraphs(string(text)) {
			found[class] = append(found[class], piece{at, p})
		}
	}
}

// readmeMax is how many words README may have: a reader gives it ten minutes.
const readmeMax = 1500

func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > readmeMax {
		t.Errorf("README.md has %d words, more than %d: move what not every reader needs to a page of docs", words, readmeMax)
	}
}

// pageMax is how many words a page may have: past it a reader looks for one answer among several.
const pageMax = 1500

// TestPagesAreShort: a page of docs that is longer is two pages, or says in its title that it is a reference.
// docs/ARCHITECTURE.md is a page with the tables of the rules that this package holds.
func TestPagesAreShort(t *testing.T) {
	paths, err := quoted.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range paths {
		if !strings.HasPrefix(at, "docs/") || strings.HasPrefix(at, "docs/reference/") || at == "docs/ARCHITECTURE.md" {
			continue
		}
		text, err := os.ReadFile(root + "/" + at)
		if err != nil {
			t.Fatal(err)
		}
		if words := len(strings.Fields(string(text))); words > pageMax && !strings.HasPrefix(string(text), "# Reference: ") {
			t.Errorf("%s has %d words, more than %d: make two pages of it, or move its tables to docs/reference", at, words, pageMax)
		}
	}
}

// makers are the functions that make errors, by the name that a file calls them by.
var makers = []string{"failure.Usage", "failure.Run", "fmt.Errorf", "errors.New"}

// message lists the texts of a call that makes an error: what is wrong, and what to do.
func message(call *ast.CallExpr) (texts []string) {
	selected, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	from, _ := selected.X.(*ast.Ident)
	if selected.Sel.Name != "Refuse" && (from == nil || !slices.Contains(makers, from.Name+"."+selected.Sel.Name)) {
		return nil
	}
	for _, argument := range call.Args {
		if text := literals(argument); strings.Contains(text, " ") {
			texts = append(texts, text)
		}
	}
	return texts
}

// literals joins the strings below a node, without those inside another call.
func literals(node ast.Node) string {
	var text strings.Builder
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				if value, err := strconv.Unquote(n.Value); err == nil {
					text.WriteString(value)
				}
			}
		}
		return true
	})
	return text.String()
}

// help is the help text of a flag or a command.
func help(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return ""
	}
	return reflect.StructTag(tag).Get("help")
}

// undented keeps the code of a comment apart, which a tab begins.
func undented(comment string) string { return strings.ReplaceAll(comment, "\n\t", "\n\n    ") }

// documented visits the comments that documentation shows: of the package, of exported names, and of their fields and methods.
func documented(f file, visit func(*ast.CommentGroup)) {
	see := func(comments ...*ast.CommentGroup) {
		for _, comment := range comments {
			if comment != nil {
				visit(comment)
			}
		}
	}
	see(f.syntax.Doc)
	for _, declaration := range f.syntax.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) {
				see(d.Doc)
			}
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				documentedSpecs(d, see)
			}
		}
	}
}

// documentedSpecs visits the comments of a declaration of types, constants or variables.
func documentedSpecs(d *ast.GenDecl, see func(...*ast.CommentGroup)) {
	group := false
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			if slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
				group = true
				see(s.Doc, s.Comment)
			}
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			group = true
			see(s.Doc, s.Comment)
			var members *ast.FieldList
			switch kind := s.Type.(type) {
			case *ast.StructType:
				members = kind.Fields
			case *ast.InterfaceType:
				members = kind.Methods
			default:
				continue
			}
			for _, member := range members.List {
				if len(member.Names) == 0 || slices.ContainsFunc(member.Names, (*ast.Ident).IsExported) {
					see(member.Doc, member.Comment)
				}
			}
		}
	}
	if group {
		see(d.Doc)
	}
}
