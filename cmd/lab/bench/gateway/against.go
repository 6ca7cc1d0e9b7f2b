package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/cmd/lab/bench/paired"
	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/cmd/lab/bench/played"
)

// compareCommits measures the gateway of a commit and that of the working tree, in front of the same engine and in turn.
func compareCommits(commit string, streams, events int, rates string, rounds int) error {
	scenes, err := scenesOf(streams, events, rates, rounds)
	if err != nil {
		return err
	}
	sides, remove, err := paired.Build(commit)
	if err != nil {
		return err
	}
	defer remove()
	engine, err := played.New()
	if err != nil {
		return err
	}
	defer engine.Close()
	older, stopOlder, err := gatewayOf(sides.Old, engine, streams)
	if err != nil {
		return err
	}
	defer stopOlder()
	newer, stopNewer, err := gatewayOf(sides.New, engine, streams)
	if err != nil {
		return err
	}
	defer stopNewer()
	fmt.Printf("old is %s, new is %s; ratios are new/old, below 1 is less\n", sides.Old.Name, sides.New.Name)
	for _, s := range scenes {
		ratios, err := paired.Compare(older, newer, rounds, func(a *arm, _ int) ([]float64, error) {
			r, err := a.round(engine, s.settings)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			return []float64{r.cpu / float64(r.events), at(r.latencies, 0.5)}, nil
		})
		if err != nil {
			return err
		}
		fmt.Printf("\n%s, %d events a stream\n", s.title, s.events)
		fmt.Printf("  processor time per event  %v\n  median latency            %v\n", ratios[0], ratios[1])
	}
	return nil
}

// gatewayOf starts the gateway of one side in a folder of its own; stop removes that.
func gatewayOf(side paired.Side, e *played.Engine, streams int) (a *arm, stop func(), err error) {
	dir, err := os.MkdirTemp("", "headway-gateway-")
	if err != nil {
		return nil, nil, err
	}
	model := filepath.Join(dir, "model")
	end := func() {}
	if err = plane.WriteModel(model); err == nil {
		a, end, err = headway(side.Program, dir, e.URL(), model, streams)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("%s: %w", side.Name, err)
	}
	a.name = side.Name
	return a, func() {
		end()
		_ = os.RemoveAll(dir)
	}, nil
}
