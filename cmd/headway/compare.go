package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// compareCmd puts runs side by side.
type compareCmd struct {
	judgement
	Paths []string `arg:"" name:"run" help:"Run directories, trace files, or another framework's logs. The first is what the others are compared with."`
	From  string   `placeholder:"FRAMEWORK" help:"Framework that wrote the logs that are not ours. By default their keys name it."`
	HTML  string   `name:"html" placeholder:"OUT.html" help:"Write a self-contained page with pictures."`
}

// Help explains what is compared; the command line prints it after the flags.
func (c *compareCmd) Help() string {
	return `Prints the settings that differ, staleness with its sources, how a target was kept, and measured beside predicted.
It goes on with period, idle time, throughput, the fates of rollouts, and how far training was off policy.
Intervals are 95 %, by batch means over train steps. Obstacles to a comparison (another task, seed or program) come first.

  headway compare runs/a runs/b runs/c
  headway compare runs/a                                        the figures of one run
  headway compare runs/ours logs/theirs --from verl-fa --html side-by-side.html`
}

// runsMax bounds the runs of one comparison.
const runsMax = 64

// Run reads the runs and prints them side by side.
func (c *compareCmd) Run(application *app.Process) error {
	if len(c.Paths) > runsMax {
		return failure.Usage("headway compare RUN RUN", "%s given: expected at most %d", report.Counted(len(c.Paths), "run"), runsMax)
	}
	var page *os.File
	if c.HTML != "" {
		var err error
		if page, err = createFile("--html", c.HTML); err != nil {
			return err
		}
	}
	ctx, stop := command.Interruptible()
	defer stop()
	doc, err := compare.Runs(ctx, c.Paths, c.From, meterOf(application))
	if err != nil {
		if page != nil {
			err = errors.Join(err, page.Close(), os.Remove(c.HTML))
		}
		return err
	}
	if page != nil {
		w := bufio.NewWriter(page)
		if err := errors.Join(report.DocumentHTML(w, doc.Page()), w.Flush(), page.Close()); err != nil {
			return fmt.Errorf("--html %s: %w", c.HTML, err)
		}
	}
	return c.print(application, doc, doc.First(), doc.Text)
}
