package transfer

import (
	"context"
	"sync"
	"time"

	"github.com/headway-rl/headway/internal/pause"
)

// Bucket bounds a rate: a token bucket that holds a tenth of a second's worth. The nil
// Bucket bounds nothing.
type Bucket struct {
	mu        sync.Mutex
	bytesPerS float64
	tokens    float64
	at        time.Time
}

// NewBucket returns a bucket for a rate in bytes a second; nil, which bounds nothing, for 0.
func NewBucket(bytesPerS float64) *Bucket {
	if bytesPerS <= 0 {
		return nil
	}
	return &Bucket{bytesPerS: bytesPerS}
}

// Take waits until n bytes may pass. They may go into debt, which the next pays: a chunk
// is never divided.
func (b *Bucket) Take(ctx context.Context, n int) error {
	if b == nil {
		return ctx.Err()
	}
	wait := b.reserve(n)
	if wait <= 0 || pause.For(ctx, wait) != nil {
		return ctx.Err()
	}
	return nil
}

// piece is what passes at once: an eighth of a second's worth, within bounds.
func (b *Bucket) piece() int { return int(min(max(b.bytesPerS/8, 64<<10), 1<<20)) }

// pieces calls f for as many bytes as there are, a piece at a time as the limit lets them
// pass; without a limit all at once.
func (b *Bucket) pieces(ctx context.Context, n int, f func(n int) error) error {
	if b == nil {
		return f(n)
	}
	for n > 0 {
		now := min(n, b.piece())
		if err := b.Take(ctx, now); err != nil {
			return err
		}
		if err := f(now); err != nil {
			return err
		}
		n -= now
	}
	return nil
}

// reserve takes n tokens and returns how long it is until they are there.
func (b *Bucket) reserve(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.at.IsZero() {
		b.tokens = 0
	} else {
		b.tokens = min(b.tokens+b.bytesPerS*now.Sub(b.at).Seconds(), b.bytesPerS/10)
	}
	b.at = now
	b.tokens -= float64(n)
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.bytesPerS * float64(time.Second))
}
