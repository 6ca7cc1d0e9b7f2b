package config

import (
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// ToolsModel compiles the model of tool calls, reading its file if it has one. It
// makes no call where the section says nothing. The error is an [Errors].
func (c Config) ToolsModel() (*workload.Tools, error) {
	tools, err := c.Modelled.Tools.spec().Build()
	if err != nil {
		return nil, Errors{c.modelError("modelled.tools", err)}
	}
	return tools, nil
}

// SandboxStartModel compiles the model of a sandbox's start-up time. The error is
// an [Errors].
func (c Config) SandboxStartModel() (*workload.Times, error) {
	return c.times("modelled.sandbox.start", c.Modelled.Sandbox.Start)
}

// VerifierModel compiles the model of a verdict's time. The error is an [Errors].
func (c Config) VerifierModel() (*workload.Times, error) {
	return c.times("modelled.verifier.time", c.Modelled.Verifier.Time)
}

// ScorerModel compiles the model of a score's time, that of tokens_per_s not in it. The error is an [Errors].
func (c Config) ScorerModel() (*workload.Times, error) {
	return c.times("modelled.scorer.time", c.Modelled.Scorer.Time)
}

// ScoreMeanS is the mean time of a rollout's scores without its wait, in seconds, for responses of so many tokens on
// average. It is 0 where nothing is scored, and where times cannot be read.
func (c Config) ScoreMeanS(meanTokens float64) float64 {
	seconds := 0.0
	if times, err := c.ScorerModel(); err == nil && !times.Zero() {
		seconds = times.Mean() / 1e9
	}
	if speed := c.Modelled.Scorer.TokensPerS; speed > 0 {
		seconds += (meanTokens + float64(c.Modelled.PromptTokens) + c.Modelled.Tools.Calls*float64(c.Modelled.Tools.OutputTokens)) / speed
	}
	return seconds
}

// None reports whether nothing is scored, or at once.
func (s ModelledScorer) None() bool {
	return s.TokensPerS == 0 && (s.Time.Kind == "" || s.Time.Kind == workload.KindNone)
}

func (c Config) times(path string, s TimeModel) (*workload.Times, error) {
	service, err := s.spec().Build()
	if err != nil {
		return nil, Errors{c.modelError(path, err)}
	}
	return service, nil
}

// outsideSamples is how many rollouts the time outside the engine is estimated from:
// its mean is within about one in a hundred of its standard deviation.
const outsideSamples = 1 << 14

// outsideCalls is how many of a rollout's calls are drawn for that estimate. Of more,
// whose sum is close to its mean and to normal, so many stand for all, and a quarter
// of the rollouts is enough.
const outsideCalls = 32

// OutsideModel is the distribution of all the time a rollout spends outside the
// engine, at version 0. That is the environment, calls of tools, the reading of
// their results by the slot itself, and a sandbox's start. The verifier and the scorer follow. It
// counts no waiting for any of them, and no failures. Reading for the scorer is by lengths
// drawn anew, not by the response's own. Where the environment is all
// there is, it is the environment's own distribution. Else it is estimated from
// rollouts drawn with a seed of its own, the same on every call. It is nil where
// siblings' times are measured together, which a sum would take apart. The error
// is an [Errors].
func (c Config) OutsideModel() (*workload.Times, error) {
	environment, err := c.EnvironmentTimes()
	if err != nil || c.Modelled.Tools.Calls == 0 && c.Modelled.Sandbox.Start.Kind == "" && c.Modelled.Verifier.Time.Kind == "" && c.Modelled.Scorer.None() {
		return environment, err
	}
	tools, err := c.ToolsModel()
	if err != nil {
		return nil, err
	}
	start, err := c.SandboxStartModel()
	if err != nil {
		return nil, err
	}
	verifier, err := c.VerifierModel()
	if err != nil {
		return nil, err
	}
	scorer, err := c.ScorerModel()
	if err != nil {
		return nil, err
	}
	call, err := c.times("modelled.tools.time", c.Modelled.Tools.Time)
	if err != nil {
		return nil, err
	}
	for _, s := range []*workload.Times{environment, start, verifier, scorer, call} {
		if s.Grouped() {
			return nil, nil
		}
	}
	readS := 0.0
	for _, speed := range []float64{c.Modelled.Prefill.TokensPerS, c.Modelled.Sync.PrefillTokensPerS} {
		if speed > 0 {
			readS = float64(c.Modelled.Tools.OutputTokens) / speed
			break
		}
	}
	source := func(s workload.Stream) workload.Source { return workload.NewSource(0, s) }
	samples := outsideSamples
	if c.Modelled.Tools.Calls > outsideCalls {
		samples /= 4
	}
	lengths, err := c.scoredLengths()
	if err != nil {
		return nil, err
	}
	times := make([][]float64, samples)
	for i := range times {
		g := uint64(i)
		ns := environment.Draw(source(workload.StreamEnvironment), g, 0, 1) + verifier.Draw(source(workload.StreamVerifier), g, 0, 1) + scorer.Draw(source(workload.StreamScorer), g, 0, 1)
		calls := tools.Calls(source(workload.StreamCalls), g, 0, 1, 1)
		ns += callsNS(tools, call.Mean(), source(workload.StreamTool), g, calls)
		if calls > 0 || !environment.Zero() {
			ns += start.Draw(source(workload.StreamSandbox), g, 0, 1)
		}
		s := float64(ns)/1e9 + float64(calls)*readS
		if lengths != nil {
			tokens := c.Modelled.PromptTokens + calls*c.Modelled.Tools.OutputTokens + int(lengths.Draw(source(workload.StreamLength), g, 0, 1))
			s += float64(tokens) / c.Modelled.Scorer.TokensPerS
		}
		times[i] = []float64{min(s, workload.MaxServiceS)}
	}
	return workload.TimesSpec{Kind: workload.KindEmpirical, Groups: times}.Build()
}

// scoredLengths are the lengths that scorers read, nil where reading takes no time.
func (c Config) scoredLengths() (*workload.Lengths, error) {
	if c.Modelled.Scorer.TokensPerS == 0 {
		return nil, nil
	}
	return c.LengthModel()
}

// callsNS is the time of a rollout's calls in ns, with the mean and the variance of
// the sum of all of them: where there are more than outsideCalls, the deviation of
// those drawn is scaled to it.
func callsNS(tools *workload.Tools, meanNS float64, src workload.Source, group uint64, calls int) int64 {
	drawn, sum := min(calls, outsideCalls), int64(0)
	for turn := range uint32(drawn) {
		sum += tools.CallNS(src, workload.Turn{Group: group, Attempt: 1, Turn: turn})
	}
	if drawn == calls {
		return sum
	}
	n, k := float64(calls), float64(drawn)
	return int64(n*meanNS + math.Sqrt(n/k)*(float64(sum)-k*meanNS))
}

// ChangeModel compiles how the workload changes over a simulation. The error is an
// [Errors].
func (c Config) ChangeModel() (workload.Change, error) {
	return c.change(c.Modelled.Length.CapTokens)
}

// RunChange is the same in a run, where only the task's answer bounds lengths. The
// error is an [Errors].
func (c Config) RunChange() (workload.Change, error) { return c.change(0) }

func (c Config) change(capTokens int) (workload.Change, error) {
	d := c.Rollout.Drift
	change, err := workload.ChangeSpec{Begin: d.Begin, Steps: d.Steps, LengthFactor: d.LengthFactor, ToolCallsFactor: d.ToolCallsFactor,
		EnvironmentFactor: d.EnvironmentFactor, StepFactor: d.StepFactor}.Build(capTokens)
	if err != nil {
		return change, Errors{c.modelError("rollout.drift", err)}
	}
	return change, nil
}

// spec is the model of tool calls in the words of package workload.
func (t ModelledTools) spec() workload.ToolsSpec {
	return workload.ToolsSpec{Calls: t.Calls, CallsKind: t.CallsKind, CallsMax: t.CallsMax, Split: t.Split,
		Time: t.Time.spec(), FailureRate: t.FailureRate, Retries: t.Retries}
}

// DecodeThroughputTokensPerS is v_R, the modelled speed of all slots together
// while every one of them generates. It takes the curve at each engine's slots
// where there is one, and the engines' relative speeds. 0 where no speed is given.
func (c Config) DecodeThroughputTokensPerS() float64 {
	if c.Modelled.ThroughputTokensPerS != 0 {
		return c.Modelled.ThroughputTokensPerS
	}
	sum := 0.0
	for i, engine := range c.Engines {
		speed := c.Modelled.DecodeTokensPerS
		if len(c.Modelled.DecodeCurve) > 0 {
			speed = c.SlotTokensPerS(engine.Slots)
		}
		sum += float64(engine.Slots) * c.EngineSpeed(i) * speed
	}
	return sum
}

// EngineSpeed is the relative speed of an engine, by its index.
func (c Config) EngineSpeed(engine int) float64 {
	if s := c.Engines[engine].ModelledSpeed; s > 0 {
		return s
	}
	return 1
}

// SlotTokensPerS reads the speed curve. It returns the tokens per second that each
// slot of an engine of speed 1 generates while active slots do. 0 without a curve.
func (c Config) SlotTokensPerS(active int) float64 {
	curve := c.Modelled.DecodeCurve
	for i, p := range curve {
		switch {
		case active > p.Active:
		case i == 0 || active == p.Active:
			return p.TokensPerS
		default:
			before := curve[i-1]
			share := float64(active-before.Active) / float64(p.Active-before.Active)
			return before.TokensPerS + share*(p.TokensPerS-before.TokensPerS)
		}
	}
	if len(curve) == 0 {
		return 0
	}
	return curve[len(curve)-1].TokensPerS
}
