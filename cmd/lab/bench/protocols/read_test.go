package protocols

import (
	"archive/zip"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// source is a small server in the forms that releases have.
const source = `
from .io import Body1, Update
@app.post("/update")
async def update(obj: Annotated[Update, Body()], request: Request): ...
@router.api_route("/both", methods=["GET", "POST"])
async def both(raw: Request, mode: Annotated[Literal["a"], Query()] = "a"):
    body = await raw.json()
    return body.get("ids")
@router.post("/one")
async def one(request: Choice): ...
Choice = Body1 | Update
`

// classes are those of its bodies.
const classes = `
class Base(BaseModel):
    rid: Optional[str] = None
class Update(Base):
    names: List[str]
    size: int = Field(default=1)
class Body1(Base):
    names: str
    must: float = Field(..., gt=0)
`

func TestRead(t *testing.T) {
	wheel := filepath.Join(t.TempDir(), "small.whl")
	file, err := os.Create(wheel)
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(file)
	for name, text := range map[string]string{"small/__init__.py": "", "small/server.py": source, "small/io.py": classes} {
		w, err := archive.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	rid := field{Kinds: []string{"null", "string"}}
	both := route{Loose: true, Fields: map[string]field{"ids": {Kinds: []string{}}}, Query: map[string]field{"mode": {Kinds: []string{"string"}}}}
	want := map[string]route{
		"POST /update": {Query: map[string]field{}, Fields: map[string]field{
			"rid": rid, "names": {Kinds: []string{"array"}, Required: true}, "size": {Kinds: []string{"integer"}, Default: 1.0},
		}},
		"GET /both": both, "POST /both": both,
		"POST /one": {Query: map[string]field{}, Fields: map[string]field{
			"rid": rid, "names": {Kinds: []string{"array", "string"}, Required: true}, "size": {Kinds: []string{"integer"}, Default: 1.0},
			"must": {Kinds: []string{"integer", "number"}},
		}},
	}
	if got := read(t, wheel, "small"); !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
}

// unsaid are the paths that a dialect asks in cases which the listening server does not make, each with the case.
var unsaid = map[string]string{
	"sglang /get_model_info": "older releases", "sglang /get_server_info": "older releases", "sglang /get_load": "older releases",
	"sglang /flush_cache": "the probe looks for it and never asks it", "sglang /v1": "the beginning of others",
	"vllm /start_weight_update": "a backend that reads a path", "vllm /update_weights": "the same", "vllm /finish_weight_update": "the same",
	"vllm /v1/unload_lora_adapter": "adapters", "vllm /inference/v1/abort_requests": "a server without /abort_requests",
	"vllm /detokenize": "a server without /v1/completions/derender",
}

// TestEveryPathIsSaid: a path that a dialect's source names is asked here, so that none goes uncompared.
func TestEveryPathIsSaid(t *testing.T) {
	for _, dialect := range []string{"sglang", "vllm"} {
		paths := literals(t, filepath.Join("../../../../engine", dialect))
		routes := map[string]route{}
		for path := range paths {
			routes["POST "+path] = route{}
		}
		said := map[string]bool{}
		for _, w := range wordsOf(t, dialect, routes) {
			_, path, _ := strings.Cut(w.route, " ")
			said[path] = true
		}
		for path := range paths {
			if why := unsaid[dialect+" "+path]; !said[path] && why == "" {
				t.Errorf("engine/%s names %s, and it is not asked here: have speak ask it", dialect, path)
			}
		}
	}
}

// literals are the paths that the sources of a folder name.
func literals(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", folder, err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, _ := strconv.Unquote(literal.Value)
				if path, _, _ := strings.Cut(text, "?"); len(path) > 1 && path[0] == '/' && !strings.ContainsAny(path, " %:") {
					found[path] = true
				}
			}
			return true
		})
	}
	return found
}
