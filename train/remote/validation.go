package remote

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/batch"
)

// PromptsMax bounds the prompts of a validation batch.
const PromptsMax = 1 << 16

// validation holds the newest validation batch. Answers are greedy: all ranks, and a
// call that is repeated because the answers took longer than it waited, get the same.
type validation struct {
	mu      sync.Mutex
	context context.Context
	stop    context.CancelFunc
	current *answers
}

// answers of the held-out prompts at one version.
type answers struct {
	version loop.Version
	prompts int
	// done is closed when batch and err are set.
	done  chan struct{}
	batch *batch.Batch
	err   error
}

func (v *validation) init() { v.context, v.stop = context.WithCancel(context.Background()) }

// validate waits for the validation batch of the newest version.
func (t *Trainer) validate(ctx context.Context, req protocol.LeaseRequest) (protocol.Body, error) {
	if t.opt.Validation == nil {
		return nil, protocol.Refuse(protocol.CodeNotFound, "this run has no held-out prompts")
	}
	if req.Prompts < 0 || req.Prompts > PromptsMax {
		return nil, protocol.Refuse(protocol.CodeInvalid, "%d prompts, want from 1 to %d, or 0 for the run's number", req.Prompts, PromptsMax)
	}
	t.mu.Lock()
	version, err := t.version, t.serving()
	if t.phase == runEnded {
		err = protocol.ErrRunEnded
	}
	if err == nil && t.session.name == req.Trainer {
		t.session.open++
		defer t.finish(req.Trainer)
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if version < 0 {
		return nil, protocol.Refuse(protocol.CodeUnavailable, "version 0 is not published yet: nothing answers")
	}
	a := t.answers(version, req.Prompts)
	timer := time.NewTimer(seconds(req.WaitS))
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if a.err != nil {
		return nil, a.err
	}
	body, err := a.batch.Share(req.Rank, max(req.WorldSize, 1), 0)
	if err != nil {
		return nil, err
	}
	return body, nil
}

// answers returns the ones of a version, and has them made if they are not yet. An error is
// not kept.
func (t *Trainer) answers(version loop.Version, prompts int) *answers {
	v := &t.greedy
	v.mu.Lock()
	defer v.mu.Unlock()
	if a := v.current; a != nil && a.prompts == prompts && (a.version == version || !a.ready()) && !a.failed() {
		return a
	}
	a := &answers{version: version, prompts: prompts, done: make(chan struct{})}
	v.current = a
	go func() {
		defer close(a.done)
		samples, err := t.opt.Validation(v.context, prompts)
		if err != nil {
			a.err = err
			if errors.Is(err, context.Canceled) {
				a.err = protocol.Refuse(protocol.CodeUnavailable, "the control plane is stopping: validate again when it is back")
			}
			return
		}
		a.batch, a.err = batch.New(greedyBatch(samples, version), batch.Options{Vocabulary: t.opt.Vocabulary, Kind: protocol.KindValidation})
	}()
	return a
}

func (a *answers) ready() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (a *answers) failed() bool { return a.ready() && a.err != nil }

// greedyBatch makes each answer a group of its own. Engines may serve a version that was published
// while they answered: the batch is of the newest that sampled a token.
func greedyBatch(samples []port.Sample, version loop.Version) port.Batch {
	oldest := make([]loop.Version, len(samples))
	for i := range samples {
		oldest[i] = loop.Version(math.MaxInt64)
		for _, v := range samples[i].Versions {
			if v != loop.NoVersion {
				version, oldest[i] = max(version, v), min(oldest[i], v)
			}
		}
	}
	b := port.Batch{Version: version}
	for i := range samples {
		b.Groups = append(b.Groups, port.Group{ID: samples[i].ID.Group, StartVersion: min(oldest[i], version), ReadyVersion: version, Rollouts: 1, Samples: samples[i : i+1]})
	}
	return b
}
