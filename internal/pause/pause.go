// Package pause lets a goroutine wait for a time that its context may cut short.
package pause

import (
	"context"
	"time"
)

// For returns nil after d, at once for a d of 0 or less, or the context's cause if that ends first.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
