package main

import (
	"encoding/json"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The study of the controller writes its document, its page and its figures, goes on from what is kept, and says
// what it does not know.
func TestStudyControl(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "control")
	arguments := []string{"study", "control", "--quick", "--seeds", "1", "--drift", "step", "--world", "rollout-bound", "--goal", "3.5", "--out", dir, "--json"}
	code, out, stderr := typed(t, arguments...)
	if code != failure.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var document struct {
		Command string `json:"command"`
		Cases   []struct {
			Drift, Goal string
			Arms        []struct {
				Arm, Failed     string
				Held, Staleness struct{ Mean float64 }
				RolloutsPerS    struct{ Mean float64 } `json:"rollouts_per_s"`
				OverOracle      struct{ Mean float64 } `json:"throughput_over_oracle"`
			} `json:"arms"`
		} `json:"cases"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	if document.Command != "go run ./cmd/lab study control --seeds 1 --drift step --world rollout-bound --goal 3.5 --quick" || len(document.Cases) != 1 || len(document.Cases[0].Arms) != 7 {
		t.Errorf("the document is %.300s", out)
	}
	for _, a := range document.Cases[0].Arms {
		if a.Failed != "" || !(a.RolloutsPerS.Mean > 0) || a.Held.Mean < 0 || a.Held.Mean > 1 {
			t.Errorf("%+v", a)
		}
		switch a.Arm {
		case "oracle":
			if a.OverOracle.Mean != 1 {
				t.Errorf("the oracle over itself is %v", a.OverOracle.Mean)
			}
		case "controller", "AReaL bound", "AReaL bound, best η":
			if !(a.Staleness.Mean > 0 && a.Staleness.Mean < 3.6) {
				t.Errorf("%s: mean staleness %v, want about 3.5 at most", a.Arm, a.Staleness.Mean)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "control.html"))
	if err != nil || !strings.Contains(string(page), "rollout-bound, mean ≤ 3.5: settings") {
		t.Errorf("the page: %v, %d bytes", err, len(page))
	}
	kept, err := os.ReadFile(filepath.Join(dir, keptFile))
	if err != nil {
		t.Fatal(err)
	}
	if code, again, stderr := typed(t, arguments...); code != failure.ExitDone || again != out {
		t.Errorf("exit code %d, the same study again comes to something else: %s", code, stderr)
	}
	if now, err := os.ReadFile(filepath.Join(dir, keptFile)); err != nil || string(now) != string(kept) {
		t.Error("what was simulated is simulated again")
	}
	for flag, wrong := range map[string]string{"--drift": "weather", "--world": "moon", "--goal": "soon", "--seeds": "-1"} {
		code, _, stderr := typed(t, "study", "control", "--quick", flag+"="+wrong)
		if code != failure.ExitUsage || !strings.Contains(stderr, flag) || flag != "--seeds" && !strings.Contains(stderr, wrong) {
			t.Errorf("%s %s: exit code %d: %s", flag, wrong, code, stderr)
		}
	}
}
