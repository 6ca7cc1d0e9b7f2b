package main

import (
	"encoding/json"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The study of accuracy writes its document and its figures, and refuses what it
// cannot measure.
func TestStudyAccuracy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "accuracy")
	code, out, stderr := typed(t, "study", "accuracy", "--small", "--steps", "100", "--out", dir, "--json")
	if code != failure.ExitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var document struct {
		Command string `json:"command"`
		Rows    []struct {
			Rho       float64 `json:"rho"`
			Simulated struct {
				Mean float64 `json:"mean"`
			} `json:"simulated"`
			Forms []struct {
				Mean float64 `json:"mean"`
			} `json:"forms"`
		} `json:"rows"`
		Verdicts []struct {
			Claim string `json:"claim"`
		} `json:"conclusions"`
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	if document.Command != "go run ./cmd/lab study accuracy --small --steps 100" || len(document.Rows) < 30 || len(document.Verdicts) == 0 {
		t.Errorf("the document is %.300s", out)
	}
	for _, r := range document.Rows {
		if last := len(r.Forms) - 1; last < 1 || !(r.Simulated.Mean > 0) || !(r.Forms[last].Mean > 0) {
			t.Errorf("row %+v", r)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "theory-accuracy.md"))
	if err != nil || !strings.Contains(string(page), "# Reference: how far are the closed forms from simulation?") {
		t.Errorf("theory-accuracy.md: %v: %.200s", err, page)
	}
	if code, _, stderr := typed(t, "study", "accuracy", "--steps", "-3"); code != failure.ExitUsage || !strings.Contains(stderr, "--steps") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
