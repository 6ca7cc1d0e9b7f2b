package looptest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Plan is everything a world is driven by: the loop's config, how long things
// take and how often they go wrong. Its zero value lets nothing happen.
type Plan struct {
	// Seed of all draws.
	Seed uint64
	// Config of the loop.
	Config loop.Config
	// RolloutTicks, TrainTicks, SyncTicks and InterruptTicks bound the uniform durations, in
	// virtual milliseconds. Small bounds make many events fall on one instant.
	RolloutTicks, TrainTicks, SyncTicks, InterruptTicks int
	// AskTicks bounds likewise how long a trainer takes to ask for the next batch (TrainerAsks).
	AskTicks int
	// Solves is the chance of a rollout without a level to be solved; each level takes an eighth of that away.
	Solves float64
	// Measures is the chance of a group's drift being measured.
	Measures float64
	// Faults are the chances of things going wrong, zero for none.
	Faults Faults
}

// Faults are chances between 0 and 1, each per occasion.
type Faults struct {
	// RolloutFails, TrainFails, LeaseReturns and SyncFails are per effect.
	RolloutFails, TrainFails, LeaseReturns, SyncFails float64
	// Straggles makes a rollout a hundred times as long.
	Straggles float64
	// Rejects is the chance of a rejecting verdict, NoNumber of a reward that is none.
	Rejects, NoNumber float64
	// Prunes is the chance of a rollout being pruned, Preempts of an engine putting it aside unasked.
	Prunes, Preempts float64
	// InterruptRaces leaves the end of a rollout that is to be interrupted under way.
	InterruptRaces float64
	// Duplicates delivers a completion again later; LateStays leaves completions of ended attempts under way.
	Duplicates, LateStays float64
	// EngineLost, Restarts, Stops, Garbage, Reversed and Snapshots are per event.
	EngineLost, Restarts, Stops, Garbage, Reversed, Snapshots float64
	// CellRestarts is per event, of cells in processes of their own (WithCells).
	CellRestarts float64
	// Restores is the chance, per event, of the trainer going back to an earlier state.
	Restores float64
	// Requests is the chance, per event, of somebody asking for another value of a setting.
	Requests float64
}

// Draw returns the plan of a seed: config, durations and faults are all drawn. Each fault is left
// out of half of the plans, so that plans differ in kind.
func Draw(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x706c616e))
	p := Plan{Seed: seed, RolloutTicks: 1 + r.IntN(40), TrainTicks: 1 + r.IntN(30), SyncTicks: r.IntN(20),
		InterruptTicks: r.IntN(8), Solves: 0.5 + 0.5*r.Float64(), Measures: float64(r.IntN(3)) / 2}
	p.Config = drawConfig(r)
	if c := p.Config; c.FilterSolveRate {
		p.Solves = min(max(0.25, (c.SolveLow+c.SolveHigh)/2), 0.75) // some groups must pass
	}
	chance := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	p.Faults = Faults{
		RolloutFails: chance(0.3), TrainFails: chance(0.3), LeaseReturns: chance(0.3), SyncFails: chance(0.3),
		Straggles: chance(0.05), Rejects: chance(0.1), NoNumber: chance(0.05),
		Prunes: chance(0.2), Preempts: chance(0.2), InterruptRaces: chance(0.6),
		Duplicates: chance(0.2), LateStays: chance(0.5),
		EngineLost: chance(0.02), Restarts: chance(0.01), Stops: chance(0.01), Garbage: chance(0.1),
		Reversed: chance(0.02), Snapshots: chance(0.05),
	}
	p.Config.TrainerAsks, p.AskTicks, p.Faults.Restores = r.IntN(3) == 0, r.IntN(30), chance(0.02)
	drawControl(r, &p.Config)
	p.Faults.Requests = chance(0.05)
	if c := &p.Config; c.OnFailure == loop.ShrinkGroup {
		c.GroupMin = r.IntN(c.GroupSize + 1)
	}
	p.Config.Placement = loop.Placement(r.IntN(2))
	p.Config.ResumeRestart = r.IntN(2) == 0
	return p
}

// WithCells returns the plan, in one of three with its engines in cells, of which some are processes of their own. There
// the driver's process is restarted more often.
func (p Plan) WithCells() Plan {
	r := rand.New(rand.NewPCG(p.Seed, 0x63656c6c73))
	with := p
	for range p.Config.EngineSlots {
		with.Config.EngineCells = append(with.Config.EngineCells, r.IntN(3))
	}
	with.Faults.Restarts += 0.02
	with.Faults.CellRestarts = 0.02
	cells := r.IntN(3) == 0
	with.Config.StaysInCell = with.Config.ResumeRestart || r.IntN(2) == 0
	if cells && with.Config.WithDefaults().Validate() == nil {
		return with
	}
	return p
}

func drawConfig(r *rand.Rand) loop.Config {
	for {
		c := loop.Config{
			GroupSize:           1 + r.IntN(5),
			BatchGroups:         1 + r.IntN(4),
			Policy:              loop.Policy(r.IntN(7)),
			Select:              loop.Selection(r.IntN(4)),
			MaxStaleness:        loop.Version(r.IntN(4)),
			Abort:               r.IntN(2) == 0,
			Start:               loop.StartOrder(r.IntN(2)),
			Sync:                loop.SyncMode(r.IntN(4)),
			SyncEvery:           1 + r.IntN(3)*r.IntN(2),
			TrainerBlocked:      r.IntN(3) == 0,
			RollingSwitch:       r.IntN(2) == 0,
			FilterZeroAdvantage: r.IntN(3) == 0,
			MaxAttempts:         r.IntN(4),
			OnFailure:           loop.FailureRule(r.IntN(2)),
			TrainAttempts:       r.IntN(4),
		}
		for range 1 + r.IntN(4) {
			c.EngineSlots = append(c.EngineSlots, 1+r.IntN(6))
		}
		drawPartial(r, &c)
		drawShaping(r, &c)
		drawCapacity(r, &c)
		if c.WithDefaults().Validate() == nil {
			return c
		}
	}
}

// drawPartial draws what interrupts rollouts and what keeps groups back.
func drawPartial(r *rand.Rand, c *loop.Config) {
	c.InterruptAtBatch = r.IntN(3) == 0
	c.MaxSpans = r.IntN(4) * r.IntN(2)
	c.PauseGroups = (c.BatchGroups + r.IntN(4)) * (r.IntN(4) / 3)
	c.Hold = []float64{0, 0, 0.1, 0.3, 0.9}[r.IntN(5)]
	if c.HoldAdaptive = c.Hold > 0 && r.IntN(2) == 0; c.HoldAdaptive {
		c.HoldCost = []float64{0, 0, 0.05, 0.5}[r.IntN(4)]
	}
	c.ResumeLost = r.IntN(3) == 0
}

// drawShaping draws what enters and what leaves.
func drawShaping(r *rand.Rand, c *loop.Config) {
	c.Seed = r.Uint64()
	c.Redundancy = r.IntN(3) * r.IntN(2)
	c.FilterSolveRate = r.IntN(4) == 0
	c.Levels = r.IntN(5) * r.IntN(2)
	if c.FilterSolveRate || c.Levels > 0 {
		at := float64(r.IntN(2)) // a share that some group has
		if c.GroupSize > 1 {
			at = float64(1+r.IntN(c.GroupSize-1)) / float64(c.GroupSize)
		}
		c.SolveLow, c.SolveHigh = at*r.Float64(), at+(1-at)*r.Float64()
		c.SolveHigh = cmp.Or(c.SolveHigh, 0.25)
	}
	c.Explore = float64(r.IntN(3)) / 2
	c.Prompts = r.IntN(8) * r.IntN(2)
	c.Requeue = r.IntN(2) == 0
}

// drawCapacity draws the settings of the policy, and a queue that it can run with.
func drawCapacity(r *rand.Rand, c *loop.Config) {
	least := c.BatchGroups
	switch c.Policy {
	case loop.PolicySynchronous:
		c.ExtraGroups = r.IntN(4) * r.IntN(2)
		c.QueueGroups = c.BatchGroups + c.ExtraGroups
		return
	case loop.PolicyBounded:
		c.Eta = []float64{0, 0.5, 1, 2.5, 3.99}[r.IntN(5)]
		least = boundedGroups(*c)
	case loop.PolicyThreshold:
		c.StalenessThreshold = []float64{0, 0.1, 0.5, 1, 1.7}[r.IntN(5)]
		least = thresholdGroups(*c)
	case loop.PolicyReplay:
		c.MaxUses = r.IntN(4)
		c.Gamma = []float64{0, 0.95, 0.5, 1e-9, 1}[r.IntN(5)]
		c.Balance = c.Prompts > 0 && r.IntN(2) == 0
		c.Evict = loop.Eviction(r.IntN(2))
		if c.MaxStaleness > 0 {
			c.MaxStaleness = max(c.MaxStaleness, loop.Version(c.SyncEvery)-1)
		}
	}
	c.QueueGroups = least + r.IntN(2*c.BatchGroups)
}

// drawControl draws a goal for some of the plans, or ranges without one, which requests alone move.
func drawControl(r *rand.Rand, c *loop.Config) {
	if r.IntN(3) > 0 || c.Policy == loop.PolicySynchronous {
		return
	}
	ctl := loop.Control{Window: 1 + r.IntN(6)}
	switch r.IntN(4) {
	case 0:
		ctl.Share, ctl.Within, ctl.Tokens = 0.5+0.4*r.Float64(), loop.Version(r.IntN(3)), r.IntN(2) == 0
	case 1, 2:
		ctl.Mean = 3 * r.Float64()
	}
	slots, groups := c.Concurrency(), float64(c.BatchGroups)
	within := func(set loop.Setting, least, most float64) {
		if r.IntN(3) > 0 && least < most {
			ctl.Ranges[set] = loop.Range{Least: least, Most: most}
		}
	}
	within(loop.SettingSlots, float64(min(c.GroupSize+c.Redundancy, slots)), float64(slots))
	if !c.HoldAdaptive {
		within(loop.SettingHold, 0, 0.5)
	}
	if c.Policy != loop.PolicyReplay {
		within(loop.SettingLive, groups*float64(r.IntN(4)), groups+float64(slots))
	}
	if c.Policy < loop.PolicyBounded {
		within(loop.SettingQueue, groups, float64(c.QueueGroups))
	}
	within(loop.SettingRedundancy, 0, float64(c.Redundancy))
	if c.Policy == loop.PolicyDrop && !c.TrainerAsks {
		within(loop.SettingSyncEvery, 1, 4)
	}
	if c.Start == loop.StartStream {
		within(loop.SettingEngines, 1, float64(len(c.EngineSlots)))
	}
	with := *c
	with.Control = &ctl
	if ctl.Ranges[loop.SettingEngines].Moves() {
		with.EnginesStart = r.IntN(len(c.EngineSlots) + 1)
	}
	if with.WithDefaults().Validate() == nil {
		*c = with
	}
}

// String renders the plan in a few lines, for the message of a failure.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nconfig %+v\n", p.Seed, p.Config)
	if p.Config.Control != nil {
		fmt.Fprintf(&b, "control %+v\n", *p.Config.Control)
	}
	fmt.Fprintf(&b, "rollout up to %d ms, train up to %d ms, sync up to %d ms, interrupt up to %d ms, solves %g, measures %g\nfaults %+v",
		p.RolloutTicks, p.TrainTicks, p.SyncTicks, p.InterruptTicks, p.Solves, p.Measures, p.Faults)
	return b.String()
}
