package main

import (
	"fmt"
	"time"
)

// planProgress tells on stderr how far a plan is: in place on a terminal, now and
// then elsewhere.
type planProgress struct {
	app      *app
	terminal bool
	last     time.Time
	shown    bool
}

func newPlanProgress(application *app) *planProgress {
	return &planProgress{app: application, terminal: application.IsTerminal(application.Stderr), last: application.Now()}
}

// update is called from one goroutine at a time.
func (p *planProgress) update(stage string, done, all int) {
	now := p.app.Now()
	switch {
	case p.terminal && (done == all || now.Sub(p.last) >= lineEvery/50):
		fmt.Fprintf(p.app.Stderr, "\r\x1b[K%s: %d of %d", stage, done, all)
		p.shown = true
	case !p.terminal && now.Sub(p.last) >= lineEvery:
		fmt.Fprintf(p.app.Stderr, "%s: %d of %d\n", stage, done, all)
	default:
		return
	}
	p.last = now
}

// end clears the line.
func (p *planProgress) end() {
	if p.shown {
		fmt.Fprint(p.app.Stderr, "\r\x1b[K")
	}
}
