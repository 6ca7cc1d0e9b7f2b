package looptest

import (
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
	// RolloutTicks, TrainTicks, SyncTicks and EnvironmentTicks bound the uniform durations, in
	// virtual milliseconds. Small bounds make many events fall on one instant.
	RolloutTicks, TrainTicks, SyncTicks int
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
	// Duplicates delivers a completion again later; LateStays leaves completions of ended attempts under way.
	Duplicates, LateStays float64
	// EngineLost, Restarts, Stops, Garbage, Reversed and Snapshots are per event.
	EngineLost, Restarts, Stops, Garbage, Reversed, Snapshots float64
}

// Draw returns the plan of a seed: config, durations and faults are all drawn,
// each fault being left out of half of the plans, so that plans differ in kind.
func Draw(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x706c616e))
	p := Plan{Seed: seed, RolloutTicks: 1 + r.IntN(40), TrainTicks: 1 + r.IntN(30), SyncTicks: r.IntN(20)}
	p.Config = drawConfig(r)
	chance := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	p.Faults = Faults{
		RolloutFails: chance(0.3), TrainFails: chance(0.3), LeaseReturns: chance(0.3), SyncFails: chance(0.3),
		Straggles: chance(0.05), Rejects: chance(0.1), NoNumber: chance(0.05),
		Duplicates: chance(0.2), LateStays: chance(0.5),
		EngineLost: chance(0.02), Restarts: chance(0.01), Stops: chance(0.01), Garbage: chance(0.1),
		Reversed: chance(0.02), Snapshots: chance(0.05),
	}
	return p
}

func drawConfig(r *rand.Rand) loop.Config {
	for {
		c := loop.Config{
			GroupSize:           1 + r.IntN(5),
			BatchGroups:         1 + r.IntN(4),
			Policy:              loop.Policy(r.IntN(4)),
			Select:              loop.Selection(r.IntN(3)),
			MaxStaleness:        loop.Version(r.IntN(4)),
			Abort:               r.IntN(2) == 0,
			Start:               loop.StartOrder(r.IntN(2)),
			Sync:                loop.SyncMode(r.IntN(3)),
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
		c.QueueGroups = c.BatchGroups
		if c.Policy != loop.PolicySynchronous {
			c.QueueGroups += r.IntN(2 * c.BatchGroups)
		}
		if c.WithDefaults().Validate() == nil {
			return c
		}
	}
}

// String renders the plan in a few lines, for the message of a failure.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nconfig %+v\n", p.Seed, p.Config)
	fmt.Fprintf(&b, "rollout up to %d ms, train up to %d ms, sync up to %d ms\nfaults %+v", p.RolloutTicks, p.TrainTicks, p.SyncTicks, p.Faults)
	return b.String()
}
