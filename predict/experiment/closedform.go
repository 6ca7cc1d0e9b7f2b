package experiment

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/theory"
)

// Uncovered says why no closed form covers the rules of a document, "" where one does.
func Uncovered(d config.Config) string {
	const simulate = ": no closed form; simulate"
	shaped := d.Filter.SolveRate.Drop || d.Filter.ZeroAdvantage && d.Modelled.Solve.Kind != "none"
	switch {
	case d.Rollout.Oversample > 1 || d.Rollout.Redundancy > 0:
		return "oversampling keeps the first to finish, which are the short ones" + simulate
	case d.Rollout.Prune.Tokens > 0 || d.Rollout.Prune.Check != "none":
		return "pruned rollouts leave smaller and shorter groups" + simulate
	case shaped:
		return "how many groups the filter accepts depends on what the policy has learned" + simulate
	case beside(d) != "":
		return beside(d) + simulate
	case len(d.Modelled.DecodeCurve) > 0 && emptySlots(d) != "":
		return emptySlots(d) + ", and modelled.decode_curve makes the others faster" + simulate
	case d.Schedule == theory.PolicySynchronous:
		return ""
	case d.Controlled():
		return "a controller moves the settings towards its target (control.target)" + simulate
	case d.Queue.Policy == "replay":
		return "policy replay draws from a buffer, again and again, and evicts when it is full" + simulate
	case d.Queue.Policy == "bounded":
		return fmt.Sprintf("policy %s admits by counts", d.Queue.Policy) + simulate
	case !theory.CoversPolicy(cmp.Or(d.Queue.Policy, theory.PolicyDrop)):
		return fmt.Sprintf("policy %s", d.Queue.Policy) + simulate
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
	different := func(e config.Engine) bool {
		first := d.Engines[0]
		return cmp.Or(e.ModelledSpeed, 1) != cmp.Or(first.ModelledSpeed, 1) || d.SlotTokensPerS(e.Slots) != d.SlotTokensPerS(first.Slots)
	}
	switch {
	case d.Modelled.Tools.Concurrency > 0 || d.Modelled.Tools.FailureRate > 0:
		return "rollouts of several turns wait for tools, or fail with them"
	case d.Modelled.Sandbox.Limit > 0 || d.Modelled.Sandbox.StartConcurrency > 0:
		return "rollouts wait for a sandbox"
	case d.Modelled.Sandbox.When == "rollout" || d.Modelled.Sandbox.StartTimeoutS > 0 || d.Modelled.Sandbox.FailureRate > 0 || d.Modelled.Sandbox.MTBFS > 0:
		return "sandboxes start before the first token, or fail"
	case d.Modelled.Verifier.Concurrency > 0:
		return "finished rollouts wait for the verifier"
	case d.Modelled.Scorer.Concurrency > 0:
		return "finished rollouts wait for the scorers"
	case scoringShare(d) > scoringMost:
		return "long rollouts take scorers long"
	case d.Modelled.PromptTokens > 0 && prefillNS(d) > 0:
		return "prompts are read before the first token"
	case d.Modelled.Tools.OutputTokens > 0 && (d.Modelled.Prefill.Mode == "engine" || d.Modelled.Prefill.Mode == "pool"):
		return "rollouts wait for one another's prefill"
	case d.Sync.Mode == theory.SyncRestart && prefillNS(d) > 0 && d.Schedule != theory.PolicySynchronous:
		return "restarted rollouts read all they have again"
	case slices.ContainsFunc(d.Engines, different):
		return "engines of different speed finish a group's rollouts at different times"
	case r.Drift.Steps > 0:
		return "responses change as the policy learns, and no steady state lasts"
	case d.Modelled.Failures.EngineMTBFS > 0 || len(d.Failures.EnginePlan) > 0 || d.Modelled.Train.FailureRate > 0:
		return "engines or train steps fail"
	case d.Modelled.Train.StepCV > 0 || d.Modelled.Train.StepBy == "rollouts" || d.Modelled.Train.StepBy == "tokens":
		return "train steps take different times"
	case d.Modelled.Evaluate.Occupies == "engines" || d.Modelled.Evaluate.Occupies == "trainer":
		return "evaluations stop the " + d.Modelled.Evaluate.Occupies
	case d.Modelled.Sync.LoadS > 0 && d.Sync.Mode != "in_flight":
		return "a sync loads while engines generate, and switches while they stand still"
	}
	return ""
}

// scoringMost is the largest scoringShare of which closed forms take no notice: they take the time of scorers to be as
// long for short rollouts as for long ones. At 0.05 the mean staleness is 3 % off, at 0.2 it is 9 %.
const scoringMost = 0.05

// scoringShare is the time that scorers take for a token against the time that it takes to generate.
func scoringShare(d config.Config) float64 {
	if d.Modelled.Scorer.TokensPerS == 0 {
		return 0
	}
	return d.DecodeThroughputTokensPerS() / float64(max(d.Rollout.Concurrency, 1)) / d.Modelled.Scorer.TokensPerS
}

// emptySlots says why some of an engine's slots generate nothing while others do,
// "" where all do: a speed that depends on their number is that at every slot there.
func emptySlots(d config.Config) string {
	switch {
	case outside(d):
		return "slots in tools, environment, sandbox start, verifier or scorer generate nothing"
	case d.Schedule == theory.PolicySynchronous:
		return "schedule synchronous empties the engines in every step"
	case d.Queue.Policy == theory.PolicyBlock || d.Queue.Policy == theory.PolicyThreshold:
		return fmt.Sprintf("policy %s leaves slots empty", d.Queue.Policy)
	case d.Rollout.Start == theory.StartGang:
		return "start gang leaves slots empty"
	}
	return ""
}

// outside reports whether rollouts spend time outside their engine.
func outside(d config.Config) bool {
	takes := func(s config.TimeModel) bool { return s.Kind != "" && s.Kind != "none" }
	return takes(d.Modelled.Environment) || takes(d.Modelled.Sandbox.Start) || takes(d.Modelled.Verifier.Time) || !d.Modelled.Scorer.None() ||
		d.Modelled.Tools.Calls > 0 && (takes(d.Modelled.Tools.Time) || d.Modelled.Tools.OutputTokens > 0 && prefillNS(d) > 0)
}

// pauseShare is the largest part of a period that a pause may overlap with time
// outside the engine and still be added to every rollout, as closed forms do.
const pauseShare = 0.02

// pausedOutside reports whether pauses are long against a period, for rollouts that
// are outside their engine meanwhile and go on there: a share of them as large as that
// of their time lasts no longer for a pause.
func pausedOutside(d config.Config, in theory.Input) bool {
	if d.Sync.Mode != theory.SyncPause || d.Schedule == theory.PolicySynchronous || d.Modelled.Sync.TimeS == 0 || in.Environment == nil || in.DecodeTokensPerS == 0 {
		return false
	}
	decodeS, outsideS := in.Lengths.Mean()/in.DecodeTokensPerS, in.Environment.Mean()/1e9
	in = in.WithDefaults()
	decodedS := in.BatchRollouts * decodeS / in.ConcurrencyRollouts
	stepS := cmp.Or(in.StepS, in.Utilization*decodedS)
	periodS := max(stepS, decodedS*(1+outsideS/decodeS)/in.Acceptance)
	return d.Modelled.Sync.TimeS/float64(max(d.Sync.Every, 1))*outsideS/(decodeS+outsideS) > pauseShare*periodS
}

// Expect is the closed form of a setting under the rules of a document. Where
// none covers them, all that depends on the rules is unknown, and a warning says why.
func Expect(d config.Config, in theory.Input) (theory.Prediction, error) {
	why, in, err := Covered(d, in)
	if err != nil {
		return theory.Prediction{}, err
	}
	return ExpectUnless(why, in)
}

// Covered is uncovered with the setting that a closed form is asked. Where
// rollouts wait for nothing outside their engine, all the time they spend there is
// the environment's.
func Covered(d config.Config, in theory.Input) (why string, asked theory.Input, err error) {
	why = Uncovered(d)
	if why != "" || in.Lengths == nil {
		return why, in, nil
	}
	const paused = "tools and environments go on while engines pause: no closed form for so long a sync; simulate"
	if d.Modelled.Tools.Calls == 0 && d.Modelled.Sandbox.When == "" && d.Modelled.Verifier.Time.Kind == "" && d.Modelled.Scorer.None() {
		if pausedOutside(d, in) {
			why = paused
		}
		return why, in, nil
	}
	outside, err := d.OutsideModel()
	if err != nil {
		return "", in, err
	}
	if in.Environment = outside; outside == nil {
		return "siblings' times are measured together, and add up to others: no closed form; simulate", in, nil
	}
	if pausedOutside(d, in) {
		return paused, in, nil
	}
	return "", in, nil
}

// ExpectUnless is expect with the reason why nothing can be expected, "" for none.
func ExpectUnless(why string, in theory.Input) (theory.Prediction, error) {
	if why == "" {
		return theory.Predict(in)
	}
	in.Policy, in.Select, in.MaxStaleness = theory.PolicyDrop, theory.SelectOldest, 0 // for the rates alone
	p, err := theory.Predict(in)
	return theory.Prediction{Regime: p.Regime, Utilization: p.Utilization, TailMultiplier: p.TailMultiplier, SettlingSteps: p.SettlingSteps,
		Smooth: p.Smooth, Levers: []theory.Lever{}, Warnings: []string{why}}, err
}

// Optional is a known figure's value, nil for an unknown one.
func Optional(f theory.Figure) *float64 {
	if v, ok := f.Value(); ok {
		return &v
	}
	return nil
}
