package doctor

import (
	"fmt"
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// scaled are fixed lengths of prompts that differ by a factor of 90 and more.
const scaled = "modelled.length={kind: fixed, mean_tokens: 200, prompt_sigma: 1.5}"

// stepOf4 is a train step in seconds.
const stepOf4 = "modelled.train={utilization: null, step_s: 4}"

// Where prompts scale lengths nothing is proven from the lengths before: the
// simulation exceeds what they would bound.
func TestScaledPromptsProveNothing(t *testing.T) {
	for _, test := range []struct {
		queue string
		least loop.Version
	}{{"policy: max, max_staleness: 6", 6}, {"policy: bounded, eta: 1", 30}, {"policy: drop, factor: 1", 10}} {
		c := caseOf(t, scaled, stepOf4, "queue={"+test.queue+"}")
		e := newExamination(c)
		if bound, why := e.stalest(); bound >= 0 {
			t.Errorf("%s: staleness at most %d: %s", test.queue, bound, why)
		}
		alike := caseOf(t, "modelled.length={kind: fixed, mean_tokens: 200}", stepOf4, "queue={"+test.queue+"}")
		bound, _ := newExamination(alike).stalest()
		p := run(t, c, 50, 1000)
		if bound < 0 || p.stalest < test.least || p.stalest <= loop.Version(bound) {
			t.Errorf("%s: the stalest of %d was %d; of alike prompts at most %d", test.queue, p.trained, p.stalest, bound)
		}
		findings := findingsOf(t, c)
		for _, code := range []string{"budget-cannot-bind", "not-smooth"} {
			if f, ok := find(findings, code); ok {
				t.Errorf("%s: found %+v", test.queue, f)
			}
		}
		if f, ok := find(findings, "single-group-over-eta"); ok {
			if most, proven := f.Figures.Value("staleness_max_versions"); proven {
				t.Errorf("found at most %g: %s", most, f.Why)
			}
		}
	}
}

// A cap applies after the prompt's factor, and proves what it proves without one.
func TestScaledPromptsUnderACap(t *testing.T) {
	for _, queue := range []string{"policy: max, max_staleness: 40", "policy: bounded, eta: 1", "policy: drop, factor: 2"} {
		c := caseOf(t, scaled, stepOf4, "modelled.length.cap_tokens=1000", "queue={"+queue+"}")
		bound, why := newExamination(c).stalest()
		p := run(t, c, 0, 1000)
		if bound < 0 || int(p.stalest) > bound || int(p.stalest) < bound/3 {
			t.Errorf("%s: staleness %d, at most %d: %s", queue, p.stalest, bound, why)
		}
	}
	f, ok := find(findingsOf(t, caseOf(t, scaled, stepOf4, "modelled.length.cap_tokens=1000", "queue={policy: max, max_staleness: 40}")), "budget-cannot-bind")
	if !ok || f.Basis != Arithmetic {
		t.Errorf("found %+v", f)
	}
}

// As many rollouts and groups are pruned as the finding says, and lengths have the
// mean it counts on, with prompts of every group's own and with a set of them.
func TestScaledLengths(t *testing.T) {
	for _, test := range []struct {
		length string
		tokens int
	}{{"mean_tokens: 200, tailness: 20, prompt_sigma: 1.2", 1500}, {"mean_tokens: 200, tailness: 20, prompt_sigma: 1.5", 400},
		{"mean_tokens: 200, tailness: 20, prompt_sigma: 1.5, cap_tokens: 600", 400}} {
		for _, prompts := range []string{"{}", "{count: 300}", "{count: 300, requeue: true}"} {
			length, limit := "modelled.length={kind: lognormal, "+test.length+"}", fmt.Sprintf("rollout.prune.tokens=%d", test.tokens)
			c := caseOf(t, length, limit, "prompts="+prompts)
			f, ok := find(findingsOf(t, c), "prune-share")
			p := run(t, c, 0, 600)
			rollouts, groups := float64(p.pruned)/float64(p.scored), float64(p.ended[loop.EndPruned])/float64(p.groups)
			if !ok || math.Abs(figure(t, f, "pruned_rollouts_share")-rollouts) > 0.02 || math.Abs(figure(t, f, "pruned_groups_share")-groups) > 0.02 {
				t.Errorf("%s, prompts %s: simulated %.4f and %.4f, found %+v", test.length, prompts, rollouts, groups, f)
			}
			whole := caseOf(t, length, "prompts="+prompts)
			mean := newExamination(whole).meanTokens()
			sampled := run(t, whole, 50, 1500).result.Summary.Length.SampledMeanTokens
			if math.Abs(sampled/mean-1) > 0.05 {
				t.Errorf("%s, prompts %s: mean %.1f tokens, simulated %.1f", test.length, prompts, mean, sampled)
			}
		}
	}
}

// A cap at or below the limit is the only proof that nothing is pruned.
func TestScaledPromptsArePruned(t *testing.T) {
	length := "modelled.length={kind: lognormal, mean_tokens: 200, tailness: 20, prompt_sigma: 1.2}"
	c := caseOf(t, length, "rollout.prune.tokens=1500", "modelled.train.utilization=0.8", "prompts={count: 2000, requeue: true}")
	if f, ok := find(findingsOf(t, c), "prune-share"); !ok || figure(t, f, "pruned_rollouts_share") == 0 {
		t.Errorf("found %+v", f)
	}
	capped := caseOf(t, length, "rollout.prune.tokens=1500", "modelled.length.cap_tokens=1500")
	if f, ok := find(findingsOf(t, capped), "prune-share"); !ok || f.Severity != Info || figure(t, f, "pruned_rollouts_share") != 0 {
		t.Errorf("found %+v", f)
	}
	if p := run(t, capped, 0, 200); p.pruned != 0 {
		t.Errorf("%d rollouts were pruned", p.pruned)
	}
}

// The effective ρ that findings print is that of the lengths under a cap, and of the
// prompts there are.
func TestScaledLoad(t *testing.T) {
	for _, overrides := range [][]string{{scaled}, {scaled, "modelled.length.cap_tokens=300"}, {scaled, "prompts.count=40"},
		{scaled, "modelled.length.cap_tokens=300", "modelled.environment={kind: exponential, mean_s: 4}"}} {
		c := caseOf(t, append(overrides, "modelled.train.utilization=0.7")...)
		rho, _ := newExamination(c).load()
		if got := run(t, c, 100, 1500).result.Summary.Utilization; math.Abs(got/rho-1) > 0.05 {
			t.Errorf("%q: ρ %.3f, simulated %.3f", overrides, rho, got)
		}
	}
}

// Measured siblings go together: a group is wholly pruned far more often than
// independent ones were.
func TestPrunedTogether(t *testing.T) {
	c := caseOf(t, "modelled.length={kind: empirical, groups: [[100, 100, 100, 100], [900, 900, 900, 900]]}", "rollout.prune.tokens=500")
	f, ok := find(findingsOf(t, c), "prune-share")
	if !ok || f.Basis != Simulated || math.Abs(figure(t, f, "pruned_groups_share")-0.5) > 0.1 {
		t.Errorf("found %+v", f)
	}
}

// A standstill is found beside what else is wrong, and silences none of it.
func TestStandstillSilencesNothing(t *testing.T) {
	findings := findingsOf(t, caseOf(t, scaled, "rollout.prune.tokens=1", "rollout.redundancy=1", "prompts={count: 10, requeue: true}"))
	for _, code := range []string{"stalls", "prune-share", "redundancy-bias"} {
		if _, ok := find(findings, code); !ok {
			t.Errorf("%s is not found: %+v", code, findings)
		}
	}
	if f, _ := find(findings, "prune-share"); f.Severity != Error || figure(t, f, "pruned_groups_share") != 1 {
		t.Errorf("found %+v", f)
	}
	if f, ok := find(findings, "requeue-bias"); ok { // pruned groups are not played again
		t.Errorf("found %+v", f)
	}
}
