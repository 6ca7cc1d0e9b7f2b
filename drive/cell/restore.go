package cell

import (
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Restore takes up attempts that a process before this one played, as far as turns of them are kept. They stand interrupted
// until the log has them resumed. In the writer's process it is called with loop.Loop.UnderWay, before the cell follows any
// entry and anybody asks the environment for rollouts. It returns how many there are. An attempt that is not taken up fails
// when it is resumed.
func (c *Cell) Restore(attempts []loop.Action) (taken int) {
	turns, keeps := port.As[port.Turns](c.opt.Payloads)
	environment, restores := port.As[port.Restorer](c.opt.Environment)
	if !c.opt.Rules.ResumeRestart || !keeps || !restores {
		return 0
	}
	standing := map[port.RolloutID]*rollout{}
	for i := range attempts {
		a := &attempts[i]
		id := port.RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}
		if turns.KeptTurns(id) == 0 { // nobody has begun with it
			continue
		}
		p := c.newRollout(a)
		p.at, p.slot, p.state, p.going, p.restoring = -1, -1, rolloutParked, make(chan struct{}), true
		standing[id] = p
		environment.Restoring(p.task)
	}
	turns.RetainTurns(func(id port.RolloutID) bool { return standing[id] != nil })
	for _, p := range standing {
		c.running.Go(func() {
			progress := environment.Restore(p.task)
			p.side.goesOn(turns.KeptBlobs(p.task.ID), progress.Blobs)
			p.restored(progress)
			c.play(p)
		})
	}
	return len(standing)
}

// takeUp takes up what the log says stands interrupted in the cell, whose process this one replaces. Engines join behind it.
func (c *Cell) takeUp(e *Entry) {
	if c.joining && e.Event.Kind == loop.EngineJoined && c.owns(e.Event.Engine) {
		c.joining = false
		if c.opt.Joined != nil {
			c.opt.Joined()
		}
	}
	var standing []loop.Action
	for i := range e.Actions {
		if a := &e.Actions[i]; a.Kind == loop.InterruptRollout && a.Slot < 0 && c.owns(a.Engine) && !passed(a, e.Actions) {
			standing = append(standing, *a)
		}
	}
	if len(standing) > 0 {
		c.opt.Logf("cell %s: %d of %d rollouts that were under way go on from their turns", c.opt.Name, c.Restore(standing), len(standing))
	}
}

// passed reports whether actions end an attempt's group, or start another attempt of its sample.
func passed(a *loop.Action, actions []loop.Action) bool {
	return slices.ContainsFunc(actions, func(b loop.Action) bool {
		return b.Group == a.Group && (b.Kind == loop.GroupEnded || b.Kind == loop.StartRollout && b.Sample == a.Sample && b.Attempt > a.Attempt)
	})
}

// restored takes how far a rollout had come before a restart.
func (p *rollout) restored(progress port.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restoring, p.turn = false, progress.Turns
	p.sampled, p.sampledInEarlierTurns, p.firstPosted = progress.Sampled, progress.Sampled, progress.Sampled > 0
	if progress.Sampled == 0 {
		p.resumes = nil
	}
	for i := range p.resumes {
		p.resumes[i].sampled = progress.Sampled
	}
}
