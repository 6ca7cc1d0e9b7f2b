package main

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

// workshop is where a run's programs are judged: the task code, its judge, and once the run's directory
// is there the sandboxes and the record of episodes.
type workshop struct {
	task  *code.Task
	judge *code.Judge
	pool  *pool.Pool
	log   *player.Log
	// clock is the run's, nil before it runs: what is played before is no rollout of the run.
	clock atomic.Pointer[func() int64]
	say   func(format string, args ...any)
	spans *sink.Spans // nil where none are sent
}

// newWorkshop makes what needs no directory.
func newWorkshop(e config.Environment, say func(string, ...any)) (*workshop, error) {
	task, err := code.New(code.Options{Language: e.Language, OperationsMin: e.OperationsMin, OperationsMax: e.OperationsMax, Tests: e.Tests})
	if err != nil {
		return nil, failure.Usage("", "%w", err)
	}
	w := &workshop{task: task, say: say}
	w.judge = code.NewJudge(task, w, code.JudgeOptions{ProgramS: e.ProgramS, Clock: w.now, Record: w.record})
	return w, nil
}

// Lease implements [code.Boxes].
func (w *workshop) Lease(ctx context.Context, holder string) (sandbox.Box, error) {
	if w.pool == nil {
		return nil, sandbox.Fail(sandbox.BackendDown, "lease", "", "no sandboxes are open: the run has not begun, or is over")
	}
	return w.pool.Lease(ctx, holder)
}

func (w *workshop) now() int64 {
	if clock := w.clock.Load(); clock != nil {
		return (*clock)()
	}
	return 0
}

func (w *workshop) record(r episode.Record) {
	if w.clock.Load() == nil {
		return
	}
	w.spans.Episode(r)
	if err := w.log.Append(r); err != nil {
		w.say("%s: %v; records of episodes are missing from here on", player.LogName, err)
	}
}

// open makes what leaves something behind.
func (w *workshop) open(ctx context.Context, cfg config.Config, dir string) error {
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
	w.pool, err = openPool(ctx, cfg, dir, 0, w.say)
	return err
}

// Close ends what is open.
func (w *workshop) Close() error {
	var errs []error
	if w.pool != nil {
		ctx, cancel := context.WithTimeout(context.Background(), poolCloseLimit)
		defer cancel()
		errs = append(errs, w.pool.Close(ctx))
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	return errors.Join(errs...)
}

// openWorkshop opens the sandboxes of the task code, and has close end them.
func (p *parts) openWorkshop(ctx context.Context) error {
	p.onClose(p.workshop.Close)
	return p.workshop.open(ctx, p.cfg, p.dir)
}

// prepareTask makes the document's task, who judges its responses, and the environment.
func (p *parts) prepareTask(service *workload.Service, change workload.Change, prune env.Pruning) error {
	if p.cfg.Environment.Task == "code" {
		w, err := newWorkshop(p.cfg.Environment, p.logf)
		if err != nil {
			return err
		}
		p.workshop, p.task, p.verdicts = w, w.task, w.judge.Evaluate
		p.environment = env.NewJudged(w.task, w.judge, p.cfg.Seed, service, prune).WithDrift(change)
		return nil
	}
	task, err := env.New(p.cfg.Environment.Task, env.Options{LettersMin: p.cfg.Environment.LettersMin, LettersMax: p.cfg.Environment.LettersMax, Growth: p.cfg.Rollout.Drift.LengthFactor})
	if err != nil {
		return failure.Usage("", "%w", err)
	}
	p.task, p.verdicts, p.environment = task, env.Look(task), env.NewEnvironment(task, p.cfg.Seed, service, prune).WithDrift(change)
	return nil
}
