// Package parallel makes many results on all cores.
package parallel

import (
	"context"
	"runtime"
	"sync"
)

// All makes n results on all cores and returns them in order. If progress is not nil, All calls it
// with their number after every one, by one goroutine at a time. It ends early with the context's
// error; else the error is the first one in order, whose index i is.
func All[T any](ctx context.Context, n int, progress func(done, all int), do func(i int) (T, error)) (results []T, i int, err error) {
	results, errs := make([]T, n), make([]error, n)
	work := make(chan int)
	var wait sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range min(runtime.GOMAXPROCS(0), max(n, 1)) {
		wait.Go(func() {
			for i := range work {
				results[i], errs[i] = do(i)
				mu.Lock()
				if done++; progress != nil {
					progress(done, n)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return nil, -1, err
	}
	for i, err := range errs {
		if err != nil {
			return nil, i, err
		}
	}
	return results, -1, nil
}
