package main

import (
	"fmt"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// ticker prints on stderr how far something long is: in place on a terminal, else a
// line now and then.
type ticker struct {
	command.StatusLine
	what string
	// from is what was done before it began.
	from  int64
	began time.Time
}

func newTicker(application *app.Process, what string, from int64) ticker {
	status := command.NewStatusLine(application)
	return ticker{StatusLine: status, what: what, from: from, began: status.Looked}
}

// update shows how much is done, unless it was shown a moment ago.
func (t *ticker) update(done, all int64) {
	due := t.Due()
	elapsed := t.Looked.Sub(t.began)
	if !due || elapsed < time.Second {
		return
	}
	line := fmt.Sprintf("%s of %s %s", report.Count(done), report.Count(all), t.what)
	if done > t.from {
		rate := float64(done-t.from) / elapsed.Seconds()
		line += fmt.Sprintf(", %s/s, %s left", perSecond(rate), report.Roughly(float64(all-done)/rate))
	}
	t.Show(line)
}

// meterOf shows on stderr how far a reading or a resimulation is.
func meterOf(application *app.Process) compare.Meter {
	return func(what string) (update func(done, all int64), clear func()) {
		show := newTicker(application, what, 0)
		return show.update, show.Clear
	}
}

// perSecond prints a rate.
func perSecond(rate float64) string {
	if rate >= 100 {
		return report.Count(int64(rate))
	}
	return report.Figure(rate, 1)
}

// stepProgress counts the train steps of one simulation. The nil stepProgress shows nothing.
type stepProgress struct {
	ticker
	all, done int64
}

// progressSteps is how many train steps pass between two looks at the clock.
const progressSteps = 32

func newStepProgress(application *app.Process) *stepProgress {
	return &stepProgress{ticker: newTicker(application, "train steps", 0)}
}

// Watch has a simulation tell its steps, beside whoever is told already.
func (p *stepProgress) Watch(cfg *sim.Config) {
	if p == nil {
		return
	}
	p.ticker = newTicker(p.App, p.what, 0)
	p.done, p.all = 0, int64(cfg.Warmup+cfg.Measured)
	stepped := cfg.Stepped
	cfg.Stepped = func(made loop.Version) {
		if p.done++; p.done%progressSteps == 0 {
			p.update(p.done, p.all)
		}
		if stepped != nil {
			stepped(made)
		}
	}
}

// Clear takes the line away.
func (p *stepProgress) Clear() {
	if p != nil {
		p.ticker.Clear()
	}
}

// gridProgress counts the simulations of a grid.
type gridProgress struct {
	ticker
	all int64
}

func (g *gridProgress) update(done int64) { g.ticker.update(done, g.all) }
