package main

import (
	"errors"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
)

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
