package plan

import (
	"strings"
	"testing"
)

// Without a budget one is taken, and said at the top; of a budget without a bound
// on staleness it is said that nothing bounds it.
func TestWithoutABudget(t *testing.T) {
	p := made(t, small, "budget=null")
	text := p.First().Text(0)
	if f := p.Recommended.Best(); f.StalenessMean > 4*(1+kept) || !strings.Contains(strings.Join(strings.Fields(text), " "), "(assumed)") || !strings.Contains(p.Assumed, "no budget was given") {
		t.Errorf("staleness %g in\n%s", f.StalenessMean, text)
	}
	other := made(t, small, "budget={step_s: 100}")
	if other.Assumed != "" || !strings.Contains(strings.Join(other.Warnings, "\n"), "nothing bounds staleness") {
		t.Errorf("assumed %q, warnings %q", other.Assumed, other.Warnings)
	}
	if bounded := made(t, small); bounded.Assumed != "" || len(bounded.Warnings) != 0 {
		t.Errorf("assumed %q, warnings %q", bounded.Assumed, bounded.Warnings)
	}
}

// What a simulation would take from a document and a plan does not is named, with
// what to give instead.
func TestUnplannedKeysAreNamed(t *testing.T) {
	p := made(t, small, "modelled.train.step_s=90", "modelled.decode_tokens_per_s=40", "rollout.concurrency=256", "train.batch=256", "search.batch=null")
	warned := strings.Join(p.Warnings, "\n")
	for _, part := range []string{"modelled.train.step_s is given", "hardware.train_tokens_per_s_per_gpu", "modelled.decode_tokens_per_s is given", "hardware.rollout_tokens_per_s_per_gpu",
		"rollout.concurrency is given", "hardware.slots_per_gpu", "train.batch 256 is tried among other"} {
		if !strings.Contains(warned, part) {
			t.Errorf("no %q in %s", part, warned)
		}
	}
}

// Of bounded admission it is said that a group may be staler than the mean it pins.
func TestBoundedPinsTheMean(t *testing.T) {
	for p95, want := range map[int]int{4: 1, 2: 0} {
		f := Figures{StalenessMean: 2, StalenessP95: p95, StalenessP99: p95}
		s := search{plan: Plan{Recommended: Candidate{Setting: Setting{Policy: policyBounded, Eta: 2}, Simulated: &Simulated{Figures: f}}}}
		s.pins()
		if len(s.plan.Why) != want || want == 1 && !strings.Contains(s.plan.Why[0], "its p95 is 4") {
			t.Errorf("p95 %d: %q", p95, s.plan.Why)
		}
	}
}
