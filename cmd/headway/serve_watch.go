package main

import (
	"context"
	"time"
)

// watch looks at the run now and then, and says what is missing while nothing makes progress.
func (p *plane) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
