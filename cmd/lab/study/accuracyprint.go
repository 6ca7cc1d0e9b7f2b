package study

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/headway-rl/headway/predict/theory"
)

// AccuracyMarkdown prints the study as a document.
func AccuracyMarkdown(w io.Writer, a Accuracy, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Reference: how far are the closed forms from simulation?\n\n%s Generated: run the command again instead of editing.\n\n", from.line())
	if a.Options.Small {
		b.WriteString("**This is a small grid: a corner of the study.**\n\n")
	}
	a.writeIntroduction(&b)
	a.writeVerdicts(&b)
	a.writeSteps(&b)
	a.writeRegimes(&b)
	a.writeQuantiles(&b)
	a.writeWorst(&b)
	a.writeStaircase(&b)
	a.writeHeldOut(&b)
	writeConstants(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (a Accuracy) writeIntroduction(b *strings.Builder) {
	shortest, longest, half, cells := math.MaxInt, 0, 0.0, 0
	for _, r := range a.Rows {
		if r.HeldOut {
			continue
		}
		cells++
		shortest, longest = min(shortest, r.Steps), max(longest, r.Steps)
		half = max(half, r.Half/r.Simulated.Mean)
	}
	fmt.Fprintf(b, "Every cell sets the forms of [theory.md](theory.md) beside a simulation of the same setting by the production loop in virtual time: "+
		"queue-drop, oldest first, start order stream, B = %d rollouts, lengths lognormal with a nominal mean of %d tokens and a cap of %g + %d·tailness. "+
		"%s cells: ρ %s × q %s × tailness %s × C/B %s × S %s. "+
		"Each is simulated over %s to %s train steps, longer where its queue wanders, from one seed; half the 95 %% interval of a simulated mean is up to %.1f %% of it (at ρ = 1, q = 5, where a mean needs the longest run), so that errors of that size there are the simulation's.\n\n",
		accuracyBatch, meanTokens, float64(capBase), capPerPoint, count(cells), list(accuracyRho), list(accuracyQueue), list(accuracyTailness), list(accuracyLoad), list(accuracyGroup),
		count(shortest), count(longest), 100*half)
	b.WriteString("Errors are relative to the simulation, or in versions where it says so. The forms are derived but for one constant, named at the end, which was fitted near ρ = 1 to other simulations of some of these settings; no form reads a table of simulations. " +
		"At tailness 0 groups fall in step with the trainer and staleness is a staircase in the settings: the theory says so (reason `locked`), and those cells are in no total but that of their own.\n\n")
}

// list prints the values of an axis.
func list[T any](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	return strings.Join(texts, ", ")
}

func (a Accuracy) writeVerdicts(b *strings.Builder) {
	b.WriteString("## What it is held to\n\nTailness of 30 and more, the corrected form.\n\n")
	var rows [][]string
	for _, v := range a.Checks() {
		holds := "no"
		if v.Holds {
			holds = "yes"
		}
		text := func(x float64) string {
			if v.Want == 0 {
				return fmt.Sprintf("%.0f", x)
			}
			return fmt.Sprintf("%.1f %%", 100*x)
		}
		rows = append(rows, []string{v.Claim, text(v.Want), text(v.Measured), holds})
	}
	table(b, []string{"claim", "bound", "measured", "holds"}, rows)
}

func (a Accuracy) writeSteps(b *strings.Builder) {
	b.WriteString("## Before and after each correction\n\nEach form has the corrections of those above it. Mean staleness: mean and largest relative error, in versions in brackets, and the share of cells within 2 %; period and mean staleness of tokens: mean and largest relative error.\n\n")
	for _, s := range a.Forms {
		fmt.Fprintf(b, "- *%s*: %s.\n", s.Name, s.Corrects)
	}
	b.WriteString("\n")
	for _, regime := range []struct {
		name string
		keep func(AccuracyRow) bool
	}{{"Outside ρ 0.9–1.1", outside}, {"Within ρ 0.9–1.1", inside}} {
		fmt.Fprintf(b, "### %s\n\n", regime.name)
		var rows [][]string
		for form, s := range a.Forms {
			t := a.Total(form, regime.keep)
			rows = append(rows, append([]string{s.Name}, t.cells(form > 0)...))
		}
		table(b, totalHeader("form"), rows)
	}
}

// totalHeader names the columns of a total.
func totalHeader(first string) []string {
	return []string{first, "cells", "mean error", "largest", "within 2 %", "within 5 %", "period error", "largest", "dropped, largest", "token error", "largest", "p50 exact", "p95 exact", "p99 exact", "two off"}
}

// cells are the columns of a total.
func (t AccuracyTotal) cells(quantiles bool) []string {
	percent := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(t.Cells, 1))) }
	row := []string{fmt.Sprint(t.Cells),
		fmt.Sprintf("%.2f %% (%.3f)", 100*t.MeanError, t.MeanVersions), fmt.Sprintf("%.1f %% (%.2f)", 100*t.WorstError, t.WorstVersions),
		percent(t.Within2), percent(t.Within5),
		fmt.Sprintf("%.2f %%", 100*t.PeriodError), fmt.Sprintf("%.1f %%", 100*t.PeriodWorst), fmt.Sprintf("%.1f points", 100*t.DroppedWorst)}
	if !quantiles {
		return append(row, "–", "–", "–", "–", "–", "–")
	}
	row = append(row, fmt.Sprintf("%.2f %%", 100*t.TokenError), fmt.Sprintf("%.1f %%", 100*t.TokenWorst))
	return append(row, percent(t.Exact[0]), percent(t.Exact[1]), percent(t.Exact[2]), fmt.Sprint(t.TwoOff))
}

// axis is one way to split the grid.
type axis struct {
	name   string
	values []float64
	of     func(AccuracyRow) float64
}

func axes() []axis {
	groups := make([]float64, len(accuracyGroup))
	for i, s := range accuracyGroup {
		groups[i] = float64(s)
	}
	return []axis{
		{"ρ", accuracyRho, func(r AccuracyRow) float64 { return r.Rho }},
		{"q", accuracyQueue, func(r AccuracyRow) float64 { return r.QueueFactor }},
		{"tailness", accuracyTailness, func(r AccuracyRow) float64 { return r.Tailness }},
		{"C/B", accuracyLoad, func(r AccuracyRow) float64 { return r.Load }},
		{"S", groups, func(r AccuracyRow) float64 { return float64(r.GroupSize) }},
	}
}

func (a Accuracy) writeRegimes(b *strings.Builder) {
	last := len(a.Forms) - 1
	b.WriteString("## By regime\n\nTailness of 30 and more; mean and largest relative error of the mean staleness, of the published form and of the corrected one, and the corrected period's.\n\n")
	for _, x := range axes() {
		var rows [][]string
		for _, v := range x.values {
			for _, regime := range []struct {
				name string
				near bool
			}{{"outside", false}, {"inside", true}} {
				keep := func(r AccuracyRow) bool { return r.counted() && x.of(r) == v && r.near() == regime.near }
				before, after := a.Total(0, keep), a.Total(last, keep)
				if after.Cells == 0 {
					continue
				}
				rows = append(rows, []string{fmt.Sprintf("%g", v), regime.name, fmt.Sprint(after.Cells),
					fmt.Sprintf("%.2f %%", 100*before.MeanError), fmt.Sprintf("%.1f %%", 100*before.WorstError),
					fmt.Sprintf("%.2f %%", 100*after.MeanError), fmt.Sprintf("%.1f %%", 100*after.WorstError),
					fmt.Sprintf("%.2f %%", 100*after.PeriodError), fmt.Sprintf("%.1f %%", 100*after.PeriodWorst)})
			}
		}
		table(b, []string{x.name, "ρ 0.9–1.1", "cells", "published", "largest", "corrected", "largest", "period", "largest"}, rows)
	}
}

func (a Accuracy) writeQuantiles(b *strings.Builder) {
	last := len(a.Forms) - 1
	b.WriteString("## Quantiles\n\nShare of cells in which the corrected form's quantile is exactly the simulated one, tailness of 30 and more. A quantile near a step of the distribution may differ by one between two seeds.\n\n")
	var rows [][]string
	for _, x := range axes()[1:] {
		for _, v := range x.values {
			t := a.Total(last, func(r AccuracyRow) bool { return r.counted() && x.of(r) == v })
			if t.Cells == 0 {
				continue
			}
			row := []string{fmt.Sprintf("%s = %g", x.name, v), fmt.Sprint(t.Cells)}
			for _, n := range t.Exact {
				row = append(row, fmt.Sprintf("%.1f %%", 100*float64(n)/float64(t.Cells)))
			}
			rows = append(rows, append(row, fmt.Sprint(t.TwoOff)))
		}
	}
	table(b, []string{"cells with", "", "p50", "p95", "p99", "two off"}, rows)
}

func (a Accuracy) writeWorst(b *strings.Builder) {
	last := len(a.Forms) - 1
	b.WriteString("## The worst cells\n\nOf the corrected form, tailness of 30 and more. ± is half the 95 % interval of the simulated mean.\n\n")
	for _, regime := range []struct {
		name string
		keep func(AccuracyRow) bool
	}{{"Outside ρ 0.9–1.1", outside}, {"Within ρ 0.9–1.1", inside}} {
		var rows [][]string
		for _, r := range a.worst(last, 8, regime.keep) {
			f := r.Forms[last]
			rows = append(rows, []string{r.name(), fmt.Sprintf("%.3f ± %.3f", r.Simulated.Mean, r.Half), fmt.Sprintf("%.3f", r.Forms[0].Mean),
				fmt.Sprintf("%.3f", f.Mean), fmt.Sprintf("%+.1f %%", 100*r.ErrorOf(last)), fmt.Sprintf("%.4f", r.Simulated.Period), fmt.Sprintf("%.4f", f.Period)})
		}
		table(b, []string{regime.name, "simulated", "published", "corrected", "error", "T/t_step simulated", "corrected"}, rows)
	}
}

func (a Accuracy) writeStaircase(b *strings.Builder) {
	locked := func(r AccuracyRow) bool { return !r.smooth() }
	last := len(a.Forms) - 1
	before, after := a.Total(0, locked), a.Total(last, locked)
	if after.Cells == 0 {
		return
	}
	said := 0
	for _, r := range a.Rows {
		if locked(r) && r.Reason == theory.ReasonLocked.String() {
			said++
		}
	}
	fmt.Fprintf(b, "## Tailness 0\n\n%d cells in which every rollout takes the same time. The theory calls %d of them not covered (`locked`). What it prints all the same is off by %.1f %% on average and %.0f %% at most (published: %.1f %% and %.0f %%; worst: %s): simulate.\n\n",
		after.Cells, said, 100*after.MeanError, 100*after.WorstError, 100*before.MeanError, 100*before.WorstError, after.Worst.name())
}

// writeHeldOut sums up the cells that nothing was fitted to.
func (a Accuracy) writeHeldOut(b *strings.Builder) {
	var rows [][]string
	last := len(a.Forms) - 1
	for _, regime := range []struct {
		name string
		near bool
	}{{"Outside ρ 0.9–1.1", false}, {"Within ρ 0.9–1.1", true}} {
		keep := func(r AccuracyRow) bool { return r.HeldOut && r.near() == regime.near }
		if t := a.Total(last, keep); t.Cells > 0 {
			rows = append(rows, append([]string{regime.name + ", published"}, a.Total(0, keep).cells(false)...),
				append([]string{regime.name + ", corrected"}, t.cells(true)...))
		}
	}
	if len(rows) == 0 {
		return
	}
	b.WriteString("## Held out\n\nCells of values that the grid does not have: ρ 0.4 to 1.8, q 1, 1.5 and 3, tailness 40, 60 and 80, C/B 0.75, 1.5 and 3, B 64 (S 2 and 8) and 512 (S 2 and 32). Nothing was fitted with these batches.\n\n")
	table(b, totalHeader("regime"), rows)
}

// writeConstants names what is fitted.
func writeConstants(b *strings.Builder) {
	b.WriteString("## Constants\n\n")
	var rows [][]string
	for _, c := range theory.Constants() {
		rows = append(rows, []string{c.Name, fmt.Sprintf("%g", c.Value), c.Source})
	}
	table(b, []string{"constant", "value", "source"}, rows)
}
