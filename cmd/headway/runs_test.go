package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/catalog"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/lock"
)

// folderOfRuns makes a run, and of it: one that died, one that a process writes, one without an event. Beside them lies
// what is no run. The names are by age, the first the newest.
func folderOfRuns(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	code, _, stderr := headway(t, "run", "--steps", "2", "--dir", folder, "--name", "0-complete", "--no-dashboard", "--set", "train.batch=8", "--set", "rollout.group_size=4")
	if code != failure.ExitDone {
		t.Fatal(stderr)
	}
	whole := filepath.Join(folder, "0-complete")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"1-died", "2-running", "3-empty"} {
		dir := filepath.Join(folder, name)
		must(os.CopyFS(dir, os.DirFS(whole)))
		log := trace.Path(dir)
		info, err := os.Stat(log)
		must(err)
		switch name {
		case "1-died":
			must(os.Truncate(log, info.Size()/2))
		case "2-running":
			held, err := lock.Take(filepath.Join(dir, "state", "lock"), dir)
			must(err)
			t.Cleanup(held.Release)
		case "3-empty":
			must(os.Truncate(log, 0))
			must(os.Remove(filepath.Join(dir, "metrics.jsonl")))
		}
		then := time.Now().Add(-time.Duration(i+1) * 40 * 24 * time.Hour)
		must(os.Chtimes(log, then, then))
		_ = os.Chtimes(filepath.Join(dir, "metrics.jsonl"), then, then)
	}
	must(os.MkdirAll(filepath.Join(folder, "notes", "state"), 0o700))
	for _, name := range []string{"notes/config.yaml", "notes/state/lock", "notes/serve.json", "readme.txt"} {
		must(os.WriteFile(filepath.Join(folder, name), []byte("{}"), 0o600))
	}
	outside := filepath.Join(t.TempDir(), "outside")
	must(os.CopyFS(outside, os.DirFS(whole)))
	must(os.Symlink(outside, filepath.Join(folder, "link")))
	return folder
}

// listed are the runs that a command prints as JSON.
func listed(t *testing.T, arguments ...string) (names, states []string, all []catalog.Run) {
	t.Helper()
	code, stdout, stderr := headway(t, append(arguments, "--json")...)
	var doc struct{ Runs []catalog.Run }
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != failure.ExitDone {
		t.Fatalf("%v: code %d, %v, %s", arguments, code, err, stderr)
	}
	for _, r := range doc.Runs {
		names, states = append(names, r.Name), append(states, r.State)
	}
	return names, states, doc.Runs
}

// Runs are listed by what became of them, and clean removes old ones alone: never one that goes on, and nothing that is
// no run.
func TestRunsAndClean(t *testing.T) {
	folder := folderOfRuns(t)
	_, states, all := listed(t, "runs", "--dir", folder)
	if want := []string{catalog.Complete, catalog.Died, catalog.Running, catalog.Empty}; !slices.Equal(states, want) {
		t.Fatalf("states are %v, want %v", states, want)
	}
	if r := all[0]; r.Steps != 2 || r.Planned != 2 || r.Reward == nil || r.Loss == nil || r.Bytes < 1000 || r.Command != "run" || r.Ended != "steps" {
		t.Errorf("the complete run is %+v", r)
	}
	if r := all[3]; r.Steps != 0 || r.Reward != nil || all[2].PID == "" {
		t.Errorf("the empty run is %+v, and %q writes the running one", r, all[2].PID)
	}
	if _, stdout, _ := headway(t, "runs", "--dir", folder); !strings.Contains(stdout, "2 of 2") || !strings.Contains(stdout, "running as ") || strings.Contains(stdout, "notes") {
		t.Errorf("the table is\n%s", stdout)
	}
	for _, test := range []struct {
		arguments, want []string
	}{
		{nil, []string{"1-died", "3-empty"}},
		{[]string{"--older", "100d"}, []string{"3-empty"}},
		{[]string{"--keep", "1"}, []string{"1-died", "3-empty"}},
		{[]string{"--keep", "3"}, []string{"3-empty"}},
		{[]string{"--older", "0s"}, []string{"0-complete", "1-died", "3-empty"}},
		{[]string{"--older", "100d", "--keep", "4"}, nil},
	} {
		arguments := append([]string{"clean", "--dir", folder, "--dry-run"}, test.arguments...)
		if names, _, _ := listed(t, arguments...); !slices.Equal(names, test.want) {
			t.Errorf("%v: %v, want %v", test.arguments, names, test.want)
		}
	}
	code, stdout, stderr := headway(t, "clean", "--dir", folder)
	if code != failure.ExitUsage || !strings.Contains(stderr, "--yes") {
		t.Errorf("without a terminal: code %d, %s%s", code, stdout, stderr)
	}
	for _, bad := range [][]string{{"--older", "soon"}, {"--older", "-1d"}, {"--older", "1e300d"}, {"--keep", "-1"}} {
		if code, _, stderr := headway(t, append([]string{"clean", "--yes", "--dir", folder}, bad...)...); code != failure.ExitUsage {
			t.Errorf("%v: code %d, %s", bad, code, stderr)
		}
	}
	before := entries(t, folder)
	answer(t, folder, "\n")
	if now := entries(t, folder); !slices.Equal(now, before) {
		t.Errorf("after a no %v are left of %v", now, before)
	}
	answer(t, folder, "y\n")
	want := []string{"0-complete", "2-running", "link", "notes", "readme.txt"}
	if now := entries(t, folder); !slices.Equal(now, want) {
		t.Errorf("after a yes %v are left, want %v", now, want)
	}
	if err := catalog.Remove(filepath.Join(folder, "2-running")); err == nil || !strings.Contains(err.Error(), "being written") {
		t.Errorf("removing a running run: %v", err)
	}
	if code, stdout, stderr := headway(t, "clean", "--json", "--older", "999d", "--dir", folder); code != failure.ExitDone || !strings.Contains(stdout, `"runs": []`) {
		t.Errorf("clean --json of nothing wants an answer: code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := headway(t, "clean", "--yes", "--older", "0s", "--dir", folder); code != failure.ExitDone {
		t.Errorf("clean --yes: code %d, %s", code, stderr)
	}
	if now := entries(t, folder); !slices.Equal(now, want[1:]) {
		t.Errorf("%v are left, want %v", now, want[1:])
	}
}

// answer runs clean at a terminal, and answers its question.
func answer(t *testing.T, folder, text string) {
	t.Helper()
	var out, asked bytes.Buffer
	a := &app.Process{Stdin: strings.NewReader(text), Stdout: &out, Stderr: &asked, Now: time.Now, Getenv: func(string) string { return "" }}
	a.IsTerminal = func(stream any) bool { _, is := stream.(io.Reader); return is }
	clean := &cleanCmd{runsFolder: runsFolder{Dir: folder}}
	if err := clean.Run(a); err != nil || !strings.Contains(asked.String(), "remove 2 runs") {
		t.Errorf("%v, asked %q, printed\n%s", err, asked.String(), out.String())
	}
}

// entries are the names in a folder.
func entries(t *testing.T, folder string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
