package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/headway-rl/headway/observe/metrics"
)

// Runs with targets say how each was kept, and that other targets are other questions.
func TestCompareTargets(t *testing.T) {
	sets := []string{"--set=steps.measured=200", "--set=rollout.concurrency=256", "--set=train.batch=64", "--accept-unsettled"}
	a := traceOfSimulation(t, append(sets, "--set=control.target=1.5")...)
	b := traceOfSimulation(t, append(sets, "--set=control.target=1")...)
	none := traceOfSimulation(t, sets...)
	text := first(t, "compare", "--full", a, b, none)
	for _, want := range []string{"the targets are not the same", "mean staleness at most 1.5 over 32 steps", ": none)", "The target, after the warm-up"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, want := range []string{`mean at most +1\.5 +1 +–`, `steps held +\d+\.\d % +\d+\.\d % +–`, `batches held +\d+\.\d % +\d+\.\d % +–`, `moves +\d+ +\d+ +–`, `live_groups at the end +\d+`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("nothing like %q in\n%s", want, text)
		}
	}
	if same := first(t, "compare", "--full", a, a); strings.Contains(same, "targets are not the same") || !strings.Contains(same, "steps held") {
		t.Errorf("one target twice:\n%s", same)
	}
	if text := first(t, "compare", "--full", none, none); strings.Contains(text, "The target") {
		t.Errorf("a target of runs without one:\n%s", text)
	}
	var doc struct {
		Runs []struct{ Control *metrics.Control }
	}
	if err := json.Unmarshal([]byte(first(t, "compare", "--full", a, none, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	if c := doc.Runs[0].Control; c == nil || c.TargetMean != 1.5 || c.HeldSteps > c.Steps || c.Steps < 199 || doc.Runs[1].Control != nil {
		t.Errorf("%+v, %+v", c, doc.Runs[1].Control)
	}
}
