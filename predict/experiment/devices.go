package experiment

import (
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// Devices is a document as a simulation.
func Devices(c Case) (sim.Config, error) {
	d := c.Document
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
	change, err := d.ChangeModel()
	if err != nil {
		return sim.Config{}, err
	}
	environment, err := d.EnvironmentTimes() // the setting's has tools and verifier in it
	if err != nil {
		return sim.Config{}, err
	}
	recorded, err := d.SessionsModel()
	if err != nil {
		return sim.Config{}, err
	}
	in := c.Setting
	stepS := in.StepS
	if stepS == 0 {
		stepS = in.Utilization * in.BatchRollouts * in.Lengths.Mean() / (in.ConcurrencyRollouts * in.DecodeTokensPerS)
	}
	work := sim.NewModelled(d.Seed, in.Lengths, environment, acceptance, config.Nanoseconds(stepS))
	work.WithSolve(solve).WithPromptScale(scale).WithChange(change).WithStep(trainStep(d, in.Lengths.Mean())).WithSessions(recorded)
	cfg := sim.Config{
		Loop:              d.LoopConfig(),
		Work:              work,
		NSPerToken:        1e9 / in.DecodeTokensPerS,
		PrefillNSPerToken: prefillNS(d),
		LoadNS:            config.Nanoseconds(d.Modelled.Sync.LoadS),
		SyncNS:            config.Nanoseconds(d.Modelled.Sync.TimeS),
		PruneTokens:       int32(d.Rollout.Prune.Tokens),
		DriftPerVersion:   d.Modelled.Train.DriftNatsPerVersion, DriftSpread: d.Modelled.Train.DriftSpread,
		CapTokens: int32(d.Modelled.Length.CapTokens),
		Faults:    faults(d), EngineStartNS: config.Nanoseconds(d.Modelled.Fleet.StartS),
		Warmup: d.Steps.Warmup, Measured: d.Steps.Measured,
	}
	decodeSpeeds(&cfg, d)
	if e := d.Evaluate; d.Modelled.Evaluate.Occupies == "engines" || d.Modelled.Evaluate.Occupies == "trainer" {
		cfg.Validation = sim.Validation{Every: e.Every, Rollouts: e.Prompts, NS: config.Nanoseconds(d.Modelled.Evaluate.TimeS), Trainer: d.Modelled.Evaluate.Occupies == "trainer"}
	}
	cfg.Agents, err = agents(d, recorded)
	return cfg, err
}

// decodeSpeeds sets a simulation's speeds. The document's speed is the mean slot's, with
// every slot taken; engines read and generate by their own speed, as given.
func decodeSpeeds(cfg *sim.Config, d config.Config) {
	different := func(e config.Engine) bool { return e.ModelledSpeed != 0 && e.ModelledSpeed != 1 }
	curve := len(d.Modelled.DecodeCurve) > 0
	if !curve && !slices.ContainsFunc(d.Engines, different) {
		return
	}
	slots, mean := 0.0, 0.0 // Σ slots, and Σ slots · relative speed
	for i, engine := range d.Engines {
		speed := d.EngineSpeed(i)
		cfg.EngineSpeed = append(cfg.EngineSpeed, speed)
		if curve {
			speed *= d.SlotTokensPerS(engine.Slots)
		}
		slots += float64(engine.Slots)
		mean += float64(engine.Slots) * speed
	}
	mean /= slots
	if !curve {
		cfg.NSPerToken *= mean // of an engine of speed 1
		return
	}
	// One table for all engines: a speed is asked for at every start and end.
	most := 0
	for _, engine := range d.Engines {
		most = max(most, engine.Slots)
	}
	table := make([]float64, most+1)
	for active := range table {
		table[active] = d.SlotTokensPerS(max(active, 1)) / mean
	}
	cfg.Speed = func(active int, _ bool) float64 { return table[active] }
}

// trainStep is how the train step varies around its mean.
func trainStep(d config.Config, meanTokens float64) sim.Step {
	step := sim.Step{CV: d.Modelled.Train.StepCV}
	switch d.Modelled.Train.StepBy {
	case "rollouts":
		step.Rollouts = float64(d.Train.Batch)
	case "tokens":
		step.Tokens = float64(d.Train.Batch) * meanTokens
	}
	return step
}

// prefillNS is how long a token takes to be read, in ns; 0 for no time.
func prefillNS(d config.Config) float64 {
	for _, speed := range []float64{d.Modelled.Prefill.TokensPerS, d.Modelled.Sync.PrefillTokensPerS} {
		if speed > 0 {
			return 1e9 / speed
		}
	}
	return 0
}

// faults are what goes wrong with engines and train steps.
func faults(d config.Config) sim.Faults {
	f := sim.Faults{Seed: d.Seed, MTBFNS: d.Modelled.Failures.EngineMTBFS * 1e9, DownNS: d.Modelled.Failures.EngineDownS * 1e9, TrainRate: d.Modelled.Train.FailureRate}
	for _, loss := range d.Failures.EnginePlan {
		engine := slices.IndexFunc(d.Engines, func(e config.Engine) bool { return e.Name == loss.Engine })
		f.Plan = append(f.Plan, sim.EngineLoss{Engine: engine, AtNS: config.Nanoseconds(loss.AtS), DownNS: config.Nanoseconds(loss.DownS),
			AtStep: loop.Version(loss.AtStep), BackStep: loop.Version(loss.BackStep)})
	}
	return f
}

// prefillModes are the words of the config for who reads.
var prefillModes = map[string]sim.PrefillMode{"slot": sim.PrefillSlot, "engine": sim.PrefillEngine, "pool": sim.PrefillPool}

// agents is what rollouts do beside decoding, nil where the document says nothing of it. Recorded are the sessions that
// they play, nil for none.
func agents(d config.Config, recorded *workload.Recorded) (*sim.Agents, error) {
	// What is read again stands still while its engine validates, as agents do.
	rereads := d.Modelled.Sync.PrefillTokensPerS > 0 && d.Modelled.Evaluate.Occupies == "engines"
	if recorded == nil && d.Modelled.PromptTokens == 0 && d.Modelled.Prefill.Mode == "" && d.Modelled.Tools.Calls == 0 && d.Modelled.Sandbox.When == "" && (d.Modelled.Verifier.Time.Kind == "" || d.Modelled.Verifier.Time.Kind == "none") && d.Modelled.Scorer.None() && !rereads {
		return nil, nil
	}
	tools, err := d.ToolsModel()
	if err != nil {
		return nil, err
	}
	start, err := d.SandboxStartModel()
	if err != nil {
		return nil, err
	}
	verifier, err := d.VerifierModel()
	if err != nil {
		return nil, err
	}
	scorer, err := d.ScorerModel()
	if err != nil {
		return nil, err
	}
	change, err := d.ChangeModel()
	if err != nil {
		return nil, err
	}
	a := &sim.Agents{
		Seed: d.Seed, PromptTokens: int32(d.Modelled.PromptTokens),
		Prefill: prefillModes[d.Modelled.Prefill.Mode], PrefillNSPerToken: prefillNS(d), PrefillWorkers: d.Modelled.Prefill.Workers,
		Tools: tools, ToolWorkers: d.Modelled.Tools.Concurrency, ToolTokens: int32(d.Modelled.Tools.OutputTokens), Change: change,
		Sessions: recorded, SessionTimes: d.RecordedTimes(),
		CacheTokens: int64(d.Modelled.Prefill.CacheTokens),
		Verifier:    sim.Review{Time: verifier, Workers: d.Modelled.Verifier.Concurrency},
		Scorer:      sim.Review{Time: scorer, Workers: d.Modelled.Scorer.Concurrency},
	}
	if speed := d.Modelled.Scorer.TokensPerS; speed > 0 {
		a.Scorer.NSPerToken = 1e9 / speed
	}
	if s := d.Modelled.Sandbox; s.When != "" {
		a.Sandboxes = &sim.Sandboxes{Early: s.When == "rollout", Start: start, Limit: s.Limit, Starting: s.StartConcurrency,
			TimeoutNS: config.Nanoseconds(s.StartTimeoutS), FailureRate: s.FailureRate, MTBFNS: s.MTBFS * 1e9, Retries: s.Retries,
			Warm: s.Warm, Uses: s.Uses, ResetNS: config.Nanoseconds(s.ResetS)}
	}
	return a, nil
}
