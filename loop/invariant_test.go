package loop

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// TestBrokenInvariantsPanic damages the state of a running loop from inside, one
// invariant at a time: the next step must say which is broken, and at which event.
func TestBrokenInvariantsPanic(t *testing.T) {
	tick := Event{Time: 5, Kind: Tick}
	scored := Event{Time: 5, Kind: RolloutScored, Group: 1, Attempt: 1, Reward: 1}
	cases := []struct {
		name   string
		ev     Event
		damage func(*Loop)
		want   string
	}{
		{"attempt lost", tick, func(l *Loop) { l.s.Ledger.InFlight-- }, "ledger does not balance"},
		{"attempt twice", scored, func(l *Loop) { l.s.Ledger.Failed++ }, "ledger does not balance"},
		{"negative count", scored, func(l *Loop) { l.s.Ledger.Evicted--; l.s.Ledger.Failed++ }, "ledger does not balance"},
		{"queue over capacity", tick, func(l *Loop) { l.s.Queue.Len = 9 }, "the queue holds"},
		{"stamp from the future", scored, func(l *Loop) { l.s.Groups[l.s.Slots[0].Group].Start = 3 }, "negative or unknown staleness"},
		{"engine ahead of its sync", Event{Time: 5, Kind: WeightsSwitched, Version: 0, Attempt: 1}, func(l *Loop) {
			e := &l.s.Engines[0]
			e.Served, e.Phase, e.Loading, e.Attempt = 2, phaseSwitching, 0, 1
		}, "fell from v2 to v0"},
		{"running group at the trainer", Event{Time: 5, Kind: RolloutFailed, Group: 1, Attempt: 1}, func(l *Loop) {
			l.cfg.MaxAttempts = 1
			l.s.Groups[l.s.Slots[0].Group].State = groupLeased
		}, "ended untrained"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, err := New(Config{GroupSize: 1, BatchGroups: 1, QueueGroups: 1, EngineSlots: []int{2}})
			if err != nil {
				t.Fatal(err)
			}
			l.Step(Event{Kind: RunStarted})
			c.damage(l)
			defer func() {
				err, _ := recover().(error)
				var broken *InvariantError
				if !errors.As(err, &broken) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("the step panics with %v, want an InvariantError about %q", err, c.want)
				} else if !reflect.DeepEqual(broken.Event, c.ev) {
					t.Errorf("the error names the event %v, want %v", broken.Event, c.ev)
				}
			}()
			l.Step(c.ev)
		})
	}
}
