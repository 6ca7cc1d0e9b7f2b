package study

import (
	"context"

	"github.com/headway-rl/headway/pool"
)

// parallel makes n results on all cores and returns them in order, as [pool.All] does.
func parallel[T any](ctx context.Context, n int, progress func(done, all int), do func(i int) (T, error)) ([]T, error) {
	results, _, err := pool.All(ctx, n, progress, do)
	return results, err
}
