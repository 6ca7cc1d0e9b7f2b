package main

import (
	"errors"
	"io"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
)

// watchBias has a simulation compare what it trains with what it starts, beside
// whatever observes it already. Lengths are known as rollouts start, so that what
// is cancelled counts too.
func watchBias(cfg *sim.Config) *bias.Observer {
	observer := bias.NewObserver(cfg.Loop, bias.Options{Warmup: loop.Version(cfg.Warmup), Known: func(a loop.Action) (int32, int64) {
		r := cfg.Work.Rollout(sim.Rollout{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Level: a.Level, Prompt: a.Prompt, Version: a.Version})
		return r.Tokens, r.EnvironmentNS
	}})
	observe := cfg.Observe
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		observer.Observe(ev, metrics.Measured{EnvironmentNS: environmentNS}, actions)
		if observe != nil {
			observe(ev, generateNS, environmentNS, actions)
		}
	}
	return observer
}

// biasOfRun compares what a run trained with what it started, from its trace. Where
// there is no environment that takes time, what was measured of one is the noise of
// the machine, and not compared.
func biasOfRun(dir string, environment bool) (*bias.Report, error) {
	file, err := trace.Open(dir)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return nil, err
	}
	rules := reader.Header.Loop.WithDefaults()
	machine, err := loop.New(rules)
	if err != nil {
		return nil, err
	}
	observer := bias.NewObserver(rules, bias.Options{Warmup: reader.Header.Warmup})
	for {
		record, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			report := observer.Report()
			return &report, nil
		case err != nil:
			return nil, err
		case record.Event != nil:
			actions, _ := machine.Step(record.Event.Event)
			measured := metrics.Measured{}
			if environment {
				measured.EnvironmentNS = record.Event.EnvironmentNS
			}
			observer.Observe(record.Event.Event, measured, actions)
		}
	}
}

// verlMetrics are a summary's figures under verl's names.
func verlMetrics(s metrics.Summary) map[string]float64 {
	named := map[string]float64{}
	for _, m := range metrics.VerlMetrics(s) {
		named[m.Name] = m.Value
	}
	return named
}
