package sim

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// Rollout names an attempt that starts, with what the loop decided for it.
type Rollout struct {
	// Group, Sample and Attempt are the attempt's identity.
	Group   loop.GroupID
	Sample  int32
	Attempt int32
	// Level is the difficulty the curriculum chose, from 1; 0 without one.
	Level int32
	// Prompt is the number of the prompt it plays; 0 stands for one of the group's own.
	Prompt int64
	// Version is what its engine serves as it starts.
	Version loop.Version
}

// PromptKey names the prompt whichever way it is numbered: the group's own bears
// the group's number, as it does when the loop plays it again.
func (r Rollout) PromptKey() uint64 {
	if r.Prompt != 0 {
		return uint64(r.Prompt)
	}
	return uint64(r.Group)
}

// Response is the work of an attempt and its outcome.
type Response struct {
	// Tokens is the response's length, at least 1.
	Tokens int32
	// Reward and Verdict are what the environment says in the end.
	Reward float32
	Mark   loop.Mark
	// EnvironmentNS is the environment's time after generation, in nanoseconds.
	EnvironmentNS int64
	// StartNS is the time until its engine takes it up, beside Config.StartNS. FirstNS and TokenNS are the engine's
	// times for its first token and for each one after that, at speed 1. All in nanoseconds, and only under
	// Config.Paced.
	StartNS          int64
	FirstNS, TokenNS float64
}

// Work says how much there is to do, as a function of identity alone.
type Work interface {
	// Rollout returns what an attempt is.
	Rollout(r Rollout) Response
	// StepNS returns how long the train step with this lease takes on so many tokens, in nanoseconds.
	StepNS(lease loop.LeaseID, rollouts, tokens int64) int64
}

// Modelled is the workload of package workload's models with a train step of constant length.
type Modelled struct {
	lengths    *workload.Lengths
	service    *workload.Times
	acceptance workload.Acceptance
	solve      *workload.Solve
	scale      workload.PromptScale
	change     workload.Change
	stepNS     int64
	step       Step
	sessions   *workload.Recorded

	length    workload.Source
	env       workload.Source
	accept    workload.Source
	solved    workload.Source
	prompts   workload.Source
	steps     workload.Source
	noService bool
	acceptAll bool
	noSolve   bool
	// plain: lengths are all there is to draw, and independent of the prompt.
	plain bool
}

// NewModelled returns the workload; stepNS is the time of every train step. A nil
// service takes no time. Rewards are 0 unless WithSolve is used.
func NewModelled(seed uint64, lengths *workload.Lengths, service *workload.Times, acceptance workload.Acceptance, stepNS int64) *Modelled {
	m := &Modelled{
		lengths: lengths, service: service, acceptance: acceptance, stepNS: stepNS,
		length:    workload.NewSource(seed, workload.StreamLength),
		env:       workload.NewSource(seed, workload.StreamEnvironment),
		accept:    workload.NewSource(seed, workload.StreamAcceptance),
		solved:    workload.NewSource(seed, workload.StreamSolve),
		prompts:   workload.NewSource(seed, workload.StreamPromptScale),
		steps:     workload.NewSource(seed, workload.StreamStep),
		noService: service == nil || service.Zero(),
		acceptAll: acceptance.Rate() >= 1,
		noSolve:   true,
	}
	return m.prepared()
}

// prepared looks whether there is a short way to draw.
func (m *Modelled) prepared() *Modelled {
	m.plain = m.noService && m.acceptAll && m.noSolve && m.scale.Off() && m.change.Off() && m.sessions == nil && !m.lengths.Grouped()
	return m
}

// WithSolve has rollouts rewarded, 1 where the model says solved and 0 elsewhere,
// and returns m.
func (m *Modelled) WithSolve(solve *workload.Solve) *Modelled {
	m.solve, m.noSolve = solve, solve.None()
	return m.prepared()
}

// WithPromptScale has every prompt's lengths multiplied by its own factor, and
// returns m.
func (m *Modelled) WithPromptScale(scale workload.PromptScale) *Modelled {
	m.scale = scale
	return m.prepared()
}

// WithChange has the workload change as the policy learns, by the version that starts a
// rollout or a train step, and returns m.
func (m *Modelled) WithChange(change workload.Change) *Modelled {
	m.change = change
	return m.prepared()
}

// WithSessions has rollouts generate what recorded ones did, and returns m; nil for none. Their turns are those of
// Agents.Sessions under the same seed.
func (m *Modelled) WithSessions(sessions *workload.Recorded) *Modelled {
	m.sessions = sessions
	return m.prepared()
}

// Step says how long a train step takes beside its mean.
type Step struct {
	// Rollouts and Tokens are those of the batch whose step takes the mean. At most one of them is not 0, and the step
	// is in proportion to it. Without any, the step is the same for every batch.
	Rollouts, Tokens float64
	// CV is the coefficient of variation of a factor on it, lognormal with mean 1; 0 for none.
	CV float64
}

// WithStep has train steps vary, and returns m.
func (m *Modelled) WithStep(step Step) *Modelled {
	m.step = step
	return m
}

// Rollout implements Work.
func (m *Modelled) Rollout(r Rollout) (res Response) {
	g, k, a := uint64(r.Group), uint32(r.Sample), uint32(r.Attempt)
	if m.plain {
		res.Tokens = int32(m.lengths.Draw(m.length, g, k, a))
		return res
	}
	prompt := r.PromptKey()
	if m.sessions != nil {
		res.Tokens = int32(workload.RecordedTokens(m.sessions.Draw(m.length, prompt, g, k, a)))
	} else {
		tokens := m.lengths.DrawPrompt(m.length, prompt, g, k, a)
		if !m.scale.Off() {
			tokens = m.scale.Apply(m.prompts, prompt, tokens)
		}
		res.Tokens = int32(m.change.Length(tokens, int64(r.Version)))
	}
	if !m.noService {
		res.EnvironmentNS = m.change.EnvironmentNS(m.service.DrawPrompt(m.env, prompt, g, k, a), int64(r.Version))
	}
	if !m.noSolve && m.solve.Draw(m.solved, prompt, int(r.Level), int64(r.Version), g, k, a) {
		res.Reward, res.Mark = 1, loop.MarkSolved
	}
	if !m.acceptAll && !m.acceptance.Accept(m.accept, g) {
		res.Mark = loop.MarkReject
	}
	return res
}

// StepNS implements Work.
func (m *Modelled) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	factor := m.change.StepFactor(int64(lease) - 1) // every batch makes a version: the first starts from 0
	if m.step == (Step{}) && factor == 1 {
		return m.stepNS
	}
	ns := float64(m.stepNS) * factor
	switch {
	case m.step.Rollouts > 0:
		ns *= float64(rollouts) / m.step.Rollouts
	case m.step.Tokens > 0:
		ns *= float64(tokens) / m.step.Tokens
	}
	sigma := math.Sqrt(math.Log1p(m.step.CV * m.step.CV))
	return int64(math.Round(ns * workload.LognormalFactor(m.steps, uint64(lease), sigma)))
}

// check reports rules that this workload can never meet.
func (m *Modelled) check(rules loop.Config) error {
	switch levels := m.solve.Levels(); {
	case m.noSolve && (rules.FilterZeroAdvantage || rules.FilterSolveRate || rules.Levels > 0):
		return fmt.Errorf("sim: the rules look at rewards (FilterZeroAdvantage, FilterSolveRate or Levels) and the workload has none: give it a solve-rate model")
	case rules.Levels > 0 && levels > 0 && levels != rules.Levels:
		return fmt.Errorf("sim: the curriculum chooses from %d levels and the solve-rate model has %d: give both the same number", rules.Levels, levels)
	}
	return nil
}
