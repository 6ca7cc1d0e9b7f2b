package live

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// render puts the actions that are due into the append of their events. Who reads the log so knows what is to be executed
// as soon as it is decided, and no event is in it without what follows.
func (r *Runtime) render() {
	for i := range r.entries {
		e := &r.entries[i]
		for _, a := range e.Actions {
			r.lines = r.enc.AppendAction(r.lines, e.Seq, a)
		}
	}
}

// release executes what is in the log, here and in the cell. A snapshot that is due is taken when all has been.
func (r *Runtime) release() error {
	for i := range r.entries {
		e := &r.entries[i]
		r.watchSlot(&e.Event) // behind the starts of entries before it
		if k := e.Event.Kind; k == loop.EngineLost || k == loop.SyncFailed && r.l.Lost(int(e.Event.Engine)) {
			r.letGo(e.Event.Engine)
		}
		for _, a := range e.Actions {
			if err := r.execute(a); err != nil {
				return err
			}
		}
		if err := r.cell.Follow(e); err != nil {
			return err
		}
	}
	r.entries, r.decided = r.entries[:0], r.decided[:0]
	if err := r.snapshotIfDue(); err != nil {
		return err
	}
	r.publishIfDue()
	return r.checkProgress()
}

// execute does the runtime's own part in an action.
func (r *Runtime) execute(a loop.Action) error {
	switch a.Kind {
	case loop.StartRollout:
		r.started.start(a, r.clock())
		r.outstanding++
	case loop.ResumeRollout:
		r.started.resume(a)
		r.outstanding++
	case loop.AbortRollout:
		r.started.abort(a)
	case loop.GroupLeased:
		r.lease = append(r.lease, port.Group{ID: a.Group, StartVersion: a.StartVersion, ReadyVersion: a.ReadyVersion, Rollouts: int(a.Count),
			Counted: r.counted.groups[a.Group]})
	case loop.StartTrainStep:
		groups := r.lease
		r.lease, r.training = nil, true
		r.ends.reset()
		r.effect(func() completion { return r.train(a, groups) })
	case loop.LoadWeights, loop.SwitchWeights:
		r.outstanding++
	case loop.AcquireEngine:
		r.engines[a.Engine] = quarantine{due: loop.NoTick, planned: r.engines[a.Engine].planned} // it was lost as it left
		r.acquire(a)
	case loop.ReleaseEngine:
		return r.executeRelease(a.Engine)
	case loop.GroupTrained:
		if r.cfg.Policy != loop.PolicyReplay { // there it may be trained on again
			r.started.endGroup(a.Group)
		}
	case loop.GroupEnded:
		r.started.endGroup(a.Group)
	case loop.SyncCompleted:
		r.afterSync(a.Version)
	}
	return nil
}

// effect runs f beside the loop and posts what it ends with.
func (r *Runtime) effect(f func() completion) {
	r.outstanding++
	r.wg.Go(func() {
		c := f()
		c.event.Time = r.clock()
		r.post(c)
	})
}

// afterSync prunes versions and has a snapshot taken now and then.
func (r *Runtime) afterSync(v loop.Version) {
	if keepFrom := v - loop.Version(r.opt.KeepVersions); keepFrom > 0 {
		if err := r.opt.Weights.Prune(keepFrom); err != nil {
			r.logf("pruning versions below %d: %v", keepFrom, err)
		}
	}
	if v-r.snapshotAt >= loop.Version(r.opt.SnapshotSteps) {
		r.snapshotAt, r.snapshotDue = v, true
	}
}

// train makes one step, or finds that it had been made before this process began.
func (r *Runtime) train(a loop.Action, groups []port.Group) completion {
	ev := loop.Event{Lease: a.Lease, Attempt: a.Attempt}
	failed := func(err error) completion {
		ev.Kind, ev.Reason = loop.TrainStepFailed, loop.ReasonTrainer
		return completion{event: ev, err: err}
	}
	began := r.clock()
	if a.Attempt > 1 {
		if done, made := r.made(a); made {
			return done
		}
	}
	batch := port.Batch{Lease: a.Lease, Attempt: a.Attempt, Version: a.Version, Groups: groups}
	for i := range batch.Groups {
		if err := fetch(&batch.Groups[i], r.opt.Store); err != nil {
			return failed(err)
		}
	}
	if r.opt.OnBatch != nil {
		r.opt.OnBatch(batch)
	}
	var report port.StepReport
	err := r.space.Write(r.ctx, r.stop, func() (err error) {
		report, err = r.opt.Trainer.Train(r.ctx, batch)
		return err
	})
	if errors.Is(err, cell.ErrStopped) { // the step is made again by a resume: it has not failed
		return completion{fatal: fmt.Errorf("live: the version of the train step cannot be written: %w", err)}
	}
	if errors.Is(err, port.ErrLeaseReturned) {
		ev.Kind, ev.Reason = loop.LeaseReturned, loop.ReasonTrainer
		return completion{event: ev, err: err}
	}
	if err != nil {
		if done, made := r.made(a); made {
			return done
		}
		return failed(err)
	}
	ev.Kind, ev.Version = loop.TrainStepEnded, a.Version+1
	step := &trace.Step{Lease: a.Lease, Tokens: report.Tokens, NS: r.clock() - began}
	return completion{event: ev, step: step, report: &report}
}

// made returns the end of a step whose version is published: by a process before this one, or though Train has failed. It is
// made whatever comes: where the trainer cannot be taken there, the run ends, and a resume tries again.
func (r *Runtime) made(a loop.Action) (c completion, made bool) {
	lease, there, err := r.opt.Weights.Committed(a.Version + 1)
	if err == nil && (!there || lease != a.Lease) {
		return completion{}, false
	}
	if err == nil {
		err = r.opt.Trainer.Restore(r.ctx, a.Version+1, 0)
	}
	if err != nil {
		return completion{fatal: fmt.Errorf("live: version %d of the train step that was under way: %w", a.Version+1, err)}, true
	}
	return completion{event: loop.Event{Kind: loop.TrainStepEnded, Lease: a.Lease, Attempt: a.Attempt, Version: a.Version + 1}}, true
}

// fetch fills in a group's samples: the payloads of the attempts that the loop
// has counted, whatever else the store holds of the group.
func fetch(g *port.Group, store port.Store) error {
	stored, err := store.Samples(g.ID)
	if err != nil {
		return err
	}
	g.Samples = make([]port.Sample, 0, g.Rollouts)
	for i := range stored {
		if slices.Contains(g.Counted, stored[i].ID) {
			g.Samples = append(g.Samples, stored[i])
		}
	}
	if len(g.Samples) != g.Rollouts {
		return fmt.Errorf("live: the store has %d payloads of group %d, and of its %d scored rollouts %v only %d: want them all",
			len(stored), g.ID, g.Rollouts, g.Counted, len(g.Samples))
	}
	return nil
}
