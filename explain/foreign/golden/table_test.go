package golden_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/foreign"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/reference/import.md anew")

const document = "../../../docs/reference/import.md"

// The table of docs/reference/import.md is what the importers make of the files in testdata.
func TestTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| framework | files | S, B, C, Q read | staleness read (true) | period read (true), s | largest error of a step | not in these files |\n|---|---|---|---|---|---|---|\n")
	for _, c := range importCases {
		dir, of := unpack(t, c.framework)
		log, err := foreign.Read(context.Background(), []string{filepath.Join(dir, c.files)}, foreign.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(c.line(log, of))
	}
	b.WriteString("\nIn brackets is what the run was; a queue in brackets is the simulated run's where the framework's own rule says another. " +
		"An error is of the period and of a logged staleness: TensorBoard keeps 32 bits, consoles round. The staleness of verl's fully asynchronous trainer is inferred.\n")
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: golden -->\n", "<!-- end: golden -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no marks for the table", document)
	}
	want := before + begin + b.String() + end + after
	switch {
	case want == string(text):
	case *rewrite:
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the importers give: go test ./explain/foreign/golden -rewrite", document)
	}
}

// line is a case's row.
func (c importCase) line(log *foreign.Log, of truth) string {
	files := c.files
	if files == "" {
		files = "all"
	}
	var settings []string
	for _, s := range []foreign.Setting{foreign.GroupSize, foreign.Batch, foreign.Concurrency, foreign.Queue} {
		f := *s.At(&log.Settings)
		switch want := of.setting(s); {
		case !f.Known():
			settings = append(settings, "–")
		case f.Value == want:
			settings = append(settings, fmt.Sprintf("%g", f.Value))
		default: // only a queue differs: some have none, or one of other rules than the run's
			settings = append(settings, fmt.Sprintf("%g (%g)", f.Value, want))
		}
	}
	staleness, period, worst := "–", "–", 0.0
	for _, f := range c.figures {
		read, inTruth, off := c.figureOf(log, of, f)
		text := fmt.Sprintf("%.3f (%.3f)", read, inTruth)
		switch f.notion.Name {
		case foreign.Period.Name:
			period = text
		case foreign.Staleness.Name:
			staleness = text
		case foreign.StalenessTop.Name:
			if staleness == "–" {
				staleness = text + ", the largest of a step"
			}
		case foreign.TokenStaleness.Name:
			continue // the mean of micro-batches: not one figure of the truth's
		}
		if f.mean == 0 {
			worst = math.Max(worst, off)
		}
	}
	var missing []string
	for _, m := range log.Missing {
		name, _, _ := strings.Cut(m.What, " ")
		missing = append(missing, name)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", c.framework, files, strings.Join(settings, ", "), staleness, period, bound(worst), strings.Join(missing, ", "))
}

// bound is the power of ten that an error stays below: the last digits of a sum are no figure to print.
func bound(worst float64) string {
	if worst < 1e-9 {
		return "none"
	}
	return fmt.Sprintf("< %g", math.Pow(10, math.Ceil(math.Log10(worst))))
}

// figureOf returns the mean over steps of what was read and of the truth, and the largest difference of a step.
func (c importCase) figureOf(log *foreign.Log, of truth, f figure) (read, inTruth, worst float64) {
	n := 0.0
	for i := range log.Series {
		step := &log.Series[i]
		got := *f.notion.At(step)
		want, there := f.truth(of.Steps, int((step.Step-c.first)*max(c.every, 1)))
		if there && got.Known() {
			read, inTruth, n = read+got.Value, inTruth+want, n+1
			worst = math.Max(worst, math.Abs(got.Value-want))
		}
	}
	return read / n, inTruth / n, worst
}
