package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/cases"
)

// table answers a table of other people's runs.
func (c *reproduceCmd) table(a *app.Process) error {
	if len(c.Name) > 0 || c.Quick {
		return failure.Usage("leave them out: --cases answers every row of its table", "--cases goes with neither a case's name nor --quick")
	}
	for _, file := range []struct{ flag, path string }{{"--html", c.HTML}, {"--markdown", c.Markdown}} {
		if err := writable(file.path); err != nil {
			return failure.Usage("name a file in a folder that can be written to", "%s %s: %w", file.flag, file.path, err)
		}
	}
	rows, err := readCases(c.Cases)
	if err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	status := command.NewStatusLine(a)
	answers, err := cases.Table(ctx, rows, cases.Shipped(), cases.Options{CalibrateOn: c.CalibrateOn, Simulate: true, Said: func(done, all int) {
		if status.Due() {
			status.Show(fmt.Sprintf("%d of %d rows are answered", done, all))
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
	for _, file := range []struct {
		flag, path string
		fill       func(io.Writer) error
	}{{"--html", c.HTML, result.HTML}, {"--markdown", c.Markdown, result.Markdown}} {
		if file.path == "" {
			continue
		}
		if err := writeWhole(file.path, file.fill); err != nil {
			return failure.Run("", "%s: %w", file.flag, err)
		}
		fmt.Fprintf(a.Stderr, "%s is written\n", file.path)
	}
	if c.JSON {
		return printJSON(a.Stdout, result)
	}
	return result.Text(a.Stdout, command.Columns(a))
}

// readCases reads a table, "-" is not one: it is read once and named in errors.
func readCases(path string) ([]cases.Row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, failure.Usage("name a file of comma-separated rows", "--cases: %w", err)
	}
	defer file.Close()
	rows, err := cases.Read(file)
	if err != nil {
		return nil, failure.Usage("docs/accuracy.md lists the columns", "--cases %s: %w", path, err)
	}
	return rows, nil
}
