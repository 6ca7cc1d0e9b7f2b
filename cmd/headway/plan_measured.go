package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/plan"
)

// measuredOf are the keys of a document that a run measured, or that a
// document of measurements gives.
func measuredOf(application *app.Process, path string) ([]config.Override, error) {
	if extension := filepath.Ext(path); extension == ".yaml" || extension == ".yml" || extension == ".json" {
		return measuredKeys(path)
	}
	measured, err := measuredRun(path)
	if err != nil {
		return nil, err
	}
	keys, notes, err := measured.Keys()
	if err != nil {
		return nil, failure.Usage("give a longer run, or the measured keys in a document", "--measured %s: %w", path, err)
	}
	for _, note := range notes {
		fmt.Fprintf(application.Stderr, "measured by %s: %s\n", path, note)
	}
	overrides := make([]config.Override, len(keys))
	for i, key := range keys {
		overrides[i] = config.Override{Flag: "--measured " + path, Text: key}
	}
	return overrides, nil
}

// measuredRun folds the trace of a run.
func measuredRun(path string) (*plan.Measured, error) {
	file, err := trace.Open(path)
	if err != nil {
		return nil, failure.Usage("name a run directory that headway run made, its trace, or a document of measured keys (.yaml, .json)", "--measured: %w", err)
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return nil, compare.TraceError(file.Name(), err)
	}
	measured, err := plan.MeasuredTrace(reader)
	if err != nil {
		return nil, compare.TraceError(file.Name(), err)
	}
	return measured, nil
}

// measuredKeys reads a document whose keys replace those of the plan's.
func measuredKeys(path string) ([]config.Override, error) {
	if _, err := config.Read(path); err != nil { // names file and line of what is no key
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, failure.Usage("name a document of measured keys", "--measured: %w", err)
	}
	keys, err := plan.MeasuredKeys("--measured "+path, text)
	if errors.Is(err, plan.ErrUnplanned) {
		return nil, failure.Usage("give keys such as hardware.train_tokens_per_s_per_gpu, modelled.decode_curve, modelled.length or modelled.sync.time_s", "--measured %s: %w", path, err)
	}
	if err != nil {
		return nil, failure.Usage("name a document of measured keys", "--measured %s: %w", path, err)
	}
	return keys, nil
}
