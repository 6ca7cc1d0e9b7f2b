package main

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// fitsAnswer holds a command's answer to ten lines of 80 columns.
func fitsAnswer(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 10 {
		t.Errorf("%d lines of an answer, where ten are read:\n%s", len(lines), text)
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d columns of an answer: %q", n, line)
		}
	}
}

// Every command that judges answers first, in ten lines; what is behind it reflows to the terminal.
func TestAnswersFirst(t *testing.T) {
	skipShort(t)
	runs := t.TempDir()
	var names []string
	var diagnoses [][]string
	archives, _ := filepath.Glob(filepath.Join(recordedDir, "*"+archiveSuffix))
	for _, path := range archives {
		name := filepath.Join(runs, strings.TrimSuffix(filepath.Base(path), archiveSuffix))
		unpack(t, path, name)
		names, diagnoses = append(names, name), append(diagnoses, []string{"diagnose", "--quick", name})
	}
	wide := map[string]int{"80": 80, "140": 140}
	for i, line := range append([][]string{
		{"predict", "--concurrency=128", "--batch=128", "--utilization=1.07", "--tail-multiplier=1.44"},
		{"doctor"}, {"doctor", "../../examples/verl.yaml"}, {"doctor", "../../examples/rollout-bound.yaml"},
		append([]string{"compare"}, names[:5]...), {"compare", names[30], names[31], names[32]},
	}, diagnoses...) {
		_, stdout, stderr := headway(t, line...)
		if stdout == "" {
			t.Errorf("%q: %s", line, stderr)
		}
		fitsAnswer(t, stdout)
		if i > 5 && i%8 > 0 { // one printer lays all out
			continue
		}
		for columns, most := range wide {
			t.Setenv("COLUMNS", columns)
			_, full, _ := headway(t, append(line, "--full")...)
			if !strings.HasPrefix(full, stdout[:strings.LastIndexByte(strings.TrimSuffix(stdout, "\n"), '\n')]) || strings.Count(full, "\n") < strings.Count(stdout, "\n") {
				t.Errorf("%q: what --full begins with is not the answer:\n%s\n%s", line, stdout, full)
			}
			for _, row := range strings.Split(full, "\n") {
				if n := utf8.RuneCountInString(row); n > most && !strings.Contains(row, "/") { // a path is a word
					t.Errorf("%q: %d columns of %d: %q", line[:2], n, most, row)
				}
			}
		}
	}
}
