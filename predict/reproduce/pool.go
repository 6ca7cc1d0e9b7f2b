package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/parallel"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
)

// length of the simulations: train steps before and in the window, and seeds.
type length struct{ warmup, measured, seeds int }

// length of every simulation of a setting. Quick ones show that it works.
func (o Options) length() length {
	if o.Quick {
		return length{30, 80, 2}
	}
	return length{300, 1500, 5}
}

// settled is the warm-up of a setting: at least the usual one, and where the queue's
// stock wanders as long as it takes to forget its start.
func (l length) settled(s setting) length {
	p := (s.queue - 1) * (s.queue - 1) * float64(s.batch/s.group)
	l.warmup = max(l.warmup, int(math.Min(p, 10*float64(l.warmup))))
	return l
}

// scanLength is the length of the simulations of a scan over what is not published:
// it needs no third digit.
func (o Options) scanLength() length {
	l := o.length()
	return length{l.warmup, max(l.measured/2, 1), min(l.seeds, 3)}
}

// simulateAll simulates every setting with every seed, on all cores, and returns the
// summaries by setting and seed. The order of settings and seeds decides the order
// of results, whichever ends first.
func (o Options) simulateAll(ctx context.Context, name string, settings []setting) ([][]metrics.Summary, error) {
	return o.simulateFor(ctx, name, settings, o.length())
}

// scanAll is simulateAll with shorter simulations. A setting that can train nothing has
// no summaries.
func (o Options) scanAll(ctx context.Context, name string, settings []setting) ([][]metrics.Summary, error) {
	return o.simulateFor(ctx, name, settings, o.scanLength())
}

// simulateFor simulates every setting for that long. One that stalls has no summaries.
func (o Options) simulateFor(ctx context.Context, name string, settings []setting, l length) ([][]metrics.Summary, error) {
	var configs []sim.Config
	for _, s := range settings {
		for seed := range l.seeds {
			cfg, err := s.simulation(uint64(seed+1), l.settled(s).warmup, l.measured)
			if err != nil {
				return nil, err
			}
			configs = append(configs, cfg)
		}
	}
	flat, err := o.runAll(ctx, name, len(configs), func(i int) (metrics.Summary, error) {
		result, err := sim.Run(configs[i])
		if errors.Is(err, sim.ErrStalled) {
			return metrics.Summary{}, nil
		}
		return result.Summary, err
	})
	if err != nil {
		return nil, err
	}
	summaries := make([][]metrics.Summary, len(settings))
	for i := range summaries {
		for _, s := range flat[i*l.seeds : (i+1)*l.seeds] {
			if s.Steps > 0 { // it did not stall
				summaries[i] = append(summaries[i], s)
			}
		}
	}
	return summaries, nil
}

// runAll does n pieces of work on all cores and returns what they came to, in order.
// Of several errors it returns the first in order.
func (o Options) runAll(ctx context.Context, name string, n int, do func(i int) (metrics.Summary, error)) ([]metrics.Summary, error) {
	return inParallel(ctx, n, do, func(done int) {
		if o.Said != nil {
			o.Said(name, done, n)
		}
	})
}

// inParallel is runAll for any result.
func inParallel[T any](ctx context.Context, n int, do func(i int) (T, error), said func(done int)) ([]T, error) {
	results, i, err := parallel.All(ctx, n, func(done, _ int) { said(done) }, do)
	if err != nil && i >= 0 {
		err = fmt.Errorf("simulation %d of %d: %w", i+1, n, err)
	}
	return results, err
}

// over is the mean of a figure over seeds with Student's interval.
func over[T any](runs []T, of func(T) float64) Interval {
	values := make([]float64, len(runs))
	for i, run := range runs {
		values[i] = of(run)
	}
	return interval(values)
}

// interval is the mean of values with Student's 95 % interval.
func interval(values []float64) Interval {
	if len(values) == 0 {
		return Interval{}
	}
	v := estimate.OfSeeds(values)
	return Interval{Mean: v.Mean, Low: v.Low(), High: v.High(), Seeds: len(values)}
}
