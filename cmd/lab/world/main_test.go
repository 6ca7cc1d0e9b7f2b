package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/program/programtest"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
)

func TestMain(m *testing.M) {
	programtest.Main()
	os.Exit(m.Run())
}

// typed runs one command line with the fake of the world's program, and returns what a shell would see.
func typed(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, diagnostics bytes.Buffer
	code = world.Main(append(arguments, "--program", path), strings.NewReader(""), &out, &diagnostics)
	return code, out.String(), diagnostics.String()
}

// contains checks what a command has printed.
func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestRun(t *testing.T) {
	code, stdout, stderr := typed(t, "run", "7")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	contains(t, stdout, "2 planes with a broker, 2 engines, 3 workers, 1 receiver", "1.500 s  kill plane1, for 300ms, n 10", "cut plane0 – broker, both ways, for 3s", "steps     24", "kill 3, cut 1")

	code, stdout, stderr = typed(t, "run", fmt.Sprint(programtest.Violated))
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, stdout, "BROKEN    once: rollout 7 ended twice", "BROKEN    twice: ")
	contains(t, stderr, "seed 1001 fails: once: rollout 7 ended twice")

	code, _, stderr = typed(t, "run", fmt.Sprint(programtest.Panicked))
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, stderr, "goroutine 1", "seed 1003 fails: panic: panic: index out of range")

	code, stdout, _ = typed(t, "run", "20", "--json")
	var said struct {
		Seed  uint64
		Short string
		Steps int
	}
	if err := json.Unmarshal([]byte(stdout), &said); code != 0 || err != nil || said.Seed != 20 || said.Short != "fewer than 20 steps" || said.Steps != 3 {
		t.Errorf("exit code %d, %v: %s", code, err, stdout)
	}
}

func TestRunKeeps(t *testing.T) {
	dir := t.TempDir()
	kept, file, history := filepath.Join(dir, "kept"), filepath.Join(dir, "plan.json"), filepath.Join(dir, "history.ndjson")
	if code, _, stderr := typed(t, "run", "7", "--keep", kept, "--plan", file, "--history", history); code != 0 {
		t.Fatal(stderr)
	}
	if _, err := os.Stat(history); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(kept, "left")); err != nil {
		t.Error(err)
	}
	code, stdout, stderr := typed(t, "run", file)
	if code != 1 {
		t.Errorf("exit code %d of a plan that fails", code)
	}
	contains(t, stdout, "BROKEN    shrinks")
	contains(t, stderr, "seed 7 fails: shrinks")
	for _, refused := range [][]string{{"run", "7", "--keep", kept}, {"run", filepath.Join(dir, "missing.json")}, {"run"}, {"run", "7", "--doctored", "1"}} {
		if code, _, stderr := typed(t, refused...); code != 2 || stderr == "" {
			t.Errorf("%v: exit code %d: %s", refused, code, stderr)
		}
	}
	if code, _, stderr := typed(t, "run", "7", "--trace", filepath.Join(dir, "trace")); code != 1 || !strings.Contains(stderr, traceName) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestCopyTrace(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	for _, name := range []string{"plane0", "plane1"} {
		path := filepath.Join(dir, name, "runs", "serve", traceName)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for named, want := range map[string]string{"": "plane1", "plane0/runs/serve/" + traceName: "plane0"} {
		if err := copyTrace(dir, named, to); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(to); err != nil || string(text) != want {
			t.Errorf("%q is the trace of %q, %v; want %s's", named, text, err, want)
		}
	}
}

func TestSoak(t *testing.T) {
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger.json")
	soaked := func(seeds string, more ...string) (int, soakReport, string) {
		t.Helper()
		code, stdout, stderr := typed(t, append([]string{"soak", "--seeds", seeds, "--ledger", ledger, "--json"}, more...)...)
		var r soakReport
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("%v: %s%s", err, stdout, stderr)
		}
		return code, r, stderr
	}
	code, r, _ := soaked("1-20")
	if code != 0 || !r.Complete || r.Ran != 20 || r.Totals.Counting != 18 || r.Totals.Faults["kill"] != 60 {
		t.Errorf("exit code %d, %+v", code, r)
	}
	code, r, stderr := soaked("11-30,1001-1003")
	if code != 1 || !r.Complete || r.Ran != 13 || r.Totals.Seeds != 33 || len(r.Failures) != 3 {
		t.Errorf("exit code %d, %+v", code, r)
	}
	contains(t, stderr, "3 seeds of 33 failed, the first is 1001: once: rollout 7 ended twice", "go run ./cmd/lab/world run "+filepath.Join(dir, "ledger-failures", "seed-1001.json"))
	if s, err := soak.ReadScript(r.Failures[0].Script); err != nil || s.Seed != 1001 {
		t.Errorf("%+v, %v", s, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "ledger-failures", "seed-1003.txt"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), "panic: index out of range", "goroutine 1")
	if code, r, _ := soaked("1-2", "--again"); code != 0 || r.Ran != 2 || r.Totals.Seeds != 2 {
		t.Errorf("exit code %d, %+v", code, r)
	}
	if code, r, _ := soaked("1001-1100", "--again", "--failures-max", "2", "--jobs", "1"); code != 1 || r.Complete || len(r.Failures) != 2 {
		t.Errorf("exit code %d, %+v", code, r)
	}
	code, stdout, _ := typed(t, "soak", "--seeds", "1-10,1001")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, stdout, "11, 9 of them count", "fewer than 20 steps 1", "kill 33", "FAILED    seed 1001: once: rollout 7 ended twice", "seed-1001.json")
	if code, _, stderr := typed(t, "soak", "--seeds", "ten"); code != 2 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Every plan that is kept can be run, and says what it found.
func TestKeptPlans(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		if s, err := soak.ReadScript(path); err != nil || s.Comment == "" || s.Rule == "" {
			t.Errorf("%s: %+v, %v", path, s, err)
		}
	}
}
