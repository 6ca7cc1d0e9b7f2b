package run

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/forecast"
	"github.com/headway-rl/headway/store/file"
)

// Run is one run in one process: the record of its parts, and what it goes on from.
type Run struct {
	*record.Record
	store   *file.Store
	resumed *Resumed
	disk    disk
}

// New builds the parts of a run. A new run's directory is made here, with its
// resolved config; nothing before this has written anything.
func New(a *app.Process, around record.Surroundings, cfg config.Config, dir string, resumed *Resumed) (j *Run, err error) {
	j = &Run{Record: record.New(a, around), resumed: resumed, disk: disk{dir: dir, now: a.Now}}
	if j.Parts, err = parts.New(cfg, dir, parts.RunRules(cfg), j.Logf); err != nil {
		return nil, err
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
		j.store, j.Expected = resumed.Store, resumed.expected
		j.OnClose(j.store.Close)
		upTo = resumed.State.Loop.Version()
	} else {
		if j.store, err = file.Create(dir, file.Options{Always: cfg.Store.Durability == "always", Logf: j.Logf}); err != nil {
			return j, err
		}
		j.OnClose(j.store.Close)
		if err := j.WriteConfig(); err != nil {
			return j, err
		}
	}
	if err := j.OpenRecord(upTo); err != nil {
		return j, err
	}
	if j.CodeTask != nil {
		j.CodeTask.Spans = j.Spans
		if err := j.OpenCode(context.Background()); err != nil {
			return j, err
		}
	}
	return j, j.Parts.Build(parts.Host{})
}

// Predict probes the run, and puts the prediction down before the first step. The probe does what the run's pages
// do where they are shown.
func (j *Run) Predict(ctx context.Context, shown bool) error {
	if err := j.Trainer.Initialize(ctx); err != nil {
		return err
	}
	f, err := j.probe(ctx, shown)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case errors.Is(err, forecast.ErrTooShort):
		f = forecast.Forecast{Warnings: []string{err.Error()}} // a slow run needs no quick answer
	case err != nil:
		return err
	}
	j.Expected = f
	return nil
}

// Options are the live runtime's.
func (j *Run) Options(ctx context.Context, view record.View) live.Options {
	j.disk.say = view.Message
	j.LogTo(func(format string, args ...any) { view.Message(fmt.Sprintf(format, args...)) })
	var resume *live.Resume
	if j.resumed != nil {
		resume = j.resumed.State
	}
	opt := j.Record.Options(ctx, j.store, resume, view)
	opt.Notes, opt.OnDiskFull = []live.Note{{Name: trace.NotePrediction, Data: j.Expected}}, j.disk.told
	if j.CodeTask != nil {
		j.CodeTask.Clock.Store(&opt.Clock)
	}
	return opt
}
