package main

import (
	"fmt"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
)

// planProgress tells on stderr how far a plan is: in place on a terminal, now and
// then elsewhere.
type planProgress struct{ command.StatusLine }

func newPlanProgress(application *app.Process) *planProgress {
	return &planProgress{command.NewStatusLine(application)}
}

// update is called from one goroutine at a time.
func (p *planProgress) update(stage string, done, all int) {
	if p.Due() || p.Terminal && done == all {
		p.Say(fmt.Sprintf("%s: %d of %d", stage, done, all))
	}
}
