package cell

import (
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/loop/trace"
)

// Entries puts the lines of a log together to entries. An append has its events first and then the actions of all of them.
// The log may come in messages that hold a part of an append.
type Entries struct {
	text   feed
	reader *trace.Reader
	// open are the entries of the append under way, or, if they were given out, of the one before.
	open  []Entry
	given bool
	// first is the number of the first event that was read, 0 before it.
	first int64
}

// feed is text that comes piece by piece. Between two pieces it has ended.
type feed struct{ rest []byte }

func (f *feed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// NewEntries returns the entries behind a position of a log that begins with a header.
func NewEntries(at trace.Position, header trace.Header) *Entries {
	x := &Entries{}
	x.reader = trace.NewReaderAt(&x.text, at, header)
	return x
}

// Add takes the next lines, all of them whole. An append ends with them, or goes on. It returns the entries that are
// complete, which are the caller's until the next Add.
//
// A writer may die in an append. The one after it brings what is missing, with an append of its own behind it, so that the
// append goes on.
func (x *Entries) Add(lines []byte, ends bool) ([]Entry, error) {
	if x.given {
		x.open, x.given = nil, false
	}
	x.text.rest = lines
	for {
		rec, err := x.reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = x.take(&rec)
		}
		if err != nil {
			return nil, err
		}
	}
	if !ends {
		return nil, nil
	}
	x.given = true
	return x.open, nil
}

// take takes a line.
func (x *Entries) take(rec *trace.Record) error {
	if ev := rec.Event; ev != nil {
		if x.first == 0 {
			x.first = rec.Seq
		}
		x.open = append(x.open, Entry{Seq: rec.Seq, Event: ev.Event, Origin: ev.Origin})
		return nil
	}
	if rec.Action == nil && rec.Note != trace.NoteDiscarded || x.first == 0 || rec.Seq < x.first {
		return nil // of an event that was before the first line
	}
	at := -1
	if len(x.open) > 0 {
		at = int(rec.Seq - x.open[0].Seq)
	}
	if at < 0 || at >= len(x.open) {
		return fmt.Errorf("cell: line %d of the log is of event %d, whose append has ended: control plane and cell need the same build", rec.Line, rec.Seq)
	}
	if rec.Action != nil {
		x.open[at].Actions = append(x.open[at].Actions, *rec.Action)
	} else {
		x.open[at].Discarded = true
	}
	return nil
}
