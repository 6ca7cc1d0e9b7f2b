package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// rowWriter writes a grid's settings to a file, one by one.
type rowWriter interface {
	write(p *gridPoint) error
	// flush has what was written so far outlive the process.
	flush() error
	// close ends the file; failed says that it is not complete.
	close(failed bool) error
}

// stream writes every setting to the file as soon as those before it are there.
func (c *simulateCmd) stream(application *app.Process, g *grid, began time.Time) error {
	if c.HTML != "" && c.Resume {
		return failure.Usage("leave --resume or --html out", "--html %s: a page needs every setting, and --resume makes the missing ones alone", c.HTML)
	}
	page, err := createPage(c.HTML, g)
	if err != nil {
		return err
	}
	w, earlier, err := c.open(g)
	if err != nil {
		return errors.Join(err, writePage(page, g, nil, c.Accept, err))
	}
	var points []*gridPoint
	flushed := application.Now()
	asked, stop := interruptible()
	defer stop()
	written := earlier.settings
	count, err := runGrid(application, g, earlier, func(p *gridPoint) error {
		if asked.Err() != nil {
			return errInterrupted
		}
		written++
		p.publish(c.Accept)
		if err := w.write(p); err != nil {
			return err
		}
		p.forget()
		if page != nil {
			points = append(points, p)
		}
		if now := application.Now(); now.Sub(flushed) >= time.Second {
			flushed = now
			return w.flush()
		}
		return nil
	})
	interrupted := errors.Is(err, errInterrupted)
	if err = errors.Join(err, w.close(err != nil)); interrupted {
		return errors.Join(writePage(page, g, nil, c.Accept, err), c.interrupted(written, g.settings))
	}
	if err != nil {
		return fmt.Errorf("--out %s: %w", c.Out, errors.Join(err, writePage(page, g, nil, c.Accept, err)))
	}
	if err := writePage(page, g, points, c.Accept, nil); err != nil {
		return fmt.Errorf("--html %s: %w", c.HTML, err)
	}
	if err := c.printStream(application, g, earlier.settings, count, application.Now().Sub(began).Seconds()); err != nil {
		return err
	}
	return count.verdict(c.Accept)
}

// errInterrupted ends a grid between two settings.
var errInterrupted = errors.New("interrupted")

// interrupted says what is left of a grid that was asked to stop.
func (c *simulateCmd) interrupted(written, all int64) error {
	hint := "the same command with --resume goes on"
	if strings.HasSuffix(c.Out, ".parquet") {
		hint = "a Parquet file is whole or not there; a CSV could be gone on with by --resume"
	}
	return failure.Run(hint, "interrupted after %s of %s", report.Count(written), report.Counted(all, "setting"))
}

// printStream says what was written.
func (c *simulateCmd) printStream(application *app.Process, g *grid, from int64, count tally, wall float64) error {
	if c.JSON {
		return printJSON(application.Stdout, struct {
			Out        string   `json:"out"`
			Settings   int64    `json:"settings"`
			Seeds      int64    `json:"seeds"`
			Resumed    int64    `json:"resumed_settings"`
			Unsettled  int64    `json:"unsettled_settings"`
			Failed     int64    `json:"failed_settings"`
			Events     int64    `json:"events"`
			EventsPerS *float64 `json:"events_per_s"`
			WallS      float64  `json:"wall_s"`
		}{c.Out, g.settings, g.seeds, from, count.unsettled, count.failed, count.events, eventRate(count.events, wall), wall})
	}
	resumed := ""
	if from > 0 {
		resumed = fmt.Sprintf(", %s of them there before", report.Count(from))
	}
	rate := ""
	if perS := eventRate(count.events, wall); perS != nil {
		rate = fmt.Sprintf(" in %s, %s per second", briefly(wall), report.Count(int64(*perS)))
	}
	_, err := fmt.Fprintf(application.Stdout, "%s: %s%s, %s each, %d columns; %s events%s\n", c.Out,
		report.Counted(g.settings, "setting"), resumed, report.Counted(g.seeds, "seed"), g.columns(), report.Count(count.events), rate)
	return err
}

// eventRate is events a second, nil where no event or no time was seen to pass.
func eventRate(events int64, wall float64) *float64 {
	if events == 0 || wall <= 0 {
		return nil
	}
	rate := float64(events) / wall
	return &rate
}

// open opens the file for what is to come. earlier counts the settings it has.
func (c *simulateCmd) open(g *grid) (w rowWriter, earlier tally, err error) {
	mark, err := g.mark(programName(), c.Accept)
	if err != nil {
		return nil, earlier, err
	}
	switch {
	case strings.HasSuffix(c.Out, ".parquet") && c.Resume:
		return nil, earlier, failure.Usage("write a FILE.csv where a grid may have to be resumed", "--resume: a Parquet file is complete or unreadable")
	case strings.HasSuffix(c.Out, ".parquet"):
		w, err = createParquet(c.Out, g, mark, c.Accept)
		return w, earlier, err
	case !strings.HasSuffix(c.Out, ".csv"):
		return nil, earlier, failure.Usage("the ending says what is written", "--out %s: expected FILE.csv or FILE.parquet", c.Out)
	case c.Resume:
		return c.resume(g, mark)
	}
	file, err := createFile("--out", c.Out)
	if err != nil {
		var failed *failure.Error
		if errors.As(err, &failed) && strings.Contains(failed.Message, "exists") {
			failed.Hint = "name a new file, or go on with this one by --resume"
		}
		return nil, earlier, err
	}
	rows := newCSV(file, mark, c.Accept)
	return rows, earlier, rows.header(g)
}

// mark names what the rows of a file are of: documents, axes, seeds and program. Two
// files of one mark have the same rows.
func (g *grid) mark(program string, accept bool) (string, error) {
	first, err := g.resolve(0)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%q %d %v %v\n", program, first.document.YAML(), g.keys, g.seeds, accept, first.automatic)
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

// columns is how many columns a file of the grid has.
func (g *grid) columns() int { return len(g.axes) + len(columns) + 1 }

// header names the columns.
func header(g *grid) []string {
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

// csvRows writes comma-separated values.
type csvRows struct {
	file   io.WriteCloser
	buffer *bufio.Writer
	csv    *csv.Writer
	mark   string
	accept bool
	cells  []string
}

func newCSV(file io.WriteCloser, mark string, accept bool) *csvRows {
	buffer := bufio.NewWriterSize(file, 1<<16)
	return &csvRows{file: file, buffer: buffer, csv: csv.NewWriter(buffer), mark: mark, accept: accept}
}

// header writes the names of the columns.
func (w *csvRows) header(g *grid) error { return w.csv.Write(header(g)) }

func (w *csvRows) write(p *gridPoint) error {
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

func (w *csvRows) flush() error {
	w.csv.Flush()
	return errors.Join(w.csv.Error(), w.buffer.Flush())
}

func (w *csvRows) close(bool) error {
	return errors.Join(w.flush(), w.file.Close())
}

// resume opens the file of an interrupted grid behind its last whole row, and counts
// what became of the settings before it.
func (c *simulateCmd) resume(g *grid, mark string) (rowWriter, tally, error) {
	file, err := os.OpenFile(c.Out, os.O_RDWR, 0o644)
	if err != nil {
		return nil, tally{}, failure.Usage("without --resume a new file is begun", "--resume: %w", err)
	}
	done, size, err := wholeRows(file, g, mark)
	if err == nil {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, tally{}, errors.Join(failure.Usage("give the same FILE and flags that wrote it, or begin a new file", "--resume %s: %w", c.Out, err), file.Close())
	}
	rows := newCSV(file, mark, c.Accept)
	if size == 0 {
		err = rows.header(g)
	}
	return rows, done, err
}

// wholeRows counts the settings a file has, with what became of them, and the bytes
// up to the end of the last whole row. It refuses rows of anything but this grid, from
// its beginning.
func wholeRows(file io.Reader, g *grid, mark string) (done tally, size int64, err error) {
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
func isRow(row []string, g *grid, setting int64, mark string) error {
	if setting >= g.settings {
		return fmt.Errorf("it has more rows than the grid has settings (%d)", g.settings)
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
