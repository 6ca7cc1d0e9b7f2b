package study

import (
	"context"
	"fmt"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/metrics"
)

// The frontier's workload. Words of up to 64 letters are answered by a policy that has learned nothing: it
// ends a response at every token with about the same probability, so that lengths have a tail, cut at 65
// tokens. A learning rate this small changes the weights with every step and the lengths by nothing that
// can be measured.
const (
	frontierGroup   = 8
	frontierBatch   = 64
	frontierLetters = 64
	frontierRate    = "1e-7"
)

// Split is how many of a number of devices generate and how many train.
type Split struct {
	Rollout int `json:"rollout"`
	Train   int `json:"train"`
}

// String writes a split as it is spoken of: rollout:train.
func (s Split) String() string { return fmt.Sprintf("%d:%d", s.Rollout, s.Train) }

// Splits are all of so many devices, the fewest that generate first.
func Splits(devices int) []Split {
	var all []Split
	for n := 1; n < devices; n++ {
		all = append(all, Split{n, devices - n})
	}
	return all
}

// FrontierOptions say which runs the study of the frontier makes.
type FrontierOptions struct {
	FrontierSettings
	// Splits that are run live; Seeds of each, from 1 on.
	Splits []Split
	Seeds  int
	// Quick marks a corner of the study, which is no result.
	Quick bool
}

// FrontierSettings are what every run of a study shares: runs of others cannot stand beside it.
type FrontierSettings struct {
	// Devices is N, those of both sides together.
	Devices int `json:"devices"`
	// SlotsPerDevice is C/N_R, and DecodeStepS how long a rollout device takes for a token in every slot:
	// c_R = SlotsPerDevice/DecodeStepS.
	SlotsPerDevice int     `json:"slots_per_device"`
	DecodeStepS    float64 `json:"decode_step_s"`
	// SpeedRatio is β* = c_T/c_R, tokens/s of a train device over those of a rollout device.
	SpeedRatio float64 `json:"speed_ratio"`
	// QueueFactor is q = Q/B.
	QueueFactor float64 `json:"queue_factor"`
	// Warmup and Steps are the train steps before a run is measured, and those measured.
	Warmup int `json:"warmup_steps"`
	Steps  int `json:"measured_steps"`
	// ProbeGroups are the groups whose lengths are measured before the runs of a seed; SimulatedSteps the
	// train steps of every simulation.
	ProbeGroups    int `json:"probe_groups"`
	SimulatedSteps int `json:"simulated_steps"`
}

// RolloutTokensPerS is c_R, TrainTokensPerS c_T: those of one device, while it works.
func (s FrontierSettings) RolloutTokensPerS() float64 {
	return float64(s.SlotsPerDevice) / s.DecodeStepS
}

// TrainTokensPerS is c_T.
func (s FrontierSettings) TrainTokensPerS() float64 { return s.SpeedRatio * s.RolloutTokensPerS() }

// StepS is t_step = B·E[L]/(N_T·c_T); devices need not be whole.
func (s FrontierSettings) StepS(trainDevices, meanTokens float64) float64 {
	return frontierBatch * meanTokens / (trainDevices * s.TrainTokensPerS())
}

// Document is a split as a run's document. trainStepS is its train step's least time in seconds.
func (s FrontierSettings) Document(split Split, seed uint64, trainStepS float64) (config.Config, error) {
	engine := fmt.Sprintf("{kind: embedded, slots: %d, decode_step_s: %g}", s.SlotsPerDevice, s.DecodeStepS)
	engines := strings.Repeat(engine+", ", split.Rollout)
	return frontierDocument(s.SlotsPerDevice*split.Rollout, fmt.Sprintf("engines=[%s]", strings.TrimSuffix(engines, ", ")), seed,
		fmt.Sprintf("queue.factor=%g", s.QueueFactor), fmt.Sprintf("trainer.step_s=%g", trainStepS), fmt.Sprintf("trainer.steps=%d", s.Warmup+s.Steps))
}

// ProbeDocument is a run whose one engine makes the lengths of a seed's policy as fast as it can.
func (s FrontierSettings) ProbeDocument(seed uint64) (config.Config, error) {
	return frontierDocument(frontierBatch, fmt.Sprintf("engines=[{kind: embedded, slots: %d}]", frontierBatch), seed)
}

func frontierDocument(slots int, engines string, seed uint64, more ...string) (config.Config, error) {
	set := append([]string{
		fmt.Sprintf("seed=%d", seed), "environment.task=reverse", "environment.letters_min=1", fmt.Sprintf("environment.letters_max=%d", frontierLetters),
		"model.width=16", "model.layers=1", "model.heads=2", fmt.Sprintf("model.context=%d", 2*frontierLetters+3),
		fmt.Sprintf("rollout.group_size=%d", frontierGroup), fmt.Sprintf("train.batch=%d", frontierBatch), fmt.Sprintf("rollout.concurrency=%d", slots), engines,
		"queue.policy=drop", "filter.zero_advantage=false", "trainer.threads=1", "trainer.learning_rate=" + frontierRate, "evaluate.every=0", "store.samples_every=0",
	}, more...)
	var overrides []config.Override
	for _, text := range set {
		overrides = append(overrides, config.Override{Text: text})
	}
	document, err := config.LoadWith("", overrides...)
	if err != nil {
		return document, fmt.Errorf("study: the frontier's document: %w", err)
	}
	return document, nil
}

// FrontierRates are what a probe of a split's devices measures before its run, every slot busy and the
// trainer stepping beside.
type FrontierRates struct {
	// TokenS is the time of a decode step, StepS that of a train step. SyncS is the time from a
	// version to its being served by all engines.
	TokenS float64 `json:"decode_step_s"`
	StepS  float64 `json:"step_s"`
	SyncS  float64 `json:"sync_s"`
	// GapS is how long a rollout holds its slot beyond the decode steps of its tokens: the rest of the step
	// in which it came.
	GapS float64 `json:"gap_s"`
	// Rollouts and Steps are how many these figures rest on.
	Rollouts int `json:"rollouts"`
	Steps    int `json:"steps"`
}

// FrontierPace is how a run's machine kept the pace of its devices. It is the share of steps that
// took longer, and how much longer than at their pace all of them took together.
type FrontierPace struct {
	DecodeLate     float64 `json:"decode_late_share"`
	DecodeSlowdown float64 `json:"decode_slowdown"`
	TrainLate      float64 `json:"train_late_share"`
	TrainSlowdown  float64 `json:"train_slowdown"`
}

// FrontierLived is what a live run came to.
type FrontierLived struct {
	// Summary is of its measured steps.
	Summary metrics.Summary
	// Closed is the closed form at the run's own measured inputs: made after it, and no prediction.
	Closed FrontierFigures
	Pace   FrontierPace
	// Mismatch is how far Little's identity was from holding, as a share: 0, or something was miscounted.
	Mismatch float64
}

// FrontierRig makes the runs of the study: it owns engines, trainer and clock.
type FrontierRig struct {
	// Lengths returns the lengths of so many whole groups, sampled by version 0 of a document.
	Lengths func(ctx context.Context, document config.Config, groups int) ([][]int, error)
	// Run makes one run. When its parts stand it probes them and hands the measurements to foretell. The result of
	// foretell goes into the run's trace before its first event. If made is not nil, Run tells it of every train step.
	Run func(ctx context.Context, document config.Config, warmup int, foretell func(FrontierRates) (any, error), made func(step int)) (FrontierLived, error)
}

// FrontierSaid is told how the study goes on; every field may be nil.
type FrontierSaid struct {
	// Lengths is called when the lengths of a seed's policy have been measured.
	Lengths func(seed uint64, rollouts int, mean, tail float64)
	// Begins is called with a run's prediction before it starts, Step with every train step, Ends at its end.
	Begins func(done, all int, p FrontierPrediction)
	Step   func(step, steps int)
	Ends   func(r FrontierRun)
}

// Frontier makes the runs that are not kept yet, a seed after the other, and returns all of them. The
// argument kept, nil for none, holds finished runs, and is given every prediction before its run
// begins.
func Frontier(ctx context.Context, opt FrontierOptions, rig FrontierRig, kept *FrontierKept, said FrontierSaid) (FrontierResult, error) {
	result := FrontierResult{Settings: opt.FrontierSettings, Seeds: opt.Seeds, Splits: opt.Splits, Quick: opt.Quick}
	done := 0
	for seed := uint64(1); seed <= uint64(opt.Seeds); seed++ {
		lengths, err := opt.lengths(ctx, seed, rig, kept, said)
		if err != nil {
			return result, err
		}
		result.lengths = append(result.lengths, lengths...)
		for _, split := range opt.Splits {
			run, have := kept.run(split, seed)
			if !have {
				play := frontierPlay{opt, rig, kept, said, done, split, seed, lengths}
				if run, err = play.run(ctx); err != nil {
					return result, fmt.Errorf("study: split %v, seed %d: %w", split, seed, err)
				}
			}
			result.Runs = append(result.Runs, run)
			done++
		}
	}
	return result, result.finish(ctx)
}

// lengths are those of a seed's policy, measured or kept.
func (o FrontierOptions) lengths(ctx context.Context, seed uint64, rig FrontierRig, kept *FrontierKept, said FrontierSaid) ([][]int, error) {
	if lengths, have := kept.lengths(seed); have {
		return lengths, nil
	}
	document, err := o.ProbeDocument(seed)
	if err != nil {
		return nil, err
	}
	lengths, err := rig.Lengths(ctx, document, o.ProbeGroups)
	if err != nil {
		return nil, fmt.Errorf("study: measuring the lengths of seed %d: %w", seed, err)
	}
	if said.Lengths != nil {
		_, mean, tail := lengthMoments(lengths)
		said.Lengths(seed, len(lengths)*frontierGroup, mean, tail)
	}
	return lengths, kept.put(frontierLine{Seed: seed, Lengths: lengths})
}

// frontierPlay is one run that is to be made.
type frontierPlay struct {
	opt     FrontierOptions
	rig     FrontierRig
	kept    *FrontierKept
	said    FrontierSaid
	done    int
	split   Split
	seed    uint64
	lengths [][]int
}

func (p frontierPlay) run(ctx context.Context) (FrontierRun, error) {
	_, mean, _ := lengthMoments(p.lengths)
	document, err := p.opt.Document(p.split, p.seed, p.opt.StepS(float64(p.split.Train), mean))
	if err != nil {
		return FrontierRun{}, err
	}
	run := FrontierRun{Split: p.split, Seed: p.seed}
	foretell := func(rates FrontierRates) (any, error) {
		if run.Prediction, err = foretellFrontier(p.opt.FrontierSettings, document, p.split, p.lengths, rates); err != nil {
			return nil, err
		}
		if p.said.Begins != nil {
			p.said.Begins(p.done, len(p.opt.Splits)*p.opt.Seeds, run.Prediction)
		}
		return run.Prediction, p.kept.put(frontierLine{Prediction: &run.Prediction})
	}
	made := func(step int) {
		if p.said.Step != nil {
			p.said.Step(step, p.opt.Warmup+p.opt.Steps)
		}
	}
	lived, err := p.rig.Run(ctx, document, p.opt.Warmup, foretell, made)
	if err != nil {
		return run, err
	}
	run.tell(lived)
	if p.said.Ends != nil {
		p.said.Ends(run)
	}
	return run, p.kept.put(frontierLine{Run: &run})
}
