package parts

import (
	"context"
	"time"

	"github.com/headway-rl/headway/internal/presence"
)

// Presence returns a clock of the time in which a process can answer, in nanoseconds: see package presence. The instants are those
// of a clock of the process. Able says whether it can, and is asked at each tick, until the context ends.
func Presence(ctx context.Context, instant func() int64, able func() bool) func() int64 {
	clock := presence.New(0)
	go func() {
		ticker := time.NewTicker(presence.Every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			now := able()
			clock.Tick(instant(), now)
		}
	}()
	return func() int64 { return clock.Now(instant()) }
}
