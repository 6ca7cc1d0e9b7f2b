package dashboard

import (
	"context"
	"net/http"
)

// computeQueueMax is how many answers may wait for their turn to be computed.
const computeQueueMax = 16

// computeQueue computes one answer at a time, beside a run that needs the machine itself. Those who leave while they wait
// cost nothing.
type computeQueue struct {
	turn    chan struct{}
	waiting chan struct{}
	lengths knownLengths
	// eventsMax bounds what is simulated of one schedule.
	eventsMax int64
}

func newComputeQueue() *computeQueue {
	return &computeQueue{turn: make(chan struct{}, 1), waiting: make(chan struct{}, computeQueueMax), eventsMax: scheduleEvents}
}

// do computes an answer when it is its turn.
func (w *computeQueue) do(ctx context.Context, compute func() (any, error)) (any, error) {
	select {
	case w.waiting <- struct{}{}:
		defer func() { <-w.waiting }()
	default:
		return nil, &refusal{http.StatusTooManyRequests, "busy", "others ask for as much already as can be computed: ask again in some seconds"}
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, err // both were there: it has left
	}
	return compute()
}
