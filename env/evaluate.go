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
	// Answered are the responses, in the order of the problems.
	Answered [][]int32
}

// Accuracy is the share answered exactly; 0 where nothing was asked.
func (e Evaluation) Accuracy() float64 {
	if e.Prompts == 0 {
		return 0
	}
	return float64(e.Exact) / float64(e.Prompts)
}

// Evaluate asks all problems and scores the answers.
func Evaluate(ctx context.Context, task Task, problems []Problem, answer Answer) (Evaluation, error) {
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
	e := Evaluation{Prompts: len(problems), Answered: responses}
	for i, p := range problems {
		s := task.Score(p, responses[i])
		e.Reward += s.Reward / float64(len(problems))
		if s.Exact {
			e.Exact++
		}
	}
	return e, nil
}
