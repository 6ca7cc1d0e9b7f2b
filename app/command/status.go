package command

import (
	"fmt"
	"sync"
	"time"

	"github.com/headway-rl/headway/app"
)

// LineEvery is the least time between two plain lines.
const LineEvery = 5 * time.Second

// ProgressEvery is the variable that has another time in [LineEvery]'s place, such as 500ms. It is for programs that
// start a command and show its lines in a place of their own.
const ProgressEvery = "HEADWAY_PROGRESS_EVERY"

// StatusLine is one line on stderr about how far something long is: written over in place on a terminal, elsewhere a
// line now and then.
type StatusLine struct {
	// App holds the streams and the clock.
	App *app.Process
	// Terminal says that stderr is a terminal.
	Terminal bool
	// Looked is when the clock was last looked at, Last when a line was last shown.
	Looked, Last time.Time
	every        time.Duration
	shown        bool
}

// NewStatusLine returns a line that is due after a second, and then every [LineEvery].
func NewStatusLine(application *app.Process) StatusLine {
	now := application.Now()
	s := StatusLine{App: application, Terminal: application.IsTerminal(application.Stderr), Looked: now, Last: now, every: LineEvery}
	if s.Terminal {
		s.every = LineEvery / 50
	} else if given, err := time.ParseDuration(application.Getenv(ProgressEvery)); err == nil && given > 0 {
		s.every = given
	} else {
		s.Last = now.Add(time.Second - LineEvery)
	}
	return s
}

// Due looks at the clock, and reports whether enough time has passed since the last line.
func (s *StatusLine) Due() bool {
	s.Looked = s.App.Now()
	return s.Looked.Sub(s.Last) >= s.every
}

// Show prints a text without an end of line, whether it is due or not.
func (s *StatusLine) Show(text string) {
	s.Last = s.Looked
	if s.Terminal {
		fmt.Fprintf(s.App.Stderr, "\r%s\x1b[K", text)
		s.shown = true
		return
	}
	fmt.Fprintln(s.App.Stderr, text)
}

// Clear takes a terminal's line away.
func (s *StatusLine) Clear() {
	if s.shown {
		fmt.Fprint(s.App.Stderr, "\r\x1b[K")
	}
	s.shown = false
}

// Working says on stderr that something goes on which has no measure of its own: after a second, then whenever a line
// is due. The function that it returns ends that and takes a terminal's line away.
func Working(application *app.Process, what string) (stop func()) {
	line := NewStatusLine(application)
	began := line.Looked
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case <-tick.C:
				if line.Due() || first {
					line.Show(fmt.Sprintf("%s, %.0f s so far", what, line.Looked.Sub(began).Seconds()))
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-ended
		line.Clear()
	})
}
