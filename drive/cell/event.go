package cell

import (
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// Event is a word of a cell: an event as the loop takes it, and the figures that belong to it. It has values alone, so
// that it can be sent.
//
// StartRollout and ResumeRollout are answered by RolloutInterrupted, RolloutScored, RolloutFailed or RolloutAborted.
// LoadWeights is answered by WeightsLoaded or SyncFailed, SwitchWeights by WeightsSwitched or SyncFailed. FirstToken and
// EngineLost answer nothing.
type Event struct {
	// Event is the loop's. Time is the cell's clock. Made is nil: whether the loop wants it is not the cell's to know.
	loop.Event
	Facts
	// Origin says which of the cell's events it is.
	Origin trace.Origin
	// Error is why it has failed, in words for the log; empty where nothing has.
	Error string
	// Down, of SyncFailed: the engine cannot be reached, or does not answer any more.
	Down bool
	// Fatal: the cell can go on with no rollout, because its store takes no payloads. Cell.Err has the error.
	Fatal bool
}

// Facts are what the loop does not see of a rollout that was scored. Of other events all are 0, but for GenerateNS of a
// rollout that was pruned.
type Facts struct {
	// GenerateNS is the time that its calls took at engines, EnvironmentNS the time in its environment, in nanoseconds.
	// The time for which it stood interrupted is in neither.
	GenerateNS, EnvironmentNS int64
	// ByVersion are the response's tokens by the version that sampled them, in the order in which they were made.
	// VersionTokens is the sum of these versions over the tokens.
	ByVersion     []loop.VersionTokens
	VersionTokens int64
	// Spans is how many runs of tokens of one version, between interruptions, the response is made of.
	Spans int
	// Resumed says that the rollout was resumed after an interruption. StateLag is the age, at its last resumption, of the
	// oldest tokens that made the state of its environment. It is counted in versions, and is 0 without a resumption.
	Resumed  bool
	StateLag int64
}

// outbox numbers what a cell says, and keeps it until the log shows it. The cell in the writer's process ends with it, and
// no other writer has to hear anything again: its events have no number. All methods are safe for concurrent use.
type outbox struct {
	post func(*Event)

	mu sync.Mutex
	// last is the origin of the newest event. unlogged[head:] are those that the log does not show, in their order.
	last     trace.Origin
	unlogged []Event
	head     int
}

// say posts an event, which is lent: the stacks of rollouts are small, and one that has to grow costs more than all else
// here.
func (o *outbox) say(ev *Event) {
	if o.last.Cell == "" {
		o.post(ev)
	} else {
		o.keep(ev)
	}
}

// keep posts an event that may have to be said again.
func (o *outbox) keep(ev *Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.Sequence++
	ev.Origin = o.last
	o.unlogged = append(o.unlogged, *ev)
	o.post(ev)
}

// logged takes that the log shows an event of some cell. What the cell has said before that one is not said again.
func (o *outbox) logged(shown trace.Origin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if shown.Cell != o.last.Cell || shown.Incarnation != o.last.Incarnation {
		return
	}
	for o.head < len(o.unlogged) && o.unlogged[o.head].Origin.Sequence <= shown.Sequence {
		o.unlogged[o.head] = Event{}
		o.head++
	}
	if 2*o.head >= len(o.unlogged) { // which moves each event once at most
		o.unlogged = o.unlogged[:copy(o.unlogged, o.unlogged[o.head:])]
		o.head = 0
	}
}

// repeat posts all that the log does not show once more.
func (o *outbox) repeat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := o.head; i < len(o.unlogged); i++ {
		o.post(&o.unlogged[i])
	}
}
