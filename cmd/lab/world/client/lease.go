package client

import (
	"context"
	"fmt"
	"time"
)

// renewal keeps one lease until it is stopped or lost, or kept for longer than a step may take. A server that does not
// answer is asked on and on: it may have been restarted with the lease still ours.
type renewal struct {
	transport *Transport
	path      string
	message   map[string]any
	deadline  time.Duration
	// longest bounds the time for which the lease is kept; 0 for no bound.
	longest time.Duration
	stopped *event
	// finished: this rank's share is done, and the end of the step is no loss any more.
	finished *event
	lost     *event
	ended    *event
}

// joinMost bounds how long stop waits for a renewal that is under way.
const joinMost = 5 * time.Second

func keep(ctx context.Context, t *Transport, b *Batch, message map[string]any, longest time.Duration) *renewal {
	r := &renewal{
		transport: t, path: fmt.Sprintf("/api/v1/batches/%d/renew", b.Lease), message: message,
		deadline: seconds(b.DeadlineS), longest: longest,
		stopped: newEvent(), finished: newEvent(), lost: newEvent(), ended: newEvent(),
	}
	go r.run(ctx)
	return r
}

// stop ends the renewals, and waits a little for one that is under way.
func (r *renewal) stop(ctx context.Context) {
	r.stopped.set()
	r.ended.wait(ctx, joinMost)
}

func (r *renewal) run(ctx context.Context) {
	defer r.ended.set()
	began := time.Now()
	for !r.stopped.wait(ctx, max(r.deadline/3, 20*time.Millisecond)) {
		if r.longest > 0 && time.Since(began) > r.longest {
			return
		}
		reply := struct {
			DeadlineS float64 `json:"deadline_s"`
		}{r.deadline.Seconds()}
		patience := r.deadline
		err := r.transport.post(ctx, call{
			path: r.path, message: r.message, patience: &patience, limit: max(r.deadline/3, time.Second), stop: r.stopped,
		}, &reply)
		switch {
		case err == nil:
			r.deadline = seconds(reply.DeadlineS)
		case IsKind(err, Unavailable, Busy, DiskFull, Internal):
		default:
			if isRefusal(err) && !r.stopped.isSet() && !r.finished.isSet() {
				r.lost.set()
			}
			return
		}
	}
}

// isRefusal reports an error of the package's own, not the end of a context or of the transport.
func isRefusal(err error) bool {
	_, refused := err.(*Error)
	return refused
}
