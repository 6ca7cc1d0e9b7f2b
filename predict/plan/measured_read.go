package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/trace"
)

// MeasuredTrace folds a run's trace. One that ends within a line says enough up to there; another error is of what cannot
// be read.
func MeasuredTrace(r *trace.Reader) (*Measured, error) {
	measured := newMeasured(r.Header.Loop)
	for {
		record, err := r.Next()
		var torn *trace.Error
		switch {
		case errors.Is(err, io.EOF), errors.As(err, &torn) && torn.Torn:
			return measured, nil
		case err != nil:
			return nil, err
		case record.Event != nil:
			measured.event(record.Event.Event, record.Event.GenerateNS, record.Event.EnvironmentNS)
		case record.Action != nil:
			measured.action(*record.Action)
		case record.Note == trace.NoteService:
			var service trace.Service
			if err := json.Unmarshal(record.Data, &service); err != nil {
				return nil, fmt.Errorf("unreadable service note: %w", err)
			}
			for _, cell := range service.Cells {
				measured.decode(cell.Active, cell.Steps, cell.NS)
			}
		}
	}
}

// ErrUnplanned is the error of a document of measurements that changes no plan.
var ErrUnplanned = errors.New("nothing in it is of use to a plan")

// MeasuredKeys reads a document whose keys replace those of the plan's; flag is said to give them. A document without a
// key that a plan reads is [ErrUnplanned].
func MeasuredKeys(flag string, text []byte) ([]config.Override, error) {
	var tree yaml.MapSlice
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	var overrides []config.Override
	err := leaves(tree, "", func(key string, value any) error {
		flow, err := yaml.MarshalWithOptions(value, yaml.Flow(true))
		if err == nil {
			overrides = append(overrides, config.Override{Flag: flag, Text: key + "=" + strings.TrimSpace(string(flow))})
		}
		return err
	})
	if err == nil && !slices.ContainsFunc(overrides, plannedWith) {
		return nil, ErrUnplanned
	}
	return overrides, err
}

// plannedWith reports whether a measured key changes a plan.
func plannedWith(o config.Override) bool {
	key, _, _ := strings.Cut(o.Text, "=")
	section, _, _ := strings.Cut(key, ".")
	return slices.Contains([]string{"rollout", "train", "sync", "filter", "modelled", "hardware"}, section) &&
		!slices.ContainsFunc(unplanned, func(u struct{ key, instead string }) bool { return u.key == key })
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
