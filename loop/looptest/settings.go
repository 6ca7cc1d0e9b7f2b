package looptest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headway-rl/headway/loop"
)

// scriptConfig reads the arguments of new.
func scriptConfig(t testing.TB, d *datadriven.TestData) (loop.Config, error) {
	cfg := loop.Config{GroupSize: 2, BatchGroups: 1, QueueGroups: -1, EngineSlots: []int{4}}
	if d.HasArg("engines") {
		cfg.EngineSlots = scanInts(t, d, "engines")
	}
	if d.HasArg("cells") {
		cfg.EngineCells = scanInts(t, d, "cells")
	}
	var staleness, steps, seed int
	for key, to := range map[string]*int{
		"group": &cfg.GroupSize, "batch": &cfg.BatchGroups, "queue": &cfg.QueueGroups, "every": &cfg.SyncEvery,
		"attempts": &cfg.MaxAttempts, "group-min": &cfg.GroupMin, "train-attempts": &cfg.TrainAttempts, "max-staleness": &staleness, "steps": &steps,
		"uses": &cfg.MaxUses, "seed": &seed, "pause": &cfg.PauseGroups, "spans": &cfg.MaxSpans, "extra": &cfg.ExtraGroups,
		"redundancy": &cfg.Redundancy, "levels": &cfg.Levels, "prompts": &cfg.Prompts,
	} {
		d.MaybeScanArgs(t, key, to)
	}
	cfg.MaxStaleness, cfg.TrainSteps, cfg.Seed = loop.Version(staleness), loop.Version(steps), uint64(seed)
	for key, to := range map[string]*bool{
		"abort": &cfg.Abort, "blocked": &cfg.TrainerBlocked, "rolling": &cfg.RollingSwitch, "filter": &cfg.FilterZeroAdvantage,
		"balance": &cfg.Balance, "interrupt": &cfg.InterruptAtBatch, "filter-solve": &cfg.FilterSolveRate, "requeue": &cfg.Requeue,
		"asks": &cfg.TrainerAsks, "resume-lost": &cfg.ResumeLost, "resume-restart": &cfg.ResumeRestart, "stays": &cfg.StaysInCell, "hold-adaptive": &cfg.HoldAdaptive,
	} {
		*to = d.HasArg(key)
	}
	for key, to := range map[string][]*float64{
		"eta": {&cfg.Eta}, "threshold": {&cfg.StalenessThreshold}, "gamma": {&cfg.Gamma}, "hold": {&cfg.Hold}, "hold-cost": {&cfg.HoldCost},
		"explore": {&cfg.Explore}, "band": {&cfg.SolveLow, &cfg.SolveHigh},
	} {
		if err := scanFloats(d, key, to...); err != nil {
			return cfg, err
		}
	}
	if err := scriptChoices(t, d, &cfg); err != nil {
		return cfg, err
	}
	if err := scriptControl(t, d, &cfg); err != nil {
		return cfg, err
	}
	if cfg.QueueGroups < 0 {
		cfg.QueueGroups = max(cfg.BatchGroups+cfg.ExtraGroups, cfg.LiveGroupsMax())
	}
	return cfg, nil
}

// scriptControl reads a goal and ranges, if there are any.
func scriptControl(t testing.TB, d *datadriven.TestData, cfg *loop.Config) error {
	var ctl loop.Control
	var within float64
	d.MaybeScanArgs(t, "window", &ctl.Window)
	d.MaybeScanArgs(t, "start-engines", &cfg.EnginesStart)
	for key, to := range map[string][]*float64{"mean": {&ctl.Mean}, "share": {&ctl.Share, &within}} {
		if err := scanFloats(d, key, to...); err != nil {
			return err
		}
	}
	ctl.Within, ctl.Tokens = loop.Version(within), d.HasArg("tokens")
	for set := range loop.Setting(settings) {
		r := &ctl.Ranges[set]
		if err := scanFloats(d, "range-"+set.String(), &r.Least, &r.Most); err != nil {
			return err
		}
	}
	if ctl != (loop.Control{}) {
		cfg.Control = &ctl
	}
	return nil
}

// scriptChoices reads the arguments that are one of several words.
func scriptChoices(t testing.TB, d *datadriven.TestData, cfg *loop.Config) error {
	choices := []struct {
		key   string
		names []string
		set   func(int)
	}{
		{"policy", []string{"drop", "max", "block", "synchronous", "bounded", "threshold", "replay"}, func(i int) { cfg.Policy = loop.Policy(i) }},
		{"select", []string{"oldest", "newest", "oldest-version", "fresh"}, func(i int) { cfg.Select = loop.Selection(i) }},
		{"start", []string{"stream", "gang"}, func(i int) { cfg.Start = loop.StartOrder(i) }},
		{"placement", []string{"least-loaded", "cache-aware"}, func(i int) { cfg.Placement = loop.Placement(i) }},
		{"sync", []string{"in_flight", "pause", "drain", "restart"}, func(i int) { cfg.Sync = loop.SyncMode(i) }},
		{"on-failure", []string{"drop", "shrink"}, func(i int) { cfg.OnFailure = loop.FailureRule(i) }},
		{"evict", []string{"oldest-version", "drift"}, func(i int) { cfg.Evict = loop.Eviction(i) }},
	}
	for _, c := range choices {
		if !d.HasArg(c.key) {
			continue
		}
		var name string
		d.ScanArgs(t, c.key, &name)
		i := slices.Index(c.names, name)
		if i < 0 {
			return fmt.Errorf("%s is %q, want one of %s", c.key, name, strings.Join(c.names, ", "))
		}
		c.set(i)
	}
	return nil
}

// scanFloats reads the values of an argument, if there is one.
func scanFloats(d *datadriven.TestData, key string, to ...*float64) error {
	for _, a := range d.CmdArgs {
		if a.Key != key {
			continue
		}
		if len(a.Vals) != len(to) {
			return fmt.Errorf("%s has %d values, want %d", key, len(a.Vals), len(to))
		}
		for i, v := range a.Vals {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			*to[i] = f
		}
	}
	return nil
}
