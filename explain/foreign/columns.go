package foreign

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
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
	r := &columnReader{columns: s, taker: taker, row: Row{File: s.path, Values: map[string]float64{}}}
	if err := Lines(ctx, s.path, taker, func(line []byte, number int64, _ bool) error { return r.line(line, number) }); err != nil {
		return err
	}
	if len(r.open) > 0 {
		return r.unclosed()
	}
	if r.head.names == nil {
		taker.Warn(s.path, 0, "the file is empty")
	}
	return nil
}

// openMax is how many bytes of lines a quote may span before it is taken as one that nobody closes.
const openMax = 1 << 20

// columnReader makes records of lines: a quoted field may hold line ends.
type columnReader struct {
	columns
	taker Taker
	head  columnNames
	row   Row
	// open are the lines of a record in which a quote is open, from line opened on.
	open     [][]byte
	opened   int64
	openSize int
	fields   []string
}

func (r *columnReader) line(line []byte, number int64) error {
	odd := bytes.Count(line, []byte{'"'})%2 == 1
	if len(r.open) == 0 && !odd {
		return r.record(line, number)
	}
	if len(r.open) == 0 {
		r.opened = number
	}
	r.open = append(r.open, bytes.Clone(line))
	r.openSize += len(line)
	switch {
	case odd && len(r.open) > 1: // it is closed
		whole := bytes.Join(r.open, []byte{'\n'})
		r.open, r.openSize = nil, 0
		return r.record(whole, r.opened)
	case r.openSize > openMax:
		return r.unclosed()
	}
	return nil
}

// unclosed leaves out the line with a quote that nobody closes, and reads those after it again.
func (r *columnReader) unclosed() error {
	lines, first := r.open, r.opened
	r.open, r.openSize = nil, 0
	r.taker.Warn(r.path, first, "a quote is not closed; the line is left out")
	for i, line := range lines[1:] {
		if err := r.line(line, first+1+int64(i)); err != nil {
			return err
		}
	}
	return nil
}

// record takes one record: the header, or a row.
func (r *columnReader) record(record []byte, number int64) error {
	if len(bytes.TrimSpace(record)) == 0 {
		return nil
	}
	if bytes.Count(record, []byte{','}) >= RowValuesMax {
		if r.head.names == nil {
			return fmt.Errorf("the header has more than %d columns: export fewer metrics", RowValuesMax)
		}
		r.taker.Warn(r.path, number, fmt.Sprintf("a line has more than %d fields; left out", RowValuesMax))
		return nil
	}
	fields, err := r.split(record)
	if err != nil {
		r.taker.Warn(r.path, number, "a line is no CSV; left out")
		return nil
	}
	if r.head.names == nil {
		names := slices.Clone(fields)
		for i, name := range names {
			if len(name) > KeyMax {
				r.taker.Warn(r.path, number, longKey)
				names[i] = ""
			}
		}
		r.head, err = r.header(names)
		return err
	}
	if len(fields) != len(r.head.names) {
		r.taker.Warn(r.path, number, "a line has another number of fields than the header; read as far as it goes")
	}
	r.row.Line = number
	if !r.head.fill(&r.row, fields) {
		return nil
	}
	return r.taker.Row(r.row)
}

// split splits a record into its fields, which are valid until the next one.
func (r *columnReader) split(record []byte) ([]string, error) {
	if !bytes.ContainsRune(record, '"') {
		r.fields = r.fields[:0]
		for field := range strings.SplitSeq(string(record), ",") {
			r.fields = append(r.fields, field)
		}
		return r.fields, nil
	}
	reader := csv.NewReader(bytes.NewReader(record))
	reader.LazyQuotes, reader.FieldsPerRecord = true, -1
	return reader.Read()
}

// columnNames are what the columns of a file are.
type columnNames struct {
	names      []string // empty for a column that is left out
	step, time int      // columns, -1 for none
}

// chart is what stands between run and metric in the header of a chart's export.
const chart = " - "

// charted splits a column of a chart's export. The run's name may hold what stands between.
func charted(name string) (run, metric string, is bool) {
	at := strings.LastIndex(name, chart)
	if at < 0 {
		return "", "", false
	}
	return name[:at], name[at+len(chart):], true
}

// header reads a header. A chart's export is cut down to one run.
func (s columns) header(names []string) (columnNames, error) {
	names[0] = strings.TrimPrefix(names[0], "\ufeff")
	head := columnNames{names: names, step: -1, time: -1}
	var runs []string
	for _, name := range names {
		if run, _, is := charted(name); is && !slices.Contains(runs, run) {
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
		if of, metric, is := charted(name); is {
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
func (h columnNames) fill(row *Row, fields []string) bool {
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
