package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/forecast"
	"github.com/headway-rl/headway/store/file"
)

// A probe goes on until it has measured for so long and has made so many train steps, in which an evaluation falls at
// the default setting. Where steps are slow, fewer of them are enough after a longer time. It is no longer than the run
// itself, or than its limit.
const (
	probeSteps, probeMin      = 50, time.Second
	probeFewSteps, probeFewIn = 20, 3 * time.Second
	probeMax                  = 8 * time.Second
)

// probing is a short run of the same document, with all that a run does beside its steps: same loop, same contention.
type probing struct {
	*record.Record
	began   time.Time
	warmup  loop.Version
	most    loop.Version
	periods []float64
	stop    func()
}

// probe runs the document for a moment in a directory that is thrown away, and returns what it measured.
func (j *Run) probe(ctx context.Context, shown bool) (f forecast.Forecast, err error) {
	dir, err := os.MkdirTemp(j.Dir, "probe-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &probing{Record: record.New(j.App, j.Around), warmup: settles(j.Cfg), most: loop.Version(j.Cfg.Trainer.Steps)}
	if r.Parts, err = j.Parts.Probe(ctx, dir); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	store, err := file.Create(dir, file.Options{Always: j.Cfg.Store.Durability == "always"})
	if err != nil {
		return f, err
	}
	r.OnClose(store.Close)
	if err := r.OpenRecord(0); err != nil {
		return f, err
	}
	if shown {
		r.Shown = record.NewShown(r.Record, filepath.Base(dir), r.Header(), nil, nil)
		defer r.Shown.Close()
	}
	return r.run(ctx, store)
}

// settles is how many train steps pass before a probe measures: all that may be under way goes round twice.
func settles(cfg config.Config) loop.Version {
	rounds := 2 + cfg.QueueGroups()/max(cfg.BatchGroups(), 1) + cfg.Rollout.Concurrency/max(cfg.Train.Batch, 1)
	return loop.Version(min(2*rounds+2, cfg.Trainer.Steps/2))
}

// run runs the probe to its end.
func (r *probing) run(ctx context.Context, store *file.Store) (forecast.Forecast, error) {
	inner, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	opt := r.Options(inner, store, nil, unseen{})
	opt.Header.Warmup, opt.Losses = r.warmup, nil
	opt.Logf = func(string, ...any) {}
	onStep := opt.OnStep
	opt.OnStep = func(d live.StepDone) {
		onStep(d)
		r.stepped(d)
	}
	running, err := live.New(opt)
	if err != nil {
		return forecast.Forecast{}, err
	}
	r.Shown.Runs(running)
	r.began, r.stop = r.App.Now(), running.Stop
	result, err := running.Run(inner)
	r.WaitEvaluations()
	if err != nil && inner.Err() == nil && !errors.Is(err, live.ErrStalled) { // a stall is the run's to explain
		return forecast.Forecast{}, err
	}
	return forecast.New(result.Summary, r.periods)
}

// stepped takes a train step, and ends the probe after the last.
func (r *probing) stepped(d live.StepDone) {
	if d.Point.Step <= r.warmup {
		r.began = r.App.Now()
		return
	}
	r.periods = append(r.periods, float64(d.Point.PeriodNS)/1e9)
	if d.Point.Step >= r.most || enough(d.Point.Step, len(r.periods), r.App.Now().Sub(r.began)) {
		r.stop()
	}
}

// enough reports whether a probe may end after a train step, having measured so many for so long.
func enough(step loop.Version, measured int, span time.Duration) bool {
	return step >= probeSteps && span >= probeMin || measured >= probeFewSteps && span >= probeFewIn
}

// unseen shows nothing.
type unseen struct{}

func (unseen) Update(record.Progress) {}
func (unseen) Message(string)         {}
