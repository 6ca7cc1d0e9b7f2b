package doctor

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// Order statistics are within 2 % of the simulated length of what is kept.
func TestKeptLength(t *testing.T) {
	for _, overrides := range [][]string{
		{lengths, "schedule=synchronous", "rollout={oversample: 1.5, concurrency: 128}"},
		{threeLong, "schedule=synchronous", "rollout={oversample: 1.25, concurrency: 128, group_size: 1}"},
		{threeLong, "schedule=synchronous", "rollout={oversample: 1.25, concurrency: 256, redundancy: 2}"},
		{lengths, "rollout.redundancy=2"},
		{lengths, "rollout={redundancy: 4, concurrency: 128}", "modelled.environment={kind: exponential, mean_s: 5}"},
	} {
		c := caseOf(t, overrides...)
		f, ok := find(findingsOf(t, c), "oversampling-bias")
		if !ok {
			f, ok = find(findingsOf(t, c), "redundancy-bias")
		}
		if !ok || f.Basis != ClosedForm {
			t.Fatalf("%q: found %+v", overrides, f)
		}
		predicted := figure(t, f, "trained_over_true_length")
		simulated := run(t, c, 20, 600).result.Summary.Length.TrainedMeanTokens / c.Setting.Lengths.Mean()
		if math.Abs(predicted/simulated-1) > 0.02 {
			t.Errorf("%q: predicted %.4f, simulated %.4f", overrides, predicted, simulated)
		}
	}
}

// A quarter more groups of one than a batch has trains on about half the mean
// length at tailness 90 (docs/theory.md).
func TestOversampledSingles(t *testing.T) {
	c := caseOf(t, "rollout={group_size: 1, oversample: 1.25, concurrency: 160}", "train.batch=128", "schedule=synchronous",
		"modelled.length={kind: lognormal, mean_tokens: 1400, tailness: 90, cap_tokens: 12080}")
	f, _ := find(findingsOf(t, c), "oversampling-bias")
	if ratio := figure(t, f, "trained_over_true_length"); ratio < 0.45 || ratio > 0.55 {
		t.Errorf("trained lengths are %.3f of the true mean", ratio)
	}
}

// As many rollouts are pruned as the lengths say.
func TestPrunedShare(t *testing.T) {
	for _, tokens := range []int{100, 300, 600} {
		c := caseOf(t, lengths, fmt.Sprintf("rollout.prune.tokens=%d", tokens))
		f, _ := find(findingsOf(t, c), "prune-share")
		p := run(t, c, 0, 200)
		ledger := p.result.Ledger
		ended := ledger.Trained + ledger.Evicted + ledger.Pruned + ledger.Waiting + ledger.Queued + ledger.Leased
		share, simulated := figure(t, f, "pruned_rollouts_share"), float64(ledger.Pruned)/float64(ended)
		if math.Abs(share-simulated) > 0.02 {
			t.Errorf("pruned at %d: %.3f, simulated %.3f", tokens, share, simulated)
		}
		whole, simulatedWhole := figure(t, f, "pruned_groups_share"), float64(p.ended[loop.EndPruned])/float64(p.groups)
		if math.Abs(whole-simulatedWhole) > 0.02 {
			t.Errorf("pruned groups at %d: %.3f, simulated %.3f", tokens, whole, simulatedWhole)
		}
	}
}

// The shares of groups that filters take are those of groups that are scored.
func TestFilteredShares(t *testing.T) {
	for _, rate := range []float64{0.5, 0.9} {
		c := caseOf(t, lengths, fmt.Sprintf("modelled.solve={kind: fixed, rate: %g}", rate), "filter.zero_advantage=true")
		p := run(t, c, 0, 300)
		if share, want := float64(p.ended[loop.EndFiltered])/float64(p.groups), newExamination(c).allEqual(rate); math.Abs(share-want) > 0.03 {
			t.Errorf("zero advantage at %g: %.3f filtered, want %.3f", rate, share, want)
		}
	}
	c := caseOf(t, lengths, "modelled.solve={kind: fixed, rate: 0.5}", "filter.solve_rate={low: 0.5, high: 0.6, drop: true}")
	f, _ := find(findingsOf(t, c), "band-narrow")
	if at := figure(t, f, "at_solve_rate"); at != 0.5 {
		t.Fatalf("best at %g", at)
	}
	p := run(t, c, 0, 300)
	if share, want := 1-float64(p.ended[loop.EndFiltered])/float64(p.groups), figure(t, f, "acceptance_max"); math.Abs(share-want) > 0.03 {
		t.Errorf("%.3f in the band, want %.3f", share, want)
	}
	empty := caseOf(t, lengths, "modelled.solve={kind: fixed, rate: 0.5}", "filter.solve_rate={low: 0.6, high: 0.7, drop: true}")
	if p := run(t, empty, 0, 10); p.stalled == nil {
		t.Error("a band that no group can be in does not stall")
	}
}

// As many groups are in the band at a version as the model of skill says, and the
// curriculum that doctor is silent about keeps half of them in it.
func TestBandShares(t *testing.T) {
	const skill = "modelled.solve={kind: logistic, from: 3, to: 3, steps: 1, levels: [-2, 0, 3]}"
	filtered := func(overrides ...string) float64 {
		p := run(t, caseOf(t, append(overrides, lengths, skill)...), 0, 300)
		return float64(p.ended[loop.EndFiltered]) / float64(p.groups)
	}
	c := caseOf(t, lengths, skill, "filter.solve_rate={low: 0.2, high: 0.8, drop: true}")
	e := newExamination(c)
	want := e.bandShare(must[*workload.Solve](t)(c.Document.SolveModel()), e.attainable(), 1)
	if got := 1 - filtered("filter.solve_rate={low: 0.2, high: 0.8, drop: true}"); math.Abs(got-want) > 0.03 {
		t.Errorf("%.3f of groups are in the band, the model says %.3f", got, want)
	}
	curriculum := []string{"filter.solve_rate={low: 0.2, high: 0.8, drop: true}", "filter.curriculum={levels: 3, explore: 0.1}"}
	if f, ok := find(findingsOf(t, caseOf(t, append(curriculum, lengths, skill)...)), "band-missed"); ok {
		t.Errorf("found %+v", f)
	}
	if got := 1 - filtered(curriculum...); got < 0.5 {
		t.Errorf("the curriculum keeps %.3f of groups in the band", got)
	}
}

// All counts together take every group; one count has its binomial probability at
// its own rate.
func TestBestAcceptanceEnds(t *testing.T) {
	for _, test := range []struct {
		low, high, s int
		best, at     float64
	}{
		{0, 4, 4, 1, 0}, {4, 4, 4, 1, 1}, {1, 1, 2, 0.5, 0.5}, {2, 2, 8, 28 * math.Pow(0.25, 2) * math.Pow(0.75, 6), 0.25},
	} {
		e := newExamination(caseOf(t, fmt.Sprintf("rollout.group_size=%d", test.s)))
		if best, at := e.bestAcceptance(test.low, test.high); math.Abs(best-test.best) > 1e-9 || at != test.at {
			t.Errorf("%+v: %g at %g", test, best, at)
		}
	}
}

// A filter that starves the trainer makes its period as long as the closed form says.
func TestFilterStarvesByAsMuch(t *testing.T) {
	c := caseOf(t, lengths, "modelled.train.utilization=1.2", "modelled.filter.acceptance=0.5", "rollout.concurrency=128")
	f, _ := find(findingsOf(t, c), "filter-starves")
	s := run(t, c, 50, 600).result.Summary
	if got, want := s.PeriodS.Mean/s.StepS.Mean, figure(t, f, "period_relative_to_step"); math.Abs(got/want-1) > 0.02 {
		t.Errorf("the period is %.3f of a step, doctor said %.3f", got, want)
	}
}

// Hold costs what doctor says below ρ = 1, and nothing above.
func TestHoldPrice(t *testing.T) {
	for _, theta := range []float64{0.2, 0.3} {
		for _, slots := range []int{64, 128} {
			for _, rho := range []float64{0.7, 1.6} {
				period := func(hold float64) float64 {
					c := caseOf(t, lengths, fmt.Sprintf("queue={factor: 2, hold: %g}", hold), fmt.Sprintf("rollout.concurrency=%d", slots), fmt.Sprintf("modelled.train.utilization=%g", rho))
					if f, ok := find(findingsOf(t, c), "hold-price"); ok != (rho < 1 && hold > 0) {
						t.Errorf("hold %g at ρ %g: found %+v", hold, rho, f)
					}
					return run(t, c, 60, 600).result.Summary.PeriodS.Mean
				}
				want := 1.0
				if rho < 1 {
					want += theta * theta * 64 / (2 * float64(slots))
				}
				if got := period(theta) / period(0); math.Abs(got/want-1) > 0.015 {
					t.Errorf("hold %g, %d slots, ρ %g: the period is %.4f times as long, want %.4f", theta, slots, rho, got, want)
				}
			}
		}
	}
}

// Within hold's limits lengths are unbiased; past them the bias is what doctor names.
func TestHoldBias(t *testing.T) {
	for _, test := range []struct {
		rollout     string
		batch       int
		hold        float64
		warned      bool
		least, most float64
	}{{"rollout={group_size: 8, concurrency: 128}", 64, 0.3, false, 0, 0.005}, {"rollout={group_size: 8, concurrency: 16}", 16, 0.8, true, 0, 0.012},
		{"rollout={group_size: 1, concurrency: 32}", 32, 0.3, true, 0.01, 0.04}, {"rollout={group_size: 1, concurrency: 32}", 64, 0.3, true, 0.03, 0.08},
		{"rollout={group_size: 4, concurrency: 128}", 128, 0.3, true, 0.006, 0.02}} {
		c := caseOf(t, threeLong, test.rollout, fmt.Sprintf("train={batch: %d}", test.batch), "modelled.train={utilization: 1.5}",
			fmt.Sprintf("queue={factor: 2, select: newest, hold: %g}", test.hold))
		if f, ok := find(findingsOf(t, c), "hold-bias"); ok != test.warned {
			t.Errorf("%+v: found %+v", test, f)
		}
		p := run(t, c, 100, 200000/test.batch)
		ratio, _ := p.lengthRatio()
		if bias := math.Abs(ratio - 1); bias > test.most || bias < test.least {
			t.Errorf("%+v: trained over sampled length %.4f", test, ratio)
		}
	}
}

// With fresh lengths are unbiased where newest first has the bias that doctor names,
// and doctor is silent.
func TestFreshIsUnbiased(t *testing.T) {
	for _, test := range []struct {
		rollout string
		batch   int
		newest  float64 // the least bias of newest first at hold 0.3
	}{{"rollout={group_size: 8, concurrency: 128}", 256, 0.008}, {"rollout={group_size: 4, concurrency: 128}", 128, 0.006}, {"rollout={group_size: 8, concurrency: 256}", 128, 0}} {
		for _, hold := range []float64{0.3, 0.7} {
			setting := []string{threeLong, test.rollout, fmt.Sprintf("train={batch: %d}", test.batch), "modelled.train={utilization: 1.5}"}
			c := caseOf(t, append(setting, fmt.Sprintf("queue={factor: 2, select: fresh, hold: %g}", hold))...)
			for _, f := range findingsOf(t, c) {
				if f.Key == keyHold {
					t.Errorf("%+v, hold %g: found %+v", test, hold, f)
				}
			}
			p := run(t, c, 100, 250000/test.batch)
			if ratio, _ := p.lengthRatio(); math.Abs(ratio-1) > 0.006 {
				t.Errorf("%+v, hold %g: trained over sampled length %.4f", test, hold, ratio)
			}
			if test.newest == 0 || hold > 0.3 {
				continue
			}
			c = caseOf(t, append(setting, "queue={factor: 2, select: newest, hold: 0.3}")...)
			if f, ok := find(findingsOf(t, c), "hold-bias"); !ok || !strings.Contains(f.Do, "fresh") {
				t.Errorf("%+v: found %+v", test, f)
			}
			p = run(t, c, 100, 250000/test.batch)
			if ratio, _ := p.lengthRatio(); math.Abs(ratio-1) < test.newest {
				t.Errorf("%+v: newest first trains on %.4f of sampled lengths", test, ratio)
			}
		}
	}
}

// What doctor suggests in place of newest first has no more staleness, no longer
// period and less waste.
func TestFreshInstead(t *testing.T) {
	for _, slots := range []int{128, 256} {
		setting := []string{lengths, fmt.Sprintf("rollout.concurrency=%d", slots), "modelled.train.utilization=1.5"}
		c := caseOf(t, append(setting, "queue={factor: 2, select: newest, hold: 0.3}")...)
		theta := newExamination(c).freeHold(1.5)
		newest, fresh := run(t, c, 150, 2000), run(t, caseOf(t, append(setting, fmt.Sprintf("queue={factor: 2, select: fresh, hold: %g}", theta))...), 150, 2000)
		a, b := newest.result.Summary, fresh.result.Summary
		if b.Staleness.Mean > a.Staleness.Mean+0.02 || b.PeriodS.Mean > 1.005*a.PeriodS.Mean || fresh.lost() > newest.lost()-0.03 {
			t.Errorf("%d slots, hold %g: staleness %.3f, period %.2f, lost %.2f; newest %.3f, %.2f, %.2f", slots, theta,
				b.Staleness.Mean, b.PeriodS.Mean, fresh.lost(), a.Staleness.Mean, a.PeriodS.Mean, newest.lost())
		}
	}
}

// A long hold costs a period above ρ = 1 too, until ρ covers it.
func TestLongHoldPrice(t *testing.T) {
	for _, rho := range []float64{0.9, 1, 1.05, 1.2} {
		period := func(hold float64) float64 {
			return run(t, caseOf(t, lengths, "rollout.concurrency=128", fmt.Sprintf("modelled.train.utilization=%g", rho), fmt.Sprintf("queue={factor: 2, select: fresh, hold: %g}", hold)), 150, 1500).result.Summary.PeriodS.Mean
		}
		want := 1.0
		if f, ok := find(findingsOf(t, caseOf(t, lengths, "rollout.concurrency=128", fmt.Sprintf("modelled.train.utilization=%g", rho), "queue={factor: 2, select: fresh, hold: 0.7}")), "hold-price"); ok {
			want = figure(t, f, "period_ratio")
		}
		if got := period(0.7) / period(0); math.Abs(got/want-1) > 0.015 || (want > 1) != (rho < 1.12) {
			t.Errorf("ρ %g: the period is %.4f times as long, doctor said %.4f", rho, got, want)
		}
	}
}

// What a longer queue costs, and what q = 1 would, is what simulations show.
func TestQueueFactor(t *testing.T) {
	for _, rho := range []float64{0.95, 1, 1.2, 1.6} {
		at := func(q float64) (staleness, period float64) {
			s := run(t, caseOf(t, lengths, fmt.Sprintf("queue.factor=%g", q), fmt.Sprintf("modelled.train.utilization=%g", rho)), 150, 2000).result.Summary
			return s.Staleness.Mean, s.PeriodS.Mean
		}
		f, ok := find(findingsOf(t, caseOf(t, lengths, "queue.factor=2", fmt.Sprintf("modelled.train.utilization=%g", rho))), "queue-factor")
		if !ok {
			t.Fatalf("ρ %g: nothing found", rho)
		}
		one, slow := at(1)
		two, period := at(2)
		cost := figure(t, f, "staleness_mean_versions") - figure(t, f, "staleness_mean_at_one_versions")
		if math.Abs(cost-(two-one)) > 0.15 {
			t.Errorf("ρ %g: q = 2 costs %.3f versions, simulated %.3f", rho, cost, two-one)
		}
		if ratio := figure(t, f, "period_ratio_at_one"); math.Abs(ratio-slow/period) > 0.025 {
			t.Errorf("ρ %g: q = 1 makes the period %.3f times as long, simulated %.3f", rho, ratio, slow/period)
		}
	}
}

// tinker-cookbook 822: discard and requeue trains on shorter responses than are
// sampled; under drop requeueing does not.
func TestRequeueBias(t *testing.T) {
	ratio := func(queue string) float64 {
		p := run(t, caseOf(t, threeLong, "queue={"+queue+"}", "rollout.concurrency=128", "prompts.requeue=true"), 50, 1500)
		r, _ := p.lengthRatio()
		return r
	}
	if biased, plain := ratio("policy: max, max_staleness: 3, factor: 2"), ratio("policy: drop, factor: 2"); biased > 0.9 || math.Abs(plain-1) > 0.02 {
		t.Errorf("trained over sampled length: max %.3f, drop %.3f", biased, plain)
	}
}

// Replay trains on a group no more often than doctor's ceiling says.
func TestReplayUses(t *testing.T) {
	for _, rho := range []float64{0.4, 0.9, 1.5} {
		for _, uses := range []int{1, 3} {
			c := caseOf(t, lengths, fmt.Sprintf("modelled.train.utilization=%g", rho), fmt.Sprintf("queue={policy: replay, capacity: 256, max_uses: %d}", uses))
			f, _ := find(findingsOf(t, c), "replay-staleness")
			p := run(t, c, 0, 400)
			most := figure(t, f, "uses_per_group_max")
			got := float64(p.trained) / float64(p.groups)
			if want := min(float64(uses), 1/rho); math.Abs(most-want) > 0.02 || got > most*1.05 {
				t.Errorf("ρ %g, max_uses %d: %.3f uses, at most %.3f", rho, uses, got, most)
			}
		}
	}
}
