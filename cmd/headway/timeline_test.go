package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"github.com/headway-rl/headway/internal/failure"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A simulation's timeline and that of its trace are one and the same.
func TestTimeline(t *testing.T) {
	dir := t.TempDir()
	drawn, again, recorded := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json"), filepath.Join(dir, "trace.ndjson")
	file := document(t, simulated)
	stdout := first(t, "simulate", file, "--set=steps.warmup=null", "--timeline", drawn, "--timeline-steps=5", "--trace", recorded)
	if !strings.Contains(stdout, "5 train steps") || !strings.Contains(stdout, "ui.perfetto.dev") {
		t.Errorf("says\n%s", stdout)
	}
	if stdout := first(t, "replay", recorded, "--timeline", again, "--timeline-steps=5"); !strings.Contains(stdout, "identical") || !strings.Contains(stdout, "5 train steps") {
		t.Errorf("says\n%s", stdout)
	}
	a, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	events := func(text []byte) string { return string(text[strings.Index(string(text), "traceEvents"):]) }
	if events(a) != events(b) {
		t.Error("the trace is drawn otherwise")
	}
	var parsed struct{ TraceEvents []map[string]any }
	if err := json.Unmarshal(a, &parsed); err != nil || len(parsed.TraceEvents) < 5*32 {
		t.Errorf("%d events: %v", len(parsed.TraceEvents), err)
	}
	for _, test := range []struct {
		want      string
		arguments []string
	}{
		{"exists", []string{"simulate", file, "--timeline", drawn}},
		{"--timeline-steps -1", []string{"simulate", file, "--timeline", "x.json", "--timeline-steps=-1"}},
		{"--timeline-from -7", []string{"replay", recorded, "--timeline", "x.json", "--timeline-from=-7"}},
		{"say what --timeline draws", []string{"replay", recorded, "--timeline-steps=3"}},
		{"say what --timeline draws", []string{"replay", recorded, "--timeline-arrows=all"}},
		{"--timeline-arrows", []string{"simulate", file, "--timeline", "x.json", "--timeline-arrows=many"}},
		{"one simulation", []string{"simulate", file, "--timeline", "x.json", "--seeds=2"}},
	} {
		if code, _, stderr := headway(t, test.arguments...); code != failure.ExitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: code %d: %s", test.arguments, code, stderr)
		}
	}
	late := filepath.Join(dir, "late.json")
	if code, _, stderr := headway(t, "simulate", file, "--timeline", late, "--timeline-from=9999"); code != failure.ExitFailure || !strings.Contains(stderr, "before the first version") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if _, err := os.Stat(late); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that shows nothing stays: %v", err)
	}
	arrows := map[string]int{}
	for _, mode := range []string{"none", "last", "all"} {
		out := filepath.Join(dir, mode+".json")
		first(t, "replay", recorded, "--timeline", out, "--timeline-arrows", mode)
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		arrows[mode] = strings.Count(string(text), `"ph":"s"`)
	}
	if arrows["none"] != 0 || arrows["last"] == 0 || arrows["all"] <= 2*arrows["last"] {
		t.Errorf("arrows that begin: %v", arrows)
	}
}

// What a run has recorded so far is drawn, whether its last line is whole or not; of a trace that is
// damaged, or recorded under other rules, no file is left.
func TestTimelineOfUnfinishedTrace(t *testing.T) {
	dir := t.TempDir()
	recorded := filepath.Join(dir, "trace.ndjson")
	first(t, "simulate", document(t, simulated), "--trace", recorded)
	whole, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	torn := whole[:len(whole)*2/3]
	noEnd := torn[:bytes.LastIndexByte(torn, '\n')+1]
	if len(torn) == len(noEnd) {
		torn = torn[:len(torn)-3]
	}
	drawn := map[string]string{}
	for name, text := range map[string][]byte{"torn": torn, "without-end": noEnd} {
		out := filepath.Join(dir, name+".json")
		stdout := first(t, "replay", write(name, text), "--timeline", out, "--timeline-steps=0")
		if !strings.Contains(stdout, "identical so far") || !strings.Contains(stdout, "the run goes on, or was interrupted") {
			t.Errorf("%s says\n%s", name, stdout)
		}
		file, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(file) {
			t.Errorf("%s: the file is no JSON", name)
		}
		drawn[name] = string(file[bytes.Index(file, []byte("traceEvents")):])
	}
	if drawn["torn"] != drawn["without-end"] || !strings.Contains(drawn["torn"], `"end":"running"`) {
		t.Error("half a line changes what is drawn, or nothing is running at the end")
	}
	if code, _, stderr := headway(t, "replay", filepath.Join(dir, "torn")); code != failure.ExitFailure || !strings.Contains(stderr, "--resume") {
		t.Errorf("without a timeline: code %d: %s", code, stderr)
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	out := filepath.Join(dir, "damaged.json")
	if code, _, stderr := headway(t, "replay", write("damaged", damaged), "--timeline", out); code != failure.ExitFailure || stderr == "" {
		t.Errorf("a damaged trace: code %d: %s", code, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a damaged trace a file stays: %v", err)
	}
}
