package replay

import (
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/trace"
)

// ErrIncomplete is wrapped by the error of a trace without its last line.
var ErrIncomplete = errors.New("the trace does not end with its end note")

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

// player steps a loop through a trace.
type player struct {
	reader *trace.Reader
	loop   *loop.Loop
	line   int
	// pending[head:] are actions the trace is still to show; executing says that
	// it has shown some since the last event.
	pending   []due
	head      int
	executing bool
	ended     bool
	report    Report
	// event is called after every event, with what followed from it; nil for nobody.
	event func(ev *trace.Event, seq int64, actions []loop.Action)
	// note is called for every note.
	note func(name string, data []byte) error
}

func newPlayer(src io.Reader) (*player, error) {
	reader, err := trace.NewReader(src)
	if err != nil {
		return nil, err
	}
	l, err := loop.New(reader.Header.Loop)
	if err != nil {
		return nil, &trace.Error{Line: 1, Err: fmt.Errorf("the header holds no rules a loop can run by: %w", err)}
	}
	return &player{reader: reader, loop: l, report: Report{Header: reader.Header}}, nil
}

// play goes through the whole trace, or to the first difference.
func (p *player) play() (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			invariant, ok := broken.(*loop.InvariantError)
			if !ok {
				panic(broken)
			}
			err = &trace.Error{Line: p.line, Err: fmt.Errorf("the loop stops itself here: %w", invariant)}
		}
	}()
	for p.report.Difference == nil {
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
			return &trace.Error{Line: rec.Line, Offset: p.reader.Offset(), Err: err}
		}
	}
	p.report.Version, p.report.Ledger, p.report.EndNS = p.loop.Version(), p.loop.Ledger(), p.loop.Status().TimeNS
	return nil
}

func (p *player) onEvent(rec *trace.Record) {
	ev := rec.Event
	switch {
	case ev.Kind == loop.Recovered:
		p.report.Recoveries++
		p.report.Missing += int64(len(p.pending) - p.head)
		p.pending, p.head = p.pending[:0], 0
	case p.ended:
		p.differ(rec.Seq, ev.Event, "", "an event after the run's end")
		return
	case p.executing && p.head < len(p.pending):
		p.missing()
		return
	}
	p.executing, p.ended = false, false
	if p.head == len(p.pending) {
		p.pending, p.head = p.pending[:0], 0
	}
	p.report.Events++
	actions, _ := p.loop.Step(ev.Event)
	for i := range actions {
		p.pending = append(p.pending, due{rec.Seq, ev.Event, actions[i]})
	}
	if p.event != nil {
		p.event(ev, rec.Seq, actions)
	}
}

func (p *player) onAction(rec *trace.Record) {
	p.executing = true
	if p.head == len(p.pending) || p.ended {
		p.differ(rec.Seq, loop.Event{}, "", rec.Action.String())
		return
	}
	want := &p.pending[p.head]
	if rec.Seq != want.seq || *rec.Action != want.action {
		p.differ(want.seq, want.cause, want.action.String(), rec.Action.String())
		p.report.Difference.Field = fieldOf(rec, want)
		return
	}
	p.head++
	p.report.Actions++
}

// fieldOf says what differs between two actions that read the same.
func fieldOf(rec *trace.Record, want *due) string {
	switch {
	case rec.Seq != want.seq:
		return fmt.Sprintf("it follows from event %d there", rec.Seq)
	case rec.Action.String() == want.action.String():
		return fmt.Sprintf("want %+v, have %+v", want.action, *rec.Action)
	}
	return ""
}

func (p *player) onNote(rec *trace.Record) error {
	if rec.Note == trace.NoteEnd {
		if p.head < len(p.pending) {
			p.missing()
			return nil
		}
		p.ended = true
	}
	if p.note == nil {
		return nil
	}
	return p.note(rec.Note, rec.Data)
}

// missing reports the first action that the trace does not show.
func (p *player) missing() {
	want := &p.pending[p.head]
	p.differ(want.seq, want.cause, want.action.String(), "")
}

func (p *player) differ(seq int64, cause loop.Event, expected, got string) {
	p.report.Difference = &Difference{Line: p.line, Event: seq, Cause: cause.String(), Expected: expected, Got: got}
}
