package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/experiment"
)

// controlSimulate implements study.ControlLiveRunner.Simulate: engines that decode in
// common steps, as embedded ones do.
func controlSimulate(document config.Config, shown metrics.Beside) (wasted float64, err error) {
	cfg, err := experiment.DevicesOf(document)
	if err != nil {
		return 0, err
	}
	cfg.Lockstep, cfg.TokenVersions, cfg.Beside = true, true, shown
	result, err := sim.Run(cfg)
	return result.Summary.Waste.WastedShare, err
}

// controlled implements study.ControlLiveRunner.Live.
func (r liveRunner) controlled(ctx context.Context, cfg config.Config, shown metrics.Beside) (out study.ControlLived, err error) {
	err = r.passing(ctx, cfg, func(j *run.Run, opt live.Options) (err error) {
		out, err = steered(ctx, j, opt, shown)
		return err
	})
	return out, err
}

// steered makes a run under a target.
func steered(ctx context.Context, j *run.Run, opt live.Options, shown metrics.Beside) (out study.ControlLived, err error) {
	opt.Header.Warmup = loop.Version(j.Cfg.Steps.Warmup)
	var rewards []float64
	opt.OnStep = func(d live.StepDone) { rewards = append(rewards, record.StepLine(d).Reward) }
	opt.Observe = shown.Observe
	running, err := live.New(opt)
	if err != nil {
		return out, err
	}
	result, err := running.Run(ctx)
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	if err != nil {
		return study.ControlLived{Failed: err.Error()}, nil
	}
	out.Wasted, out.Late = result.Summary.Waste.WastedShare, j.TakePaces().Warnings()
	last := rewards[len(rewards)-max(len(rewards)/10, 1):]
	for _, reward := range last {
		out.Reward += reward / float64(len(last))
	}
	version := result.Status.Version
	if out.Accuracy, _, err = j.EvaluateLast(ctx, version); err != nil {
		err = fmt.Errorf("evaluating version %d: %w", version, err)
	}
	return out, err
}

// judgeLive is the study in live runs.
func (c *studyControlCmd) judgeLive(a *app.Process, opt study.ControlOptions) error {
	if len(c.World) > 0 {
		return failure.Usage("leave it out", "--world %s is of the study in simulation: a live run is of one world", c.World[0])
	}
	if err := c.folder(); err != nil {
		return err
	}
	run.GiveHelpersAThread(a)
	ctx, stop := command.Interruptible()
	defer stop()
	began := a.Now()
	result, err := study.ControlLive(ctx, study.ControlLiveOptions{Seeds: opt.Seeds, Drifts: opt.Drifts, Goals: opt.Goals, Quick: opt.Quick, Simulated: c.Simulated}, study.ControlLiveRunner{
		Live: liveRunner{a}.controlled, Simulate: controlSimulate,
		Said: func(done, all int, what string, seed uint64) {
			left := ""
			if done > 0 {
				left = fmt.Sprintf(", about %s left", (a.Now().Sub(began) * time.Duration(all-done) / time.Duration(done)).Round(time.Second))
			}
			fmt.Fprintf(a.Stderr, "run %d of %d, %s, seed %d%s\n", done+1, all, what, seed, left)
		},
	})
	if errors.Is(err, context.Canceled) {
		return failure.Run("live runs cannot be gone on with: start it anew", "the study was interrupted")
	}
	if err != nil {
		return err
	}
	from := provenance(a, c.command())
	document := struct {
		study.Provenance
		study.ControlLiveResult
		Verdicts []string `json:"conclusions"`
	}{from, result, result.Verdicts()}
	if c.Out != "" {
		if err := c.write("control-live.html", func(w io.Writer) error { return study.ControlLiveHTML(w, result, from) }); err != nil {
			return err
		}
		return c.save(a, "control-live", c.JSON, document, func(w io.Writer) error { return study.ControlLiveMarkdown(w, result, from) })
	}
	return c.save(a, "control-live", c.JSON, document, func(w io.Writer) error { return study.ControlLiveText(w, result, from) })
}
