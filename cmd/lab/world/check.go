package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// checkCmd is what has to pass: kept plans, and some hundred seeds.
type checkCmd struct {
	Seeds   string `default:"1-300" placeholder:"A-B" help:"The seeds."`
	Scripts string `placeholder:"DIR" help:"The folder of plans that failed once: cmd/lab/world/testdata, unless given."`
	building
	limits
	command.Output
}

// checkReport is what check says with --json.
type checkReport struct {
	soakReport
	// Scripts are the kept plans, with the rules that they break now.
	Scripts []scriptReport `json:"scripts"`
}

// scriptReport is the answer about a kept plan.
type scriptReport struct {
	File    string `json:"file"`
	Comment string `json:"comment"`
	Rule    string `json:"rule,omitempty"`
	Text    string `json:"text,omitempty"`
}

// Run runs the kept plans, then the seeds.
func (c *checkCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	seeds, err := soak.Parse(c.Seeds)
	if err != nil {
		return failure.Usage("", "--seeds: %w", err)
	}
	if c.Scripts == "" {
		root, err := program.Root(ctx)
		if err != nil {
			return failure.Usage("", "%w", err)
		}
		c.Scripts = filepath.Join(root, "cmd", "lab", "world", "testdata")
	}
	cache, err := program.Cache()
	if err != nil {
		return err
	}
	p, err := c.open(ctx, a, c.limits)
	if err != nil {
		return err
	}
	defer p.Close()
	var r checkReport
	began := a.Now()
	if r.Scripts, err = c.scripts(ctx, p); err != nil {
		return err
	}
	r.Ledger = &soak.Ledger{Program: p.Sum}
	err = shown(ctx, a, soak.Soak{
		Run: runner(p), Seeds: seeds, Jobs: c.jobs(), FailuresMax: failuresShown, Ledger: r.Ledger, Folder: filepath.Join(cache, "check"), Now: a.Now,
	})
	if err != nil {
		return err
	}
	r.Left = seeds.Left(r.Done)
	r.Complete, r.Ran, r.Counted, r.TookS = r.Left == 0, r.Totals.Seeds, r.Totals.Counting, a.Now().Sub(began).Seconds()
	return c.finish(a, r)
}

// scripts runs the kept plans.
func (c *checkCmd) scripts(ctx context.Context, p *program.Program) ([]scriptReport, error) {
	paths, err := filepath.Glob(filepath.Join(c.Scripts, "*.json"))
	if err != nil {
		return nil, err
	}
	scripts, reports := make([]soak.Script, len(paths)), make([]scriptReport, len(paths))
	for i, path := range paths {
		if scripts[i], err = soak.ReadScript(path); err != nil {
			return nil, err
		}
		reports[i] = scriptReport{File: path, Comment: scripts[i].Comment}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	all := soak.Ranges{{0, uint64(len(paths) - 1)}}
	err = soak.Each(ctx, all.Without(nil), c.jobs(),
		func(ctx context.Context, i uint64) (program.Result, error) {
			return p.Run(ctx, program.Job{Plan: &scripts[i].Plan})
		},
		func(i uint64, result program.Result) bool {
			reports[i].Rule, reports[i].Text = result.Rule, result.Text
			return true
		})
	return reports, err
}

func (c *checkCmd) finish(a *app.Process, r checkReport) error {
	broken := slices.Clone(r.Scripts)
	broken = slices.DeleteFunc(broken, func(s scriptReport) bool { return s.Rule == "" })
	if c.JSON {
		if err := report.JSON(a.Stdout, r); err != nil {
			return err
		}
	} else {
		printSoak(a.Stdout, r.soakReport)
		fmt.Fprintf(a.Stdout, "%s, %d of them fail\n", report.Counted(len(r.Scripts), "kept plan"), len(broken))
		for _, s := range broken {
			fmt.Fprintf(a.Stdout, "FAILED    %s: %s: %s\n          it was kept for this: %s\n", s.File, s.Rule, s.Text, s.Comment)
		}
	}
	if len(broken) > 0 {
		return failure.Run("", "a plan that failed once fails again: %s: %s: %s", broken[0].File, broken[0].Rule, broken[0].Text)
	}
	return r.failed()
}
