package code

import (
	"context"
	"fmt"
	"sync"

	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/env/sandbox"
)

// What an evaluation takes: so many sandboxes at once, so many tries of every command.
const (
	evaluators    = 2
	evaluateTries = 3
)

// Evaluate scores responses to problems, many to a command. It is [env.ScoreFunc]. A fault that
// another try may mend is tried again in another box.
func (j *Scorer) Evaluate(ctx context.Context, problems []env.Problem, responses [][]int32) ([]env.Score, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	scores := make([]env.Score, len(problems))
	parts := make(chan int)
	size := j.batch()
	var workers sync.WaitGroup
	for range evaluators {
		workers.Go(func() {
			for first := range parts {
				last := min(first+size, len(problems))
				if err := j.scorePart(ctx, problems[first:last], responses[first:last], scores[first:last]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for first := 0; first < len(problems) && ctx.Err() == nil; first += size {
		parts <- first
	}
	close(parts)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return scores, nil
}

// batch is how many programs one command runs.
func (j *Scorer) batch() int {
	if j.task.language == Go {
		return 1
	}
	return max(1, min(32, outputMost/(outputOfTest*j.task.tests)))
}

// scorePart scores some responses by one command.
func (j *Scorer) scorePart(ctx context.Context, problems []env.Problem, responses [][]int32, scores []env.Score) error {
	programs := make([]source, len(problems))
	for i, p := range problems {
		programs[i] = j.source(p, responses[i])
	}
	outcomes, err := j.runAnywhere(ctx, programs)
	if err != nil {
		return err
	}
	for i, p := range problems {
		scores[i] = j.task.score(p, responses[i], outcomes[i].runs)
	}
	return nil
}

// runAnywhere runs programs in a box of their own, and in another where that one fails.
func (j *Scorer) runAnywhere(ctx context.Context, programs []source) (outcomes []outcome, err error) {
	for range evaluateTries {
		if outcomes, err = j.runLeased(ctx, programs); err == nil || ctx.Err() != nil || !sandbox.ClassOf(err).Kind().Again {
			return outcomes, err
		}
	}
	return nil, fmt.Errorf("%d tries failed, the last of them: %w", evaluateTries, err)
}

func (j *Scorer) runLeased(ctx context.Context, programs []source) ([]outcome, error) {
	box, err := j.boxes.Lease(ctx, "held-out")
	if err != nil {
		return nil, err
	}
	defer box.Close(context.WithoutCancel(ctx))
	return j.run(ctx, box, programs)
}
