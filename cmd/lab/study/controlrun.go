package study

import (
	"fmt"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// settings are values of what may be moved, by loop.Setting.
type settings [loop.SettingEngines + 1]float64

// moved are the settings of which the study speaks, in the order it prints them.
var moved = []loop.Setting{loop.SettingSlots, loop.SettingLive, loop.SettingHold, loop.SettingQueue}

// full are the settings that hold nothing back.
func full() (s settings) {
	ranges := controlRanges().Ranges
	for _, m := range moved {
		s[m] = ranges[m].Most
	}
	s[loop.SettingHold] = 0
	return s
}

// requests are the settings as requests, in their order.
func (s settings) requests() []sim.Request {
	var list []sim.Request
	for _, m := range moved {
		list = append(list, sim.Request{Setting: m, Value: s[m]})
	}
	return list
}

// arm is one way to set a loop under a goal. A new one serves one run.
type arm struct {
	// rules changes the loop's before the run; nil changes nothing.
	rules func(c *loop.Config)
	// steer is sim.Config.Steer, nil for an arm that does not move settings from outside; pollNS its period
	// beside train steps, 0 for none.
	steer  sim.Steer
	pollNS int64
}

// controlTrial is one simulation of an arm.
type controlTrial struct {
	world  ControlWorld
	drift  ControlDrift
	course course
	seed   uint64
	arm    arm
	// tokens has the series tell tokens by the version that sampled them.
	tokens bool
}

// controlSeries is what one simulation showed, a value a train step from version 1 on.
type controlSeries struct {
	// lags are the staleness of the step's groups, controlGroups of them a step.
	lags []uint8
	// tokens[i][k] are the tokens trained in step i that were sampled k versions before, the last of all k from there on.
	tokens [][tokenLags]int64
	// endNS is when each step ended, values the settings then.
	endNS  []int64
	values []settings
	// moves counts changes of settings after the first.
	moves int
	// wasted is the share of tokens made that were not trained, after the steps that count for nothing.
	wasted float64
}

// tokenLags bounds the lags of tokens that are told apart.
const tokenLags = 33

// watcher folds a simulation into a series.
type watcher struct {
	series  controlSeries
	current settings
	begun   bool
	// groups are the tokens of every live one by version, nil where they are not asked for.
	groups map[loop.GroupID][]metrics.VersionTokens
	pool   [][]metrics.VersionTokens
	step   [tokenLags]int64
}

// Observe implements metrics.Beside.
func (w *watcher) Observe(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
	if ev.Kind == loop.RolloutScored && w.groups != nil {
		w.scored(ev.Group, m.ByVersion)
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.GroupTrained:
			total, _, _ := a.Staleness()
			w.series.lags = append(w.series.lags, uint8(min(total, 255)))
			w.trained(a)
		case loop.GroupEnded:
			w.forget(a.Group)
		case loop.SettingChanged:
			if int(a.Setting) < len(w.current) {
				w.current[a.Setting] = a.Value
			}
			if w.begun {
				w.series.moves++
			}
		}
	}
	if ev.Kind == loop.TrainStepEnded {
		w.begun = true
		w.series.endNS = append(w.series.endNS, ev.Time)
		w.series.values = append(w.series.values, w.current)
		if w.groups != nil {
			w.series.tokens = append(w.series.tokens, w.step)
			w.step = [tokenLags]int64{}
		}
	}
}

// scored takes a rollout's tokens.
func (w *watcher) scored(group loop.GroupID, tokens []metrics.VersionTokens) {
	of, known := w.groups[group]
	if last := len(w.pool) - 1; !known && last >= 0 {
		of, w.pool = w.pool[last], w.pool[:last]
	}
	w.groups[group] = append(of, tokens...)
}

// trained counts a group's tokens by how many versions ago they were sampled.
func (w *watcher) trained(a *loop.Action) {
	for _, t := range w.groups[a.Group] {
		w.step[min(max(a.Version-t.Version, 0), tokenLags-1)] += t.Tokens
	}
	w.forget(a.Group)
}

// forget takes the tokens of a group that has ended away.
func (w *watcher) forget(group loop.GroupID) {
	if of, known := w.groups[group]; known {
		delete(w.groups, group)
		w.pool = append(w.pool, of[:0])
	}
}

// EnginesDown, EnginesHeld and TrainerValidates implement metrics.Beside.
func (*watcher) EnginesDown(int64, int)      {}
func (*watcher) EnginesHeld(int64, int, int) {}
func (*watcher) TrainerValidates(int64)      {}

// run simulates the trial.
func (t controlTrial) run() (controlSeries, error) {
	cfg, err := t.world.config(t.drift, t.course, t.seed)
	if err != nil {
		return controlSeries{}, err
	}
	if t.arm.rules != nil {
		t.arm.rules(&cfg.Loop)
	}
	cfg.Steer, cfg.PollNS = t.arm.steer, t.arm.pollNS
	w := &watcher{current: full()}
	if t.tokens {
		w.groups, cfg.TokenVersions = map[loop.GroupID][]metrics.VersionTokens{}, true
	}
	cfg.Beside = w
	result, err := sim.Run(cfg)
	if err != nil {
		return controlSeries{}, fmt.Errorf("study: %s under %s, seed %d: %w", t.world.Name, t.drift.Name, t.seed, err)
	}
	w.series.wasted = result.Summary.Waste.WastedShare
	return w.series, nil
}
