package taskset

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/taskset/columns"
)

// chat.parquet was written by pyarrow, in the shape that trainers for chat prompts share: a list of
// structs as prompt, the answer in a struct, and columns of other types beside.
const chatParquet = "testdata/chat.parquet"

func TestParquet(t *testing.T) {
	s := loaded(t, Options{Columns: columns.Read, Paths: []string{chatParquet}, Levels: 2, Map: Mapping{Prompt: "prompt", Answer: "reward_model.ground_truth", Level: "extra_info.difficulty", ID: "extra_info.index"}})
	if s.Len() != 5 || s.LevelLen(1) != 3 || s.LevelLen(2) != 2 {
		t.Fatal(s.Len(), s.Levels())
	}
	task := s.At(1, 2)
	if task.ID != "1" || string(task.Answer) != `"9"` || len(task.Messages) != 2 || string(task.Messages[1]) != `{"content":"What is 4 + 5?","role":"user"}` {
		t.Errorf("%+v", task)
	}
	for name, want := range map[string]string{
		"extra_info": `{"difficulty":2,"hints":["é","add"],"index":1,"split":"train"}`, "raw": `"/wE="`, "big": "1152921504606846977",
		"flag": "false", "kv": `{"k":1}`, "tags": `{"a":1}`, "score": "0.5", "date": "19724",
	} {
		if string(task.Fields[name]) != want {
			t.Errorf("%s is %s, want %s", name, task.Fields[name], want)
		}
	}
	if first := s.At(1, 0); first.Fields["tags"] != nil || strings.Contains(string(first.Fields["extra_info"]), "hints") {
		t.Errorf("a null is no field: %s", first.Fields["extra_info"])
	}
	got := mistakes(t, Options{Columns: columns.Read, Paths: []string{chatParquet}, Map: Mapping{Answer: "reward_model.ground_thruth"}})
	if len(got) != 1 || !strings.Contains(got[0], `did you mean "reward_model.ground_truth"?`) {
		t.Errorf("%q", got)
	}
}

// TestBrokenParquet cuts and flips the file everywhere: an error or a set, never a panic.
func TestBrokenParquet(t *testing.T) {
	if checked {
		t.Skip("the race detector's checks of pointers end the process where the reader would panic")
	}
	whole, err := os.ReadFile(chatParquet)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	for i := 0; i < len(whole); i += 97 {
		for _, broken := range [][]byte{whole[:i], append(append(bytes.Clone(whole[:i]), ^whole[i]), whole[i+1:]...)} {
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			Load(Options{Columns: columns.Read, Paths: []string{path}})
		}
	}
}
