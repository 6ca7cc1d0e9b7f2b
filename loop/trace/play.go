package trace

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/headway-rl/headway/loop"
)

// Difference is the first place where the trace and the loop disagree.
type Difference struct {
	// Line of the trace, from 1, and the event's number, from 1.
	Line  int   `json:"line"`
	Event int64 `json:"event"`
	// Cause renders that event, Expected what the loop decides, Got what the trace has; empty for nothing.
	Cause    string `json:"cause"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	// Field names what differs where both actions read the same.
	Field string `json:"field,omitempty"`
}

// String renders the difference in one line.
func (d *Difference) String() string {
	side := func(s string) string {
		if s == "" {
			return "nothing"
		}
		return s
	}
	text := fmt.Sprintf("line %d, event %d (%s): the loop decides %s, the trace has %s", d.Line, d.Event, d.Cause, side(d.Expected), side(d.Got))
	if d.Field != "" {
		text += ": " + d.Field
	}
	return text
}

// due is an action that the trace is still to show.
type due struct {
	seq    int64
	cause  loop.Event
	action loop.Action
}

// Tally is what a Player has found so far.
type Tally struct {
	// Events stepped through, Actions that were compared and are the same.
	Events  int64
	Actions int64
	// Recoveries counts events "recovered", Missing the actions before them that the
	// process did not live to record.
	Recoveries int64
	Missing    int64
	// Difference is the first one, nil while there is none.
	Difference *Difference
	// Ended: the last line was the end note.
	Ended bool
}

// Player takes a loop through a trace, event by event, and compares every recorded
// action with what the loop decides. It is what verifying, resimulating and
// recovering have in common.
type Player struct {
	// OnEvent is called after every event, with the actions that followed from it; nil for no call.
	OnEvent func(ev *Event, seq int64, actions []loop.Action)
	// OnNote is called for every note; nil for no call. Its error ends the playing.
	OnNote func(name string, data []byte) error

	reader *Reader
	loop   *loop.Loop
	line   int
	// pending[head:] are actions the trace is still to show; executing says that
	// it has shown some since the last event.
	pending   []due
	head      int
	executing bool
	tally     Tally
}

// NewPlayer returns a player of the lines that a reader is to read, with the loop as it was there.
// No action that the loop has decided is still to be shown.
func NewPlayer(r *Reader, l *loop.Loop) *Player { return &Player{reader: r, loop: l} }

// Tally returns what has been found so far.
func (p *Player) Tally() Tally { return p.tally }

// Pending yields the actions that the trace is still to show, each with the number of its event. A process did not live to
// record them.
func (p *Player) Pending() iter.Seq2[int64, loop.Action] {
	return func(yield func(int64, loop.Action) bool) {
		for i := range p.pending[p.head:] {
			if d := &p.pending[p.head+i]; !yield(d.seq, d.action) {
				return
			}
		}
	}
}

// Line returns the line that was played last, from 1; 0 before the first.
func (p *Player) Line() int { return p.line }

// MarkEnded says that the line before the first one to play is the end note.
func (p *Player) MarkEnded() { p.tally.Ended = true }

// Play goes through the whole trace, or to the first difference, which is in the
// tally. The error is an *Error for what cannot be read or has been changed.
func (p *Player) Play() (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			invariant, ok := broken.(*loop.InvariantError)
			if !ok {
				panic(broken)
			}
			err = &Error{Line: p.line, Err: fmt.Errorf("the loop stops itself here: %w", invariant)}
		}
	}()
	for p.tally.Difference == nil {
		rec, err := p.reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p.line = rec.Line
		switch {
		case rec.Event != nil:
			p.onEvent(&rec)
		case rec.Action != nil:
			p.onAction(&rec)
		default:
			err = p.onNote(&rec)
		}
		if err != nil {
			return &Error{Line: rec.Line, Offset: p.reader.Offset(), Err: err}
		}
	}
	return nil
}

func (p *Player) onEvent(rec *Record) {
	ev := rec.Event
	switch {
	case ev.Kind == loop.Recovered:
		p.tally.Recoveries++
		p.tally.Missing += int64(len(p.pending) - p.head)
		p.pending, p.head = p.pending[:0], 0
	case p.tally.Ended && rec.Seq > 1: // a process may have ended before the run began
		p.differ(rec.Seq, ev.Event, "", "an event after the run's end")
		return
	case p.executing && p.head < len(p.pending):
		p.missing()
		return
	}
	p.executing, p.tally.Ended = false, false
	if p.head == len(p.pending) {
		p.pending, p.head = p.pending[:0], 0
	}
	p.tally.Events++
	actions, _ := p.loop.Step(ev.Event)
	for i := range actions {
		p.pending = append(p.pending, due{rec.Seq, ev.Event, actions[i]})
	}
	if p.OnEvent != nil {
		p.OnEvent(ev, rec.Seq, actions)
	}
}

func (p *Player) onAction(rec *Record) {
	p.executing = true
	if p.head == len(p.pending) || p.tally.Ended {
		p.differ(rec.Seq, loop.Event{}, "", rec.Action.String())
		return
	}
	want := &p.pending[p.head]
	if rec.Seq != want.seq || *rec.Action != want.action {
		p.differ(want.seq, want.cause, want.action.String(), rec.Action.String())
		p.tally.Difference.Field = fieldOf(rec, want)
		return
	}
	p.head++
	p.tally.Actions++
}

// fieldOf says what differs between two actions that read the same.
func fieldOf(rec *Record, want *due) string {
	switch {
	case rec.Seq != want.seq:
		return fmt.Sprintf("it follows from event %d there", rec.Seq)
	case rec.Action.String() == want.action.String():
		return fmt.Sprintf("want %+v, have %+v", want.action, *rec.Action)
	}
	return ""
}

func (p *Player) onNote(rec *Record) error {
	if rec.Note == NoteEnd {
		if p.head < len(p.pending) {
			p.missing()
			return nil
		}
		p.tally.Ended = true
	}
	if p.OnNote == nil {
		return nil
	}
	return p.OnNote(rec.Note, rec.Data)
}

// missing reports the first action that the trace does not show.
func (p *Player) missing() {
	want := &p.pending[p.head]
	p.differ(want.seq, want.cause, want.action.String(), "")
}

func (p *Player) differ(seq int64, cause loop.Event, expected, got string) {
	p.tally.Difference = &Difference{Line: p.line, Event: seq, Cause: cause.String(), Expected: expected, Got: got}
}
