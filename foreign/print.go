package foreign

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Mean returns a figure's mean over the steps that have it, weighed by how many train steps
// each stands for, and how many those are. Origin and From are the last step's.
func (l *Log) Mean(n Notion) (Figure, int64) {
	var out Figure
	sum, steps := 0.0, int64(0)
	for i := range l.Series {
		f := *n.At(&l.Series[i])
		if !f.Known() {
			continue
		}
		weight := max(l.Series[i].Steps, 1)
		sum += f.Value * float64(weight)
		steps += weight
		out = f
	}
	if steps == 0 {
		return Figure{}, 0
	}
	out.Value = sum / float64(steps)
	return out, steps
}

// Steps returns how many train steps the log has rows of.
func (l *Log) Steps() int64 {
	steps := int64(0)
	for i := range l.Series {
		steps += max(l.Series[i].Steps, 1)
	}
	return steps
}

// Title returns the framework's name for people.
func (l *Log) Title() string {
	if f, _, err := named(l.Framework); err == nil {
		return f[0].Title
	}
	return l.Framework
}

// Print writes what is known of a log for people: settings and mean figures with where they come from, what is
// missing and how to get it, what was wrong with the files.
func Print(w io.Writer, l *Log) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s in %s", l.Title(), counted(l.Steps(), "step"), counted(int64(len(l.Files)), "file"))
	if n := len(l.Rollouts); n > 0 {
		fmt.Fprintf(&b, ", %s", counted(int64(n), "single rollout"))
	}
	b.WriteString("\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range SettingsKnown {
		printFigure(table, s.Name, *s.At(&l.Settings))
	}
	for _, n := range Notions {
		mean, steps := l.Mean(n)
		if steps > 0 && steps < l.Steps() {
			mean.From += fmt.Sprintf(" (in %d of %d steps)", steps, l.Steps())
		}
		printFigure(table, n.Name, mean)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nStaleness: %s\n", l.Definition)
	printMissing(&b, l.Missing)
	printWarnings(&b, l.Warnings)
	_, err := io.WriteString(w, b.String())
	return err
}

func counted(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func printFigure(w io.Writer, name string, f Figure) {
	if !f.Known() {
		return
	}
	fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", name, readable(f.Value), f.Origin, f.From)
}

// readable is a number with as many digits as say something.
func readable(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

func printMissing(b *strings.Builder, missing []Missing) {
	if len(missing) == 0 {
		return
	}
	b.WriteString("\nNot known:\n")
	for _, m := range missing {
		fmt.Fprintf(b, "  %s: %s", m.What, m.Why)
		if m.Get != "" {
			fmt.Fprintf(b, "; %s", m.Get)
		}
		b.WriteString("\n")
	}
}

func printWarnings(b *strings.Builder, warnings []Warning) {
	if len(warnings) == 0 {
		return
	}
	b.WriteString("\nOf the files:\n")
	for _, w := range warnings {
		where := w.File
		if w.Line > 0 {
			where += fmt.Sprintf(", line %d", w.Line)
		}
		if where != "" {
			where += ": "
		}
		times := ""
		if w.Count > 1 {
			times = fmt.Sprintf(" (%d times)", w.Count)
		}
		fmt.Fprintf(b, "  %s%s%s\n", where, w.Text, times)
	}
}
