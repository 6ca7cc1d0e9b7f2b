package origin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// Adopt returns the document that a run began with, by the header of its log. The present document may differ in how the run
// is reached, watched and stored, and its words for that stand in the answer. Adopt refuses any other difference. The rules are
// those in the header, as another build may make others of one document. The advice is for the one who gave the present one.
func Adopt(name, dir, advice string, header trace.Header, now config.Config) (config.Config, loop.Config, error) {
	began, err := config.ParseRecorded("config of the run "+name, []byte(header.Config))
	if err == nil {
		began = began.WithDefaults()
		err = began.Validate()
	}
	if err != nil {
		return now, loop.Config{}, failure.Run("was it made by another version of this program?", "the run's own document: %w", err)
	}
	merged := reachedAs(began, now)
	if changed := changes(merged, now); len(changed) > 0 {
		return now, loop.Config{}, failure.Usage(advice,
			"%s began with other settings, and only server, watchdog, store, gateway, sandbox and where engines are may change:\n  %s", dir, strings.Join(changed, "\n  "))
	}
	return merged, header.Loop, nil
}

// reachedAs is the document that a run began with, with what the present one says of how it is reached,
// watched and stored, and where its engines are: servers move, and what is sampled stays the same.
func reachedAs(began, now config.Config) config.Config {
	merged := began
	merged.Modelled = now.Modelled // no run reads it
	merged.Server, merged.Watchdog, merged.Store, merged.Gateway = now.Server, now.Watchdog, now.Store, now.Gateway
	merged.Fleet = parts.ReachedFleet(began.Fleet, now.Fleet)
	merged.Sandbox, merged.Environment.Players, merged.Environment.OpenEnv.URL = now.Sandbox, now.Environment.Players, now.Environment.OpenEnv.URL
	if !began.External() || len(now.Engines) != len(began.Engines) {
		return merged
	}
	merged.Model.Path = now.Model.Path
	merged.Engines = slices.Clone(began.Engines)
	for i := range merged.Engines {
		e, n := &merged.Engines[i], now.Engines[i]
		e.Kind, e.URL, e.KeyFile, e.ServedModel, e.WeightsDir = n.Kind, n.URL, n.KeyFile, n.ServedModel, n.WeightsDir
		e.Weights, e.Cache, e.Command, e.Convert, e.SilentS, e.UpdateS, e.PieceTokens = n.Weights, n.Cache, n.Command, n.Convert, n.SilentS, n.UpdateS, n.PieceTokens
	}
	return merged
}

// changes say which values of two documents differ, a few of them.
func changes(before, now config.Config) []string {
	before, now = before.Unplaced(), now.Unplaced()
	var out []string
	values := map[string]string{}
	for _, leaf := range now.Leaves() {
		values[leaf.Key] = leaf.Value
	}
	for _, leaf := range before.Leaves() {
		if other, there := values[leaf.Key]; !there || other != leaf.Value {
			out = append(out, fmt.Sprintf("%s began as %q, now %q", leaf.Key, leaf.Value, other))
		}
		delete(values, leaf.Key)
	}
	for _, leaf := range now.Leaves() {
		if _, there := values[leaf.Key]; there {
			out = append(out, fmt.Sprintf("%s began without a value, now %q", leaf.Key, leaf.Value))
		}
	}
	const most = 8
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return out
}
