package taskset

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/taskset/columns"
)

// loadFuzzed writes files into a folder and reads them as a set. What is read is JSON, and its files are below no other place.
func loadFuzzed(t *testing.T, opt Options, files map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opt.Paths, opt.LineMax, opt.SetMax = []string{dir}, 1<<16, 1<<20
	set, err := Load(opt)
	if err != nil {
		return
	}
	for i := range set.training {
		checkTask(t, set.make(set.training[i]))
	}
}

// checkTask says what no task may be, whatever its file says.
func checkTask(t *testing.T, task *Task) {
	t.Helper()
	for _, raw := range append([]json.RawMessage{}, task.Messages...) {
		if !json.Valid(raw) {
			t.Errorf("a message is %q", raw)
		}
	}
	for _, files := range []map[string][]byte{task.Files, task.Hidden} {
		for name := range files {
			if !filepath.IsAbs(name) || strings.ContainsRune(name, 0) || strings.Contains(name+"/", "/../") {
				t.Errorf("a file is %q", name)
			}
		}
	}
	if task.TimeoutS < 0 || task.TurnsMax < 0 || len(task.Messages) == 0 || task.ID == "" {
		t.Errorf("%+v", task)
	}
}

// FuzzLines: a line of a file of tasks may be anything.
func FuzzLines(f *testing.F) {
	f.Add([]byte("\xef\xbb\xbf" + `{"id":"a","prompt":"What is 1+1?","answer":2,"level":"Level 1","extra":{"k":[1,null]}}`))
	f.Add([]byte(`{"id":7,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"\u00e9"}]}],"level":2.0,"turns_max":3,"timeout_s":1.5}`))
	f.Add([]byte(`{"prompt":"p","files":{"a/b":"text","../../etc/passwd":"x","/work/c":"y"},"hidden":{"/tests/t":"z"},"test":"true"}` + "\n" + `{"prompt":"p","timeout_s":1e400,"level":-1}`))
	f.Add([]byte(`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}],"system":"s"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		loadFuzzed(t, Options{}, map[string][]byte{"a.jsonl": text})
	})
}

// FuzzParquet: a Parquet file may be anything. The library that reads it may panic, and Load may not.
func FuzzParquet(f *testing.F) {
	if checked {
		f.Skip("the race detector's checks of pointers end the process where the reader would panic")
	}
	whole, err := os.ReadFile(chatParquet)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, []byte{})
	f.Add(len(whole)-8, []byte{0xff})
	f.Add(len(whole)-8, []byte{0xff, 0xff, 0xff, 0xff}) // a footer of 4 GiB
	f.Add(4, []byte{0, 0, 0})
	// The whole file is mutated at one place: what is random from its first byte on is no Parquet.
	f.Fuzz(func(t *testing.T, at int, bytesThere []byte) {
		text := bytes.Clone(whole)
		copy(text[uint(at)%uint(len(text)):], bytesThere)
		loadFuzzed(t, Options{Columns: columns.Read, Map: Mapping{Answer: "reward_model.ground_truth"}}, map[string][]byte{"a.parquet": text})
	})
}

// FuzzHarbor: the files of a Harbor task may be anything.
func FuzzHarbor(f *testing.F) {
	for _, name := range []string{"ledger-totals", "longest-word", "off-by-one"} {
		toml, err := os.ReadFile(filepath.Join("testdata/harbor", name, "task.toml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(toml, []byte("Do it."))
	}
	f.Add([]byte("version=\"1.0\"\n[agent]\ntimeout_sec = 1e400\n[environment]\nmemory=\"999999999999G\"\ncpus=-1"), []byte{})
	f.Fuzz(func(t *testing.T, toml, instruction []byte) {
		loadFuzzed(t, Options{}, map[string][]byte{"task.toml": toml, "instruction.md": instruction})
	})
}

// FuzzCounts: the file of counts may be anything; one that is taken is the same when it is read again.
func FuzzCounts(f *testing.F) {
	f.Add([]byte(countsHeader + "\n" + string(tallyLine("a", &tally{1, 4, 1, 2, 3, 1, 5, 6})) + string(pinLine(3, 4)) + `["torn`))
	f.Add([]byte(countsHeader + "\n[1,2,3]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "counts")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := OpenCounts(path)
		if err != nil {
			return
		}
		tallies, pins := len(b.tallies), len(b.pins)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := OpenCounts(path)
		if err != nil || len(again.tallies) != tallies || len(again.pins) != pins {
			t.Fatalf("read again: %v", err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
