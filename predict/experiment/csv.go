package experiment

import (
	"bufio"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Mark names what the rows of a file are of: documents, axes, seeds and program. Two
// files of one mark have the same rows.
func (g *Grid) Mark(program string, accept bool) (string, error) {
	first, err := g.resolve(0)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%q %d %v %v\n", program, first.Document.YAML(), g.keys, g.Seeds, accept, first.automatic)
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

// Columns is how many columns a file of the grid has.
func (g *Grid) Columns() int { return len(g.axes) + len(columns) + 1 }

// header names the columns.
func header(g *Grid) []string {
	var names []string
	for _, a := range g.axes {
		names = append(names, a.key)
	}
	names = append(names, "experiment")
	for i := range columns {
		names = append(names, columns[i].name)
	}
	return names
}

// CSV writes comma-separated values.
type CSV struct {
	file   io.WriteCloser
	buffer *bufio.Writer
	csv    *csv.Writer
	mark   string
	accept bool
	cells  []string
}

// NewCSV begins rows of comma-separated values. accept writes means that have not settled.
func NewCSV(file io.WriteCloser, mark string, accept bool) *CSV {
	buffer := bufio.NewWriterSize(file, 1<<16)
	return &CSV{file: file, buffer: buffer, csv: csv.NewWriter(buffer), mark: mark, accept: accept}
}

// WriteHeader writes the names of the columns.
func (w *CSV) WriteHeader(g *Grid) error { return w.csv.Write(header(g)) }

// Write writes a setting.
func (w *CSV) Write(p *Point) error {
	w.cells = w.cells[:0]
	for _, o := range p.set {
		w.cells = append(w.cells, o.value)
	}
	w.cells = append(w.cells, w.mark)
	for i := range columns {
		w.cells = append(w.cells, cell(columns[i].of(p, w.accept)))
	}
	return w.csv.Write(w.cells)
}

// cell prints a value; ten digits are more than any simulated mean has.
func cell(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', 10, 64)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return strings.ReplaceAll(fmt.Sprint(value), "\n", "; ") // a row is a line
}

// Flush has what was written so far outlive the process.
func (w *CSV) Flush() error {
	w.csv.Flush()
	return errors.Join(w.csv.Error(), w.buffer.Flush())
}

// Close ends the file; failed says that it is not complete.
func (w *CSV) Close(bool) error {
	return errors.Join(w.Flush(), w.file.Close())
}

// WholeRows counts the settings a file has, with what became of them, and the bytes
// up to the end of the last whole row. It refuses rows of anything but this grid, from
// its beginning.
func WholeRows(file io.Reader, g *Grid, mark string) (done Tally, size int64, err error) {
	source := &lineReader{source: bufio.NewReaderSize(file, 1<<16)}
	r := csv.NewReader(source)
	r.ReuseRecord, r.FieldsPerRecord = true, -1
	want := header(g)
	settled, note := slices.Index(want, "settled"), slices.Index(want, "note")
	for line := int64(0); ; line++ {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return done, size, nil
		}
		if err != nil {
			return done, 0, err
		}
		if len(row) != len(want) {
			return done, 0, fmt.Errorf("row %d has %d columns, expected %d", line, len(row), len(want))
		}
		if line == 0 {
			for i := range want {
				if row[i] != want[i] {
					return done, 0, fmt.Errorf("column %d is %q, expected %q", i+1, row[i], want[i])
				}
			}
		} else if err := isRow(row, g, line-1, mark); err != nil {
			return done, 0, err
		} else {
			done.addRow(settingName(g.overrides(line-1)), row[settled], row[note])
		}
		size = r.InputOffset()
	}
}

// isRow reports whether a row is that of a setting.
func isRow(row []string, g *Grid, setting int64, mark string) error {
	if setting >= g.Settings {
		return fmt.Errorf("it has more rows than the grid has settings (%d)", g.Settings)
	}
	for i, o := range g.overrides(setting) {
		if row[i] != o.value {
			return fmt.Errorf("row %d has %s=%s, expected %s", setting+1, o.key, row[i], o.value)
		}
	}
	if have := row[len(g.axes)]; have != mark {
		return fmt.Errorf("its rows are of experiment %s, this is %s: the document, the flags or the program changed", have, mark)
	}
	return nil
}

// lineReader hands on whole lines alone: what follows the last line end was being
// written when the process ended.
type lineReader struct {
	source *bufio.Reader
	line   []byte
}

func (l *lineReader) Read(p []byte) (int, error) {
	for len(l.line) == 0 {
		line, err := l.source.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return 0, io.EOF
			}
			return 0, err
		}
		l.line = line
	}
	n := copy(p, l.line)
	l.line = l.line[n:]
	return n, nil
}
