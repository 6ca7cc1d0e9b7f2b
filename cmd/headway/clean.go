package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/catalog"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// cleanCmd removes old runs.
type cleanCmd struct {
	runsFolder
	Older  string `placeholder:"AGE" help:"Remove runs last written longer ago, such as 30d, 12h or 0 (default: 30d, or any age with --keep)."`
	Keep   int    `placeholder:"N" help:"Keep the N newest runs."`
	Yes    bool   `short:"y" help:"Remove without asking."`
	DryRun bool   `help:"List what would be removed, and remove nothing."`
}

// Help says what stays; the command line prints it after the flags.
func (*cleanCmd) Help() string {
	return `It removes run directories of the folder, with their weights, trace and pages, and nothing else.
A run that a process writes stays, and so does everything that is no run directory. So does a run whose log is in
a NATS cluster, until it has ended: its writer may be elsewhere.`
}

// cleaned is what clean prints with --json. Removed is false of a dry run.
type cleaned struct {
	Folder  string        `json:"folder"`
	Removed bool          `json:"removed"`
	Bytes   int64         `json:"bytes"`
	Runs    []catalog.Run `json:"runs"`
}

// Run lists the old runs, asks, and removes them.
func (c *cleanCmd) Run(a *app.Process) error {
	older, err := c.age()
	if err != nil {
		return err
	}
	all, err := c.list(a)
	if err != nil {
		return err
	}
	done := cleaned{Folder: c.Dir, Runs: append([]catalog.Run{}, catalog.Old(all, older, c.Keep)...)}
	for _, r := range done.Runs {
		done.Bytes += r.Bytes
	}
	if len(done.Runs) == 0 {
		if c.JSON {
			return printJSON(a.Stdout, done)
		}
		_, err := fmt.Fprintf(a.Stdout, "nothing to remove: of %s in %s, none that has ended is that old\n", report.Counted(len(all), "run"), c.Dir)
		return err
	}
	if !c.JSON {
		if err := printRuns(a, done.Runs); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("%s, %s", report.Counted(len(done.Runs), "run"), byteSize(done.Bytes))
	remove, err := c.agreed(a, what)
	if err != nil {
		return err
	}
	if remove {
		if err := removeAll(done.Runs); err != nil {
			return err
		}
		done.Removed = true
	}
	if c.JSON {
		return printJSON(a.Stdout, done)
	}
	verb := map[bool]string{true: "removed", false: "would remove"}[remove]
	if !remove && !c.DryRun {
		verb = "nothing is removed of"
	}
	_, err = fmt.Fprintf(a.Stdout, "%s %s\n", verb, what)
	return err
}

// agreed reports whether the runs are to be removed. It asks a person, and refuses without a terminal.
func (c *cleanCmd) agreed(a *app.Process, what string) (bool, error) {
	switch {
	case c.DryRun:
		return false, nil
	case c.Yes:
		return true, nil
	case c.JSON || !a.IsTerminal(a.Stdin):
		return false, failure.Usage("--yes removes them without asking, --dry-run lists them", "there is no terminal to ask at whether to remove %s", what)
	}
	fmt.Fprintf(a.Stderr, "remove %s? [y/N] ", what)
	answer, _ := bufio.NewReader(a.Stdin).ReadString('\n') // an end of the input is a no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// removeAll removes runs. One that cannot be removed keeps none of the others.
func removeAll(old []catalog.Run) (err error) {
	for _, r := range old {
		err = errors.Join(err, catalog.Remove(r.Dir))
	}
	return err
}

// oldDefault is how long ago a run was last written that is old where nothing is said.
const oldDefault = 30 * 24 * time.Hour

// age is the least age of what is removed.
func (c *cleanCmd) age() (time.Duration, error) {
	if c.Keep < 0 {
		return 0, failure.Usage("--keep 0 keeps none", "--keep %d is below 0", c.Keep)
	}
	if c.Older == "" {
		return map[bool]time.Duration{true: 0, false: oldDefault}[c.Keep > 0], nil
	}
	if days, is := strings.CutSuffix(c.Older, "d"); is {
		n, err := strconv.ParseFloat(days, 64)
		if hours := n * 24; err == nil && n >= 0 && hours < math.MaxInt64/float64(time.Hour) {
			return time.Duration(hours * float64(time.Hour)), nil
		}
	} else if d, err := time.ParseDuration(c.Older); err == nil && d >= 0 {
		return d, nil
	}
	return 0, failure.Usage("a number with its unit, such as 30d, 12h or 90m", "--older %s is no age", c.Older)
}
