package main

import (
	"errors"
	"fmt"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/drive/replay"
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
	if err != nil && c.Timeline != "" && found.Difference == nil && (errors.Is(err, replay.ErrIncomplete) || torn(err)) {
		return c.unfinished(application, doc, err)
	}
	if err != nil {
		err = replayError(file.Name(), err)
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
	doc.Error = replayError(doc.Trace, why).Error()
	if c.JSON {
		return printJSON(application.Stdout, doc)
	}
	_, err = fmt.Fprintf(application.Stdout, "identical so far: %s events give the %s recorded actions again, up to version %d; the trace has no end: the run goes on, or was interrupted\n%s\n",
		report.Count(doc.Events), report.Count(doc.Actions), doc.Version, drawing.drawn())
	return err
}

// torn reports whether a trace ends in the middle of a line.
func torn(err error) bool {
	var at *trace.Error
	return errors.As(err, &at) && at.Torn
}

// replayError says what can be done about a trace that cannot be replayed.
func replayError(path string, err error) error {
	switch {
	case errors.Is(err, trace.ErrNoTrace):
		return failure.Usage("name a run's directory, or its "+trace.FileName, "%s: %w", path, err)
	case errors.Is(err, trace.ErrEmpty):
		return failure.Run("the run ended before its first step: start it anew, or name another", "%s: %w", path, err)
	case errors.Is(err, replay.ErrIncomplete):
		return failure.Run("headway run --resume goes on with an interrupted run", "%s: %w", path, err)
	case torn(err):
		return failure.Run("headway run --resume cuts the torn line off and goes on", "%s: %w", path, err)
	}
	return failure.Run("restore the file from a copy; nothing after that place can be trusted", "%s: %w", path, err)
}
