package compare

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/experiment"
)

// HoldsTrace reports whether a path is a run of ours: its directory, or its trace. A file
// is known by how it begins. An empty one is a run that has not begun.
func HoldsTrace(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		_, err := os.Stat(trace.Path(path))
		return err == nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	begin, err := bufio.NewReader(trace.NewText(file)).Peek(len(trace.Begins))
	if err != nil && len(begin) == 0 { // nothing, or nothing that can be read
		return trace.Is(path), nil
	}
	return string(begin) == trace.Begins, nil
}

// FolderError refuses a folder of runs, and names the last of them; nil for any other path.
func FolderError(folder string) error {
	entries, _ := os.ReadDir(folder)
	for _, e := range slices.Backward(entries) {
		run := filepath.Join(folder, e.Name())
		if own, err := HoldsTrace(run); e.IsDir() && err == nil && own {
			return failure.Usage("name one of its runs, such as "+run, "%s is a folder of runs", folder)
		}
	}
	return nil
}

// Meter shows how far something long is. It gets the name of the counted things. It
// returns one function that takes the count and one that clears the line. The nil
// Meter shows nothing.
type Meter func(what string) (update func(done, all int64), clear func())

// begin begins to show what is counted.
func (m Meter) begin(what string) (update func(done, all int64), clear func()) {
	if m == nil {
		return func(_, _ int64) {}, func() {}
	}
	return m(what)
}

// Header reads the header of a run's trace.
func Header(path string) (trace.Header, error) {
	file, err := trace.Open(path)
	if err != nil {
		return trace.Header{}, failure.Usage("name a run directory that headway run made, or a trace file", "%w", err)
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return trace.Header{}, failure.Usage("name a run's directory or its "+trace.FileName+", of this version of headway", "%s: %w", file.Name(), err)
	}
	return reader.Header, nil
}

// Measure reads what a run's rollouts, steps and syncs took, and where its staleness came
// from.
func Measure(ctx context.Context, path string, show Meter) (*replay.Recording, attribution.Summary, error) {
	file, err := trace.Open(path)
	if err != nil {
		return nil, attribution.Summary{}, err
	}
	defer file.Close()
	var source io.Reader = file
	if info, err := file.Stat(); err == nil {
		update, clear := show.begin("MB of the trace")
		defer clear()
		source = &watchedReader{Reader: file, ctx: ctx, update: update, all: info.Size()}
	}
	var split *attribution.Observer
	recording, err := replay.Measure(source, besideTo(&split))
	if ctx.Err() != nil {
		return nil, attribution.Summary{}, failure.Run("", "interrupted")
	}
	if err != nil {
		return nil, attribution.Summary{}, TraceError(file.Name(), err)
	}
	return recording, split.Summary(), nil
}

// besideTo has an attribution observe a run beside its recorder, and leaves it where it is told.
func besideTo(at **attribution.Observer) replay.Beside {
	return func(rules loop.Config, warmup loop.Version) metrics.Beside {
		o := attribution.New(rules)
		o.Warmup = warmup
		*at = o
		return o
	}
}

// watchedReader counts what is read, until its context ends.
type watchedReader struct {
	io.Reader
	ctx       context.Context
	update    func(done, all int64)
	done, all int64
}

const megabyte = 1 << 20

func (r *watchedReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.Reader.Read(p)
	r.done += int64(n)
	r.update(r.done/megabyte, r.all/megabyte)
	return n, err
}

// ResimulateDir takes the lengths and times of a run's trace through the
// simulator, under the rules of a resolved document.
func ResimulateDir(path string, document config.Config) (replay.Resimulation, error) {
	recording, _, err := Measure(context.Background(), path, nil)
	if err != nil {
		return replay.Resimulation{}, err
	}
	arm := WhatIf{Document: document}
	settings, err := arm.settings(recording.Header)
	if err != nil {
		return replay.Resimulation{}, err
	}
	again, err := recording.Resimulate(settings)
	if err != nil && !errors.Is(err, sim.ErrStalled) {
		return again, failure.Run("", "%s: %w", path, err)
	}
	if err != nil {
		return again, experiment.StallError(document, err)
	}
	return again, nil
}
