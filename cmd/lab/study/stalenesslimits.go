package study

import (
	"fmt"
	"slices"
	"strings"
)

// falseShare of 95 % intervals leave out what they are intervals of.
const falseShare = 0.05

// limits are what the study can and cannot say, of the arms and seeds that it has.
func (r *StalenessResult) limits() []string {
	all := []string{
		fmt.Sprintf("The model has about 100 thousand parameters and responses have %d to %d tokens. Weights of whole responses vary with their length: at thousands of tokens what is a small change of a token's probability here is a large one of the response's. Lags at which learning breaks here are no budget for a large model.",
			r.task.letters[0]+1, r.task.letters[1]+1),
		"Learning rate and lag are one knob to a large part: the policy moves by rate × lag between sampling and training. A lag has a meaning only at a rate; that of the study is high, so that the task is learned in a few hundred steps. Compare the clip fraction and the KL of a run of yours with the columns here, not its lag.",
	}
	if most, tried := slices.Max(r.Options.Lags), r.ratesTried(); !r.Options.Quick && most > 0 && len(tried) > 0 {
		all = append(all, fmt.Sprintf("No arm has a rate of its own: %s times the task's rate are tried at lag 0 and %d alone, with %s. A correction could do better at a rate that suits it than it does here.",
			strings.Join(strings.Fields(strings.Trim(fmt.Sprint(stalenessRates), "[]")), ", "), most, strings.Join(tried, ", ")))
	}
	all = append(all,
		"What may carry over is the order: which corrections hold up where clip fraction and KL are of that size, and how good the predicted clip fraction and sample size are.",
		"Every batch has one exact lag. Real queues mix lags, and mean staleness hides their tail; weights that change within a response are not part of it either.",
		fmt.Sprintf("Equal time is simulated: the same slots decode at the same speed whatever the lag. Where slots crowd each other a larger lag buys less than the table says, and a synchronous step, whose slots empty as it goes, costs less: the rows of colocated training are at one and at %.0f times the speed that decoding has with lag, and what was found says at what speed it would do as well.", 1/(1-trainShare)))
	if done := r.atCeiling(); done > 0 {
		all = append(all, fmt.Sprintf("The task can be learned whole: the last accuracy is at least %g in %d of the %d arms of the grid, which it cannot tell apart. The mean over the steps, and the steps to an accuracy, can.", ceilingAccuracy, done, r.gridArms()))
	}
	if n := r.differences(); r.Options.Seeds > 1 && n > 0 {
		all = append(all, fmt.Sprintf("Intervals over %d seeds are wide. Of the %d differences from fresh data at equal steps about %.0f would leave out 0 by chance alone if lag cost nothing; an arm that is named the highest is so among those it is compared with, which flatters it.", r.Options.Seeds, n, falseShare*float64(n)))
	}
	return all
}

// ceilingAccuracy is an accuracy from which on an arm has learned its task.
const ceilingAccuracy = 0.99

// atCeiling counts the grid's arms that have learned the task, gridArms all of them.
func (r *StalenessResult) atCeiling() int {
	n := 0
	for i := range r.Arms {
		if r.Arms[i].grid() && r.Arms[i].Final.Mean >= ceilingAccuracy {
			n++
		}
	}
	return n
}

func (r *StalenessResult) gridArms() int {
	n := 0
	for i := range r.Arms {
		if r.Arms[i].grid() {
			n++
		}
	}
	return n
}

// differences counts the arms that are compared with fresh data.
func (r *StalenessResult) differences() int {
	n := 0
	for i := range r.Arms {
		if r.Arms[i].Lag > 0 {
			n++
		}
	}
	return n
}

// ratesTried are the corrections of the checks of the learning rate.
func (r *StalenessResult) ratesTried() []string {
	var all []string
	for _, c := range rateCorrections {
		if slices.Contains(r.Options.Corrections, c) {
			all = append(all, c)
		}
	}
	return all
}
