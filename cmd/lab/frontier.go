package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// studyFrontierCmd is the study of the empirical frontier.
type studyFrontierCmd struct {
	studyFiles
	Devices     int      `default:"8" help:"Modelled devices, those that generate and those that train together."`
	Splits      []string `placeholder:"R:T" help:"Splits that are run, such as 3:5 for three that generate and five that train (default: all)."`
	Seeds       int      `default:"2" help:"Seeds of every split; one gives no interval."`
	Steps       int      `default:"300" help:"Train steps measured of every run, after 20 that are not."`
	Slots       int      `default:"32" help:"Slots of a rollout device."`
	DecodeStep  float64  `default:"0.01" placeholder:"S" help:"Time in which a rollout device makes a token in every slot. A machine that does not keep it needs a longer one."`
	SpeedRatio  float64  `default:"1" help:"Tokens/s of a train device over those of a rollout device."`
	QueueFactor float64  `default:"1" help:"Capacity of the queue in batches."`
	KeepRuns    bool     `help:"Keep the directory of every run below --out, for headway view and diagnose."`
}

// Help says what is printed.
func (c *studyFrontierCmd) Help() string {
	return "Measures train period and staleness live, at every split of a fixed number of devices. The closed form and the simulation beside them are made before each run. " +
		"Devices are modelled: embedded engines and the embedded trainer do real work, then wait as long as such a device would (engines.decode_step_s, trainer.step_s). How well the machine keeps that pace is measured, and one that does not is refused."
}

// Kept of a frontier, and the steps of its probes and simulations.
const (
	frontierFile        = "frontier.jsonl"
	frontierProbeGroups = 1500
	frontierSimulated   = 4000
)

// Limits of the flags: beyond them a mistake is likelier than a study.
const (
	frontierDevicesMax = 64
	frontierSlotsMax   = 256
)

// options are the flags as a study.
func (c *studyFrontierCmd) options() (study.FrontierOptions, error) {
	opt := study.FrontierOptions{Seeds: c.Seeds, Quick: c.Quick, FrontierSettings: study.FrontierSettings{
		Devices: c.Devices, SlotsPerDevice: c.Slots, DecodeStepS: c.DecodeStep, SpeedRatio: c.SpeedRatio, QueueFactor: c.QueueFactor,
		Warmup: studyWarmup, Steps: c.Steps, ProbeGroups: frontierProbeGroups, SimulatedSteps: frontierSimulated}}
	advice := "go run ./cmd/lab study frontier --help lists its flags"
	switch {
	case c.Devices < 2 || c.Devices > frontierDevicesMax:
		return opt, failure.Usage(advice, "--devices is %d, want 2 to %d: one for each side", c.Devices, frontierDevicesMax)
	case c.Seeds < 1 || c.Steps < 1 || c.Slots < 1 || c.Slots > frontierSlotsMax:
		return opt, failure.Usage(advice, "--seeds %d, --steps %d and --slots %d must be at least 1, and slots at most %d", c.Seeds, c.Steps, c.Slots, frontierSlotsMax)
	case !(c.DecodeStep > 0 && c.DecodeStep <= 10) || !(c.SpeedRatio >= 0.01 && c.SpeedRatio <= 100) || !(c.QueueFactor >= 1 && c.QueueFactor <= 100):
		return opt, failure.Usage(advice, "--decode-step %g, --speed-ratio %g and --queue-factor %g must be above 0 and at most 10 s, 0.01 to 100, and 1 to 100", c.DecodeStep, c.SpeedRatio, c.QueueFactor)
	case c.KeepRuns && c.Out == "":
		return opt, failure.Usage("name a folder by --out", "--keep-runs has no folder to keep them in")
	}
	opt.Splits = study.Splits(c.Devices)
	if c.Quick {
		opt.Splits = []study.Split{opt.Splits[0], opt.Splits[len(opt.Splits)/2], opt.Splits[len(opt.Splits)-1]}
		opt.Splits = slices.Compact(opt.Splits)
		opt.Seeds, opt.Steps, opt.ProbeGroups, opt.SimulatedSteps = 1, min(c.Steps, 20), 200, 500
	}
	if len(c.Splits) > 0 {
		opt.Splits = nil
	}
	for _, text := range c.Splits {
		split, err := parseSplit(text, c.Devices)
		if err != nil {
			return opt, err
		}
		if !slices.Contains(opt.Splits, split) {
			opt.Splits = append(opt.Splits, split)
		}
	}
	slices.SortFunc(opt.Splits, func(a, b study.Split) int { return a.Rollout - b.Rollout })
	return opt, nil
}

// parseSplit reads R:T.
func parseSplit(text string, devices int) (study.Split, error) {
	var split study.Split
	left, right, both := strings.Cut(text, ":")
	var errs [2]error
	split.Rollout, errs[0] = strconv.Atoi(strings.TrimSpace(left))
	split.Train, errs[1] = strconv.Atoi(strings.TrimSpace(right))
	if !both || errs[0] != nil || errs[1] != nil || split.Rollout < 1 || split.Train < 1 || split.Rollout+split.Train != devices {
		return split, failure.Usage(fmt.Sprintf("such as --splits 1:%d, rollout devices first; --devices sets their number", devices-1),
			"--splits %s: want two numbers of at least 1 that make %d together", text, devices)
	}
	return split, nil
}

// Run makes the runs and prints.
func (c *studyFrontierCmd) Run(a *app.Process) error {
	opt, err := c.options()
	if err != nil {
		return err
	}
	kept, err := c.kept(opt.FrontierSettings)
	if err != nil {
		return err
	}
	run.GiveHelpersAThread(a)
	ctx, stop := command.Interruptible()
	defer stop()
	runner := frontierRunner{app: a}
	if c.KeepRuns {
		runner.keep = filepath.Join(c.Out, "runs")
	}
	show := &frontierProgress{StatusLine: command.NewStatusLine(a), opt: opt}
	result, err := study.Frontier(ctx, opt, runner.rig(), kept, show.said())
	show.Clear()
	if err = errors.Join(err, kept.Close()); err != nil {
		if errors.Is(err, context.Canceled) {
			return failure.Run(c.goOn(), "the study was interrupted")
		}
		return err
	}
	return c.print(a, result, provenance(a, c.command(opt)))
}

// kept opens what was finished in the study's folder, nil without one.
func (c *studyFrontierCmd) kept(settings study.FrontierSettings) (*study.FrontierKept, error) {
	if err := c.folder(); err != nil || c.Out == "" {
		return nil, err
	}
	kept, err := study.OpenFrontier(filepath.Join(c.Out, frontierFile), programRevision(), settings)
	switch {
	case errors.Is(err, study.ErrOtherProgram), errors.Is(err, study.ErrOtherSettings):
		return nil, failure.Usage("name another --out, or delete the file to run anew", "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, failure.Usage("name a folder that can be written to", "--out: %w", err)
	}
	return kept, err
}

// command is what makes the figures again.
func (c *studyFrontierCmd) command(opt study.FrontierOptions) string {
	text := fmt.Sprintf("go run ./cmd/lab study frontier --devices %d --seeds %d --steps %d --slots %d --decode-step %g --speed-ratio %g --queue-factor %g",
		c.Devices, c.Seeds, c.Steps, c.Slots, c.DecodeStep, c.SpeedRatio, c.QueueFactor)
	if len(c.Splits) > 0 {
		var splits []string
		for _, s := range opt.Splits {
			splits = append(splits, s.String())
		}
		text += " --splits " + strings.Join(splits, ",")
	}
	if c.Quick {
		text += " --quick"
	}
	return text
}

func (c *studyFrontierCmd) print(a *app.Process, result study.FrontierResult, from study.Provenance) error {
	document := struct {
		study.Provenance
		study.FrontierResult
	}{from, result}
	if c.Out != "" {
		err := errors.Join(
			c.write("frontier.md", func(w io.Writer) error { return study.FrontierMarkdown(w, result, from) }),
			c.write("frontier.html", func(w io.Writer) error { return study.FrontierHTML(w, result, from) }),
			c.write("frontier.csv", func(w io.Writer) error { return study.FrontierCSV(w, result) }),
			c.write("frontier.json", func(w io.Writer) error { return report.JSON(w, document) }))
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stderr, "the study is in %s\n", filepath.Join(c.Out, "frontier.html"))
	}
	if c.JSON {
		return report.JSON(a.Stdout, document)
	}
	return result.WriteText(a.Stdout)
}

// frontierProgress says on stderr what the study does: a line for every run, and on a terminal its steps in place.
type frontierProgress struct {
	command.StatusLine
	opt   study.FrontierOptions
	label string
	eachS float64 // wall time that the running run is expected to take
}

func (p *frontierProgress) said() study.FrontierSaid {
	return study.FrontierSaid{Lengths: p.lengths, Begins: p.begins, Step: p.step, Ends: p.ends}
}

func (p *frontierProgress) lengths(seed uint64, rollouts int, mean, tail float64) {
	p.Clear()
	fmt.Fprintf(p.App.Stderr, "seed %d: %s responses of its policy have a mean of %.1f tokens, the longest of a group %.2f times that\n", seed, report.Count(int64(rollouts)), mean, tail)
}

func (p *frontierProgress) begins(done, all int, f study.FrontierPrediction) {
	p.Clear()
	p.eachS = f.Theory.PeriodS
	p.label = fmt.Sprintf("run %d of %d: split %v, seed %d", done+1, all, f.Split, f.Seed)
	steps := p.opt.Warmup + p.opt.Steps
	fmt.Fprintf(p.App.Stderr, "%s, ρ %.2f: predicted period %.0f ms, staleness %.2f; %d steps, about %s\n",
		p.label, f.Utilization, 1e3*f.Theory.PeriodS, f.Theory.Staleness, steps, wallTime(f.Theory.PeriodS*float64(steps)))
	p.Last = p.App.Now()
}

func (p *frontierProgress) step(step, steps int) {
	if !p.Due() {
		return
	}
	p.Show(fmt.Sprintf("%s: step %d of %d, about %s left of it", p.label, step, steps, wallTime(p.eachS*float64(steps-step))))
}

func (p *frontierProgress) ends(r study.FrontierRun) {
	p.Clear()
	fmt.Fprintf(p.App.Stderr, "%s: period %.0f ms (%+.1f %%), staleness %.2f (%+.1f %%), %s of decode steps late\n", p.label,
		1e3*r.Live.PeriodS, 100*(r.Live.PeriodS/r.Prediction.Theory.PeriodS-1), r.Live.Staleness, 100*(r.Live.Staleness/r.Prediction.Theory.Staleness-1), report.Share(r.Pace.DecodeLate))
}

// wallTime writes seconds for people.
func wallTime(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
