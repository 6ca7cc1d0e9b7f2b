package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// ExtrapolatedMax is the largest share of rollouts and steps that may be made up
// from others before a resimulation is refused.
const ExtrapolatedMax = 0.2

// Settings are what a resimulation may change. The zero value changes nothing.
type Settings struct {
	// Loop holds the rules; nil for the recorded ones. Its groups may not be larger
	// than the recorded ones.
	Loop *loop.Config
	// SyncNS replaces the recorded time of a weight sync, if it is not nil; in nanoseconds.
	SyncNS *int64
	// Steps is the number of train steps; 0 consumes as many groups as the run did.
	Steps int
	// StepScale multiplies the time of every train step, as GPUs moved to or from the trainer
	// do; SpeedScale the speed at which engines decode. 0 means 1.
	StepScale, SpeedScale float64
	// OutsideScale, if not nil, multiplies the time that rollouts spend in their environment.
	OutsideScale *float64
	// CapTokens is the length at which longer responses are cut, 0 for none. One that is cut
	// has no answer: its reward is 0.
	CapTokens int32
	// PruneTokens is the length at which longer rollouts are pruned; 0 prunes nothing.
	PruneTokens int32
	// Beside, if not nil, makes what observes a simulation beside its recorder. There may be a second
	// simulation where the recorded groups do not last for the first: the last one made counts.
	Beside Beside
	// Stepped, if not nil, is called after every train step of a simulation.
	Stepped func()
}

// validate reports the first factor that no run could have.
func (s *Settings) validate() error {
	outside := 1.0
	if s.OutsideScale != nil {
		outside = *s.OutsideScale
	}
	for _, f := range []struct {
		name   string
		factor float64
	}{{"StepScale", s.StepScale}, {"SpeedScale", s.SpeedScale}, {"OutsideScale", outside}} {
		if !(f.factor >= 0) || math.IsInf(f.factor, 0) {
			return fmt.Errorf("replay: %s is %g, want a finite number above 0", f.name, f.factor)
		}
	}
	if s.CapTokens < 0 {
		return fmt.Errorf("replay: CapTokens is %d, want a length in tokens, or 0 for no cap", s.CapTokens)
	}
	return nil
}

// orOne is a factor whose zero value stands for 1.
func orOne(factor float64) float64 {
	if factor == 0 {
		return 1
	}
	return factor
}

// Resimulation is a simulation of a recorded run.
type Resimulation struct {
	sim.Result
	// Extrapolated is the share of rollouts and train steps that the recording
	// does not hold, 0 to 1. Others of the same run stand in for them.
	Extrapolated float64
	// Warmup and Steps are the train steps before and in the measured window.
	Warmup, Steps int
	// Warnings say what the figures rest on that was not measured.
	Warnings []string
}

// Resimulate simulates the recorded run, with the lengths, environment times,
// decode speeds and train steps it measured. The error wraps sim.ErrStalled if
// the settings starve the trainer.
//
// Without Settings.Steps it goes as far as the recorded groups last, if that is at
// least half of the run. Near the end of a run that filters almost everything, a
// few groups more or less are many steps.
func (r *Recording) Resimulate(s Settings) (Resimulation, error) {
	if made := r.madeUp(s); made > ExtrapolatedMax { // which is known before any of it is simulated
		return Resimulation{Extrapolated: made}, tooMuchMadeUp(made)
	}
	out, lasted, err := r.simulate(s)
	wanted := out.Warmup + out.Steps
	if (err != nil || out.Extrapolated > ExtrapolatedMax) && s.Steps == 0 && 2*lasted >= wanted && lasted > out.Warmup {
		s.Steps = lasted
		if out, _, err = r.simulate(s); err == nil {
			out.Warnings = append(out.Warnings, fmt.Sprintf("the recorded groups last for %d of %d train steps, which are what was simulated", lasted, wanted))
		}
	}
	if err == nil && out.Extrapolated > ExtrapolatedMax {
		err = tooMuchMadeUp(out.Extrapolated)
	}
	return out, err
}

// madeUp is the share of the train steps asked for, as a number, that cannot have been recorded.
func (r *Recording) madeUp(s Settings) float64 {
	rules := r.Header.Loop
	if s.Loop != nil {
		rules = *s.Loop
	}
	if s.Steps <= 0 || rules.BatchGroups <= 0 {
		return 0
	}
	recorded := float64(r.Version) * float64(r.Header.Loop.BatchGroups) / float64(rules.BatchGroups)
	return max(1-math.Ceil(recorded)/float64(s.Steps), 0)
}

// tooMuchMadeUp refuses settings that need more than was recorded.
func tooMuchMadeUp(share float64) error {
	return fmt.Errorf("replay: %.0f %% of the rollouts and steps these settings need were not recorded, at most %.0f %% may be made up from others: ask for fewer train steps, or record a longer run",
		100*share, 100*ExtrapolatedMax)
}

// simulate makes one simulation. It also returns for how many train steps the
// recorded groups lasted, 0 if to the end; the error may still leave that.
func (r *Recording) simulate(s Settings) (out Resimulation, lasted int, err error) {
	cfg, w, err := r.config(s)
	if err != nil {
		return out, 0, err
	}
	res, err := sim.Run(cfg)
	return Resimulation{Result: res, Extrapolated: w.extrapolated(), Warmup: cfg.Warmup, Steps: cfg.Measured,
		Warnings: r.warnings(cfg.Loop.Concurrency())}, w.lasted, err
}

// absentTold is the share of a run from which on it is told that the trainer was absent for so long.
const absentTold = 0.02

// warnings says what a simulation with c slots rests on that was not measured.
func (r *Recording) warnings(c int) (out []string) {
	most := 0
	for key := range r.cells {
		most = max(most, key.active)
	}
	recorded := r.Header.Loop.Concurrency()
	if share := float64(r.absentNS) / float64(max(r.lastNS, 1)); share >= absentTold {
		out = append(out, fmt.Sprintf("the trainer was gone for %.0f s of the run's %.0f s: from its first batch on it is simulated as one that is always there", float64(r.absentNS)/1e9, float64(r.lastNS)/1e9))
	}
	switch {
	case len(r.cells) == 0 && c != recorded:
		out = append(out, fmt.Sprintf("the trace holds no decode steps: %d slots are taken to be as fast as %d, each", c, recorded))
	case most > 0 && c > max(most, recorded):
		out = append(out, fmt.Sprintf("decode steps were measured with up to %d active slots: for %d the trend below is continued", most, c))
	}
	return out
}

// config returns the simulation of the recording under other settings, and its workload.
func (r *Recording) config(s Settings) (sim.Config, *work, error) {
	rules := r.Header.Loop
	if s.Loop != nil {
		rules = *s.Loop
	}
	recorded, wanted := r.Header.Loop.GroupSize+r.Header.Loop.Redundancy, rules.GroupSize+rules.Redundancy
	if wanted > recorded {
		return sim.Config{}, nil, fmt.Errorf("replay: groups of %d were recorded, groups of %d cannot be made from them", recorded, wanted)
	}
	if err := s.validate(); err != nil {
		return sim.Config{}, nil, err
	}
	scale := float64(r.Header.Loop.BatchGroups) / float64(rules.BatchGroups)
	w, err := r.work(scale)
	if err != nil {
		return sim.Config{}, nil, err
	}
	cfg := sim.Config{Loop: rules, Work: w, Paced: true, NSPerToken: r.NSPerToken(), SyncTimes: r.syncTimes(scale)}
	table, speed := r.speeds(max(rules.Concurrency(), r.Header.Loop.Concurrency()), cfg.NSPerToken), orOne(s.SpeedScale)
	cfg.Speed = func(active int, busy bool) float64 {
		epoch := w.epoch
		if !busy {
			epoch++ // between two steps the next one's begins
		}
		return relative(table, active, busy) * r.factor(epoch) * speed
	}
	w.stepFactor, w.capTokens, w.outsideFactor = orOne(s.StepScale), s.CapTokens, 1
	if s.OutsideScale != nil {
		w.outsideFactor = *s.OutsideScale
	}
	if rules.TrainerAsks {
		cfg.AskNS = r.askNS()
		cfg.LateNS = max(r.lateNS-cfg.AskNS, 0) // the engines had begun without it
	}
	if s.Stepped != nil {
		cfg.Stepped = func(loop.Version) { s.Stepped() }
	}
	if s.SyncNS != nil {
		cfg.SyncTimes, cfg.SyncNS = nil, *s.SyncNS
	}
	steps := cmp.Or(s.Steps, int(float64(r.Version)*scale))
	if steps < 1 {
		return sim.Config{}, nil, fmt.Errorf("replay: the run has trained on %d groups, which make no batch of %d: ask for a smaller train.batch",
			int64(r.Version)*int64(r.Header.Loop.BatchGroups), rules.BatchGroups)
	}
	cfg.Warmup = min(int(float64(r.Header.Warmup)*scale), steps-1)
	cfg.Measured = steps - cfg.Warmup
	cfg.PruneTokens = s.PruneTokens
	if s.Beside != nil {
		cfg.Beside = s.Beside(rules, loop.Version(cfg.Warmup))
	}
	return cfg, w, nil
}

// work is a recorded run as a workload of package sim. It counts what it makes
// up, so one value serves one simulation.
type work struct {
	rec    *Recording
	pool   []int
	source workload.Source
	steps  stepModel
	// stepScale is how many steps of the simulation consume what one recorded step did.
	stepScale float64
	// epoch is the recorded train step in whose place the simulation is, from 0; -1 before the first.
	epoch int
	// lasted is the number of steps begun when the first group was asked for that the
	// run never started; 0 if none was.
	lasted int
	// stepFactor and outsideFactor multiply times, capTokens cuts responses, 0 none.
	stepFactor, outsideFactor float64
	capTokens                 int32
	// asked for, and made up.
	rollouts, rolloutsMade int64
	stepsAsked, stepsMade  int64
}

var _ sim.Work = (*work)(nil)

// work returns the recording as a workload.
func (r *Recording) work(stepScale float64) (*work, error) {
	w := &work{rec: r, pool: r.pool(), source: workload.NewSource(r.Header.Seed, workload.StreamLength),
		stepScale: stepScale, epoch: -1}
	switch {
	case len(w.pool) == 0:
		return nil, errors.New("replay: no group of the trace is complete, so there is nothing to resimulate: let the run go on for longer")
	case len(r.steps) == 0:
		return nil, errors.New("replay: the trace holds no train step, so there is nothing to resimulate: let the run go on for longer")
	case r.generateNS <= 0 || r.sampledTokens <= 0:
		return nil, errors.New("replay: the trace does not say how long its rollouts generated, which a resimulation needs")
	}
	w.steps = fitSteps(r.steps)
	return w, nil
}

// find returns the recorded group that stands for a group of the simulation.
func (w *work) find(id loop.GroupID) (g *recordedGroup, made bool) {
	if i := int(id) - 1; i < len(w.rec.groups) && w.rec.groups[i].whole {
		return &w.rec.groups[i], false
	}
	i := w.source.Bits(uint64(id), 0, 0) % uint64(len(w.pool))
	return &w.rec.groups[w.pool[i]], true
}

// Rollout implements sim.Work.
func (w *work) Rollout(r sim.Rollout) sim.Response {
	g, made := w.find(r.Group)
	w.rollouts++
	if made {
		w.rolloutsMade++
		if w.lasted == 0 && int(r.Group) > len(w.rec.groups) {
			w.lasted = int(w.stepsAsked)
		}
	}
	s := &g.samples[r.Sample]
	if !s.scored {
		s = g.longest() // it was cancelled, and was no shorter than those
		if !made {
			w.rolloutsMade++
		}
	}
	outside := math.Round(float64(s.outsideNS) * w.outsideFactor)
	res := sim.Response{Tokens: s.tokens, Reward: s.reward, Mark: s.mark, EnvironmentNS: int64(outside),
		StartNS: s.startNS, FirstNS: float64(s.firstNS), TokenNS: float64(s.tokenNS)}
	if w.capTokens > 0 && res.Tokens > w.capTokens {
		res.Tokens, res.Reward, res.Mark = w.capTokens, 0, loop.MarkNone
	}
	return res
}

// StepNS implements sim.Work.
func (w *work) StepNS(lease loop.LeaseID, _, tokens int64) int64 {
	w.epoch = int(float64(lease-1) / w.stepScale)
	ns, made := w.steps.ns(w.epoch, tokens)
	w.stepsAsked++
	if made {
		w.stepsMade++
	}
	return int64(math.Round(float64(ns) * w.stepFactor))
}

// extrapolated returns the larger share of what was made up, of rollouts and of steps.
func (w *work) extrapolated() float64 {
	share := func(made, asked int64) float64 { return float64(made) / float64(max(asked, 1)) }
	return max(share(w.rolloutsMade, w.rollouts), share(w.stepsMade, w.stepsAsked))
}
