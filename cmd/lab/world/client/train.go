package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Run trains until the run has ended: RunEnded is no error. It connects, loads, and for every batch pauses for a step
// and publishes. A batch that was lost is loaded after, as examples/numpy_trainer does. It returns the number of
// versions that it made. A rank above 0 that finds itself apart from rank 0 loads as well. After an error, and in a process that starts anew, Run of a new trainer goes on from the
// version that is published.
func (t *Trainer) Run(ctx context.Context) (int, error) {
	if err := t.Connect(ctx, -1); err != nil {
		return 0, err
	}
	model, err := t.first(ctx)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop() // of what is fetched ahead
	defer t.giveBack(ctx)
	for published := 0; ; {
		batch, err := t.Lease(ctx)
		switch {
		case IsKind(err, RunEnded):
			return published, nil
		case t.rank > 0 && IsKind(err, Conflict):
			if model, err = t.Load(ctx); err != nil {
				return published, err
			}
			continue
		case err != nil:
			return published, err
		}
		batch.StampForward()
		for _, name := range t.options.Channels {
			if _, err := batch.Part(ctx, "channels", name); err != nil && !IsKind(err, Expired, Conflict) { // the publish says so, too
				return published, err
			}
		}
		changed := t.trained(model)
		if err := pause(ctx, t.options.Step); err != nil {
			return published, err
		}
		if reason := t.declines(ctx, batch); reason != "" {
			if err := t.Nack(ctx, batch, reason, false); err != nil {
				return published, err
			}
			continue
		}
		_, err = t.commit(ctx, batch, changed)
		switch {
		case err == nil:
			model, published = changed, published+1
		case IsKind(err, Expired, Conflict):
			if model, err = t.Load(ctx); err != nil {
				return published, err
			}
		default:
			return published, err
		}
	}
}

// first is the model to begin with: the newest version's, or the initial one, which it publishes as version 0.
func (t *Trainer) first(ctx context.Context) ([]Tensor, error) {
	for t.rank > 0 && t.Action == "initialize" { // that is rank 0's to do
		if err := pause(ctx, initialPause); err != nil {
			return nil, err
		}
		if err := t.Connect(ctx, -1); err != nil {
			return nil, err
		}
	}
	if t.Action != "initialize" || len(t.options.Initial) == 0 {
		return t.Load(ctx)
	}
	_, err := t.Publish(ctx, nil, t.options.Initial, nil)
	return t.options.Initial, err
}

// initialPause is how long a rank above 0 waits between two looks for version 0.
const initialPause = 200 * time.Millisecond

// declines is why a batch is handed back untrained; empty where it is not.
func (t *Trainer) declines(ctx context.Context, batch *Batch) string {
	if n := t.options.Back; n > 0 && t.rank == 0 && batch.Attempt == 1 && batch.Lease%int64(n+1) == 0 {
		return "preempted"
	}
	if t.options.Gather != nil && !t.options.Gather(ctx, batch) {
		return "a rank is missing"
	}
	return ""
}

// trained changes a model as a step does.
func (t *Trainer) trained(model []Tensor) []Tensor {
	t.transport.mu.Lock()
	draw := rand.New(rand.NewPCG(t.transport.rand.Uint64(), 0))
	t.transport.mu.Unlock()
	return trained(model, draw)
}

// commit publishes a step's model, by upload or where it lies, or acknowledges the step without it.
func (t *Trainer) commit(ctx context.Context, batch *Batch, model []Tensor) (int64, error) {
	if t.options.Acks && (batch.Version+1)%t.SyncEvery != 0 {
		batch.StampStep()
		return t.Ack(ctx, batch)
	}
	optimizer := []Tensor{Floats("steps", float32(batch.Version+1))}
	if t.options.Directory == "" {
		return t.Publish(ctx, batch, model, optimizer)
	}
	name := fmt.Sprintf("%s-v%d-%d-%d", t.name, batch.Version+1, batch.Lease, batch.Attempt)
	directory := filepath.Join(t.options.Directory, name)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return 0, err
	}
	for _, file := range []named{{modelFile, encode(model, nil)}, {optimizerFile, encode(optimizer, nil)}} {
		if err := os.WriteFile(filepath.Join(directory, file.name), file.content, 0o644); err != nil {
			return 0, err
		}
	}
	return t.PublishDirectory(ctx, batch, directory)
}

// pause returns after d, or with the context's cause.
func pause(ctx context.Context, d time.Duration) error {
	newEvent().wait(ctx, d)
	return context.Cause(ctx)
}
