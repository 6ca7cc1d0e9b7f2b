package study

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// ControlWorld is the hardware that a controller meets, before anything drifts.
type ControlWorld struct {
	// Name of the world.
	Name string `json:"name"`
	// Rho is ρ with every slot in use, filters included: below 1 rollouts bind, above it the trainer.
	Rho float64 `json:"rho"`
	// Crowding is how much slower a slot decodes when all of its engine's generate than it would alone,
	// as [Cell] has it. 0 is a constant speed.
	Crowding float64 `json:"crowding"`
}

// ControlWorlds are those of the study: both regimes, each with two kinds of speed. With a constant
// speed concurrency costs staleness alone; with one that falls with concurrency it is a trade.
var ControlWorlds = []ControlWorld{
	{Name: "rollout-bound", Rho: 0.7},
	{Name: "rollout-bound-crowded", Rho: 0.8, Crowding: 2},
	{Name: "train-bound", Rho: 1.4},
	{Name: "train-bound-crowded", Rho: 1.4, Crowding: 2},
}

// Sizes of every world: eight engines, so that half of them can be lost, and C/B = 2.
const (
	controlEngines     = 8
	controlEngineSlots = 16
	controlSlots       = controlEngines * controlEngineSlots
	controlGroupSize   = 8
	controlGroups      = 8
	controlTailness    = 50
	// controlQueue is the largest capacity of the queue, in groups.
	controlQueue = 2 * controlGroups
	// controlSync is the time of a weight sync over that of a train step.
	controlSync = 0.05
	// controlLive is more groups than can ever be live: every slot's, and the queue's.
	controlLive = controlSlots + controlQueue
	// controlHold is the longest hold without a bias of lengths.
	controlHold = 0.3
)

// controlRanges are what a setting may be moved within, by every arm that moves any.
func controlRanges() (c loop.Control) {
	c.Ranges[loop.SettingSlots] = loop.Range{Least: controlGroupSize, Most: controlSlots}
	c.Ranges[loop.SettingLive] = loop.Range{Least: controlGroups / 2, Most: controlLive}
	c.Ranges[loop.SettingHold] = loop.Range{Least: 0, Most: controlHold}
	c.Ranges[loop.SettingQueue] = loop.Range{Least: controlGroups, Most: controlQueue}
	return c
}

// rules are the loop's in every arm, before the arm's own.
func (w ControlWorld) rules(seed uint64) loop.Config {
	rules := loop.Config{GroupSize: controlGroupSize, BatchGroups: controlGroups, QueueGroups: controlQueue, Seed: seed, MaxAttempts: 1000}
	for range controlEngines {
		rules.EngineSlots = append(rules.EngineSlots, controlEngineSlots)
	}
	return rules
}

// config is the world under a drift, as a simulation of so many train steps of which
// the first are a warm-up.
func (w ControlWorld) config(d ControlDrift, c course, seed uint64) (sim.Config, error) {
	lengths, err := lengthsOf(controlTailness)
	if err != nil {
		return sim.Config{}, err
	}
	all, err := workload.NewAcceptance(1)
	if err != nil {
		return sim.Config{}, err
	}
	cfg := sim.Config{Loop: w.rules(seed), NSPerToken: slotNS, Warmup: c.settle, Measured: c.steps() - c.settle}
	if a := w.Crowding; a > 0 {
		cfg.Speed = func(active int, _ bool) float64 { return (1 + a) / (1 + a*float64(active)/controlEngineSlots) }
	}
	rolloutNS, acceptance := lengths.Mean()*slotNS, 1.0
	p, err := d.parts(c)
	if err != nil {
		return sim.Config{}, fmt.Errorf("study: drift %s: %w", d.Name, err)
	}
	if p.tools != nil {
		rolloutNS += p.tools.MeanNS()
		cfg.Agents = &sim.Agents{Seed: seed, Tools: p.tools, Change: p.change}
	}
	if p.solve != nil {
		cfg.Loop.FilterZeroAdvantage = true
		acceptance = p.acceptance
	}
	stepNS := controlGroups * controlGroupSize * rolloutNS * w.Rho / (controlSlots * acceptance)
	work := sim.NewModelled(seed, lengths, nil, all, int64(stepNS)).WithChange(p.change)
	if p.solve != nil {
		work = work.WithSolve(p.solve)
	}
	cfg.Work, cfg.SyncNS = work, int64(math.Round(controlSync*stepNS))
	cfg.Faults.Plan = p.losses
	return cfg, nil
}
