package taskset

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-rl/headway/env/taskset/columns"
)

// written makes a file of a test and returns its path.
func written(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loaded(t testing.TB, opt Options) *Set {
	t.Helper()
	s, err := Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mistakes loads what has some, and returns them without the path of the file.
func mistakes(t testing.TB, opt Options) []string {
	t.Helper()
	_, err := Load(opt)
	found, ok := errors.AsType[*Mistakes](err)
	if !ok {
		t.Fatalf("want mistakes, got %v", err)
	}
	var lines []string
	for _, m := range found.List {
		if m.File != "" {
			m.File = filepath.Base(m.File)
		}
		lines = append(lines, m.String())
	}
	if found.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", found.More))
	}
	return lines
}

func TestLines(t *testing.T) {
	path := written(t, "own.jsonl", "\xef\xbb\xbf"+`{"id": "a", "prompt": "What is 1+1?", "answer": 2, "level": "Level 1", "extra": {"k": [1, null]}}
`+"\r\n"+`{"id": 7, "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello \"\u00e9\""}], "prompt": null, "level": 2.0, "turns_max": 3, "timeout_s": 1.5}`+"\r\n"+`
{"prompt": "Write f.", "files": {"a/b.txt": "x", "/etc/own": "y"}, "hidden": {"t.py": "assert f()"}, "test": "python3 t.py", "system": "Be right."}`)
	s := loaded(t, Options{Paths: []string{path}, System: "You are a calculator."})
	if s.Len() != 3 || s.HeldOutLen() != 0 || s.Levels() != 2 || s.LevelLen(2) != 1 || s.LevelLen(3) != 0 {
		t.Fatal(s.Len(), s.HeldOutLen(), s.Levels())
	}
	got, err := json.MarshalIndent([]*Task{s.At(1, 0), s.At(2, 0), s.At(3, 0)}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ID": "a"`, `"content": "You are a calculator."`, `"ID": "7"`, `"ID": "` + filepath.ToSlash(path) + `:5"`, `"content": "Be right."`, `"Level": 1`, `"TurnsMax": 3`, `"TimeoutS": 1.5`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("there is no %s in %s", want, got)
		}
	}
	one, two, three := s.At(1, 0), s.At(2, 0), s.At(3, 0)
	if len(one.Messages) != 2 || len(two.Messages) != 2 || len(three.Messages) != 2 || string(one.Answer) != "2" || string(one.Fields["extra"]) != `{"k": [1, null]}` {
		t.Errorf("%s", got)
	}
	if string(three.Files["/work/a/b.txt"]) != "x" || string(three.Files["/etc/own"]) != "y" || string(three.Hidden["/work/t.py"]) != "assert f()" || three.Test != "python3 t.py" {
		t.Errorf("%v", three)
	}
	if s.At(4, 0).ID != "a" || s.At(5, 2).ID != "7" || s.At(1, 1).ID != "a" {
		t.Error("numbers begin again behind the last task of a level")
	}
	for _, wrong := range []func(){func() { s.At(0, 0) }, func() { s.At(1, 3) }, func() { s.At(1, -1) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			wrong()
		}()
	}
}

func TestMistakes(t *testing.T) {
	path := written(t, "bad.jsonl", strings.Join([]string{
		`{"id": "a", "prompt": "x"}`,
		`{"id": "b", "prompt": "x"`,
		`{"id": "a", "prompt": "y"}`,
		"{\"id\": \"c\", \"prompt\": \"\xff\"}",
		`{"id": "d", "promt": "x", "level": 1}`,
		`["x"]`,
		`{"id": "e", "prompt": [{"content": "x"}, 3, {"role": "asistant", "content": 1}]}`,
		`{"id": "f", "prompt": "x\u0000"}`,
		`{"id": "g", "prompt": "x", "level": -1, "turns_max": 0.5, "timeout_s": "x", "test": 4}`,
		`{"id": 1.5, "prompt": {"x": 1}}`,
		`{"id": "h", "prompt": "x", "files": {"../a": "x", "b": 1, "": "x", "./b/": "x"}}`,
		`{"id": "i", "prompt": " "}`,
		`{"id": "j", "prompt": []}`,
		`{"id": "k", "prompt": "\ud83d"}`,
		`{"id": "l", "prompt": "x", "prompt": "y"}`,
		`{"id": "m", "prompt": [{"role": "user"}]}`,
		`{"id": "o", "prompt": "x", "files": {"a": "1", "a/b": "2"}}`,
		`{"id": "p", "prompt": "x", "level": "3.5"}`,
		`{"id": "q", "prompt": "x", "level": "-3"}`,
		`{"id": "n", "system": "s", "prompt": [{"role": "system", "content": "x"}]}`,
	}, "\n"))
	want := []string{
		"bad.jsonl:2: broken JSON: unexpected end of JSON input at byte 25",
		`bad.jsonl:3: the id "a" is also that of `,
		"bad.jsonl:4: byte 24 is no UTF-8",
		`bad.jsonl:5: there is no prompt: neither a field "prompt" nor one "messages"; did you mean "promt"?`,
		"bad.jsonl:6: this is a list: want an object; a list of tasks is to be written with one task a line",
		"bad.jsonl:7: message 1 of the prompt has no role", "bad.jsonl:7: message 2 of the prompt is a number",
		`bad.jsonl:7: message 3 of the prompt has the role "asistant": want one of system, developer, user, assistant, tool, function; did you mean "assistant"?`,
		"bad.jsonl:7: the content of message 3 of the prompt is a number",
		"bad.jsonl:8: the prompt has a NUL",
		"bad.jsonl:9: the level is -1", "bad.jsonl:9: the test is a number", "bad.jsonl:9: turns_max is 0.5", `bad.jsonl:9: timeout_s is "x"`,
		"bad.jsonl:10: the prompt is an object", "bad.jsonl:10: the id is 1.5",
		`bad.jsonl:11: files: the path "../a" has ".."`, `bad.jsonl:11: files: the file "b" is a number`, `bad.jsonl:11: files: the path "" names no file`, `bad.jsonl:11: files: the path "./b/" names no file`,
		"bad.jsonl:12: the prompt is empty", "bad.jsonl:13: the prompt is an empty list", "bad.jsonl:14: the prompt has half a surrogate pair",
		`bad.jsonl:15: the field "prompt" stands twice`, "bad.jsonl:16: message 1 of the prompt has no content",
		"bad.jsonl:17: files: /work/a is a file, and the folder of /work/a/b", `bad.jsonl:18: the level is "3.5"`, `bad.jsonl:19: the level is "-3"`, "bad.jsonl:20: there is a system text",
	}
	got := mistakes(t, Options{Paths: []string{path}})
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("mistake %d of %d, want %d of them:\n%s", i+1, len(got), len(want), strings.Join(got, "\n"))
		}
	}
}

func TestManyMistakes(t *testing.T) {
	got := mistakes(t, Options{Paths: []string{written(t, "bad.jsonl", strings.Repeat("{\n", 80))}})
	if len(got) != MistakesMax+1 || got[MistakesMax] != "and 30 more" {
		t.Errorf("%q", got)
	}
	// A field that no row has is one mistake, also where it is no mistake of a single row.
	rows := strings.Repeat(`{"question": "x"}`+"\n", 60)
	for _, c := range []struct {
		m    Mapping
		want string
	}{
		{Mapping{Prompt: "qestion"}, `bad.jsonl: no row has a prompt: the field "qestion" is missing or null; did you mean "question"?`},
		{Mapping{Prompt: "question", Level: "meta.level"}, `bad.jsonl: no row has a level: the field "meta.level" is missing or null; there are question`},
	} {
		if got := mistakes(t, Options{Paths: []string{written(t, "bad.jsonl", rows)}, Map: c.m}); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestOddFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"empty.jsonl":    {"", "empty.jsonl: the file has no tasks: want an object a line"},
		"blank.jsonl":    {"\n \n", "blank.jsonl: the file has no tasks: want an object a line"},
		"wide.jsonl":     {"\xff\xfe{\x00", "wide.jsonl: it is in UTF-16: want the file in UTF-8"},
		"cut.jsonl.gz":   {"\x1f\x8b\x08\x00\x00\x00\x00\x00", "cut.jsonl.gz: it is compressed by gzip, and broken: unexpected EOF"},
		"cut.jsonl.zst":  {"\x28\xb5\x2f\xfd\x00", "cut.jsonl.zst: it cannot be read after line 1: "},
		"bad.parquet":    {"PAR1 and nothing", "bad.parquet: it is Parquet, and broken: "},
		"footer.parquet": {"PAR1\xff\xff\xff\xffPAR1", "footer.parquet: it is Parquet, and broken: its footer is to have 4294967295 bytes, and the file has 12"},
		"long.jsonl":     {`{"prompt": "` + strings.Repeat("x", 1<<21) + "\"}\n" + `{"prompt": 1}`, "long.jsonl:1: the line is longer than 1048576 bytes"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := mistakes(t, Options{Columns: columns.Read, Paths: []string{path}, LineMax: 1 << 20})
		if !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if name == "long.jsonl" && (len(got) != 2 || !strings.HasPrefix(got[1], "long.jsonl:2: the prompt is a number")) {
			t.Errorf("after a long line: %q", got)
		}
	}
	if got := mistakes(t, Options{Paths: []string{chatParquet}}); got[0] != "chat.parquet: it is Parquet, which this program does not read: want JSON lines" {
		t.Errorf("without a reader of columns: %q", got)
	}
	if got := mistakes(t, Options{Paths: []string{"/dev/zero"}}); runtime.GOOS != "windows" && !strings.Contains(got[0], "is no file") {
		t.Errorf("a device: %q", got)
	}
	if got := mistakes(t, Options{Paths: []string{filepath.Join(dir, "none.jsonl")}}); got[0] != "none.jsonl: no such file or directory" {
		t.Errorf("%q", got)
	}
	if got := mistakes(t, Options{Paths: []string{t.TempDir()}}); !strings.Contains(got[0], "the directory has no tasks") {
		t.Errorf("%q", got)
	}
	for _, opt := range []Options{{}, {Paths: []string{"x"}, HeldOut: 1}, {Paths: []string{"x"}, HeldOut: 0.5, HeldOutPaths: []string{"y"}}, {Paths: []string{"x"}, Map: Mapping{ID: "a..b"}}, {Paths: []string{"x"}, Levels: -1}} {
		if _, err := Load(opt); err == nil || errors.As(err, new(*Mistakes)) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// TestCompressed reads a directory of files, each compressed otherwise: the same set as one plain file.
func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	lines := []string{`{"id": "a", "prompt": "1"}`, `{"id": "b", "prompt": "2"}`, `{"id": "c", "prompt": "3"}`}
	var zipped, packed bytes.Buffer
	g := gzip.NewWriter(&zipped)
	g.Write([]byte(lines[1]))
	g.Close()
	z, _ := zstd.NewWriter(&packed)
	z.Write([]byte(lines[2]))
	z.Close()
	os.MkdirAll(filepath.Join(dir, "deep", ".hidden"), 0o700)
	for name, text := range map[string]string{"1.jsonl": lines[0], "2.jsonl.gz": zipped.String(), "deep/3.ndjson.zst": packed.String(), "README.md": "no task", "deep/.hidden/x.jsonl": "no task"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := loaded(t, Options{Paths: []string{dir}})
	whole := loaded(t, Options{Paths: []string{written(t, "all.jsonl", strings.Join(lines, "\n"))}})
	if s.Len() != 3 || s.At(3, 0).ID != "c" || s.Digest() != whole.Digest() {
		t.Error(s.Len(), s.Digest(), whole.Digest())
	}
}

// TestSplit: what is given to a policy is on one side, whatever is around it.
func TestSplit(t *testing.T) {
	var forward, backward []string
	for i := range 400 {
		prompt := fmt.Sprintf("prompt %d", i%200) // each twice
		forward = append(forward, fmt.Sprintf(`{"id": "f%d", "prompt": %q}`, i, prompt))
		backward = append(backward, fmt.Sprintf(`{"answer": %d, "prompt": [{"role": "system", "content": "s"}, {"content":   "%s", "role": "user"}]}`, i, strings.Replace(prompt, "p", `\u0070`, 1)))
	}
	slices.Reverse(backward)
	sides := map[string]bool{}
	count := 0
	for k, lines := range [][]string{forward, backward} {
		s := loaded(t, Options{Paths: []string{written(t, "set.jsonl", strings.Join(lines, "\n"))}, HeldOut: 0.25})
		if s.Len()+s.HeldOutLen() != 400 || s.HeldOutLen() < 60 || s.HeldOutLen() > 140 {
			t.Fatal(s.Len(), s.HeldOutLen())
		}
		note := func(task *Task, heldOut bool) {
			var said struct{ Content string }
			json.Unmarshal(task.Messages[len(task.Messages)-1], &said)
			was, there := sides[said.Content]
			if k == 1 && !there || there && was != heldOut {
				t.Errorf("%q is on both sides", said.Content)
			}
			sides[said.Content] = heldOut
			count++
		}
		for i := range s.Len() {
			note(s.At(int64(i+1), 0), false)
		}
		for i := range s.HeldOutLen() {
			note(s.HeldOut(i), true)
		}
	}
	if count != 800 || len(sides) != 200 {
		t.Error(count, len(sides))
	}
}

func TestHeldOutFiles(t *testing.T) {
	train := written(t, "train.jsonl", `{"id": "a", "prompt": "1"}`+"\n"+`{"id": "b", "prompt": "2"}`)
	test := written(t, "test.jsonl", `{"id": "c", "prompt": "3"}`)
	s := loaded(t, Options{Paths: []string{train}, HeldOutPaths: []string{test}})
	if s.Len() != 2 || s.HeldOutLen() != 1 || s.HeldOut(0).ID != "c" {
		t.Error(s.Len(), s.HeldOutLen())
	}
	leak := written(t, "test.jsonl", `{"id": "c", "prompt": [{"role": "user", "content": "2"}]}`)
	if got := mistakes(t, Options{Paths: []string{train}, HeldOutPaths: []string{leak}}); len(got) != 1 || !strings.Contains(got[0], "test.jsonl:1: what the policy is given here is that of the training task at "+filepath.ToSlash(train)+":2") {
		t.Errorf("%q", got)
	}
}

func TestLevels(t *testing.T) {
	for text, want := range map[string]int{"3": 3, "3.0": 3, `"3"`: 3, `"3.0"`: 3, `" 3 "`: 3, `"Level 3"`: 3, `"L3"`: 3, `"1e3"`: 1000} {
		one := loaded(t, Options{Paths: []string{written(t, "level.jsonl", `{"prompt": "x", "level": `+text+`}`)}})
		if got := one.At(1, 0).Level; got != want {
			t.Errorf("%s is level %d, want %d", text, got, want)
		}
	}
	path := written(t, "set.jsonl", `{"prompt": "1", "level": 1}`+"\n"+`{"prompt": "3", "level": 3}`+"\n"+`{"prompt": [{"role": "user", "content": "0"}, {"role": "assistant", "content": "a"}]}`)
	if got := mistakes(t, Options{Paths: []string{path}, Levels: 3}); len(got) != 1 || got[0] != "the curriculum has 3 levels, and no training task is of level 2: the highest is 3" {
		t.Errorf("%q", got)
	}
	s := loaded(t, Options{Paths: []string{path}, Levels: 1})
	if w := s.Warnings(); len(w) != 2 || !strings.HasPrefix(w[0], "the prompt of 1 tasks ends with an assistant's") || !strings.HasPrefix(w[1], "2 tasks are of no level from 1 to 1") {
		t.Errorf("%q", w)
	}
	if got := mistakes(t, Options{Paths: []string{path}, HeldOut: 1 - 1e-12}); len(got) != 1 || got[0] != "no task is left for training: all 3 are held out" {
		t.Errorf("%q", got)
	}
}
