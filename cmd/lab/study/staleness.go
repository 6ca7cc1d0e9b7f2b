package study

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
)

// StalenessOptions of the study of staleness against reward.
type StalenessOptions struct {
	// Task is one of StalenessTasks.
	Task string `json:"task"`
	// Lags are in versions, 0 among them: the others are compared with it.
	Lags []int `json:"lags"`
	// Corrections are names of StalenessCorrections.
	Corrections []string `json:"corrections"`
	// Seeds of every arm, from 1; Steps are train steps of every run.
	Seeds int `json:"seeds"`
	Steps int `json:"steps"`
	// Quick leaves out the checks of learning rate and minibatches.
	Quick bool `json:"quick,omitempty"`
}

// StalenessLags are the lags of the study.
func StalenessLags() []int { return []int{0, 1, 2, 4, 8, 16} }

// StalenessTask is a task of the study. A policy gets far in it within a few hundred steps, from a
// start at which it answers some prompts rightly.
type StalenessTask struct {
	// Name on the command line; Note says what it asks.
	Name, Note string
	// Rate is the learning rate of Adam, Steps the train steps of a run. Without staleness, reverse
	// is learned whole within half of them, sort to an accuracy of about 0.7 by the last.
	Rate  float64
	Steps int
	// letters of a word, the fewest and the most: a response has one token more, its end.
	letters [2]int
	set     []string
}

// StalenessTasks are the tasks of the study, the default first. Their supervised warm-ups leave an
// accuracy of about 0.1 to 0.3. A policy from scratch spends most of a run on its first reward, which
// is chance more than staleness. One that answers most prompts has nothing left to learn.
func StalenessTasks() []StalenessTask {
	return []StalenessTask{
		{"reverse", "the letters of a word of 2 to 5 letters in reverse", 1e-3, 240, [2]int{2, 5},
			[]string{"environment.task=reverse", "environment.letters_max=5", "environment.supervised_steps=45"}},
		{"sort", "the letters of a word of 2 or 3 letters in the alphabet's order", 1e-3, 480, [2]int{2, 3},
			[]string{"environment.task=sort", "environment.letters_max=3", "environment.supervised_steps=45"}},
	}
}

// StalenessCorrection is what an arm does about stale tokens.
type StalenessCorrection struct {
	// Name on the command line and in tables; Note is its formula and source.
	Name, Note string
	set        []string
	// forwards is how many forward passes over a batch the trainer makes for it beside those of the train step.
	forwards int
}

// StalenessCorrections are those of the study. u is π_θ/π_p, w is π_p/π_b and r is π_θ/π_b. Of these b sampled, p began
// the train step, and θ is trained. With one optimizer step a batch θ is p, so that u = 1 and w = r.
func StalenessCorrections() []StalenessCorrection {
	return []StalenessCorrection{
		{"none", "−A·log π_θ: the policy gradient, as if the data were fresh", []string{"kind=none"}, 0},
		{"ppo-clip", "−min(r·A, clip(r, 0.8, 1.2)·A), the rollout's log-probs as the old ones (Schulman et al. 2017)", []string{"kind=ppo-clip"}, 0},
		{"tis", "−min(r, 2)·A·log π_θ: truncated importance sampling per token (Ionides 2008; the cap is slime's)", []string{"kind=tis", "cap=2"}, 0},
		{"decoupled-ppo", "−w·min(u·A, clip(u, 0.8, 1.2)·A), π_p recomputed (Hilton et al. 2022; AReaL). With one optimizer step a batch it is the weight w alone, not truncated", []string{"kind=decoupled-ppo"}, 1},
		{"icepop", "decoupled PPO without the tokens whose w is outside [0.5, 5] (IcePop, Ling Team 2025)",
			[]string{"kind=decoupled-ppo", "floor=0.5", "cap=5", "drop_over_cap=true", "drop_under_floor=true"}, 1},
		{"sequence-mask", "PPO clip without responses of negative advantage whose mean log r is below −0.0001 (off-policy sequence masking, DeepSeek-V3.2; δ is slime's)",
			[]string{"kind=sequence-mask", "low=0.9999", "high=1000000", "negative_only=true"}, 0},
		{"dppo", "−r·A + 0.001·(log r)² without the tokens whose probability has moved by 0.2 to where the advantage pushes it (Qi et al. 2026; prime-rl's default)",
			[]string{"kind=dppo", "difference_low=0.2", "difference_high=0.2", "penalty=0.001"}, 0},
	}
}

// Sizes of every run.
const (
	stalenessBatch     = 64
	stalenessGroup     = 8
	stalenessHeldOut   = 256
	stalenessPoints    = 24 // of a curve beside its first, where the steps divide by it
	stalenessDrift     = 10 // train steps between two measurements of drift
	stalenessReference = "on-policy"
)

// stalenessArm is one setting of the study.
type stalenessArm struct {
	lag        int
	correction string
	rate       float64 // as a factor of the task's
	minis      int
}

// key names the arm, in kept files and in tables.
func (a stalenessArm) key() string {
	key := fmt.Sprintf("lag %d, %s", a.lag, a.correction)
	if a.rate != 1 {
		key += fmt.Sprintf(", rate × %g", a.rate)
	}
	if a.minis != 1 {
		key += fmt.Sprintf(", %d minibatches", a.minis)
	}
	return key
}

// forwards is how many forward passes its correction costs beside the train step's.
func (a stalenessArm) forwards() int {
	for _, c := range StalenessCorrections() {
		if c.Name == a.correction {
			return c.forwards
		}
	}
	return 0
}

// stalenessArms are the arms of the options. Without lag, and with one optimizer step a batch,
// every correction is the plain policy gradient: that arm is run once.
func stalenessArms(o StalenessOptions) []stalenessArm {
	var arms []stalenessArm
	add := func(a stalenessArm) {
		if a.lag == 0 && a.minis == 1 {
			a.correction = stalenessReference
		}
		if !slices.Contains(arms, a) {
			arms = append(arms, a)
		}
	}
	for _, lag := range o.Lags {
		for _, c := range o.Corrections {
			add(stalenessArm{lag, c, 1, 1})
		}
	}
	if o.Quick {
		return arms
	}
	most := slices.Max(o.Lags)
	for _, rate := range stalenessRates {
		add(stalenessArm{0, stalenessReference, rate, 1})
		for _, c := range rateCorrections {
			if slices.Contains(o.Corrections, c) {
				add(stalenessArm{most, c, rate, 1})
			}
		}
	}
	for _, c := range miniCorrections {
		if slices.Contains(o.Corrections, c) {
			for _, lag := range slices.Compact([]int{0, most}) {
				add(stalenessArm{lag, c, 1, minibatches})
			}
		}
	}
	return arms
}

// What is tried beside the grid: whether the largest lag costs as much at a higher learning rate and a
// smaller one buys stability back, and whether decoupling matters once a step has several optimizer steps, as AReaL's four.
var (
	stalenessRates  = []float64{4, 2, 0.5, 0.25}
	rateCorrections = []string{"none", "ppo-clip", "tis"}
	miniCorrections = []string{"ppo-clip", "decoupled-ppo"}
)

const minibatches = 4

// lagRun is an arm with a seed.
func (a stalenessArm) lagRun(t StalenessTask, o StalenessOptions, seed uint64) (LagRun, error) {
	set := append([]string{
		"schedule=asynchronous", fmt.Sprintf("train.batch=%d", stalenessBatch), fmt.Sprintf("rollout.group_size=%d", stalenessGroup),
		fmt.Sprintf("environment.held_out=%d", stalenessHeldOut), fmt.Sprintf("trainer.steps=%d", o.Steps), fmt.Sprintf("seed=%d", seed),
		fmt.Sprintf("trainer.learning_rate=%g", t.Rate*a.rate), fmt.Sprintf("trainer.minibatches=%d", a.minis),
	}, t.set...)
	for _, c := range StalenessCorrections() {
		if c.Name == a.correction {
			set = append(set, "trainer.correction={"+strings.ReplaceAll(strings.Join(c.set, ", "), "=", ": ")+"}")
		}
	}
	overrides := make([]config.Override, len(set))
	for i, text := range set {
		overrides[i] = config.Override{Text: text}
	}
	document, err := config.LoadWith("", overrides...)
	if err != nil {
		return LagRun{}, fmt.Errorf("study: %s: %w", a.key(), err)
	}
	points := stalenessPoints
	if o.Quick {
		points = 3
	}
	l := LagRun{Document: document, WarmupRate: t.Rate, Lag: a.lag, EvaluateEvery: max(o.Steps/points, 1)}
	if a.correction == stalenessReference {
		l.DriftEvery = stalenessDrift
	}
	return l, nil
}

// Teacher runs lessons on all cores and keeps finished ones.
type Teacher struct {
	// Teach runs one.
	Teach Teach
	// Progress, if not nil, is called after every finished lesson, kept ones included, by one
	// goroutine at a time.
	Progress func(done, all int)
	// Kept holds finished lessons; nil keeps none.
	Kept *Kept
}

// Staleness makes the study: all runs of the learning curves, and the simulations that say what
// a step costs at each lag.
func Staleness(ctx context.Context, o StalenessOptions, by Teacher) (StalenessResult, error) {
	i := slices.IndexFunc(StalenessTasks(), func(t StalenessTask) bool { return t.Name == o.Task })
	if i < 0 {
		return StalenessResult{}, fmt.Errorf("study: no task %q of staleness", o.Task)
	}
	task := StalenessTasks()[i]
	arms := stalenessArms(o)
	type one struct {
		lesson LagRun
		key    string
	}
	var all []one
	// Seed by seed, so that a study that is broken off has whole sets of arms.
	for seed := range o.Seeds {
		for _, a := range arms {
			l, err := a.lagRun(task, o, uint64(seed)+1)
			if err != nil {
				return StalenessResult{}, err
			}
			all = append(all, one{l, fmt.Sprintf("%s|%d steps|%s|seed %d", o.Task, o.Steps, a.key(), seed+1)})
		}
	}
	learned, err := inParallel(ctx, len(all), by.Progress, func(i int) (Learned, error) {
		return kept(by.Kept, all[i].key, func() (Learned, error) {
			l, err := by.Teach(ctx, all[i].lesson)
			if err != nil {
				return l, fmt.Errorf("study: %s: %w", all[i].key, err)
			}
			return l, nil
		})
	})
	if err != nil {
		return StalenessResult{}, err
	}
	runs := make([][]Learned, len(arms))
	for k := range learned {
		runs[k%len(arms)] = append(runs[k%len(arms)], learned[k])
	}
	measured := priceMeasured
	if o.Quick {
		measured /= 20
	}
	prices, err := prices(ctx, o.Lags, measured)
	if err != nil {
		return StalenessResult{}, err
	}
	return stalenessResult(o, task, arms, runs, prices), nil
}
