package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/steps"
)

// liveFlags are those of every comparison of live runs.
type liveFlags struct {
	Wall     float64  `default:"12" placeholder:"S" help:"Wall time of every run in seconds."`
	Seeds    int      `help:"Seeds of every arm; one is no result." default:"3"`
	Scenario string   `default:"all" enum:"all,plain,tools" help:"plain: no tool time; tools: tool time with a tail; all: both."`
	Arm      []string `placeholder:"NAME" sep:"none" help:"Only arms whose name contains this; repeatable."`
}

// studyPresetsCmd compares every preset in live runs.
type studyPresetsCmd struct {
	studyFiles
	liveFlags
}

// Run compares and prints.
func (c *studyPresetsCmd) Run(a *app.Process) error {
	return c.compare(a, "presets", &c.studyFiles, study.Presets)
}

// compare plays the contest of every scenario and prints them.
func (c *liveFlags) compare(a *app.Process, name string, files *studyFiles, contest func(study.Scenario, []uint64, float64) study.Contest) error {
	if !(c.Wall > 0) || c.Seeds < 1 {
		return failure.Usage("go run ./cmd/lab study NAME --help lists the flags", "--wall %g and --seeds %d must be above 0", c.Wall, c.Seeds)
	}
	command := fmt.Sprintf("go run ./cmd/lab study %s --wall %g --seeds %d --scenario %s", name, c.Wall, c.Seeds, c.Scenario)
	if files.Quick {
		c.Wall, c.Seeds, command = min(c.Wall, quickWallS), 1, command+" --quick"
	}
	contests, err := c.contests(contest)
	if err != nil {
		return err
	}
	file := strings.ReplaceAll(name, " --", "-")
	if c.Scenario != "all" {
		file += "-" + c.Scenario
	}
	return files.play(a, file, command, contests)
}

// play makes the runs of contests and prints them.
func (c *studyFiles) play(a *app.Process, name, line string, contests []study.Contest) error {
	if err := c.folder(); err != nil {
		return err
	}
	run.GiveHelpersAThread(a)
	ctx, stop := command.Interruptible()
	defer stop()
	var played []study.Contested
	for _, contest := range contests {
		p, err := contest.Play(ctx, liveRunner{a}.run, func(done, all int, arm string, seed uint64) {
			fmt.Fprintf(a.Stderr, "%s: run %d of %d, %s, seed %d, %g s\n", contest.Name, done+1, all, arm, seed, contest.WallS)
		})
		if errors.Is(err, context.Canceled) {
			return failure.Run("a comparison at equal wall time cannot be gone on with: start it anew", "the study was interrupted")
		}
		if err != nil {
			return err
		}
		played = append(played, p)
	}
	return c.contested(a, name, played, provenance(a, line))
}

// quickWallS is the wall time of a run that is only to show that the study works.
const quickWallS = 0.5

// contests are those of the chosen scenarios, with the chosen arms.
func (c *liveFlags) contests(contest func(study.Scenario, []uint64, float64) study.Contest) ([]study.Contest, error) {
	var seeds []uint64
	for seed := range c.Seeds {
		seeds = append(seeds, uint64(seed)+1)
	}
	var all []study.Contest
	for _, s := range study.Scenarios() {
		if c.Scenario != "all" && c.Scenario != s.Name {
			continue
		}
		one := contest(s, seeds, c.Wall)
		if err := c.choose(&one); err != nil {
			return nil, err
		}
		if _, err := one.Documents(); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// choose leaves the arms that were asked for.
func (c *liveFlags) choose(contest *study.Contest) error {
	if len(c.Arm) == 0 {
		return nil
	}
	var names []string
	var arms []study.Contestant
	for _, arm := range contest.Arms {
		names = append(names, arm.Name)
		for _, part := range c.Arm {
			if strings.Contains(arm.Name, part) {
				arms = append(arms, arm)
				break
			}
		}
	}
	if len(arms) == 0 {
		return failure.Usage("the arms are "+strings.Join(names, "; "), "--arm %s: no arm has such a name", strings.Join(c.Arm, ", "))
	}
	contest.Arms = arms
	return nil
}

// contested writes and prints contests.
func (c *studyFiles) contested(a *app.Process, name string, played []study.Contested, from study.Provenance) error {
	document := struct {
		study.Provenance
		Contests []study.Contested `json:"contests"`
	}{from, played}
	if c.Out != "" {
		var errs []error
		for _, p := range played {
			errs = append(errs, c.write(p.Contest.Name+".html", func(w io.Writer) error { return p.WriteHTML(w, from) }))
		}
		errs = append(errs, c.write(name+".json", func(w io.Writer) error { return report.JSON(w, document) }),
			c.write(name+".md", func(w io.Writer) error { return contestsMarkdown(w, name, played, from) }))
		if err := errors.Join(errs...); err != nil {
			return err
		}
		fmt.Fprintf(a.Stderr, "the study is in %s\n", filepath.Join(c.Out, name+".md"))
	}
	if c.JSON {
		return report.JSON(a.Stdout, document)
	}
	for i, p := range played {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		if err := p.WriteText(a.Stdout, from); err != nil {
			return err
		}
	}
	return nil
}

// contestsMarkdown prints contests as one document.
func contestsMarkdown(w io.Writer, name string, played []study.Contested, from study.Provenance) error {
	if _, err := fmt.Fprintf(w, "# Study %s\n\nMade by `%s` (%s) on %s, %s.\n\n", name, from.Command, from.Program, from.Machine, from.Date); err != nil {
		return err
	}
	for _, p := range played {
		if err := p.Markdown(w, from); err != nil {
			return err
		}
	}
	return nil
}

// liveRunner makes runs for a study, each in a folder of its own that is gone afterwards.
type liveRunner struct{ app *app.Process }

// curvePoints is how many times a run's held-out accuracy is measured at, the start included.
const curvePoints = 13

// studyWarmup is how many train steps pass before a study's run is measured.
const studyWarmup = 20

// quietJob makes the parts of a run that says nothing on stderr, its trainer ready.
func quietJob(ctx context.Context, a *app.Process, document config.Config, dir string) (*run.Run, error) {
	quiet := *a
	quiet.Stderr, quiet.IsTerminal = io.Discard, func(any) bool { return false }
	document.Store.Dir = filepath.Dir(dir)
	j, err := run.New(&quiet, record.Surroundings{Program: programVersion()}, document, dir, nil)
	if err != nil {
		return nil, err
	}
	if err := j.Trainer.Initialize(ctx); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// unseen is a [record.View] that shows nothing.
type unseen struct{}

// Update implements [record.View].
func (unseen) Update(record.Progress) {}

// Message implements [record.View].
func (unseen) Message(string) {}

// passing makes a run in a folder that is gone afterwards, and gives its parts to make.
func (r liveRunner) passing(ctx context.Context, document config.Config, do func(*run.Run, live.Options) error) (err error) {
	dir, err := os.MkdirTemp("", "headway-study-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	j, err := quietJob(ctx, r.app, document, filepath.Join(dir, "run"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	opt := j.Options(ctx, unseen{})
	opt.OnBatch = nil
	return do(j, opt)
}

// run implements study.Live.
func (r liveRunner) run(ctx context.Context, cfg config.Config, wallS float64) (out study.Lived, err error) {
	err = r.passing(ctx, cfg, func(j *run.Run, opt live.Options) (err error) {
		out, err = r.timed(ctx, j, opt, wallS)
		return err
	})
	return out, err
}

// timed makes a run for so long.
func (r liveRunner) timed(ctx context.Context, j *run.Run, opt live.Options, wallS float64) (out study.Lived, err error) {
	var lines []steps.Line
	opt.Header.Warmup = studyWarmup
	// The run ends with its time, but not before its first step: without one there is nothing to compare.
	var running *live.Runtime
	var made, due atomic.Bool
	opt.OnStep = func(d live.StepDone) {
		lines = append(lines, record.StepLine(d))
		if made.Store(true); due.Load() {
			running.Stop()
		}
	}
	if running, err = live.New(opt); err != nil {
		return out, err
	}
	ended := time.AfterFunc(time.Duration(wallS*float64(time.Second)), func() {
		if due.Store(true); made.Load() {
			running.Stop()
		}
	})
	result, err := running.Run(ctx)
	ended.Stop()
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	out = livedOf(result, lines, wallS)
	if err != nil {
		out.Failed = err.Error()
		return out, nil
	}
	out.Curve, out.Accuracy, err = r.learned(ctx, j, lines, wallS)
	return out, err
}

// livedOf sums a run up.
func livedOf(res live.Result, lines []steps.Line, wallS float64) study.Lived {
	s := res.Summary
	out := study.Lived{
		ArmRun: report.ArmRun{
			WallS: float64(res.Status.TimeNS) / 1e9, Steps: float64(len(lines)), Accuracy: report.Unknown,
			Reward: report.Unknown, Staleness: s.Staleness.Mean, StalenessP95: float64(s.Staleness.P95), WastedShare: s.Waste.WastedShare,
			TrainerIdle: s.TrainerIdleRatio, RolloutIdle: s.RolloutIdleRatio, ClipFraction: report.Unknown, LengthRatio: report.Unknown,
		},
		StalenessP50: float64(s.Staleness.P50), TokenStaleness: s.TokenStaleness.Mean, MeanLogRatio: report.Unknown, EffectiveSample: report.Unknown,
	}
	if s.Length.SampledMeanTokens > 0 && s.Length.TrainedMeanTokens > 0 {
		out.LengthRatio = s.Length.TrainedMeanTokens / s.Length.SampledMeanTokens
	}
	n := float64(len(lines))
	if n == 0 {
		return out
	}
	out.ClipFraction, out.MeanLogRatio, out.EffectiveSample, out.Reward = 0, 0, 0, 0
	last := max(len(lines)/10, 1)
	for i, line := range lines {
		out.Tokens += float64(line.ResponseTokens)
		out.ClipFraction += line.ClipFraction / n
		out.MeanLogRatio += line.MeanLogRatio / n
		out.EffectiveSample += line.EffectiveSampleSize / n
		if i >= len(lines)-last {
			out.Reward += line.Reward / float64(last)
		}
	}
	if s.Steps == 0 { // it never left its warm-up
		out.Staleness, out.StalenessP95, out.StalenessP50, out.TokenStaleness = report.Unknown, report.Unknown, report.Unknown, report.Unknown
	}
	return out
}

// learned measures, after the run, the held-out accuracy of the versions that it
// had at equal steps of wall time: the curve by the prompts of an evaluation, the
// last by all that are held out.
func (r liveRunner) learned(ctx context.Context, j *run.Run, lines []steps.Line, wallS float64) ([]report.ArmPoint, float64, error) {
	var curve []report.ArmPoint
	accuracy := report.Unknown
	next := 0
	for k := range curvePoints {
		at := wallS * float64(k) / (curvePoints - 1)
		version, reward, n := loop.Version(0), 0.0, 0
		if len(curve) > 0 {
			version = loop.Version(curve[len(curve)-1].Step)
		}
		for ; next < len(lines) && lines[next].Time <= at; next++ {
			version = lines[next].Step
			reward += lines[next].Reward
			n++
		}
		prompts := j.Cfg.Evaluate.Prompts
		if k == curvePoints-1 {
			prompts = len(j.HeldOut)
		}
		a, err := j.Evaluate(ctx, version, prompts)
		if err != nil {
			return nil, accuracy, fmt.Errorf("evaluating version %d: %w", version, err)
		}
		accuracy = a
		point := report.ArmPoint{TimeS: at, Step: int64(version), Accuracy: a, Reward: report.Unknown}
		if n > 0 {
			point.Reward = reward / float64(n)
		}
		curve = append(curve, point)
	}
	return curve, accuracy, nil
}
