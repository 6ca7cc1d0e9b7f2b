package doctor

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// The tests of this file hold what findings claim against the production loop.

// No group is staler than arithmetic says it can be, under any setting the
// argument covers; and the bound is no empty one where lengths are fixed.
func TestBoundHolds(t *testing.T) {
	covered := 0
	for _, length := range []string{fixed, lengths} {
		for _, shape := range []string{"concurrency: 64", "concurrency: 200", "concurrency: 3", "concurrency: 64, start: gang"} {
			for _, queue := range []string{"factor: 1", "factor: 3", "factor: 1, select: newest", "policy: bounded, eta: 2.5", "policy: threshold, staleness_threshold: 1"} {
				// A sync's seconds, the train steps for each, and seconds of loading.
				for _, sync := range [][3]string{{"0", "1", "0"}, {"3", "1", "0"}, {"70", "1", "0"}, {"0", "3", "0"}, {"40", "2", "0"}, {"3", "1", "67"}} {
					for _, rho := range []float64{0.6, 1.4} {
						c := caseOf(t, length, "rollout={"+shape+"}", "queue={"+queue+"}", "sync={mode: in_flight, every: "+sync[1]+"}", "modelled.sync={time_s: "+sync[0]+", load_s: "+sync[2]+"}", fmt.Sprintf("modelled.train.utilization=%g", rho))
						bound, why := newExamination(c).stalest()
						if bound < 0 {
							t.Fatalf("%s, %s, %s, %s: no bound", length, shape, queue, sync)
						}
						covered++
						seen := run(t, c, 0, 60).stalest
						if int(seen) > bound {
							t.Errorf("%s, %s, %s, %s, ρ %g: staleness %d, more than %d: %s", length, shape, queue, sync, rho, seen, bound, why)
						}
						if length == fixed && sync == [3]string{"0", "1", "0"} && strings.HasPrefix(queue, "factor") && 4*(int(seen)+1) < bound {
							t.Errorf("%s, %s, %s, ρ %g: the bound %d is far from %d", length, shape, queue, rho, bound, seen)
						}
					}
				}
			}
		}
	}
	if covered != 480 {
		t.Errorf("%d settings", covered)
	}
}

// Time outside the engine is in the bound: without it, a simulation exceeds it.
func TestBoundCountsTimeOutside(t *testing.T) {
	decoding, _ := newExamination(caseOf(t, fixed)).stalest()
	most := 0
	for _, outside := range []string{"modelled.tools={calls: 4, time: {kind: fixed, mean_s: 30}}", "modelled.tools={calls: 1.5, time: {kind: lognormal, mean_s: 4, tailness: 90, cap_s: 200}}",
		"modelled.verifier.time={kind: fixed, mean_s: 120}"} {
		c := caseOf(t, fixed, outside)
		bound, why := newExamination(c).stalest()
		seen := int(run(t, c, 0, 400).stalest)
		if seen > bound || bound <= decoding {
			t.Errorf("%s: staleness %d, more than %d (%d without): %s", outside, seen, bound, decoding, why)
		}
		most = max(most, seen)
	}
	if most <= decoding {
		t.Errorf("none is staler than %d, and lengths alone prove %d", most, decoding)
	}
}

// Where no bound is proven there is none given.
func TestBoundIsNotClaimed(t *testing.T) {
	for _, overrides := range [][]string{
		{"queue={factor: 2, select: newest}"},
		{"sync={mode: pause}", "modelled.sync={time_s: 1}"},
		{"sync.mode=restart"},
		{"queue.policy=block"},
		{"rollout.partial.interrupt=batch"},
		{"modelled.environment={kind: exponential, mean_s: 1}"},
		{"modelled.tools={calls: 2, time: {kind: exponential, mean_s: 1}}"},
		{"modelled.tools={calls: 2, calls_kind: poisson, time: {kind: fixed, mean_s: 1}}"},
		{"modelled.verifier.time={kind: lognormal, mean_s: 1, tailness: 50}"},
	} {
		if bound, why := newExamination(caseOf(t, append(overrides, lengths)...)).stalest(); bound >= 0 {
			t.Errorf("%q: %d: %s", overrides, bound, why)
		}
	}
	e := newExamination(caseOf(t, "schedule=synchronous"))
	if bound, _ := e.stalest(); bound != 0 {
		t.Errorf("synchronous: %d", bound)
	}
}

// A budget that doctor says cannot act decides nothing: every event is as
// without it.
func TestBudgetThatCannotBindDecidesNothing(t *testing.T) {
	with := caseOf(t, fixed, "queue={policy: max, max_staleness: 8}")
	f, ok := find(findingsOf(t, with), "budget-cannot-bind")
	if !ok || f.Basis != Arithmetic {
		t.Fatalf("found %+v", f)
	}
	without := caseOf(t, fixed)
	a, b := run(t, with, 50, 400), run(t, without, 50, 400)
	if a.ended[loop.EndDiscarded] != 0 || a.result.EndNS != b.result.EndNS || a.result.Ledger != b.result.Ledger {
		t.Errorf("with the budget %+v, without %+v", a.result.Ledger, b.result.Ledger)
	}
}

// prime-rl issue 2812: admission keeps the lag so low that a budget of 8 does
// nothing, in a simulation ten times as long as doctor's, too.
func TestBudgetOfPrimeRL(t *testing.T) {
	c := caseOf(t, lengths, "preset=prime-rl")
	f, ok := find(findingsOf(t, c), "budget-cannot-bind")
	if !ok || f.Severity != Warning {
		t.Fatalf("found %+v", f)
	}
	if _, closed := f.Figures.Value("predicted_share_over_budget"); closed {
		t.Errorf("the closed form knows nothing of pause_at: %v", f.Figures)
	}
	p := run(t, c, 50, 3000)
	if share := float64(p.ended[loop.EndDiscarded]) / float64(p.groups); share > 1e-3 {
		t.Errorf("%.4f of groups were discarded", share)
	}
	if mean := figure(t, f, "staleness_mean_versions"); math.Abs(p.result.Summary.Staleness.Mean/mean-1) > 0.1 {
		t.Errorf("mean %.2f, doctor said %.2f", p.result.Summary.Staleness.Mean, mean)
	}
}

// forge issue 557: under the budgets that doctor refuses, nothing that was
// started while the trainer worked towards a sync is ever trained.
func TestStarvingBudgetTrainsNothingStartedMeanwhile(t *testing.T) {
	overrides := []string{lengths, "modelled.sync.time_s=8", "rollout.concurrency=128"}
	d, err := resolved(t, append(overrides, "queue={policy: max, max_staleness: 0}")...)
	findings, all := Refuted(d, err)
	if f, ok := find(findings, "budget-starves"); !all || !ok || figure(t, f, "engines_behind_versions") != 1 {
		t.Fatalf("%v, found %+v", err, findings)
	}
	cfg := *caseOf(t, append(overrides, "queue={policy: max, max_staleness: 1}")...).Simulation
	cfg.Loop.MaxStaleness = 0
	doomed, late := map[loop.GroupID]bool{}, 0
	busy := false
	cfg.Observe = func(_ loop.Event, _, _ int64, actions []loop.Action) {
		for _, a := range actions {
			switch a.Kind {
			case loop.StartTrainStep:
				busy = true
			case loop.GroupTrained:
				busy = false
				if doomed[a.Group] {
					t.Errorf("g%d was trained", a.Group)
				}
			case loop.StartRollout:
				if busy && a.Sample == 0 && a.Attempt == 1 {
					doomed[a.Group] = true
					late++
				}
			}
		}
	}
	p, err := simulate(cfg)
	if err != nil || p.stalled != nil {
		t.Fatal(err, p.stalled)
	}
	if late < 100 || p.lost() < 0.3 {
		t.Errorf("%d groups started while the trainer worked, %.2f were thrown away", late, p.lost())
	}
}

// The settings that arithmetic refuses are refused by the loop itself.
func TestRefusedByTheLoop(t *testing.T) {
	for _, overrides := range [][]string{
		{gang, "rollout.concurrency=3"},
		{"queue.capacity=32"},
		{"queue={policy: max, max_staleness: 1}", "sync.every=3"},
		{"queue.pause_at=0.5"},
		{"queue={policy: bounded, eta: 1.9}", "sync.every=3"},
	} {
		d, _ := resolved(t, overrides...)
		if _, err := loop.New(d.LoopConfig()); err == nil {
			t.Errorf("%q makes a loop", overrides)
		}
	}
}

// The closed form of what a full queue drops is within 0.02 of the simulator's
// share, and the rollouts in flight that doctor names as enough are: with them the
// period is that of ρ = 1, and as little is dropped.
func TestWaste(t *testing.T) {
	for _, rho := range []float64{0.7, 0.9, 1, 1.1, 1.5, 3, 12} {
		for _, q := range []int{1, 2} {
			c := caseOf(t, lengths, fmt.Sprintf("queue.factor=%d", q), fmt.Sprintf("modelled.train.utilization=%g", rho))
			predicted, ok := newExamination(c).predictedWaste()
			p := run(t, c, 100, 600)
			if !ok || math.Abs(predicted-p.lost()) > 0.02 {
				t.Errorf("ρ %g, q %d: predicted %.3f (%v), simulated %.3f", rho, q, predicted, ok, p.lost())
			}
		}
	}
	wasteful := caseOf(t, lengths, "modelled.train.utilization=3", "rollout.concurrency=384")
	f, _ := find(findingsOf(t, wasteful), "waste")
	step := wasteful.Setting.StepS
	enough := caseOf(t, lengths, fmt.Sprintf("rollout.concurrency=%.0f", figure(t, f, "enough_rollouts")), "train={batch: null}", fmt.Sprintf("modelled.train={utilization: null, step_s: %g}", step))
	p := run(t, enough, 100, 600)
	if ratio := p.result.Summary.PeriodS.Mean / step; ratio > 1.1 || p.lost() > 0.1 {
		t.Errorf("with %d rollouts in flight the period is %.3f of a step, and %.2f are dropped", enough.Document.Rollout.Concurrency, ratio, p.lost())
	}
}

// slime pull request 2238: 1536 rollouts in flight for a batch of 8 lose nearly
// everything, and bounded admission nothing.
func TestWasteOfSlime(t *testing.T) {
	setting := []string{lengths, "rollout={concurrency: 1536, group_size: 8}", "train={batch: 8}", "modelled.train={utilization: null, step_s: 6}"}
	f, ok := find(findingsOf(t, caseOf(t, setting...)), "waste")
	if !ok || f.Severity != Error {
		t.Fatalf("found %+v", f)
	}
	p := run(t, caseOf(t, setting...), 100, 500)
	for _, name := range []string{"lost_share", "predicted_lost_share"} {
		if share := figure(t, f, name); math.Abs(share-p.lost()) > 0.01 {
			t.Errorf("%s is %.4f, a longer simulation lost %.4f", name, share, p.lost())
		}
	}
	if p := run(t, caseOf(t, append(setting, "queue={policy: bounded, eta: 2}")...), 100, 500); p.lost() != 0 {
		t.Errorf("bounded lost %.3f", p.lost())
	}
}

// The mean under bounded is within the slack, as whole numbers over a whole run,
// and single groups exceed it.
func TestBoundedMean(t *testing.T) {
	for _, eta := range []float64{0, 0.5, 1, 4} {
		for _, rho := range []float64{0.7, 2} {
			c := caseOf(t, threeLong, fmt.Sprintf("queue={policy: bounded, eta: %g}", eta), fmt.Sprintf("modelled.train.utilization=%g", rho), "rollout.concurrency=256", "modelled.sync.time_s=5")
			e := newExamination(c)
			left, _ := e.slack()
			sum, updates := 0, 0
			cfg := *c.Simulation
			cfg.Measured = 300
			cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
				for _, a := range actions {
					if a.Kind == loop.GroupTrained {
						sum += int(a.Version - a.StartVersion)
					}
				}
				if ev.Kind == loop.TrainStepEnded {
					updates++
				}
			}
			p, err := simulate(cfg)
			if err != nil || sum > updates*left {
				t.Errorf("η %g, ρ %g: %d versions in %d updates, more than %d each (%v)", eta, rho, sum, updates, left, err)
			}
			f, ok := find(findingsOf(t, c), "single-group-over-eta")
			if ok != (eta > 0) {
				t.Errorf("η %g: found %+v", eta, f)
			}
			if eta == 1 && (figure(t, f, "share_over_eta") == 0 || int(p.stalest) <= int(eta)) {
				t.Errorf("ρ %g: no group exceeded η: %+v", rho, f)
			}
		}
	}
}

// The mean under threshold is exactly what doctor says while it binds, and doctor
// says when it does not.
func TestThresholdMean(t *testing.T) {
	for _, test := range []struct {
		theta float64
		every int
		slots int
		mode  string
		rho   float64
		binds bool
	}{
		{0, 1, 128, "restart", 1.5, true}, {0.5, 1, 256, "restart", 1.5, true}, {1, 1, 512, "in_flight", 1.5, true}, {0.3, 4, 512, "restart", 1.5, true},
		{3, 1, 16, "restart", 0.6, false}, {0.5, 2, 512, "drain", 1.5, true}, {1, 1, 256, "drain", 1.5, true},
	} {
		c := caseOf(t, lengths, fmt.Sprintf("modelled.train.utilization=%g", test.rho), fmt.Sprintf("rollout.concurrency=%d", test.slots), fmt.Sprintf("sync={every: %d, mode: %s, trainer: blocked}", test.every, test.mode), "modelled.sync={time_s: 0.5}",
			fmt.Sprintf("queue={policy: threshold, staleness_threshold: %g}", test.theta))
		f, _ := find(findingsOf(t, c), "threshold-mean")
		mean := figure(t, f, "staleness_mean_syncs")
		kg := float64(test.every * 16)
		if want := math.Floor((1+test.theta)*kg+1e-9)/kg - 1; mean != want {
			t.Errorf("%+v: mean %g, want %g", test, mean, want)
		}
		got := run(t, c, 60, 400).result.Summary.Staleness.MeanSyncs
		switch {
		case test.mode == "drain":
			if got > mean {
				t.Errorf("%+v: simulated %.3f, above %.3f", test, got, mean)
			}
		case math.Abs(got-mean) < 0.02 != test.binds:
			t.Errorf("%+v: simulated %.3f, binding %.3f", test, got, mean)
		}
	}
}

// Where doctor says that there is nothing to interrupt nothing is interrupted,
// and where it is silent something is.
func TestInterrupts(t *testing.T) {
	for _, test := range []struct {
		overrides []string
		any       bool
	}{
		{[]string{"queue={policy: threshold, staleness_threshold: 0}", "sync={mode: restart}", "modelled.sync={time_s: 2}"}, false},
		{[]string{"queue={policy: threshold, staleness_threshold: 0.5}", "sync={mode: restart}", "modelled.sync={time_s: 2}"}, true},
		{[]string{"schedule=synchronous", "sync={mode: restart}", "modelled.sync={time_s: 2}"}, false},
		{[]string{"schedule=synchronous", "rollout.partial.interrupt=batch"}, false},
		{[]string{"schedule=synchronous", "rollout.partial.interrupt=batch", "rollout.oversample=1.5"}, true},
		{[]string{"modelled.train.utilization=1.5", "rollout.partial.interrupt=batch"}, true},
		{[]string{"modelled.train.utilization=0.2", "rollout.partial.interrupt=batch"}, false},
	} {
		c := caseOf(t, append(test.overrides, lengths)...)
		if p := run(t, c, 0, 100); p.interrupts > 0 != test.any {
			t.Errorf("%q: %d interrupts", test.overrides, p.interrupts)
		}
	}
}

// A selection from a queue of one batch is the same whatever the order.
func TestSelectionOfOneBatch(t *testing.T) {
	oldest, newest := run(t, caseOf(t, lengths), 0, 200), run(t, caseOf(t, lengths, "queue.select=newest"), 0, 200)
	if a, b := oldest.result, newest.result; a.EndNS != b.EndNS || a.Ledger != b.Ledger || a.Summary.Staleness.Mean != b.Summary.Staleness.Mean {
		t.Errorf("oldest %+v, newest %+v", a.Ledger, b.Ledger)
	}
}

// A full sync is skipped where doctor says that versions are.
func TestSlowSyncSkipsVersions(t *testing.T) {
	for _, test := range []struct {
		time  float64
		skips bool
	}{{60, true}, {10, false}} {
		c := caseOf(t, fmt.Sprintf("modelled.sync.time_s=%g", test.time))
		if _, found := find(findingsOf(t, c), "sync-longer-than-step"); found != test.skips {
			t.Errorf("sync of %g s: found %v", test.time, found)
		}
		cfg := *c.Simulation
		syncs, last, skipped := 0, loop.Version(0), 0
		cfg.Observe = func(_ loop.Event, _, _ int64, actions []loop.Action) {
			for _, a := range actions {
				if a.Kind == loop.SyncCompleted {
					syncs++
					if a.Version > last+1 {
						skipped++
					}
					last = a.Version
				}
			}
		}
		if _, err := sim.Run(cfg); err != nil || skipped > syncs/10 != test.skips {
			t.Errorf("sync of %g s: %d of %d skip versions (%v)", test.time, skipped, syncs, err)
		}
	}
}

// With gang starts no group starts after the loss that doctor warns of, and one
// does where it is silent.
func TestNoSpareEngine(t *testing.T) {
	for _, test := range []struct {
		engines string
		starts  bool
	}{{"[{slots: 3}, {slots: 3}]", false}, {"[{slots: 2}, {slots: 4}, {slots: 4}]", true}} {
		d, err := resolved(t, gang, "rollout.concurrency=null", "engines="+test.engines)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := find(findingsOf(t, Case{Document: d}), "no-spare-engine"); found == test.starts {
			t.Errorf("%s: found %v", test.engines, found)
		}
		l, err := loop.New(d.LoopConfig())
		if err != nil {
			t.Fatal(err)
		}
		started := map[loop.GroupID]bool{}
		var running []loop.Action
		step := func(ev loop.Event) {
			actions, _ := l.Step(ev)
			for _, a := range actions {
				if a.Kind == loop.StartRollout {
					running = append(running, a)
				}
			}
		}
		step(loop.Event{Kind: loop.RunStarted})
		lost := int32(len(d.Engines) - 1)
		step(loop.Event{Time: 1, Kind: loop.EngineLost, Engine: lost})
		for _, a := range running {
			started[a.Group] = true
		}
		again := false
		for i := 0; i < len(running) && i < 100; i++ {
			a := running[i]
			again = again || !started[a.Group]
			step(loop.Event{Time: 2, Kind: loop.RolloutScored, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Tokens: 1})
		}
		if again != test.starts {
			t.Errorf("%s: a group started after the loss: %v, want %v", test.engines, again, test.starts)
		}
	}
}

// At a low ρ the order of selection changes little, as doctor says, and at a
// higher one it does.
func TestNewestWithoutNeed(t *testing.T) {
	for _, test := range []struct {
		rho  float64
		more bool
	}{{0.5, false}, {1.3, true}} {
		at := func(order string) float64 {
			return run(t, caseOf(t, lengths, "queue={factor: 2, select: "+order+"}", fmt.Sprintf("modelled.train.utilization=%g", test.rho)), 100, 800).result.Summary.Staleness.Mean
		}
		if gain := at("oldest") - at("newest"); gain > 0.1 != test.more {
			t.Errorf("ρ %g: newest saves %.3f versions", test.rho, gain)
		}
	}
}

// A cap at the 90th percentile brings staleness to what the finding says.
func TestTailUnderACap(t *testing.T) {
	c := caseOf(t, lengths, "rollout.concurrency=128")
	f, _ := find(findingsOf(t, c), "tail")
	limit := c.Setting.Lengths.Quantile(0.9)
	step := c.Setting.StepS
	capped := caseOf(t, lengths, "rollout.concurrency=128", fmt.Sprintf("modelled.length.cap_tokens=%d", limit))
	got := run(t, capped, 100, 800).result.Summary.Staleness.Mean
	if want := figure(t, f, "staleness_mean_capped_versions"); math.Abs(got-want) > 0.15 || capped.Setting.StepS >= step {
		t.Errorf("capped at %d tokens: %.3f versions, doctor said %.3f", limit, got, want)
	}
}

// Siblings that run one after another make a group older than the closed form says.
func TestGroupOverSlots(t *testing.T) {
	c := caseOf(t, lengths, "rollout.concurrency=2", "train.batch=8")
	e := newExamination(c)
	p, _ := e.predict()
	closed, _ := p.PQS.Value()
	if got := run(t, c, 100, 1500).result.Summary.PQS.Mean; got < 1.2*closed {
		t.Errorf("PQS %.3f, the closed form has %.3f", got, closed)
	}
}
