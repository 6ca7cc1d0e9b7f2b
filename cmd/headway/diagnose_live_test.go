package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headway-rl/headway/explain/diagnosis"
)

// liveRegimes are embedded runs: a few keys over a run of the task reverse each.
var liveRegimes = map[string][]string{
	"a queue of four batches": {"queue.factor=4"},
	"four steps a sync":       {"queue.policy=drop", "sync.every=4", "train.batch=64"},
	"a wide bound":            {"queue.policy=bounded", "queue.eta=3", "train.batch=64"},
}

// liveGain is the least predicted gain that live runs are held to: two of them on a shared machine
// differ by some percent without any change.
const liveGain = 0.15

// liveOff is by how much a gain predicted of a live run may be off, as a share of it.
const liveOff = 0.2

// TestLiveGainsHold makes the changes that a diagnosis of embedded runs suggests in runs of their own.
func TestLiveGainsHold(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("it takes some minutes: make test-long has it, and whoever sets HEADWAY_LONG")
	}
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(liveRegimes)) {
		base := liveRun(t, dir, liveRegimes[name])
		if !base.Settled.OK {
			t.Errorf("%s: not settled: %s", name, base.Settled.Why)
			continue
		}
		made := 0
		for _, f := range base.Findings {
			c := f.Change
			if c == nil || c.Gain < liveGain || len(c.Overrides) == 0 {
				continue
			}
			after := liveRun(t, dir, append(slices.Clone(liveRegimes[name]), c.Overrides...))
			was, is := stalenessOf(t, base), stalenessOf(t, after)
			gain := 1 - is/was
			made++
			t.Logf("%s, %s: %s: staleness %.1f %% lower predicted, %.1f %% made (%.3f to %.3f)", name, f.Code, c.Set, 100*c.Gain, 100*gain, was, is)
			if off := c.Gain/gain - 1; !(off > -liveOff && off < liveOff) {
				t.Errorf("%s, %s: off by %.0f %%", name, f.Code, 100*off)
			}
		}
		if made == 0 {
			t.Errorf("%s: no change with a gain of at least %.0f %% was suggested", name, 100*liveGain)
		}
	}
}

// liveRun makes a run and diagnoses it.
func liveRun(t *testing.T, dir string, overrides []string) diagnosis.Report {
	t.Helper()
	stores, err := os.MkdirTemp(dir, "run")
	if err != nil {
		t.Fatal(err)
	}
	var done runReport
	headwayJSON(t, &done, append(withSets([]string{"run"}, append(slices.Clone(overrides), "trainer.steps=500")...), "--no-dashboard", "--dir", stores, "--name", "r")...)
	var r diagnosis.Report
	headwayJSON(t, &r, "diagnose", filepath.Join(stores, "r"))
	return r
}

// stalenessOf is the mean staleness that a diagnosis measured.
func stalenessOf(t *testing.T, r diagnosis.Report) float64 {
	t.Helper()
	for _, c := range r.Compared {
		if c.What == "staleness_mean" {
			return c.Measured
		}
	}
	t.Fatalf("%s: no mean staleness: %s", r.Run, r.Settled.Why)
	return 0
}
