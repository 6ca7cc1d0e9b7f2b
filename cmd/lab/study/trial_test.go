package study

import (
	"fmt"
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// figuresOf runs a short trial.
func figuresOf(t *testing.T, cell Cell, rule Rule) Figures {
	t.Helper()
	f, err := Trial{Cell: cell, Rule: rule, Seed: 1, Warmup: 100, Measured: 400, Follow: true}.Run()
	if err != nil || f.Failed != "" {
		t.Fatalf("%s in %s: %v %s", rule.Name, cell.name(), err, f.Failed)
	}
	return f
}

// Where starts do not wait for weights, a later switch changes the versions alone: the
// staleness recomputed for it from a run without a sync is that of a run with one.
func TestDelayedIsWhatALaterSwitchGives(t *testing.T) {
	for _, rho := range []float64{0.7, 1.5} {
		none, sync := figuresOf(t, cellAt(rho, 50, 2, 0), unheld()), figuresOf(t, cellAt(rho, 50, 2, DelayShare), unheld())
		if math.Abs(none.Delayed-sync.Staleness) > 1e-9 {
			t.Errorf("ρ %g: recomputed %.6f, simulated %.6f", rho, none.Delayed, sync.Staleness)
		}
		if none.Delayed <= none.Staleness {
			t.Errorf("ρ %g: a later switch leaves staleness at %.4f from %.4f", rho, none.Delayed, none.Staleness)
		}
	}
}

// Waiting for the step's end loses most of what waiting for the switch gains.
func TestHoldWaitsForTheSwitch(t *testing.T) {
	sync := cellAt(0.7, 50, 2, DelayShare)
	free, right := figuresOf(t, sync, unheld()), figuresOf(t, sync, best())
	wrong := figuresOf(t, cellAt(0.7, 50, 2, 0), best())
	if lost := (wrong.Delayed - right.Staleness) / (free.Staleness - right.Staleness); lost < 0.6 || lost > 1.2 {
		t.Errorf("%.2f of the gain is lost, the reference is four fifths", lost)
	}
}

// E⌈D/T⌉ lies above the mean generation time in periods and at most one above it,
// and bounds what newest first reaches without a hold.
func TestBound(t *testing.T) {
	f := figuresOf(t, boundCell, unheld())
	if f.Bound < 3.2 || f.Bound > 3.7 || f.Staleness < f.Bound {
		t.Errorf("bound %.3f, newest first %.3f; the reference is 3.46", f.Bound, f.Staleness)
	}
}

// A rule that keeps the first of more rollouts than it needs trains on short ones;
// what was started shows it, what was scored would not.
func TestLengthCountsWhatWasStarted(t *testing.T) {
	redundant := Drop(2).with("redundancy 1", func(c *loop.Config, _ Cell) { c.Redundancy = 1 })
	if f := figuresOf(t, cellAt(0.7, 70, 2, 0), redundant); f.Length > 0.9 {
		t.Errorf("trained over started length %.3f with one rollout too many", f.Length)
	}
	if f := figuresOf(t, cellAt(0.7, 70, 2, 0), Drop(2)); math.Abs(f.Length-1) > 0.005 {
		t.Errorf("trained over started length %.4f under queue-drop", f.Length)
	}
}

// Where groups open together at a switch, newest first trains other lengths than it
// started; a random choice among the groups ready since the batch before does not, and
// is as fresh or hardly less so.
func TestFreshChoiceIsUnbiased(t *testing.T) {
	cell := cellAt(2, 70, 0.5, 0)
	last, random := figuresOf(t, cell, best()), figuresOf(t, cell, fresh(0.3))
	if math.Abs(last.Length-1) < 0.015 {
		t.Errorf("newest first trains %.4f of the length it started: this case no longer shows its bias", last.Length)
	}
	if math.Abs(random.Length-1) > 0.008 {
		t.Errorf("select fresh trains %.4f of the length it started", random.Length)
	}
	if random.Staleness < last.Staleness || random.Staleness > last.Staleness+0.5 {
		t.Errorf("staleness %.3f of select fresh, %.3f newest first", random.Staleness, last.Staleness)
	}
}

// The same trial gives the same figures, and a name stands for one rule.
func TestTrialsAreNamed(t *testing.T) {
	if a, b := figuresOf(t, boundCell, best()), figuresOf(t, boundCell, best()); a != b {
		t.Errorf("%+v and %+v", a, b)
	}
	p := newPlan(HoldOptions{Seeds: 1, Warmup: 1, Measured: 1})
	p.addClaims()
	p.addIdeas()
	p.addFresh()
	p.addBias()
	p.addGrid()
	rules := map[string]string{}
	seen := map[string]bool{}
	for _, trial := range p.trials {
		if seen[trial.key()] {
			t.Errorf("%s is planned twice", trial.key())
		}
		seen[trial.key()] = true
		cfg, _, err := trial.config()
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.Loop.Validate(); err != nil {
			t.Fatalf("%s: %v", trial.key(), err)
		}
		settings := fmt.Sprintf("%+v %s", trial.Cell, trial.Rule.Name)
		text := loopText(cfg.Loop)
		if known, ok := rules[settings]; ok && known != text {
			t.Errorf("two rules are named %s", trial.Rule.Name)
		}
		rules[settings] = text
	}
	if len(p.trials) < 5000 {
		t.Errorf("%d trials: is the grid there?", len(p.trials))
	}
}
