package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/weights"
)

// configFile is the resolved config's name in a run directory, for people and other tools.
const configFile = "config.yaml"

// job is one run in one directory: its parts and what is kept for its report.
type job struct {
	app   *app.Process
	cfg   config.Config
	dir   string
	began time.Time
	rules loop.Config
	// task and heldOut are of embedded engines, policy of engines that are servers: the others are nil.
	task     env.Problems
	verdicts env.Verdicts
	heldOut  []env.Problem
	policy   *servedModel
	// change is what becomes of the task and the train step over a run of embedded engines.
	change workload.Change
	// workshop is of the task code, nil else.
	workshop *workshop

	environment port.Environment
	engines     []port.Engine
	trainer     port.Trainer
	greedy      greedyEngine
	// fleet starts and stops engines; nil where they are all there by themselves.
	fleet   *fleet.Fleet
	weights *weights.Store
	store   *file.Store
	resumed *resumedRun

	// shown is the run as browsers see it, nil where none may.
	shown *shownRun
	// disk says when the run waits for room.
	disk  runDisk
	steps *stepLog
	// sinks take every train step's figures to where others are, nil where there are none; well is how the
	// run ended, saying where what is told goes.
	sinks       *sink.Feed
	spans       *sink.Spans
	well        bool
	saying      atomic.Pointer[func(format string, args ...any)]
	samples     *sampleWriter
	evaluations evaluator
	expected    prediction
	resimulated *metrics.Summary
}

// greedyEngine answers prompts under a published version.
type greedyEngine interface {
	Greedy(ctx context.Context, v loop.Version, prompts [][]int32, maxTokens int) ([][]int32, error)
}

// newJob builds the parts of a run. A new run's directory is made here, with its
// resolved config; nothing before this has written anything.
func newJob(a *app.Process, cfg config.Config, dir string, resumed *resumedRun) (j *job, err error) {
	j = &job{app: a, cfg: cfg, dir: dir, began: a.Now(), rules: runRules(cfg), resumed: resumed, disk: runDisk{dir: dir, now: a.Now}}
	if err := j.prepare(); err != nil {
		return nil, err
	}
	if j.workshop != nil { // before there is a directory
		if _, err := usableDriver(context.Background(), cfg); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.close())
			if resumed == nil && j.store != nil { // nothing has begun: leave no directory that neither starts nor resumes
				err = errors.Join(err, os.RemoveAll(dir))
			}
		}
	}()
	upTo := loop.Version(0)
	if resumed != nil {
		j.store, j.expected = resumed.store, resumed.expected
		upTo = resumed.state.Loop.Version()
	} else {
		if j.store, err = file.Create(dir, file.Options{Always: cfg.Store.Sync == "always"}); err != nil {
			return j, err
		}
		if err := j.writeConfig(); err != nil {
			return j, err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "samples"), 0o755); err != nil {
		return j, err
	}
	j.samples = &sampleWriter{dir: filepath.Join(dir, "samples"), every: cfg.Store.SamplesEvery, spell: j.spelling(), std: cfg.Trainer.NormalizeStd}
	if j.steps, err = openStepLog(dir, upTo); err != nil {
		return j, err
	}
	if err = j.openSinks(); err != nil {
		return j, err
	}
	if j.weights, err = weights.Open(filepath.Join(dir, "weights"), weights.Options{Always: cfg.Store.Sync == "always"}); err != nil {
		return j, err
	}
	if j.workshop != nil {
		j.workshop.spans = j.spans
		if err := j.workshop.open(context.Background(), cfg, dir); err != nil {
			return j, err
		}
	}
	return j, j.build()
}

// runRules are the loop's rules of a run, which ends by its train steps.
func runRules(cfg config.Config) loop.Config {
	rules := cfg.LoopConfig()
	rules.TrainSteps = loop.Version(cfg.Trainer.Steps)
	return rules
}

// prepare makes what needs no directory, so that a bad task leaves none behind.
func (j *job) prepare() error {
	if j.cfg.External() {
		if err := refuseRehearsal(j.cfg); err != nil {
			return err
		}
		if j.cfg.Tinker() {
			return j.prepareHosted()
		}
		return j.prepareServed()
	}
	service, err := j.cfg.ServiceModel()
	if err != nil {
		return err
	}
	prune := env.Pruning{Tokens: j.cfg.Rollout.Prune.Tokens, Failed: j.cfg.Rollout.Prune.Check == "task"}
	if j.change, err = j.cfg.RunChange(); err != nil {
		return err
	}
	if err := j.prepareTask(service, j.change, prune); err != nil {
		return err
	}
	task := j.task
	if err := refuseDrift(j.cfg, task); err != nil {
		return err
	}
	limits := task.Limits()
	if need := limits.PromptTokens + limits.ResponseTokens; need > j.cfg.Model.Context {
		return failure.Usage(fmt.Sprintf("set model.context to at least %d", need),
			"model.context is %d tokens, but %s needs %d for a prompt and %d for its response", j.cfg.Model.Context, task.Name(), limits.PromptTokens, limits.ResponseTokens)
	}
	if j.heldOut, err = env.HeldOutProblems(task, j.cfg.Environment.HeldOut); err != nil {
		return failure.Usage("lower environment.held_out", "%w", err)
	}
	if j.cfg.Evaluate.Prompts > j.cfg.Environment.HeldOut { // which a simulation's may be
		return j.cfg.Refuse("evaluate.prompts", fmt.Sprintf("is above environment.held_out (%d)", j.cfg.Environment.HeldOut), fmt.Sprintf("at most %d", j.cfg.Environment.HeldOut))
	}
	if levels := j.cfg.Filter.Curriculum.Levels; levels > task.Levels() {
		return j.cfg.Refuse("filter.curriculum.levels", fmt.Sprintf("levels are more than %s has", task.Name()), fmt.Sprintf("at most %d, or another task", task.Levels()))
	}
	if _, checks := task.(env.Checker); prune.Failed && !checks {
		return j.cfg.Refuse("rollout.prune.check", fmt.Sprintf("is not possible: %s cannot tell early that an answer will be wrong", task.Name()), "none, or another task")
	}
	return nil
}

func (j *job) writeConfig() error {
	return replace.File(filepath.Join(j.dir, configFile), j.cfg.Public().YAML(), 0o644)
}

// warmup is how many train steps pass before anything is measured: until the
// first rollouts have gone round and the policy has found its lengths.
func (j *job) warmup() loop.Version { return warmupSteps(j.cfg.Trainer.Steps) }

func warmupSteps(steps int) loop.Version { return loop.Version(min(steps/5, 50)) }

// predict calibrates and puts the prediction down before the first step.
func (j *job) predict(ctx context.Context) error {
	if err := j.trainer.Initialize(ctx); err != nil {
		return err
	}
	for i, e := range j.engines {
		if j.fleet != nil { // the probe is of all engines; the run begins with those it wants
			if err := j.fleet.Acquire(ctx, i); err != nil {
				return err
			}
		}
		if err := errors.Join(e.Load(ctx, 0), e.Switch(ctx, 0, false)); err != nil {
			return err
		}
	}
	scratch, done, err := j.scratchTrainer(ctx)
	if err != nil {
		return err
	}
	defer done()
	c, err := calibrate(ctx, j.rules, j.engines, j.environment, scratch, j.app.Now)
	j.takePaces() // the probe's are not the run's
	for _, e := range j.engines {
		if timed, ok := e.(port.Timed); ok {
			timed.TakeDecodeTimes() // neither are these
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case errors.Is(err, errProbeSlow):
		j.expected = prediction{Warnings: []string{err.Error()}} // a slow run needs no quick answer
		return nil
	case err != nil:
		return err
	}
	j.expected, err = predictRun(j.cfg, c)
	return err
}

// header begins the run's trace.
func (j *job) header() trace.Header {
	return trace.Header{Program: programName(), Source: "live", Seed: j.cfg.Seed, Warmup: j.warmup(), Loop: j.rules, Config: string(j.cfg.Public().YAML())}
}

// options are the live runtime's.
func (j *job) options(ctx context.Context, view *progressView) live.Options {
	offset := int64(0)
	j.disk.say = view.message
	opt := live.Options{
		Header: j.header(), Engines: j.engines, Environment: j.environment, Trainer: j.trainer, Weights: j.weights, Store: j.store,
		Notes: []live.Note{{Name: trace.NotePrediction, Data: j.expected}}, Losses: plannedLosses(j.cfg),
		OnStep: func(d live.StepDone) { j.onStep(ctx, d, view) },
		OnBatch: func(b port.Batch) {
			if err := j.samples.write(b); err != nil {
				view.message("samples: " + err.Error())
			}
		},
		OnBroken:   func(bundle []byte) { view.message(writeBroken(j.dir, bundle)) },
		OnDiskFull: j.disk.told,
		Logf:       func(format string, args ...any) { view.message(fmt.Sprintf(format, args...)) },

		KeepVersions: j.cfg.Store.KeepVersions, SnapshotSteps: j.cfg.Store.SnapshotEvery,
	}
	if j.resumed != nil {
		opt.Resume = j.resumed.state
		offset = opt.Resume.Loop.Status().TimeNS
	}
	opt.Clock = clock(j.app, offset)
	j.withFleet(&opt)
	j.tellBy(opt.Logf)
	j.shown.watch(&opt)
	j.watchSpans(&opt)
	if j.workshop != nil {
		j.workshop.clock.Store(&opt.Clock)
	}
	return opt
}

// onStep is called by the goroutine that owns the loop; it does not block.
func (j *job) onStep(ctx context.Context, d live.StepDone, view *progressView) {
	line := newStepLine(d)
	if e := j.evaluations.take(); e != nil {
		line.HeldOutAccuracy, line.HeldOutStep = &e.Accuracy, &e.Version
	}
	j.steps.add(line)
	if j.sinks != nil {
		j.sinks.Send(sinkStep(line, j.app.Now()))
	}
	j.shown.step(&line)
	j.samples.trained(d.Point.Step, d.Report.LogRatios, func(err error) { view.message("samples: " + err.Error()) })
	view.update(j.newProgress(d))
	every := loop.Version(j.cfg.Evaluate.Every)
	if v := d.Point.Step; every > 0 && j.greedy != nil && v%every == 0 && v < loop.Version(j.cfg.Trainer.Steps) {
		j.evaluations.start(v, func() (float64, error) {
			return j.evaluate(ctx, v, j.cfg.Evaluate.Prompts)
		}, func(err error) { view.message(fmt.Sprintf("evaluating version %d: %v", v, err)) })
	}
}

// evaluate answers held-out prompts greedily with a published version.
func (j *job) evaluate(ctx context.Context, v loop.Version, prompts int) (float64, error) {
	answer := func(ctx context.Context, prompts [][]int32, maxTokens int) ([][]int32, error) {
		return j.greedy.Greedy(ctx, v, prompts, maxTokens)
	}
	e, err := env.Evaluate(ctx, j.task, j.verdicts, j.heldOut[:min(prompts, len(j.heldOut))], answer)
	return e.Accuracy(), err
}

// evaluateLast judges the run: all held-out prompts, the version it ended with.
func (j *job) evaluateLast(ctx context.Context, v loop.Version) (accuracy float64, prompts int, err error) {
	accuracy, err = j.evaluate(ctx, v, len(j.heldOut))
	return accuracy, len(j.heldOut), err
}

func (j *job) wallS() float64 { return j.app.Now().Sub(j.began).Seconds() }

// close stops what runs and closes what is open. It may be called at any stage of building.
func (j *job) close() error {
	var errs []error
	if j.samples != nil {
		j.samples.writing.Wait()
	}
	j.closeSinks()
	for _, e := range j.engines {
		errs = append(errs, e.Close())
	}
	if j.fleet != nil {
		errs = append(errs, j.fleet.Close())
	}
	if j.trainer != nil {
		errs = append(errs, j.trainer.Close())
	}
	if j.workshop != nil {
		errs = append(errs, j.workshop.close())
	}
	if j.steps != nil {
		errs = append(errs, j.steps.close())
	}
	if j.store != nil {
		errs = append(errs, j.store.Close())
	}
	return errors.Join(errs...)
}
