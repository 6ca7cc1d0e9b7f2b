package metrics

import "github.com/headway-rl/headway/loop"

// Beside observes a run beside a recorder, which passes on what drivers tell it. Its arguments are
// valid during the call, and not to be changed.
type Beside interface {
	// Observe takes one event and the actions that followed from it.
	Observe(ev *loop.Event, m *Measured, actions []loop.Action)
	// EnginesDown, EnginesHeld and TrainerValidates are those of Recorder.
	EnginesDown(now int64, n int)
	EnginesHeld(now int64, reading, validating int)
	TrainerValidates(tookNS int64)
}

// told is what Beside is given: the recorder's own copies, so that what callers pass to the recorder
// need not outlive the call, which would cost them an allocation an event.
type told struct {
	event    loop.Event
	measured Measured
}
