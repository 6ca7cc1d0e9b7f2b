package loop

import "testing"

// TestUnanswered: of an engine that is lost with its process, what is interrupted or aborted waits for an answer. With the answers
// in the process's place no slot is taken. Nobody else's attempt ends.
func TestUnanswered(t *testing.T) {
	for name, attempts := range map[string]int{"interrupted": 3, "aborted": 1} {
		l, err := New(Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2, 3}, EngineCells: []int{0, 1}, QueueGroups: 4, ResumeLost: true, MaxAttempts: attempts,
			OnFailure: ShrinkGroup})
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range []Event{{Kind: RunStarted}, {Kind: EngineJoined, Engine: 1}, {Kind: WeightsLoaded, Engine: 1, Attempt: 1}, {Kind: WeightsSwitched, Engine: 1, Attempt: 1}, {Kind: Tick}} {
			l.Step(ev)
		}
		if n := len(l.Unanswered(1)); n != 3 {
			t.Fatalf("%s: %d of 3 slots are taken", name, n)
		}
		l.Step(Event{Kind: EngineLost, Engine: 1})
		failed := l.s.Ledger.Failed
		for _, ev := range l.Unanswered(1) {
			l.Step(ev)
		}
		if n := len(l.Unanswered(1)); n != 0 || l.s.Engines[1].Active != 0 || l.s.Counts.Late != 0 {
			t.Errorf("%s: %d slots are taken yet, %d of them count, and %d events were late", name, n, l.s.Engines[1].Active, l.s.Counts.Late)
		}
		if led := l.s.Ledger; led.Failed != 3 || attempts == 3 && failed != 0 || !led.Balanced() {
			t.Errorf("%s: %d attempts failed with the loss, and %d in all: %+v", name, failed, led.Failed, led)
		}
		for _, smp := range l.s.Samples {
			if attempts == 3 && smp.Failures > 1 {
				t.Errorf("%s: a loss counts %d times", name, smp.Failures)
			}
		}
		if n := len(l.Unanswered(0)); n != 2 {
			t.Errorf("%s: %d attempts are on the other engine", name, n)
		}
	}
}
