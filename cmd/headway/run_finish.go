package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/headway-rl/headway/bias"
	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/trace"
)

// runReport is what a run prints with --json.
type runReport struct {
	Steps            loop.Version       `json:"steps"`
	HeldOutAccuracy  float64            `json:"held_out_accuracy"`
	HeldOutPrompts   int                `json:"held_out_prompts"`
	WallS            float64            `json:"wall_s"`
	Reward           rewardSpan         `json:"reward"`
	Staleness        stalenessReport    `json:"staleness"`
	PQS              metrics.Mean       `json:"pqs"`
	IQS              metrics.Mean       `json:"iqs"`
	Dominant         string             `json:"dominant"`
	Utilization      float64            `json:"utilization"`
	TailMultiplier   float64            `json:"tail_multiplier"`
	ClipFraction     float64            `json:"clip_fraction"`
	MeanLogRatio     float64            `json:"mean_log_ratio"`
	EffectiveSample  float64            `json:"effective_sample_size"`
	TrainerIdleRatio float64            `json:"trainer_idle_ratio"`
	RolloutIdleRatio float64            `json:"rollout_idle_ratio"`
	TokensPerS       float64            `json:"tokens_per_s"`
	PeriodS          metrics.Mean       `json:"period_s"`
	Throughput       metrics.Throughput `json:"throughput"`
	Length           metrics.Length     `json:"length"`
	// Waste, Partial, FilterAcceptance, Reuse and Signal say what became of what was made.
	Waste            metrics.Waste   `json:"waste"`
	Partial          metrics.Partial `json:"partial"`
	FilterAcceptance metrics.Filters `json:"filter_acceptance"`
	Reuse            metrics.Reuse   `json:"reuse"`
	Signal           metrics.Signal  `json:"signal"`
	// OffPolicy is how far training was off policy, by staleness; Bias compares what was trained with what was started.
	OffPolicy []lagLine    `json:"off_policy"`
	Bias      *bias.Report `json:"bias"`
	// Verl are figures of the measured window under verl's names.
	Verl     map[string]float64 `json:"verl"`
	Ledger   ledgerReport       `json:"ledger"`
	Finished string             `json:"finished"`
	Trace    string             `json:"trace"`
	Warnings []string           `json:"warnings,omitempty"`
}

type rewardSpan struct {
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Best  float64 `json:"best"`
}

// stalenessReport sets what was measured beside what was expected. Figures that
// nothing covers are null.
type stalenessReport struct {
	MeasuredMean             float64      `json:"measured_mean"`
	MeasuredP95              loop.Version `json:"measured_p95"`
	TokenMean                float64      `json:"token_mean"`
	PredictedMean            *float64     `json:"predicted_mean"`
	ClosedFormMeasuredInputs *float64     `json:"closed_form_measured_inputs"`
	ClosedFormP95            *float64     `json:"closed_form_p95"`
	ResimulatedMean          *float64     `json:"resimulated_mean"`
	ResimulatedP95           *float64     `json:"resimulated_p95"`
}

// ledgerReport is the ledger with its verdict.
type ledgerReport struct {
	loop.Ledger
	Balanced bool `json:"balanced"`
}

// finish evaluates the last version, compares and reports.
func (j *job) finish(ctx context.Context, res live.Result, asJSON bool) error {
	r, err := j.report(ctx, res)
	if err != nil {
		return err
	}
	if err := j.writeReport(r, res); err != nil {
		return err
	}
	if asJSON {
		err = writeJSON(j.app, r)
	} else {
		err = j.print(r, res)
	}
	if res.Reason == loop.ReasonStopped {
		fmt.Fprintf(j.app.Stderr, "stopped after train step %d of %d; go on with: headway run --resume %s\n", r.Steps, j.cfg.Trainer.Steps, j.dir)
	}
	return err
}

func (j *job) report(ctx context.Context, res live.Result) (runReport, error) {
	s := res.Summary
	r := runReport{
		Steps: res.Status.Version, WallS: max(j.wallS(), float64(res.Status.TimeNS)/1e9), PQS: s.PQS, IQS: s.IQS, Dominant: s.Dominant,
		Utilization: s.Utilization, TailMultiplier: s.TailMultiplier,
		TrainerIdleRatio: s.TrainerIdleRatio, RolloutIdleRatio: s.RolloutIdleRatio, PeriodS: s.PeriodS, Throughput: s.Throughput,
		TokensPerS: s.Throughput.ConsumptionRolloutsPerWallS * s.Length.TrainedMeanTokens,
		Ledger:     ledgerReport{res.Status.Ledger, res.Status.Ledger.Balanced()},
		Finished:   res.Reason.String(), Trace: filepath.Join(j.dir, trace.FileName),
	}
	r.Length, r.Waste, r.Partial, r.FilterAcceptance, r.Reuse, r.Signal = s.Length, s.Waste, s.Partial, s.FilterAcceptance, s.Reuse, s.Signal
	r.OffPolicy, r.Verl = offPolicy(j.steps.lines, j.warmup()), verlMetrics(s)
	r.Staleness = stalenessReport{MeasuredMean: s.Staleness.Mean, MeasuredP95: s.Staleness.P95, TokenMean: s.TokenStaleness.Mean}
	r.Staleness.PredictedMean = j.expected.StalenessMean
	j.learning(&r)
	accuracy, prompts, err := j.evaluateLast(ctx, res.Status.Version)
	if err != nil {
		return r, runError("the run itself is complete; "+r.Trace, "evaluating version %d: %w", res.Status.Version, err)
	}
	r.HeldOutAccuracy, r.HeldOutPrompts = accuracy, prompts
	closed, err := expect(j.cfg, measuredInput(j.cfg, s.Utilization, s.TailMultiplier, s.StepS.Mean, max(s.Acceptance, 1e-6)))
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("closed form: %v", err))
	} else {
		r.Staleness.ClosedFormMeasuredInputs, r.Staleness.ClosedFormP95 = figure(closed.Staleness.Mean), figure(closed.Staleness.P95)
		r.Warnings = append(r.Warnings, closed.Warnings...)
	}
	if again, err := resimulateDir(j.dir, j.cfg); err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("resimulation: %v", err))
	} else {
		mean, p95 := again.Summary.Staleness.Mean, float64(again.Summary.Staleness.P95)
		r.Staleness.ResimulatedMean, r.Staleness.ResimulatedP95 = &mean, &p95
		j.resimulated = &again.Summary
	}
	compared, err := biasOfRun(j.dir)
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("bias: %v", err))
	}
	r.Bias = compared
	return r, nil
}

// learning sums the step log up over the measured window.
func (j *job) learning(r *runReport) {
	lines := j.steps.lines
	if len(lines) == 0 {
		return
	}
	r.Reward = rewardSpan{First: lines[0].Reward, Last: lines[len(lines)-1].Reward, Best: lines[0].Reward}
	n := 0.0
	for _, line := range lines {
		r.Reward.Best = max(r.Reward.Best, line.Reward)
		if line.Step <= j.warmup() && len(lines) > int(j.warmup()) {
			continue
		}
		if line.EffectiveSampleSize == 0 {
			continue // found published by a process that ended before it could say more
		}
		r.ClipFraction += line.ClipFraction
		r.MeanLogRatio += line.MeanLogRatio
		r.EffectiveSample += line.EffectiveSampleSize
		n++
	}
	r.ClipFraction, r.MeanLogRatio, r.EffectiveSample = finite(r.ClipFraction/n), finite(r.MeanLogRatio/n), finite(r.EffectiveSample/n)
}
