package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/shrink"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// shrinkCmd makes a failing plan smaller.
type shrinkCmd struct {
	World string        `arg:"" name:"seed-or-plan" help:"A seed, which is a number, or the path of a plan."`
	Rule  string        `placeholder:"RULE" help:"The rule that smaller plans have to break: the first one that the plan breaks, unless given."`
	Tries int           `default:"3" placeholder:"N" help:"With how many seeds each smaller plan is tried: its own first."`
	For   time.Duration `placeholder:"TIME" help:"End after this time, with the smallest plan so far."`
	Out   string        `placeholder:"FILE" help:"The file for the script: in the user's cache folder, unless given."`
	building
	limits
	command.Output
}

// Run runs the plan, and then smaller ones.
func (c *shrinkCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	j, err := job(c.World)
	if err != nil {
		return err
	}
	p, err := c.open(ctx, a, c.limits)
	if err != nil {
		return err
	}
	defer p.Close()
	first, err := p.Run(ctx, j)
	if err != nil {
		return err
	}
	rule := c.Rule
	if rule == "" {
		rule = first.Rule
	}
	if !first.Breaks(rule) {
		return failure.Usage("", "%s does not break the rule %q: nothing is to be made smaller (it breaks %q)", c.World, rule, first.Rule)
	}
	small, runs, err := c.search(ctx, a, p, first, rule)
	if err != nil {
		return err
	}
	last, err := p.Run(context.WithoutCancel(ctx), program.Job{Plan: &small})
	if err != nil {
		return err
	}
	return c.finish(a, first, last, runs)
}

// search makes the plan smaller until the time is over, or the user interrupts it.
func (c *shrinkCmd) search(ctx context.Context, a *app.Process, p *program.Program, first program.Result, rule string) (plan.Plan, int64, error) {
	within, cancel := ctx, context.CancelFunc(func() {})
	if c.For > 0 {
		within, cancel = context.WithTimeout(ctx, c.For)
	}
	defer cancel()
	var runs atomic.Int64
	small, err := shrink.Search{
		Jobs: c.jobs(), Tries: c.Tries,
		Fails: func(ctx context.Context, candidate plan.Plan) (bool, error) {
			runs.Add(1)
			r, err := p.Run(ctx, program.Job{Plan: &candidate})
			return err == nil && alike(first, r, rule), err
		},
		Adopted: func(p plan.Plan, change string) {
			fmt.Fprintf(a.Stderr, "%4d runs: %s\n", runs.Load(), change)
		},
	}.Smallest(within, first.Plan)
	if within.Err() != nil {
		err = nil // the smallest plan so far is worth keeping
	}
	return small, runs.Load(), err
}

// numbers are what differs between two panics at one place.
var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// alike reports whether a run fails as the first one did: by the same rule, and by the same panic.
func alike(first, r program.Result, rule string) bool {
	if rule == program.Panic && numbers.ReplaceAllString(first.Text, "0") != numbers.ReplaceAllString(r.Text, "0") {
		return false
	}
	return r.Breaks(rule)
}

// finish keeps the script, and prints it.
func (c *shrinkCmd) finish(a *app.Process, first, last program.Result, runs int64) error {
	path := c.Out
	if path == "" {
		cache, err := program.Cache()
		if err != nil {
			return err
		}
		path = filepath.Join(cache, "small", fmt.Sprintf("%s-seed-%d.json", strings.Map(word, last.Rule), first.Seed))
	}
	script := soak.Script{Comment: last.Text, Rule: last.Rule, Plan: last.Plan}
	if err := script.Write(path); err != nil {
		return err
	}
	if c.JSON {
		return report.JSON(a.Stdout, struct {
			Script soak.Script `json:"script"`
			File   string      `json:"file"`
			Runs   int64       `json:"runs"`
		}{script, path, runs})
	}
	printPlan(a.Stdout, last.Plan)
	fmt.Fprintf(a.Stdout, "steps     %d of %d\nfaults    %d of %d\nBROKEN    %s: %s\nruns      %d\nscript    %s\n", last.Plan.Steps, first.Plan.Steps, len(last.Plan.Faults), len(first.Plan.Faults), last.Rule, last.Text, runs, path)
	return nil
}

// word keeps the letters and digits of a rule for a file's name.
func word(r rune) rune {
	if r == '-' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}
