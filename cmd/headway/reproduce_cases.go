package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/cases"
	"github.com/headway-rl/headway/predict/serving"
)

// table answers a table of other people's runs.
func (c *reproduceCmd) table(a *app.Process) error {
	if len(c.Name) > 0 || c.Quick {
		return failure.Usage("leave them out: --cases answers every row of its table", "--cases goes with neither a case's name nor --quick")
	}
	if err := c.filesWritable(); err != nil {
		return err
	}
	records, err := readRecords(c.Cases)
	if err != nil {
		return err
	}
	if serves(records) {
		return c.servingTable(a, records)
	}
	rows, err := cases.Rows(records)
	if err != nil {
		return failure.Usage("docs/accuracy.md lists the columns", "--cases %s: %w", c.Cases, err)
	}
	for i, id := range c.CalibrateOn {
		c.CalibrateOn[i] = strings.TrimSpace(id)
	}
	ctx, stop := command.Interruptible()
	defer stop()
	status := command.NewStatusLine(a)
	answers, err := cases.Table(ctx, rows, cases.Shipped(), cases.Options{CalibrateOn: c.CalibrateOn, Simulate: true, Said: func(what string, done, all int) {
		if status.Due() {
			status.Show(fmt.Sprintf("%d of %d rows are %s", done, all, what))
		}
	}})
	status.Clear()
	if errors.Is(err, context.Canceled) {
		return failure.Run("", "interrupted")
	}
	if err != nil {
		return failure.Usage("the column id of the table has the names", "--calibrate-on: %w", err)
	}
	result := cases.Summarize(rows, answers, cases.Shipped(), c.CalibrateOn)
	if err := c.writeFiles(a, result.HTML, result.Markdown); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.Stdout, result)
	}
	return result.Text(a.Stdout, command.Columns(a))
}

// readRecords reads a table's lines.
func readRecords(path string) ([]cases.Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, failure.Usage("name a file of comma-separated rows", "--cases: %w", err)
	}
	defer file.Close()
	records, err := cases.Records(file)
	if err != nil {
		return nil, failure.Usage("docs/accuracy.md lists the columns", "--cases %s: %w", path, err)
	}
	return records, nil
}

// serves reports whether a table is one of serving measurements: it has a load for a layout of engines.
func serves(records []cases.Record) bool {
	_, load := records[0].Fields["load"]
	_, layout := records[0].Fields["layout"]
	return load && layout
}

// servingTable answers a table of serving measurements.
func (c *reproduceCmd) servingTable(a *app.Process, records []cases.Record) error {
	if len(c.CalibrateOn) > 0 || c.Markdown != "" || c.HTML != "" {
		return failure.Usage("leave them out: --json has every figure", "--calibrate-on, --html and --markdown are for tables of runs, and %s has serving measurements", c.Cases)
	}
	for _, name := range serving.Columns() {
		if _, ok := records[0].Fields[name]; !ok {
			return failure.Usage("docs/serving.md lists the columns", "--cases %s: the table of serving measurements has no column %s", c.Cases, name)
		}
	}
	var rows []map[string]string
	for _, r := range records {
		rows = append(rows, r.Fields)
	}
	result := serving.Table(rows)
	if c.JSON {
		return printJSON(a.Stdout, result)
	}
	byFigure, every, refused := result.Tables()
	for _, t := range []struct {
		title string
		rows  [][]string
	}{{"Errors by figure", byFigure}, {"Rows", every}, {"No answer, and inputs assumed", refused}} {
		table := report.Table{Title: t.title, Header: t.rows[0], Rows: t.rows[1:]}
		if _, err := fmt.Fprintln(a.Stdout, table.Fit(command.Columns(a))); err != nil {
			return err
		}
	}
	return nil
}
