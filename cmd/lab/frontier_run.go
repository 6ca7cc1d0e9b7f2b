package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/experiment"
)

// frontierRunner makes the live runs of the frontier, each in a folder of its own: below keep, where
// there is one, else one that is gone afterwards.
type frontierRunner struct {
	app  *app.Process
	keep string
}

// rig is the runner as the study asks for it.
func (r frontierRunner) rig() study.FrontierRig {
	return study.FrontierRig{Lengths: r.lengths, Run: r.run}
}

// folder is where a run is made, and what is done with it at the end.
func (r frontierRunner) folder(name string) (dir string, done func() error, err error) {
	if r.keep == "" {
		dir, err = os.MkdirTemp("", "headway-study-")
		return filepath.Join(dir, "run"), func() error { return os.RemoveAll(dir) }, err
	}
	dir = filepath.Join(r.keep, name)
	return dir, func() error { return nil }, os.RemoveAll(dir) // what an interrupted study left there
}

// open makes the parts of a run, with version 0 served by every engine.
func (r frontierRunner) open(ctx context.Context, document config.Config, dir string) (*run.Run, error) {
	j, err := quietJob(ctx, r.app, document, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range j.Engines {
		if err == nil {
			err = errors.Join(e.Load(ctx, 0), e.Switch(ctx, 0, false))
		}
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// lengths implements [study.FrontierRig].
func (r frontierRunner) lengths(ctx context.Context, document config.Config, groups int) (out [][]int, err error) {
	dir, done, err := r.folder("lengths")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), done()) }()
	j, err := r.open(ctx, document, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	return sampleLengths(ctx, j.Rules, j.Engines, j.Environment, groups)
}

// run implements [study.FrontierRig].
func (r frontierRunner) run(ctx context.Context, document config.Config, warmup int, foretell func(study.FrontierRates) (any, error), made func(int)) (out study.FrontierLived, err error) {
	dir, done, err := r.folder(frontierFolder(len(document.Engines), document.Seed))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, done()) }()
	j, err := r.open(ctx, document, dir)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	rates, err := r.steadyRates(ctx, j)
	if err != nil {
		return out, err
	}
	predicted, err := foretell(rates)
	if err != nil {
		return out, err
	}
	opt := j.Options(ctx, unseen{})
	opt.Header.Warmup = loop.Version(warmup)
	opt.Notes = []live.Note{{Name: trace.NotePrediction, Data: predicted}}
	opt.OnBatch = nil
	opt.OnStep = func(d live.StepDone) { made(int(d.Point.Step)) }
	running, err := live.New(opt)
	if err != nil {
		return out, err
	}
	result, err := running.Run(ctx)
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return out, err
	}
	return frontierLived(document, result, j.TakePaces()), nil
}

// probesMax is how often a run is probed on a machine that does not keep its pace, before the study gives up.
const probesMax = 5

// steadyRates probes a run until the machine keeps its devices' pace: what disturbs it may pass.
func (r frontierRunner) steadyRates(ctx context.Context, j *run.Run) (study.FrontierRates, error) {
	for probe := 1; ; probe++ {
		rates, err := probeRates(ctx, j)
		if !errors.Is(err, errPace) || probe == probesMax {
			return rates, err
		}
		fmt.Fprintf(r.app.Stderr, "%v: trying again, %d of %d\n", err, probe+1, probesMax)
	}
}

// frontierFolder names a run's folder by its split and seed.
func frontierFolder(rolloutDevices int, seed uint64) string {
	return fmt.Sprintf("%d-rollout-devices-seed-%d", rolloutDevices, seed)
}

// frontierLived sums a run up.
func frontierLived(document config.Config, res live.Result, pace parts.Paces) study.FrontierLived {
	out := study.FrontierLived{
		Summary: res.Summary, Mismatch: res.Attribution.Little.Mismatch, Closed: study.FrontierFigures{PeriodS: math.NaN(), Staleness: math.NaN()},
		Pace: study.FrontierPace{DecodeLate: pace.Decode.LateShare(), DecodeSlowdown: pace.Decode.Slowdown(),
			TrainLate: pace.Train.LateShare(), TrainSlowdown: pace.Train.Slowdown()},
	}
	measured, unfit := diagnosis.MeasuredInput(document.LoopConfig(), res.Summary)
	closed, err := experiment.ExpectUnless(unfit, measured)
	if err != nil {
		return out
	}
	if mean, ok := diagnosis.MeanOf(&closed); ok {
		out.Closed.Staleness = mean
	}
	if period := cmp.Or(experiment.Optional(closed.Corrected.Period.S), experiment.Optional(closed.Period.S)); period != nil {
		out.Closed.PeriodS = *period
	}
	return out
}
