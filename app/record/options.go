package record

import (
	"context"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Options are the live runtime's: the parts of the run, the losses of engines that its document plans, and those who are
// told what happens. A nil resume begins a run. The context ends evaluations; view shows the run's progress.
func (r *Record) Options(ctx context.Context, store port.Store, resume *live.Resume, view View) live.Options {
	offset := int64(0)
	if resume != nil {
		offset = resume.Loop.Status().TimeNS
	}
	opt := live.Options{
		Header: r.Header(), Engines: r.openBeside(ctx), Environment: r.Environment, Trainer: r.Trainer, Weights: r.Published(), Store: store, Resume: resume,
		Clock: r.App.Clock(offset), Losses: r.plannedLosses(), Logf: r.Logf,
		OnStep: func(d live.StepDone) { r.onStep(ctx, d, view) },
		OnBatch: func(b port.Batch) {
			if err := r.samples.Write(b); err != nil {
				r.Logf("samples: %v", err)
			}
		},
		OnBroken:     func(bundle []byte) { r.Logf("%s", writeBroken(r.Dir, bundle)) },
		KeepVersions: r.Cfg.Store.KeepVersions, SnapshotSteps: r.Cfg.Store.SnapshotEvery,
	}
	opt.Cells = r.Cfg.Cells()
	if r.Scorer != nil {
		opt.Scorer = r.Scorer
	}
	r.WithFleet(&opt)
	r.Shown.watch(&opt)
	r.watchSpans(&opt)
	return opt
}

// plannedLosses are the losses of engines that the document plans.
func (r *Record) plannedLosses() (losses []live.EngineLoss) {
	for _, l := range r.Cfg.Failures.EnginePlan {
		engine := slices.IndexFunc(r.Cfg.Engines, func(e config.Engine) bool { return e.Name == l.Engine })
		losses = append(losses, live.EngineLoss{Engine: engine, AtNS: config.Nanoseconds(l.AtS), DownNS: config.Nanoseconds(l.DownS),
			AtStep: loop.Version(l.AtStep), BackStep: loop.Version(l.BackStep)})
	}
	return losses
}
