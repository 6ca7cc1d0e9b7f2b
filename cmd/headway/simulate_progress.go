package main

import (
	"fmt"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/sim"
)

// stepProgress counts the train steps of one simulation on stderr, in place, for
// a person who waits for it. The nil stepProgress shows nothing.
type stepProgress struct {
	app       *app
	all, done int
	last      time.Time
	shown     bool
}

// progressSteps is how many train steps pass between two looks at the clock.
const progressSteps = 32

// newStepProgress returns nil unless stderr is a terminal.
func newStepProgress(application *app, steps config.Steps) *stepProgress {
	if !application.IsTerminal(application.Stderr) {
		return nil
	}
	return &stepProgress{app: application, all: steps.Warmup + steps.Measured, last: application.Now()}
}

// watch has a simulation tell its steps, beside whatever observes it already.
func (p *stepProgress) watch(cfg *sim.Config) {
	if p == nil {
		return
	}
	observe := cfg.Observe
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		if ev.Kind == loop.TrainStepEnded {
			p.step()
		}
		if observe != nil {
			observe(ev, generateNS, environmentNS, actions)
		}
	}
}

// step counts one; what is done within a second shows nothing.
func (p *stepProgress) step() {
	p.done++
	if p.done%progressSteps != 0 {
		return
	}
	if now := p.app.Now(); now.Sub(p.last) >= time.Second {
		fmt.Fprintf(p.app.Stderr, "\r%d of %d train steps", p.done, p.all)
		p.last, p.shown = now, true
	}
}

// end clears the line.
func (p *stepProgress) end() {
	if p != nil && p.shown {
		fmt.Fprint(p.app.Stderr, "\r\x1b[K")
	}
}
