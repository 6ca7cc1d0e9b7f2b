package main

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/theory"
)

// uncovered says why no closed form covers the rules of a document, "" where one does.
func uncovered(d config.Config) string {
	const simulate = ": no closed form; simulate"
	shaped := d.Filter.SolveRate.Drop || d.Filter.ZeroAdvantage && d.Rollout.Solve.Kind != "none"
	switch {
	case d.Rollout.Oversample > 1 || d.Rollout.Redundancy > 0:
		return "oversampling keeps the first to finish, which are the short ones" + simulate
	case d.Rollout.Prune.Tokens > 0 || d.Rollout.Prune.Check != "none":
		return "pruned rollouts leave smaller and shorter groups" + simulate
	case shaped:
		return "how many groups the filter accepts depends on what the policy has learned" + simulate
	case beside(d) != "":
		return beside(d) + simulate
	case d.Schedule == theory.PolicySynchronous:
		return ""
	case d.Queue.Policy == "replay":
		return "policy replay draws from a buffer, again and again, and evicts when it is full" + simulate
	case d.Queue.Policy == "bounded":
		return fmt.Sprintf("policy %s admits by counts", d.Queue.Policy) + simulate
	case d.Queue.Hold > 0 || d.Queue.PauseAt > 0:
		return "hold and pause_at choose when groups open" + simulate
	case d.Rollout.Partial.Interrupt == "batch":
		return "interrupted rollouts wait for a later batch" + simulate
	}
	return ""
}

// beside says what of a document's rollouts, engines and train steps has no closed
// form, "" for nothing.
func beside(d config.Config) string {
	r := d.Rollout
	faster := func(e config.Engine) bool {
		return e.Speed != 0 && e.Speed != d.EngineSpeed(0) || e.Speed == 0 && d.EngineSpeed(0) != 1
	}
	switch {
	case r.Tools.Concurrency > 0 || r.Tools.FailureRate > 0:
		return "rollouts of several turns wait for tools, or fail with them"
	case r.Sandbox.Limit > 0 || r.Sandbox.StartConcurrency > 0:
		return "rollouts wait for a sandbox"
	case r.Sandbox.When == "rollout" || r.Sandbox.StartTimeoutS > 0 || r.Sandbox.FailureRate > 0 || r.Sandbox.MTBFS > 0:
		return "sandboxes start before the first token, or fail"
	case r.Judge.Concurrency > 0:
		return "finished rollouts wait for a judge"
	case r.PromptTokens > 0 && prefillNS(d) > 0:
		return "prompts are read before the first token"
	case r.Tools.OutputTokens > 0 && (r.Prefill.Mode == "engine" || r.Prefill.Mode == "pool"):
		return "rollouts wait for one another's prefill"
	case slices.ContainsFunc(d.Engines, faster):
		return "engines of different speed finish a group's rollouts at different times"
	case r.Drift.Steps > 0:
		return "responses change as the policy learns, and no steady state lasts"
	case d.Failures.EngineMTBFS > 0 || len(d.Failures.EnginePlan) > 0 || d.Train.FailureRate > 0:
		return "engines or train steps fail"
	case d.Train.StepCV > 0 || d.Train.StepBy == "rollouts" || d.Train.StepBy == "tokens":
		return "train steps take different times"
	case d.Evaluate.Occupies == "engines" || d.Evaluate.Occupies == "trainer":
		return "evaluations stop the " + d.Evaluate.Occupies
	case d.Sync.LoadS > 0 && d.Sync.Mode != "in_flight":
		return "a sync loads while engines generate, and switches while they stand still"
	}
	return ""
}

// expect is the closed form of a setting under the rules of a document. Where
// none covers them, all that depends on the rules is unknown, and a warning says why.
func expect(d config.Config, in theory.Input) (theory.Prediction, error) {
	why, in, err := covered(d, in)
	if err != nil {
		return theory.Prediction{}, err
	}
	return expectUnless(why, in)
}

// covered is uncovered with the setting that a closed form is asked: where rollouts
// wait for nothing outside their engine, all the time they spend there is the
// environment's.
func covered(d config.Config, in theory.Input) (why string, asked theory.Input, err error) {
	why = uncovered(d)
	r := d.Rollout
	if why != "" || in.Lengths == nil || r.Tools.Calls == 0 && r.Sandbox.When == "" && r.Judge.Time.Kind == "" {
		return why, in, nil
	}
	outside, err := d.OutsideModel()
	if err != nil {
		return "", in, err
	}
	if in.Environment = outside; outside == nil {
		return "siblings' times are measured together, and add up to others: no closed form; simulate", in, nil
	}
	return "", in, nil
}

// expectUnless is expect with the reason why nothing can be expected, "" for none.
func expectUnless(why string, in theory.Input) (theory.Prediction, error) {
	if why == "" {
		return theory.Predict(in)
	}
	in.Policy, in.Select, in.MaxStaleness = theory.PolicyDrop, theory.SelectOldest, 0 // for the rates alone
	p, err := theory.Predict(in)
	return theory.Prediction{Regime: p.Regime, Utilization: p.Utilization, TailMultiplier: p.TailMultiplier, SettlingSteps: p.SettlingSteps,
		Smooth: p.Smooth, Levers: []theory.Lever{}, Warnings: []string{why}}, err
}
