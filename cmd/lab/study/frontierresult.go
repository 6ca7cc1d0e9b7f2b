package study

import (
	"context"
	"math"
)

// FrontierRun is one live run beside what was predicted of it.
type FrontierRun struct {
	Split      Split              `json:"split"`
	Seed       uint64             `json:"seed"`
	Prediction FrontierPrediction `json:"prediction"`
	// Live is what was measured, over Steps train steps.
	Live FrontierFigures `json:"live"`
	// HalfInterval is half the 95 % interval of the run's own staleness, by batch means.
	HalfInterval float64 `json:"staleness_half_interval_95"`
	PQS          float64 `json:"pqs"`
	IQS          float64 `json:"iqs"`
	Utilization  float64 `json:"utilization"`
	Tail         float64 `json:"tail_multiplier"`
	MeanTokens   float64 `json:"mean_tokens"`
	StepS        float64 `json:"step_s"`
	SyncS        float64 `json:"sync_s"`
	Steps        int64   `json:"steps"`
	TrainerIdle  float64 `json:"trainer_idle_ratio"`
	RolloutIdle  float64 `json:"rollout_idle_ratio"`
	Wasted       float64 `json:"wasted_share"`
	// Closed is the closed form at the run's own measured inputs.
	Closed FrontierFigures `json:"closed_form_measured_inputs"`
	Pace   FrontierPace    `json:"pace"`
	// Mismatch is how far Little's identity was from holding, as a share; 0 where it holds.
	Mismatch float64 `json:"little_mismatch"`
}

// tell fills in what a run came to.
func (r *FrontierRun) tell(l FrontierLived) {
	s := l.Summary
	r.Live = FrontierFigures{s.PeriodS.Mean, s.Staleness.Mean}
	r.HalfInterval = (s.Confidence.StalenessMean95[1] - s.Confidence.StalenessMean95[0]) / 2
	r.PQS, r.IQS, r.Utilization, r.Tail = s.PQS.Mean, s.IQS.Mean, s.Utilization, s.TailMultiplier
	r.MeanTokens, r.StepS, r.SyncS, r.Steps = s.Length.SampledMeanTokens, s.StepS.Mean, s.SyncS.Mean, s.Steps
	r.TrainerIdle, r.RolloutIdle, r.Wasted = s.TrainerIdleRatio, s.RolloutIdleRatio, s.Waste.WastedShare
	r.Closed, r.Pace, r.Mismatch = l.Closed, l.Pace, l.Mismatch
}

// FrontierErrors are live over expected, less one.
type FrontierErrors struct {
	Period    Estimate `json:"period"`
	Staleness Estimate `json:"staleness"`
}

// within reports whether both are at most so large.
func (e FrontierErrors) within(most float64) bool {
	return math.Abs(e.Period.Mean) <= most && math.Abs(e.Staleness.Mean) <= most
}

// FrontierRow is one split over its seeds.
type FrontierRow struct {
	Split       Split    `json:"split"`
	Utilization Estimate `json:"utilization"`
	// Period is in seconds, Staleness in versions. Each has the live runs, the closed form with its
	// corrections, the published one and the simulation. The last is the closed form at each run's
	// own measured inputs.
	Period    FrontierColumn `json:"period_s"`
	Staleness FrontierColumn `json:"staleness"`
	// The errors of the live runs against what was expected, seed by seed.
	OfPredicted FrontierErrors `json:"live_over_predicted"`
	OfPublished FrontierErrors `json:"live_over_published"`
	OfSimulated FrontierErrors `json:"live_over_simulated"`
	OfClosed    FrontierErrors `json:"live_over_closed_form_measured_inputs"`
	// Shares of time and of tokens, live.
	TrainerIdle Estimate `json:"trainer_idle_ratio"`
	RolloutIdle Estimate `json:"rollout_idle_ratio"`
	Wasted      Estimate `json:"wasted_share"`
	// Late is the largest share of late decode or train steps of its runs, Slowdown the largest of what they lost.
	Late     float64 `json:"late_share_max"`
	Slowdown float64 `json:"slowdown_max"`
	// Within says that both errors against the prediction are at most [FrontierTolerance].
	Within bool `json:"within"`
}

// FrontierColumn is one figure as measured and as expected.
type FrontierColumn struct {
	Live      Estimate `json:"live"`
	Predicted Estimate `json:"predicted"`
	Published Estimate `json:"published"`
	Simulated Estimate `json:"simulated"`
	Closed    Estimate `json:"closed_form_measured_inputs"`
}

// FrontierTolerance is the error up to which a split agrees with its prediction.
const FrontierTolerance = 0.1

// FrontierResult is the whole study.
type FrontierResult struct {
	Settings FrontierSettings `json:"settings"`
	Seeds    int              `json:"seeds"`
	Splits   []Split          `json:"splits"`
	Quick    bool             `json:"quick,omitempty"`
	Rows     []FrontierRow    `json:"rows"`
	// Agree is how many splits are within the tolerance.
	Agree int `json:"splits_within_tolerance"`
	// Predicted and Simulated are the frontier between the splits.
	Predicted FrontierCurve `json:"predicted_curve"`
	Simulated FrontierCurve `json:"simulated_curve"`
	Runs      []FrontierRun `json:"runs"`
	lengths   [][]int
}

// finish sums the runs up.
func (r *FrontierResult) finish(ctx context.Context) error {
	for _, split := range r.Splits {
		row := r.row(split)
		if row.Within {
			r.Agree++
		}
		r.Rows = append(r.Rows, row)
	}
	return r.curves(ctx)
}

func (r *FrontierResult) row(split Split) FrontierRow {
	row := FrontierRow{Split: split}
	over := func(of func(FrontierRun) float64) Estimate {
		var values []float64
		for _, run := range r.Runs {
			if run.Split == split {
				values = append(values, of(run))
			}
		}
		return estimateOf(values)
	}
	column := func(of func(FrontierFigures) float64) FrontierColumn {
		return FrontierColumn{
			Live:      over(func(run FrontierRun) float64 { return of(run.Live) }),
			Predicted: over(func(run FrontierRun) float64 { return of(run.Prediction.Theory) }),
			Published: over(func(run FrontierRun) float64 { return of(run.Prediction.Published) }),
			Simulated: over(func(run FrontierRun) float64 { return of(run.Prediction.Simulated.Figures) }),
			Closed:    over(func(run FrontierRun) float64 { return of(run.Closed) }),
		}
	}
	errors := func(expected func(FrontierRun) FrontierFigures) FrontierErrors {
		return FrontierErrors{
			Period:    over(func(run FrontierRun) float64 { return run.Live.PeriodS/expected(run).PeriodS - 1 }),
			Staleness: over(func(run FrontierRun) float64 { return run.Live.Staleness/expected(run).Staleness - 1 }),
		}
	}
	row.Utilization = over(func(run FrontierRun) float64 { return run.Utilization })
	row.Period = column(func(f FrontierFigures) float64 { return f.PeriodS })
	row.Staleness = column(func(f FrontierFigures) float64 { return f.Staleness })
	row.OfPredicted = errors(func(run FrontierRun) FrontierFigures { return run.Prediction.Theory })
	row.OfPublished = errors(func(run FrontierRun) FrontierFigures { return run.Prediction.Published })
	row.OfSimulated = errors(func(run FrontierRun) FrontierFigures { return run.Prediction.Simulated.Figures })
	row.OfClosed = errors(func(run FrontierRun) FrontierFigures { return run.Closed })
	row.TrainerIdle = over(func(run FrontierRun) float64 { return run.TrainerIdle })
	row.RolloutIdle = over(func(run FrontierRun) float64 { return run.RolloutIdle })
	row.Wasted = over(func(run FrontierRun) float64 { return run.Wasted })
	for _, run := range r.Runs {
		if run.Split == split {
			row.Late = max(row.Late, run.Pace.DecodeLate, run.Pace.TrainLate)
			row.Slowdown = max(row.Slowdown, run.Pace.DecodeSlowdown, run.Pace.TrainSlowdown)
		}
	}
	row.Within = row.OfPredicted.within(FrontierTolerance)
	return row
}
