package env

import (
	"context"
	"fmt"
)

// Answer responds to prompts, usually greedily. Responses end as sampled ones
// do: with the end token, or after maxTokens.
type Answer func(ctx context.Context, prompts [][]int32, maxTokens int) ([][]int32, error)

// Evaluation is how well a policy answers a set of problems.
type Evaluation struct {
	// Prompts is the number of problems asked, Exact of those answered exactly.
	Prompts, Exact int
	// Reward is the mean reward.
	Reward float64
}

// ScoreFunc scores responses to problems, in their order. An error is verdicts that could not be had.
type ScoreFunc func(ctx context.Context, problems []Problem, responses [][]int32) ([]Score, error)

// Accuracy is the share answered exactly; 0 where nothing was asked.
func (e Evaluation) Accuracy() float64 {
	if e.Prompts == 0 {
		return 0
	}
	return float64(e.Exact) / float64(e.Prompts)
}

// Look is how a task scores that judges by looking.
func Look(task ScoredTask) ScoreFunc {
	return func(_ context.Context, problems []Problem, responses [][]int32) ([]Score, error) {
		scores := make([]Score, len(problems))
		for i, p := range problems {
			scores[i] = task.Score(p, responses[i])
		}
		return scores, nil
	}
}

// Evaluate asks all problems and has the answers scored.
func Evaluate(ctx context.Context, task Task, verdicts ScoreFunc, problems []Problem, answer Answer) (Evaluation, error) {
	prompts := make([][]int32, len(problems))
	for i, p := range problems {
		prompts[i] = p.Prompt
	}
	responses, err := answer(ctx, prompts, task.Limits().ResponseTokens)
	if err != nil {
		return Evaluation{}, fmt.Errorf("env: task %s: evaluation: %w", task.Name(), err)
	}
	if len(responses) != len(problems) {
		return Evaluation{}, fmt.Errorf("env: task %s: evaluation: %d answers to %d prompts", task.Name(), len(responses), len(problems))
	}
	scores, err := verdicts(ctx, problems, responses)
	if err != nil {
		return Evaluation{}, fmt.Errorf("env: task %s: evaluation: %w", task.Name(), err)
	}
	if len(scores) != len(problems) {
		return Evaluation{}, fmt.Errorf("env: task %s: evaluation: %d verdicts on %d answers", task.Name(), len(scores), len(problems))
	}
	e := Evaluation{Prompts: len(problems)}
	for _, s := range scores {
		e.Reward += s.Reward / float64(len(problems))
		if s.Exact {
			e.Exact++
		}
	}
	return e, nil
}
