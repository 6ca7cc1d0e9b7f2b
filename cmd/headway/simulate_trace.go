package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

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
	writer *trace.Writer
}

// createTrace makes the file, before anything is simulated.
func createTrace(path string) (*traceFile, error) {
	file, err := createFile("--trace", path)
	if err != nil {
		return nil, err
	}
	return &traceFile{path: path, file: file, buffer: bufio.NewWriterSize(file, 1<<20)}, nil
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
	switch {
	case t.writer == nil:
		return errors.Join(t.file.Close(), os.Remove(t.path))
	case failed == nil:
		err = t.writer.End(nil)
	}
	if err := errors.Join(err, t.buffer.Flush(), t.file.Close()); err != nil {
		return fmt.Errorf("--trace %s: %w", t.path, err)
	}
	return nil
}
