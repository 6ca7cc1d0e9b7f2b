package plane

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/record"
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

// A caller that is refused between two ticks is told to come again in 2 s, and has that time.
func TestRefusalStopsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Plane{Record: &record.Record{App: &app.Process{Now: time.Now}}}
		set := func(state string) { p.state.Store(&state) }
		p.noRoom.Store(true) // so that the log is not asked
		set(stateStopped)
		p.beginPresence(t.Context())
		time.Sleep(presence.Every + 10*time.Millisecond)
		set(stateStandby)
		if p.Ready() == nil {
			t.Fatal("a standby is ready")
		}
		set(stateStopped)
		before := p.present()
		time.Sleep(2 * time.Second)
		if passed := time.Duration(p.present() - before); passed > presence.Every {
			t.Errorf("%v have passed", passed)
		}
		time.Sleep(4 * time.Second)
		if passed := time.Duration(p.present() - before); passed < 2*time.Second {
			t.Errorf("%v have passed", passed)
		}
	})
}
