package study

import (
	"math"
	"strings"
	"testing"
)

// trialled runs a rule in a cell with two seeds.
func trialled(t *testing.T, cell Cell, rule Rule) point {
	t.Helper()
	var p point
	for seed := uint64(1); seed <= 2; seed++ {
		f, err := Trial{Cell: cell, Rule: rule, Seed: seed, Warmup: 150, Measured: 300, Follow: true}.Run()
		if err != nil || f.Failed != "" {
			t.Fatal(err, f.Failed)
		}
		p = append(p, f)
	}
	return p
}

// TestBoundIsComputed: the bound over simulated groups is the one computed from the lengths.
func TestBoundIsComputed(t *testing.T) {
	for _, cell := range []Cell{cellAt(1.5, 50, 2, 0), cellAt(0.7, 30, 0.5, 0), cellAt(2, 70, 1, DelayShare)} {
		p := trialled(t, cell, Drop(2))
		if got, want := p.mean(bound).Mean, cell.bound(p.mean(period).Mean); math.Abs(got-want) > 0.08 {
			t.Errorf("%s: the bound over groups is %.3f, computed %.3f", cell.name(), got, want)
		}
	}
}

// TestRulesKeepTheBound: no rule that does not choose by length is below it where periods are
// alike, and queue-drop is where the theory has it.
func TestRulesKeepTheBound(t *testing.T) {
	cell := cellAt(1.5, 50, 2, 0)
	above := func(rule Rule) float64 {
		p := trialled(t, cell, rule)
		return p.mean(staleness).Mean - p.mean(bound).Mean
	}
	for _, c := range []struct {
		rule        Rule
		least, most float64
	}{{Drop(2), 0.9, 1.1}, {fresh(0), 0.42, 0.62}, {fresh(0.5), 0.05, 0.22}, {learned(0), -0.01, 0.15}} {
		if got := above(c.rule); got < c.least || got > c.most {
			t.Errorf("%s is %.3f versions above the bound, want %g to %g", c.rule.Name, got, c.least, c.most)
		}
	}
}

// TestLearnedHoldCostsWhatItMay: nothing where groups are dropped anyway, the price that was named where rollouts
// are the slower side.
func TestLearnedHoldCostsWhatItMay(t *testing.T) {
	for _, c := range []struct {
		rho, cost, least, most float64 // of the period, over queue-drop's
	}{{1.5, 0, 0.999, 1.001}, {0.7, 0, 0.999, 1.001}, {0.7, 0.02, 1.01, 1.03}} {
		cell := cellAt(c.rho, 50, 2, 0)
		learns, base := trialled(t, cell, learned(c.cost)), trialled(t, cell, Drop(2))
		if ratio := learns.ratio(base, period).Mean; ratio < c.least || ratio > c.most {
			t.Errorf("ρ %g, cost %g: the period is %.4f of queue-drop's, want %g to %g", c.rho, c.cost, ratio, c.least, c.most)
		}
		if ratio := learns.ratio(base, staleness).Mean; (c.rho > 1 || c.cost > 0) && ratio > 0.96 {
			t.Errorf("ρ %g, cost %g: staleness is %.3f of queue-drop's", c.rho, c.cost, ratio)
		}
		if off := learns.mean(length).Mean - 1; math.Abs(off) > 0.01 {
			t.Errorf("ρ %g, cost %g: trained lengths are off by %.4f", c.rho, c.cost, off)
		}
	}
}

func TestBoundMarkdown(t *testing.T) {
	opt := HoldOptions{Seeds: 2, Warmup: 50, Measured: 60, Quick: true}
	r, err := Bound(t.Context(), opt, Simulator{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := BoundMarkdown(&b, r, Provenance{Command: "c"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a corner of the study", "| 2 | 1.5 | +", "learned at cost 0.02", "| 2 | 50 | 0.7 | "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, b.String())
		}
	}
}
