package plane

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/presence"
	"github.com/headway-rl/headway/internal/presence/presencetest"
)

// A drain's time does not pass while the process cannot write, or is stopped.
func TestDrainStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		process := presencetest.Start(t)
		p := &Plane{present: process.Clock}
		began, ended := time.Now(), make(chan time.Duration, 1)
		p.later(6*time.Second, func() { ended <- time.Since(began) })
		time.Sleep(3 * time.Second)
		process.Away(15 * time.Second)
		process.Sleep(time.Hour)
		least := 18*time.Second + time.Hour
		if took := <-ended; took < least || took > least+presence.GraceMost+4*time.Second {
			t.Errorf("it ended after %v, want 6 s of those in which the process could write, and the grace", took)
		}
	})
}
