package theory

import (
	"fmt"
	"math"
)

// Lever is one change of the settings and its gain. Every lever says what it holds
// fixed, since that decides its sign (docs/theory-rules.md).
type Lever struct {
	// Name is one of tail, split, batch, queue factor, concurrency, sync.
	Name string `json:"name"`
	// Change says what is turned, from and to.
	Change string `json:"change"`
	// HoldsFixed says what stays while it is turned.
	HoldsFixed string `json:"holds_fixed"`
	// StalenessMean is the mean staleness after the change, versions, and
	// CorrectedMean the corrected one.
	StalenessMean Figure `json:"staleness_mean"`
	CorrectedMean Figure `json:"corrected_mean"`
	// PeriodRatio is the time between updates after over before.
	PeriodRatio Figure `json:"period_ratio"`
	// Note says what else changes with it; "" for nothing.
	Note string `json:"note,omitempty"`
	// Setting is the changed input, for a caller that simulates it where no closed
	// form holds. A changed t_step is in it where t_step is known.
	Setting Input `json:"-"`
}

// change is a lever before it is priced. Apply returns the changed input and
// the factor by which t_step changed.
type change struct {
	lever Lever
	input Input
	step  float64
}

// levers prices every lever against the prediction it changes.
func levers(in Input, t *tail, base Prediction) []Lever {
	var list []Lever
	for _, c := range changes(in) {
		l := c.lever
		l.Setting = c.input
		if p, err := predictChange(&in, t, &c.input); err == nil {
			l.StalenessMean, l.CorrectedMean = p.Staleness.Mean, p.Corrected.Mean
			after, known := p.Period.RelativeToStep.Value()
			before, knownBefore := base.Period.RelativeToStep.Value()
			if known && knownBefore {
				l.PeriodRatio = Known(after * c.step / before)
			}
		} else {
			l.Note = "outside what can be predicted: " + err.Error()
		}
		list = append(list, l)
	}
	return list
}

// predictChange predicts a changed setting, from the same tables where its
// workload is the same: every lever keeps the decode speed per slot.
func predictChange(in *Input, t *tail, changed *Input) (Prediction, error) {
	if err := changed.Validate(); err != nil {
		return Prediction{}, err
	}
	if changed.Lengths != in.Lengths || changed.TailMultiplier != in.TailMultiplier {
		other, err := tailOf(changed, changed.nsPerToken())
		if err != nil {
			return Prediction{}, err
		}
		t = &other
	}
	return predict(changed, t), nil
}

// changes lists the levers of a setting.
func changes(in Input) []change {
	list := []change{tailLever(in), splitLever(in, 0.8), splitLever(in, 1.25), batchLever(in)}
	if in.Policy != PolicySynchronous {
		list = append(list, queueLever(in))
	}
	list = append(list, concurrencyLever(in, 0.5), concurrencyLever(in, 2))
	if in.SyncTimeS > 0 {
		list = append(list, syncLever(in))
	}
	return list
}

// scaled returns the input with a train step of factor times the length.
func scaled(in Input, factor float64) Input {
	in.StepS *= factor
	return in
}

// tailLever cuts the tail: by a length cap at the 90th percentile where the
// distribution is known, by halving the multiplier's excess over 1 otherwise.
func tailLever(in Input) change {
	l := Lever{Name: "tail", HoldsFixed: "C, B, S, q and both throughputs in tokens/s"}
	if in.Lengths == nil {
		after := 1 + (in.TailMultiplier-1)/2
		l.Change = fmt.Sprintf("tail multiplier %.2f → %.2f", in.TailMultiplier, after)
		l.HoldsFixed += "; the mean length"
		in.TailMultiplier = after
		return change{l, in, 1}
	}
	if in.Lengths.TailMultiplier(in.GroupSize) == 1 {
		l.Change = "none: a group's lengths are all the same"
		return change{l, in, 1}
	}
	limit := in.Lengths.Quantile(0.9)
	capped, truncated := in.Lengths.Capped(limit)
	l.Change = fmt.Sprintf("length cap %d → %d tokens", in.Lengths.Quantile(1), limit)
	l.Note = fmt.Sprintf("M %.2f → %.2f; %.1f %% of rollouts truncated", in.Lengths.TailMultiplier(in.GroupSize), capped.TailMultiplier(in.GroupSize), 100*truncated)
	step := capped.Mean() / in.Lengths.Mean()
	in.Lengths = capped
	return change{l, scaled(in, step), step}
}

// splitLever moves GPUs so that ρ changes by a factor, at a fixed number of
// GPUs: N_R/N = ρβ*/(1+ρβ*) with β* = c_T/c_R.
func splitLever(in Input, factor float64) change {
	beta, assumed := in.SpeedRatio, ""
	if beta == 0 {
		beta, assumed = 1, ", assuming a GPU trains as many tokens/s as it generates (speed ratio 1)"
	}
	share := func(rho float64) float64 { return rho * beta / (1 + rho*beta) }
	before, after := share(in.Utilization), share(in.Utilization*factor)
	l := Lever{
		Name:       "split",
		Change:     fmt.Sprintf("rollout share of GPUs %.0f %% → %.0f %% (ρ %.2f → %.2f)", 100*before, 100*after, in.Utilization, in.Utilization*factor),
		HoldsFixed: "GPUs, B, S, q, slots per rollout GPU (C moves with them) and decode speed per slot" + assumed,
	}
	step := (1 - before) / (1 - after)
	in.ConcurrencyRollouts *= after / before
	in.Utilization *= factor
	return change{l, scaled(in, step), step}
}

// batchLever doubles the batch.
func batchLever(in Input) change {
	l := Lever{
		Name:       "batch",
		Change:     fmt.Sprintf("batch %s → %s rollouts", count(in.BatchRollouts), count(2*in.BatchRollouts)),
		HoldsFixed: "C, S, q (the queue doubles too) and both throughputs in tokens/s",
		Note:       "a step has twice the rollouts: per rollout the period's ratio is half, per √batch 0.71 of it",
	}
	in.BatchRollouts *= 2
	return change{l, scaled(in, 2), 2}
}

// queueLever moves q to 1, or to 2 from there.
func queueLever(in Input) change {
	after := 1.0
	if in.QueueFactor == 1 {
		after = 2
	}
	l := Lever{
		Name:       "queue factor",
		Change:     fmt.Sprintf("queue factor %s → %s", count(in.QueueFactor), count(after)),
		HoldsFixed: "C, B, S and both throughputs in tokens/s",
	}
	if after == 1 {
		l.Note = "near ρ = 1 a queue of one batch lets the trainer starve"
	}
	in.QueueFactor = after
	return change{l, in, 1}
}

// concurrencyLever changes the slots at constant decode speed per slot, so
// that v_R and ρ move with C.
func concurrencyLever(in Input, factor float64) change {
	after := in.ConcurrencyRollouts * factor
	l := Lever{
		Name:       "concurrency",
		Change:     fmt.Sprintf("concurrency %s → %s (ρ %.2f → %.2f)", count(in.ConcurrencyRollouts), count(after), in.Utilization, in.Utilization*factor),
		HoldsFixed: "decode speed per slot (rollout throughput moves with C), B, S, q and the trainer",
	}
	in.ConcurrencyRollouts = after
	in.Utilization *= factor
	return change{l, in, 1}
}

// syncLever halves the sync.
func syncLever(in Input) change {
	l := Lever{
		Name:       "sync",
		Change:     fmt.Sprintf("sync time %.3g → %.3g s", in.SyncTimeS, in.SyncTimeS/2),
		HoldsFixed: "everything else",
	}
	in.SyncTimeS /= 2
	return change{l, in, 1}
}

// count prints a number that is usually whole.
func count(x float64) string {
	if x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}
