package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/outcome"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// runCmd runs one world.
type runCmd struct {
	World   string `arg:"" name:"seed-or-plan" help:"A seed, which is a number, or the path of a plan."`
	Keep    string `placeholder:"DIR" help:"Copy all that the world leaves to this folder, which is empty or not there."`
	Trace   string `placeholder:"FILE" help:"Copy the trace of the world's run to this file, for headway view."`
	Plan    string `placeholder:"FILE" help:"Write the plan to this file."`
	History string `placeholder:"FILE" help:"Write everything that the hosts saw and did to this file, a line of JSON each."`
	building
	limits
	command.Output
}

// job is the world that an argument names.
func job(argument string) (program.Job, error) {
	if seed, err := strconv.ParseUint(argument, 10, 64); err == nil {
		return program.Job{Seed: seed}, nil
	}
	s, err := soak.ReadScript(argument)
	return program.Job{Plan: &s.Plan}, err
}

// Run runs the world, and prints what happened in it.
func (c *runCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	j, err := job(c.World)
	if err != nil {
		return err
	}
	if j.Keep, err = emptyFolder(c.Keep); err != nil {
		return err
	}
	if c.History != "" {
		if j.History, err = filepath.Abs(c.History); err != nil {
			return err
		}
	}
	p, err := c.open(ctx, a, c.limits)
	if err != nil {
		return err
	}
	defer p.Close()
	if c.Trace != "" && j.Keep == "" {
		if j.Keep, err = os.MkdirTemp("", "headway-world-"); err != nil {
			return err
		}
		defer os.RemoveAll(j.Keep)
	}
	r, err := p.Run(ctx, j)
	if err != nil {
		return err
	}
	if err := c.print(a, r); err != nil {
		return err
	}
	if c.Plan != "" {
		if err := (soak.Script{Rule: r.Rule, Comment: r.Text, Plan: r.Plan}).Write(c.Plan); err != nil {
			return err
		}
	}
	if c.Trace != "" {
		if err := copyTrace(j.Keep, r.Trace, c.Trace); err != nil {
			return err
		}
	}
	if r.Rule != "" {
		return failure.Run("", "seed %d fails: %s: %s", r.Seed, r.Rule, r.Text)
	}
	return nil
}

// print prints the result.
func (c *runCmd) print(a *app.Process, r program.Result) error {
	if c.JSON {
		return report.JSON(a.Stdout, struct {
			outcome.Outcome
			Rule  string  `json:"rule,omitempty"`
			Text  string  `json:"text,omitempty"`
			Short string  `json:"short,omitempty"`
			WallS float64 `json:"wall_s"`
		}{r.Outcome, r.Rule, r.Text, r.Short(), r.Wall.Seconds()})
	}
	if r.Stderr != "" {
		fmt.Fprintln(a.Stderr, strings.TrimSpace(r.Stderr))
	}
	if !r.Answered {
		return nil
	}
	printPlan(a.Stdout, r.Plan)
	fmt.Fprintf(a.Stdout, "steps     %d\nevents    %s\nfaults    %s\n", r.Steps, report.Count(r.Events), counts(r.Faults))
	if len(r.Pairs) > 0 {
		fmt.Fprintf(a.Stdout, "pairs     %s\n", counts(r.Pairs))
	}
	if len(r.Marks) > 0 {
		fmt.Fprintf(a.Stdout, "marks     %s\n", counts(r.Marks))
	}
	fmt.Fprintf(a.Stdout, "mix       %s\ntime      %.1f s in the world, %.2f s of this machine, %.0f MiB asked for\n", r.Mix, r.WorldS, r.Wall.Seconds(), r.AllocMB)
	if short := r.Short(); short != "" {
		fmt.Fprintf(a.Stdout, "counts    no: %s\n", short)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(a.Stdout, "BROKEN    %s: %s\n", v.Rule, v.Text)
	}
	if r.Stuck != "" {
		fmt.Fprintf(a.Stdout, "STUCK     %s\n", r.Stuck)
	}
	return nil
}

// printPlan prints the hosts and the faults of a plan.
func printPlan(w io.Writer, p plan.Plan) {
	broker := "a broker"
	if p.Embedded {
		broker = "its own broker"
	}
	engines := report.Counted(len(p.Engines), "engine")
	if n := len(p.Cells()); n > 0 {
		engines += " in " + report.Counted(n, "cell")
	}
	fmt.Fprintf(w, "seed      %d\nhosts     %s with %s, %s, %s, %s\n", p.Seed, report.Counted(p.Planes, "plane"), broker, engines, report.Counted(p.Workers, "worker"), report.Counted(p.Receivers, "receiver"))
	for _, f := range slices.SortedStableFunc(slices.Values(p.Faults), func(a, b plan.Fault) int { return cmp.Compare(a.AtMS, b.AtMS) }) {
		fmt.Fprintf(w, "%7.3f s  %s\n", float64(f.AtMS)/1000, faultText(f))
	}
}

// faultText is a fault in words.
func faultText(f plan.Fault) string {
	text := f.Kind + " " + f.Host
	if f.Other != "" {
		text += " – " + f.Other
	}
	switch {
	case f.Both && f.Kind == plan.Twin:
		text += ", which clients reach"
	case f.Both:
		text += ", both ways"
	}
	if f.ForMS != 0 {
		text += ", for " + (time.Duration(f.ForMS) * time.Millisecond).String()
	}
	if f.ByMS != 0 {
		text += ", by " + (time.Duration(f.ByMS) * time.Millisecond).String()
	}
	if f.N != 0 {
		text += fmt.Sprintf(", n %d", f.N)
	}
	if f.Path != "" {
		text += ", " + f.Path
	}
	return text
}

// emptyFolder makes a folder, or takes one that is empty. It returns the absolute path; "" for none.
func emptyFolder(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", failure.Usage("name an empty folder, or one that is not there", "--keep %s has %s in it", path, report.Counted(len(entries), "file"))
	}
	return filepath.Abs(path)
}

// traceName is the name of a run's trace in its folder.
const traceName = "trace.ndjson.zst"

// copyTrace copies the trace of a world's run: the one that the world named, or the one that was written last.
func copyTrace(folder, named, to string) error {
	from := ""
	var newest time.Time
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != traceName {
			return err
		}
		info, err := entry.Info()
		if err == nil && !info.ModTime().Before(newest) {
			from, newest = path, info.ModTime()
		}
		return err
	})
	if named != "" {
		from = filepath.Join(folder, named)
	}
	if err == nil && from == "" {
		err = errors.New("the world left no file " + traceName)
	}
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	return os.WriteFile(to, text, 0o644)
}

// runner runs the worlds of seeds with a program.
func runner(p *program.Program) func(context.Context, uint64) (program.Result, error) {
	return func(ctx context.Context, seed uint64) (program.Result, error) {
		return p.Run(ctx, program.Job{Seed: seed})
	}
}
