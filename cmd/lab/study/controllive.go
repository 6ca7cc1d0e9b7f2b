package study

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// ControlLiveOptions say how much of the study of the controller in live runs is done.
type ControlLiveOptions struct {
	// Seeds of every arm, from 1 on; the same for all arms.
	Seeds int
	// Drifts by name and Goals to study; none means all.
	Drifts []ControlDrift
	Goals  []ControlGoal
	// Quick shortens every run: it shows that the study works, and is no result.
	Quick bool
	// Simulated leaves the live runs out.
	Simulated bool
}

// ControlLiveGoals are those of the study: a mean that drifts break, and a share of tokens.
var ControlLiveGoals = []ControlGoal{{Mean: 2.5}, {Share: 0.95, Within: 4, Tokens: true}}

// ControlLiveDrifts are those of the study, in live runs and their simulations alike.
var ControlLiveDrifts = []ControlDrift{
	{Name: driftTools, What: "the environment's time, lognormal with a tail, grows to three times what it was"},
	{Name: driftLengths, What: "answers grow to three times their length"},
	{Name: driftEngines, What: "two of the four engines are lost at once, and come back at once", Abrupt: true},
}

// controlLiveArms are the arms, in the order they are printed.
var controlLiveArms = []string{armController, armFixed, armBounded}

// Sizes of every live run: four engines, so that half of them can be lost, G as in simulation, C/B = 3 and C/S = 24.
const (
	liveEngines     = 4
	liveEngineSlots = 24
	liveGroupSize   = 4
	liveBatch       = controlGroups * liveGroupSize
	liveDecodeS     = 0.0045
	liveStepS       = 0.03
	liveToolS       = 0.01125
)

// course is how every run goes, as [ControlOptions] has it, with steps of a few hundredths of a second.
func (o ControlLiveOptions) course() course {
	if o.Quick {
		return course{begin: 40, drifting: 40, rest: 60, settle: controlWindow}
	}
	return course{begin: 120, drifting: 240, rest: 150, settle: 2 * controlWindow}
}

// ControlLiveRunner runs documents. Both show every event, with its measurements and its
// consequences, from the first train step to the last.
type ControlLiveRunner struct {
	// Live runs a document's engines and trainer.
	Live func(ctx context.Context, document config.Config, shown metrics.Beside) (ControlLived, error)
	// Simulate simulates the same document, and returns the share of tokens made that was not trained.
	Simulate func(document config.Config, shown metrics.Beside) (wasted float64, err error)
	// Said, if not nil, is called before every live run.
	Said func(done, all int, what string, seed uint64)
}

// ControlLived is what a live run came to beside its steps.
type ControlLived struct {
	// Reward is the mean of the last tenth of the steps, Accuracy that of all held-out prompts at the end.
	Reward   float64 `json:"reward"`
	Accuracy float64 `json:"held_out_accuracy"`
	// Wasted is the share of tokens made that was not trained, after the steps that count for nothing.
	Wasted float64 `json:"wasted"`
	// Late says where the machine did not keep the pace of engines or trainer.
	Late []string `json:"late,omitempty"`
	// Failed says why the run ended early, "" if it did not.
	Failed string `json:"failed,omitempty"`
}

// ControlLiveResult is the whole study.
type ControlLiveResult struct {
	Seeds int  `json:"seeds"`
	Quick bool `json:"quick,omitempty"`
	// Steps of every run, drifting from BeginStep for DriftSteps; SettleSteps count for nothing from the start and
	// from an abrupt change on. WindowSteps are those over which a goal is meant.
	Steps       int `json:"steps"`
	BeginStep   int `json:"begin_step"`
	DriftSteps  int `json:"drift_steps"`
	SettleSteps int `json:"settle_steps"`
	WindowSteps int `json:"window_steps"`
	// Common are the keys of all arms.
	Common []string          `json:"common"`
	Cases  []ControlLiveCase `json:"cases"`
	// Late are what machine and pace had to say, of all runs.
	Late []string `json:"late,omitempty"`
}

// ControlLiveCase is a goal under a drift, with every arm.
type ControlLiveCase struct {
	Drift string `json:"drift"`
	What  string `json:"what"`
	// Set are the keys of the drift.
	Set  []string         `json:"set"`
	Goal ControlGoal      `json:"goal"`
	Arms []ControlLiveArm `json:"arms"`
}

// ControlLiveArm is one arm of a case over the seeds, live and simulated.
type ControlLiveArm struct {
	Arm string `json:"arm"`
	// Set are the keys in which it differs.
	Set       []string          `json:"set"`
	Live      *ControlLiveScore `json:"live,omitempty"`
	Simulated ControlLiveScore  `json:"simulated"`
}

// controlDocument is a document of one arm under one drift.
type controlDocument struct {
	drift ControlDrift
	arm   string
	goal  ControlGoal
	set   []string
}

// common are the keys of all arms. Engines and trainer keep a pace, so that the machine matters little;
// what simulations reckon with says the same.
func (o ControlLiveOptions) common() []string {
	c := o.course()
	engines := "["
	for i := range liveEngines {
		if i > 0 {
			engines += ", "
		}
		engines += fmt.Sprintf("{kind: embedded, name: e%d, slots: %d, decode_step_s: %g}", i, liveEngineSlots, liveDecodeS)
	}
	return []string{
		"environment.task=reverse", "environment.letters_min=3", "environment.letters_max=5",
		fmt.Sprintf("environment.service_time={kind: lognormal, mean_s: %g, tailness: 60}", liveToolS),
		"model={layers: 1, width: 32, heads: 2, context: 40}", "trainer.learning_rate=0.004",
		fmt.Sprintf("rollout.group_size=%d", liveGroupSize), fmt.Sprintf("train.batch=%d", liveBatch), fmt.Sprintf("rollout.concurrency=%d", liveEngines*liveEngineSlots),
		"engines=" + engines + "]",
		fmt.Sprintf("trainer.step_s=%g", liveStepS), "trainer.threads=1", fmt.Sprintf("trainer.steps=%d", c.steps()),
		"modelled.length={kind: empirical, groups: [[4, 4, 4, 4], [5, 5, 5, 5], [6, 6, 6, 6]]}",
		fmt.Sprintf("modelled.decode_tokens_per_s=%g", 1/liveDecodeS), fmt.Sprintf("modelled.train.step_s=%g", liveStepS),
		fmt.Sprintf("steps.warmup=%d", c.settle), fmt.Sprintf("steps.measured=%d", c.steps()-c.settle),
		"evaluate.every=0", "store.samples_every=0",
	}
}

// liveKeys are a drift's, in a live run and a simulation alike.
func (d ControlDrift) liveKeys(c course) []string {
	drift := func(factor string) []string {
		return []string{fmt.Sprintf("rollout.drift={begin: %d, steps: %d, %s}", c.begin, c.drifting, factor)}
	}
	switch d.Name {
	case driftTools:
		return drift("environment_factor: 3")
	case driftLengths:
		return drift("length_factor: 3")
	}
	return []string{fmt.Sprintf("failures.engine_plan=[{engine: e0, at_step: %d, back_step: %d}, {engine: e1, at_step: %d, back_step: %d}]",
		c.begin, c.begin+c.drifting, c.begin, c.begin+c.drifting)}
}

// armKeys are an arm's under a goal. The controller begins where the fixed setting stays.
func armKeys(name string, g ControlGoal, queue float64) []string {
	fixed := []string{"queue.policy=drop", fmt.Sprintf("queue.factor=%g", queue)}
	switch name {
	case armController:
		if g.Share > 0 {
			of := "rollouts"
			if g.Tokens {
				of = "tokens"
			}
			return append(fixed, fmt.Sprintf("control={target: {share: %g, within: %d, of: %s}}", g.Share, g.Within, of))
		}
		return append(fixed, fmt.Sprintf("control={target: %g}", g.Mean))
	case armBounded:
		return []string{"queue.policy=bounded", fmt.Sprintf("queue.eta=%g", g.bound())}
	}
	return fixed
}

// bound is AReaL's η for a goal: the number of versions it names.
func (g ControlGoal) bound() float64 {
	if g.Share > 0 {
		return float64(g.Within)
	}
	return g.Mean
}

// document resolves the keys, for a seed.
func controlLiveDocument(seed uint64, sets ...[]string) (config.Config, error) {
	overrides := []config.Override{{Text: fmt.Sprintf("seed=%d", seed)}}
	for _, set := range sets {
		for _, text := range set {
			overrides = append(overrides, config.Override{Text: text})
		}
	}
	return config.LoadWith("", overrides...)
}

// queueFactors are what the fixed setting is chosen from.
var queueFactors = []float64{1, 1.25, 1.5, 2}

// fixedQueue is the queue's factor that makes the most of the loop, with every slot in use, before anything drifts,
// among those with which the goal is held: by simulation of the same document. Where none holds it,
// it is the one that holds it most often.
func (s *liveStudy) fixedQueue(g ControlGoal) (float64, error) {
	c := s.opt.course()
	still := course{begin: c.steps(), settle: c.settle}
	best, found := 0.0, ControlScore{Held: -1}
	for _, factor := range queueFactors {
		document, err := controlLiveDocument(planSeed, s.common, armKeys(armFixed, g, factor))
		if err != nil {
			return 0, err
		}
		w := newLiveWatcher(document)
		if _, err := s.run.Simulate(document, w); err != nil {
			return 0, fmt.Errorf("study: queue.factor %g: %w", factor, err)
		}
		one := score(&w.series, g, ControlDrift{}, still)
		holds := one.Held >= heldWanted
		switch held := found.Held >= heldWanted; {
		case holds && held && one.RolloutsPerS > 1.002*found.RolloutsPerS, holds && !held, !holds && !held && one.Held > found.Held:
			best, found = factor, one
		}
	}
	return best, nil
}

// liveStudy is a study under way.
type liveStudy struct {
	opt    ControlLiveOptions
	run    ControlLiveRunner
	common []string
	// lived are live runs by their keys: two goals share those of a fixed setting.
	lived map[string]livedSeries
	done  int
	all   int
	late  []string
}

// livedSeries is a live run with its steps.
type livedSeries struct {
	ControlLived
	series controlSeries
}

// ControlLive judges the controller in live runs of embedded engines, beside a fixed setting and
// AReaL's bound, and in simulations of the same documents.
func ControlLive(ctx context.Context, opt ControlLiveOptions, run ControlLiveRunner) (ControlLiveResult, error) {
	if len(opt.Drifts) == 0 {
		opt.Drifts = ControlLiveDrifts
	}
	if len(opt.Goals) == 0 {
		opt.Goals = ControlLiveGoals
	}
	c := opt.course()
	s := &liveStudy{opt: opt, run: run, common: opt.common(), lived: map[string]livedSeries{}}
	r := ControlLiveResult{Seeds: opt.Seeds, Quick: opt.Quick, Steps: c.steps(), BeginStep: c.begin, DriftSteps: c.drifting, SettleSteps: c.settle,
		WindowSteps: controlWindow, Common: s.common}
	documents, err := s.documents()
	if err != nil {
		return r, err
	}
	distinct := map[string]bool{}
	for _, d := range documents {
		distinct[fmt.Sprint(d.drift.Name, d.set)] = true
	}
	s.all = len(distinct) * opt.Seeds
	scores := make([]armScores, len(documents))
	for seed := range uint64(opt.Seeds) { // all arms with one seed, then all with the next
		for i := range documents {
			at := (i + int(seed)) % len(documents)
			if err := s.one(ctx, documents[at], seed+1, &scores[at]); err != nil {
				return r, err
			}
		}
	}
	for i, d := range documents {
		if i%len(controlLiveArms) == 0 {
			r.Cases = append(r.Cases, ControlLiveCase{Drift: d.drift.Name, What: d.drift.What, Set: d.drift.liveKeys(c), Goal: d.goal})
		}
		of := &r.Cases[len(r.Cases)-1]
		of.Arms = append(of.Arms, scores[i].arm(d))
	}
	if n := len(s.late); n > 0 {
		r.Late = []string{fmt.Sprintf("In %d of %d live runs the machine did not keep the pace it was given, such as under %s", n, s.all, s.late[0])}
	}
	return r, nil
}

// documents are those of every arm of every case, whose keys are known to be good.
func (s *liveStudy) documents() (list []controlDocument, err error) {
	for _, g := range s.opt.Goals {
		queue, err := s.fixedQueue(g)
		if err != nil {
			return nil, err
		}
		for _, d := range s.opt.Drifts {
			for _, name := range controlLiveArms {
				one := controlDocument{d, name, g, armKeys(name, g, queue)}
				if _, err := controlLiveDocument(1, s.common, d.liveKeys(s.opt.course()), one.set); err != nil {
					return nil, fmt.Errorf("study: arm %s under %s: %w", name, d.Name, err)
				}
				list = append(list, one)
			}
		}
	}
	return list, nil
}

// one runs an arm with a seed, live unless a run of the same keys has been, and simulated.
func (s *liveStudy) one(ctx context.Context, d controlDocument, seed uint64, into *armScores) error {
	document, err := controlLiveDocument(seed, s.common, d.drift.liveKeys(s.opt.course()), d.set)
	if err != nil {
		return err
	}
	w := newLiveWatcher(document)
	simulated := ControlLived{Reward: math.NaN(), Accuracy: math.NaN()}
	if simulated.Wasted, err = s.run.Simulate(document, w); err != nil {
		simulated.Failed = err.Error()
	}
	into.simulated = append(into.simulated, s.judge(d, livedSeries{simulated, w.series}))
	if s.opt.Simulated {
		return ctx.Err()
	}
	key := fmt.Sprint(d.drift.Name, d.set, seed)
	lived, known := s.lived[key]
	if !known {
		if s.run.Said != nil {
			s.run.Said(s.done, s.all, fmt.Sprintf("%s under %s, %s", d.arm, d.drift.Name, d.goal), seed)
		}
		w := newLiveWatcher(document)
		came, err := s.run.Live(ctx, document, w)
		if err != nil {
			return fmt.Errorf("study: %s under %s, seed %d: %w", d.arm, d.drift.Name, seed, err)
		}
		if len(came.Late) > 0 {
			s.late = append(s.late, fmt.Sprintf("%s, seed %d: %s", d.drift.Name, seed, strings.Join(came.Late, "; ")))
		}
		lived = livedSeries{came, w.series}
		s.lived[key] = lived
		s.done++
	}
	into.live = append(into.live, s.judge(d, lived))
	return nil
}

// judge scores a run.
func (s *liveStudy) judge(d controlDocument, run livedSeries) liveScored {
	c := s.opt.course()
	scored := liveScored{lived: run.ControlLived}
	if n := len(run.series.endNS); scored.lived.Failed == "" && (n != c.steps() || len(run.series.lags) != n*controlGroups) {
		scored.lived.Failed = fmt.Sprintf("it ended after %d of %d train steps", n, c.steps())
	}
	if scored.lived.Failed != "" {
		return scored
	}
	run.series.wasted = run.Wasted
	scored.score = score(&run.series, d.goal, d.drift, c)
	scored.score.RolloutsPerS *= float64(liveGroupSize) / controlGroupSize
	scored.trace = traceOf(&run.series, d.goal)
	scored.phases(d.goal, d.drift, c)
	return scored
}

// newLiveWatcher watches a document's run with tokens told apart by the version that sampled them.
func newLiveWatcher(document config.Config) *watcher {
	w := &watcher{groups: map[loop.GroupID][]metrics.VersionTokens{}}
	w.current[loop.SettingSlots], w.current[loop.SettingQueue] = float64(document.Rollout.Concurrency), float64(document.QueueGroups())
	w.current[loop.SettingHold] = document.Queue.Hold
	w.current[loop.SettingLive] = math.NaN() // where nothing moves it there is none
	return w
}
