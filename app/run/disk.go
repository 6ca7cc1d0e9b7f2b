package run

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
)

// disk watches whether a run can write its directory, and says so when that changes. The zero
// value is of a run that can.
type disk struct {
	dir string
	now func() time.Time
	say func(text string)

	mu    sync.Mutex
	cause error // nil while there is room
	since time.Time
	// ending: nothing could be written when the run was to stop, so that it ends by that.
	ending bool
}

// told takes what a write failed by for lack of room, and nil once there is room again.
func (d *disk) told(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.cause
	d.cause = cause
	if d.ending {
		return // the run says by what
	}
	if cause != nil {
		d.since = d.now()
		d.say(fmt.Sprintf("%s; nothing is lost. Make room there and it goes on by itself, or press Ctrl-C to end it here", d.words()))
	} else if before != nil {
		d.say(fmt.Sprintf("there is room again in %s%s: the run goes on after %s, which are in no idle figure",
			d.dir, record.FreeText(d.dir), d.now().Sub(d.since).Round(time.Second)))
	}
}

// words say what cannot be written, where, and how much is free there.
func (d *disk) words() string {
	cause := d.cause
	if path, ok := errors.AsType[*fs.PathError](cause); ok {
		cause = path
	}
	return fmt.Sprintf("the run waits for room in %s%s: %v", d.dir, record.FreeText(d.dir), cause)
}

// stall is what the run waits for, empty while there is room.
func (d *disk) stall() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause == nil {
		return ""
	}
	return d.words()
}

// Stopping says what the first Ctrl-C does.
func (j *Run) Stopping() string {
	d := &j.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending = d.cause != nil; d.ending {
		return "stopping: nothing can be written"
	}
	return "stopping after the running train step; again to stop at once"
}

// WithRoomHint says of an error for lack of room what to do, unless it says what to do already. As for [ResumeHint],
// word is the directory in a command.
func WithRoomHint(dir, word string, err error) error {
	if _, failed := errors.AsType[*failure.Error](err); failed || !record.NoRoom(err) {
		return err
	}
	return failure.Run(ResumeHint(dir, word, err), "%w", err)
}

// ResumeHint is how a run that ended by an error goes on, "" where resuming it ends in the same error. In a command the
// run's directory is the word that is given.
func ResumeHint(dir, word string, err error) string {
	if errors.Is(err, live.ErrPayloadsLost) || errors.Is(err, live.ErrLogLost) {
		return ""
	}
	hint := "headway run --resume " + word + " goes on from the last logged event"
	if record.NoRoom(err) {
		hint = "make room in " + dir + record.FreeText(dir) + ", then " + hint
	}
	return hint
}
