package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/app/sink/spans"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/env/taskset/columns"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/loop/trace"
)

// runCmd trains: loop, engines, environment, trainer, queue and weight sync in one process.
type runCmd struct {
	command.Output
	File        string   `arg:"" optional:"" help:"Config file; without one everything is embedded and has its default."`
	Seed        *uint64  `help:"Seed of prompts, weights and sampling."`
	Steps       *int     `help:"Train steps."`
	Name        string   `help:"Name of the run directory (default: task and time)."`
	Dir         string   `help:"Folder of all runs (default: runs)."`
	Task        string   `help:"Task: reverse, sort or addition."`
	Set         []string `placeholder:"KEY=VALUE" sep:"none" help:"Override a key of the config; repeatable."`
	Resume      *string  `placeholder:"RUN" help:"Go on with an interrupted run directory."`
	Full        bool     `help:"Print every table of the report at the end, and not one screen of it."`
	NoDashboard bool     `help:"No pages for a browser, and plain progress lines even on a terminal."`
}

// Run trains and reports.
func (c *runCmd) Run(a *app.Process) error {
	if c.Resume != nil {
		return c.resume(a, *c.Resume)
	}
	if err := origin.RefuseRunAsDocument(c.File); err != nil {
		return err
	}
	cfg, err := config.LoadWith(c.File, c.overrides()...)
	if err != nil {
		return err
	}
	if err := origin.TrainsItself(cfg); err != nil {
		return err
	}
	warn(a, cfg.RunWarnings())
	name := c.Name
	if name == "" {
		name = fmt.Sprintf("%s-%s", cfg.Environment.Task, a.Now().Format("20060102-150405"))
	}
	if err := origin.CheckName(name); err != nil {
		return err
	}
	if err := origin.CheckFolder(cfg.Store.Dir); err != nil {
		return err
	}
	dir := filepath.Join(cfg.Store.Dir, name)
	if c.Name == "" {
		own, unmake, err := ownDirectory(dir)
		if err == nil {
			err = execute(a, cfg, own, c, nil)
		}
		if err != nil {
			unmake()
		}
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		hint := "choose another --name"
		switch made, _ := origin.Of(dir); made {
		case origin.Run:
			hint += ", or go on with it by --resume " + printable.Word(dir)
		case origin.Serve:
			hint += "; it is a control plane's run: " + origin.ServeHint(dir)
		}
		return failure.Usage(hint, "run directory %s exists already; nothing is overwritten", dir)
	}
	return execute(a, cfg, dir, c, nil)
}

// ownDirectory makes a directory of that name for one run alone, or of the name with a number: several runs may begin within
// a second. The function takes away what was made, folders that are missing included, as far as it is empty.
func ownDirectory(dir string) (own string, unmake func(), err error) {
	var made []string
	unmake = func() {
		for _, path := range made {
			_ = os.Remove(path) // else there is something to keep
		}
	}
	folder := filepath.Dir(dir)
	for at := folder; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil {
			break
		}
		made = append(made, at)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", unmake, failure.Usage("name a folder that can be written to by --dir", "%w", err)
	}
	own = dir
	for n := 2; ; n++ {
		err = os.Mkdir(own, 0o700)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		own = fmt.Sprintf("%s-%d", dir, n)
	}
	if err != nil {
		return "", unmake, failure.Usage("name a folder that can be written to by --dir", "%w", err)
	}
	made = slices.Insert(made, 0, own)
	return own, unmake, nil
}

// overrides are the flags that stand for keys of the config, and --set after them.
func (c *runCmd) overrides() []config.Override {
	var out []config.Override
	if c.Seed != nil {
		out = append(out, config.Override{Flag: "--seed", Text: fmt.Sprintf("seed=%d", *c.Seed)})
	}
	if c.Steps != nil {
		out = append(out, config.Override{Flag: "--steps", Text: fmt.Sprintf("trainer.steps=%d", *c.Steps)})
	}
	if c.Task != "" {
		out = append(out, config.Override{Flag: "--task", Text: "environment.task=" + c.Task})
	}
	if c.Dir != "" {
		out = append(out, config.Override{Flag: "--dir", Text: "store.dir=" + strconv.Quote(c.Dir)}) // a folder's name is not always plain YAML
	}
	for _, text := range c.Set {
		out = append(out, config.Override{Text: text})
	}
	return out
}

// resume goes on with a run. Everything about it stands in its directory, so
// nothing may be given anew.
func (c *runCmd) resume(a *app.Process, dir string) error {
	if dir == "" {
		return failure.Usage("name a run directory, such as runs/NAME", "--resume is empty")
	}
	if c.File != "" || len(c.overrides()) > 0 || c.Name != "" {
		return failure.Usage("start a new run for other settings", "--resume goes on with the settings of %s; FILE, --name, --set and the flags for keys cannot be given with it", dir)
	}
	if err := origin.RefuseOthersRun(dir); err != nil {
		return err
	}
	state, err := run.Load(a, dir)
	if err != nil {
		return err
	}
	header, _ := state.Store.Header()
	if text, err := os.ReadFile(filepath.Join(dir, parts.ConfigFile)); err != nil || string(text) != header.Config {
		fmt.Fprintf(a.Stderr, "%s is not what the run began with: it goes on with the settings in its trace\n", filepath.Join(dir, parts.ConfigFile))
	}
	for _, line := range record.RecoveryLines(state.State) {
		fmt.Fprintln(a.Stderr, line)
	}
	return execute(a, state.Cfg, dir, c, state)
}

// execute runs a config in a directory from its start, or from where it was left.
func execute(a *app.Process, cfg config.Config, dir string, c *runCmd, resumed *run.Resumed) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run.GiveHelpersAThread(a)
	stop := handleInterrupts(ctx, cancel)
	j, err := run.New(a, surround(a), cfg, dir, resumed)
	if err != nil && resumed != nil {
		return run.WithRoomHint(dir, printable.Word(dir), err)
	} else if err != nil {
		return err
	}
	defer func() { err = run.WithRoomHint(dir, printable.Word(dir), errors.Join(err, j.Close())) }()
	end := &ending{Run: j, full: c.Full}
	if resumed != nil && resumed.Finished() {
		return end.finish(ctx, resumed.Result(), c.JSON, false)
	}
	if resumed == nil {
		fmt.Fprintf(a.Stderr, "probing the run for a moment, to predict it\n")
		if err := j.Predict(ctx, !c.NoDashboard); err != nil {
			// Nothing has begun: leave no directory that neither starts nor resumes.
			return errors.Join(failure.Run("the run had not begun; nothing is kept of it", "before the first step of %s: %w", dir, err), os.RemoveAll(dir))
		}
	}
	var goesOn *live.Resume
	if resumed != nil {
		goesOn = resumed.State
	}
	intro := j.Intro(goesOn)
	if !c.NoDashboard {
		pages, err := j.ServePages(j.Header())
		if err == nil { // a run goes on without its pages
			defer pages.Close()
		}
		intro += "\n" + pages.Line(err)
	}
	view := newProgressView(a, progressOptions{Plain: c.NoDashboard || c.JSON}, intro)
	running, err := live.New(j.Options(ctx, view))
	if err != nil {
		view.Close()
		return err
	}
	j.Shown.Runs(running)
	gracefully := func() {
		view.Message(j.Stopping())
		running.Stop()
	}
	view.onInterrupt(gracefully, cancel)
	stop.Store(&gracefully)
	result, err := running.Run(ctx)
	j.WaitEvaluations()
	view.Close()
	j.LogTo(nil)
	j.Well = err == nil
	if err != nil {
		if errors.Is(err, live.ErrStalled) {
			return end.stalled(ctx, err, result, c.JSON)
		}
		err = failure.Run(run.ResumeHint(dir, printable.Word(dir), err), "%w", err)
		if errors.Is(err, live.ErrTrainer) {
			err = errors.Join(err, end.finish(ctx, result, c.JSON, false))
		}
		return err
	}
	return end.finish(context.WithoutCancel(ctx), result, c.JSON, false)
}

// surround is what a run is told of this program.
func surround(a *app.Process) record.Surroundings {
	lines := func(intro string) record.View { return newProgressView(a, progressOptions{Plain: true}, intro) }
	return record.Surroundings{Program: programName(), Version: command.CurrentBuild().Version, Lines: lines, Columns: columns.Read, Spans: spans.Open, Pages: func(dir, name string, header trace.Header) dashboard.Options {
		opt := compare.ViewOptions(name, header)
		opt.Diagnose = compare.Findings(dir, name)
		return opt
	}}
}

// handleInterrupts has the first signal call what is stored, once a run can be
// stopped in order, and cancel before that and from the second on. Broken pipes
// are no reason to end: progress is worth less than the run.
func handleInterrupts(ctx context.Context, cancel func()) *atomic.Pointer[func()] {
	var stop atomic.Pointer[func()]
	signal.Ignore(syscall.SIGPIPE)
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, command.EndSignals()...)
	go func() {
		defer signal.Stop(interrupts)
		for {
			select {
			case <-interrupts:
				if gracefully := stop.Swap(nil); gracefully != nil {
					(*gracefully)()
				} else {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return &stop
}
