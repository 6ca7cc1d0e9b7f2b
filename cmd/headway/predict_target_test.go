package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/theory"
)

// A document with a target is answered by how it is kept, what it costs, and levers that are not the controller's own.
func TestPredictTarget(t *testing.T) {
	skipShort(t)
	path := document(t, `
rollout: {concurrency: 256, group_size: 8}
train: {batch: 64}
queue: {factor: 4}
modelled:
  length: {mean_tokens: 400, tailness: 50}
  train: {utilization: 1.2}
control: {target: 1.5}
`)
	out, err := predictLine(t, path, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Levers   []theory.Lever
		Warnings []string
		Target   *experiment.TargetAnswer
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if a.Target == nil || a.Target.TargetMean != 1.5 || a.Target.HeldSteps < a.Target.Steps*9/10 || !strings.HasPrefix(a.Target.Says, "held: ") || len(a.Target.Settings) < 2 {
		t.Fatalf("%+v", a.Target)
	}
	if w := a.Target.Without; w == nil || w.StalenessMean < 2 || w.ThroughputRatio < 1.1 || w.PeriodRatio > 0.9 {
		t.Errorf("without the target: %+v", w)
	}
	if len(a.Target.Levers) != len(a.Levers) {
		t.Fatalf("%d levers, %d under the target", len(a.Levers), len(a.Target.Levers))
	}
	names := map[string]int{}
	for i, l := range a.Levers {
		under := a.Target.Levers[i]
		names[l.Name]++
		if l.Change != under.Change || under.ThroughputRatio == nil || under.HeldShare == nil {
			t.Errorf("%s: %+v", l.Change, under)
			continue
		}
		mean, _ := l.StalenessMean.Value()
		switch {
		case strings.HasSuffix(l.Change, "→ 3 versions") && (*under.ThroughputRatio < 1.2 || mean < 2.5):
			t.Errorf("twice the target: %+v, %.2f", under, mean)
		case l.Name == "batch" && (*under.ThroughputRatio < 1.2 || mean > 1.5):
			t.Errorf("twice the batch: %+v, %.2f", under, mean)
		}
	}
	if names["target"] != 2 || names["queue factor"] != 0 || names["concurrency"] != 1 || names["batch"] != 1 {
		t.Errorf("levers %v: half of the slots and of the queue are the controller's", names)
	}
	for _, w := range a.Warnings {
		if strings.Contains(w, "is held in") {
			t.Errorf("the target is a warning, too: %s", w)
		}
	}
	if out, err = predictLine(t, path, "--full"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"It is the target that holds rollouts back.", "The target, simulated  mean staleness at most 1.5, over 32 train steps", "  live_groups  ", "  without it  ", "trained/s ×", "Left to the controller within its limits, and no levers: concurrency (8 to 256)", "target 1.5 versions → 0.75 versions"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// Without a target nothing of it is said.
func TestPredictWithoutTarget(t *testing.T) {
	skipShort(t)
	out, err := predictLine(t, document(t, "rollout: {concurrency: 128}\ntrain: {batch: 64}\nqueue: {policy: bounded, eta: 3}\nmodelled: {length: {mean_tokens: 400}, train: {utilization: 1.2}}\n"), "--json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, `"target"`) || !strings.Contains(out, `"simulated"`) {
		t.Error(out)
	}
}
