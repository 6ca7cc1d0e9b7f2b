package main

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/metrics"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStudyControlLiveAccounting plays the study with simulations in place of live runs: both clocks then say
// the same of every arm, and runs of the same keys are made once.
func TestStudyControlLiveAccounting(t *testing.T) {
	var runs []string
	lives := study.ControlLiveRunner{Simulate: controlSimulate,
		Live: func(_ context.Context, document config.Config, shown metrics.Beside) (out study.ControlLived, err error) {
			out.Wasted, err = controlSimulate(document, shown)
			return out, err
		},
		Said: func(_, _ int, what string, seed uint64) { runs = append(runs, fmt.Sprint(what, seed)) },
	}
	opt := study.ControlLiveOptions{Seeds: 2, Quick: true, Drifts: study.ControlLiveDrifts[1:]}
	result, err := study.ControlLive(t.Context(), opt, lives)
	if err != nil {
		t.Fatal(err)
	}
	// Two goals share the runs of one fixed setting: of 3 arms each, 5 documents, or 6 if the settings differ.
	if n := len(runs); n != 2*2*5 && n != 2*2*6 {
		t.Errorf("%d runs, want each document once a seed: %s", n, strings.Join(runs, "; "))
	}
	if len(result.Cases) != 4 {
		t.Fatalf("%d cases, want two drifts with two goals each", len(result.Cases))
	}
	for _, c := range result.Cases {
		for _, a := range c.Arms {
			if a.Live.Failed != "" || a.Live.Held.Mean != a.Simulated.Held.Mean || a.Live.RolloutsPerS.Mean != a.Simulated.RolloutsPerS.Mean {
				t.Errorf("%s under %s: live %+v, simulated %+v", a.Arm, c.Drift, a.Live.Held, a.Simulated.Held)
			}
			// What holds live groups holds through a loss of engines: there the controller may rest.
			if moved := a.Live.Moves.Mean > 0; moved && a.Arm != "controller" || !moved && a.Arm == "controller" && c.Drift != "engines" {
				t.Errorf("%s under %s: %g moves", a.Arm, c.Drift, a.Live.Moves.Mean)
			}
		}
	}
	if _, err := json.Marshal(result); err != nil {
		t.Error(err)
	}
}

// TestStudyControlLiveQuick plays one drift live, and looks at what is written.
func TestStudyControlLiveQuick(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("it takes 15 s of wall time: make test-long has it, and whoever sets HEADWAY_LONG")
	}
	dir := t.TempDir()
	code, stdout, stderr := typed(t, "study", "control", "--live", "--quick", "--seeds", "1", "--drift", "engines", "--goal", "3", "--out", dir, "--json")
	if code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var document struct {
		Cases []struct {
			Arms []struct {
				Arm             string
				Live, Simulated struct {
					Failed string
					Held   struct{ Mean *float64 }
				}
			}
		}
		Conclusions []string
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Cases) != 1 || len(document.Cases[0].Arms) != 3 || len(document.Conclusions) != 1 {
		t.Fatalf("%s", stdout)
	}
	for _, a := range document.Cases[0].Arms {
		if a.Live.Failed != "" || a.Simulated.Failed != "" || a.Live.Held.Mean == nil {
			t.Errorf("%s: %+v", a.Arm, a)
		}
	}
	for _, name := range []string{"control-live.md", "control-live.html", "control-live.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStudyControlLiveRefuses(t *testing.T) {
	for want, arguments := range map[string][]string{
		"there is none named \"step\"": {"--live", "--drift", "step"}, "is of --live": {"--simulated"}, "of one world": {"--live", "--world", "train-bound"},
		"is no goal": {"--live", "--goal", "soon"},
	} {
		code, _, stderr := typed(t, append([]string{"study", "control"}, arguments...)...)
		if code != failure.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: code %d, %q, want %q", arguments, code, stderr, want)
		}
	}
}
