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
	p.tell(fmt.Sprintf("%s: %d of %d", stage, done, all), done == all)
}

// say tells what is being done, where nothing counts it.
func (p *planProgress) say(what string) { p.tell(what, false) }

// tell shows a line, at once where asked and else when it is time.
func (p *planProgress) tell(line string, atOnce bool) {
	now := p.app.Now()
	switch {
	case p.terminal && (atOnce || now.Sub(p.last) >= lineEvery/50):
		fmt.Fprintf(p.app.Stderr, "\r\x1b[K%s", line)
		p.shown = true
	case !p.terminal && now.Sub(p.last) >= lineEvery:
		fmt.Fprintln(p.app.Stderr, line)
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
