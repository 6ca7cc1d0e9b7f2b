package study

import (
	"slices"
)

// TimedHardware is hardware with what its arms come to at equal time.
type TimedHardware struct {
	StalenessHardware
	// Time is the time that every arm is given, in train steps alone: as much as the cheapest lag
	// needs for all its steps.
	Time float64 `json:"time_train_steps"`
	// Arms are those of the grid, in the order of the result's. The one without lag is there once for
	// each of its schedules, colocated first: the others are compared with that.
	Arms []TimedArm `json:"arms"`
}

// The schedules of an arm without lag.
const (
	scheduleColocated = "colocated"
	scheduleFaster    = "colocated, decoding twice as fast" // by trainShare
	scheduleApart     = "apart"
)

// TimedArm is an arm at equal time: its learning curve at the price of its lag and correction.
type TimedArm struct {
	Name       string `json:"name"`
	Lag        int    `json:"lag"`
	Correction string `json:"correction"`
	// Schedule is how a step without lag shares the devices; "" with lag, where engines and trainer have their own.
	Schedule string `json:"schedule,omitempty"`
	Runs     int    `json:"runs"`
	// Period is the cost of a step, in train steps alone, with the forward passes of the correction.
	// Steps is how many train steps it makes in the time.
	Period float64 `json:"period_train_steps"`
	Steps  float64 `json:"steps"`
	// Accuracy is what it has at the end of the time, Area its mean over the time.
	Accuracy Estimate `json:"accuracy"`
	Area     Estimate `json:"mean_accuracy"`
	// Change is the difference of Area from the colocated arm without lag, seed by seed.
	Change Estimate `json:"mean_accuracy_change"`
	// Pass is the part of Area that the correction's forward passes cost, seed by seed; 0 where there are none.
	Pass Estimate `json:"mean_accuracy_cost_of_forward_passes"`
	// Time50 and Time90 are the times to an accuracy of 0.5 and 0.9, in train steps alone. They are of the runs that
	// reach it within their curves. Reached50 and Reached90 are the numbers of those runs.
	Time50    Estimate `json:"time_to_50"`
	Reached50 int      `json:"reached_50"`
	Time90    Estimate `json:"time_to_90"`
	Reached90 int      `json:"reached_90"`
	// areas are Area's values by seed.
	areas []float64
}

// price is the hardware's at a lag of the options.
func (h *StalenessHardware) price(lag int) StalenessPrice {
	return h.Prices[slices.IndexFunc(h.Prices, func(p StalenessPrice) bool { return p.Lag == lag })]
}

// timed prices the grid's curves on a hardware.
func (r *StalenessResult) timed(h StalenessHardware) TimedHardware {
	out := TimedHardware{StalenessHardware: h}
	least := h.Prices[0].Period
	for _, p := range h.Prices {
		least = min(least, p.Period)
	}
	out.Time = least * float64(r.Options.Steps)
	var fresh []float64
	if at := slices.Index(r.arms, stalenessArm{0, stalenessReference, 1, 1}); at >= 0 {
		fresh = areas(r.runs[at], min(out.Time/h.Colocated, float64(r.Options.Steps)))
	}
	for i, a := range r.arms {
		if a.rate != 1 || a.minis != 1 {
			continue
		}
		p := h.price(a.lag)
		switch {
		case a.lag == 0:
			out.Arms = append(out.Arms, r.timedArm(i, scheduleColocated, h.Colocated, out.Time, fresh),
				r.timedArm(i, scheduleFaster, h.ColocatedFaster, out.Time, fresh), r.timedArm(i, scheduleApart, p.Period, out.Time, fresh))
		case a.forwards() > 0:
			arm := r.timedArm(i, "", p.PeriodPass, out.Time, fresh)
			arm.Pass = difference(areas(r.runs[i], min(out.Time/p.Period, float64(r.Options.Steps))), arm.areas)
			out.Arms = append(out.Arms, arm)
		default:
			out.Arms = append(out.Arms, r.timedArm(i, "", p.Period, out.Time, fresh))
		}
	}
	return out
}

// timedArm is the curve of an arm at a price for a time, beside the mean accuracies of fresh data by seed.
func (r *StalenessResult) timedArm(i int, schedule string, period, time float64, fresh []float64) TimedArm {
	a, runs := r.arms[i], r.runs[i]
	t := TimedArm{Name: a.key(), Lag: a.lag, Correction: a.correction, Schedule: schedule, Runs: len(runs), Period: period, Steps: min(time/period, float64(r.Options.Steps))}
	if schedule != "" {
		t.Name += ", " + schedule
	}
	var accuracy []float64
	for k := range runs {
		accuracy = append(accuracy, runs[k].accuracyAt(t.Steps))
	}
	t.areas = areas(runs, t.Steps)
	t.Accuracy, t.Area, t.Change = estimateOf(accuracy), estimateOf(t.areas), difference(t.areas, fresh)
	t.Time50, t.Reached50 = reached(runs, 0.5)
	t.Time90, t.Reached90 = reached(runs, 0.9)
	for _, e := range []*Estimate{&t.Time50, &t.Time90} {
		e.Mean, e.Half = e.Mean*period, e.Half*period
	}
	return t
}

// areas are the runs' mean accuracies over so many steps, by seed.
func areas(runs []Learned, steps float64) []float64 {
	var all []float64
	for i := range runs {
		all = append(all, runs[i].area(steps))
	}
	return all
}

// difference is of figures by seed, seed by seed.
func difference(of, from []float64) Estimate {
	var values []float64
	for i := range min(len(of), len(from)) {
		values = append(values, of[i]-from[i])
	}
	return estimateOf(values)
}

// best is the arm with the largest mean accuracy over the time, and those that are not told apart from it seed by seed.
func (h *TimedHardware) best() (best *TimedArm, like []*TimedArm) {
	for k := range h.Arms {
		if a := &h.Arms[k]; best == nil || a.Area.Mean > best.Area.Mean {
			best = a
		}
	}
	for k := range h.Arms {
		if a := &h.Arms[k]; a != best && !difference(a.areas, best.areas).below() {
			like = append(like, a)
		}
	}
	return best, like
}

// breakEven is the period, in train steps alone, at which fresh data would come to as much in the time as
// an arm does, on the mean over the seeds; false where it would not even with all its steps.
func (r *StalenessResult) breakEven(h *TimedHardware, a *TimedArm) (float64, bool) {
	fresh := r.runs[slices.Index(r.arms, stalenessArm{0, stalenessReference, 1, 1})]
	better := func(period float64) bool { return estimateOf(areas(fresh, h.Time/period)).Mean > a.Area.Mean }
	low, high := h.Time/float64(r.Options.Steps), h.Time
	if !better(low) {
		return 0, false
	}
	for range 50 {
		if at := (low + high) / 2; better(at) {
			low = at
		} else {
			high = at
		}
	}
	return high, true
}
