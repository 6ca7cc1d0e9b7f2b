package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/replay"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/trace"
)

// runCmd trains: loop, engines, environment, trainer, queue and weight sync in one process.
type runCmd struct {
	output
	File        string   `arg:"" optional:"" help:"Config file; without one everything is embedded and has its default."`
	Seed        *uint64  `help:"Seed of prompts, weights and sampling."`
	Steps       *int     `help:"Train steps."`
	Name        string   `help:"Name of the run directory (default: task, schedule and time)."`
	Dir         string   `help:"Folder of all runs (default: runs)."`
	Task        string   `help:"Task: reverse, sort or addition."`
	Set         []string `placeholder:"KEY=VALUE" sep:"none" help:"Override a key of the config; repeatable."`
	Resume      string   `placeholder:"RUN" help:"Go on with an interrupted run directory."`
	NoDashboard bool     `help:"Plain progress lines even on a terminal."`
}

// Run trains and reports.
func (c *runCmd) Run(a *app) error {
	if c.Resume != "" {
		return c.resume(a)
	}
	cfg, err := config.Load(c.File, c.overrides()...)
	if err != nil {
		return err
	}
	name := c.Name
	if name == "" {
		name = fmt.Sprintf("%s-%s", cfg.Environment.Task, a.Now().Format("20060102-150405"))
	}
	if name != filepath.Base(name) || name == "." || name == ".." {
		return usageError("choose a plain name, and --dir for the folder", "--name %q is not a name for a directory", name)
	}
	dir := filepath.Join(cfg.Store.Dir, name)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return usageError("choose another --name, or go on with it by --resume "+dir, "run directory %s exists already; nothing is overwritten", dir)
	}
	return execute(a, cfg, dir, c, nil)
}

// overrides are the flags that stand for keys of the config, and --set after them.
func (c *runCmd) overrides() []string {
	var out []string
	if c.Seed != nil {
		out = append(out, fmt.Sprintf("seed=%d", *c.Seed))
	}
	if c.Steps != nil {
		out = append(out, fmt.Sprintf("trainer.steps=%d", *c.Steps))
	}
	if c.Task != "" {
		out = append(out, "environment.task="+c.Task)
	}
	if c.Dir != "" {
		out = append(out, "store.dir="+c.Dir)
	}
	return append(out, c.Set...)
}

// resume goes on with a run. Everything about it stands in its directory, so
// nothing may be given anew.
func (c *runCmd) resume(a *app) error {
	if c.File != "" || len(c.overrides()) > 0 || c.Name != "" {
		return usageError("start a new run for other settings", "--resume goes on with the settings of %s; FILE, --name, --set and the flags for keys cannot be given with it", c.Resume)
	}
	state, err := loadRun(c.Resume)
	if err != nil {
		return err
	}
	return execute(a, state.cfg, c.Resume, c, state)
}

// resumedRun is an interrupted run, rebuilt from its directory.
type resumedRun struct {
	cfg   config.Config
	store *file.Store
	loop  *replay.Run
	// expected is the prediction made before the run's first step.
	expected prediction
}

// loadRun opens a run directory to go on with it; it changes nothing that it cannot go on with.
func loadRun(dir string) (*resumedRun, error) {
	if _, err := os.Stat(filepath.Join(dir, trace.FileName)); err != nil {
		return nil, usageError("name a run directory that headway run made", "%s is no run directory: it has no %s", dir, trace.FileName)
	}
	store, err := file.Open(dir, file.Options{})
	if err != nil {
		return nil, err
	}
	header := store.Header()
	cfg, err := config.Parse("config of the trace of "+dir, []byte(header.Config))
	if err == nil {
		cfg, err = cfg.WithDefaults(), cfg.WithDefaults().Validate()
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	store.SetAlways(cfg.Store.Sync == "always")
	log, err := store.Trace()
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	defer log.Close()
	run, err := replay.Load(log)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	expected, err := readPrediction(dir)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &resumedRun{cfg: cfg, store: store, loop: run, expected: expected}, nil
}

// finished reports whether nothing but the report is left to do.
func (r *resumedRun) finished() bool {
	return r.loop.Ended && r.loop.Loop.Version() >= loop.Version(r.cfg.Trainer.Steps)
}

// result is what the live runtime would have said at the end of a finished run.
func (r *resumedRun) result() live.Result {
	return live.Result{Reason: loop.ReasonSteps, Status: r.loop.Loop.Status(), Summary: r.loop.Recorder.Summary(), Series: r.loop.Recorder.Steps}
}

// readPrediction returns the prediction that stands in a run's trace before its first event.
func readPrediction(dir string) (prediction, error) {
	var p prediction
	log, err := trace.Open(dir)
	if err != nil {
		return p, err
	}
	defer log.Close()
	reader, err := trace.NewReader(log)
	for err == nil {
		var rec trace.Record
		if rec, err = reader.Next(); err == nil && rec.Note == trace.NotePrediction {
			return p, json.Unmarshal(rec.Data, &p)
		}
		if rec.Event != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p, err
}

// execute runs a config in a directory from its start, or from where it was left.
func execute(a *app, cfg config.Config, dir string, c *runCmd, resumed *resumedRun) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	giveHelpersAThread(a)
	j, err := newJob(a, cfg, dir, resumed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	if resumed != nil && resumed.finished() {
		return j.finish(ctx, resumed.result(), c.JSON)
	}
	if resumed == nil {
		if err := j.predict(ctx); err != nil {
			return runError("", "calibrating %s: %w", dir, err)
		}
	}
	view := newProgressView(a, progressOptions{Plain: c.NoDashboard || c.JSON}, j.intro())
	run, err := live.New(j.options(ctx, view))
	if err != nil {
		view.close()
		return err
	}
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	view.onInterrupt(run.Stop, cancel)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-interrupts:
				if n == 0 {
					view.message("stopping after the running train step; again to stop at once")
					run.Stop()
				} else {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	result, err := run.Run(ctx)
	j.evaluations.Wait()
	view.close()
	if err != nil {
		if errors.Is(err, live.ErrStalled) {
			return errors.Join(runError("the report says how far it came; with filter.zero_advantage a policy that has learned everything leaves nothing to train on", "%w", err), j.finish(ctx, result, c.JSON))
		}
		err = runError("headway run --resume "+dir+" goes on from the last logged event", "%w", err)
		if errors.Is(err, live.ErrTrainer) {
			err = errors.Join(err, j.finish(ctx, result, c.JSON))
		}
		return err
	}
	return j.finish(ctx, result, c.JSON)
}

// giveHelpersAThread lets the short work between engine and trainer (the loop,
// weight loads, verdicts) run at once. Both of them compute without a pause; with
// no more threads than processors everything else waits for Go's preemption, ten
// milliseconds a hop, which made syncs several train steps long. A thread of its
// own is woken by the kernel within microseconds.
func giveHelpersAThread(a *app) {
	if a.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+2))
	}
}

// evaluator measures held-out accuracy beside the run, one version at a time.
type evaluator struct {
	sync.WaitGroup
	mu    sync.Mutex
	busy  bool
	fresh *evaluation
}

// evaluation is a version's held-out greedy accuracy.
type evaluation struct {
	Version  loop.Version `json:"step"`
	Accuracy float64      `json:"accuracy"`
}

// start evaluates a version unless an evaluation is still going on.
// failed is told why there will be no accuracy.
func (e *evaluator) start(v loop.Version, evaluate func() (float64, error), failed func(error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy {
		return
	}
	e.busy = true
	e.Add(1)
	go func() {
		defer e.Done()
		accuracy, err := evaluate()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.busy = false
		if err != nil {
			failed(err)
		} else {
			e.fresh = &evaluation{v, accuracy}
		}
	}()
}

// take returns an evaluation that nobody has taken yet, nil if there is none.
func (e *evaluator) take() *evaluation {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.fresh
	e.fresh = nil
	return out
}

// writeJSON prints a document on standard output.
func writeJSON(a *app, v any) error {
	enc := json.NewEncoder(a.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// clock returns nanoseconds since a run started, going on at offset. It uses the
// monotonic clock, so that it never falls.
func clock(a *app, offset int64) func() int64 {
	began := a.Now()
	return func() int64 { return offset + a.Now().Sub(began).Nanoseconds() }
}
