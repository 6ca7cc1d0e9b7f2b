package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// studyStalenessCmd is the study of staleness against reward.
type studyStalenessCmd struct {
	studyFiles
	Task        string   `default:"reverse" placeholder:"NAME" help:"Task: reverse or sort (${default})."`
	Lags        []int    `placeholder:"N,…" help:"Exact lags in versions (0,1,2,4,8,16). 0 is what others are compared with, and always among them."`
	Corrections []string `placeholder:"NAME,…" help:"Corrections for stale tokens: none, ppo-clip, tis, decoupled-ppo, icepop, sequence-mask, dppo (all)."`
	Seeds       int      `default:"5" help:"Seeds of every arm; one gives no interval."`
	Steps       int      `placeholder:"N" help:"Train steps of every run; by default as many as the task takes without staleness."`
	TrustKept   bool     `help:"Go on from runs in --out that another build of headway made."`
	// Live and Wall are of live runs.
	Live bool    `help:"Compare live runs at equal wall time instead, their mean staleness bounded at each lag: wants a quiet machine."`
	Wall float64 `default:"12" placeholder:"S" help:"With --live: wall time of every run in seconds."`

	madeBy string // the other build that made runs which are taken as they are, "" for none
}

// lagRunsFile holds the study's finished runs.
const lagRunsFile = "staleness-%s.jsonl"

// quickSteps are those of runs that are only to show that the study works.
const quickSteps = 12

// Run teaches and prints.
func (c *studyStalenessCmd) Run(a *app.Process) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if c.Live {
		return c.live(a, o)
	}
	kept, err := c.kept()
	if err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	show := newStudyProgress(a)
	show.what = "runs"
	result, err := study.Staleness(ctx, o, study.Teacher{Teach: teach, Progress: show.update, Kept: kept})
	show.Clear()
	if err = errors.Join(err, kept.Close()); err != nil {
		if errors.Is(err, context.Canceled) {
			return failure.Run(c.goOn(), "the study was interrupted")
		}
		return err
	}
	from := provenance(a, c.command(o))
	if c.madeBy != "" {
		from.Program += "; runs begun by " + c.madeBy
	}
	return c.print(a, result, from)
}

// live compares live runs. Their steps are what the wall time allows.
func (c *studyStalenessCmd) live(a *app.Process, o study.StalenessOptions) error {
	if !(c.Wall > 0) || c.Steps != 0 {
		return failure.Usage("go run ./cmd/lab study staleness --help lists its flags", "--wall %g must be above 0, and --steps %d is of no use with --live", c.Wall, c.Steps)
	}
	command := fmt.Sprintf("go run ./cmd/lab study staleness --live --task %s --lags %s --corrections %s --seeds %d --wall %g", o.Task, listed(o.Lags), strings.Join(o.Corrections, ","), o.Seeds, c.Wall)
	if c.Quick {
		o.Seeds, c.Wall, command = 1, min(c.Wall, quickWallS), command+" --quick"
	}
	var seeds []uint64
	for seed := range o.Seeds {
		seeds = append(seeds, uint64(seed)+1)
	}
	contest := study.StalenessLive(o, seeds, c.Wall)
	if _, err := contest.Documents(); err != nil {
		return err
	}
	return c.play(a, contest.Name, command, []study.Contest{contest})
}

// listed is a list of numbers as a flag takes it.
func listed(numbers []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}

// options are the flags, checked.
func (c *studyStalenessCmd) options() (study.StalenessOptions, error) {
	o := study.StalenessOptions{Task: c.Task, Lags: c.Lags, Corrections: c.Corrections, Seeds: c.Seeds, Steps: c.Steps, Quick: c.Quick}
	var tasks, corrections []string
	for _, t := range study.StalenessTasks() {
		tasks = append(tasks, t.Name)
		if t.Name == o.Task && o.Steps == 0 {
			o.Steps = t.Steps
		}
	}
	for _, k := range study.StalenessCorrections() {
		corrections = append(corrections, k.Name)
	}
	if !slices.Contains(tasks, o.Task) {
		return o, failure.Usage("the tasks are "+strings.Join(tasks, " and "), "--task %s: there is no such task", o.Task)
	}
	if len(o.Lags) == 0 {
		o.Lags = study.StalenessLags()
	}
	if len(o.Corrections) == 0 {
		o.Corrections = corrections
	}
	if c.Quick {
		o.Steps, o.Seeds = quickSteps, min(o.Seeds, 2)
		if len(c.Lags) == 0 {
			o.Lags = []int{0, 4}
		}
	}
	for _, name := range o.Corrections {
		if !slices.Contains(corrections, name) {
			return o, failure.Usage("the corrections are "+strings.Join(corrections, ", "), "--corrections %s: there is no such correction", name)
		}
	}
	slices.Sort(o.Lags)
	o.Lags = slices.Compact(o.Lags)
	if o.Lags[0] < 0 || o.Lags[len(o.Lags)-1] > maxLag {
		return o, failure.Usage("a lag is a number of versions", "--lags %v: want 0 to %d", o.Lags, maxLag)
	}
	if o.Lags[0] > 0 {
		o.Lags = append([]int{0}, o.Lags...)
	}
	if o.Seeds < 1 || o.Steps < 1 || o.Steps > 100_000 {
		return o, failure.Usage("go run ./cmd/lab study staleness --help lists its flags", "--seeds %d and --steps %d must be at least 1, and steps at most 100000", o.Seeds, o.Steps)
	}
	return o, nil
}

// maxLag bounds what is sampled ahead, and kept.
const maxLag = 256

// command is what repeats the study.
func (c *studyStalenessCmd) command(o study.StalenessOptions) string {
	command := fmt.Sprintf("go run ./cmd/lab study staleness --task %s --lags %s --corrections %s --seeds %d", o.Task,
		listed(o.Lags), strings.Join(o.Corrections, ","), o.Seeds)
	if c.Quick {
		return command + " --quick"
	}
	return command + fmt.Sprintf(" --steps %d", o.Steps)
}

// kept opens the finished runs in the study's folder, nil without one.
func (c *studyStalenessCmd) kept() (*study.Kept, error) {
	if err := c.folder(); err != nil || c.Out == "" {
		return nil, err
	}
	path := filepath.Join(c.Out, fmt.Sprintf(lagRunsFile, c.Task))
	program := programRevision()
	if c.TrustKept {
		made, err := study.KeptBy(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if made != "" && made != program {
			program, c.madeBy = made, made
		}
	}
	kept, err := study.OpenKept(path, program)
	switch {
	case errors.Is(err, study.ErrOtherProgram):
		return nil, failure.Usage("name another --out, delete the file to learn anew, or take its runs as they are with --trust-kept", "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, failure.Usage("name a folder that can be written to", "--out: %w", err)
	}
	return kept, err
}

func (c *studyStalenessCmd) print(a *app.Process, result study.StalenessResult, from study.Provenance) error {
	document := struct {
		study.Provenance
		study.StalenessResult
	}{from, result}
	text := func(w io.Writer) error { return study.StalenessText(w, result, from) }
	if c.Out == "" {
		if c.JSON {
			return report.JSON(a.Stdout, document)
		}
		return text(a.Stdout)
	}
	name := "staleness"
	if c.Task != study.StalenessTasks()[0].Name {
		name += "-" + c.Task
	}
	err := errors.Join(
		c.write(name+".md", func(w io.Writer) error { return study.StalenessMarkdown(w, result, from, name+".html") }),
		c.write(name+".html", func(w io.Writer) error { return study.StalenessHTML(w, result, from) }),
		c.write(name+".csv", func(w io.Writer) error { return study.StalenessCSV(w, result) }),
		c.write(name+".json", func(w io.Writer) error { return json.NewEncoder(w).Encode(document) }))
	if err != nil {
		return err
	}
	return endStudy(a, c.Out, name+".md", c.JSON, document, text)
}
