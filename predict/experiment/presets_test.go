package experiment

import (
	"fmt"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
)

// presetCase is a small simulation under a preset.
func presetCase(t *testing.T, name string, overrides ...string) Case {
	t.Helper()
	cases, err := casesOf(t, append([]string{"preset=" + name}, overrides...)...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return cases[0]
}

// Every preset simulates without a stall, whichever side waits, with syncs that
// take time, and keeps to the bound it is named for.
func TestEveryPresetSimulates(t *testing.T) {
	for _, p := range config.Presets() {
		for _, variant := range [][]string{
			{"modelled.train.utilization=0.6"}, {"modelled.train.utilization=1.6", "modelled.sync.time_s=3"},
			{"modelled.sync.time_s=1", "modelled.sync.prefill_tokens_per_s=2000", "rollout.start=gang", "rollout.redundancy=1"},
		} {
			c := presetCase(t, p.Name, variant...)
			doc, err := simulate(c)
			if err != nil {
				t.Errorf("%s with %v: %v", p.Name, variant, err)
				continue
			}
			if want := int64(c.Document.Steps.Warmup + c.Document.Steps.Measured); doc.Ledger.Trained < want*int64(c.Document.Train.Batch) {
				t.Errorf("%s with %v trained %d rollouts", p.Name, variant, doc.Ledger.Trained)
			}
			checkPresetBound(t, c, doc, variant)
		}
	}
}

// checkPresetBound checks what a preset's rule promises.
func checkPresetBound(t *testing.T, c Case, doc Simulation, variant []string) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Errorf("%s with %v: %s", c.Document.Preset, variant, fmt.Sprintf(format, args...))
	}
	s, q := doc.Staleness, c.Document.Queue
	switch c.Document.Preset {
	case "areal", "skyrl":
		if s.Mean > q.Eta+1e-9 {
			bad("mean staleness %g is over eta %g", s.Mean, q.Eta)
		}
	case "prime-rl", "nemo-windowed":
		if s.Max > loop.Version(q.MaxStaleness) {
			bad("staleness %d is over the budget %d", s.Max, q.MaxStaleness)
		}
	case "verl-fully-async", "one-step-off":
		most := float64(loopLiveMax(c))/float64(c.Document.Sync.Every*c.Document.BatchGroups()) - 1
		if s.MeanSyncs > most+1e-9 {
			bad("%g syncs on average, the threshold allows %g", s.MeanSyncs, most)
		}
	case "synchronous":
		if s.Max > 0 {
			bad("staleness %d of a synchronous schedule", s.Max)
		}
	}
	if doc.Ledger.Evicted > 0 && q.Policy != "drop" && q.Policy != "max" {
		bad("%d evicted, which policy %s never does", doc.Ledger.Evicted, q.Policy)
	}
}

// The ends of verl's threshold: with rollouts that are fast enough 1 is one step
// off, and 0 with a sync every step is synchronous, whichever side waits.
func TestThresholdEnds(t *testing.T) {
	fast, err := simulate(presetCase(t, "one-step-off", "modelled.train.utilization=8"))
	if err != nil {
		t.Fatal(err)
	}
	if fast.Staleness.Mean != 1 || fast.Staleness.Max != 1 {
		t.Errorf("one step off: mean %g, max %d versions", fast.Staleness.Mean, fast.Staleness.Max)
	}
	for _, utilization := range []string{"0.5", "8"} {
		cases, err := casesOf(t, "queue={policy: threshold, staleness_threshold: 0}",
			"sync={mode: drain, trainer: blocked}", "modelled.sync={time_s: 1}", "modelled.train.utilization="+utilization)
		if err != nil {
			t.Fatal(err)
		}
		threshold, err := simulate(cases[0])
		if err != nil {
			t.Fatal(err)
		}
		synchronous, err := simulate(presetCase(t, "synchronous", "modelled.sync.time_s=1", "modelled.train.utilization="+utilization))
		if err != nil {
			t.Fatal(err)
		}
		if threshold.Staleness.Max != 0 || threshold.PeriodS != synchronous.PeriodS || threshold.Ledger.Trained != synchronous.Ledger.Trained {
			t.Errorf("utilization %s: threshold 0 has staleness up to %d and a period of %g s, the synchronous schedule %g s",
				utilization, threshold.Staleness.Max, threshold.PeriodS.Mean, synchronous.PeriodS.Mean)
		}
	}
}

// simulate makes one simulation and writes no file.
func simulate(c Case) (doc Simulation, err error) {
	prediction, err := Expect(c.Document, c.Setting)
	if err != nil {
		return doc, KeyError(err)
	}
	return Simulate(c, prediction, nil, nil)
}

// casesOf are the simulations of a small document with some of its keys changed.
func casesOf(t *testing.T, set ...string) ([]Case, error) {
	t.Helper()
	g, err := NewGrid(Request{File: smallFile(t), Set: set, Seeds: 1})
	if err != nil {
		return nil, err
	}
	var cases []Case
	for i := range g.Simulations() {
		one, err := g.Case(i)
		if err != nil {
			return nil, err
		}
		cases = append(cases, one)
	}
	return cases, nil
}

func loopLiveMax(c Case) int { return c.Document.LoopConfig().LiveGroupsMax() }
