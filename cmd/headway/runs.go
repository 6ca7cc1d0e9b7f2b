package main

import (
	"fmt"
	"strconv"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/catalog"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// runsFolder says which folder of runs is meant.
type runsFolder struct {
	command.Output
	Dir string `default:"runs" placeholder:"FOLDER" help:"Folder of all runs (default: runs)."`
}

// list are the runs of the folder.
func (c *runsFolder) list(a *app.Process) ([]catalog.Run, error) {
	all, err := catalog.List(c.Dir, a.Now())
	if err != nil {
		return nil, failure.Usage("name the folder of all runs, such as runs", "%w", cannotRead(c.Dir, err))
	}
	if all == nil {
		all = []catalog.Run{}
	}
	return all, nil
}

// runsCmd lists runs.
type runsCmd struct {
	runsFolder
}

// Help explains the states; the command line prints it after the flags.
func (*runsCmd) Help() string {
	return `The states of a run:

  running    a process writes it
  complete   all its train steps are made
  stopped    it ended in order before that
  died       its process ended without a word
  broken     the loop broke an invariant: see its broken.json
  empty      it had no first event
  unknown    its log is in a NATS cluster and has no end: a process elsewhere may write it

A run that was stopped or died goes on by headway run --resume RUN, or by headway serve for its own.
Reward and loss are of the newest train step. The age counts from the last write.`
}

// Run prints a line a run, the newest first.
func (c *runsCmd) Run(a *app.Process) error {
	all, err := c.list(a)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.Stdout, struct {
			Folder string        `json:"folder"`
			Runs   []catalog.Run `json:"runs"`
		}{c.Dir, all})
	}
	if len(all) == 0 {
		_, err := fmt.Fprintf(a.Stdout, "%s has no runs; headway run makes one\n", c.Dir)
		return err
	}
	return printRuns(a, all)
}

// printRuns prints a table of runs.
func printRuns(a *app.Process, all []catalog.Run) error {
	table := report.Table{Header: []string{"run", "of", "state", "steps", "age", "size", "reward", "loss"}}
	for _, r := range all {
		state := r.State
		switch {
		case r.PID != "":
			state += " as " + r.PID
		case r.State == catalog.Stopped && r.Ended != catalog.Stopped:
			state += ": " + r.Ended
		}
		made := fmt.Sprint(r.Steps)
		if r.Planned > 0 {
			made += fmt.Sprintf(" of %d", r.Planned)
		}
		table.Rows = append(table.Rows, []string{report.Plain(r.Dir), r.Command, state, made, ageText(r.AgeS), byteSize(r.Bytes), latest(r.Reward), latest(r.Loss)})
	}
	_, err := fmt.Fprint(a.Stdout, table.Fit(command.Columns(a)))
	return err
}

// latest prints a figure of the newest train step, a dash before the first.
func latest(value *float64) string {
	if value == nil {
		return "–"
	}
	return strconv.FormatFloat(*value, 'f', 3, 64)
}
