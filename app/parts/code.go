package parts

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"

	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/env/code"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
)

// goPackages is the directory of a run with the compiled packages that programs in Go import.
const goPackages = "go-packages"

// CodeTask is the task code with its scorer. Once the run's directory is there it has the sandboxes that programs are
// judged in, and the record of episodes.
type CodeTask struct {
	task  *code.Task
	judge *code.Scorer
	Pool  *pool.Pool
	log   *player.Log
	// Clock is the run's, nil before it runs. Episodes before that are of no rollout and are not recorded.
	Clock atomic.Pointer[func() int64]
	Logf  func(format string, args ...any)
	Spans sink.Spans // nil where none are sent
}

// newCodeTask makes what needs no directory.
func newCodeTask(e config.Environment, logf func(string, ...any)) (*CodeTask, error) {
	task, err := code.New(code.Options{Language: e.Language, OperationsMin: e.OperationsMin, OperationsMax: e.OperationsMax, Tests: e.Tests})
	if err != nil {
		return nil, failure.Usage("", "%w", err)
	}
	w := &CodeTask{task: task, Logf: logf}
	w.judge = code.NewScorer(task, w, code.ScorerOptions{ProgramS: e.ProgramS, Clock: w.now, Record: w.record})
	return w, nil
}

// Lease implements [code.Boxes].
func (w *CodeTask) Lease(ctx context.Context, holder string) (sandbox.Box, error) {
	if w.Pool == nil {
		return nil, sandbox.Fail(sandbox.BackendDown, "lease", "", "no sandboxes are open: the run has not begun, or is over")
	}
	return w.Pool.Lease(ctx, holder)
}

func (w *CodeTask) now() int64 {
	if clock := w.Clock.Load(); clock != nil {
		return (*clock)()
	}
	return 0
}

func (w *CodeTask) record(r episode.Record) {
	if w.Clock.Load() == nil {
		return
	}
	if w.Spans != nil {
		w.Spans.Episode(r)
	}
	if err := w.log.Append(r); err != nil {
		w.Logf("%s: %v; records of episodes are missing from here on", player.LogName, err)
	}
}

// open makes what leaves something behind.
func (w *CodeTask) open(ctx context.Context, cfg config.Config, dir string) error {
	if w.task.Language() == code.Go {
		whole, err := filepath.Abs(filepath.Join(dir, goPackages))
		if err != nil {
			return err
		}
		mounts, err := code.PrepareGo(ctx, whole)
		if err != nil {
			return failure.Usage("install Go, or set environment.language to python", "%w", err)
		}
		for _, m := range mounts {
			cfg.Sandbox.Mounts = append(cfg.Sandbox.Mounts, config.SandboxMount{Host: m.Host, Box: m.Box})
		}
	}
	var err error
	if w.log, err = player.OpenLog(dir); err != nil {
		return err
	}
	w.Pool, err = OpenPool(ctx, cfg, dir, 0, w.Logf)
	return err
}

// Close ends what is open.
func (w *CodeTask) Close() error {
	var errs []error
	if w.Pool != nil {
		ctx, cancel := context.WithTimeout(context.Background(), PoolCloseLimit)
		defer cancel()
		errs = append(errs, w.Pool.Close(ctx))
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	return errors.Join(errs...)
}

// OpenCode opens the sandboxes of the task code, and has close end them.
func (p *Parts) OpenCode(ctx context.Context) error {
	p.OnClose(p.CodeTask.Close)
	return p.CodeTask.open(ctx, p.Cfg, p.Dir)
}

// prepareTask makes the document's task, who judges its responses, and the environment.
func (p *Parts) prepareTask(service *workload.Times, change workload.Change, prune env.Pruning) error {
	if p.Cfg.Environment.Task == "code" {
		w, err := newCodeTask(p.Cfg.Environment, p.logf)
		if err != nil {
			return err
		}
		p.CodeTask, p.Task, p.Verdicts = w, w.task, w.judge.Evaluate
		p.Environment = env.NewScored(w.task, w.judge, p.Cfg.Seed, service, prune).WithDrift(change)
		return nil
	}
	task, err := env.New(p.Cfg.Environment.Task, env.Options{LettersMin: p.Cfg.Environment.LettersMin, LettersMax: p.Cfg.Environment.LettersMax, Growth: p.Cfg.Rollout.Drift.LengthFactor})
	if err != nil {
		return failure.Usage("", "%w", err)
	}
	p.Task, p.Verdicts, p.Environment = task, env.Look(task), env.NewSingleTurn(task, p.Cfg.Seed, service, prune).WithDrift(change)
	return nil
}
