package timeline

import "github.com/headway-rl/headway/loop"

// queue follows which groups are ready and wait, from the notices about them.
type queue struct {
	ready  map[loop.GroupID]struct{} // counted and looked up, never walked through
	leased []loop.GroupID
	lease  loop.LeaseID
	from   loop.Version // that the lease's step starts from
	replay bool         // trained groups go back
}

// event gives back the groups of a lease that ended without a version.
func (q *queue) event(ev *loop.Event) {
	switch ev.Kind {
	case loop.TrainStepFailed, loop.LeaseReturned:
		if ev.Lease == q.lease {
			q.giveBack()
		}
	case loop.TrainerRestored:
		if ev.Version == q.from+1 {
			q.giveBack()
		}
	case loop.TrainStepEnded:
		q.leased = q.leased[:0]
	}
}

func (q *queue) giveBack() {
	for _, g := range q.leased {
		q.ready[g] = struct{}{}
	}
	q.leased = q.leased[:0]
}

// action follows one notice.
func (q *queue) action(a *loop.Action) {
	switch a.Kind {
	case loop.GroupQueued:
		q.ready[a.Group] = struct{}{}
	case loop.GroupLeased:
		delete(q.ready, a.Group)
		q.leased, q.lease, q.from = append(q.leased, a.Group), a.Lease, a.Version
	case loop.GroupTrained:
		if q.replay {
			q.ready[a.Group] = struct{}{}
		}
	case loop.GroupEnded:
		delete(q.ready, a.Group)
	}
}
