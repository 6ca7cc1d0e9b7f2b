package main

import (
	"fmt"
	"github.com/headway-rl/headway/app"
	"time"
)

// statusLine is one line on stderr about how far something long is: written over in place on a terminal, elsewhere a
// line now and then.
type statusLine struct {
	app      *app.Process
	terminal bool
	// looked is when the clock was last looked at, last when a line was last shown.
	looked, last time.Time
	shown        bool
}

func newStatusLine(application *app.Process) statusLine {
	now := application.Now()
	return statusLine{app: application, terminal: application.IsTerminal(application.Stderr), looked: now, last: now}
}

// due looks at the clock, and reports whether enough time has passed since the last line.
func (s *statusLine) due() bool {
	every := lineEvery
	if s.terminal {
		every = lineEvery / 50
	}
	s.looked = s.app.Now()
	return s.looked.Sub(s.last) >= every
}

// say shows a text without an end of line, found due or not.
func (s *statusLine) say(text string) {
	s.last = s.looked
	if s.terminal {
		fmt.Fprintf(s.app.Stderr, "\r%s\x1b[K", text)
		s.shown = true
		return
	}
	fmt.Fprintln(s.app.Stderr, text)
}

// clear takes a terminal's line away.
func (s *statusLine) clear() {
	if s.shown {
		fmt.Fprint(s.app.Stderr, "\r\x1b[K")
	}
	s.shown = false
}
