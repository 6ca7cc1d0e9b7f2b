package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// studyCmd holds the scripted experiments.
type studyCmd struct {
	List        studyListCmd        `cmd:"" default:"withargs" help:"List the studies."`
	Accuracy    studyAccuracyCmd    `cmd:"" help:"The closed forms against the simulator over a grid of settings: errors per regime, before and after each correction."`
	Attribution studyAttributionCmd `cmd:"" help:"The source of staleness that the attribution names against removing it: random runs, simulated again without each source."`
	Cases       studyCasesCmd       `cmd:"" help:"The constants of headway reproduce --cases, fitted to a table of published runs, and the errors of its answers by family."`
	Control     studyControlCmd     `cmd:"" help:"The controller under drifts, in simulation, beside fixed settings, prime-rl's AIMD, AReaL's bound and an oracle: steps held, throughput, oscillation."`
	Frontier    studyFrontierCmd    `cmd:"" help:"Staleness against train period, live, at every split of a number of modelled devices, beside the predicted frontier and the simulated one."`
	Hold        studyHoldCmd        `cmd:"" help:"Hold and newest first against queue-drop, in simulation: the table, its printed numbers, and other ideas. With --live, in live runs."`
	Staleness   studyStalenessCmd   `cmd:"" help:"The cost of staleness in reward: a task learned at exact lags under every correction, at equal steps and at equal time. With --live, in live runs."`
	Presets     studyPresetsCmd     `cmd:"" help:"Every framework's rules, live, on one task, from the same seeds and for the same wall time."`
}

// studyEntry is a study in the list.
type studyEntry struct {
	Name  string `json:"name"`
	Asks  string `json:"asks"`
	Needs string `json:"needs"`
}

// studyList is what go run ./cmd/lab study prints.
var studyList = []studyEntry{
	{"accuracy", "How far are the closed forms from the simulator, regime by regime?", "simulation; all cores, about a quarter of an hour on two; --small for seconds"},
	{"attribution", "Is the source of staleness that is named the one whose removal lowers it most?", "simulation; all cores, about two minutes on two"},
	{"cases", "How far are predictions of other people's runs off, and which constants do they take?", "a table of published runs (--cases); one core, about two minutes"},
	{"control", "Does the controller keep its goal under drifts, at what throughput, and do others?", "simulation; all cores, about an hour on two; --drift, --world and --goal for a part, --quick for a minute"},
	{"frontier", "How stale is training and how long its period at every split of the devices, live, and was it predicted?", "live runs at the pace of modelled devices; 7 splits of 8, 2 seeds: about half an hour on a quiet machine; --quick for a minute"},
	{"control --live", "Does the loop's controller hold its goal in live runs whose task, tools and engines drift?", "live runs; 5 documents, 3 drifts, 3 seeds of about 18 s: about 14 minutes; --live --simulated for seconds"},
	{"hold", "Do hold and newest first beat queue-drop, are the numbers printed in the theory ours, and is anything better?", "simulation; all cores, about a quarter of an hour on two"},
	{"hold --live", "What are hold and newest first worth in live runs?", "live runs; 5 arms, 5 seeds, 2 scenarios of 12 s: about 11 minutes"},
	{"staleness", "What does staleness cost in reward, under which correction, and is it the learning rate?", "48 arms, 5 seeds of an embedded run each; all cores, about a quarter of an hour on two; --quick for seconds"},
	{"staleness --live", "What is freshness worth at equal wall time?", "live runs; 16 arms, 5 seeds of 12 s: about 16 minutes"},
	{"presets", "How do the frameworks' loops compare on one task?", "live runs; 14 arms, 3 seeds, 2 scenarios of 12 s: about 18 minutes; --scenario for one of them"},
}

// studyListCmd lists the studies.
type studyListCmd struct {
	command.Output
	Name string `arg:"" optional:"" hidden:""`
}

// Run lists; a name that got here is no study's.
func (c *studyListCmd) Run(a *app.Process) error {
	if c.Name != "" {
		return failure.Usage("the studies are accuracy, attribution, control, frontier, hold, staleness and presets; go run ./cmd/lab study lists them", "there is no study named %q", c.Name)
	}
	if c.JSON {
		return report.JSON(a.Stdout, studyList)
	}
	table := report.Table{Header: []string{"study", "asks", "needs"}}
	for _, s := range studyList {
		table.Rows = append(table.Rows, []string{s.Name, s.Asks, s.Needs})
	}
	if _, err := table.WriteTo(a.Stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, "\ngo run ./cmd/lab study NAME --help says what it takes.")
	return err
}

// studyFiles is embedded by every study.
type studyFiles struct {
	command.Output
	Out   string `placeholder:"DIR" help:"Write the study's files into this folder; made if it is missing. A study that was broken off goes on from what is there."`
	Quick bool   `help:"A corner of the study, in seconds: shows that it works, and is no result."`
}

// folder makes the folder of the study's files; "" where there is none.
func (c *studyFiles) folder() error {
	if c.Out == "" {
		return nil
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return failure.Usage("name a folder that can be made", "--out: %w", err)
	}
	return nil
}

// write makes a file of the study, whole or not at all.
func (c *studyFiles) write(name string, fill func(io.Writer) error) error {
	file, err := os.CreateTemp(c.Out, name+".*")
	if err != nil {
		return err
	}
	err = errors.Join(fill(file), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(c.Out, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// provenance says how figures came about.
func provenance(a *app.Process, command string) study.Provenance {
	return study.Provenance{Command: command, Program: programRevision(),
		Machine: fmt.Sprintf("%s/%s with %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), Date: a.Now().Format(time.DateOnly)}
}

// programVersion names the program in the traces of its runs.
func programVersion() string { return "headway " + command.CurrentBuild().Version }

// programRevision names the program as exactly as it is known: by its commit, or
// where it was built from something else by a digest of the program itself.
func programRevision() string {
	b := command.CurrentBuild()
	text := programVersion()
	if b.Revision != "" && !b.Modified {
		return text + " " + b.Revision[:min(len(b.Revision), 12)]
	}
	digest := sha256.New()
	path, err := os.Executable()
	if err != nil {
		return text
	}
	file, err := os.Open(path)
	if err != nil {
		return text
	}
	defer file.Close()
	if _, err := io.Copy(digest, file); err != nil {
		return text
	}
	return text + fmt.Sprintf(" %x", digest.Sum(nil)[:6])
}

// studyHoldCmd is the study of hold in simulation.
type studyHoldCmd struct {
	studyFiles
	Seeds    int `default:"5" help:"Seeds of every simulation, or of every arm of --live; one gives no interval."`
	Measured int `default:"1000" help:"Train steps measured of every simulation with a batch of 64 rollouts; others are measured over as many rollouts."`
	Warmup   int `default:"150" help:"Train steps before them."`
	// Live and what follows are of live runs.
	Bound    bool    `help:"Only how far rules are above the least staleness that one can have which does not choose by length."`
	Live     bool    `help:"Compare live runs at equal wall time instead of simulating."`
	Wall     float64 `default:"12" placeholder:"S" help:"With --live: wall time of every run in seconds."`
	Scenario string  `default:"all" enum:"all,plain,tools" help:"With --live: plain has no tool time, tools has, all are both."`
}

// keptFile holds a study's finished simulations.
const keptFile = "trials.jsonl"

// Run simulates and prints.
func (c *studyHoldCmd) Run(a *app.Process) error {
	if c.Seeds < 1 || c.Measured < 1 || c.Warmup < 0 {
		return failure.Usage("go run ./cmd/lab study hold --help lists its flags", "--seeds %d, --measured %d and --warmup %d must be at least 1, 1 and 0", c.Seeds, c.Measured, c.Warmup)
	}
	if c.Live {
		flags := liveFlags{Wall: c.Wall, Seeds: c.Seeds, Scenario: c.Scenario}
		return flags.compare(a, "hold --live", &c.studyFiles, study.HoldLive)
	}
	opt := study.HoldOptions{Seeds: c.Seeds, Warmup: c.Warmup, Measured: c.Measured, Quick: c.Quick}
	line := fmt.Sprintf("go run ./cmd/lab study hold --seeds %d --warmup %d --measured %d", c.Seeds, c.Warmup, c.Measured)
	if c.Quick {
		line += " --quick"
	}
	simulate := study.Hold
	if c.Bound {
		simulate, line = study.Bound, line+" --bound"
	}
	ctx, stop := command.Interruptible()
	defer stop()
	kept, err := c.kept()
	if err != nil {
		return err
	}
	show := newStudyProgress(a)
	result, err := simulate(ctx, opt, study.Simulator{Progress: show.update, Kept: kept})
	show.Clear()
	if err = errors.Join(err, kept.Close()); err != nil {
		if errors.Is(err, context.Canceled) {
			return failure.Run(c.goOn(), "the study was interrupted")
		}
		return err
	}
	return c.print(a, result, provenance(a, line))
}

// goOn says how to go on with a study that was broken off.
func (c *studyFiles) goOn() string {
	if c.Out == "" {
		return "with --out DIR it would go on from where it was"
	}
	return "the same command goes on from where it was"
}

// kept opens the finished simulations in the study's folder, nil without one.
func (c *studyFiles) kept() (*study.Kept, error) {
	if err := c.folder(); err != nil || c.Out == "" {
		return nil, err
	}
	kept, err := study.OpenKept(filepath.Join(c.Out, keptFile), programRevision())
	switch {
	case errors.Is(err, study.ErrOtherProgram):
		return nil, failure.Usage("name another --out, or delete the file to simulate anew", "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, failure.Usage("name a folder that can be written to", "--out: %w", err)
	}
	return kept, err
}

func (c *studyHoldCmd) print(a *app.Process, result study.HoldResult, from study.Provenance) error {
	markdown := func(w io.Writer) error { return study.HoldMarkdown(w, result, from) }
	document := struct {
		study.Provenance
		study.HoldResult
	}{from, result}
	if c.Bound {
		return c.save(a, "hold-bound", c.JSON, document, func(w io.Writer) error { return study.BoundMarkdown(w, result, from) })
	}
	if c.Out != "" {
		err := errors.Join(
			c.write("hold.md", markdown),
			c.write("hold-bound.md", func(w io.Writer) error { return study.BoundMarkdown(w, result, from) }),
			c.write("hold-ideas.md", func(w io.Writer) error { return study.IdeasMarkdown(w, result, from) }),
			c.write("hold.csv", func(w io.Writer) error { return study.HoldCSV(w, result) }),
			c.write("hold.json", func(w io.Writer) error { return report.JSON(w, document) }))
		if err != nil {
			return err
		}
	}
	return endStudy(a, c.Out, "hold.md", c.JSON, document, markdown)
}

// endStudy says in which file a study is, if it was written to a folder, and prints
// it: as JSON where that was asked, as a document where there is no folder.
func endStudy(a *app.Process, dir, file string, asJSON bool, document any, markdown func(io.Writer) error) error {
	if dir != "" {
		fmt.Fprintf(a.Stderr, "the study is in %s\n", filepath.Join(dir, file))
	}
	switch {
	case asJSON:
		return report.JSON(a.Stdout, document)
	case dir == "":
		return markdown(a.Stdout)
	}
	return nil
}

// save writes a study as NAME.md and NAME.json, where there is a folder for it, and ends it.
func (f *studyFiles) save(a *app.Process, name string, asJSON bool, document any, markdown func(io.Writer) error) error {
	if f.Out != "" {
		err := errors.Join(f.write(name+".md", markdown),
			f.write(name+".json", func(w io.Writer) error { return report.JSON(w, document) }))
		if err != nil {
			return err
		}
	}
	return endStudy(a, f.Out, name+".md", asJSON, document, markdown)
}

// studyProgress counts what is done of a study on stderr: in place on a terminal,
// now and then elsewhere.
type studyProgress struct {
	command.StatusLine
	// what is counted; by default simulations.
	what  string
	began time.Time
}

func newStudyProgress(a *app.Process) *studyProgress {
	status := command.NewStatusLine(a)
	return &studyProgress{StatusLine: status, began: status.Looked}
}

func (p *studyProgress) update(done, all int) {
	if done == 0 || !p.Due() {
		return
	}
	left := time.Duration(float64(p.Looked.Sub(p.began)) * float64(all-done) / float64(done)).Round(time.Second)
	p.Show(fmt.Sprintf("%d of %d %s, about %s left", done, all, cmp.Or(p.what, "simulations"), left))
}
