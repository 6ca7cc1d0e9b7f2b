package player

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/internal/pause"
)

// Rollouts is where rollouts are claimed: the words of workers elsewhere, and notes for the players of the next process.
type Rollouts interface {
	Claim(ctx context.Context, req protocol.ClaimRequest) (protocol.Claims, error)
	Touch(ctx context.Context, id string, req protocol.TouchRequest) (protocol.TouchReply, error)
	Finish(ctx context.Context, id string, req protocol.FinishRequest) (protocol.FinishReply, error)
	// Note has a note be kept with the next turn, Notes returns those that were kept before a restart, one a turn. A rollout that
	// has some is played again: each turn is answered as before. Forsake ends one with which that fails.
	Note(id string, note json.RawMessage)
	Notes(id string) []json.RawMessage
	Forsake(id string, why error)
}

// Options of players. All but those that say so are needed.
type Options struct {
	Rollouts Rollouts
	// Gateway answers OpenAI's paths for rollouts that the header protocol.RolloutHeader names.
	Gateway http.Handler
	// Name is what the workers call themselves, all the same.
	Name string
	// Workers is the number of rollouts played at once.
	Workers int
	// Task is the task of a claim. All claims of a group have to get the same. It is asked again after an error that wraps
	// taskset.ErrUnwritten; any other is of the task.
	Task func(claim protocol.Claim) (*taskset.Task, error)
	// World makes what a rollout acts on, nil for nothing. The context is that of the rollout.
	World func(ctx context.Context, claim protocol.Claim, task *taskset.Task) (episode.World, error)
	// Verifier gives verdicts; nil where the world's own rewards are all there is.
	Verifier verifier.Verifier
	// TurnsMax and Timeout bound a rollout; a task may say less.
	TurnsMax int
	Timeout  time.Duration
	// FailOn are the limits of a sandbox that end an attempt as failed once its code met them. With all others the
	// attempt is judged as it is. It may be nil.
	FailOn map[sandbox.Class]bool
	// Clock is nanoseconds since the run's start, by the run's clock.
	Clock func() int64
	// Record takes a record of every attempt that ended here, from every worker. It may be nil.
	Record func(episode.Record)
	// Ended takes every attempt at a task that was judged or failed, not those that were given up, from every worker.
	// It may be nil.
	Ended func(attempt Attempt)
	// Logf takes what an operator should know, from every worker, and never a prompt or a response. It may be nil.
	Logf func(format string, args ...any)
}

// Attempt is what became of a rollout attempt at a task.
type Attempt struct {
	Task   *taskset.Task
	Record episode.Record
	// Evaluation: the task is one of those kept for evaluation.
	Evaluation bool
	// Exact: it was wholly right. Version is the newest policy version that spoke, 0 for none.
	Exact   bool
	Version int64
}

// How players deal with a control plane that cannot answer.
const (
	claimWaitS   = 30
	claimPause   = time.Second
	closeTimeout = 30 * time.Second
	// touchesPerClaim is how often a claim is kept within the time that it lasts.
	touchesPerClaim = 3
)

// Players are workers inside the control plane.
type Players struct {
	opt     Options
	playing atomic.Int64
}

// New returns players that do nothing before Run.
func New(o Options) (*Players, error) {
	switch {
	case o.Rollouts == nil || o.Gateway == nil || o.Task == nil || o.World == nil || o.Clock == nil:
		return nil, errors.New("player: Rollouts, Gateway, Task, World and Clock are all needed")
	case o.Workers < 1 || o.TurnsMax < 1 || o.Timeout <= 0:
		return nil, errors.New("player: Workers and TurnsMax want at least 1, and Timeout more than 0")
	}
	if err := protocol.CheckName(o.Name); err != nil {
		return nil, err
	}
	if o.Record == nil {
		o.Record = func(episode.Record) {}
	}
	if o.Ended == nil {
		o.Ended = func(Attempt) {}
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return &Players{opt: o}, nil
}

// Run plays until the run has ended, no more may be claimed and all claimed rollouts are finished, or until ctx ends.
// When ctx ends, a rollout under way is given up, and its world closed.
func (p *Players) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range p.opt.Workers {
		workers.Go(func() { p.work(ctx) })
	}
	workers.Wait()
}

// Playing is the number of rollouts under way.
func (p *Players) Playing() int64 { return p.playing.Load() }

// work is one worker: it plays one rollout after the other.
func (p *Players) work(ctx context.Context) {
	for ctx.Err() == nil {
		claims, err := p.opt.Rollouts.Claim(ctx, protocol.ClaimRequest{Worker: p.opt.Name, Max: 1, WaitS: claimWaitS})
		switch {
		case err == nil:
			for _, claim := range claims.Rollouts {
				p.play(ctx, claim)
			}
		case ctx.Err() != nil || errors.Is(err, protocol.ErrRunEnded) || protocol.RefusalOf(err).Code == protocol.CodeUnavailable:
			return
		default:
			p.opt.Logf("players: %v", err)
			if pause.For(ctx, claimPause) != nil {
				return
			}
		}
	}
}

// keep keeps a claim until the context ends, and ends it when the rollout is no longer wanted.
func (p *Players) keep(ctx context.Context, claim protocol.Claim, end context.CancelCauseFunc) {
	every := time.Duration(claim.DeadlineS * float64(time.Second) / touchesPerClaim)
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		reply, err := p.opt.Rollouts.Touch(ctx, claim.ID, protocol.TouchRequest{Worker: p.opt.Name})
		if err != nil {
			end(over(protocol.RefusalOf(err)))
			return
		}
		if !reply.Wanted {
			end(errUnwanted)
			return
		}
	}
}
