package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/cases"
)

// studyCasesCmd fits the constants of headway reproduce --cases and measures how far its answers are off.
type studyCasesCmd struct {
	Cases string `required:"" placeholder:"FILE" help:"The table of published runs: the constants are fitted to its rows of grade A and B."`
	Write bool   `help:"Replace predict/cases/fitted.json, in a checkout."`
	Out   string `placeholder:"FILE" help:"Write the page into this file instead of stdout."`
}

// Help says what the study does.
func (c *studyCasesCmd) Help() string {
	return "Fits the constants that no data sheet has to the rows of grade A and B. It prints the errors by family with the fit, with one reference row a family, and with a fit to all other families. It prints every choice between two rows, and every constant with its spread."
}

// fitFile is where the program's constants lie in a checkout.
var fitFile = filepath.Join("predict", "cases", "fitted.json")

// Run fits, answers and prints.
func (c *studyCasesCmd) Run(a *app.Process) error {
	file, err := os.Open(c.Cases)
	if err != nil {
		return failure.Usage("name a table of published runs", "--cases: %w", err)
	}
	defer file.Close()
	rows, err := cases.Read(file)
	if err != nil {
		return failure.Usage("headway reproduce --help has the columns", "--cases %s: %w", c.Cases, err)
	}
	ctx, stop := command.Interruptible()
	defer stop()
	show := newStudyProgress(a)
	page, fitted, err := studyCases(ctx, rows, func(done, all int) { show.update(done, all) })
	show.Clear()
	if errors.Is(err, context.Canceled) {
		return failure.Run("", "the study was interrupted")
	}
	if err != nil {
		return err
	}
	if c.Write {
		data, err := fitted.Encode()
		if err != nil {
			return err
		}
		if err := os.WriteFile(fitFile, data, 0o644); err != nil {
			return failure.Run("run it in the root of a checkout", "--write: %w", err)
		}
	}
	if c.Out != "" {
		return os.WriteFile(c.Out, []byte(page), 0o644)
	}
	_, err = io.WriteString(a.Stdout, page)
	return err
}

// fittedGrades are those of rows that constants are fitted to.
var fittedGrades = []string{"A", "B"}

// rowsOf picks the rows that a fit may read; one family is left out, "" for none.
func rowsOf(rows []cases.Row, without string) (out []cases.Row) {
	for _, r := range rows {
		if slices.Contains(fittedGrades, r.Grade) && (r.Family != without || without == "") && r.Family != "routing" {
			out = append(out, r)
		}
	}
	return out
}

// studyCases fits with all families and with each of them left out.
func studyCases(ctx context.Context, rows []cases.Row, said func(done, all int)) (string, cases.Fitted, error) {
	fitted, err := cases.Fit(rowsOf(rows, ""))
	if err != nil {
		return "", fitted, err
	}
	plain, err := cases.Table(ctx, rows, fitted, cases.Options{})
	if err != nil {
		return "", fitted, err
	}
	references := referencesOf(rows, plain)
	answers, err := cases.Table(ctx, rows, fitted, cases.Options{CalibrateOn: references, Simulate: true})
	if err != nil {
		return "", fitted, err
	}
	result := cases.Summarize(rows, answers, fitted, references)
	var families []string
	for _, s := range result.Families {
		if s.Family != "all" && !slices.Contains(families, s.Family) {
			families = append(families, s.Family)
		}
	}
	left := report.Table{Title: "Each family by constants that were fitted to the others alone", Header: []string{"family", "grade", "n", "median", "worst", "in 80 %", "high/low", "with one reference row"}}
	for i, family := range families {
		said(i, len(families))
		others, err := cases.Fit(rowsOf(rows, family))
		if err != nil {
			return "", fitted, err
		}
		answers, err := cases.Table(ctx, rows, others, cases.Options{CalibrateOn: references})
		if err != nil {
			return "", fitted, err
		}
		for _, s := range cases.Summarize(rows, answers, others, references).Families {
			if s.Family != family {
				continue
			}
			row := []string{s.Family, s.Grades, fmt.Sprint(s.N), share(s.Median), share(s.Worst), share(s.Covered), fmt.Sprintf("%.2f", s.Ratio), "–"}
			if s.Calibrated != nil {
				row[7] = share(s.Calibrated.Median)
			}
			left.Rows = append(left.Rows, row)
		}
	}
	var page strings.Builder
	if err := result.Markdown(&page); err != nil {
		return "", fitted, err
	}
	page.WriteString(cases.MarkdownTable(left))
	page.WriteString("Reference rows: " + strings.Join(references, ", ") + ".\n\n")
	page.WriteString(cases.MarkdownTable(fitted.Table()))
	page.WriteString("Fitted to: " + strings.Join(fitted.Rows, ", ") + ".\n")
	return page.String(), fitted, nil
}

// referencesOf are the first measured and answered row of each family, of grade A where there is one.
func referencesOf(rows []cases.Row, answers []cases.Answer) (out []string) {
	taken := map[string]bool{}
	for _, grade := range []string{"A", "B"} {
		for i, r := range rows {
			if r.Grade == grade && !taken[r.Family] && answers[i].Step != nil && answers[i].Measured != nil {
				taken[r.Family], out = true, append(out, r.ID)
			}
		}
	}
	return out
}

func share(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
