package quoted

import (
	"reflect"
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	for line, want := range map[string]string{
		`headway run`: "headway,run",
		`A=1 B="x y" headway run --set 'a=b c' "d $HOME"`:         "headway,run,--set,a=b c,d $HOME",
		`headway serve FILE & headway status # go on`:             "headway,serve,FILE | headway,status",
		`headway config > run.yaml`:                               "headway,config",
		`headway plan x 2>&1 | tee out && make test`:              "headway,plan,x | tee,out | make,test",
		`headway weights [RUN]                  list: a | b`:      "headway,weights,RUN",
		`go run ./cmd/lab/bench/queue [-runs N] [-peers=false] …`: "go,run,./cmd/lab/bench/queue,-runs,N,-peers=false",
		`make bench-queue      # go run ./cmd/lab/bench/queue -n`: "make,bench-queue | go,run,./cmd/lab/bench/queue,-n",
		`headway view x    (headway simulate --trace y)`:          "headway,view,x",
		`X="$(headway version)" headway run`:                      "headway,run | headway,version",
		`go test ./a -bench . -run '^$' ./...`:                    "go,test,./a,-bench,.,-run,^$,./...",
		`headway run    | tee out`:                                "headway,run | tee,out",
		`# only a remark`:                                         "#,only,a,remark",
		`A=1`:                                                     "",
	} {
		var got []string
		for _, words := range Commands(line) {
			got = append(got, strings.Join(words, ","))
		}
		if text := strings.Join(got, " | "); text != want {
			t.Errorf("%s:\n got %s\nwant %s", line, text, want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	page := markdown("p.md", strings.Join([]string{
		"Say `headway run` or `a\\|b`, see [this](../x.md#y) and `[no](link)`.",
		"```sh", "headway serve \\", "  --name x", "", "```",
		"```console", "$ headway run", "headway said this", "```",
		"```yaml", "headway: no", "```",
		"    make test     # all", "    prose that goes on",
	}, "\n"))
	want := []Quote{
		{"p.md", 1, "headway run", false}, {"p.md", 1, "a|b", false}, {"p.md", 1, "[no](link)", false},
		{"p.md", 3, "headway serve --name x", true}, {"p.md", 8, "headway run", true}, {"p.md", 14, "make test     # all", true},
	}
	if !reflect.DeepEqual(page.Code, want) {
		t.Errorf("code\n got %v\nwant %v", page.Code, want)
	}
	if want := []Quote{{"p.md", 1, "../x.md#y", false}}; !reflect.DeepEqual(page.Links, want) {
		t.Errorf("links %v, want %v", page.Links, want)
	}
}

func TestMakefile(t *testing.T) {
	page := makefile("Makefile", "GO ?= go\nx: y ## say x\n\t@$(GO) run ./cmd/lab/bench/queue\n\t$(LESS_GC) $(GO) $(TEST) $$all\n")
	want := []Quote{{"Makefile", 3, "go run ./cmd/lab/bench/queue", true}, {"Makefile", 4, "go test $all", true}}
	if !reflect.DeepEqual(page.Code, want) {
		t.Errorf("got %v\nwant %v", page.Code, want)
	}
}

func TestPaths(t *testing.T) {
	folders := []string{"docs", "loop"}
	for word, want := range map[string][]string{
		"docs/x.md": {"docs/x.md"}, "./loop/a": {"loop/a"}, "--file=docs/y": {"docs/y"}, "mydocs/x": nil, "docs": nil,
		"docs/README.md": {"docs/README.md"}, "docs/NAME.md": nil, "docs/…": nil, "docs/*.md": nil, "(docs/a,loop/b)": {"docs/a", "loop/b"},
	} {
		if got := Paths(word, folders); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", word, got, want)
		}
	}
}
