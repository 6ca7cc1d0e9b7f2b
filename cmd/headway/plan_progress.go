package main

import (
	"fmt"
	"github.com/headway-rl/headway/app"
)

// planProgress tells on stderr how far a plan is: in place on a terminal, now and
// then elsewhere.
type planProgress struct{ statusLine }

func newPlanProgress(application *app.Process) *planProgress {
	return &planProgress{newStatusLine(application)}
}

// update is called from one goroutine at a time.
func (p *planProgress) update(stage string, done, all int) {
	if p.due() || p.terminal && done == all {
		p.say(fmt.Sprintf("%s: %d of %d", stage, done, all))
	}
}
