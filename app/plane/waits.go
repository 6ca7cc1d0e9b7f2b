package plane

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
)

// startWait is what a control plane waits for before its run goes on: a clause that everybody may read, and
// what stands behind it, for those who may read the status.
type startWait struct{ what, why string }

// awaits notes what the start waits for; nothing where what is empty.
func (p *Plane) awaits(what, why string) {
	if what == "" {
		p.waiting.Store(nil)
		return
	}
	p.waiting.Store(&startWait{what, why})
}

// waitText say what the start waits for, empty for nothing.
func (p *Plane) waitText() string {
	w := p.waiting.Load()
	switch {
	case w == nil:
		return ""
	case w.why == "":
		return w.what
	}
	return w.what + ": " + w.why
}

// firstVersionText say what a run waits for that is open and has not begun, empty for one that has.
func (p *Plane) firstVersionText(v live.View) string {
	if v.Began || p.currentState() != StateRunning {
		return ""
	}
	if _, there, _ := p.Published().Committed(0); !there { // with weights here, or with the sender alone
		if p.Service != nil {
			return "the service to make the adapter and save version 0"
		}
		return "the trainer to publish version 0"
	}
	var names []string
	for i, e := range p.Upstreams {
		if p.Owns(i) && e.Status().Version == loop.NoVersion && !p.AwayOf(i) {
			names = append(names, p.Cfg.Engines[i].Name)
		}
	}
	if len(names) == 0 {
		return "engines to serve version 0"
	}
	return fmt.Sprintf("%s to serve version 0: %s", report.Counted(len(names), "engine"), strings.Join(names, ", "))
}
