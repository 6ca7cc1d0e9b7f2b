package diagnosis_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/explain/foreign"
)

func logged(v float64) foreign.Figure {
	return foreign.Figure{Value: v, Origin: foreign.Logged, From: "a key"}
}

// madeLog is a log of so many steps around a train-bound steady state; change alters each.
func madeLog(steps int, change func(i int, s *foreign.Step)) *foreign.Log {
	rng := rand.New(rand.NewPCG(1, 2))
	log := &foreign.Log{Framework: "prime-rl", Definition: "made", Settings: foreign.Settings{
		ConcurrencyRollouts: logged(256), BatchRollouts: logged(128), GroupSize: logged(8), QueueRollouts: logged(512), StalenessBudget: logged(40),
		Policy: "drop", RolloutGPUs: logged(48), TrainGPUs: logged(16), SyncEvery: logged(1)}}
	for i := range steps {
		near := func(v float64) foreign.Figure { return logged(v * (1 + 0.02*rng.NormFloat64())) }
		s := foreign.Step{Step: int64(i + 1), Steps: 1, PeriodS: near(30), TrainS: near(30), StalenessMean: near(5.2), StalenessMax: logged(9), TrainerIdle: logged(0),
			RolloutIdle: logged(0), RolloutMeanS: near(30), TailMultiplier: near(2.2), Trained: logged(128), Dropped: logged(128)}
		if change != nil {
			change(i, &s)
		}
		log.Series = append(log.Series, s)
	}
	return log
}

func ofLog(t *testing.T, log *foreign.Log, options diagnosis.Options) diagnosis.Report {
	t.Helper()
	r, err := diagnosis.OfLog(context.Background(), log, options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestALogIsJudged(t *testing.T) {
	r := ofLog(t, madeLog(200, nil), diagnosis.Options{Run: "theirs"})
	if !r.Settled.OK || r.Source != "prime-rl" || r.Log == nil {
		t.Fatalf("%+v", r.Settled)
	}
	// C/latency over B/step: (256/30)/(128/30).
	if rho := r.Fitted.Utilization; math.Abs(rho.Value-2) > 0.05 || rho.Origin != foreign.Inferred || rho.From == "" {
		t.Errorf("utilization %+v", rho)
	}
	if q := r.Fitted.QueueFactor; q.Value != 4 {
		t.Errorf("queue factor %+v", q)
	}
	one := found(r, "queue_factor_one")
	if one == nil || one.Change == nil || one.Change.Method != "closed_form" || one.Change.Gain < 0.2 || len(one.Change.Overrides) > 0 {
		t.Errorf("queue_factor_one: %+v", one)
	}
	if f := found(r, "move_to_trainer"); f == nil || f.Change == nil || f.Change.PeriodRatio > 0.9 || !strings.Contains(f.Change.Set, "deployment.num_train_gpus") {
		t.Errorf("move_to_trainer: %+v", f)
	}
	if f := found(r, "concurrency"); f != nil && !strings.Contains(f.Change.Set, "max_inflight") {
		t.Errorf("concurrency is set by %q", f.Change.Set)
	}
	if f := found(r, "budget_cannot_bind"); f == nil || !strings.Contains(f.Evidence[0], "max_off_policy_steps") {
		t.Errorf("budget_cannot_bind: %+v", f)
	}
	if f := found(r, "waste"); f == nil || f.CostRatio < 0.4 {
		t.Errorf("waste: %+v", f)
	}
}

// A budget over which groups were dropped binds, though none that was trained reached it.
func TestABudgetThatDropsBinds(t *testing.T) {
	log := madeLog(100, nil)
	log.Settings.Policy = "max"
	if f := found(ofLog(t, log, diagnosis.Options{}), "budget_cannot_bind"); f != nil {
		t.Errorf("%+v", f)
	}
	log = madeLog(100, func(_ int, s *foreign.Step) { s.Dropped = logged(0) })
	log.Settings.Policy = "max"
	if found(ofLog(t, log, diagnosis.Options{}), "budget_cannot_bind") == nil {
		t.Error("nothing reached it and nothing was dropped, and it is not said")
	}
}

// Shares of what was generated are of one whole: trained, dropped, filtered and failed.
func TestSharesOfALogAddUp(t *testing.T) {
	r := ofLog(t, madeLog(100, func(_ int, s *foreign.Step) { s.Dropped, s.Filtered, s.Failed = logged(256), logged(192), logged(64) }), diagnosis.Options{})
	if f := found(r, "waste"); f == nil || math.Abs(f.CostRatio-0.7) > 1e-9 { // (256 + 192) ÷ 640
		t.Errorf("waste: %+v", f)
	}
	if f := found(r, "environment_failures"); f == nil || math.Abs(f.CostRatio-0.1) > 1e-9 {
		t.Errorf("failures: %+v", f)
	}
	if a := r.Fitted.Acceptance; math.Abs(a.Value-0.4) > 1e-9 { // 128 ÷ (128 + 192)
		t.Errorf("acceptance: %+v", a)
	}
}

// The faults of a log's files are said in the short answer, and without a file that there is none of.
func TestTheFaultsOfALogAreSaid(t *testing.T) {
	log := madeLog(100, nil)
	log.Warnings = []foreign.Warning{{Text: "logged again", Count: 10}, {File: "b.jsonl", Text: "of two runs give one alone", Count: 1}}
	r := ofLog(t, log, diagnosis.Options{})
	if notes := strings.Join(diagnosis.First(r).Notes, "\n"); !strings.Contains(notes, "logged again (10 times)\nb.jsonl: of two runs give one alone") {
		t.Errorf("notes %q", notes)
	}
	if text := diagnosis.Text(r, 100); !strings.Contains(text, "  - logged again (10 times)\n") {
		t.Error(text)
	}
}

// Idle engines and a busy trainer, and the reverse.
func TestGPUsMoveToWhereItBinds(t *testing.T) {
	idleEngines := ofLog(t, madeLog(100, func(_ int, s *foreign.Step) { s.RolloutIdle, s.TrainerIdle = logged(0.5), logged(0.01) }), diagnosis.Options{})
	if found(idleEngines, "move_to_trainer") == nil || found(idleEngines, "move_to_rollout") != nil {
		t.Errorf("%+v", idleEngines.Findings)
	}
	idleTrainer := ofLog(t, madeLog(100, func(_ int, s *foreign.Step) {
		s.RolloutIdle, s.TrainerIdle, s.RolloutMeanS, s.TrainS = logged(0.01), logged(0.6), logged(60), logged(12)
	}), diagnosis.Options{})
	f := found(idleTrainer, "move_to_rollout")
	if f == nil || found(idleTrainer, "move_to_trainer") != nil {
		t.Fatalf("%+v", idleTrainer.Findings)
	}
	if f.Change == nil || f.Change.PeriodRatio > 0.95 {
		t.Errorf("%+v", f.Change)
	}
}

// What the log lacks is said, and what rests on it is not.
func TestALogWithoutItsTail(t *testing.T) {
	bare := madeLog(100, func(_ int, s *foreign.Step) { s.TailMultiplier = foreign.Figure{} })
	r := ofLog(t, bare, diagnosis.Options{})
	if len(r.Compared) > 0 || !strings.Contains(strings.Join(r.Warnings, " "), "tail multiplier") {
		t.Errorf("%v, %v", r.Compared, r.Warnings)
	}
	given := ofLog(t, bare, diagnosis.Options{Given: map[string]float64{"tail_multiplier": 2.2}})
	if given.Fitted.TailMultiplier.Origin != foreign.Given || len(given.Compared) == 0 {
		t.Errorf("%+v, %v", given.Fitted.TailMultiplier, given.Compared)
	}
	slow := ofLog(t, madeLog(100, func(_ int, s *foreign.Step) { s.TailMultiplier, s.RolloutP95S = foreign.Figure{}, logged(60) }), diagnosis.Options{})
	if m := slow.Fitted.TailMultiplier; m.Origin != foreign.Inferred || m.Value < 1.5 || m.Value > 2.6 { // a lognormal with p95 = 2·mean has σ = 0.51
		t.Errorf("%+v", m)
	}
}

// What is not known is no 0 in JSON: it has no key.
func TestUnknownFiguresHaveNoKey(t *testing.T) {
	log := madeLog(100, func(_ int, s *foreign.Step) { s.TailMultiplier = foreign.Figure{} })
	log.Settings.ConcurrencyRollouts = foreign.Figure{}
	text, err := json.Marshal(ofLog(t, log, diagnosis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Fitted map[string]foreign.Figure
		Log    struct{ Settings map[string]any }
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for key, v := range r.Fitted {
		if !v.Known() {
			t.Errorf("%s is %+v", key, v)
		}
	}
	for _, key := range []string{"tail_multiplier", "concurrency_rollouts"} {
		if _, ok := r.Fitted[key]; ok {
			t.Errorf("%s is there", key)
		}
	}
	if _, ok := r.Log.Settings["concurrency_rollouts"]; ok || r.Fitted["batch_rollouts"].Value != 128 {
		t.Errorf("settings %v, fitted %v", r.Log.Settings, r.Fitted)
	}
}

func TestLogsThatCannotBeJudged(t *testing.T) {
	if _, err := diagnosis.OfLog(context.Background(), &foreign.Log{Framework: "trl"}, diagnosis.Options{}); !errors.Is(err, diagnosis.ErrEmpty) {
		t.Errorf("%v", err)
	}
	drifting := ofLog(t, madeLog(200, func(i int, s *foreign.Step) { s.StalenessMean = logged(1 + float64(i)/20) }), diagnosis.Options{})
	if drifting.Settled.OK || found(drifting, "queue_factor_one") != nil || !strings.Contains(drifting.Settled.Why, "drifts") {
		t.Errorf("%+v", drifting.Settled)
	}
	short := ofLog(t, madeLog(12, nil), diagnosis.Options{})
	if short.Settled.OK || short.Settled.MoreSteps != 8 {
		t.Errorf("%+v", short.Settled)
	}
	wrong := ofLog(t, madeLog(100, func(_ int, s *foreign.Step) {
		s.StalenessMean, s.PeriodS = logged(math.NaN()), logged(math.Inf(1))
	}), diagnosis.Options{})
	if wrong.Settled.OK {
		t.Errorf("numbers that are none: %+v", wrong.Settled)
	}
}

// The tail leads: a log whose tail grows says so, and what staleness comes to.
func TestDriftOfTheTail(t *testing.T) {
	r := ofLog(t, madeLog(200, func(i int, s *foreign.Step) { s.TailMultiplier = logged(2 + float64(i)/200) }), diagnosis.Options{})
	f := found(r, "drift_tail_multiplier")
	if f == nil || !strings.Contains(f.Evidence[0], "staleness follows") || !strings.Contains(f.Evidence[0], "versions") {
		t.Errorf("%+v", f)
	}
	still := ofLog(t, madeLog(200, nil), diagnosis.Options{})
	for _, d := range still.Drift {
		if d.Sure {
			t.Errorf("chance counts as drift: %+v", d)
		}
	}
}

// Where no closed form holds, what was fitted is simulated, if that has the log's staleness.
func TestALogWithoutAClosedForm(t *testing.T) {
	bounded := func(staleness float64) *foreign.Log {
		log := madeLog(60, func(_ int, s *foreign.Step) {
			s.StalenessMean, s.StalenessMax, s.TrainS, s.TrainerIdle = logged(staleness), logged(6), logged(15), logged(0.5)
		})
		log.Framework, log.Settings.Policy, log.Settings.StalenessBudget = "areal", "bounded", logged(3)
		return log
	}
	r := ofLog(t, bounded(3), diagnosis.Options{})
	f := found(r, "staleness_budget")
	if f == nil || f.Change == nil || f.Change.Method != "simulation" || !strings.Contains(f.Change.Set, "max_head_offpolicyness") || math.Abs(f.Change.StalenessMean-1) > 0.1 {
		t.Fatalf("%+v", f)
	}
	for _, c := range r.Compared {
		if c.Method != "simulation" || c.What == "period_s" && math.Abs(c.Predicted/c.Measured-1) > 0.03 {
			t.Errorf("%+v", c)
		}
	}
	other := ofLog(t, bounded(9), diagnosis.Options{}) // no run under such a bound
	if found(other, "staleness_budget") != nil || !strings.Contains(strings.Join(other.Warnings, " "), "not priced") {
		t.Errorf("%+v, %v", other.Findings, other.Warnings)
	}
}
