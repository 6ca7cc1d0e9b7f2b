package study

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
)

// Every arm of every contest resolves, and stands for what its name says.
func TestContestants(t *testing.T) {
	for _, s := range Scenarios() {
		c := Presets(s, []uint64{1}, 1)
		documents, err := c.Documents()
		if err != nil {
			t.Fatal(err)
		}
		if presets := len(config.Presets()); len(documents) != presets+4 || presets < 6 {
			t.Errorf("%d arms with %d presets", len(documents), presets)
		}
		for i, d := range documents {
			name := c.Arms[i].Name
			if i >= 4 && d.Preset != name {
				t.Errorf("%s is preset %q", name, d.Preset)
			}
			if tools := d.Environment.ServiceTime.MeanS > 0; tools != (s.Name == "tools") {
				t.Errorf("%s in %s: tool time %v", name, s.Name, tools)
			}
			if d.Evaluate.Every != 0 || d.Rollout.Concurrency != 64 || d.Train.Batch != 64 {
				t.Errorf("%s: evaluations beside the run, or other sizes", name)
			}
		}
		live := HoldLive(s, nil, 1)
		documents, err = live.Documents()
		if err != nil {
			t.Fatal(err)
		}
		held := documents[2]
		if held.Queue.Hold != 0.3 || held.Queue.Select != "newest" || held.Queue.Factor != 2 || held.Rollout.Concurrency/held.Rollout.GroupSize < 16 {
			t.Errorf("the arm of hold is %+v", held.Queue)
		}
	}
}

// Runs go seed by seed, every round beginning with another arm, each with its
// seed's document.
func TestContestTakesTurns(t *testing.T) {
	c := HoldLive(Scenarios()[0], []uint64{7, 8}, 3)
	var order []string
	played, err := c.Play(t.Context(), func(_ context.Context, d config.Config, wallS float64) (Lived, error) {
		order = append(order, fmt.Sprintf("%d/%d/%s/%g", d.Seed, d.QueueGroups()/d.BatchGroups(), d.Queue.Select, d.Queue.Hold))
		return Lived{ArmRun: report.ArmRun{WallS: wallS, Staleness: float64(d.Seed), Accuracy: 0.5}, StalenessP50: 2}, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"7/2/oldest/0", "7/1/oldest/0", "7/2/newest/0.3", "7/2/fresh/0.7", "7/2/fresh/0.9", "8/1/oldest/0", "8/2/newest/0.3", "8/2/fresh/0.7", "8/2/fresh/0.9", "8/2/oldest/0"}
	if !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	for i := range c.Arms {
		for k, seed := range c.Seeds {
			if run := played.Runs[i][k]; run.Seed != seed || run.Staleness != float64(seed) || run.WallS != 3 {
				t.Errorf("arm %d, seed %d holds %+v", i, seed, run)
			}
		}
	}
	var text bytes.Buffer
	if err := played.WriteText(&text, Provenance{Command: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 seeds: 7, 8", "every run 3 s of wall time", "Evaluation takes no run's time", "token staleness"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the comparison lacks %q:\n%s", want, text.String())
		}
	}
	if _, err := json.Marshal(played); err != nil {
		t.Error(err)
	}
	text.Reset()
	if err := played.WriteHTML(&text, Provenance{}); err != nil || !strings.Contains(text.String(), "queue.hold") {
		t.Errorf("%v: the page lacks the arms' keys", err)
	}
}

// A run that cannot be made ends the contest and is named; a mistaken arm does before any run.
func TestContestFails(t *testing.T) {
	c := HoldLive(Scenarios()[0], []uint64{1}, 1)
	broken := errors.New("broken")
	_, err := c.Play(t.Context(), func(context.Context, config.Config, float64) (Lived, error) { return Lived{}, broken }, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "queue-drop, q=2, seed 1") {
		t.Errorf("error %v", err)
	}
	c.Arms[1].Set = []string{"queue.hold=2"}
	_, err = c.Play(t.Context(), func(context.Context, config.Config, float64) (Lived, error) {
		t.Error("a run began")
		return Lived{}, nil
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "queue-drop, q=1") {
		t.Errorf("error %v, want one that names the arm", err)
	}
}
