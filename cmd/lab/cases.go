package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
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

// rowsOf picks the rows that a fit may read: those for which keep says so.
func rowsOf(rows []cases.Row, keep func(i int, r cases.Row) bool) (out []cases.Row) {
	for i, r := range rows {
		if slices.Contains(fittedGrades, r.Grade) && keep(i, r) {
			out = append(out, r)
		}
	}
	return out
}

// folds is into how many parts the rows are split of which each is answered by a fit to the others.
const folds = 5

// studyCases fits to all rows, and to all but those that are then answered.
func studyCases(ctx context.Context, rows []cases.Row, said func(done, all int)) (string, cases.Fitted, error) {
	fitted, err := cases.Fit(rowsOf(rows, func(int, cases.Row) bool { return true }))
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
	left := leftOut{rows: rows, references: references, said: said, all: folds + len(families)}
	unread, err := left.answered(ctx, folds, func(i int, r cases.Row) int { return i % folds })
	if err != nil {
		return "", fitted, err
	}
	others, err := left.answered(ctx, len(families), func(_ int, r cases.Row) int { return slices.Index(families, r.Family) })
	if err != nil {
		return "", fitted, err
	}
	return studyCasesPage(result, unread, others, fitted, references), fitted, nil
}

// studyCasesPage is the page: errors by family three times, then rows and choices by fits that did not read them.
func studyCasesPage(result, unread, others cases.Result, fitted cases.Fitted, references []string) string {
	var page strings.Builder
	page.WriteString("# Reference: how far are predictions of other people's runs off?\n\nMade by `go run ./cmd/lab study cases --cases FILE`. Generated: run the command again instead of editing. [accuracy.md](accuracy.md) says how to read it.\n\n")
	for _, part := range []struct {
		title string
		r     cases.Result
	}{{"Rows that the fit did not read: a fifth of the table at a time", unread}, {"Families that the fit did not read", others}, {"Rows that the fit read", result}} {
		page.WriteString("## " + part.title + "\n\n" + cases.MarkdownTable(part.r.FamilyTable()))
	}
	page.WriteString("## Rows and choices, by fits that did not read them\n\n" + cases.MarkdownTable(unread.DecisionTable()) + cases.MarkdownTable(unread.RowTable()))
	page.WriteString("## Constants\n\n" + cases.MarkdownTable(fitted.Table()))
	page.WriteString("Reference rows: " + strings.Join(references, ", ") + ".\n\n")
	page.WriteString("Fitted to:\n\n- " + strings.Join(fitted.Rows, "\n- ") + "\n")
	return page.String()
}

// leftOut answers rows by fits that did not read them.
type leftOut struct {
	rows       []cases.Row
	references []string
	said       func(done, all int)
	done, all  int
}

// answered has every row answered by the fit to all rows of other parts.
func (l *leftOut) answered(ctx context.Context, parts int, part func(i int, r cases.Row) int) (cases.Result, error) {
	answers, found := make([]cases.Answer, len(l.rows)), make([][]cases.Answer, parts)
	errs := make([]error, parts)
	var fits sync.WaitGroup
	for k := range parts {
		l.said(l.done, l.all)
		l.done++
		fits.Go(func() {
			fitted, err := cases.Fit(rowsOf(l.rows, func(i int, r cases.Row) bool { return part(i, r) != k }))
			if err == nil {
				found[k], err = cases.Table(ctx, l.rows, fitted, cases.Options{CalibrateOn: l.references})
			}
			errs[k] = err
		})
	}
	fits.Wait()
	if err := errors.Join(errs...); err != nil {
		return cases.Result{}, err
	}
	for k, got := range found {
		for i, r := range l.rows {
			if part(i, r) == k || part(i, r) < 0 {
				answers[i] = got[i]
			}
		}
	}
	return cases.Summarize(l.rows, answers, cases.Fitted{}, l.references), nil
}

// referencesOf are the first measured and answered row of each family, of grade A where there is one.
func referencesOf(rows []cases.Row, answers []cases.Answer) (out []string) {
	taken := map[string]bool{}
	for _, grade := range []string{"A", "B"} {
		for i, r := range rows {
			if r.Grade == grade && !taken[r.Family] && answers[i].Step != nil && answers[i].Measured != nil && answers[i].Figure != "gen_s" {
				taken[r.Family], out = true, append(out, r.ID)
			}
		}
	}
	return out
}
