package main

import (
	"math"

	"github.com/headway-rl/headway/sim"
)

// simulationConfig is a document as a simulation.
func simulationConfig(c simulateCase) (sim.Config, error) {
	d := c.document
	acceptance, err := d.AcceptanceModel()
	if err != nil {
		return sim.Config{}, err
	}
	solve, err := d.SolveModel()
	if err != nil {
		return sim.Config{}, err
	}
	scale, err := d.PromptModel()
	if err != nil {
		return sim.Config{}, err
	}
	in := c.setting
	nsPerToken := 1e9 / in.DecodeTokensPerS
	stepS := in.StepS
	if stepS == 0 {
		stepS = in.Utilization * in.BatchRollouts * in.Lengths.Mean() / (in.ConcurrencyRollouts * in.DecodeTokensPerS)
	}
	work := sim.NewModelled(d.Seed, in.Lengths, in.Environment, acceptance, int64(math.Round(stepS*1e9)))
	prefillNS := 0.0
	if d.Sync.PrefillTokensPerS > 0 {
		prefillNS = 1e9 / d.Sync.PrefillTokensPerS
	}
	return sim.Config{
		Loop:       d.LoopConfig(),
		Work:       work.WithSolve(solve).WithPromptScale(scale),
		NSPerToken: nsPerToken, PrefillNSPerToken: prefillNS,
		SyncNS:          int64(math.Round(d.Sync.TimeS * 1e9)),
		PruneTokens:     int32(d.Rollout.Prune.Tokens),
		DriftPerVersion: d.Train.DriftNatsPerVersion, DriftSpread: d.Train.DriftSpread,
		Warmup: d.Steps.Warmup, Measured: d.Steps.Measured,
	}, nil
}
