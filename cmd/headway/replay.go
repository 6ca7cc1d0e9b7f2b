package main

import (
	"errors"
	"fmt"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/report"
)

// replayCmd takes a recorded run through the loop again.
type replayCmd struct {
	command.Output
	timelineOptions
	Path string `arg:"" name:"run" help:"A run directory, or a trace file."`
}

// replayReport is what headway replay --json prints.
type replayReport struct {
	Trace string `json:"trace"`
	// Identical: every recorded action is what the loop decides.
	Identical bool `json:"identical"`
	replay.Report
	// Error says why the trace could not be read to its end; empty if it could.
	Error string `json:"error,omitempty"`
}

// Run replays and says whether the trace is reproduced.
func (c *replayCmd) Run(application *app.Process) error {
	if err := c.check(); err != nil {
		return err
	}
	file, err := trace.Open(c.Path)
	if err != nil {
		return failure.Usage("name a run directory that headway run made, or a trace file", "%w", err)
	}
	defer file.Close()
	found, err := replay.Verify(file)
	doc := replayReport{Trace: file.Name(), Identical: err == nil && found.Difference == nil, Report: found}
	if err != nil && c.Timeline != "" && found.Difference == nil && (errors.Is(err, replay.ErrIncomplete) || compare.Torn(err)) {
		return c.unfinished(application, doc, err)
	}
	if err != nil {
		err = compare.TraceError(file.Name(), err)
		doc.Error = err.Error()
	}
	if c.JSON {
		if jsonErr := printJSON(application.Stdout, doc); jsonErr != nil {
			return jsonErr
		}
	} else if doc.Identical {
		fmt.Fprintf(application.Stdout, "identical: %s events give the %s recorded actions again, up to version %d\n",
			report.Count(found.Events), report.Count(found.Actions), found.Version)
		if found.Recoveries > 0 {
			fmt.Fprintf(application.Stdout, "the run was recovered %s; of its actions before that %d were never executed\n", report.Counted(found.Recoveries, "time"), found.Missing)
		}
	}
	switch {
	case err != nil:
		return err
	case found.Difference != nil:
		return failure.Run(fmt.Sprintf("the trace was written by %s; this is %s", found.Header.Program, programName()),
			"%s: after %s that are identical: %v", file.Name(), report.Counted(found.Actions, "action"), found.Difference)
	}
	drawing, err := drawTrace(c.Path, c.timelineOptions)
	if err != nil || drawing == nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintln(application.Stdout, drawing.drawn())
	return err
}

// unfinished draws a run whose trace has no end, as that of a run which goes on: what it says so far is
// what the loop decides, and is drawn.
func (c *replayCmd) unfinished(application *app.Process, doc replayReport, why error) error {
	drawing, err := drawTrace(c.Path, c.timelineOptions)
	if err != nil {
		return err
	}
	doc.Error = compare.TraceError(doc.Trace, why).Error()
	if c.JSON {
		return printJSON(application.Stdout, doc)
	}
	_, err = fmt.Fprintf(application.Stdout, "identical so far: %s events give the %s recorded actions again, up to version %d; the trace has no end: the run goes on, or was interrupted\n%s\n",
		report.Count(doc.Events), report.Count(doc.Actions), doc.Version, drawing.drawn())
	return err
}
