package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/observe/report"
)

// counts prints counts by name, the highest first.
func counts(of map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name + " " + report.Count(of[name])
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// printSoak prints the summary of a soak.
func printSoak(w io.Writer, r soakReport) {
	t := r.Totals
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) {
		fmt.Fprintf(rows, "%s\t%s\n", name, fmt.Sprintf(format, values...))
	}
	row("seeds", "%s, %s of them count (%d steps, %d faults of %d kinds)", report.Count(t.Seeds), report.Count(t.Counting), plan.StepsCounted, plan.FaultsCounted, plan.KindsCounted)
	if len(t.Short) > 0 {
		row("do not count", "%s", counts(t.Short))
	}
	if r.Left > 0 {
		row("left", "%s", report.Count(r.Left))
	}
	row("failed", "%s", counts(t.Rules))
	row("train steps", "%s", report.Count(t.Steps))
	row("events", "%s", report.Count(t.Events))
	row("faults", "%s", counts(t.Faults))
	if len(t.Marks) > 0 {
		row("marks", "%s", counts(t.Marks))
	}
	row("time", "%s, %s in the worlds, %s of processes", report.Lasting(t.WallS), report.Lasting(t.WorldS), report.Lasting(t.ProcessS))
	if r.Ran > 0 && r.TookS > 0 {
		row("now", "%s seeds in %s: %.2f a second, %.2f of them count", report.Count(r.Ran), report.Lasting(r.TookS), float64(r.Ran)/r.TookS, float64(r.Counted)/r.TookS)
	}
	row("slowest", "seed %d: %.2f s", t.Slowest, t.SlowestS)
	row("largest", "seed %d: %.0f MiB asked for in all", t.Largest, t.LargestMB)
	row("program", "%.12s", r.Program)
	if r.File != "" {
		row("ledger", "%s", r.File)
	}
	rows.Flush()
	for i, f := range r.Failures {
		if i == failuresShown {
			fmt.Fprintf(w, "… and %d more\n", len(r.Failures)-i)
			break
		}
		fmt.Fprintf(w, "FAILED    seed %d: %s: %s\n          %s\n", f.Seed, f.Rule, f.Text, f.Script)
	}
}

// failuresShown is how many failures are printed.
const failuresShown = 20
