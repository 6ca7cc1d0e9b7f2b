package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/observe/report"
)

// diagnoseCmd says what a run's staleness and idle time come from, and what changes would buy.
type diagnoseCmd struct {
	judgement
	Paths      []string `arg:"" name:"run" help:"A run directory or a trace; the address of a control plane; or another framework's log: files of its tracker, or its own."`
	From       string   `placeholder:"NAME" help:"The framework that wrote the log (default: found by its keys)."`
	ForeignRun string   `name:"run-name" placeholder:"NAME" help:"The run, where a log holds several."`
	Set        []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"A figure that another framework's log lacks, such as group_size=8 or tail_multiplier=1.6. Repeatable."`
	HTML       string   `name:"html" placeholder:"FILE" help:"Also write the diagnosis as one self-contained page."`
	Quick      bool     `help:"Closed forms alone: resimulate nothing."`
	TokenFile  string   `placeholder:"FILE" help:"Of a control plane: a file with the token alone, or the server's token file (default: the variable HEADWAY_TOKEN)."`
	CA         string   `name:"ca" placeholder:"FILE" help:"Certificate (PEM) that signed the control plane's, where the system does not know it."`
}

// Run diagnoses and prints.
func (c *diagnoseCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	show := &diagnoseProgress{command.NewStatusLine(a)}
	r, err := c.diagnose(ctx, a, show)
	show.Clear()
	if err != nil {
		return err
	}
	if c.HTML != "" {
		if err := writeDiagnosisPage(c.HTML, r); err != nil {
			return err
		}
	}
	return c.print(a, r, diagnosis.First(r), func(columns int) string { return diagnosis.Text(r, columns) })
}

// diagnose finds out what is named, and judges it.
func (c *diagnoseCmd) diagnose(ctx context.Context, a *app.Process, show *diagnoseProgress) (diagnosis.Report, error) {
	kind, err := c.kind()
	if err != nil {
		return diagnosis.Report{}, err
	}
	if kind != kindForeign && (c.From != "" || c.ForeignRun != "" || len(c.Set) > 0) {
		return diagnosis.Report{}, failure.Usage("leave them out: a run of Headway says everything itself", "--from, --run-name and --set are for logs of other frameworks, and %s is none", c.Paths[0])
	}
	switch kind {
	case kindTrace:
		return compare.Diagnose(ctx, c.Paths[0], c.Quick, show.update)
	case kindPlane:
		return c.ofPlane(ctx, a)
	}
	return c.ofLog(ctx, show)
}

// What may be named.
const (
	kindTrace = iota
	kindPlane
	kindForeign
)

// kind says what is named. Several paths are one run's log in several files: a run of ours is no part of it.
func (c *diagnoseCmd) kind() (int, error) {
	kind, err := kindOf(c.Paths[0])
	if err != nil || len(c.Paths) == 1 {
		return kind, err
	}
	for _, path := range c.Paths {
		if kind, err = kindOf(path); err != nil {
			return 0, err
		}
		if kind != kindForeign {
			return 0, failure.Usage("headway diagnose "+printable.Word(path)+" alone, or headway compare "+strings.Join(c.Paths, " "),
				"%s is a run of Headway: a diagnosis is of one run, and several paths are the files of one log of another framework", path)
		}
	}
	return kindForeign, nil
}

// kindOf says what a path or an address is.
func kindOf(path string) (int, error) {
	if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
		return kindPlane, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, failure.Usage("name a run directory, a trace, the address of a control plane (http://…), or a log", "%w", cannotRead(path, err))
	}
	if own, err := compare.HoldsTrace(path); err != nil || own { // also of a control plane that has stopped
		return kindTrace, err
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, origin.AddressFile)); err == nil {
			return kindPlane, nil
		}
	}
	return kindForeign, nil
}

// ofLog diagnoses another framework's run.
func (c *diagnoseCmd) ofLog(ctx context.Context, show *diagnoseProgress) (diagnosis.Report, error) {
	given, fitted := map[string]float64{}, map[string]float64{}
	for _, text := range c.Set {
		key, value, _ := strings.Cut(text, "=")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
			return diagnosis.Report{}, failure.Usage("write it as KEY=NUMBER, such as group_size=8", "--set %s is no setting with a number", text)
		}
		if slices.Contains(diagnosis.Givable, key) {
			fitted[key] = number
		}
		if !slices.Contains(diagnosis.Givable, key) || key == "tail_multiplier" { // which a log may have, too
			given[key] = number
		}
	}
	log, err := foreign.Read(ctx, c.Paths, foreign.Options{From: c.From, Run: c.ForeignRun, Given: given, Progress: func(done, total int64) {
		show.update("reading the log", float64(done)/math.Max(float64(total), 1))
	}})
	if err != nil {
		if folder := compare.FolderError(c.Paths[0]); folder != nil {
			return diagnosis.Report{}, folder
		}
		return diagnosis.Report{}, failure.Usage("name a run of Headway, or another framework's log; --from names the framework", "%w", err)
	}
	return diagnosis.OfLog(ctx, log, diagnosis.Options{Run: c.Paths[0], Given: fitted, ClosedForms: c.Quick, Progress: show.update})
}

// diagnoseProgress tells on stderr what is being done.
type diagnoseProgress struct{ command.StatusLine }

func (p *diagnoseProgress) update(what string, share float64) {
	if share > 0 {
		what = fmt.Sprintf("%s: %.0f %%", what, 100*share)
	}
	if p.Due() {
		p.Show(what)
	}
}

// writeDiagnosisPage writes a diagnosis as a page.
func writeDiagnosisPage(path string, r diagnosis.Report) (err error) {
	file, err := createFile("--html", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeOrRemove(file, err)) }()
	return report.DocumentHTML(file, diagnosis.Page(r))
}

// closeOrRemove closes a file that was written, and removes one that was not.
func closeOrRemove(file *os.File, failed error) error {
	err := file.Close()
	if failed != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}
