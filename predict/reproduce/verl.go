package reproduce

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/predict/schedule"
)

// arm is the schedule that a published mode is.
func (r verlRow) arm() schedule.Name {
	switch r.mode {
	case "colocate_sync":
		return schedule.Colocated
	case "stream_off_policy":
		return schedule.Streamed
	}
	return schedule.Partial
}

// verlRun is one row simulated.
type verlRun struct {
	row verlRow
	by  fitted
	// Seconds a step: in all, the trainer's wait for rollouts, its update, and the closed form.
	stepS, waitS, updateS, closedS float64
	staleness                      float64
}

// simulated runs a row with one seed.
func (c fitted) simulated(r verlRow, seed uint64, warmup, batches int) (verlRun, error) {
	in := c.input(r)
	in.Seed, in.Warmup, in.Batches = seed, warmup, batches
	a := in.Arm(r.arm())
	o, err := schedule.Simulate(in, a)
	if err != nil {
		return verlRun{}, fmt.Errorf("%s: %w", r.name(), err)
	}
	run := verlRun{row: r, by: c, stepS: o.Parts.StepS, waitS: o.WaitS - o.Parts.SyncS, closedS: in.ClosedS(a), staleness: o.Summary.Staleness.MeanSyncs}
	if a.Shared {
		run.updateS = o.Parts.TrainS
	} else {
		// What stands beside the update in a train step of our own.
		run.updateS = o.Parts.TrainS - (in.Train.FixedS - c.apartS())
	}
	return run, nil
}

// verlLength is how many batches are simulated, and with how many seeds.
func (o Options) verlLength() (warmup, batches, seeds int) {
	if o.Quick {
		return 2, 4, 2
	}
	return 6, 40, 5
}

// verlJob is one row to be simulated under one calibration.
type verlJob struct {
	by  fitted
	row verlRow
}

// simulateVerl runs jobs with all seeds and returns the runs by job.
func (o Options) simulateVerl(ctx context.Context, name string, jobs []verlJob) ([][]verlRun, error) {
	warmup, batches, seeds := o.verlLength()
	flat, err := inParallel(ctx, len(jobs)*seeds, func(i int) (verlRun, error) {
		j := jobs[i/seeds]
		return j.by.simulated(j.row, uint64(i%seeds+1), warmup, batches)
	}, func(done int) {
		if o.Said != nil {
			o.Said(name, done, len(jobs)*seeds)
		}
	})
	if err != nil {
		return nil, err
	}
	runs := make([][]verlRun, len(jobs))
	for i := range runs {
		runs[i] = flat[i*seeds : (i+1)*seeds]
	}
	return runs, nil
}
