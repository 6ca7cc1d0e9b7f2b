package plan

import (
	"cmp"
	"fmt"
	"math"

	"github.com/headway-rl/headway/predict/schedule"
	"github.com/headway-rl/headway/predict/theory"
)

// Async says whether asynchrony pays, against the synchronous schedule with every
// GPU in both phases.
type Async struct {
	// Pays is whether the recommended setting's noise-adjusted update is at least a tenth faster than the synchronous schedule's at its own best batch.
	Pays bool `json:"pays"`
	// Speedup is that ratio; BestBatch and BestUpdateS are the synchronous schedule's, by closed form.
	Speedup     float64 `json:"speedup"`
	BestBatch   int     `json:"synchronous_best_batch_rollouts"`
	BestUpdateS float64 `json:"synchronous_best_update_s"`
	// SynchronousStepS is the synchronous step on shared GPUs at the same batch. SeparateStepS is that on separate ones (0 where it cannot run), PeriodS the recommended setting's.
	SynchronousStepS float64 `json:"synchronous_step_s"`
	SeparateStepS    float64 `json:"synchronous_separate_step_s"`
	PeriodS          float64 `json:"period_s"`
	// StepSpeedup is SynchronousStepS over PeriodS.
	StepSpeedup float64 `json:"step_speedup"`
	// Effect is what gives or costs most between the two kinds of schedule.
	Effect string `json:"effect"`
	// Text says it in a sentence or two.
	Text string `json:"text"`
}

// asyncWorth is the speed-up from which asynchrony is advised: below it the
// schedule that is easier to get right, and fresher, is as good.
const asyncWorth = 1.1

// asyncRollouts bounds the simulations behind the comparison, asyncBatches their window.
const (
	asyncRollouts = 60_000
	asyncBatches  = 8
)

// async compares the recommended setting with the synchronous schedule.
func (s *search) async() error {
	c := &s.plan.Recommended
	in := shrunkSchedules(updatesAlone(s.problem, c))
	in.Warmup, in.Batches = 2, max(min(asyncRollouts/max(in.BatchGroups*in.GroupSize, 1), asyncBatches), 3)
	s.problem.progress("comparing schedules", 0, 1)
	compared, err := schedule.Compare(in)
	if err != nil {
		s.plan.Warnings = append(s.plan.Warnings, "the synchronous schedules were not compared: "+err.Error())
		return nil
	}
	a := Async{PeriodS: c.Best().PeriodS, Effect: compared.Conclusion.Effect}
	for _, row := range compared.Rows {
		switch row.Name {
		case schedule.Colocated:
			a.SynchronousStepS = row.Parts.StepS
		case schedule.Synchronous:
			a.SeparateStepS = row.Parts.StepS
		}
	}
	if a.PeriodS > 0 {
		a.StepSpeedup = a.SynchronousStepS / a.PeriodS
	}
	s.baseline(&a)
	a.Pays = a.Speedup >= asyncWorth && c.Policy != theory.PolicySynchronous
	a.Text = a.text(c)
	s.plan.Async = a
	return nil
}

// baseline finds the batch at which the synchronous schedule with every GPU in
// both phases has its best noise-adjusted update.
func (s *search) baseline(a *Async) {
	c := s.plan.Recommended
	engines := max(c.GPUs()/s.problem.Machine.GPUsPerReplica, 1)
	for _, batch := range append(s.grid.batches, c.BatchRollouts) {
		c.BatchRollouts = batch
		c.SlotsPerReplica = (batch + engines - 1) / engines
		if most := s.problem.Machine.SlotsMax; most > 0 {
			c.SlotsPerReplica = min(c.SlotsPerReplica, most)
		}
		in := updatesAlone(s.problem, &c).WithDefaults()
		if in.Validate() != nil {
			continue
		}
		update := in.ClosedS(in.Arm(schedule.Colocated)) / math.Sqrt(s.eval.effectiveBatch(&c, &Figures{}))
		if a.BestBatch == 0 || update < a.BestUpdateS {
			a.BestBatch, a.BestUpdateS = batch, update
		}
	}
	if own := s.plan.Recommended.Best().UpdateS; own > 0 && a.BestBatch > 0 {
		a.Speedup = a.BestUpdateS / own
	}
}

// updatesAlone is [Schedules] with train steps of nothing but the update: rollouts
// bring their own log-probs under every schedule, as they do in a plan's periods, so
// that neither side of a comparison pays for a pass that the other is spared.
func updatesAlone(p *Problem, c *Candidate) schedule.Input {
	in := Schedules(p, c)
	in.LogProbs.S = 0
	return in
}

// text says whether it pays.
func (a *Async) text(c *Candidate) string {
	f := c.Best()
	both := fmt.Sprintf("its noise-adjusted update takes %s s, that of the synchronous schedule with all GPUs in each phase %s s at its own best batch of %d rollouts, at staleness 0", number(f.UpdateS), number(a.BestUpdateS), a.BestBatch)
	same := fmt.Sprintf("At the same batch a step takes %s s instead of %s s", number(a.PeriodS), number(a.SynchronousStepS))
	switch {
	case c.Policy == theory.PolicySynchronous:
		return "The budget leaves the synchronous schedule: " + both + "."
	case a.Pays:
		return fmt.Sprintf("Asynchrony pays, %.2f times as fast: %s. %s; most of that is from %s.", a.Speedup, both, same, a.Effect)
	case a.Speedup >= 1:
		return fmt.Sprintf("Async will not pay here, it is only %.2f times as fast: %s. %s. The synchronous schedule is fresher and simpler.", a.Speedup, both, same)
	}
	return fmt.Sprintf("Async will not pay here, it is slower: %s. %s.", both, same)
}

// Schedules is a candidate's batch, split and speeds as the input of a comparison
// of schedules: headway plan --schedules.
func Schedules(p *Problem, c *Candidate) schedule.Input {
	m, d := &p.Machine, &p.Document
	tokens := p.Lengths.Mean()
	// A slot's share of reading prompts is in its step, as in the plan's own speeds.
	step := func(active int) float64 { return m.tokenS(float64(active), tokens) }
	train := schedule.Phase{S: m.updateS(float64(c.BatchRollouts), tokens+m.PromptTokens, c.TrainGPUs), GPUs: c.TrainGPUs}
	if m.TrainS != nil {
		train.Slowdown = func(gpus int) float64 {
			return m.updateS(float64(c.BatchRollouts), tokens+m.PromptTokens, gpus) / train.S * float64(gpus) / float64(train.GPUs)
		}
	}
	forward := 1.0 / 3
	if d.Hardware.Recompute && d.Hardware.TrainTokensPerSPerGPU == 0 {
		forward = 1.0 / 4
	}
	prefill := 0.0
	if m.PrefillS > 0 {
		prefill = m.PromptTokens / m.PrefillS
	}
	drift := 0.0
	if d.Given("modelled.train.drift_nats_per_version") { // as in evaluator.drift, half a variance
		drift = math.Pi / 4 * d.Modelled.Train.DriftNatsPerVersion * d.Modelled.Train.DriftNatsPerVersion
	}
	return schedule.Input{
		KLPerBatch: drift, KLExponent: 2, ClipLow: d.Trainer.ClipEpsilon, ClipHigh: d.Trainer.ClipEpsilon,
		Lengths: p.Lengths, Environment: p.Environment, GroupSize: d.Rollout.GroupSize, BatchGroups: c.BatchRollouts / d.Rollout.GroupSize,
		GPUs: c.GPUs(), RolloutGPUs: c.RolloutGPUs, GPUsPerEngine: m.GPUsPerReplica, TrainGPUsMin: m.TrainGPUsMin, TrainGPUsUnit: m.TrainGPUsUnit,
		SlotsPerEngine: c.SlotsPerReplica, Decode: schedule.Sampled(step, max(c.SlotsPerReplica, 1)), PrefillTokensPerS: prefill,
		Train: train, LogProbs: schedule.Phase{S: train.S * forward, GPUs: train.GPUs, Slowdown: train.Slowdown},
		StalenessMax: d.Budget.StalenessMean, StalenessP95Max: float64(d.Budget.StalenessP95),
		SyncS: c.SyncS, SwitchS: cmp.Or(m.SwitchS, c.SyncS), QueueFactor: max(c.QueueFactor, 1), Threshold: max(c.StalenessThreshold, 0.5), Seed: d.Seed,
	}
}
