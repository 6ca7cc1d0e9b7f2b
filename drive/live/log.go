package live

import (
	"encoding/json"
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// idOf names the attempt that an event is about.
func idOf(ev loop.Event) port.RolloutID {
	return port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
}

// discards reports whether an event is a score that does not count.
func discards(ev loop.Event, counts bool) bool {
	return ev.Kind == loop.RolloutScored && ev.Mark != loop.MarkPruned && !counts
}

// bundle hands out what is needed to understand a broken invariant.
func (r *Runtime) bundle(broken *loop.InvariantError) {
	if r.opt.OnBroken == nil {
		return
	}
	events := make([]string, len(r.last))
	for i, ev := range r.last {
		events[i] = ev.String()
	}
	state, err := r.l.Snapshot()
	if err != nil {
		state = []byte("null")
	}
	text, err := json.MarshalIndent(struct {
		Error  string          `json:"error"`
		Seq    int64           `json:"seq"`
		Events []string        `json:"last_events"`
		State  json.RawMessage `json:"state"`
	}{broken.Error(), r.enc.Seq(), events, state}, "", " ")
	if err == nil {
		r.opt.OnBroken(text)
	}
}

// lastEvents is how many events a bundle shows.
const lastEvents = 16

func (r *Runtime) remember(ev loop.Event) {
	if len(r.last) == lastEvents {
		copy(r.last, r.last[1:])
		r.last = r.last[:lastEvents-1]
	}
	r.last = append(r.last, ev)
}

// noteStep puts what the trainer and the engines measured before the event of the step's end.
func (r *Runtime) noteStep(c *completion) {
	if c.step == nil {
		return
	}
	r.note(trace.NoteStep, c.step)
	for _, times := range r.cell.DecodeTimes() {
		r.note(trace.NoteService, times)
	}
}

func (r *Runtime) note(name string, data any) {
	var err error
	if r.lines, err = r.enc.AppendNote(r.lines, name, data); err != nil {
		r.logf("%v", err)
	}
}

// logf logs from any goroutine: engines, which begin side by side, and effects do it beside the loop's.
func (r *Runtime) logf(format string, args ...any) {
	if r.opt.Logf == nil {
		return
	}
	r.logging.Lock()
	defer r.logging.Unlock()
	r.opt.Logf(format, args...)
}

// close writes the end of the trace.
func (r *Runtime) close() error {
	st := r.l.Status()
	r.note(trace.NoteEnd, struct {
		Reason string      `json:"reason"`
		Status loop.Status `json:"status"`
	}{r.reason.String(), st})
	if err := r.appendLog(); err != nil {
		return err
	}
	r.awaitSnapshot()
	r.snapshot(true) // where it fails, the log has it all
	r.awaitSnapshot()
	return nil
}

// appendLog makes the lines rendered so far durable. While there is no room for
// them the loop stands still: what follows from an event waits for its place in the log.
// A Stop ends the wait: nothing could be written of an end in order.
func (r *Runtime) appendLog() error {
	err := r.space.Write(r.running, r.stop, func() error { return r.opt.Store.Append([][]byte{r.lines}) })
	if err != nil {
		return fmt.Errorf("live: the event log cannot be written: %w", err)
	}
	r.lines = r.lines[:0]
	return nil
}
