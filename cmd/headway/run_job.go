package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/store/file"
)

// job is one run in one process: the record of its parts, and what it goes on from.
type job struct {
	*record
	store   *file.Store
	resumed *resumedRun
	// disk says when the run waits for room.
	disk runDisk
}

// newJob builds the parts of a run. A new run's directory is made here, with its
// resolved config; nothing before this has written anything.
func newJob(a *app.Process, around surroundings, cfg config.Config, dir string, resumed *resumedRun) (j *job, err error) {
	j = &job{record: newRecord(a, around), resumed: resumed, disk: runDisk{dir: dir, now: a.Now}}
	if j.Parts, err = parts.New(cfg, dir, parts.RunRules(cfg), j.tell); err != nil {
		return nil, err
	}
	if j.CodeTask != nil { // before there is a directory
		if _, err := parts.UsableDriver(context.Background(), cfg); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
			if resumed == nil && j.store != nil { // nothing has begun: leave no directory that neither starts nor resumes
				err = errors.Join(err, os.RemoveAll(dir))
			}
		}
	}()
	upTo := loop.Version(0)
	if resumed != nil {
		j.store, j.expected = resumed.store, resumed.expected
		j.OnClose(j.store.Close)
		upTo = resumed.state.Loop.Version()
	} else {
		if j.store, err = file.Create(dir, file.Options{Always: cfg.Store.Sync == "always"}); err != nil {
			return j, err
		}
		j.OnClose(j.store.Close)
		if err := j.WriteConfig(); err != nil {
			return j, err
		}
	}
	if err := j.openRecord(upTo); err != nil {
		return j, err
	}
	if j.CodeTask != nil {
		j.CodeTask.Spans = j.spans
		if err := j.OpenCode(context.Background()); err != nil {
			return j, err
		}
	}
	return j, j.Parts.Build(parts.Host{})
}

// predict calibrates and puts the prediction down before the first step.
func (j *job) predict(ctx context.Context) error {
	if err := j.Trainer.Initialize(ctx); err != nil {
		return err
	}
	if err := j.serveFirst(ctx); err != nil {
		return err
	}
	scratch, done, err := j.ScratchTrainer(ctx)
	if err != nil {
		return err
	}
	defer done()
	c, err := calibrate(ctx, j.Rules, j.Engines, j.Environment, scratch, j.app.Now)
	j.TakePaces() // the probe's are not the run's
	for _, e := range j.Engines {
		if timed, ok := port.As[port.Timed](e); ok {
			timed.TakeDecodeTimes() // neither are these
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case errors.Is(err, errProbeSlow):
		j.expected = experiment.Forecast{Warnings: []string{err.Error()}} // a slow run needs no quick answer
		return nil
	case err != nil:
		return err
	}
	j.expected, err = experiment.ForecastRun(j.Cfg, c)
	return err
}

// serveFirst has every engine serve version 0. The probe is of all engines; the run begins with those it wants, and
// says itself when one is there.
func (j *job) serveFirst(ctx context.Context) error {
	j.tellBy(func(string, ...any) {})
	defer j.tellBy(nil)
	for i, e := range j.Engines {
		if j.Fleet != nil {
			if err := j.Fleet.Acquire(ctx, i); err != nil {
				return err
			}
		}
		if err := errors.Join(e.Load(ctx, 0), e.Switch(ctx, 0, false)); err != nil {
			return err
		}
	}
	return nil
}

// options are the live runtime's.
func (j *job) options(ctx context.Context, view view) live.Options {
	offset := int64(0)
	j.disk.say = view.Message
	opt := live.Options{
		Header: j.header(), Engines: j.Engines, Environment: j.Environment, Trainer: j.Trainer, Weights: j.Weights, Store: j.store,
		Notes: []live.Note{{Name: trace.NotePrediction, Data: j.expected}}, Losses: plannedLosses(j.Cfg),
		OnStep: func(d live.StepDone) { j.onStep(ctx, d, view) },
		OnBatch: func(b port.Batch) {
			if err := j.samples.write(b); err != nil {
				view.Message("samples: " + err.Error())
			}
		},
		OnBroken:   func(bundle []byte) { view.Message(writeBroken(j.Dir, bundle)) },
		OnDiskFull: j.disk.told,
		Logf:       func(format string, args ...any) { view.Message(fmt.Sprintf(format, args...)) },

		KeepVersions: j.Cfg.Store.KeepVersions, SnapshotSteps: j.Cfg.Store.SnapshotEvery,
	}
	if j.resumed != nil {
		opt.Resume = j.resumed.state
		offset = opt.Resume.Loop.Status().TimeNS
	}
	opt.Clock = j.app.Clock(offset)
	j.WithFleet(&opt)
	j.tellBy(opt.Logf)
	j.shown.watch(&opt)
	j.watchSpans(&opt)
	if j.CodeTask != nil {
		j.CodeTask.Clock.Store(&opt.Clock)
	}
	return opt
}
