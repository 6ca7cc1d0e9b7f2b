package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headway-rl/headway/explain/diagnosis"
)

// Every finding of every recorded run has a setting with its gain and its price, or says why there is none. A run on a
// processor is not told of GPUs, and no screen is longer than ten lines. TestRecorded holds the recordings to these outputs.
func TestRecordedFindingsHaveASettingOrAReason(t *testing.T) {
	archives, err := filepath.Glob(filepath.Join(recordedGolden, "*"+archiveSuffix))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no outputs: %v", err)
	}
	seen, changes := 0, 0
	for _, path := range archives {
		name := strings.TrimSuffix(filepath.Base(path), archiveSuffix)
		said, code, _ := strings.Cut(string(readArchive(t, path)["diagnosed"]), "\nexit code ")
		if !strings.HasPrefix(code, "0\n") {
			continue // a recording that is none to judge
		}
		var r diagnosis.Report
		if err := json.Unmarshal([]byte(said), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if lines := strings.Count(diagnosis.First(r).Text(80), "\n"); lines > 10 {
			t.Errorf("%s: the answer has %d lines", name, lines)
		}
		for _, f := range r.Findings {
			seen++
			switch c := f.Change; {
			case c == nil && f.NoSetting == "":
				t.Errorf("%s: %s names no setting, and no reason why", name, f.Code)
			case c != nil && (c.Set == "" || c.Price == "" || c.Gain == 0 && c.PeriodRatio == 1):
				t.Errorf("%s: %s: %+v lacks a setting, a gain or a price", name, f.Code, *c)
			case c != nil:
				changes++
			}
			if text := f.Title + f.NoSetting; r.Source == "run" && strings.Contains(text, "GPU") || f.Change != nil && r.Source == "run" && strings.Contains(f.Change.Set, "GPU") {
				t.Errorf("%s: %s tells a run on a processor of GPUs: %s", name, f.Code, text)
			}
		}
	}
	if seen < 50 || changes < 5 {
		t.Errorf("%d findings with %d changes were seen", seen, changes)
	}
}

// The table of a resimulation fits the terminal, whatever it compares.
func TestResimulateFitsTheTerminal(t *testing.T) {
	dir := t.TempDir()
	unpack(t, filepath.Join(recordedDir, "queue-drop"+archiveSuffix), filepath.Join(dir, "queue-drop"))
	for _, columns := range []int{80, 100, 140} {
		t.Setenv("COLUMNS", strconv.Itoa(columns))
		for _, arms := range [][]string{nil, {"--set", "queue.select=newest"}, {"--grid", "queue.factor=1,2"}} {
			_, stdout, stderr := headway(t, append([]string{"resimulate", filepath.Join(dir, "queue-drop")}, arms...)...)
			if !strings.Contains(stdout, "staleness") {
				t.Fatalf("%v: %s", arms, stderr)
			}
			for line := range strings.Lines(stdout) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns && !strings.Contains(line, dir) {
					t.Errorf("%v: a line of %d in %d columns: %s", arms, n, columns, line)
				}
			}
		}
	}
}
