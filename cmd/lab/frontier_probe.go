package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/run"
	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/report"
)

// A probe of rates goes on until it has seen so many train steps and rollouts, and for so long: the times
// it measures are those of paced steps, which differ little.
const (
	rateSteps    = 4
	rateRollouts = 200
	rateS        = 3
	rateMaxS     = 120
)

// From these shares on a machine is refused that does not keep its devices' pace in the probe.
const (
	refusedLate     = 0.5
	refusedSlowdown = 0.1
)

// sampleLengths plays so many whole groups by version 0, as fast as the engines can, and returns their
// responses' lengths. Every rollout that is begun counts, so that long ones are not missed.
func sampleLengths(ctx context.Context, rules loop.Config, engines []port.Engine, environment port.Environment, groups int) ([][]int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := int64(rules.GroupSize)
	all := make([][]int, groups)
	for g := range all {
		all[g] = make([]int, size)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for e, slots := range rules.EngineSlots {
		for range slots {
			wg.Go(func() {
				for n := next.Add(1) - 1; n < int64(groups)*size && ctx.Err() == nil; n = next.Add(1) - 1 {
					id := port.RolloutID{Group: probeGroups + loop.GroupID(n/size), Sample: int32(n % size), Attempt: 1}
					sample, err := environment.Play(ctx, port.RolloutRequest{ID: id}, probeSampler{Engine: engines[e], ID: id})
					if err != nil {
						cancel(err)
						return
					}
					all[n/size][n%size] = sample.ResponseTokens()
				}
			})
		}
	}
	wg.Wait()
	return all, context.Cause(ctx)
}

// probeRates plays rollouts in every slot, makes train steps beside them as the run will, and reads off how
// long the devices' steps take.
func probeRates(ctx context.Context, j *run.Run) (study.FrontierRates, error) {
	scratch, done, err := j.ScratchTrainer(ctx)
	if err != nil {
		return study.FrontierRates{}, err
	}
	defer done()
	limited, cancel := context.WithTimeout(ctx, rateMaxS*time.Second)
	defer cancel()
	p := newProber(j.Rules, j.Engines, j.Environment)
	wait := p.Begin(limited, j.App.Now)
	rates, err := timeRates(limited, j, p, scratch)
	pace := j.TakePaces()
	if paced, ok := port.As[port.Paced](scratch); ok {
		pace.Train = paced.TakePace()
	}
	cancel()
	wait()
	if _, failed := p.Played(); failed != nil || err != nil {
		err = errors.Join(err, failed)
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the probe saw less than %d train steps and %d rollouts in %d s: this machine is far too slow for the pace", rateSteps, rateRollouts, rateMaxS)
		}
		return rates, err
	}
	rates.GapS, rates.Rollouts = p.Gap(rates.TokenS)
	return rates, keepsPace(pace)
}

// errPace is wrapped by the error of a machine that does not keep the pace.
var errPace = errors.New("this machine does not keep the pace of the modelled devices")

// keepsPace refuses a machine on which the devices' pace is a fiction.
func keepsPace(pace parts.Paces) error {
	for side, p := range map[string]port.Pace{"decode": pace.Decode, "train": pace.Train} {
		if p.LateShare() > refusedLate || p.Slowdown() > refusedSlowdown {
			return failure.Run("raise --decode-step, take fewer --devices, or leave the machine more to spare",
				"%w: in the probe %s of the %s steps took longer than they should, and all together %s longer",
				errPace, report.Share(p.LateShare()), side, report.Share(p.Slowdown()))
		}
	}
	return nil
}

// timeRates times train steps, syncs and decode steps while the probe's rollouts go on.
func timeRates(ctx context.Context, j *run.Run, p *prober, scratch port.Trainer) (study.FrontierRates, error) {
	var rates study.FrontierRates
	var groups []port.Group
	select {
	case groups = <-p.Full:
	case <-ctx.Done():
		return rates, ctx.Err()
	}
	j.TakePaces()
	decodeTime(j.Engines) // the first steps, when slots filled
	began := j.App.Now()
	var trained, synced time.Duration
	for enough := false; !enough; {
		from := j.App.Now()
		rates.Steps++
		if _, err := scratch.Train(ctx, port.Batch{Lease: loop.LeaseID(rates.Steps), Attempt: 1, Version: loop.Version(rates.Steps - 1), Groups: groups}); err != nil {
			return rates, err
		}
		trained += j.App.Now().Sub(from)
		from = j.App.Now()
		if err := reload(ctx, j.Engines); err != nil {
			return rates, err
		}
		synced += j.App.Now().Sub(from)
		played, failed := p.Played()
		enough = rates.Steps >= rateSteps && played >= rateRollouts && j.App.Now().Sub(began) >= rateS*time.Second || failed != nil
	}
	rates.StepS, rates.SyncS = trained.Seconds()/float64(rates.Steps), synced.Seconds()/float64(rates.Steps)
	rates.TokenS = decodeTime(j.Engines)
	return rates, nil
}

// decodeTime is the mean time of a decode step since the last call, in seconds.
func decodeTime(engines []port.Engine) float64 {
	var steps, ns int64
	for _, e := range engines {
		if timed, ok := port.As[port.Timed](e); ok {
			for _, cell := range timed.TakeDecodeTimes() {
				steps, ns = steps+cell.Steps, ns+cell.NS
			}
		}
	}
	return float64(ns) / 1e9 / float64(max(steps, 1))
}

// reload brings version 0 to all engines again, as a sync brings a new one: loaded everywhere, then switched.
func reload(ctx context.Context, engines []port.Engine) error {
	all := func(do func(port.Engine) error) error {
		errs := make([]error, len(engines))
		var wg sync.WaitGroup
		for i, e := range engines {
			wg.Go(func() { errs[i] = do(e) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := all(func(e port.Engine) error { return e.Load(ctx, 0) }); err != nil {
		return err
	}
	return all(func(e port.Engine) error { return e.Switch(ctx, 0, false) })
}
