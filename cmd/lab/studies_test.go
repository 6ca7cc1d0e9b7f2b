package main

import (
	"encoding/json"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStudies(t *testing.T) {
	code, out, _ := typed(t, "study")
	if code != failure.ExitDone {
		t.Errorf("exit code %d", code)
	}
	for _, s := range studyList {
		if !strings.Contains(out, s.Name) {
			t.Errorf("the list lacks %s:\n%s", s.Name, out)
		}
	}
	var list []studyEntry
	if code, out, _ := typed(t, "study", "--json"); code != failure.ExitDone || json.Unmarshal([]byte(out), &list) != nil || len(list) != len(studyList) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// The study writes its files, and goes on from them.
func TestStudyHold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "study")
	arguments := []string{"study", "hold", "--quick", "--seeds", "2", "--warmup", "20", "--measured", "40", "--out", dir, "--json"}
	code, out, stderr := typed(t, arguments...)
	if code != failure.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var document struct {
		Command string `json:"command"`
		Seeds   int    `json:"seeds"`
		Grid    []struct {
			Rule      string `json:"rule"`
			Staleness struct {
				Mean     float64    `json:"mean"`
				Interval [2]float64 `json:"interval_95"`
			} `json:"staleness"`
		} `json:"grid"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	if document.Seeds != 2 || len(document.Grid) == 0 || !strings.HasPrefix(document.Command, "go run ./cmd/lab study hold") {
		t.Errorf("the document is %.300s", out)
	}
	for _, row := range document.Grid {
		if !(row.Staleness.Interval[0] <= row.Staleness.Mean && row.Staleness.Mean <= row.Staleness.Interval[1] && row.Staleness.Mean > 0) {
			t.Errorf("%s: staleness %+v", row.Rule, row.Staleness)
		}
	}
	for _, name := range []string{"hold.md", "hold-ideas.md", "hold.csv", "hold.json", keptFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, keptFile))
	if err != nil {
		t.Fatal(err)
	}
	code, again, stderr := typed(t, arguments...)
	if code != failure.ExitDone || again != out {
		t.Errorf("exit code %d, the same study again comes to something else: %s", code, stderr)
	}
	if now, err := os.ReadFile(filepath.Join(dir, keptFile)); err != nil || string(now) != string(kept) {
		t.Error("what was simulated is simulated again")
	}
}

func TestStudyRefuses(t *testing.T) {
	for _, test := range []struct {
		name      string
		arguments []string
		want      string
	}{
		{"no seeds", []string{"study", "hold", "--seeds", "0"}, "--seeds 0"},
		{"no time", []string{"study", "presets", "--wall", "0"}, "--wall 0"},
		{"no such arm", []string{"study", "presets", "--arm", "grpo"}, "queue-drop, q=2"},
		{"no such scenario", []string{"study", "presets", "--scenario", "rain"}, "plain"},
		{"no such folder", []string{"study", "hold", "--quick", "--out", "/dev/null/x"}, "--out"},
		{"no such study", []string{"study", "drop"}, "staleness and presets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := typed(t, test.arguments...)
			if code != failure.ExitUsage || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want 2 and %q: %s", code, test.want, stderr)
			}
		})
	}
}

// Live arms learn for equal time; what they reached is evaluated afterwards.
func TestStudyLive(t *testing.T) {
	dir := t.TempDir()
	code, out, stderr := typed(t, "study", "presets", "--quick", "--scenario", "plain", "--arm", "q=1", "--arm", "synchronous", "--json", "--out", dir)
	if code != failure.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var document struct {
		Contests []struct {
			Comparison struct {
				Seeds    []int    `json:"seeds"`
				Warnings []string `json:"warnings"`
				Arms     []struct {
					Name    string `json:"name"`
					Figures map[string]struct {
						Mean float64 `json:"mean"`
					} `json:"figures"`
					Curve []struct{} `json:"curve"`
				} `json:"arms"`
			} `json:"comparison"`
		} `json:"contests"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil || len(document.Contests) != 1 {
		t.Fatalf("%v: %.300s", err, out)
	}
	c := document.Contests[0].Comparison
	if len(c.Arms) != 2 || len(c.Seeds) != 1 || len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0], "no result") {
		t.Errorf("%d arms, seeds %v, warnings %q", len(c.Arms), c.Seeds, c.Warnings)
	}
	for _, arm := range c.Arms {
		if arm.Figures["steps"].Mean < 1 || len(arm.Curve) < 2 {
			t.Errorf("%s made %g steps, its curve has %d points", arm.Name, arm.Figures["steps"].Mean, len(arm.Curve))
		}
	}
	if s := c.Arms[1].Figures["staleness_mean"].Mean; c.Arms[1].Name != "synchronous" || s != 0 {
		t.Errorf("%s has a staleness of %g", c.Arms[1].Name, s)
	}
	for _, name := range []string{"presets-plain.html", "presets-plain.md", "presets-plain.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
