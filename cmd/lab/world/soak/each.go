package soak

import (
	"context"
	"iter"
	"sync"
)

// Each calls do for every seed, in order, as many side by side as there are jobs. It calls took with each result, one
// at a time, in the order in which they come. When took returns false, no further seed begins. Each ends early with the
// first error of do, and with the context's.
func Each[T any](ctx context.Context, seeds iter.Seq[uint64], jobs int, do func(ctx context.Context, seed uint64) (T, error), took func(seed uint64, result T) bool) error {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, end := iter.Pull(seeds)
	defer end()
	var mu sync.Mutex
	stopped := false
	draw := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if stopped || within.Err() != nil {
			return 0, false
		}
		return next()
	}
	var wait sync.WaitGroup
	for range max(jobs, 1) {
		wait.Go(func() {
			for seed, ok := draw(); ok; seed, ok = draw() {
				result, err := do(within, seed)
				if err != nil {
					cancel(err) // the first one is the cause
					return
				}
				mu.Lock()
				stopped = !took(seed, result) || stopped
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return context.Cause(within)
}
