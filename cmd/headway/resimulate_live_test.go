package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pacedRun are settings of an embedded run whose speeds the machine does not decide, as long
// as it has time for it: a decode step and a train step take as long as a GPU's would.
var pacedRun = []string{"engines.0.decode_step_s=0.01", "trainer.step_s=0.12", "trainer.steps=240", "queue.policy=drop"}

// liveArms are settings that are resimulated, and really run.
var liveArms = []string{"queue.factor=2", "rollout.concurrency=64", "train.batch=64", "queue.policy=block queue.factor=2", "queue.policy=max queue.max_staleness=2 queue.factor=2"}

// Tolerances of the mean staleness.
const (
	ownTolerance   = 0.03
	otherTolerance = 0.05
	// quietSpread is how far two recordings of the same settings, one before and one after, may
	// differ in what they say of a third for the machine to count as quiet.
	quietSpread = 0.05
	liveTries   = 3
)

// TestResimulationHoldsAgainstRuns holds resimulation to runs: of a run's own settings, and of
// others that are then really run, between two recordings of the base. Where these two disagree, the
// machine was busy with something else, and nothing can be said: the arm is tried again.
func TestResimulationHoldsAgainstRuns(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("it takes some minutes of runs: make test-long has it, and whoever sets HEADWAY_LONG")
	}
	dir := t.TempDir()
	base := recordRun(t, dir, "base-0", "")
	for i, arm := range liveArms {
		for try := 1; ; try++ {
			name := strings.NewReplacer(" ", "-", "=", "-").Replace(arm)
			real := recordRun(t, dir, name+"-"+string(rune('0'+try)), arm)
			after := recordRun(t, dir, name+"-base-"+string(rune('0'+try)), "")
			first, second := resimulatedAs(t, base, arm), resimulatedAs(t, after, arm)
			before := base
			base = after
			predicted, spread := (first+second)/2, math.Abs(first-second)/((first+second)/2)
			measured := own(t, real)
			off := predicted/measured - 1
			t.Logf("arm %d: %s: resimulated %.3f and %.3f, really run %.3f: %+.1f %% (recordings apart by %.1f %%)", i+1, arm, first, second, measured, 100*off, 100*spread)
			if err := errors.Join(os.RemoveAll(before), os.RemoveAll(real)); err != nil { // tens of megabytes each
				t.Fatal(err)
			}
			if math.Abs(off) <= otherTolerance {
				break
			}
			if spread <= quietSpread && try == liveTries {
				t.Errorf("%s: %.3f resimulated, %.3f run", arm, predicted, measured)
			}
			if try == liveTries {
				t.Logf("%s: the machine was too busy to say", arm)
				break
			}
		}
	}
}

// recordRun makes an embedded run and returns its directory.
func recordRun(t *testing.T, dir, name, arm string) string {
	t.Helper()
	arguments := []string{"run", "--no-dashboard", "--json", "--dir", dir, "--name", name}
	for _, key := range append(append([]string{}, pacedRun...), strings.Fields(arm)...) {
		arguments = append(arguments, "--set", key)
	}
	first(t, arguments...)
	return filepath.Join(dir, name)
}

// resimulatedAs is the mean staleness of a run resimulated under an arm.
func resimulatedAs(t *testing.T, run, arm string) float64 {
	t.Helper()
	arguments := []string{"resimulate", run, "--json"}
	for _, key := range strings.Fields(arm) {
		arguments = append(arguments, "--set", key)
	}
	var doc resimulationFigures
	if err := json.Unmarshal([]byte(first(t, arguments...)), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Staleness.Mean
}

type resimulationFigures struct {
	Staleness struct{ Mean float64 }
	Measured  struct{ Staleness struct{ Mean float64 } }
}

// own is a run's measured mean staleness, after its own settings' resimulation has been held to it.
func own(t *testing.T, run string) float64 {
	t.Helper()
	var doc resimulationFigures
	if err := json.Unmarshal([]byte(first(t, "resimulate", run, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	off := doc.Staleness.Mean/doc.Measured.Staleness.Mean - 1
	t.Logf("%s: own settings %.3f, measured %.3f: %+.1f %%", filepath.Base(run), doc.Staleness.Mean, doc.Measured.Staleness.Mean, 100*off)
	if math.Abs(off) > ownTolerance {
		t.Errorf("%s: its own settings give %.4f, it had %.4f", run, doc.Staleness.Mean, doc.Measured.Staleness.Mean)
	}
	return doc.Measured.Staleness.Mean
}
