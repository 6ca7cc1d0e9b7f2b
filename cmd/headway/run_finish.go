package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/forecast"
	"github.com/headway-rl/headway/predict/theory"
)

// runReport is what a run prints with --json.
type runReport struct {
	Steps           loop.Version    `json:"steps"`
	HeldOutAccuracy float64         `json:"held_out_accuracy"`
	HeldOutPrompts  int             `json:"held_out_prompts"`
	WallS           float64         `json:"wall_s"`
	Reward          rewardSpan      `json:"reward"`
	Staleness       stalenessReport `json:"staleness"`
	// Predicted is what the probe expected before the first step, as it stands in the trace.
	Predicted forecast.Forecast `json:"predicted"`
	PQS       metrics.Mean      `json:"pqs"`
	IQS       metrics.Mean      `json:"iqs"`
	Dominant  string            `json:"dominant"`
	// Attribution says where every version of staleness, and the idle time of both sides, came from.
	Attribution    attribution.Summary `json:"attribution"`
	Utilization    float64             `json:"utilization"`
	TailMultiplier float64             `json:"tail_multiplier"`
	// ClipFraction is the share of tokens outside the band, ActiveClipFraction of those that lost their gradient to
	// clipping; MaskedFraction were left out of the loss, TruncatedFraction had their weight cut to a bound.
	ClipFraction       float64            `json:"clip_fraction"`
	ActiveClipFraction float64            `json:"active_clip_fraction"`
	MaskedFraction     float64            `json:"masked_fraction"`
	TruncatedFraction  float64            `json:"truncated_fraction"`
	MeanLogRatio       float64            `json:"mean_log_ratio"`
	EffectiveSample    float64            `json:"effective_sample_size"`
	TrainerIdleRatio   float64            `json:"trainer_idle_ratio"`
	RolloutIdleRatio   float64            `json:"rollout_idle_ratio"`
	TokensPerS         float64            `json:"tokens_per_s"`
	PeriodS            metrics.Mean       `json:"period_s"`
	Throughput         metrics.Throughput `json:"throughput"`
	Length             metrics.Length     `json:"length"`
	// Waste, Partial, FilterAcceptance, Reuse and Signal say what became of what was made.
	Waste            metrics.Waste   `json:"waste"`
	Partial          metrics.Partial `json:"partial"`
	FilterAcceptance metrics.Filters `json:"filter_acceptance"`
	Reuse            metrics.Reuse   `json:"reuse"`
	Signal           metrics.Signal  `json:"signal"`
	// OffPolicy is how far training was off policy, by staleness; Bias compares what was trained with what was started.
	OffPolicy []steps.Lag  `json:"off_policy"`
	Bias      *bias.Report `json:"bias"`
	// Control is what the controller did after the warm-up; absent without a goal.
	Control *metrics.Control `json:"control,omitempty"`
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

// ending is a run that has ended, with what its report adds.
type ending struct {
	*run.Run
	// full: every table is printed.
	full bool
	// resimulated is the run in virtual time, nil where that was not possible.
	resimulated *metrics.Summary
}

// finish evaluates the last version, compares and reports.
// A stalled run gets no advice to resume: it would stall again.
func (e *ending) finish(ctx context.Context, res live.Result, asJSON, stalled bool) error {
	r, err := e.report(ctx, res)
	if err != nil {
		return err
	}
	if stalled {
		r.Finished = "stalled"
	}
	unwritten := e.writeReport(r, res)
	if asJSON {
		err = printJSON(e.App.Stdout, r)
	} else {
		err = e.print(r, res)
	}
	err = errors.Join(unwritten, err)
	if res.Reason == loop.ReasonStopped && !stalled {
		fmt.Fprintf(e.App.Stderr, "stopped after train step %d of %d; go on with: headway run --resume %s\n", r.Steps, e.Cfg.Trainer.Steps, printable.Word(e.Dir))
	}
	return err
}

// stalled says why the run made no further step before how far it came.
func (e *ending) stalled(ctx context.Context, why error, res live.Result, asJSON bool) error {
	failed := failure.Run("a run with these settings stalls again; change what is named", "%w", why)
	failure.Print(e.App.Stderr, failed)
	if err := e.finish(ctx, res, asJSON, true); err != nil {
		return err
	}
	return &failure.Error{Code: failure.ExitFailure, Message: failed.Error(), Cause: why, Said: true}
}

func (e *ending) report(ctx context.Context, res live.Result) (runReport, error) {
	s := res.Summary
	r := runReport{
		Steps: res.Status.Version, WallS: max(e.WallS(), float64(res.Status.TimeNS)/1e9), PQS: s.PQS, IQS: s.IQS, Dominant: s.Dominant,
		Utilization: s.Utilization, TailMultiplier: s.TailMultiplier,
		TrainerIdleRatio: s.TrainerIdleRatio, RolloutIdleRatio: s.RolloutIdleRatio, PeriodS: s.PeriodS, Throughput: s.Throughput,
		TokensPerS: s.Throughput.ConsumptionRolloutsPerWallS * s.Length.TrainedMeanTokens,
		Ledger:     ledgerReport{res.Status.Ledger, res.Status.Ledger.Balanced()},
		Finished:   res.Reason.String(), Trace: trace.Path(e.Dir),
	}
	r.Attribution, r.Control = res.Attribution, s.Control
	r.Length, r.Waste, r.Partial, r.FilterAcceptance, r.Reuse, r.Signal = s.Length, s.Waste, s.Partial, s.FilterAcceptance, s.Reuse, s.Signal
	r.OffPolicy, r.Verl = offPolicy(e.Steps.Lines, e.Warmup(), newClipLimits(e.Cfg.Trainer)), metrics.VerlByName(s)
	r.Staleness = stalenessReport{MeasuredMean: s.Staleness.Mean, MeasuredP95: s.Staleness.P95, TokenMean: s.TokenStaleness.Mean}
	r.Staleness.PredictedMean, r.Predicted = e.Expected.StalenessMean, e.Expected
	e.learning(&r)
	if s.Staleness.Mean == 0 {
		r.Dominant = "" // neither part of nothing is the larger
	}
	if r.Steps == 0 {
		return r, nil // nothing to evaluate, compare or expect
	}
	accuracy, prompts, err := e.EvaluateLast(ctx, res.Status.Version)
	if err != nil {
		return r, failure.Run("the run itself is complete; "+r.Trace, "evaluating version %d: %w", res.Status.Version, err)
	}
	r.HeldOutAccuracy, r.HeldOutPrompts = accuracy, prompts
	r.Warnings = append(r.Warnings, e.TakePaces().Warnings()...)
	if s.Steps == 0 {
		return r, nil // nothing was measured
	}
	measured, unfit := diagnosis.MeasuredInput(e.Cfg.LoopConfig(), s)
	if unfit = cmp.Or(unfit, experiment.Uncovered(e.Cfg.Real())); unfit != "" {
		// Nothing to say: the column is absent.
	} else if closed, err := theory.Predict(measured); err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("closed form: %v", err))
	} else {
		if mean, ok := diagnosis.MeanOf(&closed); ok {
			r.Staleness.ClosedFormMeasuredInputs = &mean
		}
		r.Staleness.ClosedFormP95 = experiment.Optional(closed.Staleness.P95)
		r.Warnings = append(r.Warnings, slices.DeleteFunc(closed.Warnings, func(w string) bool { return w == theory.WarningTailAssumed })...)
	}
	if again, err := compare.ResimulateDir(e.Dir, e.Cfg); err != nil && again.Extrapolated > replay.ExtrapolatedMax {
		r.Warnings = append(r.Warnings, fmt.Sprintf("not resimulated: %.0f %% of the rollouts and steps that takes were not recorded, since they were cancelled or not reached; at most %.0f %% may be made up from others",
			100*again.Extrapolated, 100*replay.ExtrapolatedMax))
	} else if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("resimulation: %v", err))
	} else {
		mean, p95 := again.Summary.Staleness.Mean, float64(again.Summary.Staleness.P95)
		r.Staleness.ResimulatedMean, r.Staleness.ResimulatedP95 = &mean, &p95
		e.resimulated = &again.Summary
	}
	compared, err := biasOfRun(e.Dir, e.Cfg.Environment.ServiceTime.Kind != "none")
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("bias: %v", err))
	}
	r.Bias = compared
	return r, nil
}

// learning sums the step log up over the measured window.
func (e *ending) learning(r *runReport) {
	lines := e.Steps.Lines
	if len(lines) == 0 {
		return
	}
	r.Reward = rewardSpan{First: lines[0].Reward, Last: lines[len(lines)-1].Reward, Best: lines[0].Reward}
	n := 0.0
	for _, line := range lines {
		r.Reward.Best = max(r.Reward.Best, line.Reward)
		if line.Step <= e.Warmup() && len(lines) > int(e.Warmup()) {
			continue
		}
		if line.EffectiveSampleSize == 0 {
			continue // found published by a process that ended before it could say more
		}
		r.ClipFraction += line.ClipFraction
		r.ActiveClipFraction += line.ActiveClipFraction
		r.MaskedFraction += line.MaskedFraction
		r.TruncatedFraction += line.TruncatedFraction
		r.MeanLogRatio += line.MeanLogRatio
		r.EffectiveSample += line.EffectiveSampleSize
		n++
	}
	for _, sum := range []*float64{&r.ClipFraction, &r.ActiveClipFraction, &r.MaskedFraction, &r.TruncatedFraction, &r.MeanLogRatio, &r.EffectiveSample} {
		*sum = record.Finite(*sum / n)
	}
}
