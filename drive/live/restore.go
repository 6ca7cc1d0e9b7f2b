package live

import "github.com/headway-rl/headway/loop"

// Restore takes up what the process before had under way in its own cell, as far as its turns are kept
// (loop.Config.ResumeRestart). It is called before Run, and before anybody asks the environment for rollouts.
func (r *Runtime) Restore() {
	if r.opt.Resume == nil || r.l.Status().Finished == loop.ReasonSteps {
		return
	}
	under := r.l.UnderWay()
	if n := r.cell.Restore(under); n > 0 {
		r.logf("%d of %d rollouts that were under way go on from their turns", n, len(under))
	}
}
