package foreign

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// columns is a CSV file with a header: a run's history, or a chart's export in which
// columns are called "run - metric".
type columns struct{ path, run string }

func fitsColumns(file string, head []byte) bool {
	if strings.ToLower(filepath.Ext(file)) == ".csv" {
		return true
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	names := strings.Split(string(bytes.TrimSpace(first)), ",")
	return len(names) > 1 && slices.ContainsFunc(names, func(name string) bool { return slices.Contains(stepKeys, strings.Trim(name, `"`)) })
}

func openColumns(file, run string) Source { return columns{file, run} }

func (s columns) Path() string { return s.path }

func (s columns) Read(ctx context.Context, taker Taker) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	counted := &countedReader{f: f, taker: taker}
	reader := csv.NewReader(counted)
	reader.ReuseRecord, reader.LazyQuotes, reader.FieldsPerRecord = true, true, -1
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		taker.Warn(s.path, 0, "the file is empty")
		return nil
	}
	if err != nil {
		return err
	}
	head, err := s.header(slices.Clone(header))
	if err != nil {
		return err
	}
	row := Row{File: s.path, Values: map[string]float64{}}
	for n := 0; ; n++ {
		if n%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		line, _ := reader.FieldPos(0)
		if err != nil {
			taker.Warn(s.path, int64(line), "a line is no CSV; left out")
			var parse *csv.ParseError
			if errors.As(err, &parse) {
				continue
			}
			return err
		}
		if len(fields) != len(head.names) {
			taker.Warn(s.path, int64(line), "a line has another number of fields than the header; read as far as it goes")
		}
		row.Line = int64(line)
		if head.fill(&row, fields, taker) {
			if err := taker.Row(row); err != nil {
				return err
			}
		}
	}
}

// columnNames are what the columns of a file are.
type columnNames struct {
	names      []string // empty for a column that is left out
	step, time int      // columns, -1 for none
}

// chart is what stands between run and metric in the header of a chart's export.
const chart = " - "

// header reads a header. A chart's export is cut down to one run.
func (s columns) header(names []string) (columnNames, error) {
	names[0] = strings.TrimPrefix(names[0], "\ufeff")
	head := columnNames{names: names, step: -1, time: -1}
	var runs []string
	for _, name := range names {
		if run, _, is := strings.Cut(name, chart); is && !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	run := s.run
	switch {
	case len(runs) == 0:
	case run == "" && len(runs) == 1:
		run = runs[0]
	case run == "":
		return head, fmt.Errorf("the export has %d runs (%s): say which one with --run-name", len(runs), listed8(runs))
	case !slices.Contains(runs, run):
		return head, fmt.Errorf("the export has no run %q (it has %s)", run, listed8(runs))
	}
	for i, name := range names {
		if of, metric, is := strings.Cut(name, chart); is {
			if of != run || strings.HasSuffix(metric, "__MIN") || strings.HasSuffix(metric, "__MAX") {
				names[i] = ""
				continue
			}
			names[i] = metric
		}
	}
	head.step = firstOf(names, stepKeys)
	head.time = firstOf(names, timeKeys)
	return head, nil
}

// listed8 names the first eight.
func listed8(names []string) string {
	const shown = 8
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shown], ", ") + ", …"
}

func firstOf(names, wanted []string) int {
	for _, name := range wanted {
		if i := slices.Index(names, name); i >= 0 {
			return i
		}
	}
	return -1
}

// fill makes a row of a record. It reports whether the record says anything.
func (h columnNames) fill(row *Row, fields []string, taker Taker) bool {
	clear(row.Values)
	row.Step, row.HasStep, row.TimeS = 0, false, 0
	for i, field := range fields {
		if i >= len(h.names) || h.names[i] == "" || field == "" {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil {
			switch strings.ToLower(field) {
			case "true":
				value = 1
			case "false":
			default:
				continue // a text, or one of W&B's other kinds
			}
		}
		switch {
		case i == h.step && finite(value):
			row.Step, row.HasStep = int64(value), true
		case i == h.time:
			row.TimeS = value
		}
		row.Values[h.names[i]] = value
	}
	return len(row.Values) > 0
}

// countedReader tells a taker what is read.
type countedReader struct {
	f     io.Reader
	taker Taker
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	c.taker.Read(int64(n))
	return n, err
}
