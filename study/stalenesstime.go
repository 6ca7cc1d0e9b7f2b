package study

import (
	"math"
	"slices"
)

// TimedHardware is hardware with what its arms come to at equal time.
type TimedHardware struct {
	StalenessHardware
	// Time is what every arm is given, in train steps alone: what the cheapest lag needs for all its steps.
	Time float64 `json:"time_train_steps"`
	// Arms are those of the grid, in the order of the result's.
	Arms []TimedArm `json:"arms"`
}

// TimedArm is an arm at equal time: its learning curve at the price of its lag.
type TimedArm struct {
	Name       string `json:"name"`
	Lag        int    `json:"lag"`
	Correction string `json:"correction"`
	Runs       int    `json:"runs"`
	// Steps is how many train steps it makes in the time.
	Steps float64 `json:"steps"`
	// Accuracy is what it has at the end of the time, Area its mean over the time.
	Accuracy Estimate `json:"accuracy"`
	Area     Estimate `json:"mean_accuracy"`
	// Change is the difference of Area from the arm without lag, seed by seed.
	Change Estimate `json:"mean_accuracy_change"`
	// Time50 and Time90 are the times to an accuracy of 0.5 and 0.9, in train steps alone, of the runs that
	// reach it within their curves, whose numbers are Reached50 and Reached90.
	Time50    Estimate `json:"time_to_50"`
	Reached50 int      `json:"reached_50"`
	Time90    Estimate `json:"time_to_90"`
	Reached90 int      `json:"reached_90"`
}

// timed prices the grid's curves on a hardware.
func (r *StalenessResult) timed(h StalenessHardware) TimedHardware {
	out := TimedHardware{StalenessHardware: h, Time: math.Inf(1)}
	price := map[int]float64{}
	for _, p := range h.Prices {
		price[p.Lag] = p.Period
		out.Time = min(out.Time, float64(p.Period*float64(r.Options.Steps)))
	}
	fresh := slices.Index(r.arms, stalenessArm{0, stalenessReference, 1, 1})
	for i, a := range r.arms {
		if a.rate != 1 || a.minis != 1 {
			continue
		}
		period := price[a.lag]
		t := TimedArm{Name: a.key(), Lag: a.lag, Correction: a.correction, Runs: len(r.runs[i]), Steps: min(out.Time/period, float64(r.Options.Steps))}
		var accuracy, area, change []float64
		for k := range r.runs[i] {
			l := &r.runs[i][k]
			accuracy, area = append(accuracy, l.accuracyAt(t.Steps)), append(area, l.area(t.Steps))
			if fresh >= 0 {
				change = append(change, l.area(t.Steps)-r.runs[fresh][k].area(out.Time/price[0]))
			}
		}
		t.Accuracy, t.Area, t.Change = estimateOf(accuracy), estimateOf(area), estimateOf(change)
		t.Time50, t.Reached50 = reached(r.runs[i], 0.5)
		t.Time90, t.Reached90 = reached(r.runs[i], 0.9)
		for _, e := range []*Estimate{&t.Time50, &t.Time90} {
			e.Mean, e.Half = e.Mean*period, e.Half*period
		}
		out.Arms = append(out.Arms, t)
	}
	return out
}
