package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The newest small inputs are kept, and no more than were asked for.
func TestCopyNewest(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "testdata", "fuzz", "FuzzX")
	for i, name := range []string{"oldest", "old", "new", "large"} {
		path, text := filepath.Join(from, name), make([]byte, 1)
		if name == "large" {
			text = make([]byte, keptBytesMax+1)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyNewest(from, to, 2); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, []string{"new", "old"}) {
		t.Errorf("kept %v", names)
	}
	if err := copyNewest(filepath.Join(from, "missing"), to, 2); err != nil {
		t.Errorf("nothing was found: %v", err)
	}
}

// Every target that is declared is found, without those of testdata.
func TestWithTargets(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{"a/x_test.go": "package a\n\nfunc FuzzX(f *testing.F) {}\n", "b/x.go": "package b\n\nfunc FuzzX() {}\n", "c/testdata/x_test.go": "package c\n\nfunc FuzzX() {}\n", "d/x_test.go": "package d\n"} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	for which, want := range map[string][]string{"": {"./a"}, "a.FuzzX": {"./a"}, "FuzzY": nil} {
		if found, err := withTargets(".", regexp.MustCompile(which)); err != nil || !slices.Equal(found, want) {
			t.Errorf("%q: %v, %v", which, found, err)
		}
	}
}

// The end of -fuzztime is told from an input that fails, also from one that fails by a deadline of its own.
func TestOutOfTime(t *testing.T) {
	const ended = "fuzz: elapsed: 30s, execs: 1 (0/sec), new interesting: 0 (total: 3)\n--- FAIL: FuzzX (30.02s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\tx\t30.1s\n"
	for name, c := range map[string]struct {
		said string
		want bool
	}{
		"time":          {ended, true},
		"another":       {strings.ReplaceAll(ended, "FuzzX", "FuzzY"), false},
		"input":         {"--- FAIL: FuzzX (3.02s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n", false},
		"input at last": {strings.Replace(ended, "exit status", "    Failing input written to testdata/fuzz/FuzzX/1\nexit status", 1), false},
		"hung":          {"--- FAIL: FuzzX (3.02s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n", false},
		"seed":          {"failure while testing seed corpus entry: FuzzX/seed#0\n" + strings.Replace(ended, "    context", "    --- FAIL: FuzzX (0.00s)\n        context", 1), false},
		"passed":        {"PASS\n", false},
	} {
		if got := outOfTime(c.said, "FuzzX"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
