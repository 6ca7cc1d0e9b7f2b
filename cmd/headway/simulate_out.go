package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// rowWriter writes a grid's settings to a file, one by one.
type rowWriter interface {
	Write(p *experiment.Point) error
	// Flush has what was written so far outlive the process.
	Flush() error
	// Close ends the file; failed says that it is not complete.
	Close(failed bool) error
}

// stream writes every setting to the file as soon as those before it are there.
func (c *simulateCmd) stream(application *app.Process, g *experiment.Grid, began time.Time) error {
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
	var points []*experiment.Point
	flushed := application.Now()
	asked, stop := command.Interruptible()
	defer stop()
	written := earlier.Settings
	count, err := runGrid(application, g, earlier, func(p *experiment.Point) error {
		if asked.Err() != nil {
			return errInterrupted
		}
		written++
		p.Publish(c.Accept)
		if err := w.Write(p); err != nil {
			return err
		}
		p.Forget()
		if page != nil {
			points = append(points, p)
		}
		if now := application.Now(); now.Sub(flushed) >= time.Second {
			flushed = now
			return w.Flush()
		}
		return nil
	})
	interrupted := errors.Is(err, errInterrupted)
	if err = errors.Join(err, w.Close(err != nil)); interrupted {
		return errors.Join(writePage(page, g, nil, c.Accept, err), c.interrupted(written, g.Settings))
	}
	if err != nil {
		return fmt.Errorf("--out %s: %w", c.Out, errors.Join(err, writePage(page, g, nil, c.Accept, err)))
	}
	if err := writePage(page, g, points, c.Accept, nil); err != nil {
		return fmt.Errorf("--html %s: %w", c.HTML, err)
	}
	if err := c.printStream(application, g, earlier.Settings, count, application.Now().Sub(began).Seconds()); err != nil {
		return err
	}
	return count.Verdict(c.Accept)
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
func (c *simulateCmd) printStream(application *app.Process, g *experiment.Grid, from int64, count experiment.Tally, wall float64) error {
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
		}{c.Out, g.Settings, g.Seeds, from, count.Unsettled, count.Failed, count.Events, eventRate(count.Events, wall), wall})
	}
	resumed := ""
	if from > 0 {
		resumed = fmt.Sprintf(", %s of them there before", report.Count(from))
	}
	rate := ""
	if perS := eventRate(count.Events, wall); perS != nil {
		rate = fmt.Sprintf(" in %s, %s per second", report.Briefly(wall), report.Count(int64(*perS)))
	}
	_, err := fmt.Fprintf(application.Stdout, "%s: %s%s, %s each, %d columns; %s events%s\n", c.Out,
		report.Counted(g.Settings, "setting"), resumed, report.Counted(g.Seeds, "seed"), g.Columns(), report.Count(count.Events), rate)
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
func (c *simulateCmd) open(g *experiment.Grid) (w rowWriter, earlier experiment.Tally, err error) {
	mark, err := g.Mark(programName(), c.Accept)
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
		if failed, is := errors.AsType[*failure.Error](err); is && strings.Contains(failed.Message, "exists") {
			failed.Hint = "name a new file, or go on with this one by --resume"
		}
		return nil, earlier, err
	}
	rows := experiment.NewCSV(file, mark, c.Accept)
	return rows, earlier, rows.WriteHeader(g)
}

// resume opens the file of an interrupted grid behind its last whole row, and counts
// what became of the settings before it.
func (c *simulateCmd) resume(g *experiment.Grid, mark string) (rowWriter, experiment.Tally, error) {
	file, err := os.OpenFile(c.Out, os.O_RDWR, 0o644)
	if err != nil {
		return nil, experiment.Tally{}, failure.Usage("without --resume a new file is begun", "--resume: %w", err)
	}
	done, size, err := experiment.WholeRows(file, g, mark)
	if err == nil {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, experiment.Tally{}, errors.Join(failure.Usage("give the same FILE and flags that wrote it, or begin a new file", "--resume %s: %w", c.Out, err), file.Close())
	}
	rows := experiment.NewCSV(file, mark, c.Accept)
	if size == 0 {
		err = rows.WriteHeader(g)
	}
	return rows, done, err
}

// createPage makes the file of a page, before anything is simulated; nil without a path.
func createPage(path string, g *experiment.Grid) (*os.File, error) {
	switch {
	case path == "":
		return nil, nil
	case g.Single():
		return nil, failure.Usage(experiment.FlagsHint, "--html %s: a page is of a grid: add --grid KEY=V1,V2", path)
	case g.Simulations() > experiment.ReportMax:
		return nil, failure.Usage("--out FILE.csv takes any number", "--html %s: a page holds at most %s simulations, this grid has %s", path, report.Count(experiment.ReportMax), report.Count(g.Simulations()))
	}
	return createFile("--html", path)
}

// writePage writes the page of a grid and closes its file; one that failed is removed.
func writePage(file *os.File, g *experiment.Grid, points []*experiment.Point, accept bool, failed error) error {
	if file == nil {
		return nil
	}
	if failed != nil || len(points) == 0 {
		return errors.Join(file.Close(), os.Remove(file.Name()))
	}
	w := bufio.NewWriter(file)
	return errors.Join(report.DocumentHTML(w, experiment.Page(g, points, accept)), w.Flush(), file.Close())
}

// createParquet makes the file.
func createParquet(path string, g *experiment.Grid, mark string, accept bool) (*experiment.Parquet, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, failure.Usage("name a file that does not exist yet", "--out %s: the file exists, and nothing is overwritten", path)
	}
	if _, err := os.Lstat(path + ".part"); err == nil {
		return nil, failure.Usage("delete "+path+".part if no run is writing it", "--out %s: there is %s.part, of a run that was interrupted or goes on; it holds nothing that can be read", path, path)
	}
	file, err := createFile("--out", path+".part")
	if err != nil {
		return nil, err
	}
	return experiment.NewParquet(path, file, g, experiment.ParquetOptions{Mark: mark, Accept: accept, Version: command.CurrentBuild().Version}), nil
}

// createFile creates a file that a flag names; nothing is overwritten.
func createFile(flag, path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, failure.Usage("name a new file, such as "+filepath.Join(path, "NAME"), "%s %s is a folder, and a file to write is expected", flag, path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, failure.Usage("name a file that does not exist yet", "%s %s: the file exists, and nothing is overwritten", flag, path)
	}
	if err != nil {
		return nil, failure.Usage("name a file in an existing directory", "%s: %w", flag, err)
	}
	return file, nil
}

// traceFile is the trace that a simulation writes. The nil traceFile writes nothing.
type traceFile struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
	frames *trace.Frames // what the buffer is written to, nil of a plain trace
	writer *trace.Writer
}

// createTrace makes the file, before anything is simulated. A name that ends with .zst is that of a packed trace.
func createTrace(path string) (*traceFile, error) {
	file, err := createFile("--trace", path)
	if err != nil {
		return nil, err
	}
	t := &traceFile{path: path, file: file, buffer: bufio.NewWriterSize(file, 1<<20)}
	if trace.Packed(path) {
		if t.frames, err = trace.NewFrames(file); err != nil {
			return nil, errors.Join(err, file.Close(), os.Remove(path))
		}
		t.buffer.Reset(t.frames)
	}
	return t, nil
}

// watch has a simulation written, beside whatever observes it already.
func (t *traceFile) watch(cfg *sim.Config, document config.Config) (err error) {
	if t == nil {
		return nil
	}
	rules := cfg.Loop
	rules.TrainSteps = loop.Version(cfg.Warmup + cfg.Measured)
	document.Steps.Warmup = cfg.Warmup // what an automatic one came to
	t.writer, err = trace.NewWriter(t.buffer, trace.Header{Program: programName(), Source: "simulation", Seed: document.Seed,
		Loop: rules, Config: string(document.YAML()), Warmup: loop.Version(cfg.Warmup)})
	if err != nil {
		return err
	}
	observe := cfg.Observe
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		t.writer.Event(trace.Event{Event: ev, GenerateNS: generateNS, EnvironmentNS: environmentNS}, actions)
		if observe != nil {
			observe(ev, generateNS, environmentNS, actions)
		}
	}
	return nil
}

// end ends the trace and closes the file. The trace of a simulation that failed has
// no end, and one that was not begun leaves no file.
func (t *traceFile) end(failed error) error {
	if t == nil {
		return nil
	}
	var err error
	if t.writer != nil && failed == nil {
		err = t.writer.End(nil)
	}
	err = errors.Join(err, t.buffer.Flush())
	if t.frames != nil {
		err = errors.Join(err, t.frames.Close())
	}
	if t.writer == nil {
		return errors.Join(t.file.Close(), os.Remove(t.path))
	}
	if err := errors.Join(err, t.file.Close()); err != nil {
		return fmt.Errorf("--trace %s: %w", t.path, err)
	}
	return nil
}
