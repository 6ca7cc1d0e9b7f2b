package cell

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// Event is a word of a cell: an event as the loop takes it, and the figures that belong to it. It has values alone, so
// that it can be sent.
//
// StartRollout and ResumeRollout are answered by RolloutInterrupted, RolloutScored, RolloutFailed or RolloutAborted.
// LoadWeights is answered by WeightsLoaded or SyncFailed, SwitchWeights by WeightsSwitched or SyncFailed. FirstToken,
// EngineLost and a hello, whose kind is EngineJoined, answer nothing.
type Event struct {
	// Event is the loop's. Time is the cell's clock. Made is nil: whether the loop wants it is not the cell's to know.
	loop.Event
	Facts
	// Age says how long ago the event happened, in nanoseconds, when it is sent to another process, whose clock is another.
	Age int64
	// Origin says which of the cell's events it is.
	Origin trace.Origin
	// Hello is what the process is, in its first event alone, if the cell is another process.
	Hello *Hello
	// Load is how much the process has taken of what it has, in a hello and its renewals. It is for people: nothing is decided
	// by it. Empty where the process does not say.
	Load json.RawMessage
	// Ask is what the process says of held-out prompts, in renewals of its hello. The loop knows of none.
	Ask *Ask
	// Payload is where the payload of a scored rollout is, for a writer in another process. Of others it is where the writer finds what
	// was put and is to be removed. It is empty where both have one store.
	Payload string
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

// What a cell keeps at most of what the log does not show, before its rollouts wait with the next word.
const (
	outboxEventsMost = 1 << 14
	outboxBytesMost  = 16 << 20
	// errorBytesMost is how much is kept of the words of one error.
	errorBytesMost = 4 << 10
)

// outbox numbers what a cell says, and keeps it until the log shows it. The cell in the writer's process ends with it, and
// no other writer has to hear anything again: its events have no number. All methods are safe for concurrent use.
type outbox struct {
	post func(*Event)
	// eventsMost and bytesMost bound what is kept.
	eventsMost int
	bytesMost  int

	mu sync.Mutex
	// last is the origin of the newest event, whose cell is the same in all: empty for the one in the writer's process, which
	// needs no lock to see that. unlogged[head:] are those that the log does not show, in their order, of so
	// many bytes.
	last     trace.Origin
	unlogged []Event
	head     int
	bytes    int
	// freed is closed when the log shows more. It is nil while nobody waits.
	freed chan struct{}
}

// say posts an event, which is lent: the stacks of rollouts are small, and one that has to grow costs more than all else
// here. It does not wait for room: what follows the log, or holds a lock that this needs, must not wait for the log. Such
// events answer actions, so that there are few.
func (o *outbox) say(ev *Event) {
	if o.last.Cell == "" {
		o.post(ev)
	} else {
		o.keep(ev)
	}
}

// sayInTurn says an event when there is room for it, or the context has ended.
func (o *outbox) sayInTurn(ctx context.Context, ev *Event) {
	if o.last.Cell == "" {
		o.post(ev)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.await(ctx)
	o.add(ev)
}

// room waits until there is room for an event, or the context ends.
func (o *outbox) room(ctx context.Context) {
	if o.last.Cell == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.await(ctx)
}

// await waits for room. o.mu must be held, and is.
func (o *outbox) await(ctx context.Context) {
	for (len(o.unlogged)-o.head >= o.eventsMost || o.bytes >= o.bytesMost) && ctx.Err() == nil {
		if o.freed == nil {
			o.freed = make(chan struct{})
		}
		freed := o.freed
		o.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		o.mu.Lock()
	}
}

// keep posts an event that may have to be said again.
func (o *outbox) keep(ev *Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(ev)
}

// add is keep with o.mu held.
func (o *outbox) add(ev *Event) {
	if len(ev.Error) > errorBytesMost {
		ev.Error = strings.ToValidUTF8(ev.Error[:errorBytesMost], "")
	}
	o.last.Sequence++
	ev.Origin = o.last
	o.unlogged = append(o.unlogged, *ev)
	o.bytes += sizeOf(ev)
	o.post(ev)
}

// sizeOf is about how much memory an event takes.
func sizeOf(ev *Event) int {
	return int(unsafe.Sizeof(*ev)) + len(ev.Error) + len(ev.Payload) + len(ev.ByVersion)*int(unsafe.Sizeof(loop.VersionTokens{}))
}

// logged takes that the log shows an event of some cell. What the cell has said before that one is not said again.
func (o *outbox) logged(shown trace.Origin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if shown.Cell != o.last.Cell || shown.Incarnation != o.last.Incarnation {
		return
	}
	for o.head < len(o.unlogged) && o.unlogged[o.head].Origin.Sequence <= shown.Sequence {
		o.bytes -= sizeOf(&o.unlogged[o.head])
		o.unlogged[o.head] = Event{}
		o.head++
	}
	if 2*o.head >= len(o.unlogged) { // which moves each event once at most
		o.unlogged = o.unlogged[:copy(o.unlogged, o.unlogged[o.head:])]
		o.head = 0
	}
	if o.freed != nil {
		close(o.freed)
		o.freed = nil
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

// behind returns copies of at most so many events behind a sequence that the log does not show, with their age at a time.
func (o *outbox) behind(sequence int64, most int, now int64) (all []Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from := o.head
	if n := len(o.unlogged); n > o.head {
		from = min(max(int(sequence-o.unlogged[o.head].Origin.Sequence)+1+o.head, o.head), n)
	}
	all = slices.Clone(o.unlogged[from:min(from+most, len(o.unlogged))])
	for i := range all { // a hello does not change
		all[i].Age = max(now-all[i].Time, 0)
	}
	return all
}
