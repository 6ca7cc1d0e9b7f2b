package main

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/port"
)

// TestPaceWarnings says which side was not kept at its pace, and nothing of one that was.
func TestPaceWarnings(t *testing.T) {
	calm := port.Pace{Steps: 1000, Late: 20, PacedNS: 1e12, LostNS: 1e9}
	for _, c := range []struct {
		name string
		kept kept
		want []string
	}{
		{"no pace", kept{}, nil},
		{"kept", kept{Decode: calm, Train: calm}, nil},
		{"late decode steps", kept{Decode: port.Pace{Steps: 100, Late: 11, PacedNS: 1e9}, Train: calm}, []string{"11.0 % of the decode steps"}},
		{"slow train steps", kept{Decode: calm, Train: port.Pace{Steps: 100, Late: 1, PacedNS: 1e9, LostNS: 2e8}}, []string{"1.0 % of the train steps"}},
	} {
		got := c.kept.warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %d warnings", c.name, got, len(c.want))
			continue
		}
		for i, part := range c.want {
			if !strings.HasPrefix(got[i], part) || !strings.Contains(got[i], "_s, and all together") {
				t.Errorf("%s: %q, want it to begin with %q", c.name, got[i], part)
			}
		}
	}
}

// TestPredictsTheCorrectedForm expects of a run near ρ = 1 what the corrections say, where the trainer waits for a
// batch although both sides are as fast, and whose parts add up.
func TestPredictsTheCorrectedForm(t *testing.T) {
	cfg, err := config.LoadWith("", config.Override{Text: "rollout.concurrency=64"}, config.Override{Text: "train.batch=64"}, config.Override{Text: "queue.factor=1"})
	if err != nil {
		t.Fatal(err)
	}
	c := calibration{Rollouts: 100, WindowS: 1, RolloutsPerS: 64, StepS: 1, Utilization: 1, TailMultiplier: 2}
	p, err := predictRun(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	if *p.PeriodS < 1.05 || *p.PeriodS > 1.3 {
		t.Errorf("a period of %g steps at ρ = 1 and q = 1, want one in which the trainer starves", *p.PeriodS)
	}
	if math.Abs(*p.PQS+*p.IQS-*p.StalenessMean) > 1e-9 || *p.PQS >= 2 {
		t.Errorf("PQS %g, IQS %g, mean %g: want the parts to add up, and a PQS below the ideal 2 of C·M/B", *p.PQS, *p.IQS, *p.StalenessMean)
	}
}
