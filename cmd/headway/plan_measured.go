package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

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
	measured, err := measureRun(path)
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

// measureRun folds a run's trace.
func measureRun(path string) (*plan.Measured, error) {
	file, err := trace.Open(path)
	if err != nil {
		return nil, failure.Usage("name a run directory that headway run made, its trace, or a document of measured keys (.yaml, .json)", "--measured: %w", err)
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return nil, compare.TraceError(file.Name(), err)
	}
	measured := plan.NewMeasured(reader.Header.Loop)
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return measured, nil
		}
		var torn *trace.Error
		if errors.As(err, &torn) && torn.Torn {
			return measured, nil // what was written says enough
		}
		if err != nil {
			return nil, compare.TraceError(file.Name(), err)
		}
		switch {
		case record.Event != nil:
			measured.Event(record.Event.Event, record.Event.GenerateNS, record.Event.EnvironmentNS)
		case record.Action != nil:
			measured.Action(*record.Action)
		case record.Note == trace.NoteService:
			if err := measuredNote(measured, record); err != nil {
				return nil, compare.TraceError(file.Name(), err)
			}
		}
	}
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
	var tree yaml.MapSlice
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, failure.Usage("name a document of measured keys", "--measured %s: %w", path, err)
	}
	var overrides []config.Override
	err = leaves(tree, "", func(key string, value any) error {
		flow, err := yaml.MarshalWithOptions(value, yaml.Flow(true))
		if err == nil {
			overrides = append(overrides, config.Override{Flag: "--measured " + path, Text: key + "=" + strings.TrimSpace(string(flow))})
		}
		return err
	})
	if err == nil && !slices.ContainsFunc(overrides, plannedWith) {
		return nil, failure.Usage("give keys such as hardware.train_tokens_per_s_per_gpu, modelled.decode_curve, modelled.length or modelled.sync.time_s",
			"--measured %s: nothing in it is of use to a plan", path)
	}
	return overrides, err
}

// plannedWith reports whether a measured key changes a plan.
func plannedWith(o config.Override) bool {
	key, _, _ := strings.Cut(o.Text, "=")
	section, _, _ := strings.Cut(key, ".")
	return slices.Contains([]string{"rollout", "train", "sync", "filter", "modelled", "hardware"}, section) && !plan.Unplanned(key)
}

// whole are sections that are given as one, since their keys belong together.
var whole = []string{"modelled.length", "modelled.environment"}

// leaves visits what a tree says, by dotted key.
func leaves(tree yaml.MapSlice, path string, visit func(string, any) error) error {
	for _, item := range tree {
		key := fmt.Sprint(item.Key)
		if path != "" {
			key = path + "." + key
		}
		section, ok := item.Value.(map[string]any)
		var err error
		switch {
		case ok && !slices.Contains(whole, key):
			err = leaves(inKeyOrder(section), key, visit)
		default:
			err = visit(key, item.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inKeyOrder makes a section's order its keys'.
func inKeyOrder(section map[string]any) yaml.MapSlice {
	var tree yaml.MapSlice
	for key, value := range section {
		tree = append(tree, yaml.MapItem{Key: key, Value: value})
	}
	slices.SortFunc(tree, func(a, b yaml.MapItem) int { return strings.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key)) })
	return tree
}

// measuredNote folds what engines said of themselves.
func measuredNote(measured *plan.Measured, record trace.Record) error {
	var service trace.Service
	if err := json.Unmarshal(record.Data, &service); err != nil {
		return fmt.Errorf("unreadable service note: %w", err)
	}
	for _, cell := range service.Cells {
		measured.Decode(cell.Active, cell.Steps, cell.NS)
	}
	return nil
}
