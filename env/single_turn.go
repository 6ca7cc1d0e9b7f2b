package env

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-rl/headway/internal/pause"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/workload"
)

// SingleTurn plays single-turn rollouts of a task: prompt, one response,
// service time, verdict. It implements [port.Environment] and is safe for
// concurrent use.
type SingleTurn struct {
	task    Task
	scorer  Scorer
	seed    uint64
	service *workload.Times
	times   workload.Source
	prune   Pruning
	change  workload.Change
}

// Pruning says which responses are stopped early. A pruned response has no verdict and waits for no
// service time. The zero value stops none.
type Pruning struct {
	// Tokens stops a response that has as many tokens and is not complete; 0 stops none.
	Tokens int
	// Failed stops a response as soon as the task can tell that it will not be exact,
	// if the task is a [Checker]. That takes the worst rollouts out of every group: the remaining
	// ones do not show the policy as it is.
	Failed bool
}

// NewSingleTurn returns the environment of a run. The service time, nil for none, is waited for
// between response and verdict, as a tool or a sandbox would take it. Its draw is the one that the
// simulator makes for the same seed and rollout, so that a run and its simulation wait alike.
func NewSingleTurn(task ScoredTask, seed uint64, service *workload.Times, prune Pruning) *SingleTurn {
	return NewScored(task, pure{task}, seed, service, prune)
}

// NewScored returns the environment of a run whose responses a scorer of their own judges. A
// scorer's error fails the attempt.
func NewScored(task Task, scorer Scorer, seed uint64, service *workload.Times, prune Pruning) *SingleTurn {
	return &SingleTurn{task: task, scorer: scorer, seed: seed, service: service, times: workload.NewSource(seed, workload.StreamEnvironment), prune: prune}
}

// WithDrift has the environment's time and the length of what it asks for change by the
// start version of a group, and returns e. An answer that grows needs a task that is a [Grower]. A
// response then ends, at the latest, where the answer does, so that lengths grow by just that factor
// regardless of the policy's skill.
func (e *SingleTurn) WithDrift(change workload.Change) *SingleTurn {
	e.change = change
	return e
}

// problem is what a rollout is asked, and the most tokens of its response.
func (e *SingleTurn) problem(t port.RolloutRequest) (p Problem, maxTokens int) {
	grower, grows := e.task.(Grower)
	if !grows || !e.change.Grows() {
		return TrainingProblem(e.task, e.seed, t.PromptNumber(), int(t.Level)), e.task.Limits().ResponseTokens
	}
	p = GrownProblem(grower, e.seed, t.PromptNumber(), int(t.Level), e.change.LengthFactor(int64(t.Version)))
	return p, len(p.Answer)
}

// Scorer says what responses are worth. It is safe for concurrent use.
type Scorer interface {
	// Begin is called as a rollout asks the policy. The Scoring that it returns judges the response, at
	// most once.
	Begin(id port.RolloutID, p Problem) Scoring
}

// Scoring is one rollout before its scorer.
type Scoring interface {
	// Sampled is called as the response is there, before the service time.
	Sampled()
	// Score scores the response, given as sampled. An error is a verdict that could not be had.
	Score(ctx context.Context, response []int32) (Score, error)
}

// pure is the scorer of a task that scores by looking.
type pure struct{ task ScoredTask }

func (j pure) Begin(_ port.RolloutID, p Problem) Scoring { return pureScoring{j.task, p} }

type pureScoring struct {
	task    ScoredTask
	problem Problem
}

func (t pureScoring) Sampled() {}

func (t pureScoring) Score(_ context.Context, response []int32) (Score, error) {
	return t.task.Score(t.problem, response), nil
}

// ServiceTime is how long an attempt waits for tools before any drift: a function of the
// run's seed and the rollout's name alone.
func (e *SingleTurn) ServiceTime(id port.RolloutID) time.Duration {
	if e.service.Zero() {
		return 0
	}
	return time.Duration(e.service.Draw(e.times, uint64(id.Group), uint32(id.Sample), uint32(id.Attempt)))
}

// Play implements [port.Environment].
func (e *SingleTurn) Play(ctx context.Context, t port.RolloutRequest, sampler port.Sampler) (port.Sample, error) {
	if t.Level < 0 || int(t.Level) > e.task.Levels() {
		return port.Sample{}, fmt.Errorf("env: task %s has %d levels, and %v has level %d: give the curriculum at most as many levels", e.task.Name(), e.task.Levels(), t.ID, t.Level)
	}
	problem, maxTokens := e.problem(t)
	service := time.Duration(e.change.EnvironmentNS(e.ServiceTime(t.ID).Nanoseconds(), int64(t.Version)))
	trial := e.scorer.Begin(t.ID, problem)
	generation, err := sampler.Sample(ctx, port.SampleRequest{
		Prompt: problem.Prompt, MaxTokens: maxTokens, Check: e.check(problem), Final: service == 0 && e.looks()})
	if err != nil {
		return port.Sample{}, fmt.Errorf("env: task %s: sampling %v: %w", e.task.Name(), t.ID, err)
	}
	if generation.Pruned {
		return port.Sample{ID: t.ID, Pruned: true}, nil
	}
	trial.Sampled()
	if err := pause.For(ctx, service); err != nil {
		return port.Sample{}, fmt.Errorf("env: task %s: service time of %v: %w", e.task.Name(), t.ID, err)
	}
	score, err := trial.Score(ctx, generation.Tokens)
	if err != nil {
		return port.Sample{}, fmt.Errorf("env: task %s: judging %v: %w", e.task.Name(), t.ID, err)
	}
	return record(e.task, t.ID, problem, generation, score), nil
}

// looks reports whether a verdict takes no time to speak of.
func (e *SingleTurn) looks() bool {
	_, looks := e.scorer.(pure)
	return looks
}

// check is what stops a response to a problem early, nil for nothing.
func (e *SingleTurn) check(p Problem) func([]int32) bool {
	checker, checks := e.task.(Checker)
	checks = checks && e.prune.Failed
	if !checks && e.prune.Tokens == 0 {
		return nil
	}
	return func(response []int32) bool {
		return e.prune.Tokens > 0 && len(response) >= e.prune.Tokens || checks && checker.Failed(p, response)
	}
}

// HeldOutSample is the record of a held-out problem answered greedily by a version:
// for looking at, not for training. Its log-probs are 0. i numbers it among its kind.
func HeldOutSample(task Task, p Problem, i int, version loop.Version, answer []int32, score Score) port.Sample {
	g := port.Generation{Tokens: answer, Logprobs: make([]float32, len(answer)), Versions: make([]loop.Version, len(answer))}
	for k := range g.Versions {
		g.Versions[k] = version
	}
	return record(task, port.RolloutID{Group: loop.GroupID(i + 1), Attempt: 1}, p, g, score)
}

// record joins prompt, generation and verdict into the trainable record.
func record(task Task, id port.RolloutID, p Problem, g port.Generation, score Score) port.Sample {
	n := len(p.Prompt) + len(g.Tokens)
	s := port.Sample{
		ID:        id,
		Tokens:    append(append(make([]int32, 0, n), p.Prompt...), g.Tokens...),
		LossMask:  make([]uint8, n),
		Logprobs:  make([]float32, n),
		Versions:  make([]loop.Version, n),
		Truncated: g.Truncated,
		Reward:    float32(score.Reward),
		Exact:     score.Exact,
	}
	s.Prompt, s.Response, s.Answer = texts(task, p, g.Tokens)
	for i := range p.Prompt {
		s.Versions[i] = loop.NoVersion
	}
	for i := range g.Tokens {
		at := len(p.Prompt) + i
		s.LossMask[at], s.Logprobs[at], s.Versions[at] = 1, g.Logprobs[i], g.Versions[i]
	}
	for i := range g.Channels {
		c := channel.Channel{Header: g.Channels[i].Header}
		_ = c.Append(&g.Channels[i], len(p.Prompt), s.LossMask) // an empty channel takes every part inside
		s.Channels = append(s.Channels, c)
	}
	return s
}

// texts are a problem and its response for people.
func texts(task Task, p Problem, response []int32) (prompt, said, answer string) {
	if reader, reads := task.(Reader); reads {
		return reader.ReadPrompt(p), reader.ReadResponse(response), reader.ReadResponse(p.Answer)
	}
	v := task.Vocabulary()
	return v.Decode(p.Prompt), v.Decode(response), v.Decode(p.Answer)
}
