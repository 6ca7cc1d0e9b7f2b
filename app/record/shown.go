package record

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/steps"
)

// Shown is a live run as browsers see it. It copies the words of the run and works on them elsewhere, so that no
// viewer holds the run up. The nil Shown is of a run that is not shown.
type Shown struct {
	Model *dashboard.Model
	feed  *dashboard.Feed
	run   atomic.Pointer[live.Runtime]
	spell func([]int32) string
	std   bool
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu sync.Mutex
	// kept are the groups that are being trained on.
	kept []*keptGroup
}

// NewShown makes the model of a run that begins, or goes on; [Shown.Close] ends its work. The words of stall are for a run
// that makes no progress; nil where they are not known.
func NewShown(r *Record, name string, header trace.Header, resume *live.Resume, stall func() string) *Shown {
	v := &Shown{spell: r.Spelling(), std: r.Cfg.Trainer.NormalizeStd}
	opt := r.Around.Pages(r.Dir, name, header)
	opt.Info.Kind, opt.Info.Steps = "live", r.Cfg.Trainer.Steps
	opt.Status, opt.Stall = v.status, stall
	ctx, stop := context.WithCancel(context.Background())
	v.stop = stop
	if opt.Context = ctx; r.Cfg.Store.Trace != "full" {
		opt.Diagnose = nil
	}
	if resume != nil {
		// A copy: the run's own goes on with it.
		opt.Recorder, _ = metrics.Restore(resume.Loop.Config(), resume.Recorder.State())
		opt.Attribution = copyOf(resume)
	}
	v.Model = dashboard.New(opt)
	if p := r.Expected; p.StalenessMean != nil {
		v.Model.Expect(dashboard.Predicted{BeforeMean: p.StalenessMean, PQS: p.PQS, IQS: p.IQS, PeriodS: p.PeriodS})
	}
	for i := range r.Steps.Lines {
		v.Model.Figures(dashboard.ShownFigures(&r.Steps.Lines[i]))
	}
	if resume != nil {
		dashboard.ReadSamples(r.Dir, v.Model) // what was said before is there as far as it was written down
	}
	v.feed = dashboard.NewFeed(v.Model)
	v.done.Go(func() { v.feed.Run(ctx) })
	return v
}

// copyOf is what a resumed run's staleness is attributed by, as it is now; nil where it has none.
func copyOf(resume *live.Resume) *attribution.Observer {
	if resume.Attribution == nil {
		return nil
	}
	state, err := resume.Attribution.State()
	if err != nil {
		return nil
	}
	o, err := attribution.Restore(resume.Loop.Config(), state)
	if err != nil {
		return nil
	}
	return o
}

// Runs names the runtime, whose state is asked for from now on.
func (v *Shown) Runs(run *live.Runtime) {
	if v != nil {
		v.run.Store(run)
	}
}

// status is the loop's state now: where nothing happens, the run's time goes on.
func (v *Shown) status() (s loop.Status) {
	if run := v.run.Load(); run != nil {
		view := run.View()
		s = view.Status
		if view.Began {
			s.TimeNS = view.NowNS
		}
	}
	return s
}

// watch has a runtime's options tell the view what happens.
func (v *Shown) watch(opt *live.Options) {
	if v == nil {
		return
	}
	opt.Observe = v.feed.Observe
	onBatch, onStep := opt.OnBatch, opt.OnStep
	opt.OnBatch = func(b port.Batch) {
		v.batch(b)
		onBatch(b)
	}
	opt.OnStep = func(d live.StepDone) {
		v.trained(d)
		onStep(d)
	}
}

// batch keeps the groups of a batch for the rollout reader.
func (v *Shown) batch(b port.Batch) {
	kept := make([]*keptGroup, len(b.Groups))
	for i, g := range b.Groups {
		kept[i] = &keptGroup{group: g, from: b.Version, spell: v.spell, std: v.std}
		v.feed.Keep(kept[i].readable())
	}
	v.mu.Lock()
	v.kept = kept
	v.mu.Unlock()
}

// trained takes what the trainer said of a step.
func (v *Shown) trained(d live.StepDone) {
	v.mu.Lock()
	kept := v.kept
	v.mu.Unlock()
	for _, k := range kept {
		if k.from+1 == d.Point.Step {
			k.trained(d.Report.LogRatios)
		}
	}
}

// step takes the line of a step, evaluation and all.
func (v *Shown) step(line *steps.Line) {
	if v != nil {
		v.feed.Figures(dashboard.ShownFigures(line))
	}
}

// Close ends the work; the model still answers.
func (v *Shown) Close() {
	if v != nil {
		v.stop()
		v.done.Wait()
	}
}
