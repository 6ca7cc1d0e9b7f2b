package study

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// ControlOptions say how much of the study of the controller is done.
type ControlOptions struct {
	// Seeds of every arm, from 1 on; the same for all arms.
	Seeds int
	// Worlds, Drifts and Goals to study; none means all.
	Worlds []ControlWorld
	Drifts []ControlDrift
	Goals  []ControlGoal
	// Quick shortens every run: it shows that the study works, and is no result.
	Quick bool
}

// ControlGoals are those of the study: one that binds a lot, one that binds a little, and a share.
var ControlGoals = []ControlGoal{{Mean: 2}, {Mean: 3.5}, {Share: 0.95, Within: 4, Tokens: true}}

// Names of the arms.
const (
	armController = "controller"
	armOracle     = "oracle"
	armFixed      = "fixed"
	armHindsight  = "fixed, hindsight"
	armBounded    = "AReaL bound"
	armTuned      = "AReaL bound, best η"
	armAIMD       = "prime-rl AIMD"
)

// controlArms are all arms, in the order they are printed.
var controlArms = []string{armController, armOracle, armFixed, armHindsight, armBounded, armTuned, armAIMD}

// course is how every run goes. The window is 32 steps; an abrupt change is in it for as long, and what was
// started before it is trained up to a few versions later: two windows count for nothing.
func (o ControlOptions) course() course {
	if o.Quick {
		return course{begin: 120, drifting: 120, rest: 120, settle: 2 * controlWindow}
	}
	return course{begin: 200, drifting: 400, rest: 300, settle: 2 * controlWindow}
}

// planSteps and planSeeds are of every simulation of the oracle's search.
func (o ControlOptions) planSteps(d ControlDrift) (steps, seeds int) {
	if o.Quick || d.Calls {
		return 200, 1
	}
	return 400, 2
}

// planLevels is how many levels of a drift the oracle plans for.
func (o ControlOptions) planLevels() int {
	if o.Quick {
		return 3
	}
	return 8
}

// ControlCase is a goal in a world under a drift, with every arm.
type ControlCase struct {
	World string `json:"world"`
	Drift string `json:"drift"`
	Goal  string `json:"goal"`
	goal  ControlGoal
	// Plan is what the oracle plays, Reachable whether it can hold the goal at every level.
	Plan      []ControlPlan `json:"plan"`
	Reachable bool          `json:"reachable"`
	// Hindsight is the one setting that is best over all of the drift, and BestEta AReaL's η that is best at its
	// start. Level says nothing of Hindsight.
	Hindsight ControlPlan  `json:"hindsight"`
	BestEta   float64      `json:"best_eta"`
	Arms      []ControlArm `json:"arms"`
}

// ControlPlan is the oracle's choice at one level of a drift.
type ControlPlan struct {
	Level float64 `json:"level"`
	// Slots, LiveGroups, Hold and QueueGroups are the settings.
	Slots       float64 `json:"slots"`
	LiveGroups  float64 `json:"live_groups"`
	Hold        float64 `json:"hold"`
	QueueGroups float64 `json:"queue_groups"`
	// Held and RolloutsPerS are what the search saw.
	Held         float64 `json:"held"`
	RolloutsPerS float64 `json:"rollouts_per_s"`
}

// ControlArm is one arm of a case over the seeds.
type ControlArm struct {
	Arm    string `json:"arm"`
	Failed string `json:"failed,omitempty"`
	// Held, HeldBatches, Value, Staleness, Swing, HoldSwing, Moves and Wasted are as [ControlScore] has them.
	Held        Estimate `json:"held"`
	HeldBatches Estimate `json:"held_batches"`
	Value       Estimate `json:"value"`
	Staleness   Estimate `json:"staleness"`
	// OverOracle is the throughput over the oracle's, seed by seed.
	OverOracle   Estimate `json:"throughput_over_oracle"`
	RolloutsPerS Estimate `json:"rollouts_per_s"`
	Swing        Estimate `json:"swing"`
	// SwingWorst is the swing of the seed with the largest, and SwingWithin the number of seeds that stay within what is
	// wanted of the controller.
	SwingWorst  float64  `json:"swing_worst_seed"`
	SwingWithin int      `json:"seeds_within_swing"`
	HoldSwing   Estimate `json:"hold_swing"`
	Moves       Estimate `json:"moves_per_100_steps"`
	Wasted      Estimate `json:"wasted"`
	// Curve is what the first seed's simulation did; nil if it failed.
	Curve *ControlCurve `json:"-"`
}

// ControlResult is the whole study.
type ControlResult struct {
	Seeds int  `json:"seeds"`
	Quick bool `json:"quick,omitempty"`
	// Steps of every run, drifting from BeginStep for DriftSteps; SettleSteps count for nothing from the start and
	// from an abrupt change on. WindowSteps are those over which a goal is meant.
	Steps       int           `json:"steps"`
	BeginStep   int           `json:"begin_step"`
	DriftSteps  int           `json:"drift_steps"`
	SettleSteps int           `json:"settle_steps"`
	WindowSteps int           `json:"window_steps"`
	Cases       []ControlCase `json:"cases"`
}

// Control judges the controller against other ways to set a loop, in simulation.
func Control(ctx context.Context, opt ControlOptions, sims Simulator) (ControlResult, error) {
	s := newControlStudy(opt, sims)
	if err := s.plan(ctx); err != nil {
		return ControlResult{}, err
	}
	return s.judge(ctx)
}

// controlStudy is a study under way.
type controlStudy struct {
	opt  ControlOptions
	sims Simulator
	// grounds are the worlds under drifts, cases those with goals.
	grounds []ground
	cases   []controlCase
	// plans are the oracle's, by case, hindsight the best fixed settings over the drift, etas AReaL's best at the start.
	plans     [][]plannedLevel
	hindsight []planned
	etas      []float64
}

// ground is a world under a drift.
type ground struct {
	world ControlWorld
	drift ControlDrift
}

// controlCase is a case to be studied.
type controlCase struct {
	world ControlWorld
	drift ControlDrift
	goal  ControlGoal
}

func newControlStudy(opt ControlOptions, sims Simulator) *controlStudy {
	all := len(opt.Worlds) == 0
	if all {
		opt.Worlds = ControlWorlds
	}
	if len(opt.Drifts) == 0 {
		opt.Drifts = ControlDrifts
	}
	if len(opt.Goals) == 0 {
		opt.Goals = ControlGoals
	}
	s := &controlStudy{opt: opt, sims: sims}
	for _, w := range opt.Worlds {
		for _, d := range opt.Drifts {
			if all && d.Calls && w.Crowding > 0 {
				continue
			}
			s.grounds = append(s.grounds, ground{w, d})
			for _, g := range opt.Goals {
				s.cases = append(s.cases, controlCase{w, d, g})
			}
		}
	}
	s.plans = make([][]plannedLevel, len(s.cases))
	return s
}

// armOf makes one of the arms of a case for one run.
func (s *controlStudy) armOf(name string, at int) arm {
	k := s.cases[at]
	switch name {
	case armOracle:
		return oracleArm(s.plans[at], k.drift, s.opt.course())
	case armFixed:
		return fixedArm(s.plans[at][0].Settings)
	case armHindsight:
		return fixedArm(s.hindsight[at].Settings)
	case armBounded:
		return boundedArm(k.goal.eta())
	case armTuned:
		return boundedArm(s.etas[at])
	case armAIMD:
		return aimdArm(residentTokens())
	}
	return arm{rules: func(c *loop.Config) { c.Control = k.goal.control() }}
}

// boundedArm is AReaL's: admission bounds the mean staleness by η.
func boundedArm(eta float64) arm {
	return arm{rules: func(c *loop.Config) {
		c.Policy, c.Eta = loop.PolicyBounded, eta
		c.QueueGroups = int(math.Ceil((c.Eta + 1) * float64(c.BatchGroups)))
	}}
}

// residentTokens is the mean of what a rollout in flight has generated, before anything drifts: E[L²]/(2·E[L]).
func residentTokens() float64 {
	lengths, err := lengthsOf(controlTailness)
	if err != nil {
		panic(fmt.Sprintf("study: %v", err))
	}
	return lengths.MeanSquare() / (2 * lengths.Mean())
}

// judge simulates every arm of every case with every seed.
func (s *controlStudy) judge(ctx context.Context) (ControlResult, error) {
	c := s.opt.course()
	arms, seeds := len(controlArms), s.opt.Seeds
	judged, err := inParallel(ctx, len(s.cases)*arms*seeds, s.sims.Progress, func(i int) (judgement, error) {
		at, name, seed := i/(arms*seeds), controlArms[i/seeds%arms], uint64(i%seeds+1)
		k := s.cases[at]
		key := fmt.Sprintf("judge|%s|%s|%v|%s|seed %d|quick %v", k.world.Name, k.drift.Name, k.goal, name, seed, s.opt.Quick)
		finished := s.sims.Plans
		if name == armController {
			finished = s.sims.Kept
		}
		return kept(finished, key, func() (judgement, error) { return s.judgeOne(at, name, seed), nil })
	})
	if err != nil {
		return ControlResult{}, err
	}
	r := ControlResult{Seeds: seeds, Quick: s.opt.Quick, Steps: c.steps(), BeginStep: c.begin, DriftSteps: c.drifting, SettleSteps: c.settle, WindowSteps: controlWindow}
	for at, k := range s.cases {
		of := judged[at*arms*seeds : (at+1)*arms*seeds]
		r.Cases = append(r.Cases, ControlCase{World: k.world.Name, Drift: k.drift.Name, Goal: k.goal.String(), goal: k.goal, Plan: plansOf(s.plans[at]),
			Hindsight: plansOf([]plannedLevel{{planned: s.hindsight[at]}})[0], BestEta: s.etas[at],
			Reachable: !slices.ContainsFunc(s.plans[at], func(p plannedLevel) bool { return !p.keeps() }), Arms: armsOf(of, seeds)})
	}
	return r, nil
}

// judgement is of one simulation. The first seed's has a curve to be drawn.
type judgement struct {
	ControlScore
	Curve *ControlCurve `json:"curve,omitempty"`
}

// judgeOne simulates an arm of a case with one seed.
func (s *controlStudy) judgeOne(at int, name string, seed uint64) judgement {
	k, c := s.cases[at], s.opt.course()
	series, err := controlTrial{k.world, k.drift, c, seed, s.armOf(name, at), k.goal.Tokens}.run()
	if err != nil {
		return judgement{ControlScore: ControlScore{Failed: err.Error()}}
	}
	j := judgement{ControlScore: score(&series, k.goal, k.drift, c)}
	if seed == 1 {
		j.Curve = curveOf(&series, k.goal)
	}
	return j
}

// plansOf are the oracle's choices in words.
func plansOf(levels []plannedLevel) (list []ControlPlan) {
	for _, p := range levels {
		s := p.Settings
		list = append(list, ControlPlan{Level: p.Level, Slots: s[loop.SettingSlots], LiveGroups: s[loop.SettingLive], Hold: s[loop.SettingHold],
			QueueGroups: s[loop.SettingQueue], Held: p.Held, RolloutsPerS: p.RolloutsPerS})
	}
	return list
}

// armsOf puts the scores of a case's arms together, seeds of one arm side by side.
func armsOf(scores []judgement, seeds int) (list []ControlArm) {
	oracle := slices.Index(controlArms, armOracle) * seeds
	for i, name := range controlArms {
		of := scores[i*seeds : (i+1)*seeds]
		mean := func(value func(ControlScore) float64) Estimate {
			var values []float64
			for _, s := range of {
				if s.Failed == "" {
					values = append(values, value(s.ControlScore))
				}
			}
			return estimateOf(values)
		}
		a := ControlArm{Arm: name,
			Held: mean(func(s ControlScore) float64 { return s.Held }), HeldBatches: mean(func(s ControlScore) float64 { return s.HeldBatches }),
			Value: mean(func(s ControlScore) float64 { return s.Value }), Staleness: mean(func(s ControlScore) float64 { return s.Staleness }),
			RolloutsPerS: mean(func(s ControlScore) float64 { return s.RolloutsPerS }), Swing: mean(func(s ControlScore) float64 { return s.Swing }),
			HoldSwing: mean(func(s ControlScore) float64 { return s.HoldSwing }), Moves: mean(func(s ControlScore) float64 { return s.Moves }),
			Wasted: mean(func(s ControlScore) float64 { return s.Wasted })}
		a.SwingWorst, a.SwingWithin = worstSwing(of)
		var ratios []float64
		for seed, s := range of {
			if s.Failed != "" {
				a.Failed = s.Failed
			} else if base := scores[oracle+seed]; base.Failed == "" {
				ratios = append(ratios, s.RolloutsPerS/base.RolloutsPerS)
			}
		}
		a.OverOracle, a.Curve = estimateOf(ratios), of[0].Curve
		list = append(list, a)
	}
	return list
}

// worstSwing is the largest swing of all seeds, and the number of them that are within what is wanted.
func worstSwing(of []judgement) (worst float64, within int) {
	for _, s := range of {
		if s.Failed != "" {
			continue
		}
		worst = max(worst, s.Swing)
		if s.Swing <= swingWanted {
			within++
		}
	}
	return worst, within
}
