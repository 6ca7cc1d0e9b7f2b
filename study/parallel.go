package study

import (
	"context"
	"runtime"
	"sync"
)

// parallel makes n results on all cores and returns them in order. progress, if not
// nil, is called after every one, by one goroutine at a time. It ends early with the
// context's error; else the error is the first one in order.
func parallel[T any](ctx context.Context, n int, progress func(done, all int), do func(i int) (T, error)) ([]T, error) {
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
		return nil, err
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}
