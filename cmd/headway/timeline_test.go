package main

import (
	"encoding/json"
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
		{"one simulation", []string{"simulate", file, "--timeline", "x.json", "--seeds=2"}},
	} {
		if code, _, stderr := headway(t, test.arguments...); code != exitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: code %d: %s", test.arguments, code, stderr)
		}
	}
	late := filepath.Join(dir, "late.json")
	if code, _, stderr := headway(t, "simulate", file, "--timeline", late, "--timeline-from=9999"); code != exitFailure || !strings.Contains(stderr, "before the first version") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
