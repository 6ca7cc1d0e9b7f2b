package study

import (
	"context"

	"github.com/headway-rl/headway/internal/parallel"
)

// inParallel makes n results on all cores and returns them in order, as [parallel.All] does.
func inParallel[T any](ctx context.Context, n int, progress func(done, all int), do func(i int) (T, error)) ([]T, error) {
	results, _, err := parallel.All(ctx, n, progress, do)
	return results, err
}
